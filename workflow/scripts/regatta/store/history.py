"""Content of the store: status and cost of the latest record of each cell and repeat.

The launch files of finished batches are verified by their checksums and read from the manifests, without the samples;
others, and damaged ones, are read in full.
"""

import contextlib
import hashlib
import json
import os
import re
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regatta.core.text import is_time, plural, utc_seconds, utc_text
from regatta.store.checksums import is_intact
from regatta.store.frozen_files import mismatch
from regatta.store.launch_files import (
    LaunchFile,
    duration,
    launch_paths,
    load_json,
    parse_launch_file,
    read_file,
    read_launch_bytes,
    read_launch_file,
)

MAX_GENERATION = 10_000_000  # same as in workflow/schemas/record.yaml
MOST_SECONDS_AHEAD = 300  # tolerated clock difference within a cluster
BUILT_ON = "*.json *.csv tables/*.csv launches/*.jsonl batches/*/*.json preflight/*.json preflight/*/*.json".split()
ATTEMPT = re.compile(r"-a([0-9]+)$")
DIFFERS = "differs from the manifest of its batch; the launch file is used"
ALWAYS_RETRIED = ("node_failure", "invalid")  # statuses that are no result of the cell


# Choice between several records of one cell and repeat. Plan and report call the same function, so they agree.


def generation_of(header: dict) -> int:
    """Return the generation in a launch's first line, or 0 if it has none."""
    generation = header.get("generation")
    return generation if type(generation) is int and 1 <= generation <= MAX_GENERATION else 0


def record_order(launch: str, generation: int, time_utc: str, line: int) -> tuple[int, int, str, str, int]:
    """Return the key by which records of one cell and repeat are sorted: the last one counts.

    time_utc: start of the launch. line: the record's line in its launch file.
    """
    attempt = ATTEMPT.search(launch) if generation else None
    return generation, int(attempt[1]) if attempt else 0, time_utc, launch, line


def is_after_now(time_utc: str) -> bool:
    """Return whether a recorded time is in the future by more than clocks may differ; False for an invalid time."""
    return time_utc > utc_text(time.time() + MOST_SECONDS_AHEAD) and utc_seconds(time_utc) is not None


def end_times_after_now(results: Path) -> None:
    """Set the time of files of a results folder that are newer than now to now: Snakemake refuses to build on them."""
    now = time.time()
    for path in (path for pattern in BUILT_ON for path in results.glob(pattern)):
        with contextlib.suppress(OSError):  # Snakemake reports the error if the file belongs to a different user
            if path.stat().st_mtime > now:
                os.utime(path)


Slot = tuple[str, int]  # (cell id, repeat)


