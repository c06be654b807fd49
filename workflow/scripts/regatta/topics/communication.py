"""Latency and bandwidth of collectives: tables/collectives.csv. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.core.names import PLACE
from regatta.core.statistics import interval_values, over_launches
from regatta.core.text import NOT_PLANNED, UNKNOWN, bracket, duration_tick, interval_heading, is_unknown, size, three
from regatta.report.findings import Finding, Value, of_cells, time_text, value_text
from regatta.report.panels import (
    Figure,
    Section,
    Table,
    divided,
    ends,
    how_to_read,
    in_order,
    launches,
    make_figure,
    make_series,
    microseconds,
    name_rows,
    panels,
    ranks_axis,
    size_text,
    text_of,
)
from regatta.report.plotting import Axis, Panel, size_ticks
from regatta.store.collect import cell_row
from regatta.store.csv_files import REAL, WHOLE, cell_columns, interval_columns, make_table
from regatta.topics.base import LaunchValues, ReportData, TableSpec, Topic, cells_of, values_by_cell

BYTES_PER_GB = 10**9
COLLECTIVES = {
    **cell_columns(("operation", "algorithm", "message_bytes", "dtype")),
    **interval_columns("latency", "s"),
    "algbw_gb_per_s": REAL,
    "busbw_gb_per_s": REAL,
    **interval_columns("pipelined", "s"),
    "pipelined_algbw_gb_per_s": REAL,
    "pipelined_busbw_gb_per_s": REAL,
    "algorithm_bytes": WHOLE,
    "max_abs_error": REAL,
    "max_rel_error": REAL,
}
MOST_FINDINGS = 2
COSTS = ("algorithm_bytes", "max_abs_error", "max_rel_error")

# Source: NVIDIA/nccl-tests doc/PERFORMANCE.md. n is the number of ranks. A barrier moves no message and has none.
BUS_FACTOR = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv_ring": lambda n: 1.0,
    "send_recv_pair": lambda n: 1.0,
}


def collectives_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each collective cell of the campaign, measured or not."""
    launches = LaunchValues(measurements, ("p50_s", "window_step_s", *COSTS))
    rows = []
    for cell in cells_of(campaign, "collective"):
        latency, pipelined = (over_launches(launches.of(cell["id"], name)) for name in ("p50_s", "window_step_s"))
        row = cell_row(cell) | {"num_planned": campaign["repeats"]}
        row |= {"num_launches": latency.num, "interval": latency.kind}
        row |= interval_values("latency", "s", latency) | interval_values("pipelined", "s", pipelined)
        for lead, elapsed_s in (("", latency.median), ("pipelined_", pipelined.median)):
            if elapsed_s is not None and row["message_bytes"] is not None:
                row[f"{lead}algbw_gb_per_s"] = algorithm_bandwidth(row["message_bytes"], elapsed_s)
                bus = bus_bandwidth(row["operation"], row["message_bytes"], elapsed_s, row["world_size"])
                row[f"{lead}busbw_gb_per_s"] = bus
        rows.append(row | {name: launches.largest(cell["id"], name) for name in COSTS})
    return make_table(rows, COLLECTIVES)


def algorithm_bandwidth(message_bytes: int, elapsed_s: float) -> float:
    """Return S/t in GB/s (10**9). message_bytes: for all_gather, reduce_scatter and all_to_all the sum over ranks."""
    return message_bytes / elapsed_s / BYTES_PER_GB


def bus_bandwidth(operation: str, message_bytes: int, elapsed_s: float, num_ranks: int) -> float | None:
    """Return bus bandwidth in GB/s, comparable with a link's peak at any number of ranks.

    None for one rank, which sends nothing, and for an operation without a known factor.
    """
    if num_ranks < 2 or operation not in BUS_FACTOR:
        return None
    return algorithm_bandwidth(message_bytes, elapsed_s) * BUS_FACTOR[operation](num_ranks)


def collective_figures(
    collectives: pd.DataFrame, medians: dict[str, list[float]], is_imported: bool = False
) -> list[Figure]:
    """Return bus bandwidth and latency in turn, for each operation, all with the same axes.

    medians: seconds of each launch, by cell. is_imported: another program decided what one call means (see Methods).
    """
    measured = collectives[collectives["latency_s"].notna()]
    if measured.empty:
        return []
    call = "one call as imported" if is_imported else "one blocking call, slowest rank"
    sizes = sorted(set(measured["message_bytes"].dropna()))
    ticks = size_ticks(sizes, message_size, most=4) if sizes else ()
    x = Axis("message", True, min(sizes, default=None), max(sizes, default=None), ticks)
    all_times = [t for cell in measured["cell"] for t in medians[cell]]
    y_time = Axis("time per call", True, min(all_times), max(all_times), show=duration_tick)
    rates = [
        r * t / min(medians[c]) for c, r, t in measured[["cell", "busbw_gb_per_s", "latency_s"]].dropna().to_numpy()
    ]
    y_rate = Axis("bus bandwidth (GB/s)", low=0, high=1.05 * max(rates, default=1))
    figures = []
    for number, (title, rows) in enumerate(_measured_panels(collectives), start=1):
        if rows["busbw_gb_per_s"].notna().any():
            figures.append(_bandwidth(f"bandwidth-{number}", title, rows, medians, x, y_rate, call))
        figures.append(_latency(f"latency-{number}", title, rows, medians, x, y_time, call))
    return figures


