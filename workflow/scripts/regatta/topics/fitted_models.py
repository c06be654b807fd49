"""The topic of fitted models: Amdahl's law, and the cost of a collective by message size. docs/metrics.md.

The page has the parameters of accepted models; the cell drawer states why a curve has no model.
"""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from regatta.core.text import ranks_word, size, three
from regatta.kit.columns import TEXT, Column
from regatta.kit.kinds import FAIR, RESULT, Kind, Value
from regatta.report.findings import Finding, of_rows
from regatta.report.panels import Section, Table, full_names
from regatta.tables import amdahl, latency_model
from regatta.tables.bandwidth import BYTES_PER_GB
from regatta.topics.base import ReportData, TableSpec, Topic

NAME = Column("name", "configuration", TEXT)
MOST_ROWS = 20  # of a table; those of the largest shapes come first, and the CSV has all
LAWS, MODELS = amdahl.SCALING_MODELS, latency_model.COMMUNICATION_MODELS
CURVES = {  # title, benchmark, fields of a curve, columns and order of each table
    "scaling_models": ("Scaling models", "train_step", amdahl.CURVE, LAWS.of_table("laws"), "max_world_size"),
    "communication_models": (
        *("Latency\N{EN DASH}bandwidth models", "collective", latency_model.MODEL),
        *(MODELS.of_table("models"), "world_size"),
    ),
}


