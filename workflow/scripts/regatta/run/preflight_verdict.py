"""Evaluate the preflight of a stack: whether it may be measured, and otherwise what to mount or to change.

A stack that falls back to TCP sockets runs without an error, with a bandwidth that may be 20 times too low.
Standard library only: planning and running batches load this module.
"""

import re
from dataclasses import dataclass

from regatta.runtimes import runtime_of

# Libraries that carry the communication. Longer names first: libnccl-net is not libnccl.
COMMUNICATION = (
    "libnccl-tuner libnccl-net libnccl librccl-net librccl libfabric libcxi libefa libibverbs libmlx5 libpsm2 "
    "libpsm3 libucp libmpi libpmix libcuda libcudart libtorch_cpu"
).split()


def stem(name: str) -> str:
    """Return the name of a file without version and ending: libfabric.so.1.18.2 is libfabric."""
    return name.partition(".so")[0]


def libraries_named(wanted: str, libraries: list[dict]) -> list[dict]:
    """Return those of a rank's libraries that match a name: exactly, else with a suffix.

    So libnccl-net matches libnccl-net-ofi.so if there is no libnccl-net.so, and libnccl never matches a plugin.
    """
    wanted = stem(wanted)
    exact = [library for library in libraries if stem(library["name"]) == wanted]
    return exact or [library for library in libraries if stem(library["name"]).startswith((f"{wanted}-", f"{wanted}_"))]


def family_of(name: str) -> str | None:
    """Return which of COMMUNICATION a file is, also under a longer name such as libmpi_gnu_123.so.12, or None."""
    base = stem(name)
    return next((f for f in COMMUNICATION if base == f or base.startswith((f"{f}-", f"{f}_"))), None)


# NCCL's log with NCCL_DEBUG=INFO: version, network, plugin, transports.

MOST_WARNINGS = 5

LINE = re.compile(r"NCCL (?P<level>INFO|WARN) (?P<words>.*)")  # after a time, host:pid:thread and [device], or nothing
VERSION = re.compile(r"\b[NR]CCL version (\S+)")
NETWORK = re.compile(r"^Using network (.+)$")
LOADED = re.compile(r"^NET/Plugin ?: Loaded net plugin (.+)$")
PROVIDER = re.compile(r"^NET/OFI selected provider is ([^\s,]+)", re.IGNORECASE)
CHANNEL = re.compile(r"^(?:Channel|Ring) \d+(?:/\d+)? : .*? via ((?:NET|COLLNET|P2P|SHM|MNNVL)\b.*)$")
BEHIND_TRANSPORT = re.compile(r"\s+comm 0x.*$")  # NCCL up to 2.18 names the communicator there
DEVICE = re.compile(r"/\d+(?:\(\d+\))?(?=/|$)")  # number of a network device, and of the proxy's

# Why the plugin is missing, most specific first: an error of the dynamic linker; no such file; NCCL's fallback.
PLUGIN = re.compile(r"^NET/Plugin ?: (?P<words>.+)$")
REASONS = (
    re.compile(r"cannot open shared object|undefined symbol|version `.*' not found|wrong ELF class|is unsupported"),
    re.compile(r"Could not find: "),
    re.compile(r"No plugin found"),
)
FALLBACK = re.compile(r"[.,]?\s*(?:No plugin found \(\S+\), )?[Uu]sing internal .*$|[.\s]+$")


@dataclass(frozen=True)
class NcclLog:
    """The facts in a log; None or () if it does not contain them.

    networks: those of all communicators, in order of appearance. plugin: name and interface of the loaded network
    plugin, which may be unused. plugin_problem: why none was loaded, as NCCL logs it. provider: libfabric's.
    transports: without device numbers, such as P2P/CUMEM or NET/Libfabric/GDRDMA.
    """

    version: str | None
    networks: tuple[str, ...]
    plugin: str | None
    plugin_problem: str | None
    provider: str | None
    transports: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def network(self) -> str | None:
        return " and ".join(self.networks) or None


def parse_nccl_log(text: str) -> NcclLog:
    """Read the log of all ranks, one after the other or mixed, each line with or without a launcher's prefix."""
    found = [(match["level"], match["words"].strip()) for line in text.splitlines() if (match := LINE.search(line))]
    infos = [words for level, words in found if level == "INFO"]
    version = VERSION.search(text)
    plugins, providers = _all(LOADED, infos), _all(PROVIDER, infos)
    # Without devices: NET/IB/0/GDRDMA/Shared is NET/IB/GDRDMA.
    transports = {
        DEVICE.sub("", BEHIND_TRANSPORT.sub("", words)).removesuffix("/Shared") for words in _all(CHANNEL, infos)
    }
    return NcclLog(
        version=version[1] if version else None,
        networks=_all(NETWORK, infos),
        plugin=plugins[0] if plugins else None,
        plugin_problem=None if plugins else _plugin_problem(infos),
        provider=" and ".join(providers) or None,
        transports=tuple(sorted(transports)),
        warnings=tuple(dict.fromkeys(words for level, words in found if level == "WARN"))[:MOST_WARNINGS],
    )


