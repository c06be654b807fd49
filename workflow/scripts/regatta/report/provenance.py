"""What the report says of where its numbers come from: hosts, versions, libraries, variables, command lines."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from regatta.core.text import UNKNOWN, size
from regatta.launchers import LAUNCHERS
from regatta.store.launch_files import read_one_line
from regatta.store.records import one_line, violation

VERSIONS = ("python", "torch", "torchvision", "cuda", "nccl", "cudnn", "driver", "kernel")
# Variables that do not describe the software.
NEW_EACH_LAUNCH = (
    "MASTER_",
    "TORCHELASTIC_",
    *(name for launcher in LAUNCHERS.values() for name in launcher.variables),
)


def read_headers(launches: Path, measurements: pd.DataFrame) -> list[dict]:
    """Return the first line, where it is valid, of each launch file with a row in `measurements`. Samples stay unread."""
    used = set(measurements["launch"].dropna())
    lines = (read_one_line(path, 1) for path in sorted(launches.glob("*.jsonl")) if path.stem in used)
    return [line for line in lines if line is not None and line["kind"] == "launch" and violation(line) is None]


def environments(headers: Iterable[dict]) -> list[dict]:
    return [header["environment"] for header in headers if header.get("environment")]


def threads_by_shape(campaign: dict, headers: list[dict]) -> dict[tuple[int, int], set[int]]:
    """Return the threads per rank for each (nodes, ranks per node) of a CPU campaign; empty on GPUs."""
    threads: dict[tuple[int, int], set[int]] = {}
    for header in headers if campaign["device"] == "cpu" else ():
        number = (header.get("environment") or {}).get("threads_per_rank")
        if number is not None:
            threads.setdefault((header["nodes"], header["gpus_per_node"]), set()).add(number)
    return threads


def provenance(headers: list[dict]) -> dict:
    """Return what ran where: hosts, versions by stack, libraries, variables, and the command line of each launch."""
    hosts = {}
    for environment in environments(headers):
        for host in environment.get("hosts", []):
            hosts[host["host"]] = host
    versions = []
    for stack in sorted({header["stack"] for header in headers}):
        own = environments([header for header in headers if header["stack"] == stack])
        texts = [
            ", ".join(sorted({one_line(e[name]) for e in own if e.get(name) is not None})) or UNKNOWN
            for name in VERSIONS
        ]
        versions.append((stack, texts))
    return {
        "hosts": [_host(host) for _, host in sorted(hosts.items())],
        "gpus": _distinct(environments(headers), "gpus"),
        "version_names": VERSIONS,
        "versions": versions,
        "libraries": _distinct(environments(headers), "libraries"),
        "variables": _settings(environments(headers), "variables"),
        "settings": _settings(environments(headers), "settings"),
        "launches": [(one_line(h.get("launch")), " ".join(map(one_line, h.get("argv") or []))) for h in headers],
    }


def _host(host: dict) -> tuple[str, ...]:
    memory = host.get("memory_bytes")
    cores = host.get("num_cores")
    return (
        one_line(host["host"]),
        UNKNOWN if cores is None else str(cores),
        one_line(host.get("cpu_model") or UNKNOWN),
        UNKNOWN if memory is None else size(memory),
    )


def _distinct(environments: list[dict], name: str) -> list[str]:
    """Return the different items of a list in the environments; a GPU without its rank and host."""
    found = set()
    for item in (item for environment in environments for item in environment.get(name) or []):
        if isinstance(item, dict):
            item = ", ".join(f"{key} {value}" for key, value in item.items() if key not in ("rank", "host"))
        found.add(one_line(item))
    return sorted(found)


def _settings(environments: list[dict], name: str) -> list[str]:
    """Return `KEY=value` lines; a key with several values shows at most three of them."""
    found: dict[str, set[str]] = {}
    for environment in environments:
        for key, value in (environment.get(name) or {}).items():
            found.setdefault(one_line(key), set()).add(one_line(value))
    lines = []
    for key, values in sorted(found.items()):
        shown = " or ".join(sorted(values)[:3])
        lines.append(f"{key}={shown}" + (f" or {len(values) - 3} more" if len(values) > 3 else ""))
    return lines
