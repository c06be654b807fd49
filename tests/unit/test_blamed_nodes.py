"""Nodes that the cluster file excludes, and nodes that failed jobs: what reaches sbatch and srun, and what is shown."""

import json
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from campaign_files import SLURM, TEXT, collectives, load, message
from synthetic import CLUSTER, make_campaign, make_report, train_cell, write_results

import warm_start
from regatta.campaign.load import for_jobs
from regatta.core.errors import UserError
from regatta.core.schemas import fill_defaults, load_schema
from regatta.launchers import LAUNCHERS, Allocation, launch_argv, slurm_resources
from regatta.launchers.base import Geometry
from regatta.plan.plan import plan_campaign, plan_json
from regatta.plan.plan_page import plan_text
from regatta.run import supervise
from regatta.run.batch import BatchRun
from regatta.run.causes import Cause
from regatta.store.jobs import note_job
from regatta.store.launch_files import append_line
from regatta.store.nodes import FILE, blame_nodes, blame_text, blamed_nodes, clear_nodes

JOBS = LAUNCHERS["slurm"].jobs
STACK = {"kind": "host", "python": "/bin/sh", "runtime": "apptainer", "srun": []}


def cluster(**changes) -> dict:
    return fill_defaults({"name": "tiny", **SLURM, **changes}, load_schema("cluster"))


def excluded(site: dict, nodes: int, avoid=(), blamed=()) -> list[str]:
    return [word for word in JOBS.options(Geometry(site, nodes, 1, "cpu"), 1, [avoid, blamed]) if "exclude" in word]


# What the cluster file excludes.


def test_excluded_nodes_reach_sbatch():
    site = cluster(exclude_nodes=["n1", "n[3-4]"], num_nodes=8)
    assert excluded(site, 2) == ["--exclude=n1,n[3-4]"]
    assert excluded(cluster(), 2) == []


def test_excluded_nodes_reach_srun_unless_a_step_is_pinned():
    geometry = Geometry(cluster(exclude_nodes=["n[3-4]"]), 2, 1, "cpu")
    assert "--exclude=n[3-4]" in launch_argv(geometry, STACK, ["x.py"])
    assert "--exclude=n[3-4]" in LAUNCHERS["slurm"].ranks.once_per_node(geometry, 60)
    pinned = launch_argv(replace(geometry, hosts=["n1", "n2"]), STACK, ["x.py"])
    assert "--nodelist=n1,n2" in pinned
    assert not any("exclude" in word for word in pinned)


def test_a_cluster_without_the_key_keeps_the_ids_of_its_batches(tmp_path):
    stacks = {"a": {"kind": "host", "python": "/bin/sh"}}
    job_cluster = for_jobs(load(tmp_path, collectives(4096, stacks=stacks), SLURM).cluster)
    assert "exclude_nodes" not in job_cluster
    assert not any("exclude" in word for word in launch_argv(Geometry(job_cluster, 2, 1, "cpu"), STACK, ["x.py"]))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"exclude_nodes": ["n[1-"]}, "exclude_nodes[0] = 'n[1-'"),
        ({"exclude_nodes": ["n1 n2"]}, "exclude_nodes[0] = 'n1 n2'"),
        ({"exclude_nodes": "n1"}, "exclude_nodes = 'n1'"),
        ({"exclude_nodes": ["n1"], "sbatch": ["-x n2"]}, "sbatch[0] = '-x n2'"),
    ],
)
def test_errors_are_reported_with_file_and_line(folder, changes, place):
    said = message(folder, TEXT.replace("{kind: host}", "{kind: host, python: /bin/ls}"), SLURM | changes)
    assert said.startswith("clusters/tiny.yaml:")
    assert place in said


def test_an_allocation_that_lacks_nodes_without_the_excluded_ones_is_refused(monkeypatch):
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_JOB_CPUS_PER_NODE", raising=False)
    problem = LAUNCHERS["slurm"].checks.profile_problem
    assert problem(cluster(), True, [(2, 1)]) is None
    assert problem(cluster(exclude_nodes=["n[2-9]"]), True, [(1, 1)]) is None
    assert "without n2 (exclude_nodes)" in problem(cluster(exclude_nodes=["n[2-9]"]), True, [(2, 1)])


