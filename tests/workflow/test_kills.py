"""kill -9 of each process of a local run, singly and in pairs: no rank is left over, and the next start completes."""

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time

import campaigns
import psutil
import pytest
from campaigns import (
    FAKE,
    QUICK_REPORT,
    SCRIPTS,
    fake_campaign,
    record_lines,
    slots,
    snakemake_line,
    wait_until,
    write_campaign,
)

import warm_start

pytestmark = [pytest.mark.slow, pytest.mark.system]

NUM_RECORDS = 12
RANKS_END_SECONDS = 10
END_SECONDS = 200
VICTIMS = ["run_campaign", "snakemake", "supervisor", "launcher"]
# start_ranks.py starts this for each rank; rank 0 plays the launch, others wait for its end.
RANK = f"""import os, runpy, sys, time
if os.environ["RANK"] == "0":
    runpy.run_path({str(FAKE)!r}, run_name="__main__")
while os.environ["RANK"] != "0" and os.path.exists({{folder!r}} + "/is_running"):
    time.sleep(0.05)
"""


@pytest.fixture
def campaign(tmp_path):
    """A campaign whose ranks are started by start_ranks.py and hang while the file `hang` is there."""
    (tmp_path / "is_running").touch()
    (tmp_path / "run_launch.py").write_text(RANK.format(folder=str(tmp_path)))
    python = tmp_path / "python"
    starter = (
        'if [ "$RANK" ]; then exec {0} "$@"; fi; starter=$1 ranks=$2; shift 3; exec {0} "$starter" "$ranks" {1} "$@"'
    )
    program = shlex.quote(str(tmp_path / "run_launch.py"))
    python.write_text("#!/bin/sh\n" + starter.format(shlex.quote(sys.executable), program) + "\n")
    python.chmod(0o755)
    env = {"FAKE_HANG_FILE": str(tmp_path / "hang"), "FAKE_CELL_SECONDS": "0.1"}
    data = fake_campaign(env=env, limits={"cell_seconds": 600, "launch_start_seconds": 30})
    data["stacks"]["host"]["python"] = str(python)
    data["shapes"] = [{"nodes": [1], "gpus_per_node": [2]}]
    data["repeats"] = 3
    yield write_campaign(tmp_path, data)
    for name in ("hang", "is_running"):
        (tmp_path / name).unlink(missing_ok=True)  # so that what did not stop ends too


def driver(campaign) -> list[str]:
    return [sys.executable, str(SCRIPTS / "run_campaign.py"), str(campaign), *snakemake_line(campaign)[3:]]


def start(folder, campaign) -> subprocess.Popen:
    """Start a run, and return it as soon as it hangs in a cell."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            driver(campaign), cwd=folder, env=os.environ | QUICK_REPORT, stdout=output, stderr=output
        )
    wait_until(lambda: len(record_lines(folder / "results" / "small")) >= 2, "two records", END_SECONDS)
    (folder / "hang").touch()
    time.sleep(0.5)
    return process


def tree_of(process) -> dict[str, list[psutil.Process]]:
    """Return the processes of a run by name."""
    found = {"run_campaign": [psutil.Process(process.pid)], "ranks": []}
    for child in psutil.Process(process.pid).children(recursive=True):
        words = " ".join(child.cmdline())
        if "start_ranks.py" in words:
            found["launcher"] = [child]
        elif "measure.py" in words:
            found["supervisor"] = [child]
        elif "run_launch.py" in words:
            found["ranks"].append(child)
        elif child.ppid() == process.pid:
            found["snakemake"] = [child]
    assert set(found) == {*VICTIMS, "ranks"}
    assert found["ranks"]
    return found


def complete(folder, campaign) -> None:
    """Run the campaign to its end, and check that every measurement was made once."""
    done = warm_start.run(driver(campaign), cwd=folder, env=os.environ | QUICK_REPORT)
    assert done.returncode == 0, done.stderr
    results = folder / "results" / "small"
    assert len(set(slots(results))) == NUM_RECORDS
    assert "not_measured" not in (results / "measurements.csv").read_text()


@pytest.mark.parametrize(
    "victims", [*itertools.combinations(VICTIMS, 1), *itertools.combinations(VICTIMS, 2)], ids="+".join
)
def test_after_kill_9_no_rank_is_left_and_the_next_start_completes(campaign, tmp_path, victims):
    process = start(tmp_path, campaign)
    tree = tree_of(process)
    for name in victims:
        tree[name][0].send_signal(signal.SIGKILL)
    is_driver_gone = {"run_campaign", "snakemake"} & set(victims)
    deadline = time.monotonic() + RANKS_END_SECONDS
    ended = tree["ranks"] + ([*tree["launcher"], *tree["supervisor"]] if is_driver_gone else [])
    wait_until(lambda: not any(map(is_alive, ended)), "end of the ranks", deadline - time.monotonic())
    if is_driver_gone:  # else the others go on, with other launches
        assert [pid for name in ("start_ranks.py", "run_launch.py") for pid in of_folder(name, tmp_path)] == []
    (tmp_path / "hang").unlink()
    status = process.wait(END_SECONDS)
    assert status in (-signal.SIGKILL, 128 + signal.SIGKILL) if is_driver_gone else (0, 3)
    wait_until(lambda: not any(map(is_alive, tree["snakemake"])), "end of Snakemake", END_SECONDS)
    complete(tmp_path, campaign)


def of_folder(name: str, folder) -> list[int]:
    return [pid for pid in campaigns.processes_naming(name) if str(folder) in " ".join(psutil.Process(pid).cmdline())]


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
