"""Findings: results as data, each worded by one template of its kind.

A topic lists its kinds in one table. Section, summary, warnings, terminal and answer.json take their words from there.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral

from regatta.core.text import is_unknown, plural, time_scale, with_ends
from regatta.kit.columns import Column, decimals_of, fixed

SUMMARY, RESULT = "summary", "result"  # ranks: on the first screen; in the section of its topic
# Ranks of warnings, worst first. LOW and FAIR invalidate a comparison of their cells and name the confidence that is
# left; NOTE does not.
LOW, FAIR, NOTE = WARNINGS = "low", "fair", "note"
MOST_NAMES = 3  # of a list in a sentence
Template = str | tuple[str, ...]


@dataclass(frozen=True)
class Value:
    """A number with its interval or range over launches, in the unit of its column's file.

    kind: "interval", "range", or "single" (one launch).
    """

    column: Column
    estimate: float
    low: float | None = None
    high: float | None = None
    kind: str = "single"
    num_launches: int = 0

    @classmethod
    def of(cls, row: object, column: Column) -> "Value":
        """Return the value of a column in a table's row. num_launches: of the row."""
        estimate, *ends = (getattr(row, name) for name in column.names)
        num = int(row.num_launches)
        if not ends or any(map(is_unknown, ends)):
            return cls(column, float(estimate), num_launches=num)
        return cls(column, float(estimate), *map(float, ends), getattr(row, column.interval), num)

    def by_name(self, name: str) -> dict[str, float | None]:
        """Return estimate and ends as numbers. name: of the estimate; ends have _low and _high before the unit."""
        unit = self.column.unit
        names = with_ends(name.removesuffix(f"_{unit}"), unit)
        return dict(zip(names, (self.estimate, self.low, self.high), strict=True))

    def __format__(self, form: str) -> str:
        """Return `37 % (range 32–39 %, 2 launches)`, `87 % (95 % CI 85–89 %)` or `37 % (1 launch)`.

        form: "number" for 37 %, "ends" for what stands in parentheses.
        """
        column = self.column
        if column.unit == "s":  # a sentence stands alone, so a time has the unit that suits it
            column = replace(column, shown_as=time_scale(self.estimate)[1])
        shown = [column.shown(end) for end in (self.estimate, self.low, self.high)]
        decimals = decimals_of(*shown, self.kind, column.figures)
        unit = f" {unit}" if (unit := column.unit_text) else ""
        number, *ends = (None if end is None else fixed(end, decimals, shown[1]) for end in shown)
        number += unit
        inside = plural(self.num_launches, "launch", "launches")
        if shown[1] is not None:
            ends = f"{ends[0]}\N{EN DASH}{ends[1]}{unit}"
            inside = f"range {ends}, {inside}" if self.kind == "range" else f"95 % CI {ends}"
        return {"number": number, "ends": inside, "": f"{number} ({inside})"}[form]


@dataclass(frozen=True)
class Kind:
    """A kind of findings. lead: the statement. parts: sentences that qualify it. advice: what to do.

    next_step: the same in a few words for the summary, with the command. key: in answer.json, the id of a line of the
    summary (default: the name); of a warning, where the line on confidence has its numbers, all of them after [].
    place: of a line among the others. mark: the word of its sign. has_badge: tables mark its cells, although it is a
    note. help: what it means, under Methods by `term`.

    A template is a str.format text with names of values. A list is joined; the format of an integer is its noun
    ("{num:launch/launches}"). Of several alternatives, the first whose values are all known is used; a part without one
    is omitted. Empty values and 0 count as unknown.
    """

    name: str
    rank: str
    lead: Template
    parts: tuple[Template, ...] = ()
    advice: Template = ""
    next_step: Template = ""
    key: str = ""
    place: int = 5
    mark: Template = ("{confidence}", "{mark}", "measured")
    has_badge: bool = False
    term: str = ""
    help: str = ""

    def __post_init__(self) -> None:
        if self.rank not in (ranks := (SUMMARY, RESULT, *WARNINGS)):
            raise ValueError(f"kind '{self.name}': rank '{self.rank}' is none of {', '.join(ranks)}")

    def words(self, values: Mapping[str, object]) -> tuple[str, str]:
        """Return the statement, and what qualifies it: sentences, or in the summary phrases."""
        if not (lead := filled(self.lead, values)):
            raise ValueError(f"kind '{self.name}': no lead for {', '.join(values)}")
        between = "; " if self.rank == SUMMARY else " "
        return lead, between.join(filter(None, (filled(part, values) for part in self.parts)))


def filled(template: Template, values: Mapping[str, object]) -> str:
    """Return the first alternative of which all values are known, with these; empty without any."""
    for text in (template,) if isinstance(template, str) else template:
        names = [name for _, name, _, _ in WORDS.parse(text) if name]
        if all(_is_known(values.get(name)) for name in names):
            return WORDS.vformat(text, (), values)
    return ""


def _is_known(value: object) -> bool:
    if isinstance(value, Value):
        return True
    return len(value) > 0 if hasattr(value, "__len__") else not is_unknown(value) and value != 0


class _Words(string.Formatter):
    def format_field(self, value: object, form: str) -> str:
        if isinstance(value, list | tuple):
            return joined([format(item, form) for item in value])
        if isinstance(value, dict):
            return joined([f"{name} {format(item, form)}" for name, item in value.items()])
        if isinstance(value, Integral) and not isinstance(value, bool):  # also numpy's
            return plural(value, *form.split("/")) if form else f"{value:,}"
        return format(value, form)


WORDS = _Words()


def joined(names: list[str]) -> str:
    """Return names as one text; of more than MOST_NAMES the first, and how many more there are."""
    shown = names if len(names) <= MOST_NAMES else names[: MOST_NAMES - 1]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(shown) < len(names) else "")
