"""What models predict beyond the largest measured place of a panel: hatched with a dashed edge, never as measured."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from regatta.report.series import Series
from regatta.report.svg import LINE, labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Places = Sequence[tuple[float, float]]

EDGE = (0, (3, 2))
HATCH, FILL, OPACITY = "////", 0.12, 0.6
SIGN = "\N{SQUARE WITH UPPER RIGHT TO LOWER LEFT FILL}"  # before the label, as the hatching
LINE_PT, LETTER_PT = 20, 8.2  # of the label in print, where letters are largest
NUM_SAMPLES = 8  # places along a line at which its height is known


def draw_predictions(
    axes: "Axes", shown: Sequence[Series], guides: Sequence[Places], colors: Sequence[str], signs: Sequence[str]
) -> None:
    """Draw the range of each prediction, from the interval of the last measured value on, and label them.

    colors: of the series. signs: their markers, which tell predictions of several models apart.
    """
    found: dict[str, list[str]] = {}  # models -> signs
    for series, color, sign in zip(shown, colors, signs, strict=True):
        if not (prediction := series.prediction):
            continue
        last = [point for point in series.points if point.is_on_line][-1]
        low, high = last.ends or (last.reported, last.reported)
        outline = (last.x, prediction.x, prediction.x, last.x), (low, *prediction.ends, high)
        gid = f"{LINE}{' '.join(series.cells)}"
        axes.fill(*outline, color=color, alpha=FILL, linewidth=0, zorder=1.7, gid=gid)
        edge = {"facecolor": "none", "edgecolor": color, "linestyle": EDGE, "linewidth": 0.9, "hatch": HATCH}
        axes.fill(*outline, alpha=OPACITY, zorder=1.8, gid=labelled(gid, prediction.text), **edge)
        line = (last.x, prediction.x), (last.reported, prediction.value)
        axes.plot(*line, color=color, linestyle=EDGE, linewidth=1.4, gid=gid)
        found.setdefault(prediction.models, []).append(sign)
    if found:
        place = next(series.prediction.place for series in shown if series.prediction)
        models = [f"{' '.join(of)} {models}" if len(found) > 1 else models for models, of in found.items()]
        _write_label(axes, _lines_of(shown, guides), f"{SIGN} predicted, {place}:\n{'; '.join(models)}")


def _write_label(axes: "Axes", lines: list[Places], text: str) -> None:
    """Write a text at the right edge of the plot where no line is; at the left edge if the gap there is larger."""
    of_text, pt_per_dot = text.split("\n"), 72 / axes.figure.dpi
    width = LETTER_PT * max(map(len, of_text)) / (axes.bbox.width * pt_per_dot)
    height = LINE_PT * len(of_text) / (axes.bbox.height * pt_per_dot)
    right, left = (_largest_gap(axes, lines, *ends) for ends in ((1 - width, 1), (0, width)))
    is_right = right[1] - right[0] >= min(height, left[1] - left[0])
    low, high = right if is_right else left
    where = {"ha": "right" if is_right else "left", "va": "center", "linespacing": 1.5, "zorder": 4}
    place = 0.995 if is_right else 0.015, (low + high) / 2
    axes.annotate(text, place, xycoords="axes fraction", fontsize=9, parse_math=False, **where)


def _largest_gap(axes: "Axes", lines: list[Places], left: float, right: float) -> tuple[float, float]:
    """Return between which heights of the plot, from left to right, the largest gap without a line is."""
    taken = [0.0, 1.0]
    for places in lines:
        drawn = axes.transAxes.inverted().transform(axes.transData.transform(places))
        for one, other in pairwise(drawn):
            for share in range(NUM_SAMPLES + 1):
                x, y = one + share / NUM_SAMPLES * (other - one)
                taken += [float(y)] if left <= x <= right and 0 <= y <= 1 else []
    return max(pairwise(sorted(taken)), key=lambda gap: gap[1] - gap[0])


def _lines_of(shown: Sequence[Series], guides: Sequence[Places]) -> list[Places]:
    """Return lines as places: guides, values of series, and edges of bands and predictions."""
    found = list(guides)
    for series in shown:
        points = [point for point in series.points if point.is_on_line]
        found.append([(point.x, point.reported) for point in points])
        for end in (0, 1):
            edge = [(point.x, point.ends[end] if point.ends else point.reported) for point in points]
            found.append([*edge, (series.prediction.x, series.prediction.ends[end])] if series.prediction else edge)
    return [places for places in found if len(places) > 1]
