"""The topic of fitted models: scaling laws, and the cost of a collective by message size. docs/metrics.md.

The page has the parameters of accepted models; the cell drawer states why a curve has no model or no prediction.
"""

from collections.abc import Sequence

import pandas as pd

from regatta.core.names import cell_names
from regatta.core.text import duration, is_unknown, percent, plural, ranks_word, three
from regatta.kit.columns import TEXT, Column
from regatta.report.findings import Finding, of_rows, percent_number
from regatta.report.panels import Section, Table, full_names, size_text
from regatta.topics.bandwidth import BUS_FACTOR
from regatta.topics.base import ReportData, TableSpec, Topic, cells_of
from regatta.topics.fits import collectives, scaling

NAME = Column("name", "configuration", TEXT)
BUS_BANDWIDTH = Column("busbw_gb_per_s", "B as bus bandwidth", better="larger")
MOST_ROWS = 20  # of a table; those of the largest shapes come first, and the CSV has all
SCALING_LAWS = {"usl": "the Universal Scalability Law", "amdahl": "Amdahl's law"}


def scaling_table(models: pd.DataFrame) -> Table | None:
    """Return the accepted scaling laws, those of most ranks first; None without any."""
    rows = models[models["scaling_model"].notna()]
    rows = rows.sort_values(["max_world_size", "extrapolated_samples_per_s"], ascending=False, kind="stable")
    rows = rows.assign(prediction_interval="interval")
    columns = scaling.SCALING_MODELS.of_table("laws")
    return _table("Scaling models", columns, rows, models, "train_step", "scaling_models")


def communication_table(models: pd.DataFrame) -> Table | None:
    """Return the accepted communication models, those of most ranks first; None without any."""
    rows = models[models["refusal"].isna()].sort_values("world_size", ascending=False, kind="stable")
    factors = [BUS_FACTOR.get(operation) for operation in rows["operation"]]  # unknown for operations of other tools
    factors = [factor and factor(n) for factor, n in zip(factors, rows["world_size"], strict=True)]
    rows = rows.assign(busbw_gb_per_s=rows["bandwidth_b_gb_per_s"] * pd.array(factors, dtype="Float64"))
    columns = (*collectives.COMMUNICATION_MODELS.of_table("models"), BUS_BANDWIDTH)
    title = "Latency\N{EN DASH}bandwidth models"
    return _table(title, columns, rows, models, "collective", "communication_models")


def _table(
    title: str, columns: Sequence[Column], rows: pd.DataFrame, models: pd.DataFrame, benchmark: str, source: str
) -> Table | None:
    if rows.empty:
        return None
    title += f" (first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""
    named = named_rows(rows.head(MOST_ROWS), models, benchmark)
    return Table.of_columns(title, (NAME, *columns), named, rows["device"].iloc[0], (source,))


