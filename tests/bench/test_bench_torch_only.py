"""A collective in an environment with only torch and torch's dependencies: no numpy, no torchvision, no Regatta."""

import json
import re
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

import pytest
from bench_cells import BENCH, all_reduce_cell, clean_environment, train_step_cell
from forked_programs import ForkServer

pytestmark = pytest.mark.torch

# What torch imports at run time (its metadata names more), by the names of the modules; nvidia only in builds for CUDA.
TORCH_AND_ITS_OWN = (
    "torch", "torchgen", "functorch", "typing_extensions.py", "filelock", "sympy", "mpmath", "networkx", "jinja2",
    "markupsafe", "fsspec", "nvidia", "cuda", "triton",
)  # fmt: skip

STUB = """\
import runpy, sys
packages, program = sys.argv[1:3]
sys.argv = sys.argv[2:]
sys.path[:0] = [program.rpartition("/")[0]]
sys.path.append(packages)
for name in ("numpy", "torchvision", "yaml", "regatta"):
    assert name not in sys.modules
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} can be imported: this test proves nothing")
runpy.run_path(program, run_name="__main__")
"""


@pytest.fixture(scope="module")
def torch_only(tmp_path_factory):
    """A function that runs a program of bench/ on two ranks, each a fork of an isolated Python with torch alone."""
    pytest.importorskip("torch")
    site_packages = Path(util.find_spec("torch").origin).parents[1]
    folder = tmp_path_factory.mktemp("torch_only")
    packages = folder / "packages"
    packages.mkdir()
    for name in TORCH_AND_ITS_OWN:
        if (site_packages / name).exists():
            (packages / name).symlink_to(site_packages / name)
    version = metadata.version("torch")
    (packages / f"torch-{version}.dist-info").symlink_to(next(site_packages.glob("torch-*.dist-info")))
    stub = folder / "stub.py"
    stub.write_text(STUB)
    server = ForkServer(folder, (sys.executable, "-I", "-S", str(stub), str(packages)))

    def run(program: str, *arguments: object):
        return server.run(2, BENCH / program, *arguments)

    yield run
    server.close()


def test_collective_runs_with_torch_alone(torch_only):
    done = torch_only("collective.py", "--message-bytes", "4096", "--max-seconds", "0.1", "--min-seconds", "0.05")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  result_is_exact +yes$", done.stdout, re.MULTILINE)


def test_launch_runs_with_torch_alone(torch_only, write_request, launch_lines):
    done = torch_only("run_launch.py", "--request", write_request([all_reduce_cell()]))
    assert done.returncode == 0, done.stderr
    lines = launch_lines()
    assert lines[0]["environment"]["torchvision"] is None
    assert [line["status"] for line in lines if line["kind"] == "record"] == ["ok"]


def test_a_language_model_needs_no_torchvision(torch_only, write_request, launch_lines):
    done = torch_only("run_launch.py", "--request", write_request([train_step_cell("lm_tiny", "ddp")]))
    assert done.returncode == 0, done.stderr
    assert [line["status"] for line in launch_lines() if line["kind"] == "record"] == ["ok"]


def test_training_without_torchvision_says_what_to_install(torch_only, write_request, tmp_path, wording):
    done = torch_only("run_launch.py", "--request", write_request([train_step_cell()]))
    assert done.returncode != 0
    report = json.loads(next((tmp_path / "errors").glob("rank-*.json")).read_text())
    assert report["phase"] == "setup"
    wording(re.sub(r"torch \d[^,]*,", "torch <version>,", report["cause"]))


def test_a_torch_that_cannot_be_imported_is_reported(write_request, tmp_path, wording):
    """Needs no torch, and finds none."""
    (tmp_path / "stub.py").write_text(STUB)
    (tmp_path / "nothing").mkdir()
    program = [tmp_path / "stub.py", tmp_path / "nothing", BENCH / "run_launch.py"]
    command = [sys.executable, "-I", "-S", *map(str, program), "--request", str(write_request([all_reduce_cell()]))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=clean_environment())
    assert done.returncode == 1
    report = json.loads((tmp_path / "errors" / "rank-0.json").read_text())
    assert (report["cell"], report["phase"], report["status"]) == (None, "launch", "failed")
    wording(report["cause"])
