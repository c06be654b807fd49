"""Note mixed versions: those that the launches of a stack ran, and those installed for the remaining ones."""

import re
from collections.abc import Sequence
from pathlib import Path

from regatta.campaign.expansion import MatrixCell
from regatta.core.text import one_line, plural
from regatta.launchers import launcher_of
from regatta.runtimes import runtime_of
from regatta.store.history import History
from regatta.store.launch_files import read_one_line

NAMES = {"torch": "torch", "cuda": "CUDA", "nccl": "NCCL"}  # keys of a launch's environment
# In torch/version.py. Only a running torch knows NCCL's version.
INSTALLED = {
    "torch": re.compile(r"^__version__\s*(?::.*)?=\s*'([^']+)'", re.MULTILINE),
    "cuda": re.compile(r"^cuda\s*(?::.*)?=\s*'([^']+)'", re.MULTILINE),
}
VERSION_FILES = "lib*/python3*/*-packages/torch/version.py"


def notes_of_versions(
    planned: Sequence[tuple[MatrixCell, Sequence[int]]], history: History, results: Path
) -> list[str]:
    """Return a note for each stack with cells that mix versions, or would. planned: cells, and repeats to measure."""
    todo = {cell.id: repeats for cell, repeats in planned}
    launches: dict[str, set[str]] = {}
    for (cell, repeat), slot in history.slots.items():
        if cell in todo and repeat not in todo[cell]:
            launches.setdefault(cell, set()).add(slot.launch)
    ran = {launch: _recorded(results, launch) for launch in set().union(*launches.values())}
    of_stacks: dict[str, list[MatrixCell]] = {}
    for cell, _ in planned:
        of_stacks.setdefault(cell.stack.name, []).append(cell)
    notes = []
    for stack, cells in of_stacks.items():
        installed = _installed(cells[0]) if any(todo[cell.id] for cell in cells) else {}
        texts, mixing = [], set()
        for name, label in NAMES.items():
            found = {cell.id: {ran[launch][name] for launch in launches.get(cell.id, ())} - {None} for cell in cells}
            measured, now = set().union(*found.values()), installed.get(name)
            next_ones = {now} - {None}
            mixed = {cell for cell, old in found.items() if old and len(old | (next_ones if todo[cell] else set())) > 1}
            mixing |= mixed
            if mixed or (measured and next_ones - measured):
                by_number = sorted(measured - {now}, key=lambda text: [*map(int, re.findall(r"\d+", text))])
                shown = [*by_number, *([f"{now} (installed)"] if now else [])]
                texts.append(f"{label} {', '.join(shown[:-1])} and {shown[-1]}")
        if texts:
            what = f"{plural(len(mixing), 'cell mixes', 'cells mix')} versions"
            what = what if mixing else "new cells would use other versions than measured ones"
            remedy = "To separate them, measure under a new `name`"
            notes.append(f"stack {stack}: {what}: {'; '.join(texts)}. {remedy}")
    return notes


def _recorded(results: Path, launch: str) -> dict[str, str | None]:
    """Return the versions that a launch ran; None: not recorded."""
    header = read_one_line(results / "launches" / f"{launch}.jsonl", 1) or {}
    environment = header.get("environment")
    known = environment if isinstance(environment, dict) else {}
    return {name: one_line(known[name]) if isinstance(known.get(name), str) else None for name in NAMES}


def _installed(cell: MatrixCell) -> dict[str, str]:
    """Return the versions in the environment of a stack's Python, without starting it; empty if they are uncertain."""
    stack, runtime = cell.stack_entry, runtime_of(cell.stack_entry)
    python = stack["python"] or (None if runtime.has_image else runtime.default_python)
    if python is None or "PYTHONPATH" in stack["env"]:
        return {}
    if "/" not in python and ("prologue" in stack or launcher_of(cell.cluster).submits):  # found on the nodes' PATH
        return {}
    path = runtime.host_python({**stack, "python": python})
    try:
        if path is None or path.open("rb").read(2) == b"#!":  # a wrapper may start any Python
            return {}
        for folder in dict.fromkeys((path.parents[1], path.resolve().parents[1])):
            if files := {file.resolve() for file in folder.glob(VERSION_FILES)}:  # lib64 is often a link to lib
                text = files.pop().read_text(encoding="utf-8") if len(files) == 1 else ""
                return {name: found[1] for name, pattern in INSTALLED.items() if (found := pattern.search(text))}
    except (OSError, ValueError, IndexError):
        pass
    return {}
