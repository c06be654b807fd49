"""The change in time of each pair with its interval: what the first screen has if all cells have one shape."""

import pandas as pd

from regatta.core.text import UNKNOWN, interval_heading, is_unknown
from regatta.kit.columns import table_rows
from regatta.report.chart import GREY, GUIDE, Chart, PlotAxis, Style, styles_of
from regatta.report.panels import Figure, Table
from regatta.tables.pairs import by_effect
from regatta.topics.comparison.sides import pair_text, with_labels
from regatta.topics.comparison.texts import difference_text

MOST_ROWS = 12
LABEL = "Change in time (%)"
LEAST, AROUND_MARGIN = 2, 1.3  # change that the axis has at least to either side; relative to the margin
BESIDE = 0.06  # of the axis, beyond the last change
VERDICT_HUES = {"faster": 0, "slower": 1}  # others are gray


def changes_figure(judged: pd.DataFrame) -> Figure:
    """Return the figure of the rows, those with the largest effects first, of which it has MOST_ROWS."""
    shown = by_effect(with_labels(judged)).head(MOST_ROWS)
    rows, marks = table_rows(shown), []
    for place, row in enumerate(rows):
        value, low, high = map(_change, (row.time_ratio, row.time_low_ratio, row.time_high_ratio))
        marks.append({"cell": row.cell, "series": row.verdict, "x": place, "y": value, "low": low, "high": high})
    margin = 1 + float(shown["margin_ratio"].max())
    places = _change(margin), _change(1 / margin)
    limits = dict(zip((f"margin {places[0]:.3g} %", f"{_text(places[1])} %"), places, strict=True))
    least = max(LEAST, AROUND_MARGIN * places[0])
    marks += [{"cell": "", "series": name, "x": None, "y": place} for name, place in limits.items()]
    frame = pd.DataFrame(marks).astype(dict.fromkeys(("x", "y", "low", "high"), float))
    ends = frame[["y", "low", "high"]].stack()
    low, high = min(ends.min(), -least), max(ends.max(), least)
    around = BESIDE * (high - low)
    styles = styles_of({row.verdict: VERDICT_HUES[row.verdict] for row in rows if row.verdict in VERDICT_HUES})
    styles |= {row.verdict: Style(GREY) for row in rows if row.verdict not in styles} | dict.fromkeys(limits, GUIDE)
    axes = (
        PlotAxis.of_categories("", [row.label for row in rows]),
        PlotAxis(LABEL, low=low - around, high=high + around, show=_text),
    )
    chart = Chart("rows", frame, *axes, styles=styles)
    title, num = f"Change in time: {pair_text(shown)}", len(judged)
    title += f", largest {len(rows)} of {num} pairs" if len(rows) < num else ""
    lines = tuple(
        (row.label, row.verdict, _text(of.y), UNKNOWN if is_unknown(of.low) else f"[{_text(of.low)}, {_text(of.high)}]")
        for row, of in zip(rows, frame.itertuples(), strict=False)
    )
    heads = ("cell", "verdict", LABEL.lower(), interval_heading(shown["interval"]))
    table = Table(title, heads, lines, cells=tuple(row.cell for row in rows))
    return Figure("changes", title, chart, table, "comparisons")


def _change(ratio: object) -> float | None:
    """Return the change in percent that a ratio stands for; None if unknown."""
    return None if is_unknown(ratio) else 100 * (float(ratio) - 1)


def _text(change: float) -> str:
    return "0" if abs(change) < 1e-9 else difference_text(1 + change / 100)
