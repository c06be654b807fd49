"""Stores with a planted truth: each effect, failure and disturbance is a function of cell, repeat and nodes."""

import itertools
import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from synthetic import analyse, make_failure, make_header, make_record, write_lines
from typed import cell_row

from regatta.store.csv_files import COLLECTED, make_table
from regatta.topics.base import ReportData
from regatta.topics.catalog import write_report
from regatta.topics.summary import answer_json
from regatta.topics.warnings_section import warnings

Truth = Callable[[dict, int, list[str]], object]  # spec, repeat, nodes of the launch


def plant(folder: Path, campaign: dict, seconds: Truth, fault: Truth = lambda *_: None, **options) -> Path:
    """Write a results folder: a batch for each shape and allocation, whose launches alternate between stacks.

    seconds: time of a step or call. fault: status, phase and cause, or None. Options: nodes, a function of shape and
    allocation; slow, the factor of nodes, which launches wait for; load, the CPU share of other processes by repeat;
    noise, within and between launches.
    """
    nodes = options.get("nodes", lambda num, _: [f"n{i + 1:02d}" for i in range(num)])
    noise, load, slow = options.get("noise", 0.004), options.get("load"), options.get("slow", {})
    rng = random.Random(1)
    (folder / "launches").mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    start, repeats, allocations = datetime(2026, 11, 21, 3, 1, 5), campaign["repeats"], campaign.get("allocations", 1)
    shapes: dict[tuple, dict[str, list]] = {}
    for cell in campaign["cells"]:
        spec = cell["spec"]
        stacks = shapes.setdefault((spec["nodes"], spec["gpus_per_node"]), {})
        stacks.setdefault(spec["stack"]["name"], []).append(cell)
    for (num, gpus), stacks in sorted(shapes.items()):
        for number, (repeat, cells) in enumerate((r, cells) for r in range(repeats) for cells in stacks.values()):
            allocation, time_utc = repeat * allocations // repeats, f"{start.isoformat()}Z"
            launch, hosts = f"n{num:02d}g{gpus:02d}-{allocation:012x}-l{number:03d}-a00", nodes(num, allocation)
            header = make_header(campaign, launch, repeat, cells, time_utc)
            for host, name in zip(header["environment"]["hosts"], hosts, strict=True):
                host["host"] = name
            lines = [header]
            for cell in cells:
                lines.append({"kind": "start", "cell": cell["id"], "time_utc": time_utc})
                if found := fault(cell["spec"], repeat, hosts):
                    lines.append(make_failure(cell, repeat, *found, time_utc))
                    continue
                time, factors = seconds(cell["spec"], repeat, hosts), [slow.get(host, 1) for host in hosts]
                lines.append(make_record(cell, repeat, time * max(factors), noise, rng, time_utc))
                if slow and cell["spec"]["benchmark"] == "train_step":
                    computing = [1e9 * time * factor for factor in factors for _ in range(gpus)]
                    times = [[int(ns * (1 + rng.expovariate(1 / noise))) for _ in range(20)] for ns in computing]
                    lines[-1]["parts_ns"] = {"no_sync": times}
                if load:
                    times = {"num_cores": 2, "elapsed_ns": 10**9, "ranks_cpu_ns": 5 * 10**8, "unknown": {}}
                    times["busy_ns"] = 5 * 10**8 + int(2e9 * load[repeat])
                    lines[-1]["host_load"] = {"hosts": [{"rank": 0, **times}], "gpus": []}
            lines.append({"kind": "complete", "time_utc": time_utc, "elapsed_ns": int(41e9)})
            write_lines(folder / "launches" / f"{launch}.jsonl", lines)
            start += timedelta(seconds=90)
    return folder


def plant_tables(folder: Path, campaign: dict, seconds: Callable[[dict, random.Random], float]) -> ReportData:
    """Write the tables of a store of many cells, each launch with the time `seconds`, and return the report's data."""
    rng, rows = random.Random(1), []
    for cell, repeat in itertools.product(campaign["cells"], range(campaign["repeats"])):
        spec, time = cell["spec"], seconds(cell["spec"], rng)
        launch = f"n{spec['nodes']:02d}g{spec['gpus_per_node']:02d}-{0:012x}-{spec['stack']['name']}-l{repeat:03d}-a00"
        row = cell_row(cell) | {"repeat": repeat, "status": "ok", "launch": launch, "p50_s": time}
        row |= {"line": 3, "position": 1, "num_iterations": 60, "elapsed_s": 2.6, "time_utc": "2026-11-21T03:01:05Z"}
        rows.append(row | {"window_step_s": time})
    (folder / "launches").mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    tables = {name: make_table(rows if name == "measurements" else [], names) for name, names in COLLECTED.items()}
    return analyse(folder, tables)


class Said:
    """What a report says: answer.json, its `lines` by id as values, and the warnings. has_page: else only answer.json."""

    def __init__(self, data: ReportData, has_page: bool = True) -> None:
        if has_page:
            write_report(data, data.launches.with_name("report.html"))
        path = data.launches.with_name("answer.json")
        self.data, self.answer = data, json.loads(path.read_text("utf-8")) if has_page else answer_json(data)
        self.lines = {line["id"]: line["values"] for line in self.answer["lines"]}
        self.warnings = warnings(data)
