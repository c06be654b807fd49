"""Inline SVG of a drawing, with real text, colors as CSS variables, and cells as attributes of marks."""

import io
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colors of drawings have the names of the page's CSS variables. matplotlib draws each in a color that no drawing has.
COLORS = tuple(f"hue-{number}" for number in range(1, 7))
INK, GREY, GRID, GROUND = "ink", "soft", "line", "ground"
GOOD, BAD, LEVEL = "good", "bad", "level-high"
PLACEHOLDERS = {
    name: f"#a100{number:02x}"
    for number, name in enumerate((*COLORS, INK, GREY, GRID, GROUND, GOOD, BAD, LEVEL), start=1)
}
# Gids of drawings: an attribute or element, and its value.
CELL = "data-cell:"  # the cell that it stands for
LINE = "data-line:"  # the cells of the marks that it connects
GROUP = "group:"  # of successive elements: its classes, and after a colon what a pointer on it shows, if anything
MARKS = "marks:"  # the cell of each mark of a plot, empty for a mark without one
NEAR = 1  # marks of a cell within this distance look like one: their size is 4.5
# What all texts have by default, or from the page's style sheet.
TEXT_DEFAULTS = {"font-size: 9px", "font-family: 'DejaVu Sans'", f"fill: {PLACEHOLDERS[INK]}", "text-anchor: start"}
COMMAND = re.compile(r"([MLCQz])([^MLCQz]*)")  # of a path
PATH = re.compile(r'<path d="([^"]*)"(?=[^<]*/>$)')  # of a line
STYLE = re.compile(r'(?<= style=")[^"]*')
LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")
# Ids of groups, alike in every figure; those of definitions are hashes.
NUMBERED_ID = re.compile(r".*_\d+|\w+:.*")


