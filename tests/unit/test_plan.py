"""The plan: which cells will run, the reasons, brief enough to read, and the cost."""

import json
import re
import shutil

import pytest
from campaign_files import SLURM, collectives, fake_sif, plan, program, small, write, write_launch

from regatta.campaign.load import load_campaign
from regatta.core.errors import UserError
from regatta.launchers.local import START_RANKS
from regatta.plan.plan import make_plan, nothing_to_retry, plan_json, totals, write_frozen
from regatta.plan.plan_page import SHOWN_ON_TERMINAL, plan_text, table, write_plan


def reasons(made) -> dict[int, tuple[str, str, tuple[int, ...]]]:
    """Return status, reason and repeats left of each cell, by its message size."""
    return {p.cell.spec["parameters"]["message_bytes"]: (p.status, p.reason, p.repeats) for p in made.cells}


def todo(made) -> list[int]:
    return [size for size, (status, _, _) in reasons(made).items() if status == "todo"]


def test_a_cell_never_measured_is_new(tmp_path):
    made = plan(tmp_path, collectives(4, 8))
    assert reasons(made) == {4: ("todo", "new", (0, 1, 2)), 8: ("todo", "new", (0, 1, 2))}


def test_after_a_run_nothing_is_left(tmp_path, play):
    play(collectives(4, 8))
    made = plan(tmp_path, collectives(4, 8))
    assert reasons(made) == {4: ("done", "3 ok", ()), 8: ("done", "3 ok", ())}
    assert made.batches == []
    assert "to run: nothing" in plan_text(made)


def test_another_axis_value_plans_the_new_cells_only_and_reverting_plans_none(tmp_path, play):
    play(collectives(4, 8))
    edited = plan(tmp_path, collectives(4, 16, 8))
    assert todo(edited) == [16]
    assert {
        cell.spec["parameters"]["message_bytes"] for b in edited.batches for la in b.launches for cell in la.cells
    } == {16}
    write_frozen(edited)
    assert plan(tmp_path, collectives(4, 8)).batches == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sampling": {"max_seconds": 2}}, "changed: sampling.max_seconds 10 -> 2"),
        ({"stacks": {"host": {"kind": "host", "python": "/bin/sh"}}}, 'changed: stack.python null -> "/bin/sh"'),
        ({"stacks": {"host": {"kind": "host", "env": {"A": 1}}}}, 'changed: stack.env {} -> {"A":"1"}'),
        ({"stacks": {"other": {"kind": "host"}}}, 'changed: stack.name "host" -> "other"'),
        ({"shapes": [{"nodes": [1], "gpus_per_node": [3]}]}, "changed: gpus_per_node 2 -> 3"),
    ],
)
def test_a_change_is_named_with_its_field_and_both_values(tmp_path, play, change, reason):
    play(collectives(4))
    assert reasons(plan(tmp_path, collectives(4, **change))) == {4: ("todo", reason, (0, 1, 2))}


def test_a_changed_value_of_a_variable_is_named(tmp_path, play, wording):
    stacks = [{"host": {"kind": "host", "env": {"A": "x", "B": "y"}}}, {"host": {"kind": "host", "env": {"A": "x"}}}]
    play(collectives(4, stacks=stacks[0]))
    wording(reasons(plan(tmp_path, collectives(4, stacks=stacks[1])))[4][1])


def test_an_axis_value_that_replaces_another_is_a_change(tmp_path, play, wording):
    play(collectives(4, 8))
    wording(reasons(plan(tmp_path, collectives(4, 16)))[16][1])


def test_two_changes_at_once_make_a_cell_new(tmp_path, play):
    play(collectives(4))
    made = plan(tmp_path, collectives(8, sampling={"max_seconds": 2}))
    assert reasons(made)[8][1] == "new"


def test_a_cell_that_comes_back_is_done_not_changed(tmp_path, play):
    play(collectives(4))
    play(collectives(8))
    assert reasons(plan(tmp_path, collectives(4))) == {4: ("done", "3 ok", ())}


def test_missing_launches_are_counted(tmp_path, play, wording):
    play(collectives(4, 8), {(8, 1): None})
    made = plan(tmp_path, collectives(4, 8))
    wording(reasons(made))


