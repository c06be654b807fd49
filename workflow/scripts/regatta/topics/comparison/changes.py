"""The change in time of each pair with its interval: what the first screen has if all cells have one shape."""

import pandas as pd

from regatta.core.text import UNKNOWN, interval_heading, is_unknown
from regatta.report.lines import Panel, PlotAxis, Point, Series
from regatta.report.panels import Figure, Table
from regatta.report.row_strips import RowStrip
from regatta.report.rows import table_rows
from regatta.topics.comparison import comparison_tables as tables
from regatta.topics.comparison.sides import pair_text, with_labels
from regatta.topics.comparison.texts import difference_text

MOST_ROWS = 12
LABEL = "Change in time (%)"
LEAST, AROUND_MARGIN = 2, 1.3  # change that the axis has at least to either side; relative to the margin
BESIDE = 0.06  # of the axis, beyond the last change
VERDICT_HUES = {"faster": 0, "slower": 1}  # others are gray


def changes_figure(judged: pd.DataFrame) -> Figure:
    """Return the figure of the rows, those with the largest effects first, of which it has MOST_ROWS."""
    shown = tables.by_effect(with_labels(judged)).head(MOST_ROWS)
    rows, points = table_rows(shown), {}
    for place, row in enumerate(rows):
        value, *ends = map(_change, (row.time_ratio, row.time_low_ratio, row.time_high_ratio))
        ends = None if None in ends else tuple(ends)
        points.setdefault(row.verdict, []).append(Point(place, (), value, cell=row.cell, ends=ends))
    series = tuple(
        Series(verdict, tuple(of), VERDICT_HUES.get(verdict, 0), verdict not in VERDICT_HUES)
        for verdict, of in points.items()
    )
    margin = 1 + float(shown["margin_ratio"].max())
    limits = _change(margin), _change(1 / margin)
    least = max(LEAST, AROUND_MARGIN * limits[0])
    ends = [end for of in points.values() for point in of for end in (point.reported, *(point.ends or ()))]
    low, high = min(*ends, -least), max(*ends, least)
    around = BESIDE * (high - low)
    panel = Panel(
        PlotAxis.of_categories("", [row.label for row in rows]),
        PlotAxis(LABEL, low=low - around, high=high + around, show=_text),
        series,
        limits=((f"margin {limits[0]:.3g} %", limits[0]), ("", limits[1])),
    )
    title, num = f"Change in time: {pair_text(shown)}", len(judged)
    title += f", largest {len(rows)} of {num} pairs" if len(rows) < num else ""
    in_order = sorted((point for of in points.values() for point in of), key=lambda point: point.x)
    lines = tuple(
        (row.label, row.verdict, _text(of.reported), f"[{', '.join(map(_text, of.ends))}]" if of.ends else UNKNOWN)
        for row, of in zip(rows, in_order, strict=True)
    )
    heads = ("cell", "verdict", LABEL.lower(), interval_heading(shown["interval"]))
    table = Table(title, heads, lines, cells=tuple(row.cell for row in rows))
    return Figure("changes", title, RowStrip(panel, is_verdict=True), table, "comparisons")


def _change(ratio: object) -> float | None:
    """Return the change in percent that a ratio stands for; None if unknown."""
    return None if is_unknown(ratio) else 100 * (float(ratio) - 1)


def _text(change: float) -> str:
    return "0" if abs(change) < 1e-9 else difference_text(1 + change / 100)