def test_an_excluded_node_that_slurm_does_not_know_is_named_before_anything_is_submitted(monkeypatch, wording):
    monkeypatch.setattr(slurm_resources, "answer", lambda line: "n1\nn2\nn3\n")
    assert slurm_resources.unknown_nodes(cluster(exclude_nodes=["n[1-3]"])) == []
    [problem] = slurm_resources.unknown_nodes(cluster(exclude_nodes=["n1,node9", "x"]))
    wording(problem)
    monkeypatch.setattr(slurm_resources, "answer", lambda line: None)  # a machine without Slurm
    assert slurm_resources.unknown_nodes(cluster(exclude_nodes=["n9"])) == []


# Nodes that failed jobs.


def test_blame_is_kept_until_it_is_cleared(tmp_path, wording):
    assert blamed_nodes(tmp_path) == {}
    blame_nodes(tmp_path, {"n2", "n1"}, "b1", "16", "a b")
    blame_nodes(tmp_path, ["n2"], "b2", None, "c")
    (tmp_path / FILE).open("a").write('{"kind": "blamed", "host": 3}\ntorn')
    append_line(tmp_path / FILE, {"kind": "blamed"})
    found = blamed_nodes(tmp_path)
    assert {host: [entry.cause for entry in evidence] for host, evidence in found.items()} == {
        "n1": ["a b"],
        "n2": ["a b", "c"],
    }
    wording(blame_text("n1", found["n1"]), date=found["n1"][0].time_utc[:10])
    clear_nodes(tmp_path, ["n2"])
    assert list(blamed_nodes(tmp_path)) == ["n1"]
    blame_nodes(tmp_path, ["n2"], "b3", "18", "d")
    assert [entry.cause for entry in blamed_nodes(tmp_path)["n2"]] == ["d"]


def test_a_damaged_file_gives_neither_a_traceback_nor_control_characters(tmp_path):
    blame_nodes(tmp_path, ["n1"], "b", "17", "lost")
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'[]\nnull\n\xff\n{"kind": "cleared", "host": ["n1"]}\n' + b"[" * 100_000 + b"\n")
        line = {"kind": "blamed", "host": "n2\x1b[2J", "source": "b", "job": "1\x1b[2J", "cause": "c", "time_utc": "x"}
        file.write(json.dumps(line).encode() + b'\n{"kind": "blamed", "ho')
    blame_nodes(tmp_path, ["n3"], "b", "18", "lost")
    found = blamed_nodes(tmp_path)
    assert list(found) == ["n1", "n2\x1b[2J", "n3"]
    assert not any("\x1b" in blame_text(host, evidence) for host, evidence in found.items())


def test_blamed_nodes_are_excluded_from_every_job_while_others_are_left():
    assert excluded(cluster(), 2, blamed=["n1"]) == ["--exclude=n1"]
    assert excluded(cluster(), 2, ["n2"], ["n1"]) == ["--exclude=n2,n1"]
    assert excluded(cluster(), 3, ["n2"], ["n1"]) == ["--exclude=n2"]  # of four: those of the batch come first
    assert excluded(cluster(exclude_nodes=["n4"]), 2, ["n2"], ["n1"]) == ["--exclude=n4,n2"]


def test_the_plan_shows_blamed_nodes_with_evidence_and_how_to_clear_them(tmp_path, wording):
    campaign = load(tmp_path, collectives(4096, stacks={"a": {"kind": "host", "python": "/bin/sh"}}), SLURM)
    blame_nodes(tmp_path / "results" / "small", ["n3"], "n02g02-x", "16", "a mount is missing")
    plan = plan_campaign(campaign, tmp_path / "results")
    [note] = [note for note in plan_json(plan)["notes"] if "n3" in note]
    wording(note, date=blamed_nodes(tmp_path / "results" / "small")["n3"][0].time_utc[:10])
    text = plan_text(plan)
    assert note in text
    assert "--exclude=n3" in text


