"""Write synthetic results folders: frozen campaign and launch files as in docs/contracts.md, seeded, without torch.

By hand: `python tests/unit/synthetic.py OUT` writes OUT/laptop and OUT/cluster.
"""

import hashlib
import json
import math
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

SAMPLING = {
    "target_precision": 0.01,
    "min_seconds": 1.0,
    "max_seconds": 1.5,
    "min_samples": 10,
    "max_samples": 100000,
    "max_warmup_seconds": 1.0,
}
NO_ENVIRONMENT = {
    "python": "3.11.7",
    "torch": "2.12.1",
    "torchvision": "0.27.1",
    "cuda": None,
    "nccl": None,
    "cudnn": None,
}


def make_cell(benchmark: str, nodes: int, gpus: int, parameters: dict, **spec) -> dict:
    """Return a cell of the frozen campaign. spec: stack, device, backend, cluster."""
    stack = spec.get("stack", "host")
    full = {
        "benchmark": benchmark,
        "version": 1,
        "cluster": spec.get("cluster", "local"),
        "device": spec.get("device", "cpu"),
        "backend": spec.get("backend", "gloo"),
        "nodes": nodes,
        "gpus_per_node": gpus,
        "stack": {"name": stack, "kind": "host", "env": {}, "python": None},
        "parameters": parameters,
        "sampling": SAMPLING,
    }
    digest = hashlib.sha256(json.dumps(full, sort_keys=True).encode()).hexdigest()[:12]
    words = [parameters.get(name) for name in ("model", "strategy", "bucket_cap_mb", "operation", "message_bytes")]
    slug = "-".join(str(word) for word in (benchmark, *words) if word is not None)
    command = f"torchrun --standalone --nproc-per-node={gpus} workflow/scripts/bench/{benchmark}.py --spec '{json.dumps(parameters)}'"
    return {
        "id": f"{slug}-n{nodes:02d}g{gpus:02d}-{stack}-{digest}",
        "spec": full,
        "command": command,
        "limit_seconds": 60.0,
    }


def train_cell(model: str, nodes: int, gpus: int, strategy: str = "ddp", bucket: float | None = 25, **more) -> dict:
    wrapped = strategy != "none"
    parameters = {
        "model": model,
        "image_size": more.pop("image_size", 64),
        "batch_size": more.pop("batch_size", 8),
        "dtype": "fp32",
        "strategy": strategy,
        "bucket_cap_mb": bucket if wrapped else None,
        "gradient_as_bucket_view": False if wrapped else None,
        "static_graph": False if wrapped else None,
        "compression": "none" if wrapped else None,
        "optimizer": "sgd",
        "context_length": None,
        "compile": False,
        "channels_last": False,
    }
    return make_cell("train_step", nodes, gpus, parameters, **more)


def collective_cell(message_bytes: int | None, nodes: int, gpus: int, operation: str = "all_reduce", **more) -> dict:
    """message_bytes: None for a barrier."""
    algorithm = more.pop("algorithm", "torch" if operation == "all_reduce" else None)
    parameters = {"operation": operation, "message_bytes": message_bytes, "algorithm": algorithm}
    parameters |= {"dtype": None if message_bytes is None else more.pop("dtype", "fp32")}
    return make_cell("collective", nodes, gpus, parameters, **more)


