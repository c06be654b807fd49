#!/usr/bin/env python3
"""Substitute for the Python of a stack on the test cluster: srun starts it once per rank, as it does the real ranks.

Rank 0 writes the launch file without torch, as tests/workflow/fake_launch.py does and with the same FAKE_ variables; the
others wait for it. Faults that need several ranks, by part of a cell's id in FAKE_RANK_FAULTS: "exit_early": rank 1
exits with status 0 while rank 0 waits for it; "die": rank 1 is killed. No rank starts on the nodes that the file
FAKE_BROKEN_NODES lists, as if a mount were missing. A launch waits in its third cell while the file
FAKE_HOLD_FILE exists.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
import fake_launch

RANK = int(os.environ.get("SLURM_PROCID", "0"))


def preflight(request: dict) -> None:
    """Write what a preflight's rank 0 does."""
    if RANK != 0:
        return
    backends = [{"backend": name, "ok": True, "cause": None, "elapsed_ns": 1} for name in request["backends"]]
    header = fake_launch.launch_line(
        request | {"campaign": "x", "batch": "x", "generation": 1, "repeat": 0, "git": None, "cells": []}
    )
    seen = {"schema": 1, "stack": request["stack"], "launch": request["launch"], "time_utc": fake_launch.utc_now()}
    seen |= {"placement_problems": [], "environment": header["environment"], "backends": backends, "ranks": []}
    Path(request["out_file"]).write_text(json.dumps(seen))


def meet(request: dict) -> None:
    """Say that this rank is up; rank 0 waits for all, as in the rendezvous of real ranks."""
    folder = Path(request["error_dir"])
    (folder / f"up-{RANK}").touch()
    while RANK == 0 and len(list(folder.glob("up-*"))) < request["nodes"] * request["gpus_per_node"]:
        time.sleep(0.05)


def hold_in_third_cell(file: str) -> None:
    append, begun = fake_launch.append, []

    def append_and_hold(request: dict, line: dict) -> None:
        append(request, line)
        if line["kind"] == "start":
            begun.append(line["cell"])
            while len(begun) == 3 and os.path.exists(file):
                time.sleep(0.05)

    fake_launch.append = append_and_hold


def wait_for_rank_0(request: dict) -> None:
    faults = json.loads(os.environ.get("FAKE_RANK_FAULTS", "{}"))
    while True:
        lines = [json.loads(line) for line in read(request["store_file"]) if line.endswith("}")]
        if any(line["kind"] == "complete" for line in lines):
            return
        current = lines[-1]["cell"] if lines and lines[-1]["kind"] == "start" else ""
        fault = next((what for part, what in faults.items() if part in current), None)
        if fault and RANK == 1:
            if fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            sys.exit(0)
        time.sleep(0.05)


def read(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def main() -> None:
    if socket.gethostname() in read(os.environ.get("FAKE_BROKEN_NODES", "")):
        sys.exit("python3: error while loading shared libraries: libfake.so: cannot open shared object file")
    request = json.loads(Path(sys.argv[sys.argv.index("--request") + 1]).read_text())
    if any(word.endswith("preflight.py") for word in sys.argv):
        preflight(request)
        return
    meet(request)
    if RANK == 0:
        rank_faults = json.loads(os.environ.get("FAKE_RANK_FAULTS", "{}"))
        # Rank 0 waits in a collective for a rank that is gone: it hangs in that cell.
        os.environ["FAKE_FAULTS"] = json.dumps(
            json.loads(os.environ.get("FAKE_FAULTS", "{}")) | dict.fromkeys(rank_faults, "hang")
        )
        if os.environ.get("FAKE_HOLD_FILE"):
            hold_in_third_cell(os.environ["FAKE_HOLD_FILE"])
        fake_launch.main()
    else:
        wait_for_rank_0(request)


if __name__ == "__main__":
    main()
