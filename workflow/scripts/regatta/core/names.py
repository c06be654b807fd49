"""Name a cell by its fields: as many as are needed to distinguish it from the cells beside it.

`resnet50 · 8×4 GPUs · bucket 25 MiB`: the subject (model or operation), the shape, then what varies. The schema of a
benchmark declares how its values read (x-subject, x-words).
"""

import functools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from regatta.core.benchmarks import Axis, axes_of, load_benchmark
from regatta.core.text import is_unknown, rank_word, ranks_word, shape, size

SEPARATOR = " \N{MIDDLE DOT} "
PLACE = ("stack", "backend", "version", "hosts")  # last in a name, if they vary. hosts: of a sweep
ALWAYS = ("strategy", "implementation", "shape")  # part of names in a table even if they do not vary


@dataclass(frozen=True)
class CellName:
    """The name of one cell among others.

    parts: the text of each field that has a value, in reading order. varied: the fields that distinguish the cell from
    the others. series: the fields that label a line of a figure. ranks: GPUs or processes.
    """

    parts: dict[str, str]
    varied: frozenset[str]
    series: tuple[str, ...]
    ranks: str

    @functools.cached_property
    def full(self) -> str:
        """Return the name outside any context. No two cells that were named together share it."""
        fields = self._selected(self.parts, ("subject", "shape"))
        return SEPARATOR.join(self.parts[of] + (f" {self.ranks}" if of == "shape" else "") for of in fields)

    @property
    def brief(self) -> str:
        """Return the full name without the word for ranks, for where space is short."""
        return self.say(*self.parts, always=("subject", "shape"))

    @property
    def workload(self) -> str:
        """Return the subject and its varying fields, without those that label a line."""
        return self.say("subject", *self.settings, always=("subject",))

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the parameters that do not label a line."""
        return tuple(field for field in self.parts if field not in ("subject", "shape", *PLACE, *self.series))

    @property
    def within(self) -> str:
        """Return the name for use below a title that contains the workload."""
        return self.say("shape", *self.series, *PLACE)

    @property
    def within_subject(self) -> str:
        """Return the name for use below a title that contains only the subject."""
        return self.say("shape", *self.series, *self.settings, *PLACE)

    def say(self, *fields: str, always: Collection[str] = ALWAYS) -> str:
        """Return the texts of those fields that vary, or are in `always`."""
        return SEPARATOR.join(self.parts[field] for field in self._selected(fields, always))

    def label(self, *fields: str, always: Collection[str] = ()) -> str:
        """Return a label of at most two lines, the second for where the cell runs. It always has the first field."""
        selected = self._selected(fields, (*always, fields[0]))
        above = [field for field in selected if field not in ("shape", *PLACE)] or selected[:1]
        lines = (above, [field for field in selected if field not in above])
        return "\n".join(" ".join(self.parts[field] for field in line) for line in lines if line)

    def unlike(self, other: "CellName") -> str:
        """Return the texts of the fields in which two cells differ, or the full name if there is none."""
        parts = [text for field, text in self.parts.items() if text != other.parts.get(field)]
        return SEPARATOR.join(parts) or self.full

    def without(self, *fields: str) -> "CellName":
        """Return the name without fields that a title or a column contains."""
        parts = {field: text for field, text in self.parts.items() if field not in fields}
        return replace(self, parts=parts, varied=self.varied - set(fields))

    def _selected(self, fields: Iterable[str], always: Collection[str]) -> list[str]:
        return [field for field in fields if field in self.parts and (field in self.varied or field in always)]


def cell_names(cells: list[dict], benchmark: str = "") -> list[CellName]:
    """Return a name for each cell, given by its fields: the columns of any table with those of a cell.

    benchmark: that of all rows, if the table has no such column.
    """
    by_benchmark: dict[str, list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        by_benchmark[benchmark or cell["benchmark"]].append(index)
    names: dict[int, CellName] = {}
    for name, places in by_benchmark.items():
        names |= zip(places, _names_of_benchmark(name, [cells[place] for place in places]), strict=True)
    return [names[index] for index in range(len(cells))]


def _names_of_benchmark(benchmark: str, cells: list[dict]) -> list[CellName]:
    axes = {name: axis for name, axis in axes_of(benchmark).items() if axis.words}
    subject = load_benchmark(benchmark).subject
    in_subject = set(re.findall(r"{(\w+)}", subject))
    series = tuple(name for name, axis in axes.items() if axis.is_series)
    order = [*series, *(name for name in axes if name not in series), *PLACE]
    known = [{name: cell[name] for name in order if not is_unknown(cell.get(name))} for cell in cells]
    values = {name: list({_key(of[name]): of[name] for of in known if name in of}.values()) for name in order}
    texts = {name: _texts(axes.get(name), values[name]) for name in order}
    varied = {name for name in (*series, *PLACE) if len(values[name]) > 1} - in_subject
    shapes = [shape(cell["nodes"], cell["gpus_per_node"]) if "nodes" in cell else "" for cell in cells]  # "": a curve
    varied |= {"shape"} if len(set(shapes)) > 1 else set()
    rows, settings = [], defaultdict(lambda: defaultdict(set))  # settings: subject -> field -> its values
    for of_cell, place in zip(known, shapes, strict=True):
        words = {name: texts[name][_key(value)] for name, value in of_cell.items()}
        parts = {"subject": subject.format(**{name: words.get(name, "unknown") for name in in_subject})}
        parts |= {"shape": place} if place else {}
        parts |= {name: text for name, text in words.items() if name not in in_subject}
        rows.append(parts)
        for name in parts:
            settings[parts["subject"]][name].add(parts[name])
    varied |= {"subject"} if len(settings) > 1 else set()
    several = {of: {name for name in axes if len(found[name]) > 1} for of, found in settings.items()}
    named = zip(rows, map(_ranks, cells), strict=True)
    return _distinguished(
        [CellName(row, frozenset(varied | several[row["subject"]]), series, ranks) for row, ranks in named]
    )


def _distinguished(names: list[CellName]) -> list[CellName]:
    """Add to equal names the fields that only some of them have: imported cells may lack any field."""
    by_text: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        by_text[name.full].append(index)
    found = list(names)
    for places in by_text.values():
        fields = {field for place in places for field in names[place].parts}
        missing = {field for field in fields if any(field not in names[place].parts for place in places)}
        for place in places if missing else ():
            found[place] = replace(names[place], varied=names[place].varied | missing)
    return found


def value_text(axis: Axis, value: object) -> str:
    """Return a value of an axis as people write it: 64 px, 4 KiB, no compile."""
    if isinstance(axis.words, dict):
        return str(axis.words.get(value, value))
    if axis.unit == "bytes":
        return axis.words.format(size(int(value)))
    return axis.words.format(f"{value:g}" if isinstance(value, float) else value)


def _texts(axis: Axis | None, values: list) -> dict[object, str]:
    """Return the text of each value; in full where rounding would make two values equal."""
    if axis is None:
        return {_key(value): f"version {value}" if isinstance(value, int) else str(value) for value in values}
    texts = {_key(value): value_text(axis, value) for value in values}
    if len(set(texts.values())) < len(texts):
        unit = f" {'B' if axis.unit == 'bytes' else axis.unit}" if axis.unit else ""
        texts = {_key(value): f"{value}{unit}" for value in values}
    return texts


def _key(value: object) -> object:
    """Return the identity of a value: true is not 1 here, and 25.0 is 25."""
    return (bool, value) if isinstance(value, bool) or type(value).__name__ == "bool_" else value


def _ranks(cell: dict) -> str:
    is_one = "nodes" in cell and cell["nodes"] * cell["gpus_per_node"] == 1
    return (rank_word if is_one else ranks_word)(cell.get("device"))


def slug(name: str) -> str:
    """Return the name of a cell as part of an id or a file's name: resnet50-contained."""
    return "-".join(filter(None, (re.sub(r"[^a-z0-9.]+", "", part) for part in name.lower().split(SEPARATOR))))
