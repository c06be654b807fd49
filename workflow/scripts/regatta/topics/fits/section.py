"""The topic of fitted models: laws of scaling, and the cost of a collective over its message size. docs/metrics.md."""

from regatta.core.text import is_unknown, percent, plural, ranks_word, three
from regatta.report.findings import Finding, of_rows, percent_number
from regatta.report.panels import Section
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.fits import collectives, scaling
from regatta.topics.fits.figures import (
    SCALING_LAWS,
    communication_model_figures,
    named_rows,
    refusal_table,
    scaling_model_figures,
)
from regatta.topics.scaling.tables import steps_by_cell


def section(data: ReportData) -> Section:
    tables = data.tables
    steps = steps_by_cell(data.measurements)
    figures = (
        *scaling_model_figures(tables["scaling_models"], tables["scaling"], steps, data.device),
        *communication_model_figures(tables["communication_models"], tables["collectives"]),
    )
    counts = [
        f"{int(tables[name]['refusal'].isna().sum())} of {plural(len(tables[name]), f'{kind} curve')}"
        for kind, name in (("communication", "communication_models"), ("scaling", "scaling_models"))
        if len(tables[name])
    ]
    refused = refusal_table(tables["scaling_models"], tables["communication_models"])
    lead = (
        "Shown: the curve with the highest throughput of each model, and the largest shape of each operation."
        f" Fitted: {' and '.join(counts)}."
    )
    return Section(
        "models",
        "Fitted models",
        "Nothing was measured that a model could be fitted to.",
        lead if figures else "",
        figures,
        (refused,) if refused else (),
    )


def findings(data: ReportData) -> list[Finding]:
    """Return the accepted scaling law of the curve with most ranks; of curves with as many, that with most throughput."""
    models = data.tables["scaling_models"]
    fitted = models[models["refusal"].isna() & (models["num_launches"] > 1)]
    if fitted.empty:
        return []
    best = fitted.sort_values(["max_world_size", "extrapolated_samples_per_s"], ascending=False, kind="stable").head(1)
    [row] = named_rows(best, models, "train_step")
    values = {
        "name": row["name"],
        "law": row["scaling_model"],
        "sigma_ratio": float(row["sigma_ratio"]),
        "kappa_ratio": None if is_unknown(row["kappa_ratio"]) else float(row["kappa_ratio"]),
        "residual_ratio": float(row["max_residual_ratio"]),
        "num_ranks": int(row["extrapolated_world_size"]),
        "samples_per_s": float(row["extrapolated_samples_per_s"]),
        "ranks": ranks_word(data.device),
        "num_fitted": int(models["refusal"].isna().sum()),
        "num_curves": len(models),
    }
    return [Finding("scaling_law", values, (of_rows("scaling_models", best),), anchor="models")]


def sentence(finding: Finding) -> str:
    values = finding.values
    kappa = values["kappa_ratio"]
    coherence = "" if kappa is None else f", coherence κ {three(100 * kappa)} %"
    return (
        f"{values['name']}: {SCALING_LAWS.get(values['law'], values['law'])} fits within"
        f" {percent_number(values['residual_ratio'])} % (contention σ {percent(values['sigma_ratio'])} %{coherence}) and predicts"
        f" {three(values['samples_per_s'])} samples/s on {values['num_ranks']} {values['ranks']}, which were not measured."
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    specs = [cell["spec"] for cell in campaign["cells"]]
    sizes = {spec["parameters"].get("message_bytes") for spec in specs} - {None}
    wrapped = [
        spec for spec in specs if spec["benchmark"] == "train_step" and spec["parameters"].get("strategy") != "none"
    ]
    ranks = {spec["nodes"] * spec["gpus_per_node"] for spec in wrapped}
    communication = (
        "T(S) = a + c √S + S/B, fitted to a collective's latencies by robust least squares on logarithms. Parameters that are"
        " not identifiable from these sizes are left out; a model that misses too many sizes is rejected. Intervals: the wider"
        " of launches and residuals. B is algorithm bandwidth (algbw)."
    )
    scaling_text = (
        "X(n) = X₁ n / (1 + σ (n − 1) + κ n (n − 1)): Amdahl's law for κ = 0, else the Universal Scalability Law, fitted to"
        " weak-scaling throughput; the accepted model with the lower AICc. Rejected for lack of fit (F test,"
        f" p < {scaling.LACK_P:g}), unless every size is within {100 * scaling.LEAST_MISFIT:g} %. Predictions reach twice the"
        " largest n."
    )
    terms = [("Communication model", communication)] if len(sizes) >= collectives.MIN_SIZES else []
    return [*terms, *([("Scaling models", scaling_text)] if len(ranks) >= min(scaling.MIN_SIZES.values()) else [])]


TABLES = {
    "scaling_models": TableSpec(
        scaling.SCALING_MODELS,
        lambda _, tables: scaling.scaling_models_table(tables["scaling"], tables["measurements"]),
    ),
    "communication_models": TableSpec(
        collectives.COMMUNICATION_MODELS,
        lambda _, tables: collectives.communication_models_table(tables["collectives"], tables["measurements"]),
    ),
}
TOPIC = Topic("fits", "Fitted models", TABLES, section, findings, sentence, methods=methods)
