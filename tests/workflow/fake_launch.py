#!/usr/bin/env python3
"""Substitute for `python start_ranks.py ... run_launch.py --request FILE` in tests: a stack's `python` may name it.

It writes launch files as the ranks do, without torch and at once. FAKE_FAULTS, JSON: which cells fail, and how:
{"part of a cell's id": "raise" | "killed" | "hang" | "oom" | "no_space" | "torn" | "check" |
"forgotten" | "invalid"}; FAKE_LAUNCH: behavior of the launch
itself: "no_start" | "silent" | "no_complete"; FAKE_CELL_SECONDS: duration of a cell; FAKE_HANG_FILE: a file during whose existence no cell ends.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))
from harness.launch_file import Writer

ENDED = "start_ranks: rank 0 exited with code {code}"


def utc_now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def append(request, line):
    Writer(Path(request["store_file"])).append(line)


def launch_line(request):
    copied = "schema campaign batch launch generation repeat stack nodes gpus_per_node device argv git".split()
    gpus, nodes = request["gpus_per_node"], request["nodes"]
    hosts = [
        {"host": f"fake{n}", "ranks": list(range(n * gpus, n * gpus + gpus)), "devices": ["cpu"] * gpus, "num_cores": 2}
        for n in range(nodes)
    ]
    environment = {
        "hosts": [host | {"cpu_model": "fake", "memory_bytes": 2**30} for host in hosts],
        "python": "3.11.0",
        "torch": "2.12.1",
        "torchvision": "0.27.1",
        "cuda": None,
        "nccl": None,
        "cudnn": None,
        "driver": None,
        "gpus": [],
        "kernel": "6.0",
        "threads_per_rank": 1,
        "libraries": [],
        "variables": {key: value for key, value in os.environ.items() if key.startswith("OMP_")},
        "settings": {},
        "seconds_to_ready": 0.1,
    }
    order = [cell["id"] for cell in request["cells"]]
    known = {key: request[key] for key in copied}
    return {"kind": "launch", **known, "time_utc": utc_now(), "order": order, "environment": environment}


def record_line(request, cell, status="ok", phase=None, cause=None):
    step_ns = 1_000_000 + sum(cell["id"].encode()) * 1000 + request["repeat"] * 10_000
    ranks = range(request["nodes"] * request["gpus_per_node"])
    samples = [[step_ns + 1000 * rank + 100 * (i % 7) for i in range(40)] for rank in ranks]
    is_training = cell["spec"]["benchmark"] == "train_step"
    windows = {"steps_per_window": 5, "elapsed_ns": [[5 * step_ns] * 3 for _ in ranks]}
    memory = {"parameter_bytes": 1000, "gradient_bytes": 1000, "peak_rss_bytes": [10**8 for _ in ranks]}
    return {
        "kind": "record",
        "cell": cell["id"],
        "spec": cell["spec"],
        "repeat": request["repeat"],
        "command": cell["command"],
        "writer": "rank",
        "status": status,
        "phase": phase,
        "cause": cause,
        "time_utc": utc_now(),
        "elapsed_ns": 50_000_000,
        "setup_ns": 1_000_000,
        "warmup": {"num_iterations": 10, "elapsed_ns": 10**7, "first_iteration_ns": 2 * step_ns, "stop": "steady"},
        "sampling": {"num_iterations": 40, "elapsed_ns": 40 * step_ns, "stop": "precision", "half_width_ratio": 0.001},
        "samples_ns": samples,
        "slowest_rank_samples_ns": None,
        "rank_quantiles_ns": None,
        "windows": windows if is_training else None,
        "checks": {"loss_is_finite" if is_training else "result_is_right": status == "ok"},
        "values": {},
        "memory": memory | {"peak_allocated_bytes": None, "peak_reserved_bytes": None},
    }


def die(request, cell, status, cause):
    error = {"rank": 0, "host": "fake", "cell": cell["id"], "phase": "measure", "status": status, "cause": cause}
    path = Path(request["error_dir"]) / "rank-0.json"
    path.write_text(json.dumps(error | {"traceback": "", "time_ns": time.time_ns()}))
    print(ENDED.format(code=1), file=sys.stderr)
    sys.exit(1)


def go_wrong(request, cell, fault):
    if fault == "raise":
        die(request, cell, "failed", "ValueError: the fake cell raised")
    if fault == "oom":
        die(request, cell, "out_of_memory", "RuntimeError: can't allocate memory")
    if fault == "hang":
        time.sleep(3600)
    if fault == "torn":
        with open(request["store_file"], "a") as file:
            file.write('{"kind": "record", "cell": "' + cell["id"][:5])
    if fault == "no_space":
        print("regatta: cannot write the launch file x: [Errno 28] No space left on device.", file=sys.stderr)
    print(ENDED.format(code=74 if fault == "no_space" else -9), file=sys.stderr)
    sys.exit(1)


def main():
    begin = time.time_ns()
    request = json.loads(Path(sys.argv[sys.argv.index("--request") + 1]).read_text())
    faults = json.loads(os.environ.get("FAKE_FAULTS", "{}"))
    launch_fault = os.environ.get("FAKE_LAUNCH")
    if launch_fault == "no_start":
        sys.exit("ModuleNotFoundError: No module named 'torch'")
    if launch_fault == "silent":
        time.sleep(3600)
    append(request, launch_line(request))
    for cell in request["cells"]:
        append(request, {"kind": "start", "cell": cell["id"], "time_utc": utc_now()})
        time.sleep(float(os.environ.get("FAKE_CELL_SECONDS", "0")))
        while os.path.exists(os.environ.get("FAKE_HANG_FILE", "")):
            time.sleep(0.05)
        fault = next((what for part, what in faults.items() if part in cell["id"]), None)
        if fault == "check":
            append(request, record_line(request, cell, "failed", "check", "loss_is_finite is false"))
        elif fault == "invalid":
            append(request, record_line(request, cell) | {"samples_ns": [[1]]})  # of one rank, for any shape
        elif fault == "forgotten":
            append(request, {"kind": "start", "cell": cell["id"], "time_utc": utc_now()})
        elif fault:
            go_wrong(request, cell, fault)
        else:
            append(request, record_line(request, cell))
    if launch_fault != "no_complete":
        append(request, {"kind": "complete", "time_utc": utc_now(), "elapsed_ns": time.time_ns() - begin})


if __name__ == "__main__":
    main()
