"""The report's section on the preflight: failed stacks with what to do, then all stacks side by side."""

from collections import Counter
from pathlib import Path

from regatta.core.text import NOT_PLANNED, UNKNOWN, one_line, plural, shape
from regatta.kit.kinds import LOW, NOTE, RESULT, Kind, joined
from regatta.report.findings import PREFLIGHT, Finding, Source
from regatta.report.panels import Section
from regatta.run.preflight_verdict import libraries_named
from regatta.topics.base import ReportData, Topic

SHOWN_LIBRARIES = ("libnccl", "libnccl-net", "libfabric", "libcxi", "libibverbs", "libmpi")
PATHS = ("image", *SHOWN_LIBRARIES)

PreflightRow = tuple[str, list[list[str]], bool]  # name, the lines of each stack's cell, whether they are paths


def section(data: ReportData) -> Section | None:
    if data.preflight is None:
        return None
    stacks = [_stack(stack) for stack in data.preflight["stacks"]]
    content = {"shape": shape(data.preflight["nodes"], data.preflight["gpus_per_node"]), "stacks": stacks}
    state = ("ok", "good") if all(stack["ok"] for stack in stacks) else ("failed", "bad")
    content["rows"] = preflight_rows(data.preflight)
    return Section("preflight", "Preflight", template="preflight.html.j2", content=content, state=state)


KINDS = (
    Kind("preflight_failed", RESULT, "Preflight: {num_failed} of {num_stacks:stack} failed ({stacks})."),
    Kind(
        *("unreliable_stacks", LOW, "Failed preflight: {num:stack} with results ({listed})."),
        advice="Software or network may not be the planned ones. Fix the problems under Preflight, then measure again.",
        next_step="fix the problems under Preflight; measure again under a new `name`",
    ),
    Kind(
        *("unchecked_stacks", NOTE, "No preflight: {num:stack} with results ({listed})."),
        advice="Only Provenance shows the libraries of their ranks. Run a preflight before comparing these stacks.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the findings on stacks that failed the preflight, and on those with results that it did not pass."""
    if data.preflight is None:
        return []
    verdicts: dict[str, bool] = {}
    for stack in data.preflight["stacks"]:  # once for each node type
        name = one_line(stack["stack"])
        verdicts[name] = stack["verdict"]["ok"] and verdicts.get(name, True)
    failed = tuple(name for name, is_ok in verdicts.items() if not is_ok)
    values = {"stacks": failed, "num_stacks": len(verdicts), "num_failed": len(failed)}
    source = Source(PREFLIGHT, tuple(f"stack {name}" for name in failed))
    found = [Finding("preflight_failed", values, (source,))] if failed else []
    stacks = data.ok["stack"].dropna().map(one_line)
    sources = (Source(PREFLIGHT, what="all stacks"), Source("measurements.csv", what="ok, by stack"))
    for kind, verdict in (("unreliable_stacks", False), ("unchecked_stacks", None)):
        rows = stacks[[verdicts.get(name) is verdict for name in stacks]]
        counts = {name: int(num) for name, num in rows.value_counts().sort_index().items()}
        words = {
            "num": len(counts),
            "listed": [f"{name}: {plural(num, 'measurement')}" for name, num in counts.items()],
        }
        cells = tuple(data.ok.loc[rows.index, "cell"].unique())
        found += [Finding(kind, {"stacks": counts}, sources, cells, "warnings", words)] if counts else []
    return found


def _stack(stack: dict) -> dict:
    """Return the verdict on one stack. log: its path beside the report, or None."""
    verdict = stack["verdict"]
    return {
        "name": one_line(stack["stack"]),
        "ok": verdict["ok"],
        "problems": [one_line(problem) for problem in verdict["problems"]],
        "notes": [one_line(note) for note in verdict["notes"]],
        # Relative to the results folder: preflight/<id>/<launch>.log
        "log": one_line("/".join(Path(stack["log"]).parts[-3:])) if stack.get("log") else None,
    }


def preflight_rows(preflight: dict) -> list[PreflightRow]:
    """Return the rows of the table on a preflight's result (docs/contracts.md), without those that are empty."""
    columns = [_lines(stack, "nccl" in preflight["backends"]) for stack in preflight["stacks"]]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, [column[name] for column in columns], name in PATHS) for name in names]
    return [row for row in rows if any(cell not in ([NOT_PLANNED], [UNKNOWN]) for cell in row[1])]


def _lines(stack: dict, has_nccl: bool) -> dict[str, list[str]]:
    """Return the lines of each cell of a stack; what its ranks report is n/a if they wrote none."""
    verdict, report, ranks = stack["verdict"], stack["seen"], (stack["seen"] or {"ranks": []})["ranks"]
    found = {"kind": _known(stack["kind"]), "image": _known(stack["image"], stack["image_id"])}
    found |= {name: [UNKNOWN] for name in ("ranks", "GPUs", "backends", "torch", "driver")}
    if report:
        hosts = list(dict.fromkeys(one_line(rank["host"]) for rank in ranks))
        found["ranks"] = [f"{plural(len(ranks), 'rank')} on {plural(len(hosts), 'host')}", joined(hosts)]
        gpus = sorted(Counter(one_line(gpu.get("name")) for gpu in report["environment"]["gpus"]).items())
        found["GPUs"] = [f"{num} \N{MULTIPLICATION SIGN} {name}" for name, num in gpus] or ["none"]
        tried = (f"{one['backend']} {'ok' if one['ok'] else 'failed'}" for one in report["backends"])
        found["backends"] = _known(*tried)
        for key in ("torch", "driver"):
            found[key] = _known(*sorted({str(rank[key]) for rank in ranks if rank[key] is not None}))
    if has_nccl:
        provider = f"provider {verdict['provider']}" if verdict["provider"] else None
        found["NCCL"] = _known(verdict["nccl"], otherwise=UNKNOWN)
        found["network"] = _known(verdict["network"], provider, otherwise=UNKNOWN)
        found["NCCL plugin"] = _known(verdict["plugin"])
        found["transports"] = _known(*verdict["transports"], otherwise=UNKNOWN)
    for name in SHOWN_LIBRARIES:
        libraries = (library for rank in ranks for library in libraries_named(name, rank["libraries"]))
        paths = sorted({f"{library['origin']}: {library['path']}" for library in libraries})
        found[name] = _known(*paths) if report else [UNKNOWN]
    return found


def _known(*values: object, otherwise: str = NOT_PLANNED) -> list[str]:
    """Return the lines of a cell: the known values, or `otherwise`."""
    return [one_line(value) for value in values if value is not None] or [otherwise]


TOPIC = Topic(*("preflight", "Preflight", {}, section, findings), is_of_sweeps=True, is_judge=True, kinds=KINDS)
