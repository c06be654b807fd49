"""The report's section on the preflight: what failed and what to do, then all stacks side by side."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regatta.core.text import NOT_PLANNED, UNKNOWN, plural, shape
from regatta.report.findings import PREFLIGHT, Advice, Finding, Source
from regatta.report.panels import Section
from regatta.run.preflight_verdict import libraries_named
from regatta.store.records import one_line
from regatta.topics.base import ReportData, Topic

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


def section(data: ReportData) -> Section | None:
    if data.preflight is None:
        return None
    shown = preflight_section(data.preflight)
    state = ("failed", "bad") if any(not stack.ok for stack in shown.stacks) else ("ok", "good")
    return Section("preflight", "Preflight", template="preflight.html.j2", content={"preflight": shown}, state=state)


def findings(data: ReportData) -> list[Finding]:
    """Return the finding on stacks that failed the preflight."""
    stacks = data.preflight["stacks"] if data.preflight else []
    failed = tuple(one_line(stack["stack"]) for stack in stacks if not stack["verdict"]["ok"])
    if not failed:
        return []
    source = Source(PREFLIGHT, tuple(f"stack {name}" for name in failed))
    return [Finding("preflight_failed", {"stacks": failed, "num_stacks": len(stacks)}, (source,))]


def sentence(finding: Finding) -> str:
    stacks, num = finding.values["stacks"], finding.values["num_stacks"]
    return f"Preflight: {len(stacks)} of {plural(num, 'stack')} failed ({', '.join(stacks)})."


def warnings(data: ReportData) -> list[Advice]:
    """Return warnings on stacks with numbers in this report that the preflight failed, or did not check."""
    if data.preflight is None:
        return []
    num_ok = data.ok["stack"].dropna().map(one_line).value_counts().sort_index()
    verdicts = {one_line(stack["stack"]): stack["verdict"]["ok"] for stack in data.preflight["stacks"]}
    failed = {name: num for name, num in num_ok.items() if verdicts.get(name) is False}
    unchecked = {name: num for name, num in num_ok.items() if name not in verdicts}
    sources = (Source(PREFLIGHT, what="all stacks"), Source("measurements.csv", what="ok, by stack"))
    found = []
    if failed:
        found.append(
            Advice(
                f"{plural(len(failed), 'stack')} with results failed the preflight: {_with_counts(failed)}.",
                "The results may come from other software or another network than the campaign says. Fix what Preflight"
                " lists; if it applied when the results were measured, measure them again (--forcerun measure).",
                sources,
                {"stacks": failed},
            )
        )
    if unchecked:
        found.append(
            Advice(
                f"The preflight did not check {plural(len(unchecked), 'stack')} with results: {_with_counts(unchecked)}.",
                "Only the launches themselves show what these ranks loaded (Provenance). Run a preflight with these stacks"
                " before comparing.",
                sources,
                {"stacks": unchecked},
            )
        )
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

TOPIC = Topic("preflight", "Preflight", {}, section, findings, sentence, warnings)
