"""Latency and bandwidth of collectives. Definitions: docs/metrics.md."""

from dataclasses import replace
from functools import partial

import pandas as pd

from regatta.core.names import PLACE, SEPARATOR, CellName
from regatta.core.text import is_unknown, plural, shape, three
from regatta.kit.columns import table_rows
from regatta.kit.kinds import FAIR, RESULT, SUMMARY, Kind, Value
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section, folded
from regatta.report.plots import Plot, figures_of, named, section_of
from regatta.tables.bandwidth import ALGBW, BUSBW, MESSAGE, PEAK, PEAK_SHARE, links_of
from regatta.tables.metrics import CALL, ERRORS, LATENCY, MEMORY
from regatta.tables.settings import settings_of
from regatta.topics import base
from regatta.topics.bandwidth_overview import bandwidth_overview, most_different
from regatta.topics.base import ReportData, Topic
from regatta.topics.fitted_models import crossover_sizes

ALGORITHM_BYTES = next(column for column in MEMORY if column.name == "algorithm_bytes")
MOST_FINDINGS = 1
MOST_FIGURES_OPEN = 4  # of bandwidth; of more, those of two operations beside an overview
MOST_LINES = 8  # of one panel: more shapes and stacks are hard to distinguish
BETWEEN = {"gpus": "from a GPU to the others of its node", "gpu_pair": "between two GPUs", "nodes": "per node"}


def line_fields(name: CellName) -> tuple[str, ...]:
    return next(of for of in ("algorithm", "shape", "subject") if of in name.parts), *PLACE


def panel_title(name: CellName) -> str:
    fields = ("subject", "dtype", *(("shape",) if "algorithm" in name.parts else ()))
    return name.say(*fields, always=fields)


def peaks(rows: pd.DataFrame) -> list[tuple[str, float]]:
    """Return the guides of the peaks of the largest shape on one node and on several, the higher first."""
    known = rows.dropna(subset=PEAK.name).sort_values("world_size", kind="stable")
    largest = pd.concat([known[known["nodes"] == 1].tail(1), known[known["nodes"] > 1].tail(1)])
    shapes: dict[float, list[str]] = {}
    for row in table_rows(largest):
        shapes.setdefault(float(row.peak_gb_per_s), []).append(shape(row.nodes, row.gpus_per_node))
    return [(f"peak {', '.join(shapes[peak])}: {three(peak)} GB/s", peak) for peak in sorted(shapes, reverse=True)]


OF_PANEL = {"line": line_fields, "title": panel_title, "most": MOST_LINES}
BANDWIDTH = Plot("bandwidth", BUSBW, MESSAGE, (ALGBW, BUSBW, PEAK_SHARE, PEAK), guides=peaks, **OF_PANEL)
LATENCIES = Plot("latency", LATENCY, MESSAGE, (LATENCY, CALL, ALGORITHM_BYTES, ERRORS[1]), **OF_PANEL)


def panel_rows(data: ReportData) -> pd.DataFrame:
    """Return collectives whose names have what their lines are: shapes, or algorithms if an operation has several.

    A barrier has no message; its lines are its stacks and backends. All-reduce is first, barriers are last.
    """
    rows = named(data, data.cells_of("collective"), MESSAGE)
    if rows.empty:
        return rows
    is_algorithm = rows.groupby("operation")["algorithm"].transform("nunique") > 1
    is_barrier, found = rows[MESSAGE.name].isna() & ~is_algorithm, []
    for name, has_several, is_empty in zip(rows["cell_name"], is_algorithm, is_barrier, strict=True):
        found.append(name if has_several else name.without("algorithm", *(("shape",) if is_empty else ())))
    return rows.assign(cell_name=found, subject_place=2 * is_barrier + (rows["operation"] != "all_reduce"))


def section(data: ReportData) -> Section | None:
    is_imported, rows = bool(data.campaign.imported), panel_rows(data)
    bandwidth, latency = figures_of(data, BANDWIDTH, rows[rows["world_size"] > 1]), figures_of(data, LATENCIES, rows)
    title = "Latency" if is_imported else "Latency of blocking calls"
    sentences = lead_text(rows, is_imported), links_text(data)
    more = {"parts": folded("latency", title, latency if bandwidth else ()), "headlines": tuple(bandwidth or latency)}
    found = section_of(rows, LATENCY, sentences, bandwidth or latency, **more)
    return _with_overview(found, data) if len(bandwidth) > MOST_FIGURES_OPEN else found


