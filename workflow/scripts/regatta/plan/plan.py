"""Plan a campaign: which cells will run, are done or are skipped, and why; in which batches, at what cost."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import orjson

from regatta.campaign.expansion import CampaignMatrix, MatrixCell, content_hash, expand, whole
from regatta.campaign.load import Campaign, load_campaign
from regatta.campaign.program_entries import reading_advice
from regatta.campaign.script_entries import edited
from regatta.core.text import status_text
from regatta.launchers import RUN_LAUNCH, launch_argv, launcher_of
from regatta.launchers.base import Geometry
from regatta.model.frozen import FrozenCampaign, FrozenCell, fields_to_json
from regatta.plan.batches import Batch, make_batches
from regatta.plan.earlier import changed_since, changes_of, gone_cells, kept_of, notes_of_launches, with_earlier_ids
from regatta.plan.planned_references import check_references
from regatta.plan.prices import (
    BatchPrice,
    PreflightPrice,
    Prices,
    at_most_minutes,
    check_walltime,
    make_prices,
    sources_text,
    unknown_lengths,
)
from regatta.run.kept_outputs import KeptOutputs
from regatta.run.preflight import Preflight, plan_preflight
from regatta.runtimes.prologue_steps import before_by_hand
from regatta.store.history import ALWAYS_RETRIED, History, RecordSummary, read_history
from regatta.store.launch_files import read_file, write_json
from regatta.store.nodes import blame_text, blamed_nodes


@dataclass(frozen=True)
class CellPlan:
    """The plan of one cell. state: todo, done, not_ok (done, but a record is not ok) or skipped. reason: why.

    repeats: those left to measure. kept: by repeat, launches whose output is read instead. seconds: of a launch,
    without its start. kind: of reasons that are shown together; empty if these differ in numbers alone.
    """

    cell: MatrixCell
    state: str
    reason: str
    repeats: tuple[int, ...] = ()
    seconds: float = 0.0
    kind: str = ""
    kept: Mapping[int, str] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """Return the state as plan.json has it."""
        return "done" if self.state == "not_ok" else self.state


@dataclass(frozen=True)
class Plan:
    """A campaign compared with its store."""

    campaign: Campaign
    results: Path
    matrix: CampaignMatrix
    cells: list[CellPlan]
    skipped: list[CellPlan]
    batches: list[Batch]
    prices: Prices
    history: History
    preflights: tuple[Preflight, ...]  # one for each node type

    @property
    def preflights_to_run(self) -> list[Preflight]:
        return [preflight for preflight in self.preflights if not self.result_of(preflight).exists()]

    @property
    def kept(self) -> dict[str, list[FrozenCell]]:
        """Return by launch the cells for which its output is read again."""
        found: dict[str, list[FrozenCell]] = {}
        for planned in self.cells:
            for launch in planned.kept.values():
                found.setdefault(launch, []).append(planned.cell.frozen())
        return found

    def result_of(self, preflight: Preflight) -> Path:
        return self.results / "preflight" / f"{preflight.id}.json"

    def request_of(self, preflight: Preflight) -> Path:
        return self.results / "preflight" / preflight.id / "request.json"

    @property
    def blamed(self) -> dict[str, list[dict]]:
        """Return the nodes that jobs avoid, with the evidence so far: a run adds to it."""
        return blamed_nodes(self.results)

    @cached_property
    def frozen_campaign(self) -> Path:
        """Return the path of the frozen campaign, whose name has the hash of its content.

        In the hash, a cell's id stands for its spec, and one command for all of a benchmark and stack.
        """
        cells, skipped = self.matrix.cells, self.matrix.skipped
        parts = {
            "campaign": _frozen_frame(self),
            "cells": {cell.id: whole(cell.limit_seconds) for cell in cells},
            "skipped": [[cell.id, reason] for cell, reason in skipped],
            "commands": [cell.command for cell in {(cell.benchmark, cell.stack.name): cell for cell in cells}.values()],
        }
        return self.results / f"campaign.{content_hash(parts)}.json"

    @cached_property
    def batch_prices(self) -> list[BatchPrice]:
        """The estimate of each batch."""
        return list(map(self.prices.of_batch, self.batches))

    @property
    def preflight_prices(self) -> list[PreflightPrice]:
        """The estimate of each preflight that is to run."""
        return list(map(self.prices.of_preflight, self.preflights_to_run))


def make_plan(campaign_file: Path, results_root: Path, *, is_retry: bool = False, may_lack_files: bool = False) -> Plan:
    """Plan a campaign. Raises UserError if it cannot run as written.

    is_retry: repeat measurements whose record is not ok. may_lack_files: the plan is only shown, with a list of what
    this machine lacks to run it.
    """
    return plan_campaign(load_campaign(campaign_file, may_lack_files=may_lack_files), results_root, is_retry=is_retry)


def plan_campaign(campaign: Campaign, results_root: Path, *, is_retry: bool = False) -> Plan:
    """Plan a campaign that has been read."""
    results = results_root / campaign.name
    history = read_history(results)
    matrix, unknown_files = with_earlier_ids(expand(campaign), history)
    check_references(campaign, matrix.cells)
    changes = changes_of(matrix.cells, gone_cells(results, {cell.id for cell in matrix.cells}), history)
    prices = make_prices(campaign, matrix.cells, history, results)
    seconds = prices.expected.shares(matrix.cells)
    cells = [
        _plan_cell(campaign, cell, history, changes, is_retry, seconds[cell.id], unknown_files.get(cell.id, ()))
        for cell in matrix.cells
    ]
    outputs = KeptOutputs(results)
    cells = [_with_kept(planned, history, outputs) for planned in cells]
    skipped = [CellPlan(cell, "skipped", reason) for cell, reason in matrix.skipped]
    todo = [(plan.cell, repeat) for plan in cells for repeat in plan.repeats]
    check_walltime(campaign, (cell for cell, _ in todo), prices.reserved)
    preflights: dict[str | None, Preflight] = {}
    for kind in dict.fromkeys(cell.node_type for cell, _ in todo):
        chosen = [cell for cell, _ in todo if cell.node_type == kind]
        # The preflight is a program of torch, which a stack for other programs need not have.
        stacks = {cell.stack.name for cell in chosen if "program" not in cell.spec}
        if preflight := plan_preflight(campaign, [cell.shape for cell in chosen], stacks, results):
            preflights[kind] = preflight
    ids = {kind: preflight.id for kind, preflight in preflights.items()}
    batches = make_batches(campaign, todo, prices.reserved, results, ids, history.slots)
    return Plan(campaign, results, matrix, cells, skipped, batches, prices, history, tuple(preflights.values()))


def freeze_campaign(plan: Plan) -> FrozenCampaign:
    """Return the frozen campaign, which analysis and report read: all planned cells, measured or not."""
    cells = tuple(cell.frozen() for cell in plan.matrix.cells)
    skipped = tuple(cell.frozen(reason) for cell, reason in plan.matrix.skipped)
    return FrozenCampaign(**_frozen_frame(plan), cells=cells, skipped=skipped)


def _frozen_frame(plan: Plan) -> dict:
    """Return the frozen campaign without its cells."""
    data = plan.campaign.data
    optional = {"sweep": data["sweep"], "benchmarks": plan.campaign.declared, "references": data["gate"]["references"]}
    return {
        "schema": 1,
        "name": plan.campaign.name,
        "description": data["description"],
        "source": plan.campaign.file.path.name,
        "text": plan.campaign.file.text,
        "cluster": plan.campaign.cluster,
        **{key: data[key] for key in ("device", "repeats", "seed", "isolation", "baseline", "versus")},
        **({"allocations": data["allocations"]} if data["allocations"] > 1 else {}),
        **{name: value for name, value in optional.items() if value},
    }


def is_frozen_as_planned(plan: Plan) -> bool:
    """Return whether the frozen campaign is missing, or has exactly the planned content: damage and edits are not."""
    try:
        content = orjson.loads(read_file(plan.frozen_campaign))
        return orjson.dumps(content) == orjson.dumps(freeze_campaign(plan).to_json())
    except FileNotFoundError:
        return True
    except TypeError:  # lone surrogates, which orjson cannot write
        return True
    except (OSError, ValueError):
        return False


def tidy_frozen(plan: Plan) -> list[str]:
    """Rewrite a damaged frozen campaign, and delete those of earlier versions. Returns what was done.

    The rule that freezes runs only if the file is missing.
    """
    done = []
    if not is_frozen_as_planned(plan):
        write_json(plan.frozen_campaign, freeze_campaign(plan).to_json())
        done.append(f"{plan.frozen_campaign}: damaged or edited; rebuilt from the campaign file")
    for old in plan.results.glob("campaign.*.json") if plan.frozen_campaign.exists() else ():
        if old != plan.frozen_campaign:
            old.unlink()
            done.append(f"{old}: removed: it belonged to an earlier version of the campaign")
    return done


def write_frozen(plan: Plan) -> None:
    """Write the frozen campaign and the batches. Earlier frozen campaigns are deleted."""
    for batch in plan.batches:
        write_json(plan.results / "batches" / batch.id / "batch.json", batch.content)
    for preflight in plan.preflights_to_run:
        write_json(plan.request_of(preflight), fields_to_json(preflight))
    for old in plan.results.glob("campaign.*.json"):
        if old != plan.frozen_campaign:
            old.unlink()
    write_json(plan.frozen_campaign, freeze_campaign(plan).to_json())


def plan_json(plan: Plan) -> dict:
    """Return the content of plan.json."""
    preflight_costs = {
        price.preflight.id: {"minutes": price.minutes, "gpu_hours": price.gpu_hours} for price in plan.preflight_prices
    }
    return {
        "schema": 1,
        "campaign": plan.campaign.name,
        "source": str(plan.campaign.file.path),
        "totals": totals(plan),
        "preflights": [
            {
                "preflight": preflight.id,
                "status": "todo" if preflight in plan.preflights_to_run else "done",
                "nodes": preflight.nodes,
                "gpus_per_node": preflight.gpus_per_node,
                "node_type": preflight.cluster.get("node_type"),
                "stacks": list(preflight.stacks),
                **preflight_costs.get(preflight.id, {}),
            }
            for preflight in plan.preflights
        ],
        "batches": [price.to_json() for price in plan.batch_prices],
        "stacks": launch_lines(plan),
        "cells": [
            {
                "id": p.cell.id,
                "status": p.status,
                "reason": p.reason,
                "repeats": list(p.repeats),
                **({"read_again": list(p.kept.values())} if p.kept else {}),
                "seconds_per_launch": round(p.seconds, 3),
                "estimate_from": plan.prices.sources[p.cell.id],
            }
            for p in plan.cells
        ]
        + [{"id": p.cell.id, "status": p.status, "reason": p.reason} for p in plan.skipped],
        "missing": [missing._asdict() for missing in plan.campaign.missing],
        "notes": notes(plan),
    }


def totals(plan: Plan) -> dict:
    """Return the plan's sums: cells by status, launches, minutes and GPU hours, and the source of the estimate."""
    prices = [*plan.batch_prices, *plan.preflight_prices]
    sources = {word for price in plan.batch_prices for word in re.split(", | and ", price.estimate_from)}
    at_most = at_most_minutes(plan.campaign, plan.batches) + sum(of.minutes for of in plan.preflights_to_run)
    return {
        "todo": sum(p.status == "todo" for p in plan.cells),
        "done": sum(p.status == "done" for p in plan.cells),
        "skipped": len(plan.skipped),
        "batches": len(plan.batches),
        "launches": sum(len(batch.launches) for batch in plan.batches),
        "measurements": sum(len(p.repeats) for p in plan.cells),
        "outputs_read_again": len(plan.kept),
        "minutes": round(sum(price.minutes for price in prices), 2),
        "at_most_minutes": round(at_most, 1),
        "gpu_hours": round(sum(price.gpu_hours for price in prices), 4),
        "estimate_from": sources_text(sources),
    }


