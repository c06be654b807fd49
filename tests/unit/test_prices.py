"""The cost of a plan: from the campaign's limits, or from earlier durations of its cells."""

import pytest
from campaign_files import SLURM, collectives, load, plan, write_launch

from regatta.model.frozen import names_by_id
from regatta.plan.plan import plan_campaign, plan_json, totals, write_frozen
from regatta.plan.plan_page import job_requests, plan_text, workload_hours


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
        "outputs_read_again": 0,
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


def programs(*settings: int, limit: float = 1800, text: str = "ms", **changes) -> dict:
    """A campaign of a program with a cell for each setting, on 1 node and 2 ranks."""
    read = {"time": {"match": r"(\d+)", "unit": text, "better": "smaller"}}
    entry = {"benchmark": "program", "name": "prog", "command": ["prog", "{n}"], "parameters": {"n": [*settings]}}
    return collectives(4) | {"benchmarks": [entry | {"read": read, "cell_seconds": limit}]} | changes


def sources(made) -> dict[str, tuple[float, str]]:
    cells = plan_json(made)["cells"]
    names = [cell.parameters["settings"] for cell in made.matrix.cells]
    return {name: (cell["seconds_per_launch"], cell["estimate_from"]) for name, cell in zip(names, cells, strict=True)}


def test_a_program_without_history_costs_a_stated_guess_and_its_deadline_is_the_bound(tmp_path, wording):
    # A launch: 10 s to start and a guess of 60 s; three of them: 210 s. At most: 3 x (300 + 300 + 1800) s.
    made = plan(tmp_path, programs(1))
    sums = totals(made)
    assert (sums["minutes"], sums["at_most_minutes"], sums["estimate_from"]) == (3.5, 120, "guess")
    assert sources(made) == {"n 1": (60, "guess")}
    wording([*plan_text(made).splitlines()[2:3], *(note for note in plan_json(made)["notes"] if "prog" in note)])
    assert sources(plan(tmp_path, programs(1, limit=20))) == {"n 1": (20, "guess")}


def test_the_guess_is_one_for_all_quantities_of_a_run(tmp_path):
    data = programs(1)
    data["benchmarks"][0]["read"] |= {"other": data["benchmarks"][0]["read"]["time"]}
    assert totals(plan(tmp_path, data))["minutes"] == 3.5


def test_another_version_of_a_program_costs_what_the_earlier_took_and_a_new_setting_what_others_took(tmp_path, play):
    play(programs(1, 2))  # 4 s each, and 3 s beside them
    made = plan(tmp_path, programs(1, 2, 3, text="us"))  # as a rebuilt program, all cells have new ids
    assert sources(made) == dict.fromkeys(("n 1", "n 2", "n 3"), (4, "history"))
    sums = totals(made)
    assert (sums["minutes"], sums["estimate_from"]) == (round(9 * 7 / 60, 2), "history")


def test_earlier_versions_are_priced_by_the_same_setting(tmp_path):
    made = plan(tmp_path, programs(1, 2, limit=60))
    write_frozen(made)
    (batch,) = made.batches
    for number, (cell, seconds) in enumerate(zip(made.matrix.cells, (5, 50), strict=True)):
        record = {"cell": cell.id, "status": "ok", "elapsed_ns": seconds * 10**9}
        write_launch(made.results, f"{batch.id}-l{number:03d}-a00", 0, [record])
    assert sources(plan(tmp_path, programs(1, 2, 3, text="us"))) == {
        "n 1": (5, "history"),
        "n 2": (50, "history"),
        "n 3": (27.5, "history"),
    }


def test_failed_launches_of_a_program_say_nothing_about_the_next_version(tmp_path):
    made = plan(tmp_path, programs(1))
    write_frozen(made)
    record = {"cell": made.matrix.cells[0].id, "status": "failed", "elapsed_ns": 10**8}
    write_launch(made.results, f"{made.batches[0].id}-l000-a00", 0, [record])
    assert sources(plan(tmp_path, programs(1, text="us"))) == {"n 1": (60, "guess")}


def on_slurm(folder, data: dict, **cluster):
    """Plan on a cluster of 4 nodes with 4 GPUs each."""
    stacks = {"host": {"kind": "host", "python": "/bin/sh"}}
    campaign = load(folder, data | {"stacks": stacks}, SLURM | {"max_walltime_minutes": 600} | cluster)
    return plan_campaign(campaign, folder / "results")


def test_jobs_request_time_for_the_deadline_not_for_the_guess(tmp_path, monkeypatch):
    """Three launches of 10 + 1800 s are 90.5 min: too long for one batch. Two are 60.3 min, of one 30.2 x 1.5 + 5."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    made = on_slurm(tmp_path, programs(1))
    assert [len(batch.launches) for batch in made.batches] == [1, 1, 1]
    assert [round(price.minutes, 2) for price in made.batch_prices] == [1.17, 1.17, 1.17]
    (request,) = job_requests(made).values()
    assert "--time=51" in request.split()


GPU = {"device": "cuda", "backend": ["nccl"]}


@pytest.mark.parametrize(("cluster", "num_gpus"), [({}, 4), ({"exclusive": False}, 2)])
def test_gpu_hours_count_whole_nodes_if_jobs_are_exclusive_and_the_preflight(tmp_path, monkeypatch, cluster, num_gpus):
    """A preflight of 10 s and three launches of 28 s on a node, of which the shape uses two of four GPUs."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    made = on_slurm(tmp_path, collectives(4, **GPU), **cluster)
    sums = totals(made)
    assert (sums["minutes"], sums["gpu_hours"]) == (round(94 / 60, 2), round(94 * num_gpus / 3600, 4))
    assert sums["at_most_minutes"] == 3 * (300 + 600) / 60 + 6
    (preflight,) = plan_json(made)["preflights"]
    assert preflight["gpu_hours"] == pytest.approx(10 * num_gpus / 3600)
    [workload] = workload_hours(made.cells, names_by_id([cell.cell for cell in made.cells]))
    assert workload["gpu_hours"] == pytest.approx(3 * 18 * num_gpus / 3600)


def test_process_hours_of_a_campaign_on_cpus_are_those_of_its_ranks(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert totals(on_slurm(tmp_path, collectives(4)))["gpu_hours"] == round(94 * 2 / 3600, 4)
