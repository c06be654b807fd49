"""Latency and bandwidth of collectives. Definitions: docs/metrics.md."""

from dataclasses import replace

import pandas as pd

from regatta.core.names import PLACE, SEPARATOR
from regatta.core.text import UNKNOWN, is_unknown, plural, prefixed, shape, size, three
from regatta.kit.columns import TEXT, Column
from regatta.kit.kinds import FAIR, RESULT, SUMMARY, Kind, Value
from regatta.report import panels
from regatta.report.chart import PlotAxis, size_ticks
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import CELL_NAME, LAUNCHES, Figure, Section
from regatta.report.rows import table_rows
from regatta.tables.bandwidth import ALGBW, BUSBW, PEAK, PEAK_SHARE, links_of
from regatta.tables.metrics import CALL, ERRORS, LATENCY, MEMORY
from regatta.tables.primary_times import steps_by_cell, values_by_cell
from regatta.topics import base
from regatta.topics.bandwidth_overview import bandwidth_overview, most_different
from regatta.topics.base import ReportData, Topic
from regatta.topics.fits.fits_section import crossover_sizes
from regatta.topics.settings import is_costly, settings_of

ALGORITHM_BYTES = next(column for column in MEMORY if column.name == "algorithm_bytes")
COLUMNS = {  # by figure, of its table
    "bandwidth": (ALGBW, BUSBW, PEAK_SHARE, PEAK),
    "latency": (LATENCY, CALL, ALGORITHM_BYTES, ERRORS[1]),
}
MOST_FINDINGS = 2
MOST_FIGURES_OPEN = 4  # of bandwidth; of more, those of two operations beside an overview
MOST_LINES = 8  # of one panel: more shapes and stacks are hard to distinguish
MOST_SIZE_TICKS = 5
UNITS = {BUSBW: (1e9, "B/s"), LATENCY: (1e-6, "s")}  # of ticks with prefixes: value of a column's unit, name
LABEL_SPACE = 1.6  # the axis ends as far above the highest peak, for its label
BETWEEN = {"gpus": "from a GPU to the others of its node", "gpu_pair": "between two GPUs", "nodes": "per node"}
Values = dict[str, list[float]]  # by cell, one for each launch


def collective_figures(
    collectives: pd.DataFrame, medians: Values, times: Values | None = None
) -> tuple[tuple[Figure, ...], tuple[Figure, ...]]:
    """Return the figures of bus bandwidth and those of latency, of each operation, all with the same axes.

    collectives: rows with names, without the message size. medians: seconds of a blocking call of each launch, by cell.
    times: the primary times of bandwidths, if they are others.
    """
    measured = collectives[collectives["latency_s"].notna()]
    if measured.empty:
        return (), ()
    calls = {BUSBW: panels.rates(BUSBW, times or medians, CALL.name), LATENCY: panels.by_cell(medians)}
    sizes = sorted(set(measured["message_bytes"].dropna()))
    x = PlotAxis("message size", True, sizes[0], sizes[-1], size_ticks(sizes, size, MOST_SIZE_TICKS)) if sizes else None
    peaks = [LABEL_SPACE * peak for peak in collectives["peak_gb_per_s"].dropna()]
    axes = {column: _axis(column, measured, calls[column], more) for column, more in ((BUSBW, peaks), (LATENCY, []))}

    def figure(table: str, number: int, column: Column, title: str, rows: pd.DataFrame, **of_chart: object) -> Figure:
        is_of_sizes = rows["message_bytes"].notna().any()
        return panels.figure_of_cells(
            *(f"{table}-{number}", f"{column.label.capitalize()}: {title}", rows),
            *("message_bytes" if is_of_sizes else "world_size", column, calls[column]),
            (x if is_of_sizes else panels.ranks_axis(rows[rows["latency_s"].notna()]), axes[column]),
            (MESSAGE, CELL_NAME, LAUNCHES, *COLUMNS[table]),
            "cells",
            **of_chart,
        )

    bandwidths, latencies = [], []
    for number, (title, rows) in enumerate(_measured_panels(collectives), start=1):
        if rows["busbw_gb_per_s"].notna().any():
            several = rows[rows["world_size"] > 1]
            bandwidths.append(figure("bandwidth", number, BUSBW, title, several, guides=_peak_lines(several)))
        latencies.append(figure("latency", number, LATENCY, title, rows))
    return tuple(bandwidths), tuple(latencies)


def _axis(column: Column, rows: pd.DataFrame, launches: panels.Launches, more: list[float]) -> PlotAxis:
    """Return the axis of all launches. more: other values on it."""
    values = [column.shown(value) for row in table_rows(rows) for value in launches(row)]
    heading = column.heading(rows["device"].iloc[0]) if values else ""
    factor, unit = UNITS[column]
    ends = min(values, default=None), max([*values, *more], default=None)
    drawn = column.label.capitalize()
    return PlotAxis(heading, True, *ends, show=lambda value: prefixed(factor * value, unit), drawn=drawn)


