"""Provenance of the numbers: hosts, versions, libraries, variables, command lines."""

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
    """Return the first line, if valid, of each launch file with a row in `measurements`. Samples are not read."""
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
    found = environments(headers)
    hosts = {host["host"]: host for environment in found for host in environment.get("hosts", [])}
    versions = []
    for stack in sorted({header["stack"] for header in headers}):
        of_stack = environments(header for header in headers if header["stack"] == stack)
        versions.append((stack, [values_text(environment.get(name) for environment in of_stack) for name in VERSIONS]))
    return {
        "hosts": [_host(host) for _, host in sorted(hosts.items())],
        "gpus": _distinct(found, "gpus"),
        "version_names": VERSIONS,
        "versions": versions,
        "libraries": _distinct(found, "libraries"),
        "variables": _settings(found, "variables"),
        "settings": _settings(found, "settings"),
        "launches": [(one_line(h.get("launch")), " ".join(map(one_line, h.get("argv") or []))) for h in headers],
    }


def values_text(values: Iterable[object]) -> str:
    """Return the distinct known values, or n/a."""
    return ", ".join(sorted({one_line(value) for value in values if value is not None})) or UNKNOWN


def _host(host: dict) -> tuple[str, ...]:
    memory, cores = host.get("memory_bytes"), host.get("num_cores")
    return (
        one_line(host["host"]),
        UNKNOWN if cores is None else str(cores),
        one_line(host.get("cpu_model") or UNKNOWN),
        UNKNOWN if memory is None else size(memory),
    )


def _distinct(environments: list[dict], name: str) -> list[str]:
    """Return the distinct items of a list in the environments; a GPU without its rank and host."""
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
        more = f" or {len(values) - 3} more" if len(values) > 3 else ""
        lines.append(f"{key}={' or '.join(sorted(values)[:3])}{more}")
    return lines
