"""How far measurements lie from a fitted model, over its sizes: beside noise it shows whether the curve has another shape."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from regatta.analysis.tables import to_csv
from regatta.numbers import percent, plural, three
from regatta.report.figures import Axis, Panel, Point, Series, draw
from regatta.report.panels import Figure, Table

PERCENT = 100


@dataclass(frozen=True)
class Fitted:
    """One size of a curve: place on the axis and its text; what was measured, of the launches (none where they are not
    drawn) and in the table; what the model says, in the same unit. is_on_line: the model was fitted to it."""

    place: float
    text: str
    launches: tuple[float, ...]
    measured: float
    model: float
    is_on_line: bool = True

    @property
    def residual(self) -> float:
        return self.measured / self.model - 1


@dataclass(frozen=True)
class Words:
    """What a curve is called, its sizes, what was measured, its unit, and how a value of it is written."""

    name: str
    size: str
    measured: str
    unit: str
    show: Callable[[float], str] = three


def residual_figure(figure_id: str, words: Words, x: Axis, fitted: list[Fitted]) -> Figure:
    """Return the relative residuals of a model, measured over model less one, in percent. fitted: by rising size."""
    points = tuple(
        Point(
            f.place,
            tuple(PERCENT * (value / f.model - 1) for value in f.launches or (f.measured,)),
            PERCENT * f.residual,
            f.is_on_line,
        )
        for f in fitted
    )
    ends = fitted[0].place, fitted[-1].place
    guides = (("model", ((ends[0], 0.0), (ends[1], 0.0))),)
    panel = Panel(x, Axis("measured over model, less 1 (%)"), (Series("measured", points),), guides)
    dots = "Each point is one launch, the line joins" if any(f.launches for f in fitted) else "The points are"
    caption = (
        f"Measured {words.measured} over that of the model, less one, in percent, by {words.size}. {dots} the values that the"
        " model was fitted to. About 0 on both sides in turn is noise; an arc is another shape than the model's, however small it is."
    )
    unit = f" ({words.unit})" if words.unit else ""
    heads = (words.size, f"measured{unit}", f"model{unit}", "measured over model, less 1 (%)")
    rows = tuple((f.text, words.show(f.measured), words.show(f.model), percent(f.residual)) for f in fitted)
    table = Table(f"Residuals of {words.name}", heads, rows)
    csv = to_csv(
        pd.DataFrame(
            {"size": f.place, "measured": f.measured, "model": f.model, "residual_ratio": f.residual} for f in fitted
        )
    )
    return Figure(figure_id, f"Residuals: {words.name}", draw(panel), _told(words, fitted), caption, table, csv)


def _told(words: Words, fitted: list[Fitted]) -> str:
    """Return how far the residuals reach, and how often they change sides: noise does it often, an arc once or twice."""
    own = [f.residual for f in fitted if f.is_on_line]
    num = sum((a > 0) != (b > 0) for a, b in itertools.pairwise(own))
    return (
        f"{words.name}: measured {words.measured} is {percent(min(own))} to {percent(max(own))} % off the model, and changes sides"
        f" {plural(num, 'time')} over {plural(len(own), 'size')}."
    )
