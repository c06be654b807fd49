"""What synchronised batch norms take, in time and memory: tables/batch_norms.csv. Definitions: docs/metrics.md."""

import numpy as np
import pandas as pd

from regatta.core.names import PLACE
from regatta.core.statistics import over_launches
from regatta.core.text import (
    UNKNOWN,
    bracket,
    duration_tick,
    is_unknown,
    natural,
    ratio_text,
    size,
    spread_head,
    three,
    times,
)
from regatta.report.findings import Finding, Value, of_cells, time_text
from regatta.report.panels import (
    Figure,
    Section,
    Table,
    how_to_read,
    launches,
    make_figure,
    make_series,
    name_rows,
    panels,
)
from regatta.report.plotting import Axis, Panel, size_ticks
from regatta.store.collect import cell_row
from regatta.store.tables import CELL, REAL, TEXT, WHOLE, make_table
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.scaling.tables import medians_of_launches

_CELL = (
    "implementation", "batch_size", "hidden", "dtype", "nodes", "gpus_per_node", "world_size", "stack", "backend", "device",
)  # fmt: skip
# Beginning of three columns -> the column of one launch. Both passes together are no sum of medians.
TIMES = {"time": "p50_s", "forward": "forward_s", "backward": "backward_s"}
LARGEST_BYTES = ("parameter_bytes", "gradient_bytes", "saved_bytes", "peak_allocated_bytes")
LARGEST_ERRORS = ("largest_output_error", "largest_input_gradient_error")
BATCH_NORMS = {
    "cell": TEXT,
    **{name: CELL[name] for name in _CELL},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "interval": TEXT,
    **{f"{name}{end}": REAL for name in TIMES for end in ("_s", "_low_s", "_high_s")},
    **dict.fromkeys(LARGEST_BYTES, WHOLE),
    **dict.fromkeys(LARGEST_ERRORS, REAL),
}


