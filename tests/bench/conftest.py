"""What the tests of the rank's programs share. Those marked `torch` start ranks and need torch; the others need none."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from bench_cells import BENCH, clean_environment

# As `torchrun bench/x.py` does it: the folder of the program comes first.
sys.path.insert(0, str(BENCH))


@pytest.fixture
def torchrun():
    """A function that starts `num_ranks` ranks of a program and returns the completed process, output as text."""
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