def make_campaign(cells: list[dict], skipped: list[dict] = (), **fields) -> dict:
    """Return a frozen campaign."""
    campaign = {
        "schema": 1,
        "name": "laptop",
        "description": "Training of two small models with one and two processes on this machine, and the cost of gloo all-reduce.",
        "cluster": {"schema": 1, "name": "local", "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0},
        "repeats": 3,
        "seed": 1,
        "device": "cpu",
        "isolation": "launch",
        "source": "config.yaml",
        "text": "schema: 1\nname: laptop   # <verbatim>\n",
        "baseline": {"strategy": "none", "nodes": 1, "gpus_per_node": 1},
        "cells": cells,
        "skipped": list(skipped),
    }
    return campaign | fields


@dataclass
class Machine:
    """How long things take on a machine that does not exist, in seconds. `efficiency` is per doubling of ranks."""

    step_s: dict[str, float]
    gradient_bytes: dict[str, float]
    efficiency_per_doubling: float
    latency_s: float
    bytes_per_s: float
    noise: float = 0.01
    slowdown: dict[str, float] = field(default_factory=dict)  # by stack

    def seconds(self, spec: dict) -> float:
        parameters, ranks = spec["parameters"], spec["nodes"] * spec["gpus_per_node"]
        slowdown = self.slowdown.get(spec["stack"]["name"], 1.0)
        if spec["benchmark"] == "collective":
            hops = (2 if parameters["operation"] == "all_reduce" else 1) * (ranks - 1) / ranks
            return slowdown * (self.latency_s * ranks + hops * (parameters["message_bytes"] or 0) / self.bytes_per_s)
        step = self.step_s[parameters["model"]]
        if parameters["strategy"] == "none":
            return step
        buckets = self.gradient_bytes[parameters["model"]] / (parameters["bucket_cap_mb"] * 2**20)
        doublings = (ranks - 1).bit_length()
        return slowdown * step * (1.04 + 0.0004 * buckets * doublings) / self.efficiency_per_doubling**doublings


LAPTOP = Machine(
    {"resnet18": 0.115, "mobilenet_v3_small": 0.0421},
    {"resnet18": 46.8e6, "mobilenet_v3_small": 10.2e6},
    0.62,
    6e-5,
    2.1e9,
    0.012,
)
CLUSTER = Machine(
    {"resnet50": 0.023, "resnet101": 0.0405},
    {"resnet50": 102e6, "resnet101": 178e6},
    0.975,
    9e-6,
    95e9,
    0.004,
    {"bound": 1.021},
)

CHECKS = {"train_step": {"loss_is_finite": True}, "script": {}, "program": {"output_is_valid": True}}


def make_record(cell: dict, repeat: int, seconds: float, noise: float, rng: random.Random, time_utc: str) -> dict:
    """Return an ok record whose samples scatter to the right of `seconds`, as real ones do."""
    ranks = cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"]
    launch_s = seconds * rng.lognormvariate(0, noise)
    num = max(12, min(60, int(1.0 / launch_s)))

    def draw(scale: float) -> int:
        return int(launch_s * scale * (1 + rng.expovariate(1 / (2 * noise))) * 1e9)

    is_training = cell["spec"]["benchmark"] == "train_step"
    windows = {"steps_per_window": 5, "elapsed_ns": [[draw(4.85) for _ in range(4)] for _ in range(ranks)]}
    is_precise = rng.random() < 0.9
    return {
        "kind": "record",
        "cell": cell["id"],
        "spec": cell["spec"],
        "repeat": repeat,
        "command": cell["command"],
        "writer": "rank",
        "status": "ok",
        "phase": None,
        "cause": None,
        "time_utc": time_utc,
        "elapsed_ns": int(2.6e9),
        "setup_ns": 310000000,
        "warmup": {
            "num_iterations": 8,
            "elapsed_ns": int(8 * launch_s * 1e9),
            "first_iteration_ns": int(launch_s * 3.1e9),
            "stop": "steady",
        },
        "sampling": {
            "num_iterations": num,
            "elapsed_ns": int(num * launch_s * 1e9),
            "stop": "precision" if is_precise else "max_seconds",
            "half_width_ratio": 0.008 if is_precise else 0.019,
        },
        "samples_ns": [[draw(1.0) for _ in range(num)] for _ in range(ranks)],
        "slowest_rank_samples_ns": None,
        "rank_quantiles_ns": None,
        "windows": windows,
        "checks": CHECKS.get(cell["spec"]["benchmark"], {"result_is_correct": True}),
        "values": {},
        "memory": {
            "parameter_bytes": 46800000 if is_training else None,
            "gradient_bytes": 46800000 if is_training else None,
            "peak_rss_bytes": [610000000 + 1000 * rank for rank in range(ranks)],
            "peak_allocated_bytes": None,
            "peak_reserved_bytes": None,
        },
    }


def make_failure(cell: dict, repeat: int, status: str, phase: str, cause: str, time_utc: str) -> dict:
    """Return a record as the driver writes it for a cell that killed its ranks."""
    nothing = "setup_ns warmup sampling samples_ns slowest_rank_samples_ns rank_quantiles_ns windows parts_ns".split()
    return {
        "kind": "record",
        "cell": cell["id"],
        "spec": cell["spec"],
        "repeat": repeat,
        "command": cell["command"],
        "writer": "driver",
        "status": status,
        "phase": phase,
        "cause": cause,
        "time_utc": time_utc,
        "elapsed_ns": int(60e9) if status == "timeout" else int(1.2e9),
        **dict.fromkeys(nothing),
        "checks": None,
        "values": None,
        "memory": None,
    }


def make_header(campaign: dict, launch: str, repeat: int, cells: list[dict], time_utc: str, **environment) -> dict:
    spec = cells[0]["spec"]
    hosts = [
        {
            "host": f"node{node:03d}",
            "ranks": list(range(node * spec["gpus_per_node"], (node + 1) * spec["gpus_per_node"])),
            "devices": [
                f"{spec['device']}:{i}" if spec["device"] == "cuda" else "cpu" for i in range(spec["gpus_per_node"])
            ],
            "num_cores": 2 if spec["device"] == "cpu" else 72,
            "cpu_model": "Invented CPU",
            "memory_bytes": 25 * 10**9,
        }
        for node in range(spec["nodes"])
    ]
    return {
        "kind": "launch",
        "schema": 1,
        "campaign": campaign["name"],
        "batch": launch.rsplit("-", 2)[0],
        "launch": launch,
        "repeat": repeat,
        "stack": spec["stack"]["name"],
        "nodes": spec["nodes"],
        "gpus_per_node": spec["gpus_per_node"],
        "device": spec["device"],
        "time_utc": time_utc,
        "argv": [*start_line(campaign, spec), "run_launch.py", "--request", f"{launch}.json"],
        "order": [cell["id"] for cell in cells],
        "git": {"commit": "3f2a1c0d9e8b7a6f5e4d3c2b1a0f9e8d7c6b5a49", "is_dirty": False},
        "environment": {
            "hosts": hosts,
            **NO_ENVIRONMENT,
            "driver": None,
            "gpus": [],
            "kernel": "6.1.0",
            "threads_per_rank": 1,
            "libraries": ["/usr/lib/libtorch_cpu.so"],
            "variables": {"OMP_NUM_THREADS": "1"},
            "settings": {"allow_tf32_matmul": False, "cudnn_benchmark": False},
            "seconds_to_ready": 4.1,
            **environment,
        },
    }


def start_line(campaign: dict, spec: dict) -> list[str]:
    """Return what starts the ranks of a launch, by the scheduler of the campaign's cluster."""
    nodes, gpus = spec["nodes"], spec["gpus_per_node"]
    if campaign.get("cluster", {}).get("scheduler") == "slurm":
        return ["srun", f"--nodes={nodes}", f"--ntasks={nodes * gpus}", f"--ntasks-per-node={gpus}", "python3"]
    return ["torchrun", "--standalone", f"--nproc-per-node={gpus}"]


def write_results(
    folder: Path,
    campaign: dict,
    machine: Machine,
    faults: dict | None = None,
    seed: int = 1,
    pause_s: int | None = None,
) -> Path:
    """Write a results folder. faults: (cell id, repeat) -> (status, phase, cause), or "not_measured". Returns the folder.

    pause_s: between the cells of two launches, which follow each other. None: a launch starts each minute.
    """
    rng, faults, start = random.Random(seed), faults or {}, datetime(2026, 11, 21, 3, 1, 5)
    (folder / "launches").mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign, indent=1), encoding="utf-8")
    groups: dict[tuple, list[dict]] = {}
    for cell in campaign["cells"]:
        spec = cell["spec"]
        groups.setdefault((spec["nodes"], spec["gpus_per_node"], spec["stack"]["name"]), []).append(cell)
    for (nodes, gpus, stack), cells in sorted(groups.items()):
        batch = f"n{nodes:02d}g{gpus:02d}-{hashlib.sha256(stack.encode()).hexdigest()[:12]}"
        for repeat in range(campaign["repeats"]):
            time_utc = f"{start.isoformat()}Z"
            order = sorted(cells, key=lambda cell: cell["id"])
            rng.shuffle(order)
            launch = f"{batch}-l{repeat:03d}-a00"
            lines = [make_header(campaign, launch, repeat, order, time_utc)]
            for cell in order:
                fault = faults.get((cell["id"], repeat))
                if fault == "not_measured":
                    continue
                lines.append({"kind": "start", "cell": cell["id"], "time_utc": time_utc})
                if fault:
                    lines.append(make_failure(cell, repeat, *fault, time_utc))
                else:
                    lines.append(make_record(cell, repeat, machine.seconds(cell["spec"]), machine.noise, rng, time_utc))
            lines.append({"kind": "complete", "time_utc": time_utc, "elapsed_ns": int(41e9)})
            write_lines(folder / "launches" / f"{launch}.jsonl", lines)
            start += timedelta(seconds=60 if pause_s is None else math.ceil(cells_s(lines)) + pause_s)
    return folder


