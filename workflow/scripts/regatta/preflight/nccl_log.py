"""What NCCL says of itself in the log that NCCL_DEBUG=INFO makes it write: version, network, plug-in, transports.

The words differ between NCCL 2.18 and 2.29; the golden logs in tests/golden/nccl/ hold real ones of each form. A line
that is not known says nothing: nothing is guessed.
"""

import re
from dataclasses import dataclass

MOST_WARNINGS = 5

SAID = re.compile(r"NCCL (?P<level>INFO|WARN) (?P<words>.*)")  # behind a time, host:pid:thread and [device], or nothing
VERSION = re.compile(r"\b[NR]CCL version (\S+)")
NETWORK = re.compile(r"^Using network (.+)$")
LOADED = re.compile(r"^NET/Plugin ?: Loaded net plugin (.+)$")
PROVIDER = re.compile(r"^NET/OFI selected provider is ([^\s,]+)", re.IGNORECASE)
CHANNEL = re.compile(r"^(?:Channel|Ring) \d+(?:/\d+)? : .*? via ((?:NET|COLLNET|P2P|SHM|MNNVL)\b.*)$")
BEHIND_TRANSPORT = re.compile(r"\s+comm 0x.*$")  # NCCL up to 2.18 names the communicator there
DEVICE = re.compile(r"/\d+(?:\(\d+\))?(?=/|$)")  # number of a network device, and of the proxy's

# Why the plug-in is not there, the most telling words first: what the dynamic linker says; that there is no such file;
# that NCCL goes on without one.
PLUGIN = re.compile(r"^NET/Plugin ?: (?P<words>.+)$")
REASONS = (
    re.compile(r"cannot open shared object|undefined symbol|version `.*' not found|wrong ELF class|is unsupported"),
    re.compile(r"Could not find: "),
    re.compile(r"No plugin found"),
)
FALLBACK = re.compile(r"[.,]?\s*(?:No plugin found \(\S+\), )?[Uu]sing internal .*$|[.\s]+$")


@dataclass(frozen=True)
class NcclLog:
    """What a log holds; None or () for what it does not say.

    networks: each that a communicator uses, in order of appearance. plugin: name and interface of the network plug-in
    that was loaded, which is not to say that it is used. plugin_problem: why none was, in NCCL's words. provider: that
    of libfabric. transports: without numbers of devices, such as P2P/CUMEM or NET/Libfabric/GDRDMA.
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
    said = [(match["level"], match["words"].strip()) for line in text.splitlines() if (match := SAID.search(line))]
    infos = [words for level, words in said if level == "INFO"]
    version = VERSION.search(text)
    plugins, providers = _all(LOADED, infos), _all(PROVIDER, infos)
    return NcclLog(
        version=version[1] if version else None,
        networks=_all(NETWORK, infos),
        plugin=plugins[0] if plugins else None,
        plugin_problem=None if plugins else _plugin_problem(infos),
        provider=" and ".join(providers) or None,
        transports=tuple(sorted({_transport(words) for words in _all(CHANNEL, infos)})),
        warnings=tuple(dict.fromkeys(words for level, words in said if level == "WARN"))[:MOST_WARNINGS],
    )


def _all(pattern: re.Pattern, lines: list[str]) -> tuple[str, ...]:
    """Return what the pattern's group finds in the lines, each once, in order of appearance."""
    return tuple(dict.fromkeys(match[1].strip() for line in lines if (match := pattern.search(line))))


def _transport(words: str) -> str:
    """Return a transport without its devices: NET/IB/0/GDRDMA/Shared becomes NET/IB/GDRDMA."""
    return DEVICE.sub("", BEHIND_TRANSPORT.sub("", words)).removesuffix("/Shared")


def _plugin_problem(infos: list[str]) -> str | None:
    """Return in NCCL's words why there is no network plug-in, as exactly as it says, or None if it says nothing."""
    reasons = [match["words"] for line in infos if (match := PLUGIN.search(line))]
    for kind in REASONS:
        for reason in reasons:
            if kind.search(reason):
                return FALLBACK.sub("", reason).strip()
    return None
