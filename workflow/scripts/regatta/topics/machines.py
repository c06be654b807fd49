"""Warnings on machines: shared hosts, oversubscribed cores, versions and hardware that differ or are unknown."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from regatta.core.text import UNKNOWN, natural, plural, shape
from regatta.report.findings import HEADERS, Advice, Finding, of_runs
from regatta.report.page import NEW_EACH_LAUNCH, VERSIONS, environments, threads_by_shape
from regatta.topics.base import ReportData, Topic

GPU_VERSIONS = {"cuda": "CUDA", "nccl": "NCCL", "driver": "driver"}


def shared_host_findings(data: ReportData) -> list[Finding]:
    """Return the finding on measurements that shared a host with ranks of another launch: no status shows it."""
    ok = data.ok
    shared = ok[(ok["other_ranks"] > 0).fillna(False)]
    if shared.empty:
        return []
    values = {"num": len(shared), "num_ok": len(ok), "most_other_ranks": int(shared["other_ranks"].max())}
    rows = of_runs("measurements", shared, shared["other_ranks"].idxmax())
    return [Finding("shared_hosts", values, (rows,), tuple(shared["cell"].unique()), "warnings")]


def shared_host_sentence(finding: Finding) -> str:
    values = finding.values
    others = plural(values["most_other_ranks"], "other rank")
    return (
        f"Not comparable: {plural(values['num'], 'measurement')} of {values['num_ok']} shared a host with ranks of"
        f" another launch (up to {others})."
    )


def machine_warnings(data: ReportData) -> list[Advice]:
    headers = data.headers
    shared = (
        "Run one campaign per node at a time, and allocate whole nodes (exclusive: true in the cluster file). Measure"
        " the affected cells again under a new campaign name."
    )
    found = [
        *(
            Advice(shared_host_sentence(finding), shared, finding.sources, finding.values, finding.cells)
            for finding in shared_host_findings(data)
        ),
        _oversubscribed(headers),
        _uneven_threads(data.campaign, headers),
        *(
            [_unlike_nodes(headers)]
            if data.campaign.get("sweep")
            else [_mixed_versions(headers), _mixed_machines(headers)]
        ),
        _unknown_gpus(headers),
        *([] if data.campaign.get("imported") else [_unknown_versions(headers)]),
        _dirty(headers),
    ]
    return list(filter(None, found))


def _oversubscribed(headers: list[dict]) -> Advice | None:
    loads = [
        (host["host"], len(host["ranks"]), environment.get("threads_per_rank") or 1, host["num_cores"])
        for environment in environments(headers)
        for host in environment["hosts"]
        if host.get("num_cores")
    ]
    host, num, threads, cores = max(loads, key=lambda load: load[1] * load[2] / load[3], default=("", 0, 0, 1))
    if num * threads <= cores:
        return None
    return Advice(
        f"Oversubscribed cores: {plural(num, 'rank')} × {plural(threads, 'thread')} on {plural(cores, 'core')}"
        f" of {host}.",
        "Lower gpus_per_node, or measure on a machine with more cores.",
        (HEADERS,),
    )


def _uneven_threads(campaign: dict, headers: list[dict]) -> Advice | None:
    """Return the warning on CPU ranks with fewer cores where more share a host: the baseline is a faster "GPU"."""
    threads = threads_by_shape(campaign, headers)
    if len(set().union(*threads.values())) < 2:
        return None
    listed = ", ".join(
        f"{'/'.join(map(str, sorted(nums)))} in {shape(*place)}" for place, nums in sorted(threads.items())
    )
    return Advice(
        f"Threads per rank differ by shape: {listed}.",
        "The ranks of a host share its cores, so scaling efficiency includes the effect of fewer"
        " cores per rank, not only communication. All shapes use the same hardware.",
        (HEADERS,),
    )


def _mixed_versions(headers: list[dict]) -> Advice | None:
    groups: dict[str, list[dict]] = {}
    for header in headers:
        environment, commit = header.get("environment") or {}, (header.get("git") or {}).get("commit")
        groups.setdefault(f"stack {header['stack']}", []).append({name: environment.get(name) for name in VERSIONS})
        groups.setdefault("the launches", []).append({"commit": commit and str(commit)[:12]})
    return _mixed(
        groups,
        "Launches of one stack ran with different versions",
        "Differences between cells may come from these versions. Measure again with one version, under a new campaign"
        " name.",
    )


def _mixed_machines(headers: list[dict]) -> Advice | None:
    """Return the warning on pooled launches (one stack and shape) with different machines or settings."""
    groups: dict[str, list[dict]] = {}
    for header in headers:
        if header.get("environment"):
            group = f"stack {header['stack']}, {shape(header['nodes'], header['gpus_per_node'])}"
            groups.setdefault(group, []).append(_machine(header["environment"]))
    return _mixed(
        groups,
        "Launches that are summarized together ran on different machines or with different settings",
        "Their range includes the variation between machines. Use one cluster file and campaign per machine, and set"
        " required environment variables in the stack's env.",
    )


def _machine(environment: dict) -> dict[str, str]:
    """Return the facts on a launch's machine and settings that can change its numbers, each as one text."""
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


