"""Cache of launch-file summaries (cache/summaries): everything that the tables need except samples.

Collection spends most of its time on samples. A summary is keyed by the SHA-256 of the launch file's bytes and of the
code: the whole store is hashed each time, because size and mtime are not reliable. The folder may be deleted at any
time, and need not be writable.
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from regatta.core.benchmarks import Benchmark, undeclared
from regatta.core.files import sources
from regatta.core.forks import NUM_PROCESSES, pool_with, with_data
from regatta.core.text import one_line
from regatta.model.frozen import FrozenCampaign
from regatta.model.launches import LaunchHeader
from regatta.store.launch_files import LaunchFile, parse_launch_file, read_launch_bytes
from regatta.store.launch_times import hosts_text, measuring_ns, phase_ns
from regatta.store.records import device_of, host_load_columns, measured, training_of, violation
from regatta.store.waits import waits_of

MIN_PARALLEL_BYTES = 20_000_000  # less is read in a second


@dataclass(frozen=True)
class Summary:
    """One launch file. header: of its first `launch` line, None without one. problems: of lines that are not readable.

    is_checked: it has checksums. is_truncated: it ends within a line, which is one of the problems.

    lines: for each readable line `number`, `kind`, `cell` and `problem` (how it breaks the schema, or None). Valid ones
    also have `time_utc`; valid records their times by phase, and those of planned cells `columns`, `unreadable` (why
    the samples are), `undeclared`, `training` and `waits`.
    """

    path: Path
    header: LaunchHeader | None
    problems: list[str]
    lines: list[dict]
    is_checked: bool
    is_truncated: bool = False

    @property
    def launch(self) -> str:
        return self.path.stem

    @functools.cached_property
    def of_launch(self) -> dict:
        """Return the columns that the records of the launch share."""
        return device_of(self.header) | {"hosts": hosts_text(self.header)}

    @functools.cached_property
    def positions(self) -> dict[str, int]:
        """Return the place of each cell in the order of the launch, from 1."""
        order = reversed([*enumerate(self.header.order, 1)])
        return {cell: place for place, cell in order if isinstance(cell, str)}


@dataclass(frozen=True)
class Planned:
    """The specs of the planned cells, a digest of each, their benchmarks by name, and the folder of summaries."""

    specs: dict[str, dict]
    digests: dict[str, str]
    benchmarks: dict[str, Benchmark]
    folder: Path | None
    version: bytes


def read_summaries(paths: list[Path], campaign: FrozenCampaign, folder: Path | None) -> Iterator[Summary]:
    """Yield the summary of each launch file in turn.

    folder: the cache, None to disable it. New summaries are added, and orphaned ones deleted.
    """
    specs = {cell.id: cell.spec for cell in campaign.cells}
    digests = {cell: hashlib.sha256(to_json(spec)).hexdigest()[:16] for cell, spec in specs.items()}
    benchmarks = {benchmark.name: benchmark for benchmark in campaign.benchmarks_of_cells}
    version = code_version() + to_json(campaign.benchmarks)
    planned = Planned(specs, digests, benchmarks, folder, version)
    used = set()
    if NUM_PROCESSES < 2 or sum(path.stat().st_size for path in paths if path.is_file()) < MIN_PARALLEL_BYTES:
        texts = map(functools.partial(summary_text, planned=planned), paths)
        yield from _parsed(paths, texts, used)
    else:
        if folder is None or len(list(folder.glob("*.json"))) < len(paths):
            import scipy.special  # noqa: F401  # new summaries need it; 0.1 s, once instead of in each process

        with pool_with(planned, NUM_PROCESSES, "reads launch files") as pool:
            yield from _parsed(paths, pool.map(functools.partial(with_data, summary_text), paths), used)
    for kept in folder.glob("*.json") if folder else ():
        if kept.name not in used:
            _delete(kept)


def _parsed(paths: list[Path], texts: Iterator[tuple[str, bytes]], used: set[str]) -> Iterator[Summary]:
    for path, (name, text) in zip(paths, texts, strict=True):
        used.add(name)
        content = from_json(text)
        header = content["header"] and LaunchHeader(**content["header"])
        yield Summary(path, **content | {"header": header})


def summary_text(path: Path, planned: Planned) -> tuple[str, bytes]:
    """Return the summary of a launch file as JSON, and the name of its file in the folder of summaries."""
    content, problem = read_launch_bytes(path)
    if problem is not None:
        return "", to_json({"header": None, "problems": [problem], "lines": [], "is_checked": True})
    key = hashlib.sha256(planned.version + path.name.encode() + b"\0" + content).hexdigest()
    kept = planned.folder and planned.folder / f"{key}.json"
    text = _read_cached(kept, planned) if kept else None
    if text is None:
        text = to_json(_summary(parse_launch_file(path, content), planned))
        if kept:
            _write_cached(kept, text)
    return f"{key}.json", text


def _read_cached(path: Path, planned: Planned) -> bytes | None:
    """Return a cached summary; None if there is none, or it is corrupt or stale."""
    try:
        digest, text = path.read_bytes().split(b"\n", 1)
    except (OSError, ValueError):
        return None
    if digest != hashlib.sha256(text).hexdigest().encode():
        return None
    lines = from_json(text)["lines"]
    is_of_plan = all(line["spec"] == planned.digests.get(line["cell"]) for line in lines if "spec" in line)
    return text if is_of_plan else None


def _write_cached(path: Path, text: bytes) -> None:
    """Write a summary atomically, without fsync: a corrupt one is recomputed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        temporary.replace(path)
    except OSError:  # a full disk, or a folder of a different user
        _delete(temporary)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