def batch_norms_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each sync_batchnorm cell, measured or not."""
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "sync_batchnorm"]
    own = measurements[(measurements["status"] == "ok") & (measurements["benchmark"] == "sync_batchnorm")]
    ok = dict(list(own.groupby("cell")))
    rows = []
    for cell in sorted(cells, key=lambda cell: natural(cell["id"])):
        columns = _columns(ok[cell["id"]]) if cell["id"] in ok else {"num_launches": 0, "interval": "none"}
        rows.append(cell_row(cell) | {"num_planned": campaign["repeats"]} | columns)
    return make_table(rows, BATCH_NORMS)


def _columns(launches: pd.DataFrame) -> dict:
    row = {"num_launches": len(launches)}
    for name, column in TIMES.items():
        spread = over_launches(launches[column].dropna().tolist())
        row |= {f"{name}_s": spread.median, f"{name}_low_s": spread.low, f"{name}_high_s": spread.high}
    row["interval"] = over_launches(launches["p50_s"].dropna().tolist()).kind
    largest = launches[[*LARGEST_BYTES, *LARGEST_ERRORS]].max()
    return row | {name: None if pd.isna(value) else value for name, value in largest.items()}


# The figures of sync_batchnorm: time of both passes over the number of features; its table has each pass, memory, errors.

MICROSECONDS, MILLISECONDS = 1e6, 1e3
INPUT = ["batch_size", "hidden", "dtype"]
MOST_FINDINGS = 2
MEMORY_COLUMNS = {
    "allocator's peak": "peak_allocated_bytes",
    "saved for backward": "saved_bytes",
    "gradients": "gradient_bytes",
    "weights": "parameter_bytes",
}


def batch_norm_figures(batch_norms: pd.DataFrame, medians: dict[str, list[float]]) -> list[Figure]:
    """Return time over features for each shape. medians: seconds of each launch, by cell."""
    measured = batch_norms[batch_norms["time_s"].notna()]
    if measured.empty:
        return []
    rows = batch_norms.sort_values(["nodes", "gpus_per_node", "implementation", "batch_size", "hidden"], kind="stable")
    rows = name_rows(rows, "sync_batchnorm", without=("hidden",))
    features = sorted(set(measured["hidden"]))
    x = Axis("features", True, min(features), max(features), size_ticks(features, str, most=4))
    all_times = [t for cell in measured["cell"] for t in medians[cell]]
    y = Axis("forward and backward", True, min(all_times), max(all_times), show=duration_tick)
    found = [
        (title, part)
        for _, of_shape in rows.groupby(["nodes", "gpus_per_node"], sort=True)
        for title, part in panels(
            of_shape, lambda name: (*name.series, *name.settings, *PLACE), lambda name: name.say("shape")
        )
        if part["time_s"].notna().any()
    ]
    return [_figure(f"batch-norm-{number}", *panel, medians, x, y) for number, panel in enumerate(found, start=1)]


def _figure(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis) -> Figure:
    series = make_series(rows, "label", "hidden", lambda row: medians.get(row.cell, []), lambda row: row.time_s)
    caption = (
        "Time of forward and backward of one layer on its slowest rank, over the features of a row; both axes logarithmic, lower is"
        " better. A batch is the rows of one rank. Each pass by itself, memory and errors stand in the table; the passes'"
        f" medians need not add up. {how_to_read(rows, 'time_s')}"
    )
    measured = rows[rows["time_s"].notna()]
    text, _ = _told(measured)
    alt = f"Synchronised batch norm on {title}: {text}."
    words, table, columns = (alt, caption), _table(title, rows), list(BATCH_NORMS)
    return make_figure(
        figure_id, f"Batch norm: {title}", Panel(x, y, series), words, table, rows[columns], "batch_norms"
    )


def _told(rows: pd.DataFrame) -> tuple[str, list[str]]:
    """Return how implementations compare on the same input, or the least and the most of a single one; and of which cells."""
    if rows["implementation"].nunique() == 1:
        least, most = rows.loc[rows["time_s"].idxmin()], rows.loc[rows["time_s"].idxmax()]
        text = f"{least['implementation']} takes {_where(least)}"
        text += "" if least["cell"] == most["cell"] else f", up to {_where(most)}"
        return text, [least["cell"], most["cell"]]
    pairs = rows.pivot_table(
        index=["batch_size", "hidden", "dtype", "stack", "backend"],
        columns="implementation",
        values="time_s",
        sort=True,
    )
    ratio = (pairs["own"] / pairs["torch"]).dropna()
    if ratio.empty:
        return "no input was measured with both implementations", []
    by_input = rows.set_index(list(pairs.index.names)).sort_index()
    told = by_input.loc[[np.log(ratio).abs().idxmax()]].reset_index()
    own, torch = (told[told["implementation"] == name].iloc[0] for name in ("own", "torch"))
    span = " to ".join(
        ratio_text(float(end)) for end in ([ratio.min()] if len(ratio) == 1 else [ratio.min(), ratio.max()])
    )
    cells = [own["cell"], torch["cell"], *by_input.loc[[ratio.idxmin(), ratio.idxmax()], "cell"]]
    return f"own takes {span} times as long as torch; most apart {_where(own)} against {_time(torch)}", cells


def _where(row: pd.Series) -> str:
    return f"{_time(row)} with batch {row['batch_size']} and {row['hidden']} features (n = {row['num_launches']})"


def _time(row: pd.Series) -> str:
    """Return a time and its spread in one unit: 469 (436 to 503) µs."""
    factor, unit = (MICROSECONDS, "\N{MICRO SIGN}s") if row["time_s"] < 1e-3 else (MILLISECONDS, "ms")
    spread = bracket(*(times(row[f"time_{end}_s"], factor) for end in ("low", "high")), row["interval"])
    return f"{three(times(row['time_s'], factor))}{'' if spread == UNKNOWN else f' {spread}'} {unit}"


def _table(title: str, rows: pd.DataFrame) -> Table:
    known = {head: column for head, column in MEMORY_COLUMNS.items() if rows[column].notna().any()}
    spread = f"{spread_head(rows['interval'])} (µs)"
    heads = ("layer", "features", "n", "both (µs)", spread, "forward (µs)", "backward (µs)", *known)
    return Table(
        f"Time, memory of one rank and largest error of {title}",
        (*heads, "error of output", "error of input gradient"),
        tuple(
            (
                row.cell_name.say(*row.cell_name.series, *row.cell_name.settings, *PLACE),
                str(row.hidden),
                launches(row),
                three(times(row.time_s, MICROSECONDS)),
                bracket(times(row.time_low_s, MICROSECONDS), times(row.time_high_s, MICROSECONDS), row.interval),
                three(times(row.forward_s, MICROSECONDS)),
                three(times(row.backward_s, MICROSECONDS)),
                *(UNKNOWN if is_unknown(getattr(row, c)) else size(getattr(row, c)) for c in known.values()),
                *(_error(error) for error in (row.largest_output_error, row.largest_input_gradient_error)),
            )
            for row in rows.itertuples()
        ),
    )


def _error(value: float | None) -> str:
    return UNKNOWN if is_unknown(value) else f"{value:.1e}"


def section(data: ReportData) -> Section:
    figures = batch_norm_figures(data.tables["batch_norms"], medians_of_launches(data.measurements))
    empty = "No synchronized batch norm was measured."
    return Section("batch-norms", "Synchronized batch norm", empty, figures=tuple(figures))


def findings(data: ReportData) -> list[Finding]:
    """Return where the custom layer differs most from torch's on the same input, one for each shape and stack."""
    rows = data.tables["batch_norms"]
    rows = rows[rows["time_s"].notna()]
    found = []
    for _, group in rows.groupby(["nodes", "gpus_per_node", "stack", "backend"], sort=True):
        inputs = group.pivot_table(index=INPUT, columns="implementation", values="cell", aggfunc="first")
        if {"own", "torch"} <= set(inputs):
            pairs = inputs[["own", "torch"]].dropna().to_numpy().tolist()
            found += [_pair_finding(pairs, group.set_index("cell", drop=False), data)] if pairs else []
    found.sort(key=lambda finding: -abs(np.log(finding.values["time_ratio"])))
    return found[:MOST_FINDINGS]


