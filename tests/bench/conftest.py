"""Fixtures of the rank-side tests. Tests marked `torch` start ranks and need torch; the others do not."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from bench_cells import BENCH, clean_environment
from forked_programs import ForkServer

# As `torchrun bench/x.py` does it: the folder of the program comes first.
sys.path.insert(0, str(BENCH))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Other tests run beside these: threads of torch that wait for a core cost more than they bring."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory):
    """Starts programs in forks of a process that has imported torch; one for all workers of a test run."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    (folder / "fork_server").mkdir(exist_ok=True)
    server = ForkServer(folder / "fork_server")
    yield server
    server.close()


@pytest.fixture
def single_rank():
    """A process group of this process alone."""
    from torch import distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def run_ranks(fork_server):
    """A function that runs `num_ranks` ranks of a program and returns the completed process, output as text."""
    return fork_server.run


@pytest.fixture(scope="session")
def torchrun():
    """The same with real processes below torchrun, which import torch three times: for tests of this way to start."""
    pytest.importorskip("torch")

    def run(num_ranks: int, *command: object, **environment: str) -> subprocess.CompletedProcess:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        return subprocess.run(
            [*launcher, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=clean_environment() | environment,
        )

    return run


@pytest.fixture
def write_request(tmp_path):
    """A function that writes a launch request for cells and returns its path; keywords change its keys."""

    def write(cells: list[dict], **changes: object) -> Path:
        request = {
            "schema": 1,
            "campaign": "test",
            "batch": "n01g02-0",
            "launch": "n01g02-0-l000-a00",
            "generation": 3,
            "repeat": 0,
            "stack": "host",
            "nodes": 1,
            "gpus_per_node": 2,
            "device": "cpu",
            "start_timeout_seconds": 60,
            "store_file": str(tmp_path / "launch.jsonl"),
            "error_dir": str(tmp_path / "errors"),
            "argv": ["torchrun"],
            "git": {"commit": None, "is_dirty": None},
            "cells": cells,
        }
        path = tmp_path / "request.json"
        path.write_text(json.dumps(request | changes))
        return path

    return write


@pytest.fixture
def launch_lines(tmp_path):
    """A function that returns the lines of the launch file."""
    return lambda: [json.loads(line) for line in (tmp_path / "launch.jsonl").read_text().splitlines()]


@pytest.fixture
def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
