"""Drawing a chart: a canvas in the report's style, and inline SVG with real text and colors as CSS variables."""

import io
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from regatta.report.bars import draw_hosts, draw_stacked
from regatta.report.chart import GREY, GRID, INK, PAGE, PLACEHOLDERS, Chart, Medium
from regatta.report.forms import draw_lines, draw_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FORMS = {"lines": draw_lines, "rows": draw_rows, "stacked": draw_stacked, "hosts": draw_hosts}
STYLE = {
    "svg.hashsalt": "regatta",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,  # grid lines mark the ticks
    "ytick.major.size": 0,
    "path.simplify": False,
    "hatch.linewidth": 1.2,
    "legend.frameon": False,
}
TEXT_SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")


def draw(chart: Chart, figure_id: str, title: str, medium: Medium = PAGE, write: Callable | None = None) -> str:
    """Return the drawing of a chart as an SVG element, or what `write` returns for the canvas.

    figure_id: unique on the page. title: what is shown. matplotlib takes 0.6 s to import, so it is imported where
    something is drawn: rules only need names of tables.
    """
    import matplotlib
    from matplotlib.colors import get_named_colors_mapping
    from matplotlib.figure import Figure

    for name, color in medium.colors.items():  # `update` would not clear the cache of this mapping
        get_named_colors_mapping()[name] = color
    wanted = {**matplotlib.rcParamsDefault, **STYLE, **dict.fromkeys(TEXT_SIZES, medium.text_pt)}
    wanted["svg.hashsalt"] = figure_id
    del wanted["backend"]  # reading it would import pyplot
    changed = {name: value for name, value in wanted.items() if matplotlib.rcParams[name] != value}
    # Setting all of them takes 10 ms. Names may have characters that the font lacks.
    with warnings.catch_warnings(), matplotlib.rc_context({**changed, "backend": "svg"}):
        warnings.filterwarnings("ignore", "Glyph .* missing")
        canvas = Figure(figsize=(medium.width_in, medium.height_in or 3), dpi=72)
        FORMS[chart.form](canvas, chart, medium)
        return write(canvas) if write else svg_of(canvas, ": ".join(filter(None, (title, chart.axes_text))))


NOT_SHOWN = re.compile(
    r"(?s)<!--.*?-->|<defs>\s*<clipPath.*?</defs>|<path [^>]*style=\"fill: none\"/>| transform=\"rotate\(-0 [^\"]*\""
    r'| clip-path="[^"]*"| id="[\w.]+_\d+"|(?:font-size|font-family|stroke-dashoffset): [^;"]*;? ?|xlink:(?=href)'
)
PLACES = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')
EMPTY = re.compile(r"<(g|defs)>\s*</\1>|<g/>")
GROUPS = re.compile(r'(<g id="group:[^"]*">)((?:(?!</?g\b).)*)</g>(?:\1((?:(?!</?g\b).)*)</g>)+')
OF_CELLS = re.compile(r'<g id="(data-\w+):([^"]*)">((?:(?!</?g\b).)*)</g>')  # a pointer is on what is inside
WRAPPED = re.compile(r"<g>(<(?:text|path|use)\b[^>]*?(?:/>|>[^<]*</text>))</g>")


def svg_of(canvas: "Canvas", label: str) -> str:
    """Return a drawing as an inline SVG element, the same text for the same drawing. label: its accessible name."""
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    box, text = re.search(r'viewBox="([^"]*)"[^>]*>(.*)</svg>', buffer.getvalue().decode(), re.DOTALL).groups()
    text = NOT_SHOWN.sub("", text.partition("</style>\n </defs>")[2] or text)
    text = re.sub(r"\s*\n\s*", "", PLACES.sub(_short, text)).replace(' style=""', "")
    defined = re.findall("<defs>.*?</defs>", text)
    text = re.sub("<defs>.*?</defs>", "", text)
    while (shorter := WRAPPED.sub(r"\1", EMPTY.sub("", text))) != text:
        text = shorter
    text = GROUPS.sub(_joined, text)
    text = re.sub(r'<g id="group:([^"]*)">', r"<g><title>\1</title>", text)
    text = OF_CELLS.sub(lambda found: re.sub(r"<(\w+) ", rf'<\1 {found[1]}="{found[2]}" ', found[3]), text)
    text = "".join(defined).replace("</defs><defs>", "") + text
    for name, color in PLACEHOLDERS.items():
        text = text.replace(color, f"var(--{name})")
    rules = []
    for style, num in Counter(re.findall(r' style="([^"]*)"', text)).items():
        short = style.replace("; ", ";").replace(": ", ":")
        name = f"s{zlib.crc32(short.encode()):x}"  # says what the style is
        if num > 1:
            rules.append(f".chart .{name}{{{short}}}")
            text = text.replace(f' style="{style}"', f' class="{name}"')
    style, width = f"<style>{' '.join(rules)}</style>", box.split()[2]
    head = f'class="chart" role="img" aria-label="{escape(label)}" viewBox="{box}" style="--drawn: {width}"'
    return f"<svg {head}>\n{style}\n{text.replace('><', chr(62) + chr(10) + chr(60))}\n</svg>\n"


def _short(places: re.Match) -> str:
    """Return places rounded to 0.1, a path without spaces that it does not need."""
    text = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), places[0])
    return re.sub(r"\s*([MLCQz])\s*", r"\1", text) if text.startswith(" d=") else text


def _joined(groups: re.Match) -> str:
    """Return successive groups that show the same as one."""
    return groups[1] + groups[0].replace(groups[1], "").replace("</g>", "") + "</g>"
