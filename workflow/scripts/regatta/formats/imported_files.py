"""The lines of the launch files of one imported file: what was read, marked as imported, and nothing more."""

from collections import Counter
from pathlib import Path

from regatta.core.benchmarks import load_benchmark
from regatta.core.text import natural
from regatta.formats.base import Reading, Source
from regatta.store.launch_files import LaunchFile
from regatta.store.records import one_line

AGAIN = "_again"  # end of the stack's name under which the second of two equal rows stands
CLUSTER = "imported"


def spec_of(reading: Reading, source: Source, stack: str, software: str) -> dict:
    """Return the cell of a reading. Two stacks are alike only where the same processes measured a cell twice."""
    return {
        "benchmark": reading.benchmark,
        "version": reading.version or load_benchmark(reading.benchmark).version,
        "cluster": CLUSTER,
        "device": source.device,
        "backend": reading.backend or source.backend,
        "nodes": reading.nodes,
        "gpus_per_node": reading.gpus_per_node,
        "stack": {"name": stack, "kind": "imported", "env": {}, "python": None, "software": software},
        "parameters": reading.parameters,
        "sampling": None,
    }


def header_line(
    kind: str, source: Source, file: Path, digest: str, num_launches: int, place: dict, time_utc: str
) -> dict:
    """Return the first line of a launch file.

    kind: name of the format. num_launches: of the whole imported file, so that one that was not written is missed.
    place: campaign, batch, launch, repeat, stack, nodes, gpus_per_node, order.
    """
    unknown = {"hosts": [], "python": None, "torch": None, "libraries": [], "variables": {}, "settings": {}}
    return {
        "kind": "launch",
        "schema": 1,
        **place,
        "device": source.device,
        "time_utc": time_utc,
        "argv": [one_line(word) for word in source.argv],
        "git": None,
        "environment": unknown | {name: _encodable(value) for name, value in source.environment.items()},
        "imported": {
            "format": kind,
            "file": one_line(file.name),
            "sha256": digest,
            "num_launches": num_launches,
            "stack": place["stack"].removesuffix(AGAIN),
            "statistic": source.statistic,
            "measured_at": _encodable(source.measured_at),
            "notes": [one_line(note) for note in source.notes],
        },
    }


def _encodable(value: object) -> object:
    return one_line(value) if isinstance(value, str) else value


def record_line(cell: str, spec: dict, repeat: int, reading: Reading, time_utc: str) -> dict:
    samples = reading.samples_ns
    windows = None
    if samples is not None and reading.steps_per_window is not None:
        windows = {"steps_per_window": reading.steps_per_window, "elapsed_ns": samples}
    iterations, warmup = reading.num_iterations, reading.num_warmup
    untimed = {"elapsed_ns": None, "stop": None}
    return {
        "kind": "record",
        "cell": cell,
        "spec": spec,
        "repeat": repeat,
        "command": None,
        "writer": "import",
        "status": "failed" if reading.failure else "ok",
        "phase": "check" if reading.failure else None,
        "cause": reading.failure,
        "time_utc": time_utc,
        "elapsed_ns": None,
        "setup_ns": None,
        "warmup": None if warmup is None else {"num_iterations": warmup, "first_iteration_ns": None} | untimed,
        "sampling": None if iterations is None else {"num_iterations": iterations, "half_width_ratio": None} | untimed,
        "samples_ns": samples,
        "slowest_rank_samples_ns": reading.slowest_ns,
        "rank_quantiles_ns": None,
        "windows": windows,
        "checks": None,
        "values": None,
        "memory": None,
        "imported": {"line": reading.line, "times_s": reading.times_s, "printed": reading.printed},
    }


# The frozen campaign of a store that was imported: what report, comparison and gate read beside the launch files.

BASELINE = {"strategy": "none", "nodes": 1, "gpus_per_node": 1}


def launches_by_cell(store: list[LaunchFile]) -> Counter:
    """Return for each cell how many launches of it there are."""
    return Counter(line["cell"] for launch in store for _, line in launch.lines if line["kind"] == "record")


def frozen_campaign(name: str, store: list[LaunchFile]) -> dict:
    """Return the frozen campaign of everything that was imported. A cell has as many repeats as it has launches."""
    cells, repeats = {}, launches_by_cell(store)
    for launch in store:
        for _, line in launch.lines:
            if line["kind"] == "record":
                cells[line["cell"]] = line["spec"]
    files = {launch.header["imported"]["sha256"]: launch.header["imported"] for launch in store}
    sources = sorted(files.values(), key=lambda entry: (entry["stack"], entry["file"], entry["sha256"]))
    most = max(repeats.values(), default=1)
    return {
        "schema": 1,
        "name": name,
        "description": _description(sources),
        "source": "imported files",
        "text": "".join(_file_text(entry) for entry in sources),
        "cluster": {"schema": 1, "name": CLUSTER, "scheduler": "none"},
        "device": store[0].header["device"] if store else "cuda",
        "repeats": most,
        "seed": 0,
        "isolation": "launch",
        "baseline": BASELINE,
        "versus": {"axis": "stack", "reference": None, "margin": None},
        "cells": [
            {"id": cell, "spec": cells[cell], "command": None}
            | ({} if repeats[cell] == most else {"repeats": repeats[cell]})
            for cell in sorted(cells, key=natural)
        ],
        "skipped": [],
        "imported": sources,
    }


def _description(files: list[dict]) -> str:
    """Return what the head of the report says: that these numbers were not measured here, and what each time is."""
    by_format: dict[tuple[str, str], list[str]] = {}
    for entry in files:
        by_format.setdefault((entry["format"], entry["statistic"]), []).append(entry["file"])
    parts = [f"{', '.join(names)} ({kind}): {statistic}" for (kind, statistic), names in by_format.items()]
    return f"Imported, not measured by Regatta. A time is, in {'; in '.join(parts)}."


def _file_text(entry: dict) -> str:
    notes = "".join(f"  {note}\n" for note in entry["notes"])
    return f"{entry['file']}  {entry['format']}  stack {entry['stack']}  sha256 {entry['sha256']}\n{notes}"
