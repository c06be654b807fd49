"""Nodes without Regatta's driver: the commands of docs/cluster.md, and the rehearsal of tests/gpu/first_run.sh on CPUs.

The node is another folder, without a network, with a Python that has torch, torchvision and their needs alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib import util
from pathlib import Path

import pytest
from campaigns import ROOT, record_lines, script, write_campaign

pytestmark = [pytest.mark.torch, pytest.mark.system]

# What torch and torchvision import at run time, by the names of the modules.
NEEDED = (
    "torch", "torchgen", "functorch", "torchvision", "torchvision.libs", "numpy", "numpy.libs", "PIL", "pillow.libs",
    "typing_extensions.py", "filelock", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "nvidia",
    "cuda", "triton", "setuptools", "_distutils_hack",
)  # fmt: skip
# Runs a command in a network namespace in which only loopback is up, as on a node without a network.
ISOLATE = """
import fcntl, os, socket, struct, sys
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def node_python(tmp_path_factory) -> Path:
    """A Python without the packages of the driver. REGATTA_NODE_PYTHON names another one, as with an older torch."""
    if "REGATTA_NODE_PYTHON" in os.environ:
        return Path(os.environ["REGATTA_NODE_PYTHON"])
    pytest.importorskip("torchvision")
    folder = tmp_path_factory.mktemp("node") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python3"
    line = [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    target = Path(subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip())
    packages = Path(util.find_spec("torch").origin).parents[1]
    for name in NEEDED:
        if (packages / name).exists():
            (target / name).symlink_to(packages / name)
    for info in packages.glob("torch*.dist-info"):
        (target / info.name).symlink_to(info)
    for absent in ("yaml", "pytest", "psutil", "pandas"):
        assert subprocess.run([python, "-c", f"import {absent}"], capture_output=True).returncode == 1
    return python


@pytest.fixture(scope="module")
def without_network(node_python) -> list[str]:
    """The words before a command that runs without a network."""
    words = ["unshare", *(["-n"] if os.geteuid() == 0 else ["-r", "-n"]), str(node_python), "-c", ISOLATE]
    if subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("no permission for a network namespace")
    return words


def test_the_commands_for_a_node_without_the_driver_give_a_report(tmp_path, node_python, without_network):
    """Exactly the lines of the page; only `ssh gpu` is replaced, and .venv is a link to the Python of these tests."""
    section = (ROOT / "docs" / "cluster.md").read_text().partition("## Nodes without Regatta's driver")[2]
    commands = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1]
    node, here, programs = tmp_path / "node", tmp_path / "here", tmp_path / "bin"
    for folder in (node, here, programs):
        folder.mkdir()
    words = " ".join(f"'{word}'" for word in without_network)
    (programs / "ssh").write_text(f'#!/bin/sh\nshift\ncd {node} && exec {words} sh -c "$*"\n')
    (programs / "ssh").chmod(0o755)
    (here / "workflow").symlink_to(ROOT / "workflow")
    (here / ".venv" / "bin").mkdir(parents=True)
    (here / ".venv" / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (here / ".venv" / "bin" / "python3").chmod(0o755)
    campaign = {
        "schema": 1,
        "name": "first-look",
        "cluster": "gpu-node",
        "device": "cpu",
        "backend": ["gloo"],
        "stacks": {"host": {"kind": "host"}},
        "shapes": [{"nodes": [1], "gpus_per_node": [2]}],
        "repeats": 2,
        "sampling": {"min_seconds": 0.02, "max_seconds": 0.05, "max_warmup_seconds": 0.05},
        "benchmarks": [
            {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [4096, 65536]}}
        ],
    }
    write_campaign(here, campaign, "my.yaml")
    path = os.pathsep.join([str(programs), str(node_python.parent), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=here, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = here / "results" / "first-look"
    records = record_lines(results)
    assert [record["status"] for record in records] == ["ok"] * 4
    assert (results / "report.html").stat().st_size > 10_000
    assert sorted(path.name for path in node.iterdir()) == ["regatta"]
    assert sorted(path.name for path in (node / "regatta").iterdir()) == ["results", "workflow"]
    script(here, "plan.py", "--campaign", "my.yaml")
    assert json.loads((results / "plan.json").read_text())["totals"]["todo"] == 0


def copy_programs(node: Path) -> None:
    for part in ("workflow/scripts/bench", "tests/bench", "tests/gpu"):
        shutil.copytree(ROOT / part, node / part, ignore=shutil.ignore_patterns("__pycache__"))


def test_every_file_with_tests_for_a_gpu_can_be_imported_on_the_node(tmp_path, node_python, without_network):
    """The rehearsal below runs few of them. On a CPU all are skipped; an import that fails would count as failed."""
    copy_programs(tmp_path / "node")
    line = [*without_network, str(node_python), str(tmp_path / "node/tests/gpu/run_tests.py"), "--json", "tests.json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
    tests = json.loads((tmp_path / "tests.json").read_text())
    assert (done.returncode, {test["outcome"] for test in tests}) == (0, {"skipped"}), done.stdout + done.stderr
    marked = {path.name for path in (ROOT / "tests" / "bench").glob("test_*.py") if "mark.gpu" in path.read_text()}
    assert {test["test"].partition("::")[0] for test in tests} == marked


@pytest.mark.timeout(600)
def test_the_first_run_on_a_gpu_is_rehearsed_on_cpus(tmp_path, node_python, without_network):
    minutes = 8
    script(tmp_path, "freeze.py", "--campaign", str(ROOT / "config/campaigns/cpu/first-gpu-run.yaml"))
    node = tmp_path / "node"
    copy_programs(node)
    shutil.copytree(tmp_path / "results", node / "results")
    line = [*without_network, str(node / "tests/gpu/first_run.sh"), "--device", "cpu", "--minutes", str(minutes), "out"]
    line += ["--only", "campaign"]
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(node_python), "HOME": str(tmp_path)}
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=minutes * 60 + 30
    )
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    outcomes = {stage["name"]: stage["outcome"] for stage in summary["stages"]}
    assert "failed" not in outcomes.values(), done.stdout + done.stderr
    assert (outcomes["environment"], outcomes["preflight"]) == ("passed", "passed")
    assert done.returncode == (0 if summary["passed"] else 1)
    if {name for name, outcome in outcomes.items() if outcome != "passed"} <= {"campaign"}:  # else the machine is busy
        assert summary["passed"], done.stdout + done.stderr
    assert summary["seconds"] < minutes * 60
    assert summary["preflight"] == {"placement": [], "backends": {"gloo": "ok"}, "device": "cpu"}
    assert {check["outcome"] for check in summary["checks"]} <= {"ok", "unknown"}
    assert sorted(path.name for path in out.iterdir()) == ["results.tar.gz", "summary.json", "summary.txt"]

    with tarfile.open(out / "results.tar.gz") as packed:
        packed.extractall(tmp_path / "results", filter="data")
    results = tmp_path / "results" / "cpu-first-gpu-run"
    records = record_lines(results)
    assert len(records) == summary["records"]["ok"] > 0
    if outcomes["campaign"] == "passed":
        assert len(records) == 34
    script(tmp_path, "rebuild_report.py", str(results))
    assert (results / "report.html").exists()


OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv_pair",
    "send_recv_ring", "barrier",
)  # fmt: skip
COLLECTIVES = {f"collective-{name}" for name in OPERATIONS}
LAYOUTS = {
    "2-ranks": {"train_step-ddp", *COLLECTIVES, "hang", "collective-after-hang"},
    "2-nodes": {"train_step-ddp", "train_step-bucketed", "train_step-fsdp"},
    "4-ranks": {"train_step-ddp", *COLLECTIVES},
}