def test_more_repeats_plan_only_what_they_add_and_fewer_plan_nothing(tmp_path, play, wording):
    play(collectives(4))
    wording(reasons(plan(tmp_path, collectives(4, repeats=5))))
    assert reasons(plan(tmp_path, collectives(4, repeats=2))) == {4: ("done", "2 ok", ())}


def test_an_interrupted_batch_goes_on_with_what_it_lacks(tmp_path, play, wording):
    play(collectives(4, 8), {(4, 2): None, (8, 2): None}, finish=False)
    wording(reasons(plan(tmp_path, collectives(4, 8))))


@pytest.mark.parametrize("status", ["failed", "timeout", "out_of_memory", "placement", "skipped"])
def test_what_failed_is_done_until_it_is_asked_for(tmp_path, play, status, wording):
    play(collectives(4, 8), {(8, 0): status, (8, 2): status})
    wording(reasons(plan(tmp_path, collectives(4, 8))))
    retry = plan(tmp_path, collectives(4, 8), is_retry=True)
    wording(reasons(retry))
    assert [launch.repeat for batch in retry.batches for launch in batch.launches] == [0, 2]


def test_a_retry_measures_the_missing_too(tmp_path, play):
    play(collectives(4), {(4, 0): "failed", (4, 1): None})
    assert reasons(plan(tmp_path, collectives(4), is_retry=True))[4][2] == (0, 1)


def test_a_retry_with_nothing_bad_plans_nothing(tmp_path, play, wording):
    play(collectives(4))
    made = plan(tmp_path, collectives(4), is_retry=True)
    assert made.batches == []
    wording(nothing_to_retry(made))


def test_a_dead_node_says_nothing_about_a_cell_so_it_is_measured_again_and_the_reason_is_given(tmp_path, play, wording):
    dead = "node_failure"
    play(collectives(4, 8), {(4, 0): dead, (4, 1): dead, (4, 2): dead, (8, 0): dead})
    wording(reasons(plan(tmp_path, collectives(4, 8))))


def test_a_launch_file_taken_away_by_hand_is_planned_again_in_a_new_generation(tmp_path, play, wording):
    [batch] = play(collectives(4)).batches
    removed = f"{batch.id}-l001-a00.jsonl"
    (tmp_path / "results" / "small" / "launches" / removed).unlink()
    made = plan(tmp_path, collectives(4))
    wording(reasons(made), removed=removed)
    for path in (tmp_path / "results" / "small" / "launches").iterdir():
        path.unlink()
    made = plan(tmp_path, collectives(4))
    wording(reasons(made), first=removed.replace("l001", "l000"))
    assert [b.content["generation"] for b in made.batches] == [2]
    assert made.batches[0].id != batch.id


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cells": 3}', '{"cells": [{}]}', "\x00"])
def test_a_corrupt_frozen_campaign_only_costs_the_word_changed(tmp_path, content):
    (tmp_path / "results" / "small").mkdir(parents=True)
    (tmp_path / "results" / "small" / "campaign.0123456789ab.json").write_text(content)
    assert reasons(plan(tmp_path, collectives(4))) == {4: ("todo", "new", (0, 1, 2))}


def test_skipped_cells_keep_their_reasons(tmp_path, wording):
    made = plan(tmp_path, small(exclude=[{"when": {"nodes": 9}, "reason": "none"}]))
    assert totals(made)["skipped"] == 3
    text = plan_text(made)
    wording.lines(text, "a collective needs")
    wording.lines(text, "strategy none runs")
    wording.lines(text, "exclude[0] matches no")


def test_gpu_time_is_named_after_what_is_used(tmp_path):
    assert "process hours" in plan_text(plan(tmp_path, collectives(4)))
    made = plan(
        tmp_path, collectives(4, device="cuda", backend=["nccl"], exclude=[{"when": {"nodes": 1}, "reason": "x"}])
    )
    assert "process hours" not in plan_text(made)


