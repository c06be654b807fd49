"""Write one figure of a report as PDF and SVG for a paper or slides, with its marks and a caption.

The drawing is that of the page: other size and text, colors of the light theme, and the legend inside. The text is
embedded: as TrueType fonts in a PDF, as outlines in an SVG, which needs no font.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regatta.core.text import plural
from regatta.report.charts import LegendEntry, Medium
from regatta.report.page import TEMPLATES, machine_line, provenance
from regatta.report.panels import Figure
from regatta.report.stack_facts import facts_text, own_facts
from regatta.report.svg import LINE
from regatta.store.launch_files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

GAP_IN = 0.04  # around the drawing, and between its parts


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

    def write(canvas: "Canvas", name: str) -> str:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # names may have characters that the font lacks
            _write(canvas, path, form, figure.legend)
        return name

    def size_in(_: float, height_in: float) -> tuple[float, float]:
        if not figure.chart.has_rows:
            return form.width_in, form.height_in or min(height_in, form.width_in)
        factor = max(1, height_in / (form.height_in or height_in))  # of a slide: all rows fit
        return factor * form.width_in, factor * form.height_in if form.height_in else height_in

    return figure.chart.draw(figure.id, figure.title, Medium(write, size_in, _light_colors()))


def caption_of(figure: Figure, name: str, data) -> str:
    """Return what a figure shows, launches, interval, machine and versions. name: accessible. data: ReportData."""
    ok, cells = data.ok, set(figure.columns[0][1:]) - {""}
    launches = (ok[ok["cell"].isin(cells)] if cells else ok).groupby("cell").size()
    least, most = launches.min(), launches.max()
    num = plural(int(most), "launch", "launches") if least == most else f"{least}\N{EN DASH}{most} launches"
    of_cells = f"n = {num} per cell, {plural(len(launches), 'cell')}." if len(launches) else "n = 0 launches."
    of_record = "p5 to p95 of iterations" if figure.chart.record else ""
    kinds = re.findall("95 % CI|range", " ".join(figure.table.columns))
    [versions] = [table for table in provenance(data.headers)["tables"] if table.columns[0] == "stack"] or [None]
    lines = [
        f"{name}.",
        f"n = 1 launch: {figure.chart.record}." if figure.chart.record else of_cells,
        f"Interval: {' or '.join(dict.fromkeys(kinds)) or of_record or 'none'}.",
        f"Machine: {', '.join(machine_line(data.campaign, data.headers, data.measurements))}.",
    ]
    for row in versions.rows if versions else ():
        known = (f"{name} {value}" for name, value in zip(versions.columns[1:], row[1:], strict=True) if value != "n/a")
        lines.append(f"Versions of {row[0]}: {', '.join(known)}.")
    lines += [f"Stack {stack}: {facts_text(of)}." for stack, of in own_facts(data.campaign).items() if of]
    return "\n".join(lines) + "\n"


def _write(canvas: "Canvas", path: Path, form: FigureForm, legend: Sequence[LegendEntry]) -> None:
    import matplotlib
    from matplotlib.text import Text

    for label in [text for axes in canvas.axes for text in axes.texts if (text.get_gid() or "").startswith(LINE)]:
        label.remove()  # the legend has it
    for text in canvas.texts:
        text.set_wrap(True)
    legends = [(one.legend_handles, [of.get_text() for of in one.get_texts()], "upper") for one in canvas.legends]
    for one in list(canvas.legends):
        one.remove()  # it may be wider than this drawing
    if legend:
        legends.append((_lines(legend, form.text_pt), [entry.label for entry in legend], "lower"))
    for handles, labels, side in legends:
        drawn = _add_legend(canvas, handles, labels, side, form.text_pt)
        if form.height_in is None:
            canvas.draw_without_rendering()
            height_in = drawn.get_tightbbox().height / canvas.dpi
            canvas.set_size_inches(form.width_in, canvas.get_figheight() + height_in)
    canvas.set_layout_engine("constrained", w_pad=GAP_IN, h_pad=GAP_IN, wspace=0)
    for _ in range(2):  # a plot of another size may have other ticks
        canvas.draw_without_rendering()
        for text in canvas.findobj(Text):
            text.set_fontsize(form.text_pt)
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "path"}):
        for kind, metadata in (("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
            with path.with_name(f"{path.name}.{kind}").open("wb") as file:
                canvas.savefig(file, format=kind, metadata=metadata)


def _lines(legend: Sequence[LegendEntry], text_pt: float) -> list["Line2D"]:
    from matplotlib.lines import Line2D

    handles = []
    for entry in legend:
        style = {"color": entry.color, "alpha": entry.opacity, "dashes": entry.dashes or (None, None)}
        handles.append(
            Line2D(
                [], [], marker=entry.marker or "none", markersize=text_pt / 2, linewidth=1.4 * entry.has_line, **style
            )
        )
    return handles


def _add_legend(canvas: "Canvas", handles: list, labels: list[str], side: str, text_pt: float) -> "Legend":
    labels = [label.replace("\n", " \N{MIDDLE DOT} ") for label in labels]
    columns = max(1, int(canvas.get_figwidth() * 72 / (0.6 * text_pt * (max(map(len, labels)) + 5))))
    style = {"fontsize": text_pt, "frameon": False, "borderaxespad": 0.2, "handlelength": 1.8, "columnspacing": 1}
    drawn = canvas.legend(handles, labels, loc=f"outside {side} left", ncols=columns, **style)
    for text in drawn.get_texts():
        text.set_parse_math(False)
    return drawn


def _light_colors() -> dict[str, str]:
    """Return the colors of the page's light theme."""
    theme = (TEMPLATES / "style.css").read_text(encoding="utf-8").split(":root {")[1]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", theme))
