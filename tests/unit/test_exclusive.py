"""One measurement at a time on a machine or within a Slurm job: across processes, and freed when the holder dies."""

import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regatta import launchers
from regatta.core.files import Taken, hold_number
from regatta.launchers import LAUNCHERS, Allocation

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
HOLDER = """
import sys, time
from pathlib import Path
from regatta.launchers import LAUNCHERS, Allocation
LAUNCHERS["slurm"].queue.foreign_steps = lambda job: []
allocation = Allocation(LAUNCHERS["slurm"], sys.argv[1]) if sys.argv[1] else Allocation()
with allocation.exclusive_use(Path(sys.argv[2]), "batch-1"):
    print("held", flush=True)
    time.sleep(600)
"""


class GivenUp(Exception):
    pass


def give_up() -> None:
    raise GivenUp


def allocation(job: str | None) -> Allocation:
    return Allocation(LAUNCHERS["slurm"], job) if job else Allocation()


@pytest.fixture(autouse=True)
def outside_of_the_home_folder(tmp_path, monkeypatch):
    """Keep the lock of jobs in the test's folder, and let no Slurm of this machine answer."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SLURM_CLUSTER_NAME", raising=False)
    monkeypatch.setattr(LAUNCHERS["slurm"].queue, "foreign_steps", lambda job: [])


@pytest.fixture
def hold_elsewhere(tmp_path):
    """A function that has another process hold a job (None: this machine), and returns that process."""
    started = []

    def hold(job: str | None) -> subprocess.Popen:
        line = [sys.executable, "-c", HOLDER, job or "", str(tmp_path)]
        process = subprocess.Popen(line, cwd=SCRIPTS, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("job", [None, "1001"])
def test_a_second_batch_waits_and_says_so_until_the_first_is_gone(hold_elsewhere, tmp_path, capsys, job, wording):
    holder = hold_elsewhere(job)
    with pytest.raises(GivenUp), allocation(job).exclusive_use(tmp_path, "batch-2", give_up):
        pytest.fail("two batches at a time")
    user = pwd.getpwuid(os.getuid()).pw_name
    wording(capsys.readouterr().err, **({} if job else {"user": f"by {user}", "number": f"(process {holder.pid})"}))
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with allocation(job).exclusive_use(tmp_path, "batch-2", give_up):
        assert capsys.readouterr().err == ""


def test_batches_of_other_jobs_do_not_wait_for_each_other(hold_elsewhere, tmp_path):
    hold_elsewhere("1001")
    with allocation("1002").exclusive_use(tmp_path, "batch-2", give_up):
        pass


def test_a_machine_is_held_for_all_users_and_results_folders(hold_elsewhere, tmp_path, capsys):
    holder = hold_elsewhere(None)
    with pytest.raises(GivenUp), allocation(None).exclusive_use(tmp_path / "other", "batch-2", give_up):
        pytest.fail("two batches at a time")
    assert f"(process {holder.pid})" in capsys.readouterr().err
    program = (
        f"import sys; sys.path.insert(0, {str(SCRIPTS / 'bench')!r}); import run_batches; run_batches.lock_machine()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Refused" in done.stderr  # on a node without the driver
    holder.kill()
    holder.wait()
    subprocess.run([sys.executable, "-c", program], check=True)


def test_many_jobs_share_one_lock_file(tmp_path):
    with hold_number(tmp_path / "locks", 1, ""), hold_number(tmp_path / "locks", 2**31, ""):
        assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_a_number_that_is_taken_is_told_with_the_given_words(hold_elsewhere, tmp_path):
    hold_elsewhere("1001")
    with pytest.raises(Taken, match=r"^taken$"):
        hold_number(tmp_path / "cache/regatta/jobs-.lock", 1001, "taken")


def test_a_job_is_held_regardless_of_the_results_folder(hold_elsewhere, tmp_path):
    hold_elsewhere("1001")
    with pytest.raises(GivenUp), allocation("1001").exclusive_use(tmp_path / "other", "batch-2", give_up):
        pytest.fail("two batches at a time")


def test_a_job_is_held_beside_the_results_where_the_home_folder_takes_no_locks(hold_elsewhere, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    hold_elsewhere("1001")
    with pytest.raises(GivenUp), allocation("1001").exclusive_use(tmp_path, "batch-2", give_up):
        pytest.fail("two batches at a time")
    assert (tmp_path / f".jobs-{os.getuid()}.lock").exists()


def test_a_job_is_held_beside_the_results_where_there_is_no_home_folder(tmp_path, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with allocation("1001").exclusive_use(tmp_path, "batch-1"):
        assert (tmp_path / f".jobs-{os.getuid()}.lock").exists()


def test_steps_that_no_lock_knows_of_are_waited_for(monkeypatch, tmp_path, capsys):
    """As of a Regatta in another folder, or of a supervisor that was killed."""
    answers = iter([None, ["1001.3", "1001.4"], ["1001.3"], None, []])
    monkeypatch.setattr(LAUNCHERS["slurm"].queue, "foreign_steps", lambda job: next(answers))
    monkeypatch.setattr(launchers, "STEP_POLL_SECONDS", 0)
    with allocation("1001").exclusive_use(tmp_path, "batch-2"):
        assert next(answers, "all asked") == "all asked"
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "(1001.3, 1001.4)" in text
    assert "scancel 1001.3 1001.4" in text
