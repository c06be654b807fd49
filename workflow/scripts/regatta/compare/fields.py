"""Name the fields in which unmatched cells of two campaigns differ."""

from collections import Counter
from collections.abc import Iterable

from regatta.campaign.expansion import canonical_json
from regatta.core.benchmarks import axes_of, load_benchmark
from regatta.core.names import value_text
from regatta.core.text import one_line, plural
from regatta.model.frozen import Cell
from regatta.tables.pairs import matched_fields

MOST_TEXT = 80  # characters of a value
UNKNOWN = "not stated"


def single_differences(base: Iterable[Cell], test: Iterable[Cell]) -> list[str]:
    """Return a text for each pair of values that is the only difference between cells of both, most frequent first.

    Excluded are fields with a value in common, because the campaigns then cover different parts of one matrix, and
    those with which the name of a cell begins, such as the model.
    """
    pairs: Counter = Counter()
    sides = [list(map(matched_fields, cells)) for cells in (base, test)]
    for name in dict.fromkeys(name for fields in sides[0] for name in fields):
        known = [[fields for fields in side if name in fields] for side in sides]
        of_base, of_test = ({canonical_json(fields[name]) for fields in side} for side in known)
        if of_base & of_test:
            continue
        by_rest = [{canonical_json(fields | {name: None}): fields for fields in side} for side in known]
        for key in by_rest[0].keys() & by_rest[1].keys():
            fields, other = (side[key] for side in by_rest)
            benchmark = fields["benchmark"]
            if f"{{{name}}}" not in load_benchmark(benchmark).subject:
                pairs[_text(name, fields[name], other[name], benchmark)] += 1
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{text} ({plural(num, 'cell')})" for text, num in ordered]


def _text(name: str, base: object, test: object, benchmark: str) -> str:
    axis = axes_of(benchmark).get(name)
    label = (axis.label if axis else name.replace("_", " ")).lower()
    of_base, of_test = (
        UNKNOWN if value is None else one_line(value_text(axis, value) if axis else value, MOST_TEXT)
        for value in (base, test)
    )
    return f"{label}: {of_base} in base, {of_test} in test"
