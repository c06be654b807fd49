"""Inline SVG of a drawing, with real text, colors as CSS variables, and cells as attributes of marks."""

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# matplotlib draws in these colors; the page has a CSS variable for each. No drawing uses them for anything else.
COLORS = ("#a10001", "#a10002", "#a10003", "#a10004", "#a10005", "#a10006")
INK, GREY, GRID, GROUND = "#a10011", "#a10012", "#a10013", "#a10014"
CSS_COLORS = {color: f"var(--hue-{index})" for index, color in enumerate(COLORS, start=1)}
CSS_COLORS |= {INK: "var(--ink)", GREY: "var(--soft)", GRID: "var(--line)", GROUND: "var(--ground)"}
MARKS = "marks:"  # begins the gid of a plot whose marks stand for cells
CELL = "cell:"  # begins the gid of a drawing that stands for one cell
LINE = "line:"  # begins the gid of what connects marks: the ids of their cells
SERIES, FIT, FIT_CURVE = "series-", "fit", "fit-curve"  # gids: begins that of a line with a fit, its text, last mark
UNUSED = re.compile(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", re.DOTALL)
# Ids of groups are numbered alike in every figure. Ids of definitions are hashes, salted with the figure's name.
NUMBERED_ID = re.compile(r' id="[a-zA-Z0-9.]+_\d+"')
MARKED = re.compile(rf'<g id="{MARKS}(\d+)">')
MARK = re.compile(r"<use [^>]*/>")
MARK_STYLE = re.compile(r' style="([^"]*)"')
MARK_SHAPE = re.compile(r'<defs>\s*<path id="(m[0-9a-f]+)" d="([^"]*)"[^>]*/>\s*</defs>')
SHAPE_OF_MARK = re.compile(r'href="#(m[0-9a-f]+)"')
SQUARE = re.compile(r"M-([\d.]+) \1H\1V-\1H-\1z")
FIRST_OF_SERIES = re.compile(rf'<g id="{SERIES}({LINE}[^"]*)">')
LAST_OF_SERIES = re.compile(rf'<g id="{FIT_CURVE}">(.*?)</g>', re.DOTALL)
FONT = re.compile(r"font: ([\d.]+px)[^;\"]*")
COORDINATES = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')
LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")
COMMAND = re.compile(r"\s*([MLCQz]|\"$)\s*")  # of a path
LINE_TO = re.compile(r"([ML])([-\d.]+) ([-\d.]+)")
STRAIGHT = re.compile(r"([MLHV])([^MLHVz]*)")
NUMBER = re.compile(r"-?[\d.]+")
PLACE = re.compile(r'x="([-\d.]+)" y="([-\d.]+)"')
NEAR = 0.5  # marks of a cell within this distance look like one: their size is 4.5
# What a page does not need: paths without paint, rotations by 0, groups without attributes around other elements.
UNSEEN = re.compile(r'<path [^>]*style="fill: none"/>| transform="rotate\(-0 [^)]*\)"|<g/>')
PLAIN_GROUP = re.compile(r"<g>\s*((?:<(?:path|use|text)\b[^>]*(?:/>|>[^<]*</text>)\s*)*)</g>")
# Styles that style.css has, for all texts of a drawing and as classes.
TEXT_STYLE = re.compile(r'<text style="([^"]*)"')
TEXT_DEFAULTS = ("font-size: 9px", "font-family: 'DejaVu Sans'", "fill: var(--ink)")
CLASSES = {
    "fill: none; stroke: var(--line); stroke-width: 0.8; stroke-linecap: square": "rule",
    "fill: none; stroke: var(--soft); stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square": "axis",
}


def svg_of(figure: "Figure", label: str, cells: Sequence[Sequence[str]] = ()) -> str:
    """Return a figure as an inline SVG element, the same text for the same figure. label: its accessible name.

    cells: the cell of each mark of the plots with a gid of `MARKS`, by its number.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, dpi=144, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue().decode()
    box = re.search(r'viewBox="([^"]*)"', svg)[1]
    body = COORDINATES.sub(_rounded, UNUSED.sub("", svg[svg.index(">", svg.index("<svg")) + 1 :]))
    shapes = dict(MARK_SHAPE.findall(body))
    first, *plots = MARKED.split(NUMBERED_ID.sub("", body))
    body = first + "".join(
        f"<g>{_with_cells(plot, cells[int(number)], shapes)}"
        for number, plot in zip(plots[::2], plots[1::2], strict=True)
    )
    used = set(SHAPE_OF_MARK.findall(body))
    body = MARK_SHAPE.sub(lambda shape: shape[0] if shape[1] in used else "", body)
    body = FIRST_OF_SERIES.sub(r'<g class="series"><g id="\1">', body)
    for begin, instead in (
        (f'id="{CELL}', 'data-cell="'),
        (f'id="{LINE}', 'data-line="'),
        (f'id="{FIT}"', 'class="fit"'),
    ):
        body = body.replace(f"<g {begin}", f"<g {instead}")
    body = LAST_OF_SERIES.sub(r'<g class="fit">\1</g></g>', body)
    body = re.sub("#a100[01][0-9]", lambda match: CSS_COLORS[match[0]], FONT.sub(r"font-size: \1", body))
    return f'<svg class="chart" role="img" aria-label="{escape(label)}" viewBox="{box}">\n{_compact(body)}'


def _compact(body: str) -> str:
    """Return a drawing that looks the same in about half the bytes."""
    body = UNSEEN.sub("", TEXT_STYLE.sub(_text_style, body).replace("xlink:href", "href"))
    for style, name in CLASSES.items():
        body = re.sub(rf'(?: clip-path="[^"]*")? style="{re.escape(style)}"', f' class="{name}"', body)
    while (flatter := PLAIN_GROUP.sub(r"\1", body)) != body:
        body = flatter
    return "\n".join(line.strip() for line in body.splitlines() if line.strip())


def _rounded(attribute: re.Match) -> str:
    """Return an attribute with its numbers rounded to 0.1, a path without spaces around commands."""
    short = LONG_NUMBER.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), attribute[0])
    short = COMMAND.sub(r"\1", short)
    return short if "C" in short or "Q" in short else _with_short_lines(short)


def _with_short_lines(path: str) -> str:
    """Return a path of straight lines with H and V for horizontal and vertical ones."""
    before = ("", "")

    def short(match: re.Match) -> str:
        nonlocal before
        command, *place = match.groups()
        is_same = [old == new for old, new in zip(before, place, strict=True)]
        before = tuple(place)
        return match[0] if command == "M" or not any(is_same) else f"V{place[1]}" if is_same[0] else f"H{place[0]}"

    return LINE_TO.sub(short, path)


def _text_style(match: re.Match) -> str:
    words = [word for word in match[1].split("; ") if word not in TEXT_DEFAULTS]
    return f'<text style="{"; ".join(words)}"' if words else "<text"


def _with_cells(plot: str, cells: Sequence[str], shapes: Mapping[str, str]) -> str:
    """Return the marks of a plot as one path per cell, with their common style once.

    Marks of a cell that look like one are drawn once. Marks outside the canvas are not drawn. If one is missing, the
    cells of the others are unknown, so none is assigned. shapes: paths by the id of the definition.
    """
    end = plot.index("</g>")
    marks = MARK.findall(plot[:end])
    if len(marks) != len(cells):
        return plot
    style, shape = _style_and_shape(MARK_STYLE.search(marks[0])[1], shapes[SHAPE_OF_MARK.search(marks[0])[1]])
    texts = []
    for cell, run in groupby(zip(cells, marks, strict=True), key=lambda pair: pair[0]):
        places = [PLACE.search(mark).groups() for _, mark in run]
        apart = {tuple(round(float(number) / NEAR) for number in place): place for place in places}
        drawn = "".join(f"M{x} {y}{shape}" for x, y in apart.values())
        name = f' data-cell="{escape(cell)}"' if cell else ""
        texts.append(f'<path{name} d="{drawn}"/>')
    begin = plot.index(marks[0])
    return f'{plot[:begin]}<g style="{style}">\n' + "\n".join(texts) + f"\n</g>\n{plot[end:]}"


def _style_and_shape(style: str, shape: str) -> tuple[str, str]:
    """Return the style of a mark, and its path from its center.

    A filled circle or square is a line of length 0 with wide ends: a path with many of them is short.
    """
    values = dict(word.split(": ") for word in style.split("; "))
    edge = values.get("stroke", values["fill"])
    is_round, radius = "C" in shape, float(NUMBER.findall(shape)[1])
    if edge == values["fill"] and (is_round or SQUARE.fullmatch(shape)):
        width = 2 * radius + float(values.get("stroke-width", 1 if "stroke" in values else 0))
        opacity = values.pop("fill-opacity", None)
        values |= {"fill": "none", "stroke": edge, "stroke-width": f"{width:.3g}"}
        values |= {"stroke-opacity": opacity} if opacity else {}
        values["stroke-linecap"] = "round" if is_round else "square"
        return "; ".join(f"{name}: {value}" for name, value in values.items()), "h0"
    if is_round:
        half = f"a{radius:g} {radius:g} 0 1 0"
        return style, f"m-{radius:g} 0{half} {2 * radius:g} 0{half}-{2 * radius:g} 0z"
    return style, _relative(shape)


def _relative(path: str) -> str:
    """Return a closed path of straight lines in relative coordinates, from the origin."""
    x, y, lines = 0.0, 0.0, []
    for command, numbers in STRAIGHT.findall(path):
        values = [float(number) for number in NUMBER.findall(numbers)]
        to_x, to_y = (x, values[0]) if command == "V" else (values[0], y) if command == "H" else values
        lines.append(f"{'m' if command == 'M' else 'l'}{round(to_x - x, 1):g} {round(to_y - y, 1):g}")
        x, y = to_x, to_y
    return "".join(lines) + "z"