def test_plan_txt_lists_all_cells_and_the_terminal_some(tmp_path, wording):
    made = plan(tmp_path, collectives(*[4 * i for i in range(1, 101)]))
    write_plan(made)
    lines = (made.results / "plan.txt").read_text().splitlines()
    assert sum(line.startswith("todo ") for line in lines) == 100
    shown = plan_text(made, SHOWN_ON_TERMINAL).splitlines()
    assert sum(line.startswith("todo ") for line in shown) == 60
    wording.lines(shown, "... and 40")


def test_cells_that_differ_only_in_batch_size_have_different_names_in_plan_txt(tmp_path):
    entry = {
        "benchmark": "train_step",
        "parameters": {"model": ["resnet18"], "batch_size": [8, 16], "strategy": ["ddp"]},
    }
    made = plan(tmp_path, small(shapes=[{"nodes": [1], "gpus_per_node": [2]}], benchmarks=[entry]))
    rows = [line for line in plan_text(made).splitlines() if line.startswith("todo ")]
    for cell in made.matrix.cells:
        rows = [row.replace(cell.id, "") for row in rows]
    assert len(rows) == len(made.cells) == len(set(rows)) >= 2
    assert {size for size in ("8", "16") if any(f" {size} " in f"{row} " for row in rows)} == {"8", "16"}


def test_what_is_to_do_is_listed_first(tmp_path, play):
    play(collectives(4, 8))
    text = plan_text(plan(tmp_path, collectives(4, 16, 8)))
    rows = [line.split()[0] for line in text.splitlines() if line.startswith(("todo", "done"))]
    assert rows == ["todo", "done", "done"]


def test_a_plan_writes_nothing_and_says_how_launches_start(tmp_path):
    python = tmp_path / "my env" / "python"
    python.parent.mkdir()
    program(python, "")
    made = plan(tmp_path, collectives(4, stacks={"host": {"kind": "host", "python": str(python)}}))
    assert f"'{python}' {START_RANKS} --nproc-per-node=2" in plan_text(made)
    assert not (tmp_path / "results").exists()


@pytest.fixture
def on_slurm(folder, monkeypatch):
    """Make plans look for clusters beside the campaign, where `tiny` is one with Slurm."""
    monkeypatch.setattr(
        "regatta.plan.plan.load_campaign", lambda path, **options: load_campaign(path, folder / "clusters", **options)
    )
    return lambda data: make_plan(write(folder, data, SLURM), folder / "results")


def test_on_slurm_a_plan_says_how_srun_starts_each_stack(folder, on_slurm, wording):
    stacks = {
        "host": {"kind": "host", "python": "/bin/sh", "srun": ["--mpi=pmi2"]},
        "image": {"kind": "contained", "image": "a.sif", "binds": ["$TMPDIR"]},
    }
    made = on_slurm(collectives(4, stacks=stacks, shapes=[{"nodes": [1, 2], "gpus_per_node": [1, 4]}]))
    shape = "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --job-name=regatta"
    shape += " --kill-on-bad-exit=1 --wait=60 --export=ALL"
    lines = plan_json(made)["stacks"]
    assert lines["host"].startswith(f"{shape} --mpi=pmi2 /bin/sh ")
    wording(lines["image"])
    assert f"{folder}/a.sif python3 " in lines["image"]
    requested = "jobs of 2x4 request: --time=7 --nodes=2 --ntasks-per-node=4 --cpus-per-task=1 --exclusive"
    assert requested in re.sub(r"--time=\d+", "--time=7", plan_text(made))


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda folder: fake_sif(folder / "a.sif", 2), "image_id"),
        (lambda folder: program(folder / "wrapper.sh", 'env A=1 "$@"\n'), "wrapper_sha256"),
    ],
)
def test_another_image_or_wrapper_under_the_same_path_is_a_change(folder, on_slurm, edit, field):
    data = collectives(4, stacks={"a": {"kind": "contained", "image": "a.sif", "wrapper": "wrapper.sh"}})
    before = on_slurm(data)
    write_frozen(before)
    edit(folder)
    made = on_slurm(data)
    old, new = (p.cells[0].cell.spec["stack"][field] for p in (before, made))
    assert made.cells[0].reason == f'changed: stack.{field} "{old}" -> "{new}"'