@functools.cache
def code_version() -> bytes:
    """Return a digest of all that a summary depends on, besides the launch file and the plan."""
    digest = hashlib.sha256(np.__version__.encode())
    for path in sources("collect.py"):
        digest.update(Path(path).read_bytes())
    return digest.digest()


def to_json(value: object) -> bytes:
    """Return JSON of a value with dataclasses. It begins with a space if orjson cannot write or read it.

    Damaged lines may have lone surrogates and integers above 64 bits.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return b" " + json.dumps(value, default=vars).encode()


def from_json(text: bytes) -> dict:
    return json.loads(text) if text.startswith(b" ") else orjson.loads(text)


def _summary(launch_file: LaunchFile, planned: Planned) -> dict:
    header = launch_file.header
    lines = []
    for number, line in launch_file.lines if header is not None else ():
        problem = violation(line)
        entry = {"number": number, "kind": line["kind"], "cell": line.get("cell"), "problem": problem}
        if problem is None:
            entry["time_utc"] = line["time_utc"]
            if line["kind"] == "record":
                entry |= _record(line, header, planned)
        lines.append(entry)
    summary = {"header": header, "problems": launch_file.problems, "lines": lines}
    summary |= {"is_checked": launch_file.is_checked or header is None}
    return summary | {"is_truncated": launch_file.is_truncated}


def _record(record: dict, header: LaunchHeader, planned: Planned) -> dict:
    entry = {name: record[name] for name in ("status", "phase", "elapsed_ns")}
    entry |= {"cause": None if record["cause"] is None else one_line(record["cause"])}
    entry |= {"warmup_ns": phase_ns(record["warmup"]), "measuring_ns": measuring_ns(record)}
    entry |= {"spec": planned.digests.get(record["cell"]), "is_read_again": "read_utc" in record}
    spec = planned.specs.get(record["cell"])
    if spec is None:
        return entry
    benchmark = planned.benchmarks[spec["benchmark"]]
    columns, entry["unreadable"] = measured(record, spec, benchmark)
    entry["unreadable"] = contradiction(record["spec"], spec) or entry["unreadable"]
    if entry["unreadable"] is None:
        hosts = hosts_by_rank(header, spec["nodes"] * spec["gpus_per_node"])
        columns |= host_load_columns(record, hosts)
        entry["columns"] = {name: value for name, value in columns.items() if value is not None}
        entry["undeclared"] = [one_line(text, 300) for text in undeclared(record, benchmark)]
        entry["training"] = training_of(record, spec)
        entry["waits"] = waits_of(record, spec, hosts)
    return entry


def contradiction(recorded: dict, spec: dict) -> str | None:
    """Return the first field of a record's spec that contradicts the cell with its id, or None."""
    for name, value in spec.items():
        if recorded.get(name) != value:
            found, expected = (one_line(json.dumps(one), 100) for one in (recorded.get(name), value))
            return f"its spec contradicts the cell id: {name} is {found}, but the cell has {expected}"
    return None


def hosts_by_rank(header: LaunchHeader, num_ranks: int) -> list[str | None]:
    """Return the host of each rank by the first line of a launch file; None if it is absent or malformed."""
    found: list[str | None] = [None] * num_ranks
    for name, ranks in header.hosts:
        for rank in ranks:
            if isinstance(rank, int) and 0 <= rank < num_ranks:
                found[rank] = one_line(name)
    return found
