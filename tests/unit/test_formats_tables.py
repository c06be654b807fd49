"""Formats of tables that are declared as data: the examples of the documentation, and what a declaration can state."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.formats.text_tables import ITERATIONS, SIZE, ColumnLayout, TableLayout, table_format

ROOT = Path(__file__).resolve().parents[2]
SHAPE = Options(nodes=2, gpus_per_node=4)
TABLE = TableLayout(
    "x-text",
    "a table of x",
    title=r"x (?P<Verb>\w+)",
    operation="x_{Verb}",
    head="size +calls +time +rate",
    columns={
        "size": SIZE,
        "calls": ITERATIONS,
        "time": ColumnLayout("p50_s", form=r"[\d.]+[mu]s", printed="printed_time"),
        "rate": ColumnLayout("rate", "GB/s"),
    },
    end="done",
)
TEXT = "noise\nx Put\nsize calls time rate\n4KiB\n4 10 1.5us 2.00\n8 20 2ms 4.00\ndone\nx Get\nsize time\n0 9us\n1 1us\n2 2us\n"


def example() -> TableLayout:
    """Return the format that docs/formats.md declares in six lines."""
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    [code] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "table_format(" in block]
    assert code.strip().count("\n") <= 6
    names: dict = {}
    exec(code, names)
    return names["MY_LAT"]


def test_the_example_of_the_documentation_reads_its_table():
    kind, text = example(), "my_lat v2 broadcast\nbytes latency\n8 1.50\n16 1.75\n"
    assert kind.recognize(text)
    readings = kind.read(text, "f", SHAPE).readings
    assert [(r.parameters["operation"], r.parameters["message_bytes"], r.times_s) for r in readings] == [
        ("my_broadcast", 8, {"mean_s": 1.5e-6}),
        ("my_broadcast", 16, {"mean_s": 1.75e-6}),
    ]
    assert [(r.line, r.nodes, r.gpus_per_node) for r in readings] == [(3, 2, 4), (4, 2, 4)]


def test_runs_units_rates_and_names_of_a_declaration():
    source = table_format(replace(TABLE, row=r"\d+ ", head="size.*")).read(TEXT, "f", SHAPE)
    first, second, third, _ = source.readings
    assert (first.parameters["operation"], third.parameters["operation"], third.run) == ("x_put", "x_get", 1)
    assert first.times_s == {"p50_s": 1.5e-6, "window_step_s": 4 / 2e9}
    assert second.times_s == {"p50_s": 2e-3, "window_step_s": 8 / 4e9}
    assert first.printed == {"calls": 10, "printed_time": 1.5, "rate": 2}
    assert (second.num_iterations, third.num_iterations) == (20, None)
    assert [r.line for r in source.readings] == [5, 6, 11, 12]  # without the row of 0 bytes


@pytest.mark.parametrize(
    ("table", "text", "options", "message"),
    [
        (TABLE, TEXT, SHAPE, r"f:4: incomplete row '4KiB'; expected a complete row of size, calls, time, rate"),
        (TABLE, "x Put\n", SHAPE, "f:2: no line of column names"),
        (TABLE, "x Put\nsize time\n", SHAPE, "f:3: no rows"),
        (TABLE, "x Put\nsize time\n1 1us\n4 1us\n", SHAPE, "f:4: size 4 after 1; expected 2"),
        (
            TABLE,
            "x Put\nsize time\n1 1us\n",
            Options(),
            "f:1: the file does not state where its ranks ran; expected --nodes",
        ),
        (TABLE, "x Put\nsize time\n1 1.1.1us\n", SHAPE, "f:3: row '1 1.1.1us': unknown unit"),
        (TABLE, "x Put\nsize time\n٣ 1us\n", SHAPE, "f:3: incomplete row"),
        (replace(TABLE, needs_end=True), "x Put\nsize time\n1 1us\n", SHAPE, "f:4: the table has no end"),
        (
            replace(TABLE, needs_end=True),
            "x Put\nsize time\n1 1us\nX 2us\ndone\n",
            SHAPE,
            "f:4: incomplete row 'X 2us'",
        ),
    ],
)
def test_a_table_that_does_not_fit_its_declaration_is_refused(table, text, options, message):
    table = replace(table, head="size.*")
    with pytest.raises(UserError, match=message):
        table_format(table).read(text, "f", options)


def test_a_declared_number_of_ranks_is_noted_and_options_of_the_user_count():
    pair = table_format(replace(TABLE, num_ranks=2, head="size.*", doubles=False))
    text = "x Put\nsize time\n1 1us\n4 1us\n"
    assert [(r.nodes, r.gpus_per_node) for r in pair.read(text, "f", Options()).readings] == [(2, 1)] * 2
    assert len(pair.read(text, "f", Options()).notes) == 1
    source = pair.read(text, "f", Options(nodes=1))
    assert ({(r.nodes, r.gpus_per_node) for r in source.readings}, source.notes) == ({(1, 2)}, ())
