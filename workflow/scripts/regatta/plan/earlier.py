"""Cells of earlier plans: what changed since, and which of their records still count."""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from regatta.campaign import executables
from regatta.campaign.expansion import CampaignMatrix, MatrixCell, canonical_json, cell_id
from regatta.campaign.program_entries import command_of
from regatta.core.text import one_line
from regatta.plan.versions import notes_of_versions
from regatta.run.kept_outputs import KeptOutputs
from regatta.runtimes import runtime_of
from regatta.store.frozen_files import SCHEMA, mismatch
from regatta.store.history import ALWAYS_RETRIED, History, RecordSummary
from regatta.store.launch_files import read_file

WHOLE = ("env", "scripts", "files", "executables")  # an entry that is added or removed is a change of the mapping
# So that adding or removing one of these counts as a change.
ABSENT = {"stack.scripts": None, "stack.prologue": None, "node_type": None, "hosts": None, "executables": None}


def with_earlier_ids(matrix: CampaignMatrix, history: History) -> tuple[CampaignMatrix, dict[str, list[str]]]:
    """Return the matrix, in which cells of programs keep the id of an earlier version or of an entry without `depends`,
    if it has records of the present files. Also returns the files that are not in such an id.

    A file without hash is the one of a record if it is older, unless a launch of the cell noted another one.
    """
    slots: dict[str, list[RecordSummary]] = {}
    for (cell, _), slot in history.slots.items():
        if slot.status not in ALWAYS_RETRIED:
            slots.setdefault(cell, []).append(slot)
    cells, unknown_files = [], {}
    for cell in matrix.cells:
        known = (
            ()
            if not slots or cell.id in slots or executables.KEY not in cell.spec
            else executables.earlier_specs(cell.spec)
        )
        for spec, files in known:
            earlier = cell_id(spec)
            ran = [of for slot in slots.get(earlier, ()) for of in history.programs.get(slot.launch, ())]
            if not executables.ran_others(files, ran) and any(
                not changed_since(slot, files, history) for slot in slots.get(earlier, ())
            ):
                cell, unknown_files[earlier] = replace(cell, id=earlier, spec=spec), files
                break
        cells.append(cell)
    return replace(matrix, cells=cells), unknown_files


def kept_of(
    cell: MatrixCell, missing: Iterable[int], history: History, outputs: KeptOutputs
) -> tuple[dict[int, str], str]:
    """Return the launches whose kept output is read for a cell, by repeat, and why if its records are to be replaced.

    A launch is repeated if the cell has a record that does not count: its program failed, or was to be repeated.
    """
    if "program" not in cell.spec:
        return {}, ""
    of_repeat = {repeat: slot for (of, repeat), slot in history.slots.items() if of == cell.id}
    kept = {
        repeat: launch
        for repeat in missing
        if repeat not in of_repeat and (cell.id, repeat) not in history.lost
        if (launch := outputs.find(cell.spec, repeat))
    }
    recorded = {repeat: slot for repeat, slot in of_repeat.items() if repeat not in missing}
    outdated = {repeat: slot.launch for repeat, slot in recorded.items() if outputs.is_outdated(slot, cell.spec)}
    why = "" if kept or not outdated else "an earlier version of Regatta read it"
    return dict(sorted((kept | outdated).items())), why


def changed_since(slot: RecordSummary, files: Iterable[str], history: History) -> list[str]:
    """Return the files of a program, of which a record has no hash, that may have changed since."""
    return executables.changed_files(files, slot.time_utc, history.programs.get(slot.launch, ()))


def notes_of_launches(
    planned: Sequence[tuple[MatrixCell, Sequence[int]]], history: History, results: Path
) -> list[str]:
    """Return notes on programs and versions that differ between launches. planned: cells, and repeats to measure."""
    return notes_of_programs([cell for cell, _ in planned], history) + notes_of_versions(planned, history, results)


