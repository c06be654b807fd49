"""The report's section on the preflight: what failed and what to do, then all stacks side by side."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from regatta.core.text import NOT_PLANNED, UNKNOWN, plural, shape
from regatta.report.sources import Finding, Trace
from regatta.report.warnings import Advice
from regatta.run.preflight_verdict import libraries_named
from regatta.store.records import one_line

SHOWN_LIBRARIES = ("libnccl", "libnccl-net", "libfabric", "libcxi", "libibverbs", "libmpi")
MOST_HOSTS = 4


@dataclass(frozen=True)
class StackView:
    """What is said of one stack. log: its path beside the report, or None."""

    name: str
    ok: bool
    problems: list[str]
    notes: list[str]
    log: str | None


@dataclass(frozen=True)
class Row:
    """One line of the table: for each stack the lines of its cell. is_path: they are names of files."""

    name: str
    cells: list[list[str]]
    is_path: bool = False


@dataclass(frozen=True)
class PreflightSection:
    shape: str
    stacks: list[StackView]
    rows: list[Row]


def preflight_section(preflight: dict) -> PreflightSection:
    """Return the section for a preflight's result (docs/contracts.md)."""
    stacks = preflight["stacks"]
    rows = [
        Row("kind", [[one_line(stack["kind"])] for stack in stacks]),
        Row("image", [_known(stack["image"], stack["image_id"]) for stack in stacks], is_path=True),
        *(Row(name, [_cell(stack["seen"], tell) for stack in stacks]) for name, tell in FACTS),
        *(Row(name, [tell(stack["verdict"]) for stack in stacks]) for name, tell in NCCL_FACTS if _has_nccl(preflight)),
        *(
            Row(name, [_cell(stack["seen"], partial(_paths, name)) for stack in stacks], is_path=True)
            for name in SHOWN_LIBRARIES
        ),
    ]
    return PreflightSection(
        shape(preflight["nodes"], preflight["gpus_per_node"]),
        [_view(stack) for stack in stacks],
        [row for row in rows if any(cell not in ([NOT_PLANNED], [UNKNOWN]) for cell in row.cells)],
    )


def preflight_findings(section: PreflightSection | None) -> list[Finding]:
    """Return the finding if a stack failed."""
    failed = [stack.name for stack in section.stacks if not stack.ok] if section else []
    if not failed:
        return []
    text = f"{len(failed)} of {plural(len(section.stacks), 'stack')} failed the preflight: {', '.join(failed)}."
    trace = Trace("preflight/*.json", tuple(f"stack {name}" for name in failed))
    return [Finding(text, "preflight", "Preflight", (trace,))]


def preflight_advice(section: PreflightSection | None, measurements: pd.DataFrame) -> list[Advice]:
    """Return warnings of stacks with numbers in this report which the preflight failed, or did not look at."""
    if section is None:
        return []
    num_ok = (
        measurements.loc[measurements["status"] == "ok", "stack"].dropna().map(one_line).value_counts().sort_index()
    )
    told = {stack.name: stack.ok for stack in section.stacks}
    failed = {name: num for name, num in num_ok.items() if told.get(name) is False}
    unseen = {name: num for name, num in num_ok.items() if name not in told}
    trace = Trace("preflight/*.json", what="all stacks"), Trace("measurements.csv", what="ok, by stack")
    found = []
    if failed:
        found.append(Advice(
            f"There are numbers of {plural(len(failed), 'stack')} that failed the preflight: {_with_counts(failed)}.",
            "They may be of another software or network than the campaign says, and comparisons with them too. Mend what stands"
            " under Preflight; if it holds for what was measured before, measure that again (--forcerun measure).",
            traces=trace,
        ))  # fmt: skip
    if unseen:
        found.append(Advice(
            f"The preflight did not look at {plural(len(unseen), 'stack')} with numbers here: {_with_counts(unseen)}.",
            "What these ranks loaded is known from their launches alone (Provenance). Run the campaign's preflight with that stack in it, and"
            " compare only then.",
            traces=trace,
        ))  # fmt: skip
    return found


def _with_counts(stacks: dict[str, int]) -> str:
    return ", ".join(f"{name} ({plural(num, 'ok measurement')})" for name, num in stacks.items())


def _view(stack: dict) -> StackView:
    verdict = stack["verdict"]
    return StackView(
        one_line(stack["stack"]),
        verdict["ok"],
        [one_line(problem) for problem in verdict["problems"]],
        [one_line(note) for note in verdict["notes"]],
        # preflight/<id>/<launch>.log: the results folder, in which the report lies, is left out
        one_line("/".join(Path(stack["log"]).parts[-3:])) if stack.get("log") else None,
    )


def _known(*values: object, otherwise: str = NOT_PLANNED) -> list[str]:
    """Return the lines of a cell: the values that there are, or a sign for nothing."""
    return [one_line(value) for value in values if value is not None] or [otherwise]


def _cell(seen: dict | None, tell: Callable[[dict], list[str]]) -> list[str]:
    """Return what is told of the ranks' report, or n/a where they left none."""
    return [UNKNOWN] if seen is None else tell(seen)


def _has_nccl(preflight: dict) -> bool:
    return "nccl" in preflight["backends"]


def _ranks(seen: dict) -> list[str]:
    hosts = list(dict.fromkeys(one_line(rank["host"]) for rank in seen["ranks"]))
    named = ", ".join(hosts[:MOST_HOSTS]) + (", ..." if len(hosts) > MOST_HOSTS else "")
    return [f"{plural(len(seen['ranks']), 'rank')} on {plural(len(hosts), 'host')}", named]


def _gpus(seen: dict) -> list[str]:
    numbers = Counter(one_line(gpu.get("name")) for gpu in seen["environment"]["gpus"])
    return [f"{number} \N{MULTIPLICATION SIGN} {name}" for name, number in sorted(numbers.items())] or ["none"]


def _backends(seen: dict) -> list[str]:
    return _known(*(f"{tried['backend']} {'ok' if tried['ok'] else 'failed'}" for tried in seen["backends"]))


def _of_ranks(key: str, seen: dict) -> list[str]:
    return _known(*sorted({str(rank[key]) for rank in seen["ranks"] if rank[key] is not None}))


def _paths(name: str, seen: dict) -> list[str]:
    """Return where the ranks have a library from, and its paths."""
    found = {
        f"{library['origin']}: {library['path']}"
        for rank in seen["ranks"]
        for library in libraries_named(name, rank["libraries"])
    }
    return _known(*sorted(found))


def _network(verdict: dict) -> list[str]:
    provider = f"provider {verdict['provider']}" if verdict["provider"] else None
    return _known(verdict["network"], provider, otherwise=UNKNOWN)


FACTS = (
    ("ranks", _ranks),
    ("GPUs", _gpus),
    ("backends", _backends),
    ("torch", partial(_of_ranks, "torch")),
    ("driver", partial(_of_ranks, "driver")),
)
NCCL_FACTS = (
    ("NCCL", lambda verdict: _known(verdict["nccl"], otherwise=UNKNOWN)),
    ("network", _network),
    ("NCCL's plug-in", lambda verdict: _known(verdict["plugin"])),
    ("transports", lambda verdict: _known(*verdict["transports"], otherwise=UNKNOWN)),
)
