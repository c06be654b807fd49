"""Write one figure of a report as PDF and SVG for a paper or slides, with its marks and a caption.

The drawing is that of the page: other size and text, colors of the light theme, and the legend inside. The text is
embedded: as TrueType fonts in a PDF, as outlines in an SVG, which needs no font.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regatta.core.text import plural
from regatta.report.page import TEMPLATES, machine_line, provenance
from regatta.report.panels import Figure
from regatta.report.plotting import LegendEntry
from regatta.report.svg import CSS_COLORS, LINE, Medium
from regatta.store.launch_files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

GAP_IN = 0.04  # around the drawing, and between its parts
COLORED = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


@dataclass(frozen=True)
class FigureForm:
    """Size of the drawing and of its text. height_in: None for that of the page, with the legend below."""

    width_in: float
    height_in: float | None
    text_pt: float


FORMS = {
    "paper": FigureForm(3.35, None, 8),  # a column
    "slides": FigureForm(16 / 3, 3, 9),  # 16:9; on a slide of 13.3 inches, text of 22 points
}


def export_figures(figures: Sequence[Figure], data, folder: Path, form: FigureForm) -> None:
    """Write ID.pdf, ID.svg, ID.csv and ID.txt of each figure into a folder. data: ReportData."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        name = _draw(figure, folder / figure.id, form)
        write_text(folder / f"{figure.id}.csv", figure.csv)
        write_text(folder / f"{figure.id}.txt", caption_of(figure, name, data))


def _draw(figure: Figure, path: Path, form: FigureForm) -> str:
    """Write the drawing of a figure, and return its accessible name."""

    def write(canvas: "Canvas", name: str, _: Sequence) -> str:
        _write(canvas, path, form, figure.legend)
        return name

    return figure.draw(figure.id, Medium(write, lambda _, height: (form.width_in, form.height_in or height)))


def caption_of(figure: Figure, name: str, data) -> str:
    """Return what a figure shows, launches, interval, machine and versions. name: accessible. data: ReportData."""
    ok, cells = data.ok, set(figure.csv_columns[0][1:]) - {""}
    launches = (ok[ok["cell"].isin(cells)] if cells else ok).groupby("cell").size()
    least, most = launches.min(), launches.max()
    num = plural(int(most), "launch", "launches") if least == most else f"{least}\N{EN DASH}{most} launches"
    kinds = re.findall("95 % interval|range", " ".join(figure.table.columns))
    [versions] = [table for table in provenance(data.headers)["tables"] if table.columns[0] == "stack"] or [None]
    lines = [
        f"{name}.",
        f"n = {num} per cell, {plural(len(launches), 'cell')}." if len(launches) else "n = 0 launches.",
        f"Interval: {' or '.join(dict.fromkeys(kinds)) or 'none'}.",
        f"Machine: {', '.join(machine_line(data.campaign, data.headers, data.measurements))}.",
    ]
    for row in versions.rows if versions else ():
        known = (f"{name} {value}" for name, value in zip(versions.columns[1:], row[1:], strict=True) if value != "n/a")
        lines.append(f"Versions of {row[0]}: {', '.join(known)}.")
    return "\n".join(lines) + "\n"