def notes_of_programs(cells: Iterable[MatrixCell], history: History) -> list[str]:
    """Return notes on programs whose content is in no id, if launches ran different files, or others than today's."""
    launches: dict[str, set[str]] = {}
    for (cell, _), slot in history.slots.items():
        launches.setdefault(cell, set()).add(slot.launch)
    ran: dict[tuple[str, str], tuple[MatrixCell, set]] = {}
    for cell in (cell for cell in cells if "program" in cell.spec):
        files = executables.files_of(cell.spec, (), cell.stack_entry)
        if not files or str(files[0]) not in cell.spec.get(executables.KEY, {}):
            _, found = ran.setdefault((cell.parameters["program"], cell.stack.name), (cell, set()))
            for launch in launches.get(cell.id, ()):
                found |= {(of["path"], of["size_bytes"], of["time_utc"]) for of in history.programs.get(launch, ())}
    notes = []
    for (program, stack), (cell, found) in ran.items():
        for path in executables.unreadable(executables.files_of(cell.spec, (), cell.stack_entry), cell.cluster):
            text = f"program {program}, stack {stack}: {path} cannot be read here, so changes to it are not detected"
            notes.append(f"{text}. If only nodes have it, add its folder to node_folders of the cluster file")
        now = _file_now(cell, {path for path, *_ in found}) if found else None
        if len(found | ({now} if now else set())) > 1:
            *others, last = [f"{one_line(path)} ({size:,} bytes of {time})" for path, size, time in sorted(found)]
            here = f"; this machine has {now[0]} ({now[1]:,} bytes of {now[2]})" if now and now not in found else ""
            text = f"program {program}, stack {stack}: launches ran {' and '.join([*others, last])}{here}"
            notes.append(
                f"{text}. Their results share cells. To measure a changed program again, write its path in command"
            )
    return notes


def _file_now(cell: MatrixCell, paths: set[str]) -> tuple[str, int, str] | None:
    """Return the file that a program would run now with its size and time; None if only nodes or an image know.

    paths: those that launches ran.
    """
    stack, word = cell.stack_entry, command_of(cell.spec)[0]
    path = word if "/" in word else None
    if path is None and not runtime_of(stack).has_image and "prologue" not in stack:
        path = shutil.which(word, path=stack["env"].get("PATH"))
    path = runtime_of(stack).host_python({**stack, "python": path or min(paths)})
    if path is None or executables.is_of_nodes(path, cell.cluster):
        return None
    state = executables.state_of(path)
    return state and (str(path), *state)


def gone_cells(results: Path, now: set[str]) -> list[dict]:
    """Return the cells of the last frozen campaign that are not planned now; none if it cannot be read.

    Only these are checked against the schema: checking ten thousand cells would add a second to every plan.
    """
    for path in sorted(results.glob("campaign.*.json")):
        try:
            content = json.loads(read_file(path))
            gone = [cell for cell in content["cells"] if cell["id"] not in now]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # it is replaced by a new one
            continue
        if content.get("schema") == SCHEMA and not mismatch({"cells": gone}, "campaign", "cells"):
            return gone
    return []


def changes_of(cells: list[MatrixCell], gone: list[dict], history: History) -> dict[str, tuple[str, str]]:
    """Return kind and reason of each new cell that differs in one field from a cell that is no longer planned."""
    measured = {cell for cell, _ in history.slots}
    old: dict[str, object] = {}
    for cell in gone:
        flat = ABSENT | _flat(cell["spec"])
        old |= {_signature(flat, key): flat[key] for key in flat}
    changes = {}
    for cell in (cell for cell in cells if old and cell.id not in measured):
        flat = ABSENT | _flat(cell.spec)
        if key := next((key for key in flat if _signature(flat, key) in old), None):
            before, now = old[_signature(flat, key)], flat[key]
            if key in ("script.files", "module.files", "executables"):
                before, now = before or {}, now or {}
                edits = [path for path in {**before, **now} if before.get(path) != now.get(path)]
                changes[cell.id] = f"changed: {edits[0]}", f"changed: {', '.join(edits)}"
            else:
                kind = f"changed: {key}"
                changes[cell.id] = kind, f"{kind} {canonical_json(before)} -> {canonical_json(now)}"
    return changes


def _signature(flat: dict, without: str) -> str:
    return canonical_json([without, {key: value for key, value in flat.items() if key != without}])


def _flat(spec: dict, prefix: str = "") -> dict[str, object]:
    flat = {}
    for key, value in spec.items():
        if isinstance(value, dict) and key not in WHOLE:
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