def write_lines(path: Path, lines: list[dict]) -> None:
    """Write a launch file with new line numbers and checksums, such as after a change of its lines."""
    from regatta.store.checksums import sealed_file

    added = ("line", "checksum", "digest")
    plain = [{key: value for key, value in line.items() if key not in added} for line in lines]
    path.write_bytes(sealed_file(plain, path.stem))


def edit_launches(folder: Path) -> Iterator[list[dict]]:
    """Yield the lines of each launch file, and write them as the caller has changed them."""
    for path in sorted((folder / "launches").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        yield lines
        write_lines(path, lines)


def edit_records(folder: Path) -> Iterator[dict]:
    """Yield each record of a store, and write it as the caller has changed it."""
    for lines in edit_launches(folder):
        yield from (line for line in lines if line["kind"] == "record")


def cells_s(lines: list[dict]) -> float:
    """Return the time that the records of a launch took."""
    return sum(line["elapsed_ns"] for line in lines if line["kind"] == "record") / 1e9


def laptop_campaign() -> dict:
    """Return the default campaign, frozen."""
    cells, skipped = [], []
    for model in ("resnet18", "mobilenet_v3_small"):
        cells.append(train_cell(model, 1, 1, "none"))
        reason = {"reason": "strategy none runs on 1 rank; this shape has 2"}
        skipped.append(train_cell(model, 1, 2, "none") | reason)
        cells += [train_cell(model, 1, gpus, "ddp", bucket) for gpus in (1, 2) for bucket in (1, 25)]
    cells += [collective_cell(4096 * 4**i, 1, 2) for i in range(7)]
    reason = {"reason": "a collective needs at least 2 ranks; this shape has 1"}
    skipped += [collective_cell(4096 * 4**i, 1, 1) | reason for i in range(7)]
    text = (Path(__file__).resolve().parents[2] / "config" / "config.yaml").read_text(encoding="utf-8")
    return make_campaign(cells, skipped, text=text)


def laptop_faults(campaign: dict) -> dict:
    """One cell each that failed, hung, ran out of memory, and was never reached."""
    ids = [cell["id"] for cell in campaign["cells"]]
    bucket_1 = next(i for i in ids if "mobilenet_v3_small-ddp-1-n01g02" in i)
    big = next(i for i in ids if "16777216" in i)
    return {
        (bucket_1, 0): (
            "failed",
            "warmup",
            "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:41873 <script>alert(1)</script>",
        ),
        (bucket_1, 1): ("timeout", "measure", "no record after 60 s; rank 1 waits in all_reduce"),
        (big, 1): (
            "out_of_memory",
            "setup",
            "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate 16777216 bytes",
        ),
        (big, 2): "not_measured",
    }


def tear_last_line(folder: Path) -> None:
    """Cut the last launch file in the middle of its last line, as a full disk does."""
    path = sorted((folder / "launches").glob("*.jsonl"))[-1]
    path.write_bytes(path.read_bytes()[:-20])


def cluster_campaign(repeats: int = 6) -> dict:
    """Return a campaign on GPUs: two stacks, shapes up to 8 nodes of 4, two collectives."""
    cells, skipped = [], []
    for stack in ("contained", "bound"):
        more = {"stack": stack, "device": "cuda", "backend": "nccl", "cluster": "gh200"}
        for model in ("resnet50", "resnet101"):
            train = more | {"batch_size": 32, "image_size": 224}
            cells.append(train_cell(model, 1, 1, "none", **train))
            for shape in ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (8, 4)):
                cells += [train_cell(model, *shape, "ddp", bucket, **train) for bucket in (1, 25, 100)]
        for operation in ("all_reduce", "all_gather"):
            for shape in ((1, 4), (8, 4)):
                cells += [collective_cell(1024 * 4**i, *shape, operation, **more) for i in range(11)]
    for cell in cells:
        if cell["spec"]["stack"]["name"] == "bound":  # else the two differ in their name alone, and are A/A
            cell["spec"]["stack"]["binds"] = ["/opt/lib:/host"]
    cluster = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
    return make_campaign(
        cells, skipped, name="stacks", description="Libraries in the image or from the host.", cluster=cluster,
        device="cuda", repeats=repeats,
    )  # fmt: skip


