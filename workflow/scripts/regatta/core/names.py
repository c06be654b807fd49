"""The name of a cell: what people call it, made of its fields, as long as the cells beside it require.

`resnet50 · 8×4 GPUs · bucket 25 MiB`: the subject (model or operation), the shape, then what varies. How a value reads
is declared in the schema of its benchmark (x-subject, x-words).
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from regatta.core.benchmarks import Axis, axes_of, benchmark_names, load_benchmark
from regatta.core.text import is_unknown, rank_word, ranks_word, shape, size

SEPARATOR = " \N{MIDDLE DOT} "
PLACE = ("stack", "backend", "version")  # last in a name, where they vary
NOT_NAMED = ("benchmark", "nodes", "gpus_per_node", "world_size", "device", *PLACE)
ALWAYS = ("strategy", "implementation", "shape")  # said in names within a table also where they do not vary


@dataclass(frozen=True)
class CellName:
    """The name of one cell among others.

    parts: the text of each field that has a value, in reading order. varied: the fields that set the cell apart from the
    others. series: the fields that are said of a line of a figure. ranks: GPUs or processes.
    """

    parts: dict[str, str]
    varied: frozenset[str]
    series: tuple[str, ...]
    ranks: str

    @property
    def full(self) -> str:
        """The name by which the cell stands alone. No two cells that were named together share it."""
        named = replace(self, parts={field: self._with_ranks(field) for field in self.parts})
        return named.brief

    @property
    def brief(self) -> str:
        """The full name without the word for ranks, where there is little room."""
        return self.say(*self.parts, always=("subject", "shape"))

    @property
    def short(self) -> str:
        """What sets the cell apart, and nothing else; its subject where nothing does."""
        return self.say(*self.parts, always=()) or self.parts["subject"]

    @property
    def workload(self) -> str:
        """The subject and what varies of it, without what is said of a line."""
        return self.say("subject", *self.settings, always=("subject",))

    @property
    def settings(self) -> tuple[str, ...]:
        """The parameters that are not said of a line."""
        return tuple(field for field in self.parts if field not in ("subject", "shape", *PLACE, *self.series))

    @property
    def within(self) -> str:
        """The name where something else says the workload, such as a title."""
        return self.say("shape", *self.series, *PLACE)

    @property
    def within_subject(self) -> str:
        """The name where something else says the subject alone."""
        return self.say("shape", *self.series, *self.settings, *PLACE)

    def say(self, *fields: str, always: Collection[str] = ALWAYS) -> str:
        """Return the texts of those fields that vary, or are in `always`."""
        return SEPARATOR.join(self.parts[field] for field in self._said(fields, always))

    def label(self, *fields: str, always: Collection[str] = ()) -> str:
        """Return a label of at most two lines: where the cell runs is below. The first field is always said."""
        said = self._said(fields, (*always, fields[0]))
        above = [field for field in said if field not in ("shape", *PLACE)] or said[:1]
        lines = (above, [field for field in said if field not in above])
        return "\n".join(" ".join(self.parts[field] for field in line) for line in lines if line)

    def without(self, *fields: str) -> "CellName":
        """Return the name without fields that something else says, such as a title or a column."""
        parts = {field: text for field, text in self.parts.items() if field not in fields}
        return replace(self, parts=parts, varied=self.varied - set(fields))

    def _with_ranks(self, field: str) -> str:
        return f"{self.parts[field]} {self.ranks}" if field == "shape" else self.parts[field]

    def _said(self, fields: Iterable[str], always: Collection[str]) -> list[str]:
        return [field for field in fields if field in self.parts and (field in self.varied or field in always)]


def campaign_names(campaign: dict) -> dict[str, CellName]:
    """Return the name of each cell of a frozen campaign by its id, those that are skipped too."""
    cells = [*campaign["cells"], *campaign["skipped"]]
    names = cell_names([spec_fields(cell["spec"]) for cell in cells])
    return {cell["id"]: name for cell, name in zip(cells, names, strict=True)}


def names_by_cell(campaign: dict) -> dict[str, str]:
    """Return the full name of each cell of a frozen campaign by its id."""
    return {cell: name.full for cell, name in campaign_names(campaign).items()}


def name_of(cell: str, names: dict[str, str]) -> str:
    """Return the name of a cell, or its id where the campaign does not have it any more."""
    return names.get(cell, cell)


def spec_fields(spec: dict) -> dict:
    """Return a cell's fields by the names of their columns."""
    fields = {name: spec.get(name) for name in ("benchmark", "version", "nodes", "gpus_per_node", "backend", "device")}
    return {**spec["parameters"], **fields, "stack": spec["stack"]["name"]}


