"""The Makefile and requirements/install.sh, in a copy of the checkout that requires only a synthetic package."""

import base64
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    "Makefile",
    "requirements/install.sh",
    "workflow/scripts/run_campaign.py",
    "workflow/scripts/regatta/core/errors.py",
]
FAKE_SNAKEMAKE = """import pathlib, sys
print("snakemake", *sys.argv[1:], sep="|")
if "--make-report" in sys.argv:
    report = pathlib.Path("results/some name/report.html")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("")
sys.exit(3)
"""
FAKES = {  # of modules that import libraries
    "campaign/load.py": """class load_campaign:
    def __init__(self, path, may_lack_files=False):
        self.name = "some name"
""",
    "core/files.py": "def check_cache_folder():\n    pass\n",
    "launchers/base.py": "def end_with(driver):\n    return lambda: None\n",
}

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
        for name, text in FAKES.items():
            (library / name).parent.mkdir(exist_ok=True)
            (library / name).write_text(text)
        lines = write_wheel(folder / "wheels", "snakemake", {"snakemake.py": FAKE_SNAKEMAKE})
        for name in ("driver", "rank", "dev"):
            (folder / "requirements" / f"{name}.in").write_text("snakemake>=1.0\n")
            (folder / "requirements" / f"{name}.lock").write_text(lines)

    user: int | None = None  # None is whoever runs the tests

    def make(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "LANG") if key in os.environ}
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "wheels", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
        command = ["make", *map(str, arguments)]
        environment = kept | pip | environment
        return subprocess.run(
            command, cwd=self.folder, env=environment, user=self.user, group=self.user, capture_output=True, text=True
        )

    def add_requirement(self, name: str) -> None:
        with (self.folder / "requirements" / "driver.lock").open("a") as lock:
            lock.write(write_wheel(self.folder / "wheels", name, {f"{name}.py": ""}))


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Checkout:
    """A checkout with a complete environment, in the state in which an installation leaves it; it has no pip.

    Each test that shares it leaves it in order.
    """
    checkout = Checkout(tmp_path_factory.mktemp("made") / "a checkout")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout.venv], check=True)
    [packages] = checkout.venv.glob("lib/*/site-packages")
    (packages / "snakemake.py").write_text(FAKE_SNAKEMAKE)
    state = checkout.venv / ".regatta"
    state.mkdir()
    (state / "made").write_text(f"{sys.version_info[0]}.{sys.version_info[1]} {checkout.venv.resolve()}\n")
    (state / "lock").touch()
    shutil.copy(checkout.folder / "requirements" / "driver.lock", state)
    return checkout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Checkout:
    """A checkout whose environment make has installed, which takes 10 s. Each test that shares it leaves it in order."""
    checkout = Checkout(tmp_path_factory.mktemp("installed") / "a checkout")
    done = checkout.make("env-driver", f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stderr
    assert "environment .venv with" in done.stderr
    assert "Installing Snakemake" in done.stderr
    return checkout


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.install
def test_an_installation_leaves_the_state_of_a_complete_environment(installed, made):
    """The environment that the other tests use is like an installed one."""

    def state(checkout):
        folder = checkout.venv / ".regatta"
        lock = (checkout.folder / "requirements" / "driver.lock").read_text()  # its hash is another in each checkout
        texts = {path.name: path.read_text() for path in folder.iterdir()}
        return {name: text.replace(str(checkout.venv), "VENV").replace(lock, "LOCK") for name, text in texts.items()}

    assert state(installed) == state(made)
    [package] = installed.venv.glob("lib/*/site-packages/snakemake.py")
    assert package.read_text() == FAKE_SNAKEMAKE
    assert (installed.make("env-driver").stdout, installed.make("env-driver").stderr) == ("", "")


def test_make_alone_lists_the_targets(checkout):
    done = checkout.make()
    assert done.returncode == 0
    for target in "campaign plan gate compare report watch index test lint format bench env-driver clean-env".split():
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


def test_another_campaign_file_is_handed_on_regardless_of_its_name(made):
    done = made.make("campaign", "PROFILE=profiles/slurm", "CONFIG=my config/config.yaml")
    assert done.stdout == "snakemake|--configfile|my config/config.yaml|--profile|profiles/slurm\n"
    assert made.make("plan").stdout == "snakemake|plan|--profile|profiles/local\n"
    assert made.make("gate", "PROFILE=profiles/slurm").stdout == "snakemake|gate|--profile|profiles/slurm\n"


def test_a_campaign_file_whose_name_begins_with_a_dash_is_not_parsed_as_an_option(made):
    done = made.make("plan", "CONFIG=-z.yaml")
    assert done.stdout == "snakemake|plan|--configfile|./-z.yaml|--profile|profiles/local\n", done.stderr


def test_folders_of_the_users_python_are_not_seen(made, tmp_path):
    (tmp_path / "snakemake.py").write_text("print('the wrong one')\n")
    assert "wrong" not in made.make("plan", PYTHONPATH=str(tmp_path)).stdout


def test_another_python_for_an_environment_that_exists_is_refused(made, tmp_path, wording):
    other = script(tmp_path / "python", "echo 3.99")
    done = made.make("env-driver", f"PYTHON={other}")
    assert done.returncode == 2
    wording.lines(done.stderr, "is 3.99. Remove", version=f"Python {sys.version_info[0]}.{sys.version_info[1]}")


@pytest.mark.install
def test_a_changed_lock_file_is_installed(installed):
    installed.add_requirement("newcomer")
    done = installed.make("env-driver")
    assert "Installing Snakemake" in done.stderr
    assert "Creating the environment" not in done.stderr
    assert list(installed.venv.glob("lib/*/site-packages/newcomer.py"))
    assert installed.make("env-driver").stderr == ""


@pytest.mark.install
def test_an_interrupted_installation_is_continued_and_nothing_is_removed(installed, wording):
    """kill -9 while pip has unpacked a package and has not yet written all of it."""
    (installed.venv / ".regatta" / "installing").write_text(f"{installed.venv}\n")
    [package] = installed.venv.glob("lib/*/site-packages/snakemake.py")
    [info] = installed.venv.glob("lib/*/site-packages/snakemake-1.0.dist-info")
    (info / "INSTALLER").unlink()
    package.unlink()
    before = files(installed.venv)
    done = installed.make("env-driver")
    assert done.returncode == 0, done.stderr
    wording.lines(done.stderr, "was interrupted; continuing")
    assert "Creating the environment" not in done.stderr
    assert before - files(installed.venv) == {".regatta/installing"}
    assert package.read_text() == FAKE_SNAKEMAKE
    assert installed.make("env-driver").stderr == ""


@pytest.mark.install
def test_an_environment_that_was_half_made_is_continued(checkout):
    (checkout.venv / ".regatta").mkdir(parents=True)
    (checkout.venv / ".regatta" / "installing").write_text(f"{checkout.venv}\n")
    (checkout.venv / "bin").mkdir()
    (checkout.venv / "bin" / "half").touch()
    done = checkout.make("env-driver", f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stderr
    assert "Creating the environment" in done.stderr
    assert (checkout.venv / "bin" / "half").exists()
    assert checkout.make("env-driver").stderr == ""


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def refused(checkout: Checkout, venv: Path, *arguments: str, **environment: str) -> str:
    """Return what make says when it refuses an environment. Nothing in it may change."""
    before = files(venv)
    given = [] if venv == checkout.venv else [f"VENV={venv}"]
    done = checkout.make(*(arguments or ["env-driver"]), *given, **environment)
    assert done.returncode == 2
    assert files(venv) == before
    return done.stderr.splitlines()[0]


ELSE = "Nothing was changed. Use another folder: make VENV=DIR. Or, if no job uses it any more, remove it"


@pytest.fixture
def moved(made, tmp_path) -> Path:
    """The environment at another path: moved, or the same folder mounted there."""
    return Path(shutil.copytree(made.venv, tmp_path / "a new place", symlinks=True))


def test_a_complete_environment_at_another_path_is_used_and_not_changed(made, moved):
    before = files(moved)
    for path in moved.rglob("*"):
        path.chmod(path.stat().st_mode & ~0o222) if not path.is_symlink() else None
    done = made.make("plan", f"VENV={moved}")
    assert done.stdout == "snakemake|plan|--profile|profiles/local\n"
    note = done.stderr.splitlines()[0]
    assert str(moved) in note
    assert str(made.venv) in note
    assert files(moved) == before


def test_an_incomplete_environment_at_another_path_is_refused(made, moved, wording):
    (moved / ".regatta" / "driver.lock").unlink()
    said = refused(made, moved)
    wording(said)
    (moved / ".regatta" / "made").unlink()
    wording(refused(made, moved))
    for text, began in (("", "an unknown path"), (f"{made.venv}\n", str(made.venv))):
        (moved / ".regatta" / "installing").write_text(text)
        assert f"its installation at {began} was interrupted. {ELSE}" in refused(made, moved)
    assert made.make("clean-env", f"VENV={moved}").returncode == 0
    assert not moved.exists()


def test_an_environment_whose_python_is_gone_or_another_now_is_refused(made, moved, wording):
    (moved / ".regatta" / "made").write_text(f"3.11 {moved}\n")
    python = moved / "bin" / "python3"
    python.unlink()
    python.symlink_to("/no/such/python3")
    gone = f"its bin/python3 does not run here (it was created at {moved} with Python 3.11). {ELSE}"
    assert f"{moved} cannot be used: {gone}" in refused(made, moved)
    python.unlink()
    script(python, f"echo 3.99 '{moved}'")
    wording(refused(made, moved))


@pytest.mark.parametrize("name", ["photographs", "-photographs"])
def test_a_folder_with_a_folder_regatta_of_something_else_is_left_alone(checkout, name):
    """Such as a home directory."""
    folder = checkout.folder / name
    (folder / ".regatta").mkdir(parents=True)
    (folder / "one").touch()
    where = f"VENV={name}"
    for target, said in (("env-driver", "its origin is unknown"), ("clean-env", "was not created by Regatta")):
        done = checkout.make(target, where)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert files(folder) == {".regatta", "one"}


@pytest.mark.install
def test_a_name_that_begins_with_a_dash_is_a_folder(checkout):
    done = checkout.make("plan", "VENV=-x", f"PYTHON={sys.executable}")
    assert done.stdout == "snakemake|plan|--profile|profiles/local\n", done.stderr
    assert checkout.make("clean-env", "VENV=-x").returncode == 0
    assert not (checkout.folder / "-x").exists()


@pytest.mark.parametrize("venv", ["", ".", "..", "/", "Makefile"])
def test_what_can_be_no_environment_of_regatta_is_neither_made_nor_removed(checkout, venv):
    before = files(checkout.folder)
    assert checkout.make("env-driver", f"VENV={venv}").returncode == 2
    (checkout.folder / ".regatta").mkdir()
    (checkout.folder / ".regatta" / "made").touch()
    assert checkout.make("env-driver", f"VENV={venv}").returncode == 2
    done = checkout.make("clean-env", f"VENV={venv}")
    assert (done.returncode, "Nothing was removed." in done.stderr) == (2, True)
    assert files(checkout.folder) == before | {".regatta", ".regatta/made"}


def test_of_a_link_nothing_is_removed(made, tmp_path, wording):
    (tmp_path / "link").symlink_to(made.venv)
    assert made.make("env-driver", f"VENV={tmp_path}/link").stderr == ""
    for link in (f"{tmp_path}/link", f"{tmp_path}/link/"):
        done = made.make("clean-env", f"VENV={link}")
        wording.lines(done.stderr, "is a link.")
    assert (tmp_path / "link" / "bin" / "python3").exists()


@pytest.fixture
def shared():
    """A checkout with an environment, both of root, for another user. Its Python is one that everybody may run."""
    if os.getuid() != 0:
        pytest.skip("only root can act as another user")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        checkout = Checkout(Path(name) / "shared")
        state = checkout.venv / ".regatta"
        for folder in (state, checkout.venv / "bin"):
            folder.mkdir(parents=True)
        (state / "made").write_text(f"3.11 {checkout.venv}\n")
        shutil.copy(checkout.folder / "requirements" / "driver.lock", state)
        script(
            checkout.venv / "bin" / "python3",
            f"case $2 in -c) echo 3.11 '{checkout.venv}' ;; *) echo ran \"$@\" ;; esac",
        )
        (checkout.venv / "bin" / "python3").chmod(0o755)
        checkout.user = 65534
        yield checkout


@pytest.mark.root
def test_a_complete_environment_of_another_owner_is_used_without_a_lock(shared):
    before = files(shared.venv)
    done = shared.make("plan")
    ran = "ran workflow/scripts/run_campaign.py config/config.yaml plan --profile profiles/local\n"
    assert (done.stdout, done.stderr, files(shared.venv)) == (ran, "", before)


@pytest.mark.root
@pytest.mark.parametrize("marker", ["installing", "driver.lock", "made"])
def test_an_incomplete_environment_of_another_owner_is_named_as_such(shared, marker, wording):
    path = shared.venv / ".regatta" / marker
    path.unlink() if path.exists() else path.touch()
    wording(refused(shared, shared.venv))
    wording(refused(shared, shared.venv, "clean-env"))


@pytest.mark.root
def test_an_incomplete_environment_of_another_owner_is_not_changed_where_its_group_may_write(shared, wording):
    (shared.venv / ".regatta" / "driver.lock").unlink()
    for path in (shared.venv, *shared.venv.rglob("*")):
        path.chmod(0o777)
    before = files(shared.venv)
    wording(refused(shared, shared.venv))
    assert files(shared.venv) == before


@pytest.mark.root
def test_an_environment_of_another_owner_whose_python_may_not_be_run_is_named_as_such(shared, wording):
    """Such as one below the owner's home."""
    (shared.venv / "bin" / "python3").chmod(0o700)
    said = refused(shared, shared.venv)
    wording(said)


@pytest.mark.root
def test_an_environment_that_may_not_be_read_is_named_as_such(shared, wording):
    shared.venv.chmod(0o700)
    done = shared.make("env-driver")
    wording(done.stderr.splitlines()[0])


def test_another_make_that_is_installing_is_waited_for(made):
    state = made.venv / ".regatta"
    (state / "installing").write_text(f"{made.venv}\n")
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Timer(2, lambda: ((state / "installing").unlink(), lock.close()))
        waiting.start()
        done = made.make("env-driver")
    waiting.join()
    [note] = done.stderr.splitlines()
    assert "waiting" in note
    assert ".venv" in note
    assert done.returncode == 0


@pytest.mark.install
def test_a_failed_installation_leaves_no_stamp(installed, wording):
    lock = installed.folder / "requirements" / "driver.lock"
    good = lock.read_text()
    lock.write_text(good + "absent==1.0 --hash=sha256:" + "0" * 64 + "\n")
    try:
        done = installed.make("env-driver")
    finally:
        lock.write_text(good)
    assert done.returncode == 2
    wording.lines(done.stderr, "requirements/driver.lock could not")
    assert installed.make("env-driver").returncode == 0
    assert installed.make("env-driver").stderr == ""


def test_an_environment_of_the_users_own_is_used_if_it_has_the_packages_and_never_changed(checkout, tmp_path, wording):
    """Also in another version than the 1.0 of the lock."""
    own = tmp_path / "own env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    with (checkout.folder / "requirements" / "driver.in").open("a") as listed:
        listed.write("# words\nSnake.Charmer  # more words\n")
    before = files(own)
    done = checkout.make("plan", f"VENV={own}")
    assert done.returncode == 2
    wording("\n".join(done.stderr.splitlines()[:2]))
    assert checkout.make("clean-env", f"VENV={own}").returncode == 2
    assert files(own) == before
    [packages] = own.glob("lib/*/site-packages")
    (packages / "snakemake.py").write_text(FAKE_SNAKEMAKE)
    for name in ("snakemake-0.9", "snake_charmer-2.0"):
        (packages / f"{name}.dist-info").mkdir()
    before = files(own)
    done = checkout.make("plan", f"VENV={own}")
    assert (done.stdout, done.stderr.count("missing")) == ("snakemake|plan|--profile|profiles/local\n", 0)
    assert files(own) == before


@pytest.mark.parametrize(
    ("cluster", "scheduler", "profile", "expected"),
    [
        ("cluster: local", "scheduler: none", "profiles/local", ["driver", "rank"]),
        ("cluster: local", "scheduler: slurm", "profiles/local", ["driver"]),  # within an allocation
        ("cluster:   'local' # x", 'scheduler: "slurm"\t# y\r', "/site/profiles/local/", ["driver"]),
        ("  cluster: local", "scheduler: slurm", "profiles/local", ["driver", "rank"]),  # not the campaign's key
        ("cluster: absent", "scheduler: slurm", "profiles/local", ["driver", "rank"]),
        ("{cluster: local}", "scheduler: slurm", "profiles/local", ["driver", "rank"]),
        ("cluster: local", "scheduler: none", "profiles/slurm", ["driver"]),
    ],
)
def test_torch_is_required_where_ranks_run_in_the_environment(
    checkout, tmp_path, cluster, scheduler, profile, expected
):
    own = tmp_path / "own env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    (checkout.folder / "my own.yaml").write_text(f"schema: 1\nname: x\n{cluster}\n")
    clusters = checkout.folder / "config" / "clusters"
    clusters.mkdir()
    (clusters / "local.yaml").write_text(f"schema: 1\nname: local\n{scheduler}\nnum_nodes: 1\n")
    for target in ("campaign", "gate"):
        done = checkout.make(target, f"VENV={own}", "CONFIG=my own.yaml", f"PROFILE={profile}")
        assert done.returncode == 2
        assert re.findall(r"requirements/(\w+).in: missing", done.stderr) == expected
    done = checkout.make("plan", f"VENV={own}", "CONFIG=my own.yaml", f"PROFILE={profile}")
    assert re.findall(r"requirements/(\w+).in: missing", done.stderr) == ["driver"]


def test_a_folder_that_is_no_environment_is_refused(checkout, tmp_path, wording):
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "one").touch()
    done = checkout.make("env-driver", f"VENV={tmp_path / 'photographs'}")
    wording.lines(done.stderr, "is not a")


def test_a_python_that_is_too_old_is_told_in_one_line(checkout, tmp_path):
    old = script(tmp_path / "python", "case $2 in *platform*) echo 3.9.18 ;; *) exit 1 ;; esac")
    done = checkout.make("env-driver", f"PYTHON={old}")
    expected = f"PYTHON={old} is Python 3.9.18; Regatta needs 3.11 or newer. Specify another: make PYTHON=python3.12"
    assert done.stderr.splitlines()[0] == expected


def test_a_python_without_venv_is_told_with_the_package_to_install(checkout, tmp_path, wording):
    bare = script(tmp_path / "python", "case $2 in *ensurepip*) exit 1 ;; *platform*) echo 3.11.2 ;; esac")
    done = checkout.make("env-driver", f"PYTHON={bare}")
    wording.lines(done.stderr, "(Python 3.11.2) cannot")
    assert "apt-get install python3-venv" in done.stderr


def test_a_python_that_is_not_there_is_told(checkout, wording):
    done = checkout.make("env-driver", "PYTHON=python9")
    wording.lines(done.stderr, "PYTHON=python9 does not")


def test_clean_env_removes_what_regatta_made(checkout):
    (checkout.venv / ".regatta").mkdir(parents=True)
    assert checkout.make("clean-env").returncode == 0
    assert not checkout.venv.exists()
    (checkout.venv / "lib").mkdir(parents=True)
    (checkout.venv / ".regatta").mkdir()
    (checkout.venv / ".regatta" / "installing").touch()
    assert checkout.make("clean-env").returncode == 0
    assert not checkout.venv.exists()


def test_compare_passes_two_names_and_the_options_of_its_script(made):
    script = made.folder / "workflow" / "scripts" / "compare.py"
    script.write_text("import sys; print(*sys.argv[1:], sep='|'); sys.exit(1)")
    names = ["A=my results/v1", "B=-v2", "ARGS=--all --html page.html"]
    done = made.make("--no-print-directory", "compare", *names, B="of the environment")
    assert done.stdout == "--all|--html|page.html|--|my results/v1|-v2\n"
    assert "Error 1" in done.stderr
    assert made.make("--no-print-directory", "compare", A="of the environment").stdout == "--||\n"