def _all(pattern: re.Pattern, lines: list[str]) -> tuple[str, ...]:
    """Return what the pattern's group finds in the lines, each once, in order of appearance."""
    return tuple(dict.fromkeys(match[1].strip() for line in lines if (match := pattern.search(line))))


def _plugin_problem(infos: list[str]) -> str | None:
    """Return NCCL's most specific message about a missing network plugin, or None without one."""
    reasons = [match["words"] for line in infos if (match := PLUGIN.search(line))]
    found = next((reason for kind in REASONS for reason in reasons if kind.search(reason)), None)
    return None if found is None else FALLBACK.sub("", found).strip()


# One network by all names that its plugin has had (aws-ofi-nccl, pull request 530: NCCL_NET accepts all three).
LIBFABRIC = ("aws libfabric", "libfabric", "ofi")
SOCKETS = "Socket"
SOCKET_PROVIDERS = ("tcp", "sockets", "udp", "net")  # libfabric: fi_tcp(7), fi_sockets(7), fi_udp(7), fi_net(7)
MOST_NAMES = 4  # hosts or ranks named in a note


def judge(stack: dict, report: dict | None, nccl_text: str, launch_cause: str | None, log: str = "its log") -> dict:
    """Return the `verdict` on a stack of a preflight's result (docs/contracts.md).

    report: the ranks' report, or None. nccl_text: NCCL's logs of all ranks, possibly empty. launch_cause: why the
    launch failed, or None. log: the path of its log. A problem fails the stack; a note does not.
    """
    nccl, problems = parse_nccl_log(nccl_text), []
    if launch_cause is not None:
        remedy = f"Read {log}, then fix image, python, binds, wrapper, env or srun."
        problems.append(f"The launch failed: {_sentence(launch_cause)} {remedy}")
    elif report is None:
        problems.append(f"The ranks wrote no report; the cause is unknown. Read {log}.")
    misplaced = report["placement_problems"] if report else []
    remedy = "Check nodes and GPUs in the cluster file, and the stack's launcher options."
    problems += [f"Ranks are not placed as requested: {_sentence(found)} {remedy}" for found in misplaced]
    if report:
        problems += _backend_problems(report, nccl)
    if not misplaced:
        problems += _network_problems(stack, report, nccl) + (_library_problems(stack, report) if report else [])
    return {
        "ok": not problems,
        "problems": problems,
        "notes": _notes(stack, report, nccl),
        "nccl": nccl.version,
        "network": nccl.network,
        "plugin": nccl.plugin,
        "provider": nccl.provider,
        "transports": list(nccl.transports),
    }


def _backend_problems(report: dict, nccl: NcclLog) -> list[str]:
    found = []
    remedy = "No cell of this stack can be measured with it: read the log, then fix image, binds, wrapper or env."
    for backend in (backend for backend in report["backends"] if not backend["ok"]):
        warning = f" NCCL: {_sentence(nccl.warnings[0])}" if backend["backend"] == "nccl" and nccl.warnings else ""
        cause = _sentence(backend["cause"] or "unknown cause")
        found.append(f"Backend {backend['backend']} does not work: {cause}{warning} {remedy}")
    return found


def _network_problems(stack: dict, report: dict | None, nccl: NcclLog) -> list[str]:
    """Return what is wrong with the network that NCCL uses, if the stack requires one."""
    required = stack["required_network"]
    if required is None or not _uses_nccl(report, nccl):
        return []
    if not nccl.networks:
        if nccl.plugin_problem or nccl.plugin or nccl.warnings:
            return [f"NCCL found no network; required: '{required}'. {_why(stack, nccl)}{_what_to_mount(stack)}"]
        remedy = (
            "Remove NCCL_DEBUG, NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS from wrapper and env: they suppress this log."
        )
        return [f"NCCL did not log which network it uses; required: '{required}'. {remedy}"]
    if not all(_same_network(network, required) for network in nccl.networks):
        slow = "All traffic between nodes would go through TCP sockets. " if SOCKETS in nccl.networks else ""
        rename = "" if slow else f" Or set required_network to '{nccl.network}', if that is intended."
        found = f"NCCL uses {nccl.network}; required: '{required}'. {slow}"
        return [f"{found}{_why(stack, nccl)}{_what_to_mount(stack)}{rename}"]
    provider = (nccl.provider or "").partition(";")[0]
    if provider in SOCKET_PROVIDERS and required.lower() in LIBFABRIC:
        found = f"NCCL uses {nccl.network} with libfabric's provider {nccl.provider}, which is TCP sockets"
        expected = "expected a provider of the fabric (cxi, efa, verbs)"
        return [f"{found}; {expected}. {_which_libfabric(report)}{_what_to_mount(stack)}"]
    return []


def _uses_nccl(report: dict | None, nccl: NcclLog) -> bool:
    if report is not None:
        return any(backend["backend"] == "nccl" for backend in report["backends"])
    return bool(nccl.networks or nccl.warnings or nccl.plugin_problem)


def _same_network(network: str, required: str) -> bool:
    pair = {network.lower(), required.lower()}
    return len(pair) == 1 or pair <= set(LIBFABRIC)


