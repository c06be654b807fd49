"""The cost of a plan: from the campaign's limits, or from earlier durations of its cells."""

from campaign_files import collectives, plan

from regatta.plan.plan import plan_json, totals
from regatta.plan.plan_page import plan_text


def test_a_price_without_history_is_from_the_limits(tmp_path):
    # A launch: 10 s to start, 2 cells of 5 s warm-up and 1.3 x 10 s: 46 s; three make 138 s on 2 processes.
    # At most: 300 s to start, and for each cell 300 s and another start, three times: 3 x (300 + 2 x 600) = 4500 s.
    sums = totals(plan(tmp_path, collectives(4, 8)))
    assert sums == {
        "todo": 2,
        "done": 0,
        "skipped": 0,
        "batches": 1,
        "launches": 3,
        "measurements": 6,
        "minutes": 2.3,
        "at_most_minutes": 75.0,
        "gpu_hours": 0.0767,
        "estimate_from": "limits",
    }


def test_a_price_with_history_is_its_median(tmp_path, play):
    # The launches played: cells of 4 s, 1 s beside them, and 2 s until ready. Two launches of 2 cells are left: 22 s.
    play(collectives(4, 8))
    made = plan(tmp_path, collectives(4, 8, repeats=5))
    sums = totals(made)
    assert (sums["launches"], sums["minutes"], sums["estimate_from"]) == (2, 0.37, "history")
    assert "44 process seconds" in plan_text(made)


def test_a_price_of_old_and_new_cells_says_so(tmp_path, play):
    play(collectives(4))
    made = plan(tmp_path, collectives(4, 8, repeats=5))
    sums = totals(made)
    assert sums["estimate_from"] == "history and limits"
    # repeats 0, 1, 2 measure cell 8 alone: 3 s + 18 s each; repeats 3 and 4 both: 25 s each. 113 s.
    assert sums["minutes"] == 1.88
    assert {c["id"].split("-")[2]: c["estimate_from"] for c in plan_json(made)["cells"]} == {
        "4": "history",
        "8": "limits",
    }


def test_an_unknown_cell_never_costs_more_than_its_limit(tmp_path):
    made = plan(tmp_path, collectives(4, limits={"cell_seconds": 2}, repeats=1))
    assert totals(made)["minutes"] == 0.2  # 10 s + 2 s


def trainings(**changes) -> dict:
    """A campaign of one training of two epochs, beside a collective."""
    run = {"benchmark": "train_run", "cell_seconds": 900, "parameters": {"epochs": [2], "strategy": ["own"]}}
    return collectives(4) | {"benchmarks": [run, *collectives(4)["benchmarks"]]} | changes


def test_a_training_without_history_costs_its_limit_since_no_sampling_limit_ends_it(tmp_path):
    # A launch: 10 s to start, 18 s for the collective, 900 s for the training; three of them.
    made = plan(tmp_path, trainings())
    saved = plan_json(made)
    assert saved["totals"]["minutes"] == round(3 * 928 / 60, 2)
    assert {c["id"].split("-")[0]: (c["seconds_per_launch"], c["estimate_from"]) for c in saved["cells"]} == {
        "train_run": (900, "cell_seconds"),
        "collective": (18, "limits"),
    }
    [note] = [note for note in saved["notes"] if "cell_seconds" in note]
    assert note.startswith("1 cell of")
    assert f"note: {note}" in plan_text(made)


def test_a_training_with_history_costs_what_it_took(tmp_path, play):
    play(trainings())
    saved = plan_json(plan(tmp_path, trainings(repeats=5)))
    assert {c["seconds_per_launch"] for c in saved["cells"]} == {4}
    assert {c["estimate_from"] for c in saved["cells"]} == {"history"}
    assert not any("cell_seconds" in note for note in saved["notes"])
