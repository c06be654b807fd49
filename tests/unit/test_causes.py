"""Why a launch ended. The logs tests/golden/start_ranks_*.log are of two ranks that bench/start_ranks.py started:

raised            rank 1 raises, so that rank 0's barrier fails
killed            rank 1 gets SIGKILL while rank 0 waits in an all_reduce
import_error      both ranks lack a module
no_program        the program does not exist
store_unwritable  rank 0 cannot write the launch file and exits with 74

Those in tests/golden/srun/ are srun's (test_srun_log.py).
"""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from regatta.launchers import LAUNCHERS
from regatta.launchers.base import Launcher
from regatta.run import causes
from regatta.run.causes import Cause, blame_network, read_log_tail, read_rank_errors, signal_name

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
RAISED = {
    "rank": 1,
    "host": "n1",
    "status": "failed",
    "phase": "measure",
    "cause": "RuntimeError: bucket 3 of 7 is empty",
}
CLOSED = {
    "rank": 0,
    "host": "n1",
    "status": "failed",
    "phase": "measure",
    "cause": "RuntimeError: Connection closed by peer",
}


def golden(name: str) -> str:
    return (GOLDEN / f"start_ranks_{name}.log").read_text(encoding="utf-8")


def srun(name: str) -> str:
    return (GOLDEN / "srun" / f"{name}.log").read_text(encoding="utf-8")


def launcher_of(log: str) -> Launcher:
    return LAUNCHERS["slurm" if re.search(r"^(srun|slurmstepd): ", log, re.MULTILINE) else "none"]


def find_cause(errors: list[dict], log: str, exit_code: int, num_oom_kills: int) -> Cause:
    return causes.find_cause(launcher_of(log), errors, log, exit_code, num_oom_kills)


def store_write_error(log: str) -> str | None:
    return causes.store_write_error(launcher_of(log), log)


def last_line(log: str) -> str:
    launcher = launcher_of(log)
    return causes.last_line(log, launcher, launcher.ranks.read_log(log))


def rank_exit_codes(log: str) -> dict[int, int]:
    return launcher_of(log).ranks.read_log(log).rank_codes


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("raised", {0: -15, 1: 1}),
        ("killed", {0: -15, 1: -9}),
        ("import_error", {0: 1, 1: 1}),
        ("no_program", {0: -15, 1: 2}),
        ("store_unwritable", {0: 74, 1: -15}),
    ],
)
def test_exit_codes_are_those_that_the_launcher_prints(name, codes):
    assert rank_exit_codes(golden(name)) == codes


def test_a_log_in_which_no_rank_failed_has_no_exit_codes():
    log = "rank 0 ended with exit code 1\n"
    assert rank_exit_codes(log) == {}


def test_the_earliest_error_of_a_rank_is_the_cause(wording):
    cause = find_cause([RAISED, CLOSED], golden("raised"), 1, 0)
    wording(cause)


def test_status_and_phase_are_those_of_the_error():
    error = RAISED | {"status": "out_of_memory", "phase": "setup"}
    cause = find_cause([error], golden("raised"), 1, 0)
    assert (cause.status, cause.phase) == ("out_of_memory", "setup")


def test_a_killed_rank_comes_before_the_connection_errors_that_it_causes(wording):
    wording(find_cause([CLOSED], golden("killed"), 1, 0))


def test_a_rank_that_the_kernel_killed_for_memory_is_out_of_memory(wording):
    cause = find_cause([CLOSED], golden("killed"), 1, 1)
    wording(cause)


def test_another_signal_is_no_lack_of_memory_although_the_kernel_killed_something(wording):
    log = golden("killed").replace("code -9", "code -11")
    wording(find_cause([], log, 1, 1))


def test_ranks_that_the_launcher_itself_stopped_are_not_the_cause():
    cause = find_cause([], golden("raised"), 1, 5)
    assert "killed" not in cause.text


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("raised", "[rank1]: RuntimeError: bucket 3 of 7 is empty"),
        ("import_error", "ModuleNotFoundError: No module named 'no_such_module'"),
        (
            "no_program",
            "/opt/env/bin/python3: can't open file '/opt/regatta/nofile.py': [Errno 2] No such file or directory",
        ),
    ],
)
def test_without_error_files_the_cause_is_the_last_line_of_the_ranks_and_not_of_their_launcher(name, end, wording):
    cause = find_cause([], golden(name), 1, 0)
    assert (cause.status, cause.phase) == ("failed", "launch")
    wording(cause.text, end=end)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "(empty)"),
        ("\n====\n----\n", "(empty)"),
        ("one\ntwo\n===\n", "two"),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory\nsome later words\n",
            "torch.cuda.OutOfMemoryError: CUDA out of memory",
        ),
        ("ValueError: a\nKeyboardInterrupt\n", "KeyboardInterrupt"),
    ],
)
def test_the_last_line_is_one_that_says_something(log, line):
    assert last_line(log) == line


