"""Run one layout of ranks on one GPU: paths, not speeds. first_run.py starts it; standard library only.

  python3 tests/gpu/layouts.py 2-ranks --folder DIR               on a GPU, with NCCL
  python3 tests/gpu/layouts.py 2-ranks --folder DIR --device cpu  rehearsal with gloo

Several ranks share a GPU with NCCL_MULTI_RANK_GPU_ENABLE (experimental, NCCL 2.30; with an older torch, set LD_PRELOAD to
a newer libnccl.so.2), or are emulated nodes, which talk over sockets, with a different NCCL_HOSTID per rank; never both.
run_batches.py measures the cells of a batch that is made here. Its launch files are in DIR, outside of any campaign,
their cells are in none, and each record has a note: so no comparison, index or gate reads them. DIR/layout.json is
written after each step. Exit status: 0 if everything was as expected: results checked, the hang ended as a timeout, the
cell after it ok, and no process left.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))

import run_batches
from harness import frozen_batch, process

BENCH = Path(run_batches.__file__).parent
RANK_PROGRAM = Path(__file__).with_name("layout_rank.py")
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "2"}  # kernels of all ranks must fit on the GPU together
EMULATED = {"NCCL_NET": "Socket", "NCCL_MAX_CTAS": "2"}
OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv_pair",
    "send_recv_ring", "barrier",
)  # fmt: skip
SAMPLING = {
    "target_precision": 0.5, "min_seconds": 0.02, "max_seconds": 0.1, "min_samples": 4, "max_samples": 100,
    "max_warmup_seconds": 0.1, "windows_ratio": 0.3,
}  # fmt: skip
# On CPUs, ranks share the cores with other processes.
CELL_SECONDS, START_SECONDS = {"cuda": 30, "cpu": 150}, {"cuda": 60, "cpu": 150}
HANG_SECONDS = 6
PREFLIGHT_SECONDS, LEFT_SECONDS = 45, 10
TRANSPORT, NETWORK = re.compile(r"\bvia ([A-Z][A-Za-z0-9]*/[\w/-]+)"), re.compile(r"\bUsing network (\S.*?)\s*$", re.M)


@dataclass(frozen=True)
class Layout:
    """strategies: of training steps. operations: collectives. needs: the version of NCCL."""

    num_ranks: int
    nodes: int
    env: dict[str, str]
    strategies: tuple[str, ...]
    operations: tuple[str, ...] = ()
    has_hang: bool = False
    has_preflight: bool = False
    needs: str = ""

    def note(self, device: str) -> str:
        what = f"{self.num_ranks} ranks" + (f" as {self.nodes} emulated nodes" if self.nodes > 1 else "")
        return f"{what} on one GPU: paths, not speeds" if device == "cuda" else f"{what}: a rehearsal without a GPU"


LAYOUTS = {
    "2-ranks": Layout(2, 1, SHARED, ("ddp",), OPERATIONS, has_hang=True, needs="2.30"),
    "2-nodes": Layout(2, 2, EMULATED, ("ddp", "bucketed", "fsdp"), has_preflight=True),
    "4-ranks": Layout(4, 1, SHARED, ("ddp",), OPERATIONS, needs="2.30"),
}


class LayoutBatch(frozen_batch.Batch):
    """A batch whose ranks run layout_rank.py, on emulated nodes if the layout has some."""

    def write_request(self, index: int, cells: list[str], git: dict) -> tuple[dict, Path]:
        request, log = super().write_request(index, cells, git)
        nodes, num_ranks = self.content["nodes"], self.content["nodes"] * self.content["gpus_per_node"]
        path = request["argv"][-1]
        starter = [sys.executable, str(BENCH / "start_ranks.py"), f"--nproc-per-node={num_ranks}"]
        request |= {"nodes": nodes, "argv": [*starter, str(RANK_PROGRAM), "run_launch", "--request", path]}
        Path(path).write_text(json.dumps(request, indent=1) + "\n")
        return request, log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", choices=tuple(LAYOUTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--folder", type=Path, required=True, help="output folder")
    options = parser.parse_args()
    layout, folder = LAYOUTS[options.layout], options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # One GPU, also on a machine with several. Programs of other layouts may have hidden all.
    if options.device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    found = {
        "layout": options.layout,
        "device": options.device,
        "note": layout.note(options.device),
        "preflight": None,
        "records": [],
    }
    mark_driver_records(found["note"])
    if layout.has_preflight:
        found["preflight"] = preflight(layout, options.device, folder)
        write(folder, found)
    batch = make_batch(options.layout, layout, options.device, folder)
    git = frozen_batch.git_state()
    for index in range(len(batch.content["launches"])):
        run_batches.run_planned_launch(batch, index, git)
        found["records"] = records(folder)
        write(folder, found)
    found["num_left"] = num_left(folder)
    found["problems"] = problems(layout, options.device, batch, found)
    write(folder, found)
    print("\n".join(found["problems"]) or "all as expected")
    sys.exit(1 if found["problems"] else 0)


def make_batch(name: str, layout: Layout, device: str, folder: Path) -> LayoutBatch:
    """Return the batch of a layout: training steps and collectives in one launch, the hang in a second one."""
    gpus_per_node = layout.num_ranks // layout.nodes
    common = {
        "version": None, "cluster": "one-gpu", "device": device, "backend": "nccl" if device == "cuda" else "gloo",
        "nodes": layout.nodes, "gpus_per_node": gpus_per_node, "sampling": SAMPLING,
        "stack": {"name": name, "kind": "host", "env": layout.env, "python": None},
    }  # fmt: skip
    cells = {f"train_step-{strategy}": step(strategy) for strategy in layout.strategies}
    cells |= {f"collective-{operation}": collective(operation) for operation in layout.operations}
    launches = [[*cells]]
    if layout.has_hang:
        cells |= {"hang": ("hang", 1, {}), "collective-after-hang": collective("all_reduce", "bf16")}
        launches.append(["hang", "collective-after-hang"])
    whole = {
        cell: {
            "spec": common | {"benchmark": benchmark, "version": version, "parameters": parameters},
            "command": f"layouts.py {name}",
            "limit_seconds": HANG_SECONDS if benchmark == "hang" else CELL_SECONDS[device],
        }
        for cell, (benchmark, version, parameters) in cells.items()
    }
    env = {**layout.env, "LAYOUT_NODES": str(layout.nodes), "LAYOUT_NOTE": layout.note(device)}
    content = {
        "schema": 1, "campaign": f"layout-{name}", "device": device, "nodes": layout.nodes,
        "gpus_per_node": gpus_per_node, "stacks": {name: {"env": env, "python": None}}, "cells": whole,
        "launch_start_seconds": START_SECONDS[device],
        "launches": [{"stack": name, "repeat": 0, "cells": of_launch} for of_launch in launches],
    }  # fmt: skip
    return LayoutBatch(folder / "batches" / name, content)


def step(strategy: str) -> tuple[str, int, dict]:
    is_ddp = strategy == "ddp"
    parameters = {
        "model": "lm_tiny", "image_size": None, "context_length": 16, "batch_size": 2, "dtype": "fp32",
        "strategy": strategy, "bucket_cap_mb": 1 if strategy in ("ddp", "bucketed") else None,
        "gradient_as_bucket_view": False if is_ddp else None, "static_graph": False if is_ddp else None,
        "compression": "none" if is_ddp else None, "optimizer": "sgd", "compile": False, "channels_last": None,
    }  # fmt: skip
    return "train_step", version_of("train_step"), parameters


def collective(operation: str, dtype: str = "fp32") -> tuple[str, int, dict]:
    has_message, is_reduce = operation != "barrier", operation == "all_reduce"
    parameters = {"operation": operation, "message_bytes": 65536 if has_message else None}
    parameters |= {"dtype": dtype if has_message else None, "algorithm": "torch" if is_reduce else None}
    return "collective", version_of("collective"), parameters


def version_of(benchmark: str) -> int:
    return int(re.search(r"^VERSION = (\d+)$", (BENCH / f"{benchmark}.py").read_text(), re.MULTILINE)[1])


def mark_driver_records(note: str) -> None:
    """Add the note to the records that run_batches.py writes for dead ranks."""
    of_death = frozen_batch.record_of_death
    frozen_batch.record_of_death = lambda *fields: of_death(*fields) | {"note": note}


def preflight(layout: Layout, device: str, folder: Path) -> dict:
    """Run the preflight on the ranks of a layout; return what it saw, with NCCL's transports."""
    request = {"schema": 1, "stack": "layout", "launch": "layout-00", "nodes": layout.nodes, "device": device}
    request |= {"gpus_per_node": layout.num_ranks // layout.nodes, "backends": ["nccl" if device == "cuda" else "gloo"]}
    request |= {"start_timeout_seconds": 30, "error_dir": str(folder / "errors"), "argv": []}
    request |= {"image": None, "image_id": None, "out_file": str(folder / "preflight.json")}
    path, log = folder / "preflight.request.json", folder / "preflight.log"
    path.write_text(json.dumps(request))
    starter = [sys.executable, str(BENCH / "start_ranks.py"), f"--nproc-per-node={layout.num_ranks}"]
    env = {**layout.env, "NCCL_DEBUG": "INFO", "LAYOUT_NODES": str(layout.nodes), "LAYOUT_NOTE": layout.note(device)}
    environment = frozen_batch.rank_environment({"env": env})
    with log.open("wb") as output:
        line = [*starter, str(RANK_PROGRAM), "preflight", "--request", str(path)]
        options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT, "env": environment}
        starter = subprocess.Popen(line, preexec_fn=process.die_with_parent, **options)
        try:
            starter.wait(PREFLIGHT_SECONDS)
        except subprocess.TimeoutExpired:
            run_batches.stop(starter)
    text = log.read_text(errors="replace")
    try:
        seen = json.loads((folder / "preflight.json").read_text())
    except (OSError, ValueError):
        seen = {"placement_problems": ["no report"], "backends": []}
    return {
        "placement": seen["placement_problems"],
        "backends": {entry["backend"]: entry["cause"] or "ok" for entry in seen["backends"]},
        "networks": sorted(set(NETWORK.findall(text))),
        "transports": sorted({re.sub(r"/\d+(?=/|$)", "", name) for name in TRANSPORT.findall(text)}),
    }