@pytest.mark.timeout(1100)
def test_layouts_of_several_ranks_on_one_gpu_are_rehearsed_on_cpus(tmp_path, node_python, without_network):
    """With gloo: the hang ends as a timeout, the next launch works, and no campaign gets a record."""
    node = tmp_path / "node"
    copy_programs(node)
    line = [*without_network, str(node / "tests/gpu/first_run.sh"), "--device", "cpu", "--only", "layouts"]
    line += ["--minutes", "16", "out"]  # ranks share the cores with other tests
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(node_python), "HOME": str(tmp_path)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1000)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [(stage["name"], stage["outcome"]) for stage in summary["stages"]] == [
        (name, "passed") for name in ("environment", *LAYOUTS)
    ], done.stdout + done.stderr
    assert (done.returncode, summary["passed"]) == (0, True)
    for name, cells in LAYOUTS.items():
        found = summary["layouts"][name]
        records = {record["cell"]: record for record in found["records"]}
        assert {cell: record["status"] for cell, record in records.items()} == {
            cell: "timeout" if cell == "hang" else "ok" for cell in cells
        }
        for cell in COLLECTIVES & records.keys():
            assert records[cell]["checks"]
            assert set(records[cell]["checks"].values()) == {True}
        assert {record["note"] for record in found["records"]} == {found["note"]}
        assert (found["num_left"], found["problems"]) == (0, [])
    assert 6e9 <= records_of(summary, "2-ranks")["hang"]["elapsed_ns"] < 30e9
    seen = summary["layouts"]["2-nodes"]["preflight"]
    assert (seen["placement"], seen["backends"]) == ([], {"gloo": "ok"})
    results = node / "results" / "cpu-first-gpu-run"
    assert not (results / "launches").exists()
    assert summary["records"] == {"ok": 0, "failed": []}
    layout = results / "first-run" / "layouts" / "2-ranks"
    assert script(tmp_path, "compare.py", str(layout), str(layout), check=False).returncode == 2
    headers = [json.loads(path.open().readline()) for path in results.glob("**/launches/*.jsonl")]
    places = {header["campaign"]: {host["host"] for host in header["environment"]["hosts"]} for header in headers}
    assert places["layout-2-nodes"] == {"node0", "node1"}
    assert places["layout-2-ranks"] == places["layout-4-ranks"]
    assert len(places["layout-4-ranks"]) == 1


def records_of(summary: dict, layout: str) -> dict[str, dict]:
    return {record["cell"]: record for record in summary["layouts"][layout]["records"]}
