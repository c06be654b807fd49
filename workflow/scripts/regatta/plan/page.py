"""Assemble plan.html: what plan.json and plan.txt say, as one page without scripts or foreign assets.

Only the scripts that write a plan for people import this module: it loads jinja2, which Snakemake need not wait for.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2

from regatta.campaign.matrix import Cell
from regatta.core.names import CellName, campaign_names
from regatta.core.text import natural, rank_word
from regatta.launchers import launcher_of
from regatta.plan.plan import Plan, plan_json
from regatta.plan.text import ESTIMATE_FROM, job_requests, missing_lines
from regatta.store.launch_files import write_text

# The cells of a plan as its page shows them: the matrix as a picture, and the reasons, grouped and counted.

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


def names_of(cells: list[PlannedCell]) -> dict[str, CellName]:
    """Return the name of each cell by its id."""
    return campaign_names({"cells": [{"id": c.cell.id, "spec": c.cell.spec} for c in cells], "skipped": []})


def workload_rows(cells: list[PlannedCell]) -> list[dict]:
    """Return the workloads in the order of the campaign: how many cells of each shape are in which state, and the same
    for each setting."""
    names, shapes = names_of(cells), sorted({cell.cell.shape for cell in cells})
    rows: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        rows.setdefault(names[cell.cell.id].parts["subject"], []).append(cell)
    found = []
    for name in rows:
        settings: dict[str, list[PlannedCell]] = {}
        for cell in rows[name]:
            settings.setdefault(names[cell.cell.id].without("shape").full, []).append(cell)
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


def _by_shape(cells: list[PlannedCell], shapes: list[tuple[int, int]]) -> list[list[tuple[str, int]]]:
    return [state_counts(cell for cell in cells if cell.cell.shape == shape) for shape in shapes]


def reason_groups(cells: list[PlannedCell]) -> list[tuple[str, list[dict]]]:
    """Return for each state its reasons, those of most cells first: kind, what it means, number, and parts.

    A part is (text, names) of the cells with one reason and the same repeats left. Its text is empty where the kind says it all.
    """
    names = names_of(cells)
    kinds: dict[tuple[str, str], dict[tuple, list[str]]] = {}
    for cell in cells:
        parts = kinds.setdefault((cell.state, _kind(cell)), {})
        parts.setdefault((cell.reason, cell.repeats), []).append(names[cell.cell.id].full)
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


TEMPLATES = Path(__file__).resolve().parents[3] / "report"
MAX_LISTED_LAUNCHES = 8  # of one repeat; more are counted by stack
MAX_OPEN_BATCHES = 12  # more are folded


def write_page(plan: Plan) -> None:
    write_text(plan.results / "plan.html", render(plan))


def render(plan: Plan) -> str:
    """Return the plan as a page. The same campaign and the same store give the same bytes."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= {"shape": _shape, "minutes": _minutes, "hours": _hours}
    return environment.get_template("plan.html.j2").render(_context(plan))


def _context(plan: Plan) -> dict:
    cells, saved = planned_cells(plan), plan_json(plan)
    gpu = rank_word(plan.campaign.data["device"])
    rows = workload_rows(cells)
    return {
        "style": (TEMPLATES / "style.css").read_text(encoding="utf-8"),
        "plan": saved,
        "totals": saved["totals"],
        "campaign": plan.campaign.data,
        "cluster": plan.campaign.cluster["name"],
        "text": plan.campaign.file.text,
        "gpu": gpu,
        "estimate": ESTIMATE_FROM.get(saved["totals"]["estimate_from"]),
        "launcher": launcher_of(plan.campaign.cluster),
        "states": STATES,
        "counts": state_counts(cells),
        "shape_bars": shape_bars(saved["batches"]),
        "workload_bars": _bars([{"name": row["name"], "gpu_hours": row["gpu_hours"]} for row in rows], "gpu_hours"),
        "shapes": sorted({cell.cell.shape for cell in cells}),
        "rows": rows,
        "reasons": reason_groups(cells),
        "batches": [batch | {"turns": turns(batch["launches"])} for batch in saved["batches"]],
        "max_open_batches": MAX_OPEN_BATCHES,
        "jobs": job_requests(plan),
        "missing": missing_lines(plan)[1:],
    }


def shape_bars(batches: list[dict]) -> list[dict]:
    """Return for each shape the sums of its batches, and how long the bars of its minutes and hours are in percent."""
    sums: dict[tuple[int, int], dict] = {}
    for batch in batches:
        shape = batch["nodes"], batch["gpus_per_node"]
        own = sums.setdefault(shape, {"shape": shape, "batches": 0, "launches": 0, "minutes": 0.0, "gpu_hours": 0.0})
        own["batches"] += 1
        own["launches"] += len(batch["launches"])
        own["minutes"] += batch["minutes"]
        own["gpu_hours"] += batch["gpu_hours"]
    return _bars(_bars([sums[shape] for shape in sorted(sums)], "minutes"), "gpu_hours")


def _bars(rows: list[dict], field: str) -> list[dict]:
    """Return rows with `<field>_percent`, of the largest value."""
    largest = max((row[field] for row in rows), default=0.0) or 1.0
    return [row | {f"{field}_percent": f"{100 * row[field] / largest:.1f}"} for row in rows]


def turns(launches: list[dict]) -> list[tuple[str, str]]:
    """Return (repeats, their stacks in turn with their cells), such as `0, 2` and `a (3 cells), b (3 cells)`."""
    by_repeat: dict[int, list[dict]] = {}
    for launch in launches:
        by_repeat.setdefault(launch["repeat"], []).append(launch)
    repeats: dict[str, list[int]] = {}
    for repeat, own in by_repeat.items():
        repeats.setdefault(_turn(own), []).append(repeat)
    return [(", ".join(map(str, found)), text) for text, found in repeats.items()]


def _turn(launches: list[dict]) -> str:
    """Return the launches of one repeat in their order, or their number by stack where there are many."""
    if len(launches) <= MAX_LISTED_LAUNCHES:
        return ", ".join(f"{launch['stack']} ({_plural(launch['num_cells'], 'cell')})" for launch in launches)
    numbers = Counter(launch["stack"] for launch in launches)
    return ", ".join(f"{stack} ({num:,} launches)" for stack, num in numbers.items())


def _plural(num: int, noun: str) -> str:
    return f"{num:,} {noun}{'' if num == 1 else 's'}"


def _shape(shape: tuple[int, int]) -> str:
    return "{}\N{MULTIPLICATION SIGN}{}".format(*shape)


def _minutes(minutes: float) -> str:
    return f"{minutes:,.1f}"


def _hours(hours: float) -> str:
    return f"{hours:,.2f}" if hours >= 1 else f"{hours:.3f}"
