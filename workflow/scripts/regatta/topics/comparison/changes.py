"""The change in time of each pair with its interval: what the first screen has if all cells have one shape."""

import math

import pandas as pd

from regatta.core.text import is_unknown
from regatta.report.lines import Panel, PlotAxis, Point, Series
from regatta.report.panels import Figure, Table
from regatta.report.row_strips import RowStrip
from regatta.report.rows import table_rows
from regatta.topics.comparison import comparison_tables as tables
from regatta.topics.comparison.texts import difference_text, pair_text, with_labels

MOST_ROWS = 12
LEAST, AROUND_MARGIN = 0.06, 1.2  # log of the ratio that the axis spans to either side at least; relative to the margin
VERDICT_HUES = {"faster": 0, "slower": 1}  # others are gray


def changes_figure(judged: pd.DataFrame) -> Figure:
    """Return the figure of the rows, those with the largest effects first, of which it has MOST_ROWS."""
    shown = tables.by_effect(with_labels(judged)).head(MOST_ROWS)
    rows, points = table_rows(shown), {}
    for place, row in enumerate(rows):
        ends = (float(row.time_low_ratio), float(row.time_high_ratio)) if not is_unknown(row.time_low_ratio) else None
        points.setdefault(row.verdict, []).append(Point(place, (), float(row.time_ratio), cell=row.cell, ends=ends))
    series = tuple(
        Series(verdict, tuple(of), VERDICT_HUES.get(verdict, 0), verdict not in VERDICT_HUES)
        for verdict, of in points.items()
    )
    ends = [end for of in points.values() for point in of for end in (point.reported, *(point.ends or ()))]
    margin = 1 + float(shown["margin_ratio"].max())
    least = max(LEAST, AROUND_MARGIN * math.log(margin))
    low, high = min(*ends, math.exp(-least)), max(*ends, math.exp(least))
    panel = Panel(
        PlotAxis.of_categories("", [row.label for row in rows]),
        PlotAxis("Change in time (%)", True, low, high, show=_change_text),
        series,
        limits=((f"margin {100 * (margin - 1):.3g} %", margin), ("", 1 / margin)),
    )
    title, num = f"Change in time: {pair_text(shown)}", len(judged)
    title += f", largest {len(rows)} of {num} pairs" if len(rows) < num else ""
    lines = tuple((row.label, row.verdict, difference_text(float(row.time_ratio))) for row in rows)
    table = Table(title, ("cell", "verdict", "change (%)"), lines, cells=tuple(row.cell for row in rows))
    return Figure("changes", title, RowStrip(panel, is_verdict=True), table, "comparisons")


def _change_text(ratio: float) -> str:
    return "0" if math.isclose(ratio, 1) else difference_text(ratio)
