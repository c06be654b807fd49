"""Drawing a chart: a canvas in the report's style, and inline SVG with real text and colors as CSS variables."""

import io
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING

from regatta.report.bars import draw_hosts, draw_stacked
from regatta.report.chart import GREY, GRID, INK, LINE, PAGE, PLACEHOLDERS, Chart, Medium
from regatta.report.forms import draw_lines, draw_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FORMS = {"lines": draw_lines, "rows": draw_rows, "stacked": draw_stacked, "hosts": draw_hosts}
STYLE = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
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
    wanted = {**matplotlib.rcParamsDefault, **STYLE, "font.size": medium.text_pt, "svg.hashsalt": figure_id}
    del wanted["backend"]  # reading it would import pyplot
    changed = {name: value for name, value in wanted.items() if matplotlib.rcParams[name] != value}
    # Setting all of them takes 10 ms. Names may have characters that the font lacks.
    with warnings.catch_warnings(), matplotlib.rc_context({**changed, "backend": "svg"}):
        warnings.filterwarnings("ignore", "Glyph .* missing")
        canvas = Figure(figsize=(medium.width_in, medium.height_in or 3), dpi=72)
        FORMS[chart.form](canvas, chart, medium)
        return write(canvas) if write else svg_of(canvas, ": ".join(filter(None, (title, chart.axes_text))))


# Parts of an SVG drawing: texts with surrounding space, ids, styles, paths, unneeded attributes, coordinates.
PARTS = re.compile(
    r'>[^<]*<| id="[^"]*"| style="([^"]*)"| d="([^"]*)"| clip-path="[^"]*"| transform="rotate\(-0 [^"]*"|xlink:(?=href)'
    r"|-?\d+\.\d+|\s*\n"
)
COMMAND = re.compile(r"([MLCQz])([^MLCQz]*)")  # of a path
NOT_OF_PAGE = re.compile(  # what its style sheet has for all texts
    f"(?:font-size|font-family|stroke-dashoffset): [^;]*;? ?|text-anchor: start;? ?|fill: {PLACEHOLDERS[INK]}"
)
TAGS = re.compile(r'<g(?: id="(data-\w+):([^"]*)")?[^>]*>|</g>|<(?:path|use|text)(?! id=)')


def svg_of(canvas: "Canvas", label: str) -> str:
    """Return a drawing as an inline SVG element, the same text for the same drawing. label: its accessible name."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    FigureCanvasSVG(canvas).print_svg(buffer, metadata={"Date": None, "Creator": None})
    box, text = re.search(r'viewBox="([^"]*)"[^>]*>(.*)</svg>', buffer.getvalue(), re.DOTALL).groups()
    text = re.sub("(?s)<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|<clipPath.*?</clipPath>", "", text)
    text = PARTS.sub(_shorter, text)
    defined = "".join(re.findall("<defs>(.*?)</defs>", text))
    text = re.sub("<defs>.*?</defs>|<defs/>", "", text)
    text = _without_groups(re.sub('<path [^>]*style="fill:none"/>', "", text))
    for name, color in PLACEHOLDERS.items():
        text, defined = (of.replace(color, f"var(--{name})") for of in (text, defined))
    rules = []
    for style, num in Counter(re.findall(r' style="([^"]*)"', text)).items():
        name = f"s{zlib.crc32(style.encode()):x}"  # says what the style is
        if num > 1:
            rules.append(f".chart .{name}{{{style}}}")
            text = text.replace(f' style="{style}"', f' class="{name}"')
    style, width = f"<style>{' '.join(rules)}</style>", box.split()[2]
    text = f"<defs>{defined}</defs>" * bool(defined) + text
    head = f'class="chart" role="img" aria-label="{escape(label)}" viewBox="{box}" style="--drawn: {width}"'
    return f"<svg {head}>\n{style}\n{text.replace('><', chr(62) + chr(10) + chr(60))}\n</svg>\n"


def _shorter(part: re.Match) -> str:
    """Return a part of a drawing without what the page does not need; places are rounded to 0.1."""
    text = part[0]
    if text[0] == ">":
        return f">{text[1:-1].strip()}<"
    if text.startswith(" id"):
        return text
    if part[1] is not None:
        return _style(part[1])
    if part[2] is not None:
        return f' d="{_path(part[2])}"'
    return f"{float(text):.1f}".removesuffix(".0") if text[0] in "-0123456789" else ""


def _path(text: str) -> str:
    """Return a path in relative coordinates, which takes about half the bytes."""
    words, here, start = [], (0.0, 0.0), (0.0, 0.0)
    for command, numbers in COMMAND.findall(text):
        offsets = [round(float(at) - here[place % 2], 1) + 0.0 for place, at in enumerate(numbers.split())]
        if command == "L" and 0 in offsets:
            words.append(f"h{offsets[0]:g}" if offsets[0] else f"v{offsets[1]:g}")
        else:
            words.append(command.lower() + " ".join(f"{offset:g}" for offset in offsets))
        here = (here[0] + offsets[-2], here[1] + offsets[-1]) if offsets else start
        start = here if command == "M" else start
    return "".join(words).replace(" -", "-")


@cache
def _style(text: str) -> str:
    """Return the attribute of a style."""
    text = NOT_OF_PAGE.sub("", text).strip("; ").replace("; ", ";").replace(": ", ":")
    return f' style="{text}"' if text else ""


def _without_groups(text: str) -> str:
    """Return a drawing without groups. Gids become attributes of elements; a line's gid is on all of its elements."""
    groups = [repeat("")]  # attributes of the elements in each open group

    def shown(tag: re.Match) -> str:
        kind, value = tag.groups()
        if tag[0] == "</g>":
            groups.pop()
        elif not tag[0].startswith("<g"):
            return tag[0] + next(groups[-1], "")
        elif kind:
            attributes = [f' {kind}="{of}"' if of else "" for of in value.split(" ")]
            groups.append(repeat(f' {kind}="{value}"') if kind == LINE[:-1] else iter(attributes))
        else:
            groups.append(groups[-1])
        return ""

    return TAGS.sub(shown, text)
