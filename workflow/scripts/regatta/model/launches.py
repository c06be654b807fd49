"""Launches as objects: their requests, the first lines of their files, their records, and the events of their jobs.

Each is read by `from_json`, and what is also written, by `to_json`. Files: docs/contracts.md.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from regatta.core.text import is_time, one_line, utc_text
from regatta.model.frozen import FrozenCell, fields_from_json, fields_to_json

MAX_GENERATION = 10_000_000  # same as in workflow/schemas/record.yaml
MOST_DURATION = 10**19  # 10^18 ns are 31 years
ATTEMPT = re.compile(r"-a([0-9]+)$")
ENDED_EARLY = ("no_start", "node_failure", "stopped")  # ends of a job before its batch was finished
END_NOT_RECORDED = "end not recorded"  # begins the cause that the next job notes for a job that was killed
# Fields of lines that are copied from the launch request, and those that are null if nothing was measured.
FROM_REQUEST = "schema campaign batch launch generation repeat stack nodes gpus_per_node device argv git".split()
NOT_MEASURED = (
    "setup_ns warmup sampling samples_ns slowest_rank_samples_ns rank_quantiles_ns windows parts_ns checks "
    "values memory other_ranks"
).split()
Slot = tuple[str, int]  # (cell id, repeat)


def utc_now() -> str:
    return utc_text(time.time())


def duration(value: object) -> int | float | None:
    """Return a recorded duration, or None if it is invalid: not a number, negative or not finite."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < MOST_DURATION else None


@dataclass(frozen=True)
class Cause:
    """Status, phase and one line of a record that the driver writes. hosts: the nodes that the launcher blames.

    host_load: what else used this machine, for the record; None if unknown.
    """

    status: str
    phase: str | None
    text: str | None
    hosts: frozenset[str] = field(default=frozenset(), compare=False)
    host_load: dict | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What the ranks of a launch are to do. cells: in this order. argv: starts the ranks. Paths are absolute.

    image_mount: mount point that exists only in the image of the stack; None if its runtime needs no check.
    """

    schema: int = 1
    campaign: str
    batch: str
    launch: str
    generation: int = 1
    time_utc: str = ""
    repeat: int
    stack: str
    nodes: int
    gpus_per_node: int
    device: str
    start_timeout_seconds: float
    store_file: str
    error_dir: str
    argv: list[str]
    image_mount: str | None = None
    git: Mapping[str, object] | None
    cells: tuple[FrozenCell, ...]

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "LaunchRequest":
        """Return a request as it was stored. Raises TypeError, KeyError or AttributeError if it is damaged."""
        return fields_from_json(cls, {**content, "cells": tuple(map(FrozenCell.from_json, content["cells"]))})

    def to_json(self) -> dict:
        cells = [{"id": cell.id, "spec": cell.spec, "command": cell.command} for cell in self.cells]
        return fields_to_json(self) | {"cells": cells}

    def first_line(self, environment: dict | None) -> dict:
        """Return the first line of the launch file, if no rank writes it. environment: None if it is unknown."""
        known, order = {name: getattr(self, name) for name in FROM_REQUEST}, [cell.id for cell in self.cells]
        return {"kind": "launch", **known, "time_utc": utc_now(), "order": order, "environment": environment}

    def record_line(self, cell: str, cause: Cause, elapsed_ns: int | None) -> dict:
        """Return a record of the driver, as of a cell that killed its ranks."""
        entry = next(one for one in self.cells if one.id == cell)
        what = {"cell": cell, "spec": entry.spec, "repeat": self.repeat, "command": entry.command, "writer": "driver"}
        return unmeasured_record(what, cause, utc_now(), elapsed_ns)


def unmeasured_record(what: Mapping[str, object], cause: Cause, time_utc: str, elapsed_ns: int | None) -> dict:
    """Return a record in which everything measured is None: unknown is never 0. what: its first fields."""
    why = {"status": cause.status, "phase": cause.phase, "cause": cause.text}
    when = {"time_utc": time_utc, "elapsed_ns": elapsed_ns}
    return {"kind": "record", **what, **why, **when, **dict.fromkeys(NOT_MEASURED), "host_load": cause.host_load}


@dataclass(frozen=True)
class LaunchHeader:
    """The first line of a launch file. A field that is absent or invalid is None or empty, its generation 0.

    order: the ids of its cells. imported: the file that its records were read from; None if they were measured.
    """

    repeat: int
    stack: str
    time_utc: str
    generation: int
    batch: str
    nodes: int | None
    gpus_per_node: int | None
    device: str | None
    order: list[str]
    environment: Mapping[str, object]
    imported: Mapping[str, object] | None

    @classmethod
    def from_json(cls, line: Mapping[str, object]) -> "LaunchHeader":
        """Return the header of a line with what every reader needs (store/launch_files.py)."""
        order, environment = line.get("order"), line.get("environment")
        found = (line.get("nodes"), line.get("gpus_per_node"))
        sizes = [size if type(size) is int and 0 < size < 10**9 else None for size in found]
        needed = (line["repeat"], line["stack"], line["time_utc"], generation_of(line), one_line(line.get("batch")))
        order = order if isinstance(order, list) else []
        environment = environment if isinstance(environment, dict) else {}
        return cls(*needed, *sizes, line.get("device"), order, environment, line.get("imported"))

    @property
    def hosts(self) -> list[tuple[str, list[int]]]:
        """Return the hosts in the order of their ranks, with these, as far as they are valid."""
        listed = self.environment.get("hosts")
        hosts = [host for host in listed if isinstance(host, dict)] if isinstance(listed, list) else []
        pairs = [(host.get("host"), host.get("ranks")) for host in hosts]
        return [(name, ranks if isinstance(ranks, list) else []) for name, ranks in pairs if isinstance(name, str)]


# Choice between several records of one cell and repeat. Plan and report call the same function, so they agree.


def generation_of(header: Mapping[str, object]) -> int:
    """Return the generation in a launch's first line, or 0 if it has none."""
    generation = header.get("generation")
    return generation if type(generation) is int and 1 <= generation <= MAX_GENERATION else 0