@dataclass(frozen=True)
class RecordSummary:
    """A record without its samples. order: of the records of one slot, the one with the highest counts.

    generation: of its batch; 0 if absent from the launch. modules: SHA-256 by path of what a user's script loaded
    besides its cell's files. time_utc: that of its launch if a manifest of an earlier version lists the record.
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

    @classmethod
    def of(cls, launch: str, header: dict, number: int, record: dict, elapsed_s: float | None) -> "RecordSummary":
        """Return a record, as its launch file or a manifest has it. header: the first line of the launch, or its entry.

        number: of its line, or in the manifest. Lines of a launch that still runs are not validated.
        """
        generation, slot = generation_of(header), (record["cell"], header["repeat"])
        order = record_order(launch, generation, header["time_utc"], number)
        cause, time_utc = (record.get(key) for key in ("cause", "time_utc"))
        cause = None if cause is None else str(cause)
        fields = (record["status"], cause, launch, elapsed_s, generation, record.get("modules"))
        return cls(slot, *fields, time_utc if is_time(time_utc) else header["time_utc"], order)


def listed_records(entry: dict) -> list[RecordSummary]:
    """Return the records of a launch in a manifest."""
    records = enumerate(entry["records"])
    return [RecordSummary.of(entry["launch"], entry, number, r, r["elapsed_s"]) for number, r in records]


def latest_records(records: Iterable[RecordSummary]) -> dict[Slot, RecordSummary]:
    """Return the record of each slot that counts."""
    latest: dict[Slot, RecordSummary] = {}
    for record in records:
        if record.slot not in latest or latest[record.slot].order < record.order:
            latest[record.slot] = record
    return latest


@dataclass
class History:
    """slots: those with a record. launch_overheads_s: seconds of each complete launch not spent in cells.

    lost: the launch file of each slot that has no record because that file is damaged or missing.
    unlisted: launch files that no manifest lists, of batches that were stopped.
    """

    slots: dict[Slot, RecordSummary] = field(default_factory=dict)
    launch_overheads_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lost: dict[Slot, str] = field(default_factory=dict)
    unlisted: list[Path] = field(default_factory=list)

    def cell_seconds(self) -> dict[str, float]:
        """Return the median seconds of the records of each cell that has any."""
        seconds: dict[str, list[float]] = {}
        for (cell, _), slot in self.slots.items():
            if slot.elapsed_s is not None:
                seconds.setdefault(cell, []).append(slot.elapsed_s)
        return {cell: statistics.median(values) for cell, values in seconds.items()}


def summarize(launch_file: LaunchFile) -> dict | None:
    """Return the entry of a launch in its batch's manifest, or None if the file has no header."""
    header = launch_file.header
    if header is None:
        return None
    records = [_summary(line) for _, line in launch_file.lines if line["kind"] == "record"]
    complete = [line for _, line in launch_file.lines if line["kind"] == "complete"]
    overhead = None
    if complete and (elapsed_ns := duration(complete[0].get("elapsed_ns"))) is not None:
        overhead = max(0.0, elapsed_ns / 1e9 - sum(r["elapsed_s"] or 0 for r in records))
        # A launch's clock starts after Python and torch have started; their seconds are in its environment.
        environment = header.get("environment")
        overhead += (duration(environment.get("seconds_to_ready")) or 0.0) if isinstance(environment, dict) else 0.0
    return {
        "launch": launch_file.launch,
        "repeat": header["repeat"],
        "stack": header["stack"],
        "time_utc": header["time_utc"],
        "size_bytes": launch_file.path.stat().st_size,
        "overhead_s": overhead,
        "records": records,
    } | ({"generation": generation} if (generation := generation_of(header)) else {})


def _summary(record: dict) -> dict:
    """Return a record without its samples. One that the analysis rejects is `invalid`."""
    from regatta.store.records import problem_of  # imports numpy, which a plan of finished batches does without

    problem = problem_of(record)
    elapsed_ns = None if problem else record["elapsed_ns"]
    return {
        "cell": record["cell"],
        "status": "invalid" if problem else record["status"],
        "cause": problem or record["cause"],
        "elapsed_s": None if elapsed_ns is None else elapsed_ns / 1e9,
        **({} if problem else {"time_utc": record["time_utc"]}),
        **({"modules": record["modules"]} if record.get("modules") and not problem else {}),
    }