def notes(plan: Plan) -> list[str]:
    """Return notes for the user, to be read before the campaign runs."""
    found = list(plan.matrix.notes)
    processes = max((cell.gpus_per_node for cell in plan.matrix.cells), default=0)
    cores = os.cpu_count() or 1
    is_here = not launcher_of(plan.campaign.cluster).submits
    if is_here and plan.campaign.data["device"] == "cpu" and processes > cores:
        found.append(f"{processes} processes oversubscribe the {cores} cores of this machine, which slows them down")
    todo = [p.cell for p in plan.cells if p.status == "todo"]
    remedy = f"To use it again: .venv/bin/python3 workflow/scripts/clear_nodes.py {shlex.quote(str(plan.results))}"
    for host, evidence in plan.blamed.items() if not is_here else ():
        found.append(f"avoided if possible: {blame_text(host, evidence)}. {remedy} {shlex.quote(host)}")
    found += notes_of_launches([(p.cell, p.repeats) for p in plan.cells], plan.history, plan.results)
    return found + unknown_lengths(todo, plan.prices) + plan.history.problems


def nothing_to_retry(plan: Plan) -> str | None:
    """Return the message that a requested retry has nothing to repeat; None if it has."""
    if plan.batches:
        return None
    num = sum(plan.campaign.data["repeats"] for _ in plan.cells)
    return f"--forcerun measure: nothing to retry. All {num:,} measurements of {plan.campaign.name} are ok"