def _why(stack: dict, nccl: NcclLog) -> str:
    """Return what NCCL logs about the plugin that it should have used."""
    if nccl.plugin:
        warnings = f" (NCCL: {'; '.join(nccl.warnings[:2])})" if nccl.warnings else ""
        return f"NCCL loads the plugin {nccl.plugin}, but does not use it{warnings}. "
    if nccl.plugin_problem:
        return f"No loadable libnccl-net.so in the {runtime_of(stack).place} (NCCL: {nccl.plugin_problem}). "
    return ""


def _what_to_mount(stack: dict) -> str:
    """Return how to give a stack the libraries of its required network."""
    required = stack["required_network"].lower()
    others = "libibverbs and its drivers" if required.startswith("ib") else "NCCL's plugin for it"
    needed = "NCCL's plugin and libfabric" if required in LIBFABRIC else others
    return runtime_of(stack).library_remedy(stack, needed)


def _which_libfabric(report: dict | None) -> str:
    found = {
        f"{library['path']} ({library['origin']})"
        for rank in (report or {}).get("ranks", [])
        for library in libraries_named("libfabric", rank["libraries"])
    }
    return f"Loaded: {' and '.join(sorted(found))}. " if found else ""


def _library_problems(stack: dict, report: dict) -> list[str]:
    """Return which libraries required from the host were not loaded, or came from the image."""
    found = []
    for name in stack["required_host_libraries"]:
        loaded = {_where(rank): libraries_named(name, rank["libraries"]) for rank in report["ranks"]}
        missing = [rank for rank, libraries in loaded.items() if not libraries]
        if missing:
            found.append(
                f"{name} is not loaded {_on(missing, loaded, 'on any rank')}; required from the host."
                " Mount it with `binds` and put it first in LD_LIBRARY_PATH in the `wrapper`"
                " (see containers/README.md)."
                " If it is mounted already, the library that loads it is missing, such as NCCL's plugin."
            )
        images = [(rank, lib["path"]) for rank, libs in loaded.items() for lib in libs if lib["origin"] == "image"]
        if images:
            paths, ranks = " and ".join(sorted({path for _, path in images})), [rank for rank, _ in images]
            found.append(
                f"{name} is loaded from the image ({paths}) {_on(ranks, loaded)}; required from the host."
                " Mount the host's with `binds` and put it before the image's in LD_LIBRARY_PATH in the `wrapper`"
                " (see containers/README.md)."
            )
    return found


def _notes(stack: dict, report: dict | None, nccl: NcclLog) -> list[str]:
    notes = []
    num_hosts = len({rank["host"] for rank in report["ranks"]}) if report else 0
    required = stack["required_network"]
    if required and report and not report["placement_problems"] and not _uses_nccl(report, nccl):
        names = ", ".join(backend["backend"] for backend in report["backends"]) or "none"
        reason = f"only NCCL reports its network, and backends are {names}"
        notes.append(f"required_network '{required}' was not checked: {reason}.")
    if required is None and num_hosts > 1 and SOCKETS in nccl.networks:
        remedy = "If the nodes have a faster network, set required_network; the preflight then reports what is missing."
        notes.append(f"NCCL uses TCP sockets between nodes. {remedy}")
    if interface := stack.get("env", {}).get("GLOO_SOCKET_IFNAME"):
        notes.append(f"Network interface of gloo: {interface} (GLOO_SOCKET_IFNAME).")
    notes += [f"NCCL warns: {warning}" for warning in nccl.warnings]
    return notes + (_differences(report["ranks"]) if report else [])


def _differences(ranks: list[dict]) -> list[str]:
    """Return the versions and libraries in which ranks differ, and on which: they should all run the same."""
    values = {name: {_where(rank): rank[name] or "none" for rank in ranks} for name in ("torch", "driver")}
    values |= {name: {_where(rank): _all_of(name, rank["libraries"]) for rank in ranks} for name in COMMUNICATION}
    notes = []
    for name, by_rank in values.items():
        groups = {
            value: [rank for rank in by_rank if by_rank[rank] == value] for value in dict.fromkeys(by_rank.values())
        }
        if len(groups) > 1:
            texts = "; ".join(f"{value} {_on(members, by_rank)}" for value, members in groups.items())
            notes.append(f"{name} differs between ranks: {texts}.")
    return notes


def _all_of(family: str, libraries: list[dict]) -> str:
    members = sorted(f"{lib['path']} ({lib['origin']})" for lib in libraries if family_of(lib["name"]) == family)
    return " and ".join(members) or "not loaded"


def _where(rank: dict) -> tuple[str, int]:
    return rank["host"], rank["rank"]


def _on(some: list[tuple[str, int]], every, everywhere: str = "on all ranks") -> str:
    """Return a description of ranks: `on all ranks`, `on host n2`, or `on rank 3 of n2`."""
    if set(some) == set(every):
        return everywhere
    hosts = list(dict.fromkeys(host for host, _ in some))
    if set(some) == {rank for rank in every if rank[0] in hosts}:
        return f"on host {_named(hosts)}"
    return "on " + _named([f"rank {number} of {host}" for host, number in dict.fromkeys(some)])


def _named(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
