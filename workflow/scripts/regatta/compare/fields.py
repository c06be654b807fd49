"""Name the fields in which unmatched cells of two campaigns differ."""

import json
from collections import Counter, defaultdict

from regatta.campaign.matrix import canonical_json
from regatta.core.benchmarks import Axis, axes_of, benchmark_names, load_benchmark
from regatta.core.names import value_text
from regatta.core.text import natural, one_line, plural

PLACE = ("nodes", "gpus_per_node", "backend", "device")
MOST_VALUES = 3
UNKNOWN = "not stated"


def fields_of(spec: dict) -> dict[str, object]:
    """Return what cells are matched by, with each parameter as a field."""
    return {"benchmark": spec["benchmark"], **spec["parameters"], "stack": spec["stack"]["name"]} | {
        name: spec[name] for name in PLACE
    }


def single_differences(base: list[dict], test: list[dict]) -> list[str]:
    """Return a text for each pair of values that is the only difference between cells of both, most frequent first.

    Excluded are fields with a value in common, because the campaigns then cover different parts of one matrix, and
    those with which the name of a cell begins, such as the model.
    """
    values: dict[str, list[dict[tuple, object]]] = defaultdict(lambda: [{}, {}])
    for side, specs in enumerate((base, test)):
        for spec in specs:
            fields = fields_of(spec)
            texts = {name: canonical_json(value) for name, value in fields.items()}
            key = frozenset(texts.items())
            for name, value in fields.items():
                values[name][side][key - {(name, texts[name])}] = value
    pairs: Counter = Counter()
    for name, (of_base, of_test) in values.items():
        if {*map(canonical_json, of_base.values())} & {*map(canonical_json, of_test.values())}:
            continue
        for key in of_base.keys() & of_test.keys():
            benchmark = next((json.loads(value) for field, value in key if field == "benchmark"), "")
            if benchmark in benchmark_names() and f"{{{name}}}" not in load_benchmark(benchmark).subject:
                pairs[_text(name, [of_base[key]], [of_test[key]], benchmark)] += 1
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{text} ({plural(num, 'cell')})" for text, num in ordered]


def different_values(base: list[dict], test: list[dict]) -> list[str]:
    """Return a text for each field that has no value in common: the reasons why no cell is in both."""
    found = []
    sides = [[fields_of(spec) for spec in specs] for specs in (base, test)]
    benchmark = sides[0][0]["benchmark"] if sides[0] else ""
    for name in dict.fromkeys(name for side in sides for fields in side for name in fields):
        values = [{canonical_json(fields.get(name)): fields.get(name) for fields in side} for side in sides]
        if not values[0].keys() & values[1].keys():
            found.append(_text(name, *(list(side.values()) for side in values), benchmark))
    return found


def _text(name: str, base: list, test: list, benchmark: str) -> str:
    axis = axes_of(benchmark).get(name) if benchmark in benchmark_names() else None
    label = (axis.label if axis else name.replace("_", " ")).lower()
    return f"{label}: {_values_text(axis, base)} in base, {_values_text(axis, test)} in test"


def _values_text(axis: Axis | None, values: list) -> str:
    texts = {UNKNOWN if v is None else one_line(value_text(axis, v) if axis else v, 80) for v in values}
    listed = sorted(texts, key=natural)
    return ", ".join(listed[:MOST_VALUES]) + (" and more" if len(listed) > MOST_VALUES else "")
