"""A results folder of a running campaign, made by hand: four cells on two ranks, three repeats. Times are injected."""

import json
import os
import socket
import time

from campaign_files import stack
from synthetic import collective_cell, make_campaign

from regatta.run.run_files import RunFiles
from regatta.run.run_state import run_state

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
A, B, C = "n01g02-aaaaaaaaaaaa", "n01g02-bbbbbbbbbbbb", "n01g02-cccccccccccc"
CELLS = [collective_cell(size, 1, 2) for size in (1024, 2048, 4096, 8192)]
IDS = [cell["id"] for cell in CELLS]


def utc(seconds_ago: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - seconds_ago))


class Folder:
    """A results folder, written line by line as Regatta would."""

    def __init__(self, path, **fields):
        self.path = path
        (path / "launches").mkdir(parents=True)
        self.write("campaign.0123456789ab.json", make_campaign(CELLS, **fields))

    def write(self, name, value):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def plan(self, *batches, seconds=10.0):
        cells = [{"id": cell, "status": "todo", "seconds_per_launch": seconds} for cell in IDS]
        self.write("plan.json", {"cells": cells, "batches": [{"batch": batch} for batch in batches]})

    def batch(self, name, launches, generation=1, frozen_ago=5000.0):
        """launches: (repeat, cells) of each."""
        content = {"schema": 1, "campaign": "laptop", "nodes": 1, "gpus_per_node": 2, "device": "cpu"}
        content["cluster"] = {"name": "local", "scheduler": "none"}
        content |= {"launch_start_seconds": 60, "preflight": None, "generation": generation}
        content |= {"stacks": {"host": stack()}}
        content["cells"] = {c["id"]: {key: c[key] for key in ("spec", "command", "limit_seconds")} for c in CELLS}
        content["launches"] = [{"repeat": repeat, "stack": "host", "cells": cells} for repeat, cells in launches]
        path = self.write(f"batches/{name}/batch.json", content)
        os.utime(path, (NOW - frozen_ago, NOW - frozen_ago))

    def append(self, launch, *lines):
        with (self.path / "launches" / f"{launch}.jsonl").open("a") as file:
            for line in lines:
                file.write(line if isinstance(line, str) else json.dumps(line) + "\n")

    def launch(self, launch, repeat, *records, ago=1000.0, generation=1):
        """records: (cell, status, seconds it took, seconds ago)."""
        header = {"kind": "launch", "repeat": repeat, "stack": "host", "time_utc": utc(ago), "generation": generation}
        self.append(launch, header, *(record(*found) for found in records))

    def manifest(self, name, *launches):
        """launches: (launch, repeat, [(cell, status, seconds, seconds ago)])."""
        entries = []
        for launch, repeat, records in launches:
            found = [{"cell": c, "status": s, "cause": None, "elapsed_s": e} for c, s, e, *_ in records]
            found = [f | {"time_utc": utc(*r[3:])} if r[3:] else f for f, r in zip(found, records, strict=True)]
            entry = {"launch": launch, "repeat": repeat, "stack": "host", "time_utc": utc(1000), "size_bytes": 1}
            entries.append(entry | {"overhead_s": 1.0, "records": found, "generation": 1})
        self.write(f"batches/{name}/manifest.json", {"schema": 1, "batch": name, "launches": entries})

    def job(self, name, kind, ago, job=None, cause="", **more):
        path = self.path / "batches" / name / "jobs.jsonl"
        line = {"kind": kind, "job": job, "hosts": [], "cause": cause, "time_utc": utc(ago)} | more
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def lock(self, name, pid=None, host=None, ago=0.0):
        """Write a lock file as `hold` leaves it. pid: by default this process."""
        path = self.write(name, f"{pid or os.getpid()} on {host or socket.gethostname()}")
        began = time.time() if not ago else NOW - ago
        os.utime(path, (began, began))

    def state(self, queue=None, **changes):
        return run_state(RunFiles(self.path), queue or {}, NOW, **changes)


def record(cell, status="ok", elapsed_s=4.0, ago=500.0, cause=None):
    cause = cause if cause or status == "ok" else f"cause of {status}"
    found = {"kind": "record", "cell": cell, "status": status, "cause": cause, "time_utc": utc(ago)}
    return found | {"elapsed_ns": None if elapsed_s is None else int(elapsed_s * 1e9)}


def launches(*repeats):
    return [(repeat, IDS) for repeat in repeats]
