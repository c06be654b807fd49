"""Latency and bandwidth of collectives: tables/collectives.csv. Definitions: docs/metrics.md."""

from collections.abc import Callable

import pandas as pd

from regatta.core.names import PLACE, CellName
from regatta.core.statistics import over_launches
from regatta.core.text import (
    NOT_PLANNED,
    UNKNOWN,
    bracket,
    duration,
    duration_tick,
    is_unknown,
    natural,
    shape,
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
    in_order,
    launches,
    make_figure,
    make_series,
    name_rows,
    panels,
)
from regatta.report.plotting import Axis, Panel, size_ticks
from regatta.store.collect import cell_row
from regatta.store.tables import CELL, REAL, SHAPE_COLUMNS, TEXT, WHOLE, make_table
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.scaling.tables import LaunchValues, medians_of_launches

BYTES_PER_GB = 10**9
TITLE = ("subject", "dtype")
COLLECTIVES = {
    "cell": TEXT,
    **{name: CELL[name] for name in ("operation", "algorithm", "message_bytes", "dtype", *SHAPE_COLUMNS)},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "interval": TEXT,
    "latency_s": REAL,
    "latency_low_s": REAL,
    "latency_high_s": REAL,
    "algbw_gb_per_s": REAL,
    "busbw_gb_per_s": REAL,
    "pipelined_s": REAL,
    "pipelined_low_s": REAL,
    "pipelined_high_s": REAL,
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
    for cell in campaign["cells"]:
        if cell["spec"]["benchmark"] == "collective":
            row = cell_row(cell)
            numbers = _blocking(row, launches) | _pipelined(row, launches) | _costs(row["cell"], launches)
            rows.append(row | {"num_planned": campaign["repeats"]} | numbers)
    rows.sort(key=lambda row: natural(row["cell"]))
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


def _blocking(cell: dict, launches: LaunchValues) -> dict:
    own = over_launches(launches.of(cell["cell"], "p50_s"))
    row = {"num_launches": own.num, "interval": own.kind}
    row |= {"latency_s": own.median, "latency_low_s": own.low, "latency_high_s": own.high}
    return row | _bandwidths(cell, own.median, "")


def _pipelined(cell: dict, launches: LaunchValues) -> dict:
    own = over_launches(launches.of(cell["cell"], "window_step_s"))
    row = {"pipelined_s": own.median, "pipelined_low_s": own.low, "pipelined_high_s": own.high}
    return row | _bandwidths(cell, own.median, "pipelined_")


def _bandwidths(cell: dict, elapsed_s: float | None, lead: str) -> dict:
    """Return both bandwidths; nothing where there is no time, or no message."""
    if elapsed_s is None or cell["message_bytes"] is None:
        return {}
    bus = bus_bandwidth(cell["operation"], cell["message_bytes"], elapsed_s, cell["world_size"])
    return {
        f"{lead}algbw_gb_per_s": algorithm_bandwidth(cell["message_bytes"], elapsed_s),
        f"{lead}busbw_gb_per_s": bus,
    }


def _costs(cell: str, launches: LaunchValues) -> dict:
    """Return the largest of any launch: what an algorithm allocated, and how far its sums were from the exact ones."""
    return {name: max(launches.of(cell, name), default=None) for name in COSTS}


# The figures of collectives: bus bandwidth and latency over message size, with the same axes for every operation.

MICROSECONDS = 1e6
# Of what a bandwidth is, of what a time.
OWN_CALLS = ("of blocking calls", "of one blocking call, slowest rank,")
IMPORTED_CALLS = ("as imported (see Methods)", "of one call as imported (see Methods)")
WITHIN_HOST = "within one host: no network link is involved"


def collective_figures(
    collectives: pd.DataFrame, medians: dict[str, list[float]], is_imported: bool = False
) -> list[Figure]:
    """Return bus bandwidth and latency in turn, for each operation. medians: seconds of each launch, by cell.

    is_imported: what one call means was up to another program (see Methods).
    """
    calls = IMPORTED_CALLS if is_imported else OWN_CALLS
    measured = collectives[collectives["latency_s"].notna()]
    if measured.empty:
        return []
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
        if rows["message_bytes"].isna().all():
            figures.append(_barrier(f"latency-{number}", title, rows, medians, y_time))
            continue
        if rows["busbw_gb_per_s"].notna().any():
            figures.append(_bandwidth(f"bandwidth-{number}", title, rows, medians, x, y_rate, calls[0]))
        figures.append(_latency(f"latency-{number}", title, rows, medians, x, y_time, calls[1]))
    return figures


def _measured_panels(collectives: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the panels with a time. A line is a shape, or an algorithm where an operation has several."""
    rows = in_order(name_rows(collectives, "collective", without=("message_bytes",)))
    is_algorithm = rows.groupby("operation")["algorithm"].transform("nunique") > 1
    kinds = (
        (_shape_fields, lambda name: name.say(*TITLE, always=TITLE)),
        (_algorithm_fields, lambda name: name.say(*TITLE, "shape", always=(*TITLE, "shape"))),
    )
    parts = [rows[~is_algorithm], rows[is_algorithm]]
    found = [
        (
            title,
            own.assign(
                is_algorithm=line is _algorithm_fields, line=[name.say(*line(name)) for name in own["cell_name"]]
            ),
        )
        for part, (line, title_of) in zip(parts, kinds, strict=True)
        for title, own in panels(part, line, title_of)
        if own["latency_s"].notna().any()
    ]
    return sorted(
        found, key=lambda panel: (panel[1]["message_bytes"].isna().all(), panel[0])
    )  # a barrier makes one figure


def _shape_fields(_: CellName) -> tuple[str, ...]:
    return ("shape", *PLACE)


def _algorithm_fields(_: CellName) -> tuple[str, ...]:
    return ("algorithm", *PLACE)


def _bandwidth(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis, calls: str) -> Figure:
    shown = rows[rows["world_size"] > 1]
    series = make_series(
        shown,
        "label",
        "message_bytes",
        lambda row: [row.busbw_gb_per_s * row.latency_s / t for t in medians.get(row.cell, [])],
        lambda row: row.busbw_gb_per_s,
    )
    best = max(shown[shown["busbw_gb_per_s"].notna()].itertuples(), key=lambda row: row.busbw_gb_per_s)
    spread = _bandwidth_spread(best)
    spread = "" if spread == UNKNOWN else f" {spread}"
    alt = f"{title}: the highest bus bandwidth {calls} is {three(best.busbw_gb_per_s)} GB/s{spread}"
    alt += f", with {message_size(best.message_bytes)} {_where(best)}, n = {best.num_launches}"
    alt += f"{_reach(shown, best)}{_host_words(shown, '; ')}."
    caption = (
        f"Bus bandwidth {calls} over the message size; logarithmic below, linear from 0 at the side, higher is better. It is"
        f" algorithm bandwidth times a factor that makes it comparable with the peak of a link (see Methods){_host_words(shown, '; ')}."
        f" {how_to_read(shown, 'latency_s')} Times stand under the latency figure. Pipelined: many calls, one wait at the end; not drawn."
    )
    columns = ("algbw (GB/s)", "busbw (GB/s)", f"{spread_head(shown['interval'])} of busbw", "pipelined busbw")
    table = _table(f"Bandwidth of {title}", columns, shown, _bandwidth_cells)
    words, panel = (alt, caption), Panel(x, y, series)
    return make_figure(
        figure_id, f"Bus bandwidth: {title}", panel, words, table, shown[list(COLLECTIVES)], "collectives"
    )


def _reach(shown: pd.DataFrame, best) -> str:
    """Return whether the best was measured within a host or across nodes, and where there is both, what the largest shape has at most."""
    if _host_words(shown, ""):
        return ""
    where = ", across nodes" if best.nodes > 1 else ", within one host"
    known = shown[shown["busbw_gb_per_s"].notna()]
    if known["nodes"].max() == 1 or known["nodes"].min() > 1:
        return where
    at_largest = known[known["world_size"] == known["world_size"].max()]
    most = max(at_largest.itertuples(), key=lambda row: (row.nodes > 1, row.busbw_gb_per_s))
    if (most.nodes, most.gpus_per_node) == (best.nodes, best.gpus_per_node):
        return where
    return f"{where}; on {shape(most.nodes, most.gpus_per_node)} at most {three(most.busbw_gb_per_s)} GB/s, n = {most.num_launches}"


def _latency(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis, call: str) -> Figure:
    series = make_series(
        rows, "label", "message_bytes", lambda row: medians.get(row.cell, []), lambda row: row.latency_s
    )
    measured = rows[rows["latency_s"].notna()]
    least = min(measured.itertuples(), key=lambda row: row.latency_s)
    most = max(measured.itertuples(), key=lambda row: row.latency_s)
    alt = f"{title}: {_time_text(least)} with {message_size(least.message_bytes)} {_where(least)}, n = {least.num_launches}"
    if most.cell == least.cell:
        alt += _host_words(rows, "; ")
    else:
        alt += f", up to {_time_text(most)} with {message_size(most.message_bytes)} {_where(most)}, n = {most.num_launches}"
        alt += _host_words(rows, "; ")
    caption = (
        f"Time {call} over the message size; both axes logarithmic, lower is better."
        f" {how_to_read(rows, 'latency_s')} Pipelined: time per call of many, with one wait at the end; not drawn."
    )
    columns, cells = _time_heads(rows), _time_cells
    if rows["is_algorithm"].all():
        columns, cells = (*columns, "own buffers", "largest rel. error"), _algorithm_cells
        caption += " Own buffers: what the algorithm allocates beside the message; the library does not tell."
    table = _table(f"Time of {title}", columns, rows, cells)
    words, panel = (f"{alt}.", caption), Panel(x, y, series)
    return make_figure(figure_id, f"Latency: {title}", panel, words, table, rows[list(COLLECTIVES)], "collectives")


def _barrier(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, y: Axis) -> Figure:
    """A barrier has no message: its time over the number of ranks, one line for each stack and backend."""
    rows = rows.assign(label=[name.label("subject", *PLACE) for name in rows["cell_name"]])
    series = make_series(rows, "label", "world_size", lambda row: medians.get(row.cell, []), lambda row: row.latency_s)
    measured = rows[rows["latency_s"].notna()]
    shapes = {int(row.world_size): shape(row.nodes, row.gpus_per_node) for row in measured.itertuples()}
    x = Axis("ranks (nodes × ranks per node)", True, ticks=size_ticks(list(shapes), lambda n: f"{n}\n{shapes[n]}"))
    most = max(measured.itertuples(), key=lambda row: row.latency_s)
    alt = f"{title}: up to {_time_text(most)}, {_where(most)}, n = {most.num_launches}{_host_words(rows, '; ')}."
    caption = f"Time of one blocking call, slowest rank, over the number of ranks; lower is better. {how_to_read(rows, 'latency_s')}"
    table, panel = _table(f"Time of {title}", _time_heads(rows), rows, _time_cells), Panel(x, y, series)
    return make_figure(
        figure_id, f"Latency: {title}", panel, (alt, caption), table, rows[list(COLLECTIVES)], "collectives"
    )


def _time_text(row) -> str:
    spread = bracket(row.latency_low_s, row.latency_high_s, row.interval, duration)
    return duration(row.latency_s) + ("" if spread == UNKNOWN else f" {spread}")


def _where(row) -> str:
    return f"by {row.line}" if row.is_algorithm else f"on {row.line}"


def _host_words(rows: pd.DataFrame, lead: str) -> str:
    """Return, with its lead, that processes of one host talk through memory, where they do and no GPU is there."""
    is_within = (rows["device"] == "cpu").all() and (rows["nodes"] == 1).all()
    return f"{lead}{WITHIN_HOST}" if is_within else ""


def _bandwidth_spread(row) -> str:
    """Return the spread of bus bandwidth: what the spread of the time makes of it."""
    if is_unknown(row.busbw_gb_per_s) or is_unknown(row.latency_low_s) or is_unknown(row.latency_high_s):
        return UNKNOWN
    rates = [row.busbw_gb_per_s * row.latency_s / t for t in (row.latency_high_s, row.latency_low_s)]
    return bracket(*rates, row.interval)


def _bandwidth_cells(row) -> tuple[str, ...]:
    own = three(row.algbw_gb_per_s), three(row.busbw_gb_per_s), _bandwidth_spread(row)
    return *own, three(row.pipelined_busbw_gb_per_s)


def _time_heads(rows: pd.DataFrame) -> tuple[str, ...]:
    return "time (µs)", f"{spread_head(rows['interval'])} (µs)", "pipelined (µs)"


def _time_cells(row) -> tuple[str, ...]:
    low, high = (times(value, MICROSECONDS) for value in (row.latency_low_s, row.latency_high_s))
    own = three(times(row.latency_s, MICROSECONDS)), bracket(low, high, row.interval)
    return *own, three(times(row.pipelined_s, MICROSECONDS))


def _algorithm_cells(row) -> tuple[str, ...]:
    own_buffers = UNKNOWN if is_unknown(row.algorithm_bytes) else size(row.algorithm_bytes)
    error = UNKNOWN if is_unknown(row.max_rel_error) else f"{row.max_rel_error:.1e}"
    return *_time_cells(row), own_buffers, error


def _table(caption: str, columns: tuple[str, ...], rows: pd.DataFrame, cells: Callable) -> Table:
    """Return a table of message, shape or algorithm, n and what `cells` makes of a row."""
    place = "algorithm" if rows["is_algorithm"].all() else "shape"
    texts = tuple((_message(row), row.line, launches(row), *cells(row)) for row in rows.itertuples())
    return Table(caption, ("message", place, "n", *columns), texts)


def message_size(num_bytes: int) -> str:
    """Return bytes as a campaign would write them: 4 MB where that is a whole number below 1000, else 4 MiB."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        count, rest = divmod(num_bytes, 1000**power)
        if 0 < count < 1000 and not rest:
            return f"{count} {unit}"
    return size(num_bytes)


def _message(row) -> str:
    return NOT_PLANNED if is_unknown(row.message_bytes) else message_size(row.message_bytes)


def section(data: ReportData) -> Section:
    figures = collective_figures(
        data.tables["collectives"], medians_of_launches(data.measurements), bool(data.campaign.get("imported"))
    )
    return Section("communication", "Communication", "No collective was measured.", figures=tuple(figures))


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
        values = {"name": data.names[best.cell], "time": Value.of(best, "latency", "s")}
        values |= {"busbw_gb_per_s": float(best.busbw_gb_per_s)} if len(known) else {}
        source = of_cells("collectives", [best.cell])
        found.append(Finding("bandwidth" if len(known) else "latency", values, (source,), (best.cell,)))
    found.sort(key=lambda finding: not finding.values["name"].startswith("all_reduce"))
    return found[:MOST_FINDINGS]


def sentence(finding: Finding) -> str:
    values = finding.values
    if finding.kind == "latency":
        return f"{values['name']}: {time_text(values['time'])} per call."
    return (
        f"{values['name']}: {three(values['busbw_gb_per_s'])} GB/s bus bandwidth, {time_text(values['time'])} per call."
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    if all(cell["spec"]["benchmark"] != "collective" for cell in campaign["cells"]):
        return []
    text = (
        "algbw = S / t. S: bytes of one rank's buffer (all_gather, reduce_scatter, all_to_all: the sum over ranks). t: one"
        " blocking call, or in pipelined columns one of many calls with one wait at the end. busbw = algbw × 2(n−1)/n for"
        " all_reduce, × (n−1)/n for all_gather, reduce_scatter and all_to_all, × 1 for the others (nccl-tests,"
        f" doc/PERFORMANCE.md). None for one rank or a barrier. 1 GB = {BYTES_PER_GB:,} bytes; 1 MiB = 2²⁰ bytes."
    )
    return [("Bandwidth", text)]


TABLES = {
    "collectives": TableSpec(COLLECTIVES, lambda campaign, tables: collectives_table(campaign, tables["measurements"]))
}
TOPIC = Topic("communication", "Communication", TABLES, section, findings, sentence, methods=methods)
