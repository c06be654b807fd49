import fcntl
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "workflow" / "scripts")]
# fake_launch.py is started by `env python3`: by the Python of these tests, not by the first one on the shell's PATH.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="session", autouse=True)
def _warm_scripts():
    from campaigns import QUICK_REPORT

    import warm_start

    with tempfile.TemporaryDirectory() as folder:  # the path of a socket has at most 107 characters
        path = Path(folder) / "socket"
        with warm_start.server(path):
            QUICK_REPORT["WARM_START_SOCKET"] = str(path)
            yield


@pytest.fixture(scope="session")
def measured_once(tmp_path_factory) -> Path:
    """A folder in which a campaign has run to its end, with a real report. One for all workers; tests get a copy."""
    from campaigns import REAL_REPORT, fake_campaign, snakemake, write_campaign

    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / "measured_once"
    with (shared / "measured_once.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed
            folder.mkdir()
            done = snakemake(folder, write_campaign(folder, fake_campaign()), env=REAL_REPORT)
            assert done.returncode == 0, done.stdout + done.stderr
            (folder / "complete").touch()
    return folder


@pytest.fixture
def finished(measured_once, tmp_path) -> tuple[Path, Path]:
    """A copy of the campaign that has run to its end: (campaign file, results folder)."""
    shutil.copytree(measured_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "campaign.yaml", tmp_path / "results" / "small"
