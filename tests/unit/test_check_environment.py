"""check_environment.py in synthetic environments: without pip, and with packages that are only names and versions."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

import check_environment as checks

SCRIPT = Path(checks.__file__)
WRONG_PAIR = 'raise RuntimeError("operator torchvision::nms does not exist")\n'


class Environment:
    """A real virtual environment with nothing in it but what a test puts there."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder, self.python = folder, folder / "bin" / "python3"
        self.packages = next((folder / "lib").glob("python3*")) / "site-packages"

    def add(self, name: str, version: str, source: str = "", requires: str = "") -> None:
        """Put a package there as pip would leave it: a module and a dist-info folder."""
        (self.packages / f"{name}.py").write_text(source)
        info = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        requirement = f"Requires-Dist: {requires}\n" if requires else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirement}")

    def check(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.python, "-I", SCRIPT, *arguments], capture_output=True, text=True)


@pytest.fixture
def environment(tmp_path) -> Environment:
    return Environment(tmp_path / "env with space")


def test_a_requirement_gives_its_lowest_version_and_a_pin_gives_none():
    text = "# words\nsnakemake>=9.27.1,<10\ntorch==2.12.1\n\npyyaml  # reads\nmatplotlib<4,>=3.11\n"
    expected = {"snakemake": "9.27.1", "torch": None, "pyyaml": None, "matplotlib": "3.11"}
    assert checks.read_requirements(text) == expected


@pytest.mark.parametrize("name", ["driver", "rank", "dev"])
def test_each_requirements_file_is_pinned_in_its_lock(name):
    folder = checks.ROOT / "requirements"
    pinned = [line.split("==")[0] for line in (folder / f"{name}.lock").read_text().splitlines() if "==" in line]
    assert set(checks.read_requirements((folder / f"{name}.in").read_text())) <= set(pinned)


def test_the_three_locks_agree_on_every_version():
    versions = {}
    for path in sorted((checks.ROOT / "requirements").glob("*.lock")):
        for line in path.read_text().splitlines():
            if "==" in line and not line.startswith((" ", "#")):
                name, version = line.split(" ")[0].split("==")
                assert versions.setdefault(name, version) == version, f"{path.name}: {name}"
    assert versions["torch"] == "2.14.1"
    assert versions["torchvision"] == "0.29.1"


def test_locks_name_no_index_and_hash_everything():
    for path in (checks.ROOT / "requirements").glob("*.lock"):
        text = path.read_text()
        assert "://" not in text
        assert text.count("==") - text.count("== '") - text.count("!= '") <= text.count("--hash=sha256:"), path.name


@pytest.mark.parametrize(
    ("version", "lowest", "expected"),
    [
        ("9.27.1", "9.27.1", False),
        ("9.3", "9.27.1", True),
        ("10", "9.27.1", False),
        ("2.6.0a0+ecf3bae40a.nv25.01", "2.6", False),
        ("3.11rc1", "3.11", False),
    ],
)
def test_versions_are_compared_as_numbers(version, lowest, expected):
    assert checks.is_older(version, lowest) is expected


@pytest.mark.parametrize(
    ("torch", "torchvision", "required", "expected"),
    [
        ("2.12.1", "0.27.1", "2.12.1", True),
        ("2.12.1+cpu", "0.27.1+cpu", "2.12.1", True),
        ("2.12.1+cpu", "0.27.1", "2.12.1", False),
        ("2.13.0+cpu", "0.27.1+cu130", "2.12.1", False),
        ("2.13.0", "0.27.1", "2.12.1", False),
        ("2.6.0a0+nv", "0.20.0a0+nv", None, True),
    ],
)
def test_a_pair_has_one_build_and_one_torch(torch, torchvision, required, expected):
    assert checks.is_surely_a_pair(torch, torchvision, required) is expected


def test_missing_packages_are_named_with_the_line_that_installs_them(environment, wording):
    done = environment.check("driver", "rank")
    assert done.returncode == 1
    assert "requirements/driver.in: missing: snakemake, " in done.stderr
    wording.lines(done.stderr, "requirements/rank.in: missing: torch,")
    wording.lines(done.stderr, "installs nothing into")
    line = "-m pip install --require-hashes -r requirements/driver.lock -r requirements/rank.lock"
    assert line in done.stderr


def test_an_environment_of_regatta_is_to_be_made_again(environment, wording):
    (environment.folder / ".regatta").mkdir()
    wording.lines(environment.check("rank").stderr, "', then run")


def test_a_package_that_is_too_old_is_told_with_both_versions(environment, wording):
    text = (checks.ROOT / "requirements" / "driver.in").read_text()
    names = checks.read_requirements(text)
    for name, lowest in names.items():
        environment.add(name, "8.1.0" if name == "snakemake" else lowest or "1")
    done = environment.check("driver")
    lowest = names["snakemake"]
    wording.lines(done.stderr, "requirements/driver.in: snakemake is")
    assert "missing" not in done.stderr.replace("what is missing", "")


def test_another_version_of_the_ranks_is_admitted(environment):
    rank = (checks.ROOT / "requirements" / "rank.in").read_text()
    environment.add("torch", "2.9.0", requires="numpy")
    environment.add("torchvision", "0.24.0", requires="torch ==2.9.0")
    assert "torch==2.9.0" not in rank
    assert environment.check("rank").returncode == 0


def test_a_pair_of_one_build_is_not_imported(environment):
    environment.add("torch", "2.9.0", "raise SystemExit(7)\n")
    environment.add("torchvision", "0.24.0", WRONG_PAIR, requires="torch ==2.9.0")
    done = environment.check("rank")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("torch", "torchvision", "arguments"),
    [
        ("2.12.1+cpu", "0.27.1", []),  # pip accepts this: 2.12.1+cpu satisfies ==2.12.1
        ("2.13.0", "0.27.1", []),
        ("2.12.1", "0.27.1", ["--import"]),
    ],
)
def test_a_wrong_pair_is_told_with_both_versions_and_the_way_out(environment, torch, torchvision, arguments, wording):
    environment.add("torch", torch)
    environment.add("torchvision", torchvision, WRONG_PAIR, requires="torch (==2.12.1)")
    done = environment.check(*arguments, "rank")
    assert done.returncode == 1
    wording.lines(done.stderr, "are not of")
    assert "from one index" in done.stderr
    assert "make VENV=DIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_doubtful_pair_that_can_be_imported_is_good(environment):
    environment.add("torch", "2.12.1+cu130")
    environment.add("torchvision", "0.27.1", requires="torch (==2.12.1)")
    done = environment.check("rank")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_failure_to_import_is_told_as_it_is(environment):
    environment.add("torch", "2.12.1", 'raise ImportError("libcudart.so.13: cannot open shared object file")\n')
    environment.add("torchvision", "0.27.1", requires="torch (==2.12.1)")
    done = environment.check("--import", "rank")
    expected = "torch 2.12.1 and torchvision 0.27.1 cannot be imported: ImportError: libcudart.so.13"
    assert done.returncode == 1
    assert expected in done.stderr


def test_a_crash_at_import_is_told_with_its_status(environment):
    environment.add("torch", "2.12.1+cpu", "import os\nos.abort()\n")
    environment.add("torchvision", "0.27.1")
    assert "exit status -6" in environment.check("rank").stderr


@pytest.mark.torch
def test_the_pair_that_the_tests_run_with_is_good():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-I", SCRIPT, "rank"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
