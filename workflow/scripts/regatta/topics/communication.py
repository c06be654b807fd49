"""Latency and bandwidth of collectives: tables/collectives.csv. Definitions: docs/metrics.md."""

import math
from dataclasses import replace

import pandas as pd

from regatta.core.names import PLACE
from regatta.core.text import NOT_PLANNED, duration, is_unknown, shape, size, thousands, three
from regatta.kit.columns import TEXT, Column
from regatta.kit.findings import FAIR, RESULT, SUMMARY, Kind, Value
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import (
    LAUNCHES,
    Figure,
    Section,
    Table,
    divided,
    how_to_read,
    in_order,
    make_figure,
    make_series,
    name_rows,
    panels,
    ranks_axis,
)
from regatta.report.plotting import Axis, Panel, Series, Ticks, size_ticks
from regatta.report.rows import table_rows
from regatta.topics.bandwidth import (
    BUSBW,
    CALL,
    COLLECTIVES,
    LATENCY,
    PEAK_SHARE,
    collectives_table,
    links_of,
)
from regatta.topics.base import (
    UNRELIABLE,
    ReportData,
    TableSpec,
    Topic,
    headline_rows,
    plain_rows,
    steps_by_cell,
    unreliable,
    values_by_cell,
)
from regatta.topics.fits.collectives import MODEL, communication_curve
from regatta.topics.fits.section import crossover_sizes
from regatta.topics.settings import ALGORITHM, is_costly, settings_of

MOST_FINDINGS = 2
MOST_LINES = 8  # of one panel: more shapes and stacks are hard to distinguish
MOST_SIZE_TICKS = 5
LABEL_SPACE = 1.6  # the axis ends as far above the highest peak, for its label
BETWEEN = {"gpus": "from a GPU to the others of its node", "gpu_pair": "between two GPUs", "nodes": "per node"}


def collective_figures(
    collectives: pd.DataFrame,
    medians: dict[str, list[float]],
    fits: dict[tuple, dict] | None = None,
    times: dict[str, list[float]] | None = None,
) -> list[Figure]:
    """Return bus bandwidth and latency in turn, for each operation, all with the same axes.

    medians: seconds of a blocking call of each launch, by cell. times: the primary times of bandwidths, if they are
    others. fits: rows of tables/communication_models.csv by their MODEL.
    """
    fits, times = fits or {}, times or medians
    measured = collectives[collectives["latency_s"].notna()]
    if measured.empty:
        return []
    sizes = sorted(set(measured["message_bytes"].dropna()))
    x = Axis("message size", True, min(sizes, default=None), max(sizes, default=None), byte_ticks(sizes))
    all_times = [LATENCY.shown(t) for cell in measured["cell"] for t in medians[cell]]
    device = collectives["device"].iloc[0]
    y_time = Axis(LATENCY.heading(device), True, min(all_times), max(all_times), show=thousands)
    known = measured[["cell", "busbw_gb_per_s", "time_s"]].dropna().to_numpy()
    rates = [rate * t / launch for cell, rate, t in known for launch in times[cell]]
    highest = [*rates, *(LABEL_SPACE * peak for peak in collectives["peak_gb_per_s"].dropna())]
    low, high = min(rates, default=None), max(highest, default=None)
    y_rate = Axis(BUSBW.heading(device), True, low, high, decade_ticks(low, high) if rates else ())
    figures = []
    for number, (title, rows) in enumerate(_measured_panels(collectives), start=1):
        if rows["busbw_gb_per_s"].notna().any():
            figures.append(_bandwidth(f"bandwidth-{number}", title, rows, times, x, y_rate))
        figures.append(_latency(f"latency-{number}", title, rows, medians, x, y_time, fits))
    return figures


def byte_ticks(sizes: list[int]) -> Ticks:
    """Return a few evenly spaced powers of two within the sizes; measured sizes if there are fewer than two."""
    first, last = (math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1]))) if sizes else (0, -1)
    for step in (1, 2, 3, 5, 10):
        powers = [power for power in range(first, last + 1) if power % step == 0]
        if 2 <= len(powers) <= MOST_SIZE_TICKS:
            return tuple((2**power, size(2**power)) for power in powers)
    return size_ticks(sizes, message_size, most=MOST_SIZE_TICKS) if sizes else ()


def decade_ticks(low: float, high: float) -> Ticks:
    """Return the powers of ten on a log axis; nothing, for matplotlib's ticks, if there are fewer than two."""
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return tuple((10.0**power, f"{10.0**power:g}") for power in powers) if len(powers) > 1 else ()