def svg_of(figure: "Figure", label: str) -> str:
    """Return a figure as an inline SVG element, the same text for the same figure. label: its accessible name."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, dpi=144, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(re.sub(r' xmlns="[^"]*"|xlink:(?=href)', "", buffer.getvalue().decode()))
    shapes = {path.get("id"): path.get("d") for path in root.iter("path")}
    body = "\n".join(_text_of(element, shapes) for element in root[2:])  # without metadata and styles
    for name, color in PLACEHOLDERS.items():
        body = body.replace(color, f"var(--{name})")
    body = _with_classes(_merged(body))
    box = root.get("viewBox")
    return f'<svg class="chart" role="img" aria-label="{escape(label)}" viewBox="{box}">\n{body}\n</svg>\n'


def _merged(body: str) -> str:
    """Return a drawing in which successive paths that differ in their places alone are one."""
    parts = []
    for rest, run in groupby(body.split("\n"), key=lambda line: PATH.sub("", line) if PATH.match(line) else ""):
        lines = list(run)
        parts += [f'<path d="{"".join(PATH.match(line)[1] for line in lines)}"{rest}'] if rest else lines
    return "\n".join(parts)


def _with_classes(body: str) -> str:
    """Return a drawing in which a style is a class where that is shorter. Its name says what the style is."""
    rules, body = [], STYLE.sub(lambda style: style[0].replace("; ", ";").replace(": ", ":"), body)
    for style, num in Counter(re.findall(r' style="([^"]*)"', body)).items():
        name = f"s{zlib.crc32(style.encode()):x}"
        rule = f".chart .{name}{{{style}}}"
        if num * (len(style) - len(name)) > len(rule):
            rules.append(rule)
            body = body.replace(f' style="{style}"', f' class="{name}"')
    return f"<style>{' '.join(rules)}</style>\n{body}" if rules else body


def _text_of(element: ElementTree.Element, shapes: dict[str, str], cells: Sequence[str] = ()) -> str:
    """Return an element as text; empty if it shows nothing, or defines a mark.

    shapes: of marks, paths by id. cells: those of the element's marks.
    """
    tag, gid = element.tag, element.get("id", "")
    if tag == "path" and (gid or not element.get("d") or element.get("style") == "fill: none"):
        return ""
    if gid.startswith(MARKS):
        cells = gid.removeprefix(MARKS).split(" ")
    marks = element.findall("use")
    parts = _marks(marks, shapes, cells) if marks else []
    for name, run in groupby(() if marks else element, key=lambda part: part.get("id", "")):
        texts = [text for part in run if (text := _text_of(part, shapes, cells))]
        classes, _, title = name.removeprefix(GROUP).partition(":")
        title = f"<title>{escape(title)}</title>" if title else ""
        parts += [f'<g class="{classes}">{title}', *texts, "</g>"] if name.startswith(GROUP) else texts
    inside = "\n".join(parts) or escape((element.text or "").strip())
    if tag in ("g", "defs") and not inside:
        return ""
    if (attributes := _attributes(element)) or tag != "g":
        inside = f"<{tag}{attributes}>{inside}</{tag}>" if inside else f"<{tag}{attributes}/>"
    return inside


def _marks(marks: list[ElementTree.Element], shapes: dict[str, str], cells: Sequence[str]) -> list[str]:
    """Return the marks of a plot as one path per cell, in a group with their style.

    Marks of a cell that look like one are drawn once. Marks outside the canvas are not drawn. If one is missing, the
    cells of the others are unknown, so none is assigned.
    """
    cells = cells if len(cells) == len(marks) else [""] * len(marks)
    of_marks = [shapes[mark.get("href").removeprefix("#")] for mark in marks]
    places = [(float(mark.get("x")), float(mark.get("y"))) for mark in marks]
    style, dot = _dot(marks[0].get("style"), of_marks[0])
    paths = []
    for cell, run in groupby(zip(cells, of_marks, places, strict=True), key=lambda mark: mark[0]):
        apart = {(shape, round(x / NEAR), round(y / NEAR)): (x, y) for _, shape, (x, y) in run}
        drawn = "".join(f"M{x:.1f} {y:.1f}{dot or _short(shape)}" for (shape, *_), (x, y) in apart.items())
        name = f' data-cell="{escape(cell)}"' if cell else ""
        paths.append(f'<path{name} d="{drawn}"/>')
    return [f'<g style="{style}">', *paths, "</g>"]


def _attributes(element: ElementTree.Element) -> str:
    """Return the attributes of an element as text: places rounded, styles without what the page's style sheet has."""
    found = {name: value for name, value in element.attrib.items() if not value.startswith("rotate(-0 ")}
    gid = found.pop("id", "")
    if gid.startswith((CELL, LINE)):
        name, _, value = gid.partition(":")
        found[name] = value
    elif not NUMBERED_ID.fullmatch(gid):
        found["id"] = gid
    if element.tag == "text":
        found["style"] = "; ".join(word for word in found["style"].split("; ") if word not in TEXT_DEFAULTS)
    for name in {"x", "y", "width", "height", "transform"} & found.keys():
        found[name] = LONG_NUMBER.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), found[name])
    if "style" in found:
        found["style"] = found["style"].replace("stroke-dashoffset: 0; ", "")
    found["d"] = _short(found.get("d", "")).replace("m", "M", 1)  # so that it can follow another one
    return "".join(f' {name}="{escape(value)}"' for name, value in found.items() if value)


def _dot(style: str, shape: str) -> tuple[str, str]:
    """Return the style of a mark and, of a filled circle, its path: a line of length 0 with round ends.

    A path with many of them is short.
    """
    values = dict(word.split(": ") for word in style.split("; "))
    fill = values["fill"]
    if "C" not in shape or values.get("stroke", fill) != fill:
        return style, ""
    width = 2 * float(shape.split()[2]) + float(values.get("stroke-width", "stroke" in values))
    shown = {"fill": "none", "stroke": fill, "stroke-opacity": values.get("fill-opacity", "1")}
    shown |= {"stroke-width": f"{width:.3g}", "stroke-linecap": "round"}
    return "; ".join(f"{name}: {value}" for name, value in shown.items()), "h0"


def _short(path: str) -> str:
    """Return a path in relative coordinates, rounded to 0.1, in about half the bytes."""
    words, here, start = [], [0.0, 0.0], [0.0, 0.0]
    for command, numbers in COMMAND.findall(path):
        places = numbers.split()
        offsets = [round(float(place) - here[index % 2], 1) + 0.0 for index, place in enumerate(places)]
        if command == "L" and 0 in offsets:
            words.append(f"h{offsets[0]:g}" if offsets[0] else f"v{offsets[1]:g}")
        else:
            words.append(command.lower() + " ".join(f"{offset:g}" for offset in offsets))
        here = [here[0] + offsets[-2], here[1] + offsets[-1]] if offsets else start
        start = here if command == "M" else start
    return "".join(words).replace(" -", "-")