def _measured_panels(collectives: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the panels with a time. A line is a shape, or an algorithm if an operation has several.

    A barrier has no message; its lines are its stacks and backends. Barriers come last.
    """
    rows = in_order(name_rows(collectives, "collective", without=("message_bytes",)))
    is_algorithm = rows.groupby("operation")["algorithm"].transform("nunique") > 1
    found = []
    for part, line, further in ((rows[~is_algorithm], "shape", ()), (rows[is_algorithm], "algorithm", ("shape",))):
        label, title = (line, *PLACE), ("subject", "dtype", *further)
        split = panels(part, lambda _, label=label: label, lambda name, title=title: name.say(*title, always=title))
        for text, shown in split:
            if shown["latency_s"].notna().any():
                names = [name.say(*label) for name in shown["cell_name"]]
                found.append((text, shown.assign(is_algorithm=line == "algorithm", line=names)))
    return sorted(found, key=lambda panel: (panel[1]["message_bytes"].isna().all(), panel[0]))


def _bandwidth(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis, call: str) -> Figure:
    shown = rows[rows["world_size"] > 1]
    series = make_series(
        shown,
        "label",
        "message_bytes",
        lambda row: [row.busbw_gb_per_s * row.latency_s / t for t in medians.get(row.cell, [])],
        lambda row: row.busbw_gb_per_s,
    )
    known = shown[shown["busbw_gb_per_s"].notna()]
    at_largest = known[known["world_size"] == known["world_size"].max()]
    best, most = (max(of.itertuples(), key=lambda row: row.busbw_gb_per_s) for of in (known, at_largest))
    alt = f"{title}: up to {_bus_text(best)}" + (f"; {_bus_text(most)}" if most.line != best.line else "")
    caption = f"Bus bandwidth by message size ({call}); higher is better.{_within_host(shown)}"
    caption += f" {how_to_read(shown, 'latency_s')}"
    columns = {
        "algbw (GB/s)": text_of("algbw_gb_per_s", three),
        "busbw (GB/s)": text_of("busbw_gb_per_s", three),
        f"{interval_heading(shown['interval'])} of busbw": _bus_ends,
        "pipelined busbw": text_of("pipelined_busbw_gb_per_s", three),
    }
    table = Table.of(f"Bandwidth of {title}", _cell_columns(rows) | columns, shown)
    words, data = (f"{alt}.", caption), shown[list(COLLECTIVES)]
    return make_figure(figure_id, f"Bus bandwidth: {title}", Panel(x, y, series), words, table, data, "collectives")


def _bus_value(row) -> Value:
    """Return the bus bandwidth with the range or interval that its time gives."""
    if is_unknown(row.latency_low_s) or is_unknown(row.latency_high_s):
        return Value(row.busbw_gb_per_s, num_launches=row.num_launches)
    low, high = (row.busbw_gb_per_s * row.latency_s / t for t in (row.latency_high_s, row.latency_low_s))
    return Value(row.busbw_gb_per_s, low, high, row.interval, row.num_launches)


def _bus_ends(row) -> str:
    if is_unknown(row.busbw_gb_per_s):
        return UNKNOWN
    value = _bus_value(row)
    return bracket(value.low, value.high, value.kind)


def _bus_text(row) -> str:
    return f"{value_text(_bus_value(row), three, 'GB/s')} with {_message(row)} on {row.line}"


def _latency(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis, call: str) -> Figure:
    over, by = "message_bytes", "message size"
    if rows["message_bytes"].isna().all():
        over, by, x = "world_size", "number of ranks", ranks_axis(rows[rows["latency_s"].notna()])
        rows = rows.assign(label=[name.label("subject", *PLACE) for name in rows["cell_name"]])
    series = make_series(rows, "label", over, lambda row: medians.get(row.cell, []), lambda row: row.latency_s)
    measured = sorted(rows[rows["latency_s"].notna()].itertuples(), key=lambda row: row.latency_s)
    alt = f"{title}: {' to '.join(dict.fromkeys(_time_text(row) for row in (measured[0], measured[-1])))}."
    caption = f"Time of {call}, by {by}; lower is better.{_within_host(rows)} {how_to_read(rows, 'latency_s')}"
    columns = {
        "time (µs)": text_of("latency_s", microseconds),
        f"{interval_heading(rows['interval'])} (µs)": lambda row: ends(row, "latency", "s", microseconds),
        "pipelined (µs)": text_of("pipelined_s", microseconds),
    }
    if rows["is_algorithm"].all():
        columns["algorithm buffers"] = text_of("algorithm_bytes", size_text)
        columns["largest rel. error"] = text_of("max_rel_error", error_text)
    table = Table.of(f"Time of {title}", _cell_columns(rows) | columns, rows)
    words, data = (alt, caption), rows[list(COLLECTIVES)]
    return make_figure(figure_id, f"Latency: {title}", Panel(x, y, series), words, table, data, "collectives")


def error_text(error: float | None) -> str:
    return UNKNOWN if is_unknown(error) else f"{error:.1e}"


def _time_text(row) -> str:
    message = "" if is_unknown(row.message_bytes) else f" with {_message(row)}"
    return f"{time_text(Value.of(row, 'latency', 's'))}{message} on {row.line}"


def _within_host(rows: pd.DataFrame) -> str:
    """Return the sentence on processes of one host, which communicate through memory."""
    is_within = (rows["device"] == "cpu").all() and (rows["nodes"] == 1).all()
    return " Single host: no network traffic." if is_within else ""


def _cell_columns(rows: pd.DataFrame) -> dict:
    place = "algorithm" if rows["is_algorithm"].all() else "shape"
    return {"message": _message, place: lambda row: row.line, "n": launches}


def message_size(num_bytes: int) -> str:
    """Return bytes in decimal units if that is an integer below 1000, such as 4 MB, else 4 MiB."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        count, rest = divmod(num_bytes, 1000**power)
        if 0 < count < 1000 and not rest:
            return f"{count} {unit}"
    return size(num_bytes)


def _message(row) -> str:
    return NOT_PLANNED if is_unknown(row.message_bytes) else message_size(row.message_bytes)


def section(data: ReportData) -> Section:
    figures = collective_figures(
        data.with_stack_places(data.tables["collectives"]),
        values_by_cell(data.measurements, "p50_s"),
        bool(data.campaign.get("imported")),
    )
    bandwidth, latency = divided(figures, "bandwidth")
    shown, folded = (bandwidth, ("Latency", latency)) if bandwidth else (latency, ("", ()))
    return Section("communication", "Communication", figures=shown, folded=folded)


def findings(data: ReportData) -> list[Finding]:
    """Return the highest bus bandwidth at the largest shape of each operation, all-reduce first; else the latencies."""
    rows = data.tables["collectives"]
    rows = rows[rows["latency_s"].notna()]
    known = rows[rows["busbw_gb_per_s"].notna()]
    column, is_best = ("busbw_gb_per_s", max) if len(known) else ("latency_s", min)
    found = []
    for _, group in (known if len(known) else rows).groupby(["operation", "stack"], sort=True):
        complete = group[group["num_launches"] >= group["num_planned"]]
        group = complete if len(complete) else group
        largest = group[group["world_size"] == group["world_size"].max()]
        best = is_best(largest.itertuples(), key=lambda row: (getattr(row, column), row.cell))
        values = {"name": data.names[best.cell], "operation": best.operation, "time": Value.of(best, "latency", "s")}
        values |= {"busbw_gb_per_s": float(best.busbw_gb_per_s)} if len(known) else {}
        source = of_cells("collectives", [best.cell])
        found.append(Finding("bandwidth" if len(known) else "latency", values, (source,), (best.cell,)))
    found.sort(key=lambda finding: finding.values["operation"] != "all_reduce")
    return found[:MOST_FINDINGS]


def sentence(finding: Finding) -> str:
    values = finding.values
    if finding.kind == "latency":
        return f"{values['name']}: {time_text(values['time'])} per call."
    return (
        f"{values['name']}: {three(values['busbw_gb_per_s'])} GB/s bus bandwidth, {time_text(values['time'])} per call."
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    if not cells_of(campaign, "collective"):
        return []
    text = (
        "algbw = S / t. S: bytes of one rank's buffer (all_gather, reduce_scatter, all_to_all: the sum over ranks)."
        " t: one blocking call; pipelined: many calls with a single wait, time per call. busbw = algbw × 2(n−1)/n for"
        " all_reduce, × (n−1)/n for all_gather, reduce_scatter and all_to_all, × 1 for the others (nccl-tests,"
        f" doc/PERFORMANCE.md). Undefined for one rank or a barrier. 1 GB = {BYTES_PER_GB:,} bytes; 1 MiB = 2²⁰ bytes."
        " Algorithm buffers: memory allocated besides the message; unknown for library collectives."
    )
    return [("Bandwidth", text)]


TABLES = {
    "collectives": TableSpec(COLLECTIVES, lambda campaign, tables: collectives_table(campaign, tables["measurements"]))
}
TOPIC = Topic("communication", "Communication", TABLES, section, findings, sentence, methods=methods)
