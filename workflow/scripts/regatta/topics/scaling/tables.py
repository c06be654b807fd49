"""Throughput and efficiency of training steps: tables/scaling.csv and efficiencies.csv. Definitions: docs/metrics.md.

Rates are never averaged: times per step are averaged over launches, and rates are derived from the mean.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from regatta.core.statistics import Estimate, fast_median, interval_values
from regatta.core.text import is_unknown
from regatta.core.verdicts import judge_all
from regatta.store.collect import cell_row
from regatta.store.csv_files import REAL, STEP_COLUMNS, TEXT, WHOLE, cell_columns, interval_columns, make_table
from regatta.topics.base import cells_of, launch_means, values_of_cells, with_primary
from regatta.topics.comparison.tables import Times, sides_of, times_by_cell

SCALING = {
    **cell_columns(STEP_COLUMNS),
    **interval_columns("step", "s"),
    "step_median_s": REAL,
    **interval_columns("throughput", "samples_per_s"),
    **dict.fromkeys(("throughput_per_gpu_samples_per_s", "throughput_tokens_per_s"), REAL),
    "flops_per_sample": WHOLE,
    "compute_per_gpu_tflop_per_s": REAL,
    "peak_dtype": TEXT,
    "peak_tflop_per_s": REAL,
    "mfu_ratio": REAL,
    "baseline": TEXT,
    "baseline_samples_per_s": REAL,
    **interval_columns("efficiency", "ratio"),
    "efficiency_interval": TEXT,
    "grade": TEXT,
    **dict.fromkeys(("wrapper_ratio", "intra_node_ratio", "inter_node_ratio"), REAL),
}
NEVER_NULL = ("model", "strategy", "nodes", "gpus_per_node")  # never null in a train_step cell; they narrow the search


class BaselineLookup:
    """Find the cell that a cell is compared with: the same but for some changes, such as one rank and no DDP."""

    def __init__(self, cells: list[dict]) -> None:
        self.specs = {cell["id"]: cell["spec"] for cell in cells}
        self._flat = {cell: _flat(spec) for cell, spec in self.specs.items()}
        values: dict[str, set] = {}
        for name, value in (item for spec in self.specs.values() for item in spec["parameters"].items()):
            values.setdefault(name, set()).add(value)
        self._varied_first = sorted(values, key=lambda name: -len(values[name]))
        self._like: dict[tuple, list[str]] = {}
        for cell, flat in self._flat.items():
            self._like.setdefault(_key(flat), []).append(cell)

    def find(self, spec: dict, changes: dict) -> str | None:
        """Return the one cell that equals `spec` but for `changes` (to shape or parameters), or None.

        A parameter that is null in the found cell has no effect there, so it need not be equal.
        """
        wanted = _flat(spec) | changes
        names = [*(name for name in self._varied_first if name in wanted), *wanted]  # most differ in the first

        def is_like(found: dict) -> bool:
            return wanted.keys() == found.keys() and all(
                found[name] == wanted[name] or (found[name] is None and name not in changes) for name in names
            )

        matches = [cell for cell in self._like.get(_key(wanted), []) if is_like(self._flat[cell])]
        return matches[0] if len(matches) == 1 else None


def _key(flat: dict) -> tuple:
    return flat["stack"]["name"], *(flat.get(name) for name in NEVER_NULL)


def _flat(spec: dict) -> dict:
    return {name: value for name, value in spec.items() if name != "parameters"} | spec["parameters"]


TFLOP = 10**12
UTILIZATION_COLUMNS = ("flops_per_sample", "gpu", "allow_tf32_matmul", "allow_tf32_cudnn")  # in measurements.csv


def utilization(campaign: dict, spec: dict, launches: Mapping, step_s: float | None) -> dict:
    """Return operations and tokens per second and MFU of one cell. launches: columns of measurements.csv.

    What launches do not agree on is unknown.
    """
    parameters = spec["parameters"]
    context_length, batch = parameters.get("context_length"), parameters["batch_size"]
    world_size = spec["nodes"] * spec["gpus_per_node"]
    row = {}
    if context_length is not None and step_s is not None:
        row["throughput_tokens_per_s"] = world_size * batch * context_length / step_s
    flops_per_sample = _agreed(launches, "flops_per_sample")
    if flops_per_sample is None or step_s is None:
        return row
    reached = int(flops_per_sample) * batch / step_s / TFLOP
    row |= {"flops_per_sample": int(flops_per_sample), "compute_per_gpu_tflop_per_s": reached}
    if peak := peak_of(campaign, spec, launches):
        row |= {"peak_dtype": peak["dtype"], "peak_tflop_per_s": peak["tflop_per_s"]}
        row |= {"mfu_ratio": reached / peak["tflop_per_s"]}
    return row


def peak_of(campaign: dict, spec: dict, launches: Mapping) -> dict | None:
    """Return the entry of the cluster file's `peaks` that MFU is relative to, or None if it is unknown.

    It is the peak for the fastest math mode that torch allows, so that MFU is never overstated: with fp32 that of tf32,
    where the file has one for the GPU and the ranks' settings allow it.
    """
    gpu = _agreed(launches, "gpu")
    peaks = {peak["dtype"]: peak for peak in campaign["cluster"].get("peaks") or [] if peak["device"] == gpu}
    dtype, is_classifier = spec["parameters"]["dtype"], spec["parameters"].get("image_size") is not None
    if dtype != "fp32" or "tf32" not in peaks:
        return peaks.get(dtype)
    # Settings of matrix products and of cuDNN: every classifier has convolutions.
    settings = ("allow_tf32_matmul", "allow_tf32_cudnn") if is_classifier else ("allow_tf32_matmul",)
    is_allowed = [_agreed(launches, setting) for setting in settings]
    return None if None in is_allowed else peaks.get("tf32" if any(is_allowed) else "fp32")


def _agreed(launches: Mapping, column: str) -> object | None:
    """Return the one value that all launches have, or None."""
    values = list(dict.fromkeys(launches[column]))
    return None if len(values) != 1 or pd.isna(values[0]) else values[0]


EXCELLENT, GOOD = 0.9, 0.8  # efficiency above which the words are given
WIDE_RATIO = 0.2  # an efficiency whose range is wider than this share of it is uncertain
ONE_RANK = {"nodes": 1, "gpus_per_node": 1}
NO_DDP = ONE_RANK | {"strategy": "none"}


def scaling_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    cells, steps, rows = cells_of(campaign, "train_step"), StepTimes(measurements), []
    lookup = BaselineLookup(cells)
    baselines = {cell["id"]: lookup.find(cell["spec"], campaign["baseline"]) for cell in cells}
    pairs = [(lookup.specs[cell], lookup.specs.get(of), cell, of) for cell, of in baselines.items()]
    ratios = efficiencies(pairs, steps)
    ok = measurements.loc[measurements["status"] == "ok", ["cell", *UTILIZATION_COLUMNS]]
    launches = {name: values_of_cells(ok, name) for name in UTILIZATION_COLUMNS}
    for cell, ratio in zip(cells, ratios, strict=True):
        row = {"num_planned": campaign["repeats"]} | cell_row(cell)
        row |= _rates(cell, steps) | _efficiency_columns(baselines[cell["id"]], cell["id"], ratio, lookup, steps)
        row |= _parts(cell["spec"], lookup, steps)
        of_cell = {name: values.get(cell["id"], []) for name, values in launches.items()}
        rows.append(row | utilization(campaign, cell["spec"], of_cell, row["step_s"]))
    return make_table(rows, SCALING)


class StepTimes:
    """The primary times of all cells. means: over launches, by cell. launches: repeat -> (batch, seconds), by cell."""

    def __init__(self, measurements: pd.DataFrame) -> None:
        self.means = launch_means(with_primary(measurements), "primary_s")
        self.launches: dict[str, Times] = times_by_cell(measurements)


def is_too_wide(efficiency_ratio: float, low: float | None, high: float | None) -> bool:
    """Return whether the range of an efficiency is too wide for a conclusion; False if it is unknown."""
    return not (is_unknown(low) or is_unknown(high)) and high - low > WIDE_RATIO * efficiency_ratio


def grade(efficiency_ratio: float, low: float | None = None, high: float | None = None) -> str | None:
    """Return the word for an efficiency, or None if its range is unknown, too wide or crosses a limit."""
    if low is None or high is None:
        return None  # otherwise one launch would get a firmer statement than six
    is_on_both_sides = any(low <= limit < high for limit in (EXCELLENT, GOOD))
    return None if is_on_both_sides or is_too_wide(efficiency_ratio, low, high) else _word(efficiency_ratio)


def grades_within(low: float, high: float) -> list[str]:
    """Return the words that a range covers, the best first."""
    words = ["excellent", "good", "poor"]
    return words[words.index(_word(high)) : words.index(_word(low)) + 1]


def _word(efficiency_ratio: float) -> str:
    if efficiency_ratio > EXCELLENT:
        return "excellent"
    return "good" if efficiency_ratio > GOOD else "poor"


def _rates(cell: dict, steps: StepTimes) -> dict:
    spec, step = cell["spec"], steps.means[cell["id"]]
    batch, world_size = spec["parameters"]["batch_size"], spec["nodes"] * spec["gpus_per_node"]
    seconds = [seconds for _, seconds in steps.launches[cell["id"]].values()]
    return {
        "num_launches": step.num,
        "interval": step.kind,
        **interval_values("step", "s", step),
        "step_median_s": fast_median(seconds) if seconds else None,
        "throughput_samples_per_s": _rate(world_size * batch, step.mean),
        "throughput_low_samples_per_s": _rate(world_size * batch, step.high),
        "throughput_high_samples_per_s": _rate(world_size * batch, step.low),
        "throughput_per_gpu_samples_per_s": _rate(batch, step.mean),
    }


def efficiencies(pairs: list[tuple[dict, dict | None, str, str | None]], steps: StepTimes) -> list[Estimate]:
    """Return throughput per GPU relative to the baseline's, (b/T) / (b0/T0), of all pairs of one table.

    pairs: specs of cell and baseline, and their ids; without a baseline None. With weak scaling b = b0: T0/T. With
    strong scaling b = b0/n on n ranks: T(1) / (n T(n)). The interval is that of a moderated contrast (verdicts.py).
    """
    known = [i for i, (*_, cell, baseline) in enumerate(pairs) if baseline not in (None, cell)]
    compared = [sides_of(*(steps.launches[name] for name in pairs[i][2:])) for i in known]
    compared = [replace(pair, allocations=((), ())) for pair in compared]
    found = [Estimate(0) for _ in pairs]
    for i, verdict in zip(known, judge_all(compared, [None] * len(compared)), strict=True):
        batch, batch_0 = (spec["parameters"]["batch_size"] for spec in pairs[i][:2])
        found[i] = verdict.ratio.times(batch / batch_0)
    return found


def _efficiency_columns(
    baseline: str | None, cell: str, ratio: Estimate, lookup: BaselineLookup, steps: StepTimes
) -> dict:
    """Return the columns of the baseline. A baseline itself has efficiency 1, without range and grade."""
    if baseline is None:
        return {"baseline": None}
    spec, base = lookup.specs[baseline], steps.means[baseline]
    work = spec["nodes"] * spec["gpus_per_node"] * spec["parameters"]["batch_size"]
    row = {"baseline": baseline, "baseline_samples_per_s": _rate(work, base.mean)}
    if baseline == cell:
        return row | {"efficiency_ratio": None if base.mean is None else 1.0}
    word = None if ratio.mean is None else grade(ratio.mean, ratio.low, ratio.high)
    return row | interval_values("efficiency", "ratio", ratio) | {"efficiency_interval": ratio.kind, "grade": word}


def _parts(spec: dict, lookup: BaselineLookup, steps: StepTimes) -> dict:
    """Return where efficiency is lost: DDP X(1)/X_none(1), intra-node X(g)/(g X(1)), inter-node X(kg)/(k X(g)).

    A part that this shape does not have (no second GPU or node) and one with a missing cell are both unknown.
    """

    def step_s(changes: dict) -> float | None:
        cell = lookup.find(spec, changes)
        return None if cell is None else steps.means[cell].mean

    unwrapped, one_gpu, one_node, all_nodes = map(step_s, (NO_DDP, ONE_RANK, {"nodes": 1}, {}))
    is_wrapped = spec["parameters"]["strategy"] != "none"
    return {
        "wrapper_ratio": _ratio(unwrapped, one_gpu) if is_wrapped else None,
        "intra_node_ratio": _ratio(one_gpu, one_node) if spec["gpus_per_node"] > 1 else None,
        "inter_node_ratio": _ratio(one_node, all_nodes) if spec["nodes"] > 1 else None,
    }


def _rate(work: float, seconds: float | None) -> float | None:
    return None if seconds is None else work / seconds


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


WEAK, STRONG = "weak", "strong"
EFFICIENCIES = {
    **{name: kind for name, kind in SCALING.items() if name in ("cell", "num_planned", "num_launches")},
    "scaling": TEXT,
    "against": TEXT,
    "baseline": TEXT,
    "num_baseline_launches": WHOLE,
    "baseline_step_s": REAL,
    **interval_columns("efficiency", "ratio"),
    "interval": TEXT,
}


def efficiencies_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each train_step cell of several ranks and each baseline of it that the campaign has."""
    cells, steps, rows, pairs = cells_of(campaign, "train_step"), StepTimes(measurements), [], []
    lookup = BaselineLookup(cells)
    for cell in cells:
        for scaling, against, changes in baselines_of(cell["spec"]):
            if (baseline := lookup.find(cell["spec"], changes)) is None:
                continue
            base, pair = steps.means[baseline], (cell["spec"], lookup.specs[baseline], cell["id"], baseline)
            row = {"num_planned": campaign["repeats"], "scaling": scaling, "against": against, "baseline": baseline}
            row |= {"num_launches": steps.means[cell["id"]].num, "num_baseline_launches": base.num}
            rows.append(cell_row(cell) | row | {"baseline_step_s": base.mean})
            pairs.append(pair)
    for row, ratio in zip(rows, efficiencies(pairs, steps), strict=True):
        row |= interval_values("efficiency", "ratio", ratio) | {"interval": ratio.kind}
    return make_table(rows, EFFICIENCIES)


def baselines_of(spec: dict) -> Iterator[tuple[str, str, dict]]:
    """Yield (weak or strong, its name, what differs from the cell) for each baseline of a cell; none of one rank."""
    n, parameters = spec["nodes"] * spec["gpus_per_node"], spec["parameters"]
    if n == 1:
        return
    strategy, same_work = parameters["strategy"], {"batch_size": parameters["batch_size"] * n}
    if strategy != "none":
        yield WEAK, "none, 1 rank", NO_DDP
    yield WEAK, f"{strategy}, 1 rank", ONE_RANK
    if spec["nodes"] > 1:
        yield WEAK, f"{strategy}, 1 node", {"nodes": 1}
    if strategy != "none":
        yield STRONG, "none, 1 rank", NO_DDP | same_work
    yield STRONG, f"{strategy}, 1 rank", ONE_RANK | same_work
