"""Machines, versions and settings behind the numbers: what makes launches not comparable. It has warnings, and no table."""

from collections.abc import Iterable

import pandas as pd

from regatta.core.text import plural, shape
from regatta.report.findings import HEADERS, Advice, Finding, of_runs
from regatta.report.provenance import NEW_EACH_LAUNCH, VERSIONS, environments, threads_by_shape
from regatta.topics.base import ReportData, Topic


def findings(data: ReportData) -> list[Finding]:
    """Return the finding on measurements that shared a host with ranks of another launch: no status shows it."""
    ok = data.ok
    shared = ok[(ok["other_ranks"] > 0).fillna(False)]
    if shared.empty:
        return []
    values = {"num": len(shared), "num_ok": len(ok), "most_other_ranks": int(shared["other_ranks"].max())}
    first = shared["other_ranks"].idxmax()
    rows = of_runs("measurements", pd.concat([shared.loc[[first]], shared.drop(first)]))
    return [Finding("shared_hosts", values, (rows,), tuple(shared["cell"].unique()), "warnings")]


def sentence(finding: Finding) -> str:
    values = finding.values
    others = plural(values["most_other_ranks"], "other rank")
    return (
        f"Not comparable: {plural(values['num'], 'measurement')} of {values['num_ok']} shared a host with ranks of another"
        f" launch (up to {others})."
    )


def warnings(data: ReportData) -> list[Advice]:
    headers = data.headers
    found = [
        *(_shared(finding) for finding in findings(data)),
        _oversubscribed(headers),
        _uneven_threads(data.campaign, headers),
        _mixed_versions(headers),
        _mixed_machines(headers),
        _dirty(headers),
    ]
    return [advice for advice in found if advice is not None]


def _shared(finding: Finding) -> Advice:
    return Advice(
        sentence(finding),
        "Run one campaign at a time on a node, give its jobs whole nodes (exclusive: true in the cluster file), and measure"
        " the affected cells again under a new campaign name.",
        finding.sources,
        finding.values,
    )


def _oversubscribed(headers: list[dict]) -> Advice | None:
    worst = None
    for environment in environments(headers):
        threads = environment.get("threads_per_rank") or 1
        for host in environment["hosts"]:
            cores, num = host.get("num_cores"), len(host["ranks"])
            if cores and num * threads > cores and (worst is None or num * threads / cores > worst[0]):
                worst = (num * threads / cores, host["host"], num, threads, cores)
    if worst is None:
        return None
    _, host, num, threads, cores = worst
    return Advice(
        f"More threads than cores: on {host}, {plural(num, 'rank')} of {plural(threads, 'thread')} shared"
        f" {plural(cores, 'core')}.",
        "Ranks then wait for a core, not for each other. Lower gpus_per_node, or measure on a machine with more cores.",
        (HEADERS,),
    )


def _uneven_threads(campaign: dict, headers: list[dict]) -> Advice | None:
    """On CPUs a rank that shares its host with more ranks has fewer cores: the baseline is then a faster "GPU"."""
    threads = threads_by_shape(campaign, headers)
    if len(set().union(*threads.values())) < 2:
        return None
    listed = ", ".join(
        f"{'/'.join(map(str, sorted(nums)))} in {shape(*place)}" for place, nums in sorted(threads.items())
    )
    return Advice(
        f"Threads per rank differ by shape: {listed}.",
        "The ranks of a host share its cores, so efficiency includes the loss of cores, not only the cost of"
        " communication. Read the shapes as ways to use these hosts, not as growth.",
        (HEADERS,),
    )


def _mixed_versions(headers: list[dict]) -> Advice | None:
    mixed = []
    for stack in sorted({header["stack"] for header in headers}):
        of_stack = environments(header for header in headers if header["stack"] == stack)
        for name in VERSIONS:
            values = sorted({str(e[name]) for e in of_stack if e.get(name) is not None})
            if len(values) > 1:
                mixed.append(f"{name} of stack {stack}: {', '.join(values)}")
    commits = sorted({str(git["commit"])[:12] for h in headers if (git := h.get("git") or {}).get("commit")})
    if len(commits) > 1:
        mixed.append(f"commit: {', '.join(commits)}")
    if not mixed:
        return None
    return Advice(
        f"Launches of one stack ran with different versions ({'; '.join(mixed)}).",
        "Differences between their cells may be differences between versions. Measure again with one version, under a new"
        " campaign name.",
        (HEADERS,),
    )


def _machine(environment: dict) -> dict[str, str]:
    """Return what of a launch's machine and settings can change its numbers, each as one text."""
    hosts = environment["hosts"]
    variables = {k: v for k, v in (environment.get("variables") or {}).items() if not k.startswith(NEW_EACH_LAUNCH)}
    facts: dict[str, Iterable[str]] = {
        "hosts": (host["host"] for host in hosts),
        "cpu": {str(host.get("cpu_model")) for host in hosts},
        "cores": (str(host.get("num_cores")) for host in hosts),
        "gpus": (str(gpu.get("name")) for gpu in environment.get("gpus") or []),
        "threads per rank": [str(environment.get("threads_per_rank"))],
        "settings": (f"{k}={v}" for k, v in (environment.get("settings") or {}).items()),
        "variables": (f"{k}={v}" for k, v in variables.items()),
    }
    return {name: " ".join(sorted(values)) for name, values in facts.items()}


def _mixed_machines(headers: list[dict]) -> Advice | None:
    """Launches of one stack and shape are pooled: they must have run on one machine, with the same settings."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for header in headers:
        if header.get("environment"):
            key = (header["stack"], shape(header["nodes"], header["gpus_per_node"]))
            groups.setdefault(key, []).append(_machine(header["environment"]))
    mixed = []
    for (stack, place), machines in sorted(groups.items()):
        for name in machines[0]:
            values = sorted({machine[name] for machine in machines})
            if len(values) > 1:
                mixed.append(f"{name} of stack {stack}, {place}: {' | '.join(value or 'none' for value in values)}")
    if not mixed:
        return None
    return Advice(
        f"Pooled launches ran on different machines or settings ({'; '.join(mixed)}).",
        "Their range includes the differences between machines. Give each machine a cluster file and a campaign, and set"
        " what the ranks depend on in the stack's env.",
        (HEADERS,),
    )


def _dirty(headers: list[dict]) -> Advice | None:
    num = sum(bool((header.get("git") or {}).get("is_dirty")) for header in headers)
    if num == 0:
        return None
    return Advice(
        f"{num} of {plural(len(headers), 'launch', 'launches')} ran from a working tree with uncommitted changes.",
        "The commit does not identify the code that ran. Commit first if the numbers are to be shown to others.",
        (HEADERS,),
    )


TOPIC = Topic("machines", "Machines", findings=findings, sentence=sentence, warnings=warnings)