def records(folder: Path) -> list[dict]:
    lines = [
        line for path in sorted((folder / "launches").glob("*.jsonl")) for line in frozen_batch.read_lines(path)[0]
    ]
    keys = ("cell", "status", "phase", "cause", "checks", "elapsed_ns", "note")
    return [{key: line.get(key) for key in keys} for line in lines if line["kind"] == "record"]


def num_left(folder: Path) -> int:
    """Return how many ranks of the layout still run, after a grace period: a call into a driver delays SIGKILL."""
    deadline = time.monotonic() + LEFT_SECONDS
    while True:
        count = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            count += str(RANK_PROGRAM).encode() in words and str(folder).encode() in words
        if count == 0 or time.monotonic() > deadline:
            return count
        time.sleep(0.2)


def problems(layout: Layout, device: str, batch: LayoutBatch, found: dict) -> list[str]:
    """Return all that was not as expected."""
    by_cell, wrong = {record["cell"]: record for record in found["records"]}, []
    for cell in batch.content["cells"]:
        record = by_cell.get(cell)
        expected = "timeout" if cell == "hang" else "ok"
        if record is None or record["status"] != expected:
            shown = f"{record['status']}, {record['cause']}" if record else "no record"
            wrong.append(f"{cell}: {shown}; expected {expected}")
        elif cell.startswith("collective") and not (record["checks"] and all(record["checks"].values())):
            wrong.append(f"{cell}: checks {record['checks']}")
        if record and record["note"] != found["note"]:
            wrong.append(f"{cell}: the record has no note")
    if found["num_left"]:
        wrong.append(f"{found['num_left']} processes left")
    if seen := found["preflight"]:
        wrong += [f"preflight: {text}" for text in seen["placement"]]
        wrong += [f"preflight, {name}: {cause}" for name, cause in seen["backends"].items() if cause != "ok"]
        if device == "cuda" and not (seen["transports"] and all(t.startswith("NET/") for t in seen["transports"])):
            wrong.append(f"preflight: transports {seen['transports']}; expected NET/Socket alone between nodes")
    return wrong


def write(folder: Path, found: dict) -> None:
    (folder / "layout.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