def write_laptop(folder: Path) -> Path:
    campaign = laptop_campaign()
    write_results(folder, campaign, LAPTOP, laptop_faults(campaign))
    tear_last_line(folder)
    return folder


class LazyTables(Mapping):
    """The collected tables, and the others that a report may have, each made at its first use."""

    def __init__(self, campaign, collected: dict) -> None:
        from regatta.topics.catalog import TABLES, _OnDemand

        self.made, self.names = _OnDemand(campaign, collected), (*collected, "cells", *TABLES)

    def __getitem__(self, name: str):
        if name not in self.names:
            raise KeyError(name)
        return self.made[name]

    def __setitem__(self, name: str, table) -> None:
        self.made[name] = table

    def __iter__(self):
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def analyse(folder: Path, collected: dict | None = None):
    """Return what a report of a results folder is made of, without its files and its preflights.

    collected: tables instead of those of the store.
    """
    from typed import collect, topics_of, typed

    from regatta.report.page import read_headers
    from regatta.store.frozen_files import read_frozen
    from regatta.topics.base import ReportData
    from regatta.topics.catalog import columns_by_table

    campaign, launches = read_frozen(next(folder.glob("campaign.*.json"))), folder / "launches"
    found, problems = collect(campaign, launches)
    tables = LazyTables(typed(campaign), collected or found)
    headers = read_headers(launches, tables["measurements"])
    return ReportData(
        typed(campaign),
        tables,
        headers,
        problems,
        launches,
        None,
        columns_by_table(typed(campaign)),
        tuple(topics_of(campaign)),
    )


