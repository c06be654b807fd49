"""A kind words its findings: parts whose values are unknown are left out, and of alternatives the first known counts."""

import pytest

from regatta.kit.columns import Column
from regatta.kit.kinds import RESULT, SUMMARY, Kind, Value, filled

EFFICIENCY = Column("efficiency_ratio", "efficiency", shown_as="%", interval="efficiency_interval")
TIME = Column("time_s", "time", shown_as="ms", interval="interval")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value(EFFICIENCY, 0.37, 0.32, 0.39, "range", 2), "37 % (range 32–39 %, 2 launches)"),  # half 3.5
        (Value(EFFICIENCY, 0.87, 0.81, 0.93, "interval", 3), "87 % (95 % CI 81–93 %)"),  # half 6
        (Value(EFFICIENCY, 0.87, 0.867, 0.873, "interval", 3), "87.0 % (95 % CI 86.7–87.3 %)"),  # half 0.3
        (Value(TIME, 0.01234, num_launches=1), "12.3 ms (1 launch)"),
        (Value(TIME, 2.34e-5, 2.3e-5, 2.4e-5, "range", 2), "23.4 µs (range 23.0–24.0 µs, 2 launches)"),
    ],
)
def test_a_value_says_its_interval_and_how_many_launches_it_rests_on(value, text):
    assert f"{value}" == text
    number, _, inside = text.partition(" (")
    assert (f"{value:number}", f"{value:ends}") == (number, inside.removesuffix(")"))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("On {n} GPUs.", "On 4 GPUs."),
        ("{n:launch/launches}, {one:launch/launches}", "4 launches, 1 launch"),
        ("Within noise: {names}.", "Within noise: a, b and 2 more."),
        ("Losses: {losses} points.", "Losses: DDP 5, inter-node 9 points."),
        ("{none} lost", ""),
        ("{absent} lost", ""),
        ("{zero:launch/launches} lost", ""),
        ("{empty} lost", ""),
        (("{n} to {none}", "{n}", "uncertain"), "4"),
        (("{none}", "uncertain"), "uncertain"),
    ],
)
def test_a_template_is_left_out_if_a_value_is_unknown(template, text):
    values = {"n": 4, "one": 1, "names": ["a", "b", "c", "d"], "losses": {"DDP": 5, "inter-node": 9}}
    assert filled(template, values | {"none": None, "zero": 0, "empty": ()}) == text


def test_a_kind_has_a_statement_and_the_parts_that_are_known():
    kind = Kind(
        "scaling", SUMMARY, "Efficiency: {ratio:number}", ("lost in {where}", "names: {names}", "{num:launch/launches}")
    )
    assert kind.words({"ratio": Value(EFFICIENCY, 0.5, 0.4, 0.6, "interval", 3), "names": ["x"], "num": 0}) == (
        *("Efficiency: 50 %", "names: x"),
    )
    with pytest.raises(ValueError, match="kind 'scaling'"):
        kind.words({"names": ["x"]})
    with pytest.raises(ValueError, match="rank 'hint'"):
        Kind("a", "hint", "b")
    assert Kind("a", RESULT, "b").words({}) == ("b", "")


def test_a_hostile_name_is_no_template():
    assert filled("{name}", {"name": "{n} {0.__class__}"}) == "{n} {0.__class__}"
