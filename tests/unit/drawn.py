"""Charts of marks by hand."""

import re

import pandas as pd

from regatta.report.chart import GUIDE, Chart, PlotAxis, styles_of
from regatta.report.draw import draw


def mark(series: str, x: float, y: float, launches=(), ends=(None, None), cell="", shape="") -> dict:
    of_launches = {f"launch {number}": value for number, value in enumerate(launches, start=1)}
    named = {"cell": cell, "series": series, "x": x, "y": y}
    return named | dict(zip(("low", "high"), ends, strict=True)) | {"shape": shape} | of_launches


def line(label: str, num: int = 3, **of_mark) -> list[dict]:
    """Return marks over 1, 2, 4, ... with two launches each."""
    return [mark(label, 2.0**i, 1.05 + i, (1.0 + i, 1.1 + i), **of_mark) for i in range(num)]


def chart(*marks: dict, form="lines", hues=None, behind=(), guides=(), x=None, y=None, **fields) -> Chart:
    """Return a chart; each series has the hue 0 if `hues` (by series) has no other. behind: those that are context.

    guides: (label, x, y)."""
    rows = [*marks, *(mark(*guide) for guide in guides)]
    frame = pd.DataFrame(rows).astype(dict.fromkeys(("x", "y", "low", "high"), float))
    names = dict.fromkeys(row["series"] for row in marks)
    styles = styles_of({name: (hues or {}).get(name, 0) for name in names}, behind)
    styles |= {label: GUIDE for label, *_ in guides}
    return Chart(form, frame, x or PlotAxis("x"), y or PlotAxis("y"), styles=styles, **fields)


def svg_of(*marks: dict, **of_chart) -> str:
    return draw(chart(*marks, **of_chart), "figure", 'a "label"')


def texts_of(svg: str) -> list[str]:
    return re.findall(r">([^<>]*)</text>", svg)
