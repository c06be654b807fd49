"""Warnings on the store and on machines: damage, shared hosts, versions and hardware that differ or are unknown."""

from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from regatta.core.text import UNKNOWN, natural
from regatta.kit.kinds import LOW, NOTE, Kind, joined
from regatta.report.findings import HEADERS, PROBLEMS, Finding, Source, of_runs
from regatta.tables.facts import DIRTY, Fact, differing, values_by, values_texts
from regatta.topics.base import ReportData, Topic

VERSIONS_OF_GPUS = {"cuda": "CUDA", "nccl": "NCCL", "driver": "driver", "GPU": "GPU model"}
MACHINE = ("machine", "setting", "variable")
MIXED = {  # by group of facts: the kind of a difference, and what its launches have in common
    **dict.fromkeys(MACHINE, ("mixed_machines", "stack", "shape")),
    "commit": ("mixed_nodes",),
    "host": ("mixed_nodes", "stack", "shape"),
    "version": ("mixed_versions", "stack"),
}
AGAIN = "measure the cells again under a new `name`"
TORN, INVALID = "{num_torn:integrity error}", "{num_invalid:invalid line}"
KINDS = (
    Kind(
        *("damaged_store", LOW),
        lead=(f"Damaged files: {TORN} and {INVALID}.", f"Damaged files: {TORN}.", f"Damaged files: {INVALID}."),
        parts=("{damage}.",),
        advice="Damaged lines are excluded (see Methods). Check the disk; restore the files, or measure again.",
        next_step="restore the files, or measure what is lost: `{run}`",
    ),
    Kind(
        *("truncated_files", NOTE, "Truncated files: {num:launch file ends/launch files end} within a line."),
        advice="A job was killed while writing. That measurement is lost; all others are complete.",
    ),
    Kind(
        *(
            "shared_hosts",
            LOW,
            "Shared hosts: another launch ran on the same host during {num} of {num_ok:measurement}.",
        ),
        parts=("Up to {most_other_ranks:other rank}.",),
        advice="Run one campaign per node at a time, and allocate whole nodes (exclusive: true in the cluster file).",
        next_step=AGAIN,
    ),
    Kind(
        *("mixed_versions", LOW, "Mixed versions: launches of one stack differ in {mixed}."),
        advice="Differences between cells may come from these versions. Measure again with one version.",
        next_step=AGAIN,
    ),
    Kind(
        *("mixed_machines", LOW, "Mixed machines: launches in one table differ in {mixed}."),
        advice="Use one cluster file and campaign per machine, and set environment variables in the stack's env.",
        next_step=AGAIN,
    ),
    Kind(
        *("mixed_nodes", NOTE, "Several nodes or commits: launches that are pooled in one table differ in {mixed}."),
        advice="Ranges include the variation between nodes. A commit that affects results changes the cells' version.",
    ),
    Kind(
        *("oversubscribed", NOTE),
        lead="Oversubscribed cores: {num_ranks:rank} × {threads:thread} on {num_cores:core} of {host}.",
        advice="Lower gpus_per_node, or use a machine with more cores.",
    ),
    Kind(
        *("unlike_nodes", NOTE, "Inconsistent nodes: {num:node} {num:differs/differ} from most: {facts}."),
        advice="Differences in time may come from this. Bring the nodes to the same state and measure again.",
    ),
    Kind(
        *("unknown_versions", NOTE, "Versions not recorded in {num_launches:launch/launches}: {versions}."),
        advice="MFU and peak bandwidth need the GPU's name. Check what torch.cuda and nvidia-smi return to the ranks.",
    ),
    Kind(
        *("uncommitted", NOTE, "Uncommitted changes: in the working tree of {num} of {num_launches:launch/launches}."),
        advice="The commit does not identify the code that ran. Commit before measuring results for publication.",
    ),
    Kind(
        *("after_now", NOTE, "Clock ahead: {num:launch/launches} with a time in the future, up to {latest}."),
        advice="Synchronize the clocks of all machines. The order of records does not depend on them.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    return [
        *_problems(data.problems),
        *_shared_hosts(data.ok),
        *(_unlike_nodes(data.facts) if data.campaign.sweep else _mixed(data)),
        *_cores(data.facts),
        *_unknown(data),
    ]


def _warning(kind: str, values: dict, source: Source = HEADERS, cells: Iterable[str] = (), **words) -> list[Finding]:
    return [Finding(kind, values, (source,), tuple(cells), words=words)]


def _problems(problems: dict) -> list[Finding]:
    """Return the findings on damaged files, and on times in the future."""
    corrupt, num_truncated, found = problems["corrupt"], problems.get("num_truncated", 0), []
    values = {"num_torn": len(corrupt) - num_truncated, "num_invalid": len(problems["invalid"])}
    source = Source(PROBLEMS, what="corrupt")
    found += _warning("damaged_store", values, source, damage=corrupt) if any(values.values()) else []
    found += _warning("truncated_files", {"num": num_truncated}, source) if num_truncated else []
    if ahead := sorted((launch["time_utc"], launch["launch"]) for launch in problems.get("after_now", [])):
        source, latest = Source(PROBLEMS, what="after_now"), "{} ({})".format(*ahead[-1])
        found += _warning("after_now", {"num": len(ahead)}, source, latest=latest)
    return found


def _shared_hosts(ok: pd.DataFrame) -> list[Finding]:
    """Return the finding on measurements that shared a host with ranks of another launch: no status shows it."""
    shared = ok[(ok["other_ranks"] > 0).fillna(False)]
    if shared.empty:
        return []
    values = {"num": len(shared), "num_ok": len(ok), "most_other_ranks": int(shared["other_ranks"].max())}
    source = of_runs("measurements", shared, shared["other_ranks"].idxmax())
    return _warning("shared_hosts", values, source, shared["cell"].unique())


def _cores(facts: list[Fact]) -> list[Finding]:
    """Return the finding on the host with most threads for its cores."""
    ranks, cores, threads = (
        {(fact.launch, fact.host): int(fact.value) for fact in facts if fact.name == name and fact.value is not None}
        for name in ("ranks", "cores per host", "threads per rank")
    )
    of_ranks = {launch: num for (launch, _), num in threads.items()}
    loads = [(ranks[at], of_ranks.get(at[0], 1), num, at[1]) for at, num in cores.items() if num]
    num, threads, cores, host = max(loads, key=lambda load: load[0] * load[1] / load[2], default=(0, 0, 1, ""))
    values = {"num_ranks": num, "threads": threads, "num_cores": cores}
    return _warning("oversubscribed", values, host=host) if num * threads > cores else []


def _mixed(data: ReportData) -> list[Finding]:
    """Return the findings on facts that differ between the launches of a stack, or of its cells of one shape.

    Only those of versions, hardware and settings invalidate a comparison: nodes of one kind, and commits, may differ.
    Machines are compared by benchmark: a program of a user does not report what torch reports.
    """
    benchmarks, ok = data.measurements.groupby("benchmark")["launch"].agg(set), data.ok
    texts, launches = defaultdict(dict), defaultdict(set)
    for group, (kind, *by) in MIXED.items():
        facts = [fact for fact in data.facts if fact.group == group and fact.is_compared]
        facts = [fact._replace(value=fact.value and fact.value.removesuffix(DIRTY)) for fact in facts]
        for alike in benchmarks if kind == "mixed_machines" else [{fact.launch for fact in facts}]:
            of_alike = values_by([fact for fact in facts if fact.launch in alike], "launch", *by)
            for (_, label, *place), values in of_alike.items():
                if found := differing(values):
                    where = f"stack {', '.join(place)}" if place else "all"
                    texts[kind][f"{label} of {where}: {joined(values_texts(values))}"] = None
                    launches[kind] |= found
    cells = {kind: ok.loc[ok["launch"].isin(of), "cell"].unique() for kind, of in launches.items()}
    return [found for kind, of in texts.items() for found in _warning(kind, {}, cells=cells[kind], mixed=list(of))]


def _unlike_nodes(facts: list[Fact]) -> list[Finding]:
    """Return the finding on nodes of a sweep that differ from most others in versions, hardware or settings."""
    compared = [fact for fact in facts if fact.is_compared and fact.group in ("version", *MACHINE)]
    found, unlike = [], set()
    for (_, label), values in values_by(compared, "host").items():
        by_value = {UNKNOWN if value is None else value: nodes for value, nodes in values.items()}
        usual = max(by_value, key=lambda value: len(by_value[value]))
        for value in sorted(by_value.keys() - {usual}):
            found.append(f"{label} {value} on {joined(sorted(by_value[value], key=natural))}, {usual} on most")
            unlike |= by_value[value]
    values = {"num": len(unlike), "nodes": sorted(unlike, key=natural)}
    return _warning("unlike_nodes", values, facts="; ".join(found)) if found else []


def _unknown(data: ReportData) -> list[Finding]:
    """Return the findings on launches without what most often explains a difference: versions, GPU model, commit.

    An import has no versions.
    """
    by_label = {label: values for (_, label), values in values_by(data.facts, "launch").items()}
    wanted = {"GPU": "GPU model"} if data.campaign.imported else VERSIONS_OF_GPUS
    lacking = {name: len(by_label.get(label, {}).get(None, ())) for label, name in wanted.items()}
    num = {name: num for name, num in lacking.items() if num and data.device == "cuda"}
    values = {"num": num, "num_launches": len(set().union(*by_label.get("driver", {}).values()))}
    words = [f"{name} in {num}" for name, num in values["num"].items()]
    found = _warning("unknown_versions", values, versions=words) if words else []
    commits = by_label.get("commit", {})
    num = sum(len(of) for commit, of in commits.items() if commit and commit.endswith(DIRTY))
    values = {"num": num, "num_launches": len(set().union(*commits.values()))}
    return found + (_warning("uncommitted", values) if num else [])


TOPIC = Topic("machines", findings=findings, is_of_sweeps=True, is_judge=True, kinds=KINDS)