def test_the_script_lists_and_clears(tmp_path, monkeypatch, capsys, wording):
    import clear_nodes as program

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["clear_nodes.py", str(tmp_path), *words])
        program.main()
        return capsys.readouterr().out

    blame_nodes(tmp_path, ["n1", "n2"], "b1", "16", "why")
    assert call().count("why") == 2
    date = blamed_nodes(tmp_path)["n1"][0].time_utc[:10]
    with wording.raises(UserError):
        call("n9")
    wording(call("n1"), date=date)
    assert list(blamed_nodes(tmp_path)) == ["n2"]
    call("--all")
    assert blamed_nodes(tmp_path) == {}


@pytest.mark.parametrize("words", [[], ["n1"], ["--all"]])
def test_nothing_but_a_results_folder_has_nodes_to_clear(tmp_path, words):
    (tmp_path / "other").mkdir()
    for place in ("other", "missing", "missing.yaml", "."):
        done = warm_start.script("clear_nodes.py", place, *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(place if place != "." else ".:")
        assert "Traceback" not in done.stderr
    assert list((tmp_path / "other").iterdir()) == []


def test_without_an_avoided_node_the_script_says_so(tmp_path, wording):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet50", 1, 2)]), CLUSTER)
    for words in ([], ["--all"]):
        done = warm_start.script("clear_nodes.py", folder, *words)
        wording((done.returncode, done.stdout))
    done = warm_start.script("clear_nodes.py", folder, "n1")
    assert (done.returncode, done.stdout) == (2, "")
    assert not (folder / FILE).exists()


def test_the_report_lists_blamed_nodes(tmp_path, wording):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet50", 1, 2)]), CLUSTER)
    page = make_report(folder).read_text(encoding="utf-8")
    assert "Avoided nodes" not in page
    assert "blamed_nodes" not in json.loads((folder / "problems.json").read_text())
    blame_nodes(folder, ["n3"], "n02g02-x", "16", "a <mount> is missing")
    page = make_report(folder).read_text(encoding="utf-8")
    section = re.search(r'<section id="failures".*?</section>', page, re.DOTALL)[0]
    [node] = json.loads((folder / "problems.json").read_text())["blamed_nodes"]
    wording(re.findall("n3 failed[^<]*", section), date=blamed_nodes(folder)["n3"][0].time_utc[:10])
    assert node["host"] == "n3"


def a_run(folder, monkeypatch) -> BatchRun:
    monkeypatch.setattr(LAUNCHERS["slurm"].queue, "hosts", lambda job: ["n1", "n2", "n3"])
    batch = folder / "batches" / "b1"
    batch.mkdir(parents=True)
    return BatchRun(
        batch,
        SimpleNamespace(cluster=cluster(), nodes=2, gpus_per_node=1, device="cpu"),
        {},
        Allocation(LAUNCHERS["slurm"], "16"),
    )


def test_a_node_that_failed_is_blamed_if_srun_names_it(tmp_path, monkeypatch):
    run = a_run(tmp_path, monkeypatch)
    with pytest.raises(UserError):
        supervise._leave_nodes(run, Cause("node_failure", None, "Node failure on n2", frozenset({"n2"})))
    assert list(blamed_nodes(tmp_path)) == ["n2"]
    with pytest.raises(UserError):
        supervise._leave_nodes(run, Cause("node_failure", None, "Socket timed out", frozenset()))
    assert list(blamed_nodes(tmp_path)) == ["n2"]  # the next job of the batch avoids all three; the campaign does not


def test_nodes_of_a_job_without_a_start_are_blamed_once_the_batch_has_started_on_others(tmp_path, monkeypatch):
    run = a_run(tmp_path, monkeypatch)
    note_job(run.folder, "no_start", "15", ["n2"], "libfake.so is missing")
    supervise._blame_nodes_without_start(run)
    assert blamed_nodes(tmp_path) == {}  # the stack may be at fault
    run.has_come_up = True
    supervise._blame_nodes_without_start(run)
    assert [entry.job for entry in blamed_nodes(tmp_path)["n2"]] == ["15"]
    assert run.geometry().hosts == ["n1", "n3"]