def record_order(launch: str, generation: int, time_utc: str, line: int) -> tuple[int, int, str, str, int]:
    """Return the key by which records of one cell and repeat are sorted: the last one counts.

    time_utc: start of the launch. line: the record's line in its launch file.
    """
    attempt = ATTEMPT.search(launch) if generation else None
    return generation, int(attempt[1]) if attempt else 0, time_utc, launch, line


@dataclass(frozen=True)
class RecordSummary:
    """A record without its samples. order: of the records of one slot, the one with the highest counts.

    generation: of its batch; 0 if absent from the launch. modules: SHA-256 by path of what a user's script loaded
    besides its cell's files. time_utc: that of its launch if a manifest of an earlier version lists the record. phase:
    in which it failed; None in manifests of earlier versions. reader: version of what read the output of a program.
    """

    slot: Slot
    status: str
    cause: str | None
    launch: str
    elapsed_s: float | None
    generation: int
    modules: dict[str, str] | None
    time_utc: str
    order: tuple
    phase: str | None = None
    reader: int | None = None

    @classmethod
    def of(
        cls, launch: str, of: "LaunchHeader | ListedLaunch", number: int, record: dict, elapsed_s: float | None
    ) -> "RecordSummary":
        """Return a record, as its launch file or a manifest has it. of: its launch.

        number: of its line, or in the manifest. Lines of a launch that still runs are not validated.
        """
        generation = of.generation or 0
        order = record_order(launch, generation, of.time_utc, number)
        cause, time_utc = record.get("cause"), record.get("time_utc")
        cause = None if cause is None else str(cause)
        fields = (record["status"], cause, launch, elapsed_s, generation, record.get("modules"))
        time_utc, phase = time_utc if is_time(time_utc) else of.time_utc, record.get("phase")
        reader = record["reader"] if type(record.get("reader")) is int else None
        return cls((record["cell"], of.repeat), *fields, time_utc, order, phase, reader)

    @property
    def cell(self) -> str:
        return self.slot[0]


@dataclass(frozen=True)
class ListedLaunch:
    """A launch in the manifest of its batch. size_bytes: of its file. records: as the manifest has them.

    overhead_s: seconds of a complete launch not spent in cells; None of any other. generation: None if it has none.
    programs: the files that ran, if it ran a user's program.
    """

    launch: str
    repeat: int
    stack: str | None
    time_utc: str
    size_bytes: int
    overhead_s: float | None
    records: list[dict]
    generation: int | None = None
    programs: list[dict] | None = None

    @classmethod
    def from_json(cls, entry: Mapping[str, object]) -> "ListedLaunch":
        """Return the launch of an entry that meets its schema (store/frozen_files.py)."""
        return fields_from_json(cls, {"stack": None, **entry, "generation": generation_of(entry) or None})

    @property
    def summaries(self) -> list[RecordSummary]:
        """Return its records as objects."""
        return [RecordSummary.of(self.launch, self, i, one, one["elapsed_s"]) for i, one in enumerate(self.records)]


@dataclass(frozen=True)
class JobEvent:
    """An event of a job that worked on a batch, a line of its jobs.jsonl. kind: started, finished, or an early end.

    hosts: the nodes that the next job should avoid. num_records: those that it made. elapsed_s: since its start, by a
    clock that is never set.
    """

    kind: str
    job: str | None
    hosts: list[str]
    cause: str
    time_utc: str
    num_records: int | None = None
    elapsed_s: float | None = None

    @classmethod
    def from_json(cls, line: Mapping[str, object]) -> "JobEvent":
        """Return the event of a line that may be damaged. Raises AttributeError, KeyError or TypeError."""
        hosts = [host for host in line["hosts"] if isinstance(host, str)]
        job, time_utc = (line[key] if isinstance(line.get(key), str) else None for key in ("job", "time_utc"))
        num_records = line["num_records"] if isinstance(line.get("num_records"), int) else None
        elapsed_s = duration(line.get("elapsed_s"))
        return cls(line["kind"], job, hosts, str(line["cause"]), time_utc or "", num_records, elapsed_s)

    @property
    def is_by_next_job(self) -> bool:
        """Return whether the next job noted this end, with its own time: the job itself was killed."""
        return self.cause.startswith(END_NOT_RECORDED)

    @property
    def is_late(self) -> bool:
        """Return whether the job reached its time limit."""
        return self.cause.endswith(": TIMEOUT")
