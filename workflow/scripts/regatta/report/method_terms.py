"""Terms of the Methods section on what is derived from times by more than a ratio. Each only where a campaign has it."""

from regatta.analysis import communication_model, scaling_models
from regatta.analysis.comparison import MARGIN
from regatta.analysis.versus import alike_stacks, cell_pairs
from regatta.verdicts import (
    FALSE_DISCOVERIES,
    MIN_LAUNCHES_EQUIVALENT,
    MIN_LAUNCHES_TEST,
    MIN_NOISE_PAIRS,
)

COMPARISONS = (
    "Ratio of the medians over launches of p50_s (synchronised steps, blocking calls), or where launches shared an allocation the median of their own"
    f" ratios; above 1 is slower. Slower and faster: the whole spread lies beyond the margin, and p that the ratio is 1 is at most {FALSE_DISCOVERIES:g},"
    " corrected by Benjamini and Hochberg over all rows. The test is Mann–Whitney's U or Wilcoxon's signed ranks, and a t test of logarithms where no outcome"
    f" of a rank test could reach the corrected level. Equivalent: the whole spread lies within the margin, from {MIN_LAUNCHES_EQUIVALENT[False]} launches on"
    f" both sides or {MIN_LAUNCHES_EQUIVALENT[True]} pairs. Margin: the campaign's (else {100 * MARGIN:g} %), and of a benchmark with {MIN_NOISE_PAIRS} pairs or"
    f" more of cells on alike stacks (A/A), {MIN_LAUNCHES_TEST} launches each, no less than the 95th percentile of how far those are from 1, the largest of"
    " fewer than 59. A/A pairs themselves are not judged."
)
COMMUNICATION_MODEL = (
    "T(S) = a + c √S + S/B, fitted to the latencies of a collective's sizes by robust least squares of logarithms; a parameter that the sizes cannot tell is"
    " left out, and a model that misses too many sizes is refused. The spread is the wider of that over launches and that of the residuals. B is algorithm"
    " bandwidth (algbw), S over the time per call."
)
SCALING_MODELS = (
    "X(n) = X₁ n / (1 + σ (n − 1) + κ n (n − 1)), with κ = 0 Amdahl's law, else the Universal Scalability Law, fitted in the same way to weak-scaling"
    " throughput; of models that fit, the one with the lower AICc. A model whose residuals are more than the launches' scatter explains (F test of lack of fit,"
    f" p below {scaling_models.LACK_P:g}) is refused, unless it comes within {100 * scaling_models.LEAST_MISFIT:g} % of every size. None predicts beyond twice the largest n."
)
BEST_BUCKET = (
    "The measured best has the fastest median step; it is no test. The predicted one is √(s w o), for s bytes of gradients, bandwidth w and cost o of a call"
    " of the all-reduce: what the calls cost then equals what the last bucket, which nothing hides, takes. Its spread is that of w and o, not of the formula."
)
EXPOSED = (
    "The step minus the same step without exchange of gradients, medians of rounds in which both take turns, in each launch, then the median over launches. Hidden"
    " is 1 − exposed / the time of the exchange alone. n: launches with both steps. Not known of fsdp and static graphs, which have no such step."
)
MFU = (
    "Operations of the model's products (of the model, not of the hardware: a multiply and an add are two) per second and GPU, over the GPU's peak in the"
    " cluster file for the fastest arithmetic that torch's settings allow. Empty where GPU, settings or peak are not known."
)


def analysis_terms(campaign: dict) -> list[tuple[str, str]]:
    """Return (term, definition) pairs of what the cells of a campaign can give. Definitions: docs/metrics.md."""
    cells = [cell["spec"] for cell in campaign["cells"]]
    steps = [spec for spec in cells if spec["benchmark"] == "train_step"]
    wrapped = [spec for spec in steps if spec["parameters"].get("strategy") not in (None, "none")]
    on_several = [spec for spec in wrapped if _world_size(spec) > 1]
    sizes = {spec["parameters"].get("message_bytes") for spec in cells} - {None}
    buckets = {spec["parameters"].get("bucket_cap_mb") for spec in on_several} - {None}
    terms = {
        "Comparisons": (COMPARISONS, bool(cell_pairs(campaign) or alike_stacks(campaign))),
        "Communication model": (COMMUNICATION_MODEL, len(sizes) >= communication_model.MIN_SIZES),
        "Scaling models": (
            SCALING_MODELS,
            len(set(map(_world_size, wrapped))) >= min(scaling_models.MIN_SIZES.values()),
        ),
        "Best bucket": (BEST_BUCKET, len(buckets) > 1),
        "Exposed communication": (EXPOSED, bool(on_several)),
        "MFU": (MFU, bool(steps and campaign["cluster"].get("peaks"))),
    }
    return [(term, text) for term, (text, is_there) in terms.items() if is_there]


def _world_size(spec: dict) -> int:
    return spec["nodes"] * spec["gpus_per_node"]