def test_a_launcher_that_a_signal_ended_is_said(wording):
    wording(find_cause([], "", -signal.SIGKILL, 0).text)


def test_what_rank_0_says_of_the_store_is_found(wording):
    wording(store_write_error(golden("store_unwritable")))


def test_another_end_is_no_matter_of_the_store():
    words = "regatta: cannot write the launch file x\n"  # as a text in the log of a launch that ended otherwise
    assert [store_write_error(words + golden(name)) for name in ("raised", "killed", "import_error")] == [None] * 3


def test_the_exit_code_alone_is_enough_to_blame_the_store(wording):
    log = golden("store_unwritable").split("\n", 1)[1]
    wording(store_write_error(log))


def test_error_files_are_read_earliest_first_and_torn_ones_left_out(tmp_path):
    for rank, time_ns in ((0, 30), (1, 10), (2, 20)):
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps({"rank": rank, "time_ns": time_ns}))
    (tmp_path / "rank-3.json").write_text('{"rank": 3, "ti')
    (tmp_path / ".rank-4.json.77").write_text('{"rank": 4, "time_ns": 1}')
    assert [error["rank"] for error in read_rank_errors(tmp_path)] == [1, 2, 0]
    assert read_rank_errors(tmp_path / "none") == []


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(b"first\n" + b"\xff" * 100_000 + b"\nlast\n")
    tail = read_log_tail(log)
    assert tail.endswith("\nlast\n")
    assert "first" not in tail
    assert len(tail) == causes.LOG_TAIL_BYTES
    assert read_log_tail(tmp_path / "none") == ""


def test_a_cause_is_one_clean_line_of_at_most_300_characters(wording):
    error = RAISED | {"cause": "a\n\tb \x1b[31m" + "x" * 300}
    text = find_cause([error], "", 1, 0).text
    wording(text)
    assert len(text) == 300
    assert text.endswith("x...")


def test_an_unknown_signal_has_a_number():
    assert (signal_name(9), signal_name(200)) == ("SIGKILL", "signal 200")


def test_the_kernel_s_count_of_kills_is_a_number_or_0(monkeypatch):
    texts = {"/proc/vmstat": "other_oom_kill 9\noom_kill 7\n"}
    monkeypatch.setattr(causes.Path, "read_text", lambda self, encoding: texts[str(self)])
    assert causes.kernel_oom_kills() == 7
    texts["/proc/vmstat"] = "nr_free_pages 1\n"
    assert causes.kernel_oom_kills() == 0

    def refuse(self, encoding):
        raise PermissionError

    monkeypatch.setattr(causes.Path, "read_text", refuse)
    assert causes.kernel_oom_kills() == 0


def test_an_abort_that_follows_an_error_of_another_rank_is_not_the_cause(wording):
    log = golden("killed").replace("code -9", "code -6")
    wording(find_cause([RAISED], log, 1, 0).text)
    wording(find_cause([], log, 1, 0).text)


# ---- Launches by srun


LOGS = sorted(str(path.relative_to(GOLDEN / "srun"))[:-4] for path in (GOLDEN / "srun").rglob("*.log"))


@pytest.mark.parametrize("name", LOGS)
def test_an_end_that_srun_saw_is_said_in_one_line(name, wording):
    cause = find_cause([], srun(name), 143, 0)
    wording(f"{cause.status}, phase {cause.phase}: {cause.text}")


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("no_mpi", "srun: error: Invalid MPI type 'pmix_v4', --mpi=list for acceptable types"),
        ("no_option", "srun: unrecognized option '--no-such-option'"),
        ("no_gpus", "srun: error: Unable to allocate resources: Requested node configuration is not available"),
        ("too_many_nodes", "srun: error: Only allocated 2 nodes asked for 3"),
    ],
)
def test_where_srun_starts_no_task_its_own_word_is_the_cause(name, end, wording):
    cause = find_cause([], srun(name), 1, 0)
    assert (cause.status, cause.phase) == ("failed", "launch")
    wording(cause.text, end=end)


