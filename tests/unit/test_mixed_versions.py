"""A plan says where the launches of a cell mix versions of torch, CUDA or NCCL, or would with what is installed now."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from campaign_files import collectives, plan, write, write_launch

from regatta.core.files import SCRIPTS

OLD = {"torch": "2.12.1+cu130", "cuda": "13.0", "nccl": "2.29.3"}
NEW = {"torch": "2.14.1+cu132", "cuda": "13.2", "nccl": "2.30.4"}
VERSION_PY = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '{torch}'
debug = False
cuda{annotation} = {cuda!r}
git_version = '0123'
"""


def environment(folder: Path, versions: dict, library: str = "lib/python3.12/site-packages", annotation="") -> Path:
    """Write a Python with this torch, as an environment has it; return its path."""
    python = folder / "bin" / "python3"
    (folder / library / "torch").mkdir(parents=True, exist_ok=True)
    text = VERSION_PY.format(torch=versions["torch"], cuda=versions["cuda"], annotation=annotation)
    (folder / library / "torch" / "version.py").write_text(text)
    python.parent.mkdir(exist_ok=True)
    if not python.exists():
        python.symlink_to(sys.executable)
    return python


def notes(folder: Path, campaign: dict) -> list[str]:
    """Run the command `plan`; return its notes on versions."""
    path = write(folder, campaign | {"cluster": "local"})
    line = [sys.executable, str(SCRIPTS / "plan.py"), "--campaign", str(path), "--results", str(folder / "results")]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "results" / campaign["name"] / "plan.json").read_text())["notes"]
    found = [note for note in found if note.startswith("stack ")]
    assert all(f"note: {note}" in done.stdout for note in found)
    return found


def measured(folder: Path, campaign: dict, *versions: dict | None) -> None:
    """Write a launch of all cells for each of these versions. None: no rank started."""
    cells = [planned.cell.id for planned in plan(folder, campaign).cells]
    for repeat, found in enumerate(versions):
        of_launch = found and {"seconds_to_ready": 2.0, **found}
        records = [{"cell": cell, "status": "ok" if found else "failed"} for cell in cells]
        write_launch(
            folder / "results" / campaign["name"], f"b-l00{repeat}-a00", repeat, records, environment=of_launch
        )


def host(python: Path | str, **changes) -> dict:
    return collectives(4, 8, stacks={"host": {"kind": "host", "python": str(python), **changes}})


def test_cells_that_would_mix_the_installed_version_with_measured_ones_are_counted(tmp_path, wording):
    campaign = host(environment(tmp_path / "env", OLD))
    measured(tmp_path, campaign, OLD, OLD)
    assert notes(tmp_path, campaign) == []
    environment(tmp_path / "env", NEW)
    (note,) = notes(tmp_path, campaign)
    wording(note)
    assert all(text in note for text in (OLD["torch"], NEW["torch"], "13.0", "13.2", "2 cells"))
    assert OLD["nccl"] not in note  # that of the installation is not known without starting it


def test_a_campaign_with_nothing_to_do_mixes_nothing(tmp_path):
    campaign = host(environment(tmp_path / "env", NEW))
    measured(tmp_path, campaign, OLD, OLD, OLD)
    assert notes(tmp_path, campaign) == []


def test_new_cells_beside_measured_ones_are_noted(tmp_path, wording):
    campaign = host(environment(tmp_path / "env", NEW))
    measured(tmp_path, campaign, OLD, OLD, OLD)
    larger = campaign | {"benchmarks": collectives(4, 8, 16)["benchmarks"]}
    wording(*notes(tmp_path, larger))


def test_launches_of_a_cell_that_mix_versions_are_noted(tmp_path, wording):
    campaign = host(environment(tmp_path / "env", NEW))
    measured(tmp_path, campaign, OLD, NEW, NEW | {"nccl": "2.30.5"})
    (note,) = notes(tmp_path, campaign)
    wording(note)
    assert all(text in note for text in (OLD["nccl"], NEW["nccl"], "2.30.5", "2 cells"))


@pytest.mark.parametrize(
    "versions",
    [
        (None, None),
        ({"torch": None}, {}),
        ({"torch": 7}, {"torch": ["2.1"]}),
        (OLD | {"cuda": None}, OLD | {"cuda": None}),
    ],
    ids=str,
)
def test_unknown_versions_are_not_other_versions(tmp_path, versions):
    campaign = host(environment(tmp_path / "env", OLD))
    measured(tmp_path, campaign, *versions)
    assert notes(tmp_path, campaign) == []


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        ({}, True),
        ({"has_link": True}, True),  # lib64 of a virtual environment
        ({"library": "lib/python3/dist-packages"}, True),
        ({"library": "lib64/python3.11/site-packages", "annotation": ": Optional[str]"}, True),
        ({"library": "elsewhere"}, False),
        ({"is_script": True}, False),  # a wrapper may start any Python
        ({"has_two": True}, False),
        ({"env": {"PYTHONPATH": "/opt/torch"}}, False),
        ({"is_gone": True}, False),
        ({"is_damaged": True}, False),
    ],
    ids=str,
)
def test_an_installed_version_that_is_not_certain_is_not_guessed(tmp_path, change, is_known):
    made = {key: change[key] for key in ("library", "annotation") if key in change}
    python = environment(tmp_path / "env", NEW, **made)
    if "is_script" in change:
        python.unlink()
        python.write_text("#!/bin/sh\nexec /opt/python3 $*\n")
        python.chmod(0o755)
    if "has_link" in change:
        (tmp_path / "env" / "lib64").symlink_to("lib")
    if "has_two" in change:
        environment(tmp_path / "env", OLD, "lib/python3.13/site-packages")
    campaign = host(python, **({"env": change["env"]} if "env" in change else {}))
    measured(tmp_path, campaign, OLD)
    if "is_gone" in change:
        python.unlink()
    for path in (tmp_path / "env").glob("lib/*/*/torch/version.py") if "is_damaged" in change else ():
        path.write_bytes(b"\xff\0")
    assert bool(notes(tmp_path, campaign)) == is_known


def test_the_python_that_runs_regatta_is_known(tmp_path):
    torch = pytest.importorskip("torch")
    campaign = collectives(4, 8)
    measured(tmp_path, campaign, OLD | {"torch": "2.4.0"})
    (note,) = notes(tmp_path, campaign)
    assert torch.__version__ in note