def test_an_edited_script_is_a_change_and_reverting_it_costs_nothing(tmp_path, play):
    program(tmp_path / "env.sh", "")
    program(tmp_path / "old.sh", "")
    data = collectives(4, stacks={"host": {"kind": "host", "python": f"{tmp_path}/env.sh"}})
    before = play(data)
    program(tmp_path / "env.sh", "module load other\n")
    made = plan(tmp_path, data)
    old, new = (p.cells[0].cell.spec["stack"]["scripts"]["python"] for p in (before, made))
    assert made.cells[0].reason == f'changed: stack.scripts {{"python":"{old}"}} -> {{"python":"{new}"}}'
    write_frozen(made)
    shutil.copy(tmp_path / "old.sh", tmp_path / "env.sh")
    assert [(p.status, p.repeats) for p in plan(tmp_path, data).cells] == [("done", ())]


def test_a_script_of_cells_that_were_planned_before_scripts_were_hashed_is_a_change(tmp_path, wording):
    program(tmp_path / "env.sh", "")
    made = plan(tmp_path, collectives(4, stacks={"host": {"kind": "host", "python": f"{tmp_path}/env.sh"}}))
    write_frozen(made)
    frozen = json.loads(made.frozen_campaign.read_text())
    digest = frozen["cells"][0]["spec"]["stack"].pop("scripts")["python"]
    frozen["cells"][0]["id"] = "collective-before"
    made.frozen_campaign.write_text(json.dumps(frozen))
    again = plan(tmp_path, collectives(4, stacks={"host": {"kind": "host", "python": f"{tmp_path}/env.sh"}}))
    wording(again.cells[0].reason, digest=digest)


AHEAD, BACK = "2036-11-21T03:00:00Z", "2020-01-01T00:00:00Z"


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("clock", [BACK, AHEAD, "2026-11-21T03:00:00Z"])
def test_a_retry_supersedes_a_failure_regardless_of_clocks(tmp_path, play, clock, finish, wording):
    data = collectives(4, repeats=1)
    play(data, {(4, 0): "failed"}, time_utc=AHEAD)
    wording(reasons(plan(tmp_path, data))[4][:2])
    [again] = play(data, is_retry=True, finish=finish, time_utc=clock).batches
    assert again.content["generation"] == 2
    assert reasons(plan(tmp_path, data, is_retry=True)) == {4: ("done", "1 ok", ())}


def test_a_retry_in_a_batch_of_other_cells_supersedes_too(tmp_path, play):
    """The same cell, regrouped: no batch of this content was finished before."""
    play(collectives(4, repeats=1), {(4, 0): "failed"}, time_utc=AHEAD)
    [again] = play(collectives(4, 8, repeats=1), {(4, 0): "timeout"}, is_retry=True, time_utc=BACK).batches
    assert [len(launch.cells) for launch in again.launches] == [2]
    assert "timed out" in reasons(plan(tmp_path, collectives(4, 8, repeats=1)))[4][1]
    play(collectives(4, repeats=1), is_retry=True, time_utc=BACK)
    assert reasons(plan(tmp_path, collectives(4, 8, repeats=1)))[4] == ("done", "1 ok", ())


def test_a_cell_that_a_node_failed_is_planned_in_the_same_batch_only_where_its_next_attempt_comes_later(tmp_path, play):
    [first] = play(collectives(4, repeats=1), {(4, 0): "node_failure"}, finish=False, time_utc=AHEAD).batches
    assert plan(tmp_path, collectives(4, repeats=1)).batches[0].id == first.id
    [other] = plan(tmp_path, collectives(4, 8, repeats=1)).batches
    assert other.content["generation"] == 2


def test_records_of_earlier_versions_are_in_the_order_of_their_times_and_before_those_of_this_one(tmp_path, play):
    data = collectives(4, repeats=1)
    made = plan(tmp_path, data)
    cell = made.cells[0].cell.id
    for batch, time_utc, status in (("b", "2026-01-01T00:00:00Z", "timeout"), ("a", "2026-01-02T00:00:00Z", "failed")):
        write_launch(made.results, f"{batch}-l000-a00", 0, [{"cell": cell, "status": status}], time_utc=time_utc)
    assert "failed" in reasons(plan(tmp_path, data))[4][1]
    [again] = play(data, is_retry=True, time_utc=BACK).batches
    assert again.content["generation"] == 1
    assert reasons(plan(tmp_path, data))[4] == ("done", "1 ok", ())