MOST_UNLIKE = 5  # nodes named for each fact


def _unlike_nodes(headers: list[dict]) -> Advice | None:
    """Return the warning on nodes of a sweep that differ from most others in versions, hardware or settings."""
    facts: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))  # fact -> node -> values
    for header in headers:
        environment = header.get("environment") or {"hosts": []}
        hosts = environment["hosts"]
        of_launch = (
            _machine(environment) | {name: environment.get(name) for name in VERSIONS} if len(hosts) == 1 else {}
        )
        for host in hosts:
            gpus = [gpu.get("name") for gpu in environment.get("gpus") or [] if gpu.get("host") in (None, host["host"])]
            of_host = {"cpu": host.get("cpu_model"), "cores": host.get("num_cores"), "gpus": " ".join(map(str, gpus))}
            for name, value in (of_launch | of_host).items():
                if name != "hosts":
                    facts[name][host["host"]].add(UNKNOWN if value in (None, "") else str(value))
    found, unlike = [], set()
    for name, nodes in facts.items():
        values = {node: " | ".join(sorted(of_node)) for node, of_node in nodes.items()}
        usual = Counter(values.values()).most_common(1)[0][0]
        others: dict[str, list[str]] = defaultdict(list)
        for node in sorted(values, key=natural):
            if values[node] != usual:
                others[values[node]].append(node)
        for value, of_value in others.items():
            unlike |= set(of_value)
            more = f" and {len(of_value) - MOST_UNLIKE} more" if len(of_value) > MOST_UNLIKE else ""
            found.append(f"{name} {value} on {', '.join(of_value[:MOST_UNLIKE])}{more}, {usual} on most")
    return (
        Advice(
            f"{plural(len(unlike), 'node')} different from most: {'; '.join(found)}.",
            "Differences in time may come from this. Bring the nodes to the same state and measure again.",
            (HEADERS,),
            {"nodes": sorted(unlike, key=natural)},
        )
        if found
        else None
    )


def _mixed(groups: dict[str, list[dict]], found: str, advice: str) -> Advice | None:
    """Return the warning on facts with several known values. groups: the facts of each launch, by what must agree."""
    mixed = []
    for group, launches in sorted(groups.items()):
        for name in launches[0]:
            values = sorted({str(facts[name]) for facts in launches if facts[name] is not None})
            listed = " | ".join(value or "none" for value in values)
            mixed += [f"{name} of {group}: {listed}"] if len(values) > 1 else []
    return Advice(f"{found} ({'; '.join(mixed)}).", advice, (HEADERS,)) if mixed else None


def _unknown_gpus(headers: list[dict]) -> Advice | None:
    """Return the warning on launches on GPUs whose names were not recorded."""
    launches = [header for header in headers if header.get("device") == "cuda" and header.get("environment")]
    lists = [header["environment"].get("gpus") or [{}] for header in launches]
    num = sum(not all(gpu.get("name") for gpu in gpus) for gpus in lists)
    if num == 0:
        return None
    return Advice(
        f"Unknown GPU model: not recorded in {num} of {plural(len(launches), 'launch', 'launches')}.",
        "Mixed GPU models cannot be detected; MFU and peak bandwidth are unavailable. Check what"
        " torch.cuda.get_device_name returns in this stack.",
        (HEADERS,),
        {"num": num, "num_launches": len(launches)},
    )


def _unknown_versions(headers: list[dict]) -> Advice | None:
    """Return the warning on launches on GPUs without the versions that most often explain a difference."""
    launches = [h["environment"] for h in headers if h.get("device") == "cuda" and h.get("environment")]
    unknown = {name: sum(not of.get(key) for of in launches) for key, name in GPU_VERSIONS.items()}
    counts = {name: num for name, num in unknown.items() if num}
    if not counts:
        return None
    by_num = {num: [name for name, other in counts.items() if other == num] for num in counts.values()}
    listed = ", ".join(f"{', '.join(names)} in {num}" for num, names in by_num.items())
    return Advice(
        f"Unknown versions: {listed} of {plural(len(launches), 'launch', 'launches')}.",
        "Changes of these versions cannot be detected. Check what torch.version.cuda and torch.cuda.nccl.version return"
        " in this stack, and whether nvidia-smi or /proc/driver/nvidia/version is visible to the ranks.",
        (HEADERS,),
        {"num": counts, "num_launches": len(launches)},
    )


def _dirty(headers: list[dict]) -> Advice | None:
    num = sum(bool((header.get("git") or {}).get("is_dirty")) for header in headers)
    if num == 0:
        return None
    return Advice(
        f"{num} of {plural(len(headers), 'launch', 'launches')} ran from a working tree with uncommitted changes.",
        "The commit does not identify the code that ran. Commit before measuring results for publication.",
        (HEADERS,),
    )


TOPIC = Topic(
    "machines", "Warnings", {}, None, shared_host_findings, shared_host_sentence, machine_warnings, is_of_sweeps=True
)
