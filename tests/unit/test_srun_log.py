"""srun's messages about its tasks, two on each of two nodes. The logs in tests/golden/srun/ are from Slurm 26.05.5,
those in its folder 24.11 from Slurm 24.11.5.

srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --kill-on-bad-exit=1 --wait=60 (2 in one_left_early), and outside of a
job unless a node failed. Tasks 2 and 3 are on n2. In cancelled, scancel sent TERM to the step; in the two of a
node failure, n2 vanished while its tasks ran, and the job did not have --no-kill in node_failure_of_the_job.
In cancelled_by_scancel, scancel without a signal ended the step.
"""

import re
from pathlib import Path

import pytest

from regatta.launchers.base import TaskEnd
from regatta.launchers.slurm import LAUNCHER, LOG_LINES, blamed_hosts, first_task_end, node_problem, tasks_that_left

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "srun"


def golden(name: str) -> str:
    return (FOLDER / f"{name}.log").read_text(encoding="utf-8")


FIRST = {
    "exit_code": TaskEnd(2, "n2", 3, "Exited with exit code 3"),
    "killed": TaskEnd(2, "n2", -9, "Killed"),
    "segmentation_fault": TaskEnd(1, "n1", -11, "Segmentation fault"),
    "segmentation_fault_in_image": TaskEnd(2, "n2", -11, "Segmentation fault"),
    "aborted": TaskEnd(3, "n2", -6, "Aborted"),
    "bus_error": TaskEnd(3, "n2", -7, "Bus error"),
    "illegal_instruction": TaskEnd(3, "n2", -4, "Illegal instruction"),
    "floating_point": TaskEnd(3, "n2", -8, "Floating point exception"),
    "terminated": TaskEnd(3, "n2", -15, "Terminated"),
    "import_error": TaskEnd(0, "n1", 1, "Exited with exit code 1"),
    "no_program": TaskEnd(0, "n1", 2, "Exited with exit code 2"),
    "no_python_in_image": TaskEnd(2, "n2", 127, "Exited with exit code 127"),
    "no_image": TaskEnd(0, "n1", 255, "Exited with exit code 255"),
    "store_unwritable": TaskEnd(0, "n1", 74, "Exited with exit code 74"),
    "one_left_early": TaskEnd(1, "n1", None, "killed: still running 2s after another rank had ended"),
    "time_limit": TaskEnd(2, "n2", None, "canceled by Slurm DUE TO TIME LIMIT"),
    "cancelled": TaskEnd(2, "n2", None, "canceled by Slurm DUE to SIGNAL Terminated"),
    "no_mpi": None,
    "no_option": None,
    "no_gpus": None,
    "too_many_nodes": None,
    "node_unreachable": None,
    "24.11/exit_code": TaskEnd(2, "n2", 3, "Exited with exit code 3"),
    "24.11/one_left_early": TaskEnd(3, "n2", None, "killed: still running 2s after another rank had ended"),
    "24.11/time_limit": TaskEnd(0, "n1", None, "canceled by Slurm DUE TO TIME LIMIT"),
    "24.11/cancelled": TaskEnd(2, "n2", None, "canceled by Slurm"),
    "24.11/cancelled_by_scancel": TaskEnd(2, "n2", None, "canceled by Slurm"),
    "24.11/no_program": TaskEnd(2, "n2", 2, "Exited with exit code 2"),
}


@pytest.mark.parametrize(("name", "end"), FIRST.items(), ids=list(FIRST))
def test_the_task_that_ended_first_is_found_with_how_it_ended(name, end):
    assert first_task_end(golden(name)) == end


def test_every_log_is_looked_at():
    logs = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.log")}
    assert {name for name in logs if "node_failure" not in name} == set(FIRST)
    assert {name for name in logs if "node_failure" in name} == {name for name in PROBLEMS if "node_failure" in name}