def test_a_time_after_now_is_a_note_of_the_plan(tmp_path, play, wording):
    play(collectives(4), time_utc=AHEAD)
    [note] = plan_json(plan(tmp_path, collectives(4)))["notes"][-1:]
    wording(note)
    wording.lines(plan_text(plan(tmp_path, collectives(4))), "a clock was")


def test_freezing_writes_each_batch_and_one_campaign(tmp_path):
    first = plan(tmp_path, collectives(4))
    write_frozen(first)
    made = plan(tmp_path, collectives(4, 8))
    write_frozen(made)
    results = tmp_path / "results" / "small"
    assert [path.name for path in results.glob("campaign.*")] == [made.frozen_campaign.name]
    frozen = json.loads(made.frozen_campaign.read_text())
    assert [cell["id"] for cell in frozen["cells"]] == [p.cell.id for p in made.cells]
    assert frozen["text"] == (tmp_path / "campaign.yaml").read_text()
    written = {path.parent.name: json.loads(path.read_text()) for path in results.glob("batches/*/batch.json")}
    assert set(written) == {first.batches[0].id, made.batches[0].id}
    assert written[made.batches[0].id] == made.batches[0].content


def test_the_frozen_campaign_is_named_by_its_content_not_by_what_was_measured(tmp_path, play):
    before = play(collectives(4)).frozen_campaign
    assert plan(tmp_path, collectives(4)).frozen_campaign == before
    assert plan(tmp_path, collectives(4, description="Other")).frozen_campaign != before


def test_results_are_the_same_wherever_they_lie(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here, there = plan(tmp_path / "here", collectives(4)), plan(tmp_path / "there", collectives(4))
    assert [b.id for b in here.batches] == [b.id for b in there.batches]
    assert here.frozen_campaign.name == there.frozen_campaign.name


def test_a_campaign_inherits_nothing_from_the_default_campaign(tmp_path):
    made = plan(tmp_path, collectives(4, name="mine"))
    data = made.campaign.data
    assert data["description"] == ""
    assert data["sampling"]["max_seconds"] == 10.0  # the default campaign has 1.5
    assert data["limits"]["cell_seconds"] == 300  # the default campaign has 60
    assert [entry["benchmark"] for entry in data["benchmarks"]] == ["collective"]
    assert made.results == tmp_path / "results" / "mine"


def test_a_campaign_without_a_cell_is_planned_as_nothing(tmp_path):
    made = plan(tmp_path, collectives(4, shapes=[{"nodes": [1], "gpus_per_node": [1]}]))
    assert (made.cells, made.batches, totals(made)["skipped"]) == ([], [], 1)
    assert "to run: nothing" in plan_text(made)


def test_a_campaign_that_cannot_be_used_is_refused_before_anything_is_written(tmp_path, wording):
    with wording.raises(UserError):
        plan(tmp_path, collectives(4, repeats=0))
    assert not (tmp_path / "results").exists()


def test_two_thousand_cells_are_planned(tmp_path):
    shapes = [{"nodes": [1], "gpus_per_node": list(range(2, 10))}]
    made = plan(tmp_path, collectives(*[4 * i for i in range(1, 251)], shapes=shapes, repeats=5))
    sums = totals(made)
    assert (sums["todo"], sums["measurements"]) == (2_000, 10_000)
    assert len({p.cell.id for p in made.cells}) == 2_000
    assert sum(len(la.cells) for batch in made.batches for la in batch.launches) == 10_000
    write_plan(made)
    assert (made.results / "plan.txt").read_text().count("\ntodo ") == 2_000


def test_a_table_is_aligned_with_numbers_to_the_right(wording):
    wording(table(["cell", "n"], [["a", 5], ["longer", 10]]))