def named_rows(chosen: pd.DataFrame, models: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """Return chosen rows with the `name` that each curve has among all models of its table."""
    names = pd.Series(full_names(models, benchmark), index=models.index, dtype=object)
    return chosen.assign(name=names[chosen.index])


def section(data: ReportData) -> Section:
    tables = data.tables
    counts = [
        f"{tables[name][column].count()} of {plural(len(tables[name]), f'{kind} curve')}"
        for kind, name, column in (
            ("communication", "communication_models", "max_residual_ratio"),
            ("scaling", "scaling_models", "scaling_model"),
        )
        if len(tables[name])
    ]
    found = scaling_table(tables["scaling_models"]), communication_table(tables["communication_models"])
    shown = tuple(filter(None, found))
    reasons = "If a curve has no model or no prediction, the drawer of its cells gives the reason."
    lead = f"Fitted: {' and '.join(counts)}. {reasons}" if shown else ""
    return Section("models", "Fitted models", "No measurement is suitable for a model.", lead, tables=shown)


def findings(data: ReportData) -> list[Finding]:
    """Return the latency/bandwidth crossover of each operation, and the scaling law."""
    return [*crossover_sizes(data), *_scaling_law(data)]


def crossover_sizes(data: ReportData) -> list[Finding]:
    """Return for each operation of the library, at the largest shape, the size at which latency is half of the cost.

    The range covers all stacks and data types.
    """
    models = data.tables["communication_models"]
    is_library = models["algorithm"].fillna(collectives.LIBRARY) == collectives.LIBRARY
    known = models[models["half_bandwidth_bytes"].notna() & is_library]
    found = []
    for operation, rows in known.groupby("operation", sort=False):
        largest = rows.sort_values(["world_size", "nodes"]).iloc[-1]
        rows = rows[(rows["nodes"] == largest["nodes"]) & (rows["gpus_per_node"] == largest["gpus_per_node"])]
        [name, *_] = cell_names(rows.to_dict("records"), "collective")
        values = {"name": f"{name.parts['subject']} \N{MIDDLE DOT} {name.parts['shape']} {name.ranks}"}
        values |= {"operation": operation, "world_size": int(largest["world_size"]), "num": len(rows)}
        values |= {"low_bytes": float(rows["half_bandwidth_bytes"].min())}
        values |= {"high_bytes": float(rows["half_bandwidth_bytes"].max())}
        values |= {"low_s": float(rows["latency_a_s"].min()), "high_s": float(rows["latency_a_s"].max())}
        found.append(Finding("crossover_size", values, (of_rows("communication_models", rows),), anchor="models"))
    return found


def _scaling_law(data: ReportData) -> list[Finding]:
    """Return the accepted scaling law of the first curve with most ranks, preferably with a prediction."""
    models = data.tables["scaling_models"]
    fitted = models[models["scaling_model"].notna() & (models["num_launches"] > 1)]
    if fitted.empty:
        return []
    order = ["max_world_size", "extrapolated_world_size"]
    first = fitted.sort_values(order, ascending=False, kind="stable").head(1)
    [row] = named_rows(first, models, "train_step").to_dict("records")
    is_predicted = not is_unknown(row["extrapolated_world_size"])
    values = {
        "name": row["name"],
        "law": row["scaling_model"],
        "sigma_ratio": float(row["sigma_ratio"]),
        "kappa_ratio": None if is_unknown(row["kappa_ratio"]) else float(row["kappa_ratio"]),
        "residual_ratio": float(row["max_residual_ratio"]),
        "num_ranks": int(row["extrapolated_world_size"]) if is_predicted else None,
        "samples_per_s": float(row["extrapolated_samples_per_s"]) if is_predicted else None,
        "ranks": ranks_word(data.device),
        "num_fitted": int(models["scaling_model"].count()),
        "num_curves": len(models),
    }
    return [Finding("scaling_law", values, (of_rows("scaling_models", first),), anchor="models")]


def sentence(finding: Finding) -> str:
    values = finding.values
    if finding.kind == "crossover_size":
        latencies = range_text(duration(values["low_s"]), duration(values["high_s"]))
        return f"{values['name']}: {crossover_text(values)} (fixed cost {latencies} per call), bandwidth-bound above."
    kappa = values["kappa_ratio"]
    coherency = "" if kappa is None else f", coherency κ {three(100 * kappa)} %"
    law = (
        f"{values['name']}: {SCALING_LAWS[values['law']]} fits within {percent_number(values['residual_ratio'])} %"
        f" (contention σ {percent(values['sigma_ratio'])} %{coherency})."
    )
    if values["num_ranks"] is None:
        return law
    where = f"{values['num_ranks']} {values['ranks']}, not measured"
    return f"{law} Predicted for {where}: {three(values['samples_per_s'])} samples/s."


def crossover_text(values: dict) -> str:
    """Return `latency-bound below 13.4-13.5 MiB`. values: of a finding."""
    return f"latency-bound below {range_text(*(size_text(values[name]) for name in ('low_bytes', 'high_bytes')))}"


def range_text(low: str, high: str) -> str:
    """Return two numbers with units as a range: `13.4-13.5 MiB`."""
    (number, unit), (_, other) = low.split(), high.split()
    return low if low == high else f"{number if unit == other else low}\N{EN DASH}{high}"


def methods(campaign: dict) -> list[tuple[str, str]]:
    sizes = {cell["spec"]["parameters"].get("message_bytes") for cell in campaign["cells"]} - {None}
    steps = [cell["spec"] for cell in cells_of(campaign, "train_step")]
    ranks = {spec["nodes"] * spec["gpus_per_node"] for spec in steps if spec["parameters"].get("strategy") != "none"}
    communication = (
        "T(S) = a + c √S + S/B, fitted to the latencies of a collective by robust least squares on logarithms."
        " Size at B/2: message size at which algbw reaches B/2. Smaller messages are latency-bound, larger ones"
        " bandwidth-bound."
        " Parameters that are not identifiable from the measured sizes are omitted. A model with too many large"
        " residuals is rejected. Intervals: from launches or from residuals, the wider of the two. B: algorithm"
        " bandwidth (algbw)."
    )
    scaling_text = (
        "X(n) = X₁ n / (1 + σ (n − 1) + κ n (n − 1)), fitted to weak-scaling throughput. κ = 0: Amdahl's law; else"
        " the Universal Scalability Law. Selected: the accepted model with the lower AICc. Rejected for lack of fit"
        f" (F test, p < {scaling.LACK_P:g}), unless every size is within {100 * scaling.LEAST_MISFIT:g} %. Predictions"
        " reach twice the largest n, and need 4 sizes. Their interval is the union of those of both laws, at most"
        f" {100 * scaling.MAX_PREDICTION_ERROR:g} % away."
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