def _measured_panels(collectives: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the panels with a time, all-reduce first. A line is a shape, or an algorithm if an operation has several.

    A barrier has no message; its lines are its stacks and backends. Barriers come last.
    """
    rows = in_order(name_rows(collectives, "collective", without=("message_bytes",)))
    is_algorithm = rows.groupby("operation")["algorithm"].transform("nunique") > 1
    found = []
    for part, line, further in ((rows[~is_algorithm], "shape", ()), (rows[is_algorithm], "algorithm", ("shape",))):
        label, title = (line, *PLACE), ("subject", "dtype", *further)
        fields = (lambda _, label=label: label, lambda name, title=title: name.say(*title, always=title))
        for text, shown in panels(part, *fields, most=MOST_LINES):
            if shown["latency_s"].notna().any():
                names = [name.say(*label) for name in shown["cell_name"]]
                found.append((text, shown.assign(is_algorithm=line == "algorithm", line=names)))

    def place(panel: tuple[str, pd.DataFrame]) -> tuple:
        text, shown = panel
        return shown["message_bytes"].isna().all(), shown["operation"].iloc[0] != "all_reduce", text

    return sorted(found, key=place)


def _bandwidth(figure_id: str, title: str, rows: pd.DataFrame, times: dict, x: Axis, y: Axis) -> Figure:
    shown = rows[rows["world_size"] > 1]
    series = make_series(
        shown,
        "label",
        "message_bytes",
        lambda row: [row.busbw_gb_per_s * row.time_s / t for t in times.get(row.cell, [])],
        lambda row: row.busbw_gb_per_s,
    )
    table = _table("bandwidth", f"Bandwidth of {title}", shown)
    panel = Panel(x, y, series, limits=_peak_lines(shown))
    return make_figure(figure_id, f"Bus bandwidth: {title}", panel, table, "collectives")


def _with_fits(series: tuple[Series, ...], rows: pd.DataFrame, fits: dict) -> tuple[Series, ...]:
    """Return series with the fitted curve of their blocking calls, if there is one."""
    keys = {row["label"]: tuple(row[name] for name in MODEL) for row in plain_rows(rows, ("label", *MODEL))}
    found = []
    for one in series:
        row = fits.get(keys[one.label])
        if row and (curve := communication_curve(row)):
            rate = three(row["bandwidth_b_gb_per_s"])
            text = f"fit: a {duration(row['latency_a_s'])}, B {rate} GB/s (algbw)"
            one = replace(one, fit=tuple((x, LATENCY.shown(t)) for x, t in curve), fit_text=text)
        found.append(one)
    return tuple(found)


def _peak_lines(rows: pd.DataFrame) -> tuple[tuple[str, float], ...]:
    """Return label and place of the peaks of the largest shape on one node and on several, the higher first."""
    known, lines = rows[rows["peak_gb_per_s"].notna()], {}
    for part in (known[known["nodes"] == 1], known[known["nodes"] > 1]):
        if len(part):
            row = max(table_rows(part), key=lambda row: row.world_size)
            lines.setdefault(float(row.peak_gb_per_s), []).append(shape(row.nodes, row.gpus_per_node))
    return tuple(
        (f"peak {', '.join(lines[place])}: {three(place)} GB/s", place) for place in sorted(lines, reverse=True)
    )


def _latency(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis, fits: dict) -> Figure:
    over = "message_bytes"
    if rows["message_bytes"].isna().all():
        over, x = "world_size", ranks_axis(rows[rows["latency_s"].notna()])
        rows = rows.assign(label=[name.label("subject", *PLACE) for name in rows["cell_name"]])
    series = make_series(
        rows,
        "label",
        over,
        lambda row: map(LATENCY.shown, medians.get(row.cell, [])),
        lambda row: LATENCY.shown(row.latency_s),
    )
    panel = Panel(x, y, _with_fits(series, rows, fits))
    table = _table("latency", f"Time of {title}", rows)
    return make_figure(figure_id, f"Latency: {title}", panel, table, "collectives")


def _within_host(rows: pd.DataFrame) -> str:
    """Return the sentence on processes of one host, which communicate through memory."""
    is_within = (rows["device"] == "cpu").all() and (rows["nodes"] == 1).all()
    return " Single host: no network traffic." if is_within else ""


def _table(name: str, caption: str, rows: pd.DataFrame) -> Table:
    line = Column("line", "algorithm" if rows["is_algorithm"].all() else "shape", TEXT)
    columns = (MESSAGE, line, LAUNCHES, *COLLECTIVES.of_table(name))
    return Table.of_columns(caption, columns, rows, rows["device"].iloc[0])


def message_size(num_bytes: int) -> str:
    """Return bytes in decimal units if that is an integer below 1000, such as 4 MB, else 4 MiB."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        count, rest = divmod(num_bytes, 1000**power)
        if 0 < count < 1000 and not rest:
            return f"{count} {unit}"
    return size(num_bytes)


MESSAGE = Column(
    *("message", "message", TEXT),
    text=lambda row: NOT_PLANNED if is_unknown(row.message_bytes) else message_size(row.message_bytes),
)


def section(data: ReportData) -> Section:
    is_imported = bool(data.campaign.get("imported"))
    medians = values_by_cell(data.measurements, "p50_s")
    models, collectives = data.tables["communication_models"], data.with_stack_places(data.tables["collectives"])
    fits = {tuple(row[name] for name in MODEL): row for row in plain_rows(models, tuple(models))}
    figures = collective_figures(collectives, medians, fits, steps_by_cell(data.measurements))
    bandwidth, latency = divided(figures, "bandwidth")
    title = "Latency" if is_imported else "Latency of one blocking call"
    shown, folded = (bandwidth, (title, latency)) if bandwidth else (latency, ("", ()))
    has_peak = collectives["peak_gb_per_s"].notna().any()
    lead = (lead_text(collectives, is_imported), links_text(data) if has_peak else "")
    return Section("communication", "Communication", lead=" ".join(filter(None, lead)), figures=shown, folded=folded)


def lead_text(rows: pd.DataFrame, is_imported: bool) -> str:
    """Return which call is timed and what is drawn; empty if nothing is.

    is_imported: another program decided what one call means (see Methods).
    """
    if rows["latency_s"].isna().all():
        return ""
    call = "one call as imported" if is_imported else "one blocking call, slowest rank; bandwidth: pipelined calls"
    return f"Time of {call}.{_within_host(rows)} {how_to_read(rows, 'latency_s')}"


def links_text(data: ReportData) -> str:
    """Return the links of the GPUs that ran, with their sources."""
    gpus = set(data.ok["gpu"].dropna())
    texts = [
        f"{link['gb_per_s']:g} GB/s {BETWEEN[link['between']]} ({link['device']}, source: {link['source']})"
        for link in links_of(data.campaign)
        if link["device"] in gpus
    ]
    return f"Peaks: upper bounds from link bandwidths in one direction: {'; '.join(texts)}."


NEAR = "ithin noise, or undecided: {near}"
KINDS = (
    Kind(
        *("communication", SUMMARY),
        lead=(
            "Communication: {busbw_gb_per_s:number} bus bandwidth at {message} ({busbw_gb_per_s:ends})",
            "Communication: {time_s} per call",
        ),
        parts=("{name}", "{rank} mean of {compared} cells", f"w{NEAR}", "latency-bound below {crossover}", UNRELIABLE),
        term="Bandwidth",
        help="algbw = S / t. S: bytes of one rank's buffer (all_gather, reduce_scatter, all_to_all: the sum over"
        " ranks). t: pipelined calls, many with a single wait, time per call. Latency: one blocking call. busbw ="
        " algbw × 2(n−1)/n for all_reduce, × (n−1)/n for all_gather, reduce_scatter and all_to_all, × 1 for the others"
        " (nccl-tests, doc/PERFORMANCE.md). Undefined for one rank or a barrier.",
    ),
    Kind(
        *("bandwidth", RESULT),
        lead=(
            "{name}: {busbw_gb_per_s:number} bus bandwidth ({peak_ratio:number} of peak), {time} per call.",
            "{name}: {busbw_gb_per_s:number} bus bandwidth, {time} per call.",
            "{name}: {time} per call.",
        ),
        parts=("The {rank} mean of {compared} cells.", f"W{NEAR}."),
    ),
    Kind(
        *("above_peak", FAIR),
        lead="Above link peak: bus bandwidth of {num} of {num_known:cell}.",
        parts=("Highest: {largest_ratio:number} of the peak, {name}.",),
        advice="Check links in the cluster file. A reduction in the network, such as NVLink SHARP, can exceed this"
        " peak.",
        next_step="check `links` in the cluster file",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the highest mean bus bandwidth at the largest shape, all-reduce first, and in the summary, with its size.

    Without any bandwidth, the lowest time per call. Operations and stacks are not compared; of cells that differ in
    their algorithm alone, `near` has those that may be as fast. Those with all their launches precede others.
    """
    rows = data.tables["collectives"]
    rows = rows[rows["time_s"].notna()]
    known = rows[rows["busbw_gb_per_s"].notna()]
    settings, found = settings_of(data.tables["settings"], "algorithm"), []
    for _, group in (known if len(known) else rows).groupby(["operation", "stack"], sort=True):
        largest = group[group["world_size"] == group["world_size"].max()]
        complete = largest[largest["num_launches"] >= largest["num_planned"]]
        compared = table_rows(complete if len(complete) else largest)
        compared = headline_rows(data, compared, lambda row: (row.cell,))
        best = min(compared, key=lambda row: (-row.busbw_gb_per_s if len(known) else row.time_s, row.cell))
        values = {"operation": best.operation, "stack": best.stack, "world_size": int(best.world_size)}
        values |= {"time": Value.of(best, CALL), "num_candidates": len(compared)}
        numbers = (BUSBW, PEAK_SHARE)
        values |= {one.name: Value.of(best, one) for one in numbers if not is_unknown(getattr(best, one.name))}
        others = [row.cell for row in table_rows(rows) if row.cell != best.cell and _is_like(row, best)]
        others = [cell for cell in others if not is_costly(settings.get(cell))]
        values["near"] = tuple(data.cell_names[cell].unlike(data.cell_names[best.cell]) for cell in others)
        words = {"name": data.names[best.cell], "rank": "highest" if len(known) else "lowest"}
        words |= {"message": MESSAGE.text(best), "compared": len(compared) if len(compared) > 1 else None}
        source = of_cells("collectives", [best.cell])
        found.append(Finding("bandwidth", values, (source,), (best.cell,), words=words))
    found.sort(key=lambda finding: finding.values["operation"] != "all_reduce")
    return [*_summary(data, found), *found[:MOST_FINDINGS], *_above_peak(data)]


def _summary(data: ReportData, found: list[Finding]) -> list[Finding]:
    """Return the highest bandwidth, else the lowest time, of all stacks of the first operation; none without any."""
    of_first = [one for one in found if one.values["operation"] == found[0].values["operation"]]
    if not of_first:
        return []
    of_first = headline_rows(data, of_first, lambda one: one.cells)
    column, sign = (BUSBW.name, 1) if BUSBW.name in found[0].values else ("time", -1)
    best = max(of_first, key=lambda one: sign * one.values[column].estimate)
    num, time = sum(one.values["num_candidates"] for one in of_first), best.values["time"]
    values = {"time_s": time, BUSBW.name: best.values.get(BUSBW.name), "num_launches": time.num_launches}
    values |= {"latency_bound_below_bytes": None} | unreliable(data, best.cells)
    words = best.words | {"near": best.values["near"], "compared": num if num > 1 else None}
    words["name"] = data.cell_names[best.cells[0]].without("message_bytes").full
    for crossover in crossover_sizes(data):
        sizes, same = crossover.values, ("operation", "world_size")
        if all(sizes[name] == best.values[name] for name in same) and best.values["stack"] in sizes["stacks"]:
            values["latency_bound_below_bytes"] = [sizes["low_bytes"], sizes["high_bytes"]]
            words["crossover"] = crossover.words["size"]
    return [Finding("communication", values, best.sources, best.cells, words=words)]


def _is_like(row, best) -> bool:
    """Return whether two cells differ at most in their algorithm."""
    pairs = [(getattr(row, name), getattr(best, name)) for name in ALGORITHM]
    return all(is_unknown(a) and is_unknown(b) if is_unknown(a) or is_unknown(b) else a == b for a, b in pairs)


def _above_peak(data: ReportData) -> list[Finding]:
    """Return the finding on cells above the peak of their links: the peak or the time is wrong."""
    rows = data.tables["collectives"].sort_values(PEAK_SHARE.name, ascending=False, kind="stable")
    above = rows[(rows[PEAK_SHARE.name] > 1).fillna(False)]
    if above.empty:
        return []
    cells, worst = tuple(above["cell"]), next(above.itertuples())
    values = {"num": len(above), "num_known": int(rows[PEAK_SHARE.name].count())}
    values |= {"largest_ratio": Value.of(worst, PEAK_SHARE)}
    words = {"name": data.names[worst.cell]}
    return [Finding("above_peak", values, (of_cells("collectives", cells),), cells, "warnings", words)]


TABLES = {"collectives": TableSpec.of(COLLECTIVES, collectives_table, "campaign", "measurements")}
TOPIC = Topic(*("communication", "Communication", TABLES, section, findings), kinds=KINDS)
