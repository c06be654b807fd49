"""The bus bandwidths of many operations and shapes in one heatmap."""

from collections import Counter
from dataclasses import replace

from regatta.core.text import ranks_word
from regatta.kit.kinds import Value
from regatta.report.findings import percent_number
from regatta.report.matrix import Group, Matrix, Square, by_workload_and_shape, densely, shaded
from regatta.report.rows import table_rows
from regatta.tables.bandwidth import BUSBW, PEAK_SHARE
from regatta.topics.base import ReportData, best_row, lacking_text
from regatta.topics.status_matrix import square_without_value, statuses_by_cell

OF_PEAK, OF_HIGHEST = "the peak", "the highest of its operation"


def bandwidth_overview(data: ReportData) -> tuple[Matrix, str]:
    """Return the share that each operation, stack and shape reaches of its peak, and what the whole is.

    If any peak is unknown, the whole is the highest bandwidth of the operation on any shape.
    """
    table = data.cells_of("collective").dropna(subset=BUSBW.name)
    rows, statuses = {row.cell: row for row in table_rows(table)}, statuses_by_cell(data.measurements)
    has_peaks = table[PEAK_SHARE.name].notna().all()
    highest = table.groupby("operation")[BUSBW.name].max()
    operations = set(table["operation"])
    cells = [
        cell
        for cell in data.campaign.all_cells
        if cell.benchmark == "collective" and cell.world_size > 1 and cell.parameters["operation"] in operations
    ]

    def square(_: str, ids: list[str]) -> Square:
        counts = sum((statuses[cell] for cell in ids), Counter())
        name, known = data.cell_names[ids[0]], [rows[cell] for cell in ids if cell in rows]
        if not known:
            return square_without_value(name.parts["subject"], ids, counts)
        best = best_row(known, BUSBW)
        share = float(best.peak_ratio if has_peaks else best.busbw_gb_per_s / highest[best.operation])
        is_partial = any(counts[status] for status in counts if status not in ("ok", "skipped"))
        note = "; ".join(filter(None, (f"{data.names[best.cell]}: {Value.of(best, BUSBW)}", lacking_text(best))))
        return Square(percent_number(share), share, "partial" if is_partial else "", tuple(ids), note)

    caption = f"Nodes × {ranks_word(data.device)} per node"
    found = by_workload_and_shape(caption, cells, data.cell_names, square, lambda _: "")
    return shaded(densely(replace(found, label="Bus bandwidths"))), OF_PEAK if has_peaks else OF_HIGHEST


def most_different(matrix: Matrix) -> str:
    """Return the subject whose lowest share is furthest below its highest."""

    def ratio(group: Group) -> float:
        levels = [one.level for row in group.rows for one in row.squares if one and one.level]
        return max(levels) / min(levels) if levels else 1.0

    return max(matrix.groups, key=ratio).name