def cell_names(cells: list[dict], benchmark: str = "") -> list[CellName]:
    """Return a name for each cell, given by its fields: the columns of any table with those of a cell.

    benchmark: of all of them, where the table is of one benchmark and does not say it.
    """
    by_benchmark: dict[str, list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        by_benchmark[benchmark or cell["benchmark"]].append(index)
    names: dict[int, CellName] = {}
    for name, places in by_benchmark.items():
        names |= zip(places, _names_of_benchmark(name, [cells[place] for place in places]), strict=True)
    return [names[index] for index in range(len(cells))]


def _names_of_benchmark(benchmark: str, cells: list[dict]) -> list[CellName]:
    known = benchmark in benchmark_names()
    axes = axes_of(benchmark) if known else {name: Axis(name, "string", name, None, "{}") for name in _others(cells)}
    subject = load_benchmark(benchmark).subject if known else benchmark
    in_subject = set(re.findall(r"{(\w+)}", subject))
    series = tuple(name for name, axis in axes.items() if axis.is_series)
    order = [*series, *(name for name in axes if name not in series), *PLACE]
    values = {name: _distinct(cell.get(name) for cell in cells) for name in order}
    texts = {name: _texts(axes.get(name), values[name]) for name in order}
    varied = {name for name in order if len(values[name]) > 1} - in_subject
    shapes = [_shape(cell) for cell in cells]
    varied |= {"shape"} if len(set(shapes)) > 1 else set()
    found = []
    for cell, place in zip(cells, shapes, strict=True):
        own = {name: texts[name][_key(cell[name])] for name in order if not is_unknown(cell.get(name))}
        words = {name: own.get(name, "unknown") for name in in_subject}
        parts = {"subject": subject.format(**words), **({"shape": place} if place else {})}
        parts |= {name: text for name, text in own.items() if name not in in_subject}
        found.append(CellName(parts, frozenset(varied), series, _ranks(cell)))
    if len({name.parts["subject"] for name in found}) > 1:
        found = [replace(name, varied=name.varied | {"subject"}) for name in found]
    return _set_apart(found)


def _set_apart(names: list[CellName]) -> list[CellName]:
    """Say of cells that share a name what one of them has and another lacks: imported cells may lack any field."""
    by_text: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        by_text[name.full].append(index)
    found = list(names)
    for places in by_text.values():
        fields = {field for place in places for field in names[place].parts}
        lacking = {field for field in fields if any(field not in names[place].parts for place in places)}
        for place in places:
            found[place] = replace(names[place], varied=names[place].varied | lacking)
    return found


def value_text(axis: Axis, value: object) -> str:
    """Return a value of an axis as people say it: 64 px, 4 KiB, no compile."""
    if isinstance(axis.words, dict):
        return str(axis.words.get(value, value))
    return axis.words.format(_plain(axis, value))


def _plain(axis: Axis, value: object) -> str:
    if axis.unit == "bytes":
        return size(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _texts(axis: Axis | None, values: list) -> dict[object, str]:
    """Return the text of each value; in full where rounding would make two values one."""
    if axis is None:
        return {_key(value): f"version {value}" if isinstance(value, int) else str(value) for value in values}
    texts = {_key(value): value_text(axis, value) for value in values}
    if len(set(texts.values())) < len(texts):
        unit = f" {'B' if axis.unit == 'bytes' else axis.unit}" if axis.unit else ""
        texts = {_key(value): f"{value}{unit}" for value in values}
    return texts


def _distinct(values: Iterable) -> list:
    return list({_key(value): value for value in values if not is_unknown(value)}.values())


def _key(value: object) -> object:
    """Return what tells two values apart: true is not 1 here, and 25.0 is 25."""
    return (bool, value) if isinstance(value, bool) or type(value).__name__ == "bool_" else value


def _shape(cell: dict) -> str:
    """Return the shape of a cell; empty of a curve, whose cells have several."""
    return shape(cell["nodes"], cell["gpus_per_node"]) if "nodes" in cell else ""


def _ranks(cell: dict) -> str:
    is_one = "nodes" in cell and cell["nodes"] * cell["gpus_per_node"] == 1
    return (rank_word if is_one else ranks_word)(cell.get("device"))


def _others(cells: list[dict]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell if name not in NOT_NAMED))
