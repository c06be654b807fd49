"""The cells of a plan as its page shows them: the matrix as a picture, and the reasons, grouped and counted."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from regatta.campaign.matrix import Cell
from regatta.cell_words import natural, varying_words, with_words
from regatta.planning.plan import Plan

# What became of a cell so far: its mark and its words. plan.json calls both `done` and `not_ok` done.
STATES = {
    "todo": ("\N{WHITE CIRCLE}", "to do"),
    "done": ("\N{CHECK MARK}", "done"),
    "not_ok": ("\N{MULTIPLICATION SIGN}", "done, not ok"),
    "skipped": ("\N{EN DASH}", "skipped"),
}
# What the words that a cell's reason begins with mean. Of those that are in it the first counts.
KINDS = {
    "asked for": "not ok before, and this plan was asked to measure it again",
    "failed before": "in a way that says nothing about the cell, such as a node that failed",
    "launches missing": "the store has records of some repeats",
    "changed": "one field differs from a cell of the plan before",
    "new": "the store has no record of it",
    "not ok": "the store has a record of each repeat; --forcerun measure tries again those that are not ok",
}


@dataclass(frozen=True)
class PlannedCell:
    """A cell of the matrix. `seconds` are those that it will take in all launches to come, without their starts."""

    cell: Cell
    state: str
    reason: str
    repeats: tuple[int, ...]
    seconds: float


def planned_cells(plan: Plan) -> list[PlannedCell]:
    """Return all cells of the matrix, those that are skipped last."""
    found = []
    for p in plan.cells:
        slots = (plan.history.slots.get((p.cell.id, repeat)) for repeat in range(plan.campaign.data["repeats"]))
        is_ok = all(slot is not None and slot.status == "ok" for slot in slots)
        state = "todo" if p.status == "todo" else "done" if is_ok else "not_ok"
        seconds = plan.price.cell_seconds(p.cell) * len(p.repeats)
        found.append(PlannedCell(p.cell, state, p.reason, p.repeats, seconds))
    return found + [PlannedCell(cell, "skipped", reason, (), 0.0) for cell, reason in plan.matrix.skipped]


def state_counts(cells: Iterable[PlannedCell]) -> list[tuple[str, int]]:
    """Return (state, number of cells) of the states that there are."""
    numbers = Counter(cell.state for cell in cells)
    return [(state, numbers[state]) for state in STATES if numbers[state]]


def words_of(cells: list[PlannedCell]) -> dict[str, str]:
    """Return for each cell what its id does not tell and sets it apart."""
    return varying_words({"cells": [{"id": c.cell.id, "spec": c.cell.spec} for c in cells], "skipped": []})


def workload(cell: Cell) -> str:
    """Return a benchmark and what it runs: the first parameter of a cell's name, such as the model."""
    return " ".join(setting(cell).split("-")[:2])


def setting(cell: Cell) -> str:
    """Return the part of a cell's id that holds its benchmark and parameters."""
    nodes, gpus_per_node = cell.shape
    digest = cell.id.rpartition("-")[2]
    return cell.id.removesuffix(f"-n{nodes:02d}g{gpus_per_node:02d}-{cell.spec['stack']['name']}-{digest}")


def workload_rows(cells: list[PlannedCell], words: dict[str, str]) -> list[dict]:
    """Return the workloads in the order of the campaign: how many cells of each shape are in which state, and the same
    for each setting."""
    shapes = sorted({cell.cell.shape for cell in cells})
    has_stacks = len({cell.cell.spec["stack"]["name"] for cell in cells}) > 1
    rows: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        rows.setdefault(workload(cell.cell), []).append(cell)
    found = []
    for name in rows:
        settings: dict[str, list[PlannedCell]] = {}
        for cell in rows[name]:
            stack = f", {cell.cell.spec['stack']['name']}" if has_stacks else ""
            settings.setdefault(with_words_of(cell.cell, words) + stack, []).append(cell)
        found.append(
            {
                "name": name,
                "num": len(rows[name]),
                "shapes": _by_shape(rows[name], shapes),
                "gpu_hours": sum(cell.seconds * cell.cell.world_size for cell in rows[name]) / 3600,
                "settings": [(own, _by_shape(settings[own], shapes)) for own in sorted(settings, key=natural)],
            }
        )
    return found


def with_words_of(cell: Cell, words: dict[str, str]) -> str:
    """Return the setting of a cell, with what its name does not tell behind it."""
    return f"{setting(cell)} ({words[cell.id]})" if cell.id in words else setting(cell)


def _by_shape(cells: list[PlannedCell], shapes: list[tuple[int, int]]) -> list[list[tuple[str, int]]]:
    return [state_counts(cell for cell in cells if cell.cell.shape == shape) for shape in shapes]


def reason_groups(cells: list[PlannedCell], words: dict[str, str]) -> list[tuple[str, list[dict]]]:
    """Return for each state its reasons, those of most cells first: kind, what it means, number, and parts.

    A part is (text, ids): cells of one reason with the same repeats left. Its text is empty where the kind says it all.
    """
    kinds: dict[tuple[str, str], dict[tuple, list[str]]] = {}
    for cell in cells:
        parts = kinds.setdefault((cell.state, _kind(cell)), {})
        parts.setdefault((cell.reason, cell.repeats), []).append(with_words(cell.cell.id, words))
    found: dict[str, list[dict]] = {state: [] for state in STATES}
    for (state, kind), parts in kinds.items():
        kind = _shared([reason for reason, _ in parts]) if state in ("done", "skipped") else kind
        found[state].append(
            {
                "kind": kind,
                "meaning": KINDS.get(kind.partition(":")[0]),
                "num": sum(map(len, parts.values())),
                "parts": [
                    (_part_text(kind, *key), sorted(parts[key], key=natural))
                    for key in sorted(parts, key=lambda key: (natural(key[0]), key[1]))
                ],
            }
        )
    return [(state, sorted(own, key=lambda g: (-g["num"], natural(g["kind"])))) for state, own in found.items() if own]


def _kind(cell: PlannedCell) -> str:
    """Return the group of a cell's reason: the reason without what differs from cell to cell."""
    if cell.state == "not_ok":
        return "not ok"
    if cell.state != "todo":
        return re.sub(r"\d+", "0", cell.reason)
    if cell.reason.startswith("changed: "):
        return " ".join(cell.reason.split(" ")[:2])
    return next((kind for kind in KINDS if kind in cell.reason.partition("(")[0]), cell.reason)


def _shared(reasons: list[str]) -> str:
    """Return what reasons have in common that differ in numbers alone, with an ellipsis for each number that differs."""
    texts = zip(*(re.split(r"(\d+)", reason) for reason in reasons), strict=True)
    return "".join(own[0] if len(set(own)) == 1 else "\N{HORIZONTAL ELLIPSIS}" for own in texts)


def _part_text(kind: str, reason: str, repeats: tuple[int, ...]) -> str:
    own = [] if reason == kind else [reason]
    if repeats:
        own.append(f"{'repeat' if len(repeats) == 1 else 'repeats'} {', '.join(map(str, repeats))}")
    return "; ".join(own)