def test_a_rank_that_slurm_killed_for_memory_is_out_of_memory(wording):
    log = srun("killed").replace("task 2: Killed", "task 2: Out Of Memory")
    wording(find_cause([], log, 143, 0))
    assert find_cause([], srun("killed"), 143, 1).status == "out_of_memory"  # as the kernel counts on this node


def test_an_error_of_a_rank_comes_before_the_exit_code_that_srun_saw(wording):
    cause = find_cause([RAISED, CLOSED], srun("exit_code"), 143, 0)
    wording(cause)


def test_a_node_that_failed_comes_before_the_connection_errors_that_it_causes():
    assert find_cause([CLOSED], srun("node_failure"), 143, 0).status == "node_failure"


def test_a_rank_killed_under_srun_comes_before_the_connection_errors_that_it_causes(wording):
    wording(find_cause([CLOSED], srun("killed"), 143, 0))


def test_an_abort_under_srun_that_follows_an_error_of_another_rank_is_not_the_cause():
    assert find_cause([RAISED], srun("aborted"), 143, 0).phase == "measure"


def test_the_store_is_blamed_under_srun_too(wording):
    words = "regatta: cannot write the launch file x: [Errno 28] No space left on device.\n"
    wording(store_write_error(words + srun("store_unwritable")))
    assert store_write_error(words + srun("exit_code")) is None


def test_a_rank_that_left_is_the_cause_and_not_those_that_srun_ended_for_it():
    log = """srun: First task exited 3s ago
srun: StepId=1006.0 tasks 0-1,3: running
srun: StepId=1006.0 task 2: exited
srun: Terminating StepId=1006.0
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
srun: error: n2: task 3: Killed
srun: error: n1: tasks 0-1: Killed
"""
    text = "rank 2 ended without an error while others were running; srun then killed the others (--wait)"
    assert find_cause([], log, 137, 0) == Cause("failed", None, text)


def test_the_nodes_that_srun_names_come_with_the_cause_unless_a_rank_says_what_happened():
    assert find_cause([], srun("exit_code"), 1, 0).hosts == {"n2"}
    assert find_cause([], srun("killed"), 1, 0).hosts == {"n2"}
    assert find_cause([], srun("node_unreachable"), 1, 0).hosts == {"n2"}
    assert find_cause([CLOSED], srun("exit_code"), 1, 0).hosts == set()  # its peers may be to blame
    assert find_cause([], golden("killed"), 1, 0).hosts == set()


@pytest.mark.parametrize(
    ("cause", "log", "is_network"),
    [
        (Cause("failed", "init", "rank 2 on n2: RuntimeError: Gloo connectFullMesh failed with [...]"), "", True),
        (Cause("failed", "launch", "rank 2 on n2: DistNetworkError: The client socket has timed out"), "", True),
        (Cause("failed", "init", "rank 0 on n1: DistBackendError: NCCL error, ncclRemoteError"), "", True),
        (Cause("failed", "measure", "rank 0 on n1: RuntimeError: Connection refused"), "", False),  # a peer has died
        (Cause("failed", "init", "rank 0 on n1: ValueError: batch_size = 0"), "", False),
        (Cause("timeout", None, "no record within 9 s"), 'File "peers.py", line 9 in begin_group', True),
        (Cause("timeout", None, "no record within 9 s"), 'File "peers.py", line 9 in barrier', False),
    ],
)
def test_nodes_that_cannot_reach_each_other_are_blamed_together(cause, log, is_network):
    found = blame_network(cause, log, ["n1", "n2"])
    assert found == cause if not is_network else (found.status, found.hosts) == ("node_failure", {"n1", "n2"})
    assert not is_network or ("n1, n2" in found.text and cause.text[:30] in found.text)
    assert blame_network(cause, log, ["n1"]) is cause


def test_a_program_that_is_absent_is_the_cause_itself(tmp_path):
    script = Path(causes.__file__).resolve().parents[2] / "bench" / "program.sh"
    words = ["sh", script, tmp_path, tmp_path, "-", "-", "stream", "--csv"]
    found = subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    cause = find_cause([], found.stderr, found.returncode, 0)
    assert (found.returncode, cause.status, cause.phase) == (127, "failed", "launch")
    assert (cause.text, found.stderr.splitlines()[0]) == ("program not found: stream", "PATH is /usr/bin:/bin")