PROBLEMS = {
    "node_failure": "srun: error: Node failure on n2",
    "node_failure_of_the_job": "srun: error: Node failure on n2",
    "node_unreachable": (
        "srun: error: Task launch for StepId=1010.3 failed on node n2: Communication connection failure"
    ),
    "24.11/node_failure": "srun: error: Node failure on n2",
    "24.11/node_failure_of_the_job": "srun: error: Node failure on n2",
}


@pytest.mark.parametrize("name", [*FIRST, *PROBLEMS])
def test_a_node_that_is_gone_is_told_from_everything_else(name):
    assert node_problem(golden(name)) == PROBLEMS.get(name)


def test_the_line_of_the_step_is_enough_to_know_that_a_node_failed(wording):
    log = golden("node_failure_of_the_job").replace("srun: error: Node failure on n2\n", "")
    wording(node_problem(log))


@pytest.mark.parametrize(
    "line",
    [
        "[rank1]: RuntimeError: Unable to resolve hostname n2",
        "nid000001: NCCL WARN Socket timed out on send/recv",
        "ValueError: Node failure",
        "3: Nodes n2 are not responding",
    ],
)
def test_what_a_rank_says_of_its_peers_is_no_word_of_slurm(line):
    assert node_problem(f"{line}\n{golden('exit_code')}") is None


def test_a_controller_that_does_not_answer_is_no_node_that_is_gone():
    away = "Unable to contact slurm controller (connect failure)"
    for line in (f"Unable to confirm allocation for job 1001: {away}", f"Unable to create step for job 1001: {away}"):
        assert node_problem(f"srun: error: {line}\n") is None
        assert blamed_hosts(f"srun: error: {line}\n") == set()
    gone = "srun: error: Unable to confirm allocation for job 1001: Invalid job id specified"
    assert node_problem(f"{gone}\n") == gone


@pytest.mark.parametrize("prefix", ["slurmstepd: ", "slurmstepd-n1: ", "[2026-11-21T12:21:15.010] "])
def test_a_step_s_own_words_are_known_under_each_of_its_names(prefix, wording):
    cancelled = f"{prefix}error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-21T12:21:15 DUE TO NODE FAILURE ***"
    assert node_problem(f"epoch 3\n{cancelled}\n") == cancelled
    limit = f"{prefix}error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-21T12:21:15 DUE TO TIME LIMIT ***\n"
    ended = first_task_end(limit + "srun: error: n1: task 0: Terminated\n")
    wording((ended.exit_code, ended.text))


@pytest.mark.parametrize("name", [name for name in FIRST if name.endswith(("exit_code", "cancelled", "time_limit"))])
def test_no_line_of_slurm_is_taken_for_a_line_of_a_rank(name):
    lines = [line for line in golden(name).splitlines() if not re.match(LOG_LINES, line)]
    assert [line for line in lines if not re.match(r"up \d|Terminated$", line)] == []


def test_what_follows_the_first_end_does_not_change_it():
    log = golden("killed")
    later = "srun: First task exited 60s ago\n[x] error: *** STEP 1.0 ON n1 CANCELLED AT y DUE TO TIME LIMIT ***\n"
    assert first_task_end(log + later) == first_task_end(log)


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [
        ("Exited with exit code 1", 1),
        ("Exited with exit code 128", 128),
        ("Exited with exit code 137", -9),  # as a shell, or an image's first process, says a signal
        ("Exited with exit code 139", -11),
        ("Exited with exit code 143", -15),
        ("Exited with exit code 200", 200),
        ("Exited with exit code 255", 255),
        ("Segmentation fault (core dumped)", -11),
        ("Aborted (core dumped)", -6),
        ("Out Of Memory", -9),  # with cgroups, which the cluster of these logs has not: src/common/proc_args.c
        ("User defined signal 1", None),
        ("something that nobody has seen yet", None),
    ],
)
def test_srun_s_words_are_an_exit_code_as_python_counts_it(text, exit_code):
    log = f"srun: error: nid001234: task 7: {text}\n"
    assert first_task_end(log) == TaskEnd(7, "nid001234", exit_code, text)