def _with_overview(section: Section, data: ReportData) -> Section:
    """Return a section of many figures with a heatmap, the first figure and that of the most different operation."""
    matrix = bandwidth_overview(data)
    subject, (first, *others) = most_different(matrix), section.figures
    of_subject = (one for one in others if one.title.partition(": ")[2].split(SEPARATOR)[0] == subject)
    second = next(of_subject, others[0])
    title = "Bus bandwidth of the other operations, types and stacks"
    parts = folded("bandwidths", title, [one for one in others if one is not second])
    state = (plural(len(section.figures), "figure"), "quiet")
    found = replace(section, figures=(first, second), parts=section.parts + parts, state=state)
    return replace(found, template="matrix.html.j2", content={"matrices": (matrix,)})


def lead_text(rows: pd.DataFrame, is_imported: bool) -> str:
    """Return which call is timed. is_imported: another program decided what one call means (see Methods)."""
    measured = "Bandwidth and time per call: pipelined calls. Latency: one blocking call, slowest rank."
    is_within = (rows["device"] == "cpu").all() and (rows["nodes"] == 1).all()
    measured = "Time of one call as imported." if is_imported else measured
    return f"{measured}{' Single host: no network traffic.' if is_within else ''}"


def links_text(data: ReportData) -> str:
    """Return the links of the GPUs that ran, with their sources; empty if no peak is known."""
    if data.cells_of("collective")[PEAK.name].isna().all():
        return ""
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
        parts=("{name}", "half-peak message size: {crossover}"),
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
        parts=("The {rank} mean of {compared} cells on {shapes}.", "Within noise, or undecided: {near}."),
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
    algorithm alone, `near` has those that may be as fast.
    """
    rows = data.cells_of("collective").dropna(subset=CALL.name)
    column = BUSBW if rows[BUSBW.name].notna().any() else CALL
    settings, found = settings_of(data.tables["settings"], "algorithm"), []

    def place(cell: str) -> str:
        return data.cell_names[cell].without("algorithm").full

    for operation, group in rows.dropna(subset=column.name).groupby("operation", sort=True):
        largest = base.on_most_ranks(table_rows(group))
        compared = base.headline_rows(data, largest)
        best = base.best_row(compared, column)
        values = {
            one.name: Value.of(best, one) for one in (BUSBW, PEAK_SHARE) if not is_unknown(getattr(best, one.name))
        }
        values |= {"time": Value.of(best, CALL), "num_candidates": len(compared)}
        values |= {"operation": operation, "stack": best.stack, "world_size": int(best.world_size)}
        name, others = data.cell_names[best.cell], [row.cell for row in largest if row.cell != best.cell]
        near = [cell for cell in others if place(cell) == place(best.cell) and not settings[cell].is_costly]
        values["near"] = tuple(data.cell_names[cell].unlike(name) for cell in near)
        rank = "highest" if column is BUSBW else "lowest"
        words = {"name": name.full, "rank": rank, "message": MESSAGE.text(best)}
        words["compared"] = len(compared) if len(compared) > 1 else None
        words["shapes"] = list(dict.fromkeys(shape(row.nodes, row.gpus_per_node) for row in compared))
        found.append(Finding("bandwidth", values, (of_cells("cells", [best.cell]),), (best.cell,), words=words))
    found.sort(key=lambda finding: finding.values["operation"] != "all_reduce")
    return [*base.with_summary(data, found, partial(_summary, data), MOST_FINDINGS), *_above_peak(data)]


def _summary(data: ReportData, best: Finding) -> Finding:
    """Return the line of the summary: the first operation's number, and its crossover for each stack."""
    values, same = {"time_s": best.values["time"], BUSBW.name: best.values.get(BUSBW.name)}, ("operation", "world_size")
    values |= {"num_launches": values["time_s"].num_launches, "latency_bound_below_bytes": None}
    words = best.words | {"name": data.cell_names[best.cells[0]].without("message_bytes").full}
    found = [one for one in crossover_sizes(data) if all(one[name] == best.values[name] for name in same)]
    words["crossover"] = found[0]["size"] if len(found) == 1 else {"/".join(of["stacks"]): of["size"] for of in found}
    for one in found:
        if best.values["stack"] in one["stacks"]:
            values["latency_bound_below_bytes"] = [one["low_bytes"], one["high_bytes"]]
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
    return [Finding("above_peak", values, (of_cells("cells", cells),), cells, words=words)]


TOPIC = Topic(*("communication", "Communication", {}, section, findings), kinds=KINDS, benchmarks=("collective",))
