"""The bus bandwidths of many operations and shapes in one heatmap."""

from collections import defaultdict

from regatta.kit.columns import Row
from regatta.report.findings import percent_number
from regatta.report.matrix import Matrix, shape_columns, shapes_caption
from regatta.tables.bandwidth import BUSBW, PEAK_SHARE
from regatta.topics.base import ReportData
from regatta.topics.status_matrix import best_squares

OF_PEAK, OF_HIGHEST = "the peak", "the highest of its operation"


def bandwidth_overview(data: ReportData) -> Matrix:
    """Return the share that each operation, stack and shape reaches of its peak.

    If any peak is unknown, the whole is the highest bandwidth of the operation on any shape.
    """
    table = data.cells_of("collective").dropna(subset=BUSBW.name)
    has_peaks = table[PEAK_SHARE.name].notna().all()
    highest = table.groupby("operation")[BUSBW.name].max()
    cells = [
        cell
        for cell in data.campaign.all_cells
        if cell.benchmark == "collective" and cell.world_size > 1 and cell.parameters["operation"] in highest
    ]

    def show(best: Row, *_: object) -> dict:
        share = float(best.peak_ratio if has_peaks else best.busbw_gb_per_s / highest[best.operation])
        return {"text": percent_number(share), "level": share}

    whole = OF_PEAK if has_peaks else OF_HIGHEST
    return Matrix(
        *(shapes_caption(data.device), shape_columns(cell.shape for cell in cells)),
        best_squares(data, cells, {"collective": [BUSBW]}, show),
        label="Bus bandwidths by shape",
        notes=(f"Highest bus bandwidth of all message sizes, in percent of {whole}. Lighter is lower",),
        most_open=0,
    )


def most_different(matrix: Matrix) -> str:
    """Return the subject whose lowest share is furthest below its highest."""
    levels = defaultdict(list)
    for square in matrix.squares:
        levels[square.group[-1]] += [square.level] if square.level else []
    return max(levels, key=lambda name: max(levels[name], default=1) / min(levels[name], default=1))