@pytest.mark.parametrize(("tasks", "rank"), [("5", 5), ("4-7", 4), ("1,3,5", 1), ("2-3,9", 2), ("0,4-6", 0)])
def test_the_first_of_several_tasks_speaks_for_them(tasks, rank):
    log = f"srun: error: n1: tasks {tasks}: Killed\n"
    assert first_task_end(log).rank == rank


def test_exit_codes_are_those_of_all_tasks():
    assert LAUNCHER.ranks.read_log(golden("store_unwritable")).exit_codes == {74}
    assert LAUNCHER.ranks.read_log(golden("illegal_instruction")).exit_codes == {-4, -15}
    assert LAUNCHER.ranks.read_log(golden("no_mpi")).exit_codes == LAUNCHER.ranks.read_log("").exit_codes == set()


def test_tasks_that_left_well_before_the_others_are_known_only_where_srun_ended_those_for_it():
    log = golden("one_left_early")
    assert tasks_that_left(log) == "0"
    assert tasks_that_left(log.replace("task 0: exited", "tasks 0,2-3: exited")) == "0,2-3"
    assert [name for name in FIRST if tasks_that_left(golden(name))] == ["one_left_early", "24.11/one_left_early"]


def test_a_rank_that_quotes_srun_within_a_line_is_not_taken_for_it():
    log = "srun: error: n1: task 0: Killed\n"
    assert first_task_end(log).rank == 0
    assert first_task_end(f"my log: {log}") is None


def test_these_logs_hold_what_srun_wrote():
    for path in FOLDER.glob("*.log"):
        assert re.search(r"^(srun|\[2026)", path.read_text(), re.MULTILINE), path.name


BLAMED = {
    "node_failure": {"n2"},
    "node_failure_of_the_job": {"n2"},
    "node_unreachable": {"n2"},
    "killed": {"n2"},  # tasks on n1 were ended for it
    "segmentation_fault": {"n1"},
    "import_error": {"n1", "n2"},
    "one_left_early": set(),
    "time_limit": set(),
    "cancelled": set(),
    "24.11/exit_code": {"n2"},
    "24.11/node_failure_of_the_job": {"n2"},
    "24.11/cancelled": set(),
    "24.11/cancelled_by_scancel": set(),
    "no_mpi": set(),
    "no_gpus": set(),
}


@pytest.mark.parametrize(("name", "hosts"), BLAMED.items(), ids=list(BLAMED))
def test_the_nodes_that_srun_names_are_blamed_and_no_others(name, hosts):
    assert blamed_hosts(golden(name)) == hosts


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("srun: error: Nodes n[1,3-4] are still not responding", {"n1", "n3", "n4"}),
        (
            "srun: error: Node failure on nid[000008-000010],nid000017",
            {"nid000008", "nid000009", "nid000010", "nid000017"},
        ),
        ('srun: error: Unable to resolve "n7": Unknown host', {"n7"}),
        ("srun: error: Task launch for StepId=7.0 failed on node n3: Socket timed out on send/recv operation", {"n3"}),
        ("srun: error: Unable to contact slurmd", set()),
        ("srun: error: Node failure on n[1-9999999999]", set()),
        ("srun: error: Node failure on n[3-", set()),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-21T12:21:15 DUE TO NODE FAILURE ***", set()),
    ],
)
def test_the_nodes_of_a_line_are_found_also_in_a_list_of_slurm_s(line, hosts):
    assert blamed_hosts(f"{line}\n") == hosts


@pytest.mark.parametrize(
    "line",
    ["[0] Unable to resolve host foo", "[12:00] my dataset: Socket timed out on send/recv", "Node failure on n1"],
)
def test_words_of_a_rank_are_no_node_failure(line):
    assert node_problem(line) is None
