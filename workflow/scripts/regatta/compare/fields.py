"""Name the fields in which unmatched cells of two campaigns differ."""

import json
from collections import Counter, defaultdict

from regatta.campaign.matrix import canonical_json
from regatta.core.benchmarks import axes_of, benchmark_names, load_benchmark
from regatta.core.names import value_text
from regatta.core.text import one_line, plural

PLACE = ("nodes", "gpus_per_node", "backend", "device")
MOST_TEXT = 80  # characters of a value
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
                pairs[_text(name, of_base[key], of_test[key], benchmark)] += 1
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
