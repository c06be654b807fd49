"""The report's section on the preflight: failed stacks with what to do, then all stacks side by side."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from regatta.core.text import one_line, plural, shape
from regatta.kit.kinds import LOW, NOTE, RESULT, Kind, joined
from regatta.report.findings import PREFLIGHT, Finding, Source
from regatta.report.page import facts_table, marked_status
from regatta.report.panels import Section, Table
from regatta.run.preflight_verdict import libraries_named
from regatta.tables.facts import Fact, of_stack
from regatta.topics.base import ReportData, Topic

SHOWN_LIBRARIES = ("libnccl", "libnccl-net", "libfabric", "libcxi", "libibverbs", "libmpi")


def section(data: ReportData) -> Section | None:
    if data.preflight is None:
        return None
    stacks = data.preflight["stacks"]
    state = ("ok", "good") if all(stack["verdict"]["ok"] for stack in stacks) else ("failed", "bad")
    place = shape(data.preflight["nodes"], data.preflight["gpus_per_node"])
    lead = f"One short launch of {place} per stack, before measuring."
    return Section(lead, tables=(preflight_table(data.preflight),), state=state)


KINDS = (
    Kind("preflight_failed", RESULT, "Preflight: {num_failed} of {num_stacks:stack} failed ({stacks})."),
    Kind("preflight_problem", RESULT, "Stack {stack}: {problem}"),
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
    for stack in data.preflight["stacks"]:
        log = "/".join(Path(stack["log"]).parts[-3:]) if stack.get("log") else PREFLIGHT  # preflight/<id>/<launch>.log
        for problem in map(one_line, stack["verdict"]["problems"]):
            words = {"stack": one_line(stack["stack"]), "problem": problem}
            found.append(Finding("preflight_problem", {}, (Source(one_line(log), what="problems"),), words=words))
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
        found += [Finding(kind, {"stacks": counts}, sources, cells, words=words)] if counts else []
    return found


def preflight_table(preflight: dict) -> Table:
    """Return the facts of a preflight's result (docs/contracts.md), with a column for each stack."""
    found = [fact for stack in preflight["stacks"] for fact in _facts(stack, "nccl" in preflight["backends"])]
    caption = "Hardware and software by stack. Libraries: origin (image or host) and path"
    return facts_table(caption, found, "stack", PREFLIGHT)


def _facts(stack: dict, has_nccl: bool) -> Iterator[Fact]:
    """Yield the facts on a stack; none of its ranks if they wrote no report."""
    verdict, report, name = stack["verdict"], stack["seen"], one_line(stack["stack"])
    ranks = report["ranks"] if report else []
    result = marked_status("ok" if verdict["ok"] else "failed")
    found = {"stack": {"result": [result], "notes": verdict["notes"], "kind": [stack["kind"]]}}
    found["stack"]["image"] = [stack["image"], stack["image_id"]]
    if report:
        hosts = list(dict.fromkeys(one_line(rank["host"]) for rank in ranks))
        gpus = sorted(Counter(str(gpu.get("name")) for gpu in report["environment"]["gpus"]).items())
        found["ranks"] = {
            "ranks": [f"{plural(len(ranks), 'rank')} on {plural(len(hosts), 'host')}"],
            "hosts": [joined(hosts)],
            "GPUs": [f"{num} \N{MULTIPLICATION SIGN} {gpu}" for gpu, num in gpus] or ["none"],
            "backends": [f"{of['backend']} {'ok' if of['ok'] else 'failed'}" for of in report["backends"]],
            **{key: [rank[key] for rank in ranks] for key in ("torch", "driver")},
        }
    if has_nccl:
        provider = f"provider {verdict['provider']}" if verdict["provider"] else None
        found["nccl"] = {"NCCL": [verdict["nccl"]], "network": [verdict["network"], provider]}
        found["nccl"] |= {"NCCL plugin": [verdict["plugin"]], "transports": verdict["transports"]}
    found["library"] = {
        wanted: [f"{of['origin']}: {of['path']}" for rank in ranks for of in libraries_named(wanted, rank["libraries"])]
        for wanted in SHOWN_LIBRARIES
    }
    for group, facts in found.items():
        for label, values in facts.items():
            yield from (of_stack(name, group, label, value) for value in values if value is not None)


TOPIC = Topic(*("preflight", "Preflight", {}, section, findings), is_of_sweeps=True, is_judge=True, kinds=KINDS)