def _measured_panels(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the panels with a time, all-reduce first. A line is a shape, or an algorithm if an operation has several.

    A barrier has no message; its lines are its stacks and backends. Barriers come last.
    """
    is_algorithm = rows.groupby("operation")["algorithm"].transform("nunique") > 1
    is_barrier, found = rows["message_bytes"].isna() & ~is_algorithm, []
    for part, line, title in (
        (rows[is_algorithm], "algorithm", ("subject", "dtype", "shape")),
        (rows[~is_algorithm & ~is_barrier], "shape", ("subject", "dtype")),
        (rows[is_barrier], "subject", ("subject", "dtype")),
    ):
        fields = (lambda _, line=line: (line, *PLACE)), (lambda name, title=title: name.say(*title, always=title))
        shown = panels.panels(part, *fields, most=MOST_LINES)
        found += [(line, text, of) for text, of in shown if of["latency_s"].notna().any()]
    found.sort(key=lambda panel: (panel[0] == "subject", panel[2]["operation"].iloc[0] != "all_reduce", panel[1]))
    return [(text, of) for _, text, of in found]


def _peak_lines(rows: pd.DataFrame) -> tuple:
    """Return the guides of the peaks of the largest shape on one node and on several, the higher first."""
    columns = ["world_size", "nodes", "gpus_per_node", "peak_gb_per_s"]
    known = rows.loc[rows["peak_gb_per_s"].notna(), columns].sort_values("world_size", kind="stable")
    largest = pd.concat([known[known["nodes"] == 1].tail(1), known[known["nodes"] > 1].tail(1)])
    shapes: dict[float, list[str]] = {}
    for row in largest.itertuples():
        shapes.setdefault(float(row.peak_gb_per_s), []).append(shape(row.nodes, row.gpus_per_node))
    peaks = sorted(shapes, reverse=True)
    return tuple((f"peak {', '.join(shapes[peak])}: {three(peak)} GB/s", ((None, peak),)) for peak in peaks)


MESSAGE = Column(
    *("message", "message", TEXT),
    text=lambda row: UNKNOWN if is_unknown(row.message_bytes) else size(int(row.message_bytes)),
)


def section(data: ReportData) -> Section:
    is_imported = bool(data.campaign.imported)
    medians = values_by_cell(data.measurements, "p50_s")
    collectives = data.named(data.cells_of("collective"), "collective", without=("message_bytes",))
    bandwidth, latency = collective_figures(collectives, medians, steps_by_cell(data.measurements))
    title = "Latency" if is_imported else "Latency of blocking calls"
    shown, folded = (bandwidth, (title, latency)) if bandwidth else (latency, ("", ()))
    has_peak = collectives["peak_gb_per_s"].notna().any()
    lead = (lead_text(collectives, is_imported), links_text(data) if has_peak else "")
    found = Section("communication", "Communication", lead=" ".join(filter(None, lead)), figures=shown, folded=folded)
    return _with_overview(found, data) if len(bandwidth) > MOST_FIGURES_OPEN else found


def _with_overview(section: Section, data: ReportData) -> Section:
    """Return a section of many figures with a heatmap, the first figure and that of the most different operation."""
    matrix = bandwidth_overview(data)
    subject, (first, *others) = most_different(matrix), section.figures
    of_subject = (one for one in others if one.title.partition(": ")[2].split(SEPARATOR)[0] == subject)
    second = next(of_subject, others[0])
    more = Section(
        *("bandwidths", "Bus bandwidth"),
        figures=tuple(one for one in others if one is not second),
        summary="Bus bandwidth of the other operations, types and stacks",
    )
    content = {"matrices": (matrix,), "is_tall": True}
    state = (plural(len(section.figures), "figure"), "quiet")
    found = replace(section, figures=(first, second), parts=(more,), state=state)
    return replace(found, template="matrix.html.j2", content=content)


def lead_text(rows: pd.DataFrame, is_imported: bool) -> str:
    """Return which call is timed and what is drawn; empty if nothing is.

    is_imported: another program decided what one call means (see Methods).
    """
    if rows["latency_s"].isna().all():
        return ""
    measured = "Bandwidth and time per call: pipelined calls. Latency: one blocking call, slowest rank."
    measured = "Time of one call as imported." if is_imported else measured
    is_within = (rows["device"] == "cpu").all() and (rows["nodes"] == 1).all()
    within = " Single host: no network traffic." if is_within else ""
    return f"{measured}{within} {panels.how_to_read(rows, 'latency_s')}"


def links_text(data: ReportData) -> str:
    """Return the links of the GPUs that ran, with their sources."""
    gpus = set(data.ok["gpu"].dropna())
    texts = [
        f"{link['gb_per_s']:g} GB/s {BETWEEN[link['between']]} ({link['device']}, source: {link['source']})"
        for link in links_of(data.campaign)
        if link["device"] in gpus
    ]
    return f"Peaks: upper bounds from link bandwidths in one direction: {'; '.join(texts)}."


KINDS = (
    Kind(
        *("communication", SUMMARY),
        lead=(
            "Communication: {busbw_gb_per_s:number} bus bandwidth at {message} ({busbw_gb_per_s:ends})",
            "Communication: {time_s} per call",
        ),
        parts=("{name}", "latency-bound below {crossover}"),
        term="Bandwidth",
        help="algbw = S / t. S: bytes of one rank's buffer, or the sum over ranks (all_gather, reduce_scatter,"
        f" all_to_all). t: time per call of pipelined calls. Latency: one blocking call. busbw: {BUSBW.help}.",
    ),
    Kind(
        *("bandwidth", RESULT),
        lead=(
            "{name}: {busbw_gb_per_s:number} bus bandwidth ({peak_ratio:number} of peak), {time} per call.",
            "{name}: {busbw_gb_per_s:number} bus bandwidth, {time} per call.",
            "{name}: {time} per call.",
        ),
        parts=("The {rank} mean of the {compared} cells on {shapes}.", "Within noise, or undecided: {near}."),
    ),
    Kind(
        *("above_peak", FAIR),
        lead="Above link peak: bus bandwidth of {num} of {num_known:cell}.",
        parts=("Highest: {largest_ratio:number} of the peak, {name}.",),
        advice="Check links in the cluster file. A reduction in the network (NVLink SHARP) can exceed this peak.",
        next_step="check `links` in the cluster file",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the highest mean bus bandwidth at the largest shape of each operation, all-reduce first, with its size.

    Without any bandwidth, the lowest time per call. Operations are not compared; of cells that differ in their
    algorithm alone, `near` has those that may be as fast. Those with all their launches precede others.
    """
    rows = data.cells_of("collective").dropna(subset=CALL.name)
    column = BUSBW if rows[BUSBW.name].notna().any() else CALL
    settings, found = settings_of(data.tables["settings"], "algorithm"), []

    def place(cell: str) -> str:
        return data.cell_names[cell].without("algorithm").full

    for operation, group in rows.dropna(subset=column.name).groupby("operation", sort=True):
        largest = base.on_most_ranks(table_rows(group))
        compared = base.headline_rows(data, base.complete_rows(largest))
        best = base.best_row(compared, column)
        values = {
            one.name: Value.of(best, one) for one in (BUSBW, PEAK_SHARE) if not is_unknown(getattr(best, one.name))
        }
        values |= {"time": Value.of(best, CALL), "num_candidates": len(compared)}
        values |= {"operation": operation, "stack": best.stack, "world_size": int(best.world_size)}
        name, others = data.cell_names[best.cell], [row.cell for row in largest if row.cell != best.cell]
        near = [cell for cell in others if place(cell) == place(best.cell) and not is_costly(settings[cell])]
        values["near"] = tuple(data.cell_names[cell].unlike(name) for cell in near)
        rank = "highest" if column is BUSBW else "lowest"
        words = {"name": name.full, "rank": rank, "message": MESSAGE.text(best)}
        words["compared"] = len(compared) if len(compared) > 1 else None
        words["shapes"] = list(dict.fromkeys(shape(row.nodes, row.gpus_per_node) for row in compared))
        found.append(Finding("bandwidth", values, (of_cells("cells", [best.cell]),), (best.cell,), words=words))
    found.sort(key=lambda finding: finding.values["operation"] != "all_reduce")
    valid = base.headline_rows(data, found, lambda one: one.cells)
    return [*(_summary(data, one) for one in valid[:1]), *found[:MOST_FINDINGS], *_above_peak(data)]


def _summary(data: ReportData, best: Finding) -> Finding:
    """Return the line of the summary: the first operation's number, and its crossover for each stack."""
    values, same = {"time_s": best.values["time"], BUSBW.name: best.values.get(BUSBW.name)}, ("operation", "world_size")
    values |= {"num_launches": values["time_s"].num_launches, "latency_bound_below_bytes": None}
    words = best.words | {"name": data.cell_names[best.cells[0]].without("message_bytes").full}
    found = [one for one in crossover_sizes(data) if all(one.values[name] == best.values[name] for name in same)]
    sizes = {"/".join(one.values["stacks"]): one.words["size"] for one in found}
    words["crossover"] = found[0].words["size"] if len(found) == 1 else sizes
    for one in found:
        if best.values["stack"] in one.values["stacks"]:
            values["latency_bound_below_bytes"] = [one.values["low_bytes"], one.values["high_bytes"]]
    return Finding("communication", values, best.sources, best.cells, words=words)


def _above_peak(data: ReportData) -> list[Finding]:
    """Return the finding on cells above the peak of their links: the peak or the time is wrong."""
    rows = data.cells_of("collective").sort_values(PEAK_SHARE.name, ascending=False, kind="stable")
    above = rows[(rows[PEAK_SHARE.name] > 1).fillna(False)]
    if above.empty:
        return []
    cells, worst = tuple(above["cell"]), next(above.itertuples())
    values = {"num": len(above), "num_known": int(rows[PEAK_SHARE.name].count())}
    values |= {"largest_ratio": Value.of(worst, PEAK_SHARE)}
    words = {"name": data.names[worst.cell]}
    return [Finding("above_peak", values, (of_cells("cells", cells),), cells, "warnings", words)]


TOPIC = Topic(*("communication", "Communication", {}, section, findings), kinds=KINDS, benchmarks=("collective",))