def analyse_files(folder: Path):
    """Run collect and analyse on a results folder, as their command lines do. Returns what a report is made of."""
    from typed import collect, make_tables, read_collected

    from regatta.store.collect import write_collected
    from regatta.store.frozen_files import read_frozen
    from regatta.store.launch_files import write_json
    from regatta.topics.catalog import read_report_data, write_tables

    path = next(folder.glob("campaign.*.json"))
    campaign, measurements = read_frozen(path), folder / "measurements.csv"
    found, problems = collect(campaign, folder / "launches")
    write_collected(found, measurements)
    write_json(folder / "problems.json", problems)
    write_tables(make_tables(campaign, read_collected(campaign, measurements)), folder / "tables")
    files = measurements, folder / "problems.json", folder / "tables", folder / "launches"
    return read_report_data(path, *files, [*folder.glob("preflight/*.json")])


def report_data(campaign: dict, measurements, headers: list[dict] = (), **tables):
    """Return what a report is made of, with these tables and cells; others have no rows. preflight, problems: as given."""
    from typed import cells_table, topics_of, typed

    from regatta.store.csv_files import COLLECTED, make_table
    from regatta.topics.base import ReportData
    from regatta.topics.catalog import TABLES, columns_by_table

    problems = tables.pop("problems", {"corrupt": [], "invalid": []})
    preflight = tables.pop("preflight", None)
    empty = {name: make_table([], spec.columns) for name, spec in TABLES.items()}
    empty |= {name: make_table([], columns) for name, columns in COLLECTED.items()}
    empty["cells"] = tables.pop("cells") if "cells" in tables else cells_table(campaign, measurements)
    tables = {**empty, **tables, "measurements": measurements}
    more = {"columns": columns_by_table(typed(campaign)), "topics": tuple(topics_of(campaign))}
    return ReportData(typed(campaign), tables, list(headers), problems, Path("launches"), preflight, **more)


def lines_of(data) -> dict[str, SimpleNamespace]:
    """Return the lines of answer.json by their id."""
    from regatta.topics.summary import answer_json

    return {line["id"]: SimpleNamespace(**line) for line in answer_json(data)["lines"]}


def make_report(folder: Path) -> Path:
    """Run collect, analyse and report on a results folder, as their command lines do. Returns the report."""
    from regatta.store.launch_files import write_text
    from regatta.topics.catalog import render

    write_text(folder / "report.html", render(analyse_files(folder)))
    return folder / "report.html"


if __name__ == "__main__":
    write_laptop(Path(sys.argv[1]) / "laptop")
    write_results(Path(sys.argv[1]) / "cluster", cluster_campaign(), CLUSTER)
