"""The sign of a drift within launches decides what to do: a longer warm-up is of no use if times rise."""

import json

import pytest
from planted import Said, plant
from synthetic import analyse, laptop_campaign, write_lines


def said(folder, change_of) -> Said:
    """Return what is said on a laptop's 51 launches. change_of: from first to last iteration, by number of record."""
    plant(folder, laptop_campaign(), lambda *_: 0.01, noise=0.001)
    number = 0
    for path in sorted((folder / "launches").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            if line["kind"] == "record":
                change, number = change_of(number), number + 1
                times = [int(1e7 * (1 + change * i / 59 + 1e-4 * (-1) ** i)) for i in range(60)]
                line["samples_ns"] = [times for _ in line["samples_ns"]]
        write_lines(path, lines)
    return Said(analyse(folder), False)


@pytest.mark.parametrize(
    ("change_of", "counts", "directions"),
    [
        (lambda _: 0.12, (51, 0), ["rise"]),
        (lambda _: -0.12, (0, 51), ["warm up"]),
        (lambda number: 0.12 if number % 2 else -0.12, (25, 26), ["rise", "warm up"]),
        (lambda number: 0.12 if number else -0.2, (50, 1), ["rise"]),  # 1 falling: chance, though the largest
    ],
)
def test_the_next_step_follows_the_direction_of_the_drift(tmp_path, change_of, counts, directions):
    found = said(tmp_path / "r", change_of)
    [drift] = [warning for warning in found.warnings if warning.kind == "drift"]
    assert (drift.values["num_rising"], drift.values["num_falling"]) == counts
    assert [word for word in ("rise", "warm up") if word in drift.next_step] == directions
    assert ("`max_warmup_seconds`" in drift.next_step) == ("warm up" in directions)
    step = drift.next_step.replace("`", "")
    assert step in str(found.answer["lines"][-1]).replace("`", "")


def test_no_drift_has_no_step(tmp_path):
    assert not [warning for warning in said(tmp_path / "r", lambda _: 0.0).warnings if warning.kind == "drift"]