def cells_of_curves(data: ReportData, table: str, rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the cells of the curves in some rows of a table."""
    _, benchmark, fields, *_ = CURVES[table]
    return tuple(data.cells_of(benchmark).merge(rows[list(fields)])["cell"])


def model_table(table: str, models: pd.DataFrame, data: ReportData | None = None) -> Table | None:
    """Return the accepted models of a table, those of most ranks first; None without any. data: for cells of rows."""
    title, benchmark, _, columns, order = CURVES[table]
    rows = models[models["max_residual_ratio"].notna()].sort_values(order, ascending=False, kind="stable")
    if rows.empty:
        return None
    title += f" (first {MOST_ROWS} of {len(rows):,})" if len(rows) > MOST_ROWS else ""
    named = named_rows(rows.head(MOST_ROWS), models, benchmark)
    shown = Table.of_columns(title, (NAME, *columns), named, rows["device"].iloc[0], (table,))
    return replace(shown, cells=tuple(cells_of_curves(data, table, named.loc[[row]]) for row in named.index if data))


def named_rows(chosen: pd.DataFrame, models: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """Return chosen rows with the `name` that each curve has among all models of its table."""
    names = pd.Series(full_names(models, benchmark), index=models.index, dtype=object)
    return chosen.assign(name=names[chosen.index])


def section(data: ReportData) -> Section | None:
    shown = tuple(filter(None, (model_table(name, data.tables[name], data) for name in CURVES)))
    lead = "If a curve has no model, the details of its cells give the reason."
    return Section(lead, tables=shown) if shown else None


MODEL = (
    "Latency\N{EN DASH}bandwidth model",
    "T(S) = a + c √S + S/B, fitted to the latencies of a collective by robust least squares on logarithms. Messages"
    " below the size at which algbw is B/2 are latency-bound; if the ranges of all stacks and data types overlap, one"
    " size is shown for all. Intervals: from launches or from residuals, the wider of the two.",
)
KINDS = (
    Kind(
        *("scaling_law", RESULT),
        lead="{name}: serial share {sigma_ratio:number} ({sigma_ratio:ends}); Amdahl's law fits within"
        " {residual_ratio:number}.",
        parts=(
            "Predicted for {num_ranks} {ranks}, not measured: efficiency {efficiency_ratio:number}"
            " ({efficiency_ratio:ends}).",
        ),
        term="Amdahl's law",
        help="X(n) = X₁ n / (1 + σ (n − 1)), fitted to weak-scaling throughput. The serial share σ is the part of the"
        " time per sample on one rank that more ranks do not shorten. Rejected if residuals exceed the noise of the"
        " cells. Predicted: efficiency on twice the largest n, if the law still holds there.",
    ),
    Kind(
        *("slow_size", FAIR),
        lead="Bandwidth drop at one size: {size} takes up to {times} the time predicted by the other sizes ({names}).",
        advice="Often a switch of algorithm or protocol. Measure neighboring sizes, also with another algorithm or"
        " protocol (NCCL_ALGO and NCCL_PROTO of NCCL).",
        next_step="measure sizes around {size}, also with another algorithm or protocol",
        key="slow_sizes[]",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return drops at one size, and the scaling law."""
    return [*_slow_sizes(data), *_scaling_law(data)]


def _slow_sizes(data: ReportData) -> Iterator[Finding]:
    """Yield a warning for each size that takes far longer than the others predict, in curves on several ranks."""
    models, cells = data.tables["communication_models"], data.cells_of("collective")
    rows = models[(models["slow_size_ratio"].notna() & (models["world_size"] > 1)).fillna(False)]
    for num_bytes, of_size in named_rows(rows, models, "collective").groupby("slow_size_bytes"):
        values = {"message_bytes": int(num_bytes), "ratio": float(of_size["slow_size_ratio"].max())}
        words = {"names": of_size["name"].tolist(), "size": size(int(num_bytes))}
        words["times"] = f"{three(values['ratio'], 2)}\N{MULTIPLICATION SIGN}"
        is_slow = cells["cell"].isin(cells_of_curves(data, "communication_models", of_size))
        slow = cells.loc[is_slow & (cells["message_bytes"] == num_bytes), "cell"]
        yield Finding("slow_size", values, (of_rows("communication_models", of_size),), tuple(slow), words=words)


def crossover_sizes(data: ReportData) -> list[dict]:
    """Return for each operation of the library, at the largest shape, the size at which latency is half of the cost:
    `low_bytes`, `high_bytes`, and `size` as a text.

    One for all stacks and data types if their ranges overlap, else one for each.
    """
    models = data.tables["communication_models"]
    is_library = models["algorithm"].fillna(latency_model.LIBRARY) == latency_model.LIBRARY
    known, found = models[models["half_bandwidth_bytes"].notna() & is_library].copy(), []
    for end, name in ((1, "low_bytes"), (2, "high_bytes")):
        a, c, rate = (known[column.names[end]].astype(float).fillna(0) for column in latency_model.PARAMETERS)
        known[name] = latency_model.half_bandwidth(a, c, rate * BYTES_PER_GB)
    for operation, rows in known.groupby("operation", sort=False):
        places = list(zip(rows["world_size"], rows["nodes"], rows["gpus_per_node"], strict=True))
        rows = rows[[place == max(places) for place in places]]
        is_one = rows["low_bytes"].max() <= rows["high_bytes"].min()
        for part in [rows] if is_one else [rows.loc[[at]] for at in rows.index]:
            low, high = float(part["low_bytes"].min()), float(part["high_bytes"].max())
            values = {"operation": operation, "world_size": max(places)[0], "stacks": sorted(set(part["stack"]))}
            values |= {"low_bytes": low, "high_bytes": high, "size": _range(size(int(low)), size(int(high)))}
            found.append(values)
    return found


def _scaling_law(data: ReportData) -> list[Finding]:
    """Return Amdahl's law of the first curve with most ranks."""
    models = data.tables["scaling_models"]
    fitted = models[models["max_residual_ratio"].notna()]
    first, found = fitted.sort_values("max_world_size", ascending=False, kind="stable").head(1), []
    columns = {"sigma_ratio": amdahl.SIGMA, "residual_ratio": amdahl.RESIDUAL, "efficiency_ratio": amdahl.PREDICTED}
    for row in named_rows(first, models, "train_step").itertuples():
        values = {name: Value.of(row, column) for name, column in columns.items()}
        values |= {"num_ranks": int(row.extrapolated_world_size)}
        words = {"name": row.name, "ranks": ranks_word(data.device)}
        cells, source = cells_of_curves(data, "scaling_models", first), of_rows("scaling_models", first)
        found.append(Finding("scaling_law", values, (source,), cells, words=words))
    return found


def _range(low: str, high: str) -> str:
    """Return two numbers with units as a range: `13.4-13.5 MiB`."""
    (number, unit), (_, other) = low.split(), high.split()
    return low if low == high else f"{number if unit == other else low}\N{EN DASH}{high}"


MODELS_OF_SCALING = TableSpec.of(amdahl.SCALING_MODELS, amdahl.scaling_models_table, "cells")
MODELS_OF_CALLS = TableSpec.of(
    latency_model.COMMUNICATION_MODELS, latency_model.communication_models_table, "cells", "measurements"
)
TABLES = {"scaling_models": MODELS_OF_SCALING, "communication_models": MODELS_OF_CALLS}
TOPIC = Topic("models", "Fitted models", TABLES, section, findings, KINDS, (MODEL,))
