"""The frozen campaign of a store that was imported: what report, comparison and gate read beside the launch files."""

from collections import Counter

from regatta.cell_words import natural
from regatta.formats.imported_lines import CLUSTER
from regatta.store.launch_files import LaunchFile

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
    told = sorted(files.values(), key=lambda entry: (entry["stack"], entry["file"], entry["sha256"]))
    most = max(repeats.values(), default=1)
    return {
        "schema": 1,
        "name": name,
        "description": _description(told),
        "source": "imported files",
        "text": "".join(_file_text(entry) for entry in told),
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
        "imported": told,
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
