"""Warnings on the store and on machines: damage, shared hosts, versions and hardware that differ or are unknown."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import pandas as pd

from regatta.core.text import UNKNOWN, natural, shape
from regatta.kit.kinds import LOW, NOTE, Kind, joined
from regatta.report.findings import HEADERS, PROBLEMS, Finding, Source, of_runs
from regatta.report.page import NEW_EACH_LAUNCH, VERSIONS, environments
from regatta.topics.base import ReportData, Topic

VERSIONS_OF_GPUS = {"cuda": "CUDA", "nccl": "NCCL", "driver": "driver"}
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
        *(_unlike_nodes(data.headers) if data.campaign.sweep else _mixed(data)),
        *_cores(data.headers),
        *_unknown(data),
    ]


def _warning(kind: str, values: dict, source: Source = HEADERS, cells: Iterable[str] = (), **words) -> list[Finding]:
    return [Finding(kind, values, (source,), tuple(cells), "warnings", words)]


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


def _cores(headers: list[dict]) -> list[Finding]:
    """Return the finding on the host with most threads for its cores."""
    loads = [
        (len(host["ranks"]), environment.get("threads_per_rank") or 1, host["num_cores"], host["host"])
        for environment in environments(headers)
        for host in environment["hosts"]
        if host.get("num_cores")
    ]
    num, threads, cores, host = max(loads, key=lambda load: load[0] * load[1] / load[2], default=(0, 0, 1, ""))
    values = {"num_ranks": num, "threads": threads, "num_cores": cores}
    return _warning("oversubscribed", values, host=host) if num * threads > cores else []


def _mixed(data: ReportData) -> list[Finding]:
    """Return the findings on facts that differ between the launches of a stack, or of its cells of one shape.

    Only those of versions, hardware and settings invalidate a comparison: nodes of one kind, and commits, may differ.
    Machines are compared by benchmark: a program of a user does not report what torch reports. What is not recorded
    does not differ; of an import, that is all that its file does not state.
    """
    unrecorded = ("", None) if data.campaign.imported else (None,)
    launches = defaultdict(lambda: defaultdict(set))  # (kind, fact, group, benchmark) -> value -> launches
    benchmarks = data.measurements.groupby("launch")["benchmark"].unique()
    for header in data.headers:
        environment, stack = header.get("environment") or {}, f"stack {header['stack']}"
        place = f"{stack}, {shape(header['nodes'], header['gpus_per_node'])}"
        facts = {("mixed_versions", name, stack, ""): environment.get(name) for name in VERSIONS}
        facts["mixed_nodes", "commit", "all", ""] = ((header.get("git") or {}).get("commit") or "")[:12] or None
        if environment:
            known = _machine(environment).items()
            of_launch = benchmarks.get(header["launch"], ())
            facts |= {("mixed_machines", name, place, of): value for name, value in known for of in of_launch}
            facts["mixed_nodes", "nodes", place, ""] = " ".join(sorted(host["host"] for host in environment["hosts"]))
        for fact, value in facts.items():
            if value not in unrecorded:
                launches[fact][str(value)].add(header["launch"])
    texts, differing = defaultdict(dict), defaultdict(set)
    for (kind, name, group, _), values in sorted(launches.items()):
        if len(values) > 1:
            texts[kind][f"{name} of {group}: {' | '.join(value or 'none' for value in sorted(values))}"] = None
            differing[kind].update(*values.values())
    ok, found = data.ok, []
    for kind, mixed in texts.items():
        cells = ok.loc[ok["launch"].isin(differing[kind]), "cell"].unique()
        found += _warning(kind, {}, cells=cells, mixed=list(mixed))
    return found


def _machine(environment: dict) -> dict[str, str | None]:
    """Return the facts on a launch's machine and settings that can change its numbers, each as one text.

    None: not recorded.
    """
    hosts = environment["hosts"]
    variables = {k: v for k, v in (environment.get("variables") or {}).items() if not k.startswith(NEW_EACH_LAUNCH)}
    settings = {"settings": environment.get("settings") or {}, "variables": variables}
    facts = {
        "cpu": _counted(host.get("cpu_model") for host in hosts),
        "cores": _counted(host.get("num_cores") for host in hosts),
        "gpus": _counted(gpu.get("name") for gpu in environment.get("gpus") or []),
        "threads per rank": _counted([environment.get("threads_per_rank")]),
    }
    return facts | {name: " ".join(sorted(f"{k}={v}" for k, v in of.items())) for name, of in settings.items()}


def _counted(values: Iterable) -> str | None:
    """Return the values of hosts or GPUs, and how often each occurs if they differ; None if one is unknown."""
    counts = Counter(values)
    if None in counts:
        return None
    shown = sorted(counts.items(), key=str)
    return ", ".join(f"{num} × {value}" if num > 1 and len(counts) > 1 else str(value) for value, num in shown)


def _unlike_nodes(headers: list[dict]) -> list[Finding]:
    """Return the finding on nodes of a sweep that differ from most others in versions, hardware or settings."""
    facts: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))  # fact -> node -> values
    for environment in environments(headers):
        for host in environment["hosts"]:
            gpus = [gpu for gpu in environment.get("gpus") or [] if gpu.get("host") in (None, host["host"])]
            known = {name: environment.get(name) for name in VERSIONS}
            known |= _machine(environment | {"hosts": [host], "gpus": gpus})
            # Of two nodes, it is unknown which one the versions and settings of their launch come from.
            for name in known if len(environment["hosts"]) == 1 else ("cpu", "cores", "gpus"):
                facts[name][host["host"]].add(str(known[name] or UNKNOWN))
    found, unlike = [], set()
    for name, of_nodes in facts.items():
        values = {node: " | ".join(sorted(of_node)) for node, of_node in of_nodes.items()}
        usual = Counter(values.values()).most_common(1)[0][0]
        for value in sorted({*values.values()} - {usual}):
            nodes = sorted((node for node in values if values[node] == value), key=natural)
            found.append(f"{name} {value} on {joined(nodes)}, {usual} on most")
            unlike |= {*nodes}
    values = {"num": len(unlike), "nodes": sorted(unlike, key=natural)}
    return _warning("unlike_nodes", values, facts="; ".join(found)) if found else []


def _unknown(data: ReportData) -> list[Finding]:
    """Return the findings on launches without what most often explains a difference: versions, GPU model, commit.

    An import has no versions.
    """
    launches = [h["environment"] for h in data.headers if h.get("device") == "cuda" and h.get("environment")]
    versions = {} if data.campaign.imported else VERSIONS_OF_GPUS
    unknown = {name: sum(not of.get(key) for of in launches) for key, name in versions.items()}
    gpus = [of.get("gpus") or [{}] for of in launches]
    unknown["GPU model"] = sum(not all(gpu.get("name") for gpu in of_launch) for of_launch in gpus)
    values = {"num": {name: num for name, num in unknown.items() if num}, "num_launches": len(launches)}
    versions = [f"{name} in {num}" for name, num in values["num"].items()]
    found = _warning("unknown_versions", values, versions=versions) if versions else []
    num = sum(bool((header.get("git") or {}).get("is_dirty")) for header in data.headers)
    return found + (_warning("uncommitted", {"num": num, "num_launches": len(data.headers)}) if num else [])


TOPIC = Topic("machines", "Warnings", findings=findings, is_of_sweeps=True, is_judge=True, kinds=KINDS)
