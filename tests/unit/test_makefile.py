"""The Makefile and requirements/install.sh, in a copy of the checkout whose only requirement is a package made here."""

import base64
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    "Makefile",
    "requirements/install.sh",
    "workflow/scripts/check_environment.py",
    "workflow/scripts/run_campaign.py",
]
FAKE_SNAKEMAKE = """import pathlib, sys
print("snakemake", *sys.argv[1:], sep="|")
if "--make-report" in sys.argv:
    report = pathlib.Path("results/some name/report.html")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("")
sys.exit(3)
"""
FAKE_CAMPAIGN = """class load_campaign:
    def __init__(self, path):
        self.name = "some name"
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def write_wheel(folder: Path, name: str, files: dict[str, str]) -> str:
    """Write a wheel, version 1.0, and return its line for a lock file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{file},sha256={digest},{len(text)}")
        wheel.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]) + "\n")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Checkout:
    """A copy of what `make` needs, in a folder whose name holds a space; pip sees only the wheels that are put there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.venv = folder, folder / ".venv"
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "config").mkdir()
        (folder / "config" / "config.yaml").write_text("name: some name\n")
        library = folder / "workflow" / "scripts" / "regatta"
        (library / "campaign").mkdir(parents=True)
        (library / "errors.py").write_text("class UserError(Exception): pass\n")
        (library / "campaign" / "load.py").write_text(FAKE_CAMPAIGN)
        lines = write_wheel(folder / "wheels", "snakemake", {"snakemake.py": FAKE_SNAKEMAKE})
        for name in ("driver", "rank", "dev"):
            (folder / "requirements" / f"{name}.in").write_text("snakemake>=1.0\n")
            (folder / "requirements" / f"{name}.lock").write_text(lines)

    def make(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "LANG") if key in os.environ}
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "wheels", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
        command = ["make", *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, env=kept | pip | environment, capture_output=True, text=True)

    def add_requirement(self, name: str) -> None:
        with (self.folder / "requirements" / "driver.lock").open("a") as lock:
            lock.write(write_wheel(self.folder / "wheels", name, {f"{name}.py": ""}))


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Checkout:
    """A checkout with its environment made, which costs seconds: each test that shares it leaves it in order."""
    checkout = Checkout(tmp_path_factory.mktemp("made") / "a checkout")
    done = checkout.make("env-driver", f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stderr
    assert "Making the environment .venv with Python" in done.stderr
    assert "Installing Snakemake" in done.stderr
    return checkout


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_make_alone_lists_the_targets(checkout):
    done = checkout.make()
    assert done.returncode == 0
    for target in ("campaign", "plan", "gate", "report", "test", "lint", "format", "bench", "env-driver", "clean-env"):
        assert f"  {target} " in done.stdout
    assert not checkout.venv.exists()


def test_a_second_call_sets_nothing_up(made):
    done = made.make("env-driver")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_fresh_checkout_of_the_same_lock_files_is_no_reason_to_install(made):
    os.utime(made.folder / "requirements" / "driver.lock")
    assert made.make("env-driver").stderr == ""


def test_campaign_keeps_the_exit_status_and_ends_with_the_report(made):
    without = made.make("campaign", "PROFILE=profiles/slurm")
    assert without.returncode == 2  # what make itself returns when a recipe fails
    assert "Error 3" in without.stderr
    assert "Report" not in without.stdout
    done = made.make("campaign", "PROFILE=profiles/slurm", "ARGS=--make-report")
    assert done.stdout.splitlines() == [
        "snakemake|--profile|profiles/slurm|--make-report",
        "Report: results/some name/report.html",
    ]
    assert "Error 3" in done.stderr
    shutil.rmtree(made.folder / "results")


def test_another_campaign_file_is_handed_on_whatever_its_name(made):
    done = made.make("campaign", "PROFILE=profiles/slurm", "CONFIG=my config/config.yaml")
    assert done.stdout == "snakemake|--configfile|my config/config.yaml|--profile|profiles/slurm\n"
    assert made.make("plan").stdout == "snakemake|plan|--profile|profiles/local\n"
    assert made.make("gate", "PROFILE=profiles/slurm").stdout == "snakemake|gate|--profile|profiles/slurm\n"


def test_folders_of_the_users_python_are_not_seen(made, tmp_path):
    (tmp_path / "snakemake.py").write_text("print('the wrong one')\n")
    assert "wrong" not in made.make("plan", PYTHONPATH=str(tmp_path)).stdout


def test_another_python_for_an_environment_that_exists_is_refused(made, tmp_path):
    other = script(tmp_path / "python", "echo 3.99")
    done = made.make("env-driver", f"PYTHON={other}")
    assert done.returncode == 2
    assert f"and PYTHON={other} is 3.99. Remove it (make clean-env), or have two: make VENV=.venv-3.99" in done.stderr


def test_a_changed_lock_file_is_installed(made):
    made.add_requirement("newcomer")
    done = made.make("env-driver")
    assert "Installing Snakemake" in done.stderr
    assert "Making the environment" not in done.stderr
    assert list(made.venv.glob("lib/*/site-packages/newcomer.py"))
    assert made.make("env-driver").stderr == ""


@pytest.mark.slow
def test_an_interrupted_installation_starts_again(made):
    (made.venv / ".regatta" / "installing").touch()  # what kill -9 leaves behind
    left_over = made.venv / "lib" / "half a package"
    left_over.touch()
    done = made.make("env-driver")
    assert done.returncode == 0
    assert "was interrupted; starting it again" in done.stderr
    assert not left_over.exists()
    assert made.make("env-driver").stderr == ""


@pytest.mark.slow
def test_an_environment_that_was_moved_is_made_again(made):
    note = made.venv / ".regatta" / "made"
    note.write_text(note.read_text().replace("a checkout", "another checkout"))
    assert "was made at another place" in made.make("env-driver").stderr
    assert made.make("env-driver").stderr == ""


@pytest.mark.slow
def test_a_failed_installation_leaves_no_stamp(made):
    lock = made.folder / "requirements" / "driver.lock"
    good = lock.read_text()
    lock.write_text(good + "absent==1.0 --hash=sha256:" + "0" * 64 + "\n")
    try:
        done = made.make("env-driver")
    finally:
        lock.write_text(good)
    assert done.returncode == 2
    assert "requirements/driver.lock could not be installed; pip says why above." in done.stderr
    assert made.make("env-driver").returncode == 0
    assert made.make("env-driver").stderr == ""


def test_an_environment_of_the_users_own_is_checked_and_never_changed(checkout, tmp_path):
    own = tmp_path / "own env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    before = sorted(own.rglob("*"))
    done = checkout.make("env-driver", f"VENV={own}")
    assert done.returncode == 2
    assert "requirements/driver.in: missing: snakemake." in done.stderr
    assert checkout.make("clean-env", f"VENV={own}").returncode == 2
    assert sorted(own.rglob("*")) == before


def test_a_folder_that_is_no_environment_is_refused(checkout, tmp_path):
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "one").touch()
    done = checkout.make("env-driver", f"VENV={tmp_path / 'photographs'}")
    assert "is no Python environment: it has no bin/python3" in done.stderr


def test_a_python_that_is_too_old_is_told_in_one_line(checkout, tmp_path):
    old = script(tmp_path / "python", "case $2 in *platform*) echo 3.9.18 ;; *) exit 1 ;; esac")
    done = checkout.make("env-driver", f"PYTHON={old}")
    expected = f"PYTHON={old} is Python 3.9.18; Regatta needs 3.11 or newer. Name another: make PYTHON=python3.12"
    assert done.stderr.splitlines()[0] == expected


def test_a_python_without_venv_is_told_with_the_package_to_install(checkout, tmp_path):
    bare = script(tmp_path / "python", "case $2 in *ensurepip*) exit 1 ;; *platform*) echo 3.11.2 ;; esac")
    done = checkout.make("env-driver", f"PYTHON={bare}")
    assert "(Python 3.11.2) cannot make environments: venv or ensurepip is missing" in done.stderr
    assert "apt-get install python3-venv" in done.stderr


def test_a_python_that_is_not_there_is_told(checkout):
    done = checkout.make("env-driver", "PYTHON=python9")
    assert "PYTHON=python9 does not run. Name Python 3.11 or newer" in done.stderr


def test_clean_env_removes_what_regatta_made(checkout):
    (checkout.venv / ".regatta").mkdir(parents=True)
    assert checkout.make("clean-env").returncode == 0
    assert not checkout.venv.exists()