def _write(canvas: "Canvas", path: Path, form: FigureForm, legend: Sequence[LegendEntry]) -> None:
    import matplotlib

    for label in [text for axes in canvas.axes for text in axes.texts if (text.get_gid() or "").startswith(LINE)]:
        label.remove()  # the legend has it
    for text in canvas.texts:
        text.set_wrap(True)
    if legend:
        _add_legend(canvas, legend, form.text_pt)
    for number in range(2):  # a plot of another size may have other ticks
        canvas.draw_without_rendering()
        for artist in _artists(canvas, "set_fontsize"):
            artist.set_fontsize(form.text_pt)
        if legend and form.height_in is None and number == 0:
            canvas.set_size_inches(form.width_in, canvas.get_figheight() + _box(canvas, canvas.legends[-1]).height)
        _fit(canvas)
    canvas.draw_without_rendering()
    _color(canvas)
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "path"}):
        for kind, metadata in (("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
            with path.with_name(f"{path.name}.{kind}").open("wb") as file:
                canvas.savefig(file, format=kind, metadata=metadata)


def _artists(canvas: "Canvas", method: str) -> Iterator:
    return (artist for artist in canvas.findobj() if hasattr(artist, method))


def _add_legend(canvas: "Canvas", legend: Sequence[LegendEntry], text_pt: float) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for entry in legend:
        style = {"color": entry.color, "alpha": entry.opacity, "dashes": entry.dashes or (None, None)}
        line = Line2D([], [], marker=entry.marker or "none", markersize=text_pt / 2, linewidth=1.4, **style)
        line.set_label(entry.label.replace("\n", " \N{MIDDLE DOT} "))
        handles.append(line)
    longest = max(len(line.get_label()) for line in handles)
    columns = max(1, int(canvas.get_figwidth() * 72 / (0.6 * text_pt * (longest + 5))))
    style = {"fontsize": text_pt, "frameon": False, "borderaxespad": 0.2, "handlelength": 1.8, "columnspacing": 1}
    drawn = canvas.legend(handles=handles, loc="lower left", ncols=columns, **style)
    for text in drawn.get_texts():
        text.set_parse_math(False)


def _box(canvas: "Canvas", artist: object):
    """Return the box of an artist with its texts, in inches."""
    return artist.get_tightbbox().transformed(canvas.dpi_scale_trans.inverted())


def _fit(canvas: "Canvas") -> None:
    """Move and scale the plots so that their texts fill the canvas, without what stands above and below them."""
    width, height = canvas.get_size_inches()
    bottom, top = GAP_IN, height - GAP_IN
    for artist in (*canvas.texts, *canvas.legends):
        box = _box(canvas, artist)
        if box.y0 + box.y1 > height:
            top = min(top, box.y0 - GAP_IN)
        else:
            bottom = max(bottom, box.y1 + GAP_IN)
    places = [axes.get_position() for axes in canvas.axes]
    boxes = [_box(canvas, axes) for axes in canvas.axes]
    ends = [
        _ends([(p.x0 * width, p.x1 * width) for p in places], [(b.x0, b.x1) for b in boxes], GAP_IN, width - GAP_IN),
        _ends([(p.y0 * height, p.y1 * height) for p in places], [(b.y0, b.y1) for b in boxes], bottom, top),
    ]
    for axes, place in zip(canvas.axes, places, strict=True):
        x0, x1 = (ends[0](end * width) / width for end in (place.x0, place.x1))
        y0, y1 = (ends[1](end * height) / height for end in (place.y0, place.y1))
        axes.set_position((x0, y0, x1 - x0, y1 - y0))


def _ends(places: list[tuple], boxes: list[tuple], low: float, high: float) -> Callable[[float], float]:
    """Return a linear map of places such that the boxes around them end at low and high; their margins stay."""
    first, last = min(start for start, _ in places), max(end for _, end in places)
    before, after = first - min(start for start, _ in boxes), max(end for _, end in boxes) - last
    scale = (high - after - low - before) / (last - first)
    return lambda place: low + before + scale * (place - first)


def _color(canvas: "Canvas") -> None:
    """Give a drawing the colors of the page's light theme."""
    from matplotlib.colors import to_hex, to_rgba_array

    theme = (TEMPLATES / "style.css").read_text(encoding="utf-8").split(":root {")[1]
    values = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", theme))
    found = {color: values[variable[6:-1]] for color, variable in CSS_COLORS.items()}
    for name in COLORED:
        for artist in _artists(canvas, f"set_{name}"):
            color = getattr(artist, f"get_{name}", lambda: "none")()
            rgba = to_rgba_array(color if color is not None else "none")
            if len(rgba) and to_hex(rgba[0]) in found:
                getattr(artist, f"set_{name}")(found[to_hex(rgba[0])])