def launch_lines(plan: Plan) -> dict[str, str]:
    """Return for each stack the line that a launch of its largest shape runs, up to the request's name.

    Of a program, the line to run by hand: bench/program.sh and its arguments would hide the command.
    """
    by_size = sorted(plan.matrix.cells, key=lambda cell: cell.world_size)
    largest, lines = {cell.stack.name: cell for cell in by_size}, {}
    request = plan.results / "batches" / "BATCH" / "launches" / "LAUNCH.json"
    for stack, cell in largest.items():
        if "program" in cell.spec:
            lines[stack] = cell.command
            continue
        geometry = Geometry(cell.cluster, *cell.shape, cell.device)
        program = [str(RUN_LAUNCH), "--request", str(request)]
        lines[stack] = before_by_hand(cell.stack_entry) + shlex.join(launch_argv(geometry, cell.stack_entry, program))
    return lines


def _plan_cell(
    campaign: Campaign,
    cell: MatrixCell,
    history: History,
    changes: dict[str, tuple],
    is_retry: bool,
    seconds: float,
    unknown_files: Sequence[str] = (),
) -> CellPlan:
    """Plan one cell. unknown_files: of its program, whose content is not in its id (plan/earlier.py)."""
    repeats = campaign.data["repeats"]
    slots = {repeat: history.slots.get((cell.id, repeat)) for repeat in range(repeats)}
    stale = {repeat: paths for repeat, slot in slots.items() if (paths := _edited_files(slot, unknown_files, history))}
    recorded = {
        repeat: slot
        for repeat, slot in slots.items()
        if slot is not None and slot.status not in ALWAYS_RETRIED and repeat not in stale
    }
    bad = {repeat: slot for repeat, slot in recorded.items() if slot.status != "ok"}
    missing = [repeat for repeat in slots if repeat not in recorded]
    failure = next((f"{status_text(slot.status)}: {slot.cause}" for slot in bad.values()), None)
    if bad and is_retry:
        reason = f"retry requested: previously failed ({failure})"
        return CellPlan(cell, "todo", reason, tuple(sorted([*missing, *bad])), seconds, "retry requested")
    if missing:
        lost = next((slot for slot in slots.values() if slot is not None), None)
        damaged = next((history.lost[cell.id, repeat] for repeat in missing if (cell.id, repeat) in history.lost), None)
        if stale:
            paths = sorted(set().union(*stale.values()))
            kind, reason = f"changed: {paths[0]}", f"changed: {', '.join(paths)}, which the script loaded"
            reason = reason.removesuffix(", which the script loaded") if unknown_files else reason
        elif recorded:
            kind, lacking = "launches missing", f" or damaged ({damaged})" if damaged else ""
            reason = f"{len(missing)} of {repeats} launches missing{lacking}"
        elif damaged:
            kind = reason = f"its records are damaged or missing ({damaged})"
        elif lost:
            kind, reason = "previously failed", f"previously failed ({status_text(lost.status)}: {lost.cause})"
        else:
            kind, reason = changes.get(cell.id, ("new", "new"))
        return CellPlan(cell, "todo", reason, tuple(missing), seconds, kind)
    if bad:
        advice = reading_advice(cell.spec, [vars(slot) for slot in bad.values()])
        reason = f"{repeats - len(bad)} ok, {len(bad)} not ok ({failure}); {advice}--forcerun measure retries them"
        return CellPlan(cell, "not_ok", reason, (), seconds, "not read" if advice else "not ok")
    return CellPlan(cell, "done", f"{repeats} ok", (), seconds)


def _with_kept(planned: CellPlan, history: History, outputs: KeptOutputs) -> CellPlan:
    """Return the plan of a cell that reads kept outputs of its program as far as possible, and measures the rest."""
    kept, why = kept_of(planned.cell, planned.repeats, history, outputs)
    repeats = tuple(repeat for repeat in planned.repeats if repeat not in kept)
    if not kept or repeats:
        return replace(planned, repeats=repeats, kept=kept)
    reason = f"kept output is read again ({why or planned.reason})"
    return replace(planned, state="todo", reason=reason, repeats=(), kind="read again", kept=kept)


def _edited_files(slot: RecordSummary | None, unknown_files: Sequence[str], history: History) -> list[str]:
    """Return the files that are edited since a launch: the modules that a user's script loaded, and those whose content
    then was not recorded."""
    if slot is None:
        return []
    of_script = [path for path, digest in (slot.modules or {}).items() if edited(path, digest)]
    return of_script + changed_since(slot, unknown_files, history)