def _pair_finding(pairs: list[list[str]], by_cell: pd.DataFrame, data: ReportData) -> Finding:
    ratios = [by_cell.loc[own, "time_s"] / by_cell.loc[torch, "time_s"] for own, torch in pairs]
    most = max(range(len(pairs)), key=lambda index: abs(np.log(ratios[index])))
    own, torch = pairs[most]
    values = {
        "name": data.names[own],
        "time_ratio": float(ratios[most]),
        "least_ratio": float(min(ratios)),
        "most_ratio": float(max(ratios)),
        "time": Value.of(by_cell.loc[own], "time", "s"),
        "torch_time": Value.of(by_cell.loc[torch], "time", "s"),
        "num_inputs": len(pairs),
    }
    return Finding("batch_norm", values, (of_cells("batch_norms", [own, torch]),), (own, torch), "batch-norms")


def sentence(finding: Finding) -> str:
    values = finding.values
    ends = "\N{EN DASH}".join(dict.fromkeys(ratio_text(values[name]) for name in ("least_ratio", "most_ratio")))
    return (
        f"Custom synchronized batch norm: {ends} times the time of torch's on the same input. Largest"
        f" difference: {values['name']}, {time_text(values['time'])} against {time_text(values['torch_time'])}."
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    if all(cell["spec"]["benchmark"] != "sync_batchnorm" for cell in campaign["cells"]):
        return []
    text = (
        "One iteration is forward and backward of one layer, with a device synchronization between them. Statistics are those of"
        " the rows of all ranks. Errors: largest absolute difference from one process in fp64 on the joined rows, over ranks and"
        " launches. Memory is per rank and exact, except for the allocator's peak; saved for backward includes the input."
    )
    return [("Batch norm", text)]


TABLES = {
    "batch_norms": TableSpec(BATCH_NORMS, lambda campaign, tables: batch_norms_table(campaign, tables["measurements"]))
}
TOPIC = Topic("sync_batchnorm", "Synchronized batch norm", TABLES, section, findings, sentence, methods=methods)