def digest_of(launches: list[dict]) -> str:
    """Return the digest of a manifest's launches, by which an edit is found."""
    return hashlib.sha256(json.dumps(launches, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> tuple[list[dict], bool]:
    """Return a manifest's launches, and whether their digest is right. Those of earlier versions have none.

    Raises OSError, ValueError or RecursionError if they cannot be read.
    """
    manifest = load_json(read_file(path))
    if problem := mismatch(manifest, "manifest", "launches"):
        raise ValueError(problem)
    return manifest["launches"], manifest.get("digest") == digest_of(manifest["launches"])


def read_history(results: Path) -> History:
    """Read the history of a results folder. Raises UserError if its launch files cannot be read."""
    history = History()
    present = {path.stem: path for path in launch_paths(results / "launches")}
    entries, listed = [], set()
    for manifest in sorted((results / "batches").glob("*/manifest.json")):
        try:
            found, is_sealed = read_manifest(manifest)
        except (OSError, ValueError, RecursionError) as error:
            history.problems.append(f"{manifest}: cannot be read ({error!r}); its launch files are read instead")
            continue
        for entry in found:
            listed.add(entry["launch"])
            path = present.get(entry["launch"])
            problem = _difference(entry, path, is_sealed)
            if problem is None:
                entries.append(entry)
                continue
            history.problems.append(f"{entry['launch']}.jsonl: {problem}")
            history.lost |= {(record["cell"], entry["repeat"]): entry["launch"] for record in entry["records"]}
            if path:
                entries += _read_entry(path, history)
                history.unlisted += [path] if path.is_file() else []
    for name in sorted(present.keys() - listed):
        history.unlisted += [present[name]] if present[name].is_file() else []
        num_problems = len(history.problems)
        entries += _read_entry(present[name], history)
        if len(history.problems) > num_problems:
            history.lost |= dict.fromkeys(_requested(results, name), name)
    history.slots = latest_records(record for entry in entries for record in listed_records(entry))
    history.launch_overheads_s = [entry["overhead_s"] for entry in entries if entry["overhead_s"] is not None]
    history.lost = {slot: f"{launch}.jsonl" for slot, launch in history.lost.items() if slot not in history.slots}
    if ahead := sorted((e["time_utc"], e["launch"]) for e in entries if e["records"] and is_after_now(e["time_utc"])):
        text = after_now_text(len(ahead), *ahead[-1])
        history.problems.append(
            f"{text}. Synchronize the clocks of all machines; a retry still supersedes these records"
        )
    return history


def _read_entry(path: Path, history: History) -> list[dict]:
    """Return the summary of a launch file as a list, empty if it has no header, and note its problems."""
    launch_file = read_launch_file(path)
    history.problems += launch_file.problems
    entry = summarize(launch_file)
    return [] if entry is None else [entry]


def _difference(entry: dict, path: Path | None, is_sealed: bool) -> str | None:
    """Return how a launch file differs from what its manifest lists, or None if its records are as they were."""
    if problem := size_problem(entry, path):
        return problem
    content, problem = read_launch_bytes(path)
    if problem is not None:
        return "cannot be read"
    if is_sealed and is_intact(path.stem, content):
        return None
    launch_file = parse_launch_file(path, content)  # damaged, edited, or of an earlier version
    is_damaged = launch_file.problems and (launch_file.is_checked or b"\0" in content)
    return None if not is_damaged and _agree(launch_file, entry) else DIFFERS


def _agree(launch_file: LaunchFile, entry: dict) -> bool:
    """Return whether a launch file has the listed records. One that the analysis rejects is listed as invalid."""
    header, listed = launch_file.header, entry["records"]
    found = [line for _, line in launch_file.lines if line["kind"] == "record"]
    if header is None or header["repeat"] != entry["repeat"] or len(found) != len(listed):
        return False
    pairs = zip(found, listed, strict=True)
    return all(line["cell"] == of["cell"] and of["status"] in (line["status"], "invalid") for line, of in pairs)


def size_problem(entry: dict, path: Path | None) -> str | None:
    """Return how a launch file differs in size from what its manifest lists, such as an older copy; or None."""
    try:
        size = path.stat().st_size if path and path.is_file() else None
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if size is None:
        return f"is missing or not a regular file; the manifest lists {plural(len(entry['records']), 'record')}"
    expected = entry["size_bytes"]
    return None if size == expected else f"is {size:,} bytes; was {expected:,} when its batch finished"


def _requested(results: Path, launch: str) -> Iterator[Slot]:
    """Yield cell and repeat of what a launch was requested to measure; nothing if its request cannot be read."""
    path = results / "batches" / launch.rpartition("-l")[0] / "launches" / f"{launch}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        request = load_json(read_file(path))
        yield from [(cell["id"], request["repeat"]) for cell in request["cells"] if isinstance(cell["id"], str)]


def after_now_text(num_launches: int, time_utc: str, launch: str) -> str:
    """Return the warning of launches with times in the future. time_utc, launch: the latest of them."""
    have = "launch has a time" if num_launches == 1 else "launches have times"
    return f"{num_launches} {have} in the future, up to {time_utc} ({launch}): a clock was ahead"
