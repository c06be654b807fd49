"""Content of the store: status and cost of the latest record of each cell and repeat.

The launch files of finished batches are verified by their checksums and read from the manifests, without the samples;
others, and damaged ones, are read in full.
"""

import contextlib
import hashlib
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regatta.core.text import is_time, plural, utc_seconds, utc_text
from regatta.model.frozen import fields_to_json
from regatta.model.launches import LaunchRequest, ListedLaunch, RecordSummary, Slot, duration
from regatta.store.checksums import is_intact
from regatta.store.frozen_files import mismatch
from regatta.store.launch_files import (
    LaunchFile,
    launch_paths,
    load_json,
    parse_launch_file,
    read_file,
    read_json,
    read_launch_bytes,
    read_launch_file,
    write_json,
)

MOST_SECONDS_AHEAD = 300  # tolerated clock difference within a cluster
BUILT_ON = "*.json *.csv tables/*.csv launches/*.jsonl batches/*/*.json preflight/*.json preflight/*/*.json".split()
DIFFERS = "differs from the manifest of its batch; the launch file is used"
ALWAYS_RETRIED = ("node_failure", "invalid")  # statuses that are no result of the cell


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

    programs: the files that each launch of a user's program ran.
    lost: the launch file of each slot that has no record because that file is damaged or missing.
    unlisted: launch files that no manifest lists, of batches that were stopped. grown: manifests of launches whose
    output was read again since.
    """

    slots: dict[Slot, RecordSummary] = field(default_factory=dict)
    launch_overheads_s: list[float] = field(default_factory=list)
    programs: dict[str, list[dict]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    lost: dict[Slot, str] = field(default_factory=dict)
    unlisted: list[Path] = field(default_factory=list)
    grown: list[Path] = field(default_factory=list)

    def cell_seconds(self) -> dict[str, float]:
        """Return the median seconds of the records of each cell that has any."""
        seconds: dict[str, list[float]] = {}
        for (cell, _), slot in self.slots.items():
            if slot.elapsed_s is not None:
                seconds.setdefault(cell, []).append(slot.elapsed_s)
        return {cell: statistics.median(values) for cell, values in seconds.items()}


def summarize(launch_file: LaunchFile) -> ListedLaunch | None:
    """Return a launch as its batch's manifest lists it, or None if the file has no header."""
    header, complete = launch_file.header, launch_file.lines_of("complete")
    if header is None:
        return None
    records, overhead = [_listed(line) for line in launch_file.lines_of("record")], None
    if complete and (elapsed_ns := duration(complete[0].get("elapsed_ns"))) is not None:
        # A launch's clock starts after Python and torch have started; their seconds are in its environment.
        measured = zip(launch_file.lines_of("record"), records, strict=True)
        cells_s = sum(of["elapsed_s"] or 0 for line, of in measured if not line.get("read_utc"))
        overhead = max(0.0, elapsed_ns / 1e9 - cells_s)
        overhead += duration(header.environment.get("seconds_to_ready")) or 0.0
    place = (launch_file.launch, header.repeat, header.stack, header.time_utc)
    files = _programs(header.environment.get("programs"))
    return ListedLaunch(*place, launch_file.path.stat().st_size, overhead, records, header.generation or None, files)


def _programs(listed: object) -> list[dict] | None:
    """Return the files that a user's program ran, as far as they are valid; None if there are none."""
    found = [of for of in listed if isinstance(of, dict)] if isinstance(listed, list) else []
    found = [{key: of.get(key) for key in ("path", "size_bytes", "time_utc")} for of in found]
    types = str, int
    known = [of for of in found if (type(of["path"]), type(of["size_bytes"])) == types and is_time(of["time_utc"])]
    return known or None


def _listed(record: dict) -> dict:
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
        **({name: record[name] for name in ("modules", "phase", "reader") if record.get(name) and not problem}),
    }


def with_read_again(entry: ListedLaunch, path: Path | None) -> ListedLaunch:
    """Return a launch of a manifest with the records that were read again from its output since, if there are any."""
    try:
        if path is None or path.stat().st_size <= entry.size_bytes:
            return entry
        with path.open("rb") as file:
            num_lines = file.read(entry.size_bytes).count(b"\n")
    except OSError:
        return entry
    launch_file = read_launch_file(path)
    later = [line for number, line in launch_file.lines if number > num_lines]
    is_sound = later and not launch_file.problems
    return summarize(launch_file) if is_sound and all(line.get("read_utc") for line in later) else entry


def refresh_manifest(path: Path, launches: Path) -> None:
    """Write the manifest of a finished batch with the records that were read again since."""
    manifest = load_json(read_file(path))
    found = [with_read_again(entry, launches / f"{entry.launch}.jsonl") for entry in read_manifest(path)[0]]
    counts = Counter(record.status for entry in found for record in entry.summaries)
    entries = list(map(fields_to_json, found))
    write_json(path, manifest | {"counts": counts, "launches": entries, "digest": digest_of(entries)})


def digest_of(launches: list[dict]) -> str:
    """Return the digest of a manifest's launches, by which an edit is found."""
    return hashlib.sha256(json.dumps(launches, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> tuple[list[ListedLaunch], bool]:
    """Return a manifest's launches, and whether their digest is right. Those of earlier versions have none.

    Raises OSError, ValueError or RecursionError if they cannot be read.
    """
    manifest = load_json(read_file(path))
    if problem := mismatch(manifest, "manifest", "launches"):
        raise ValueError(problem)
    launches = manifest["launches"]
    return list(map(ListedLaunch.from_json, launches)), manifest.get("digest") == digest_of(launches)


def read_history(results: Path) -> History:
    """Read the history of a results folder. Raises UserError if its launch files cannot be read."""
    history = History()
    present = {path.stem: path for path in launch_paths(results / "launches")}
    entries: list[ListedLaunch] = []
    listed: set[str] = set()
    for manifest in sorted((results / "batches").glob("*/manifest.json")):
        try:
            found, is_sealed = read_manifest(manifest)
        except (OSError, ValueError, RecursionError) as error:
            history.problems.append(f"{manifest}: cannot be read ({error!r}); its launch files are read instead")
            continue
        for listed_entry in found:
            path = present.get(listed_entry.launch)
            entry = with_read_again(listed_entry, path)
            history.grown += [manifest] if entry is not listed_entry and manifest not in history.grown else []
            listed.add(entry.launch)
            problem = _difference(entry, path, is_sealed)
            if problem is None:
                entries.append(entry)
                continue
            history.problems.append(f"{entry.launch}.jsonl: {problem}")
            history.lost |= {record.slot: entry.launch for record in entry.summaries}
            if path:
                entries += _read_entry(path, history)
                history.unlisted += [path] if path.is_file() else []
    for name in sorted(present.keys() - listed):
        history.unlisted += [present[name]] if present[name].is_file() else []
        num_problems = len(history.problems)
        entries += _read_entry(present[name], history)
        if len(history.problems) > num_problems:
            history.lost |= dict.fromkeys(_requested(results, name), name)
    history.slots = latest_records(record for entry in entries for record in entry.summaries)
    history.launch_overheads_s = [entry.overhead_s for entry in entries if entry.overhead_s is not None]
    history.programs = {entry.launch: entry.programs for entry in entries if entry.programs}
    history.lost = {slot: f"{launch}.jsonl" for slot, launch in history.lost.items() if slot not in history.slots}
    if ahead := sorted((e.time_utc, e.launch) for e in entries if e.records and is_after_now(e.time_utc)):
        text = after_now_text(len(ahead), *ahead[-1])
        history.problems.append(
            f"{text}. Synchronize the clocks of all machines; a retry still supersedes these records"
        )
    return history


def _read_entry(path: Path, history: History) -> list[ListedLaunch]:
    """Return the launch of a file as a list, empty if it has no header, and note its problems."""
    launch_file = read_launch_file(path)
    history.problems += launch_file.problems
    entry = summarize(launch_file)
    return [] if entry is None else [entry]


def _difference(entry: ListedLaunch, path: Path | None, is_sealed: bool) -> str | None:
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


def _agree(launch_file: LaunchFile, entry: ListedLaunch) -> bool:
    """Return whether a launch file has the listed records. One that the analysis rejects is listed as invalid."""
    header, found = launch_file.header, launch_file.lines_of("record")
    if header is None or header.repeat != entry.repeat or len(found) != len(entry.records):
        return False
    pairs = zip(found, entry.summaries, strict=True)
    return all(line["cell"] == of.cell and of.status in (line["status"], "invalid") for line, of in pairs)


def size_problem(entry: ListedLaunch, path: Path | None) -> str | None:
    """Return how a launch file differs in size from what its manifest lists, such as an older copy; or None."""
    try:
        size = path.stat().st_size if path and path.is_file() else None
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if size is None:
        return f"is missing or not a regular file; the manifest lists {plural(len(entry.records), 'record')}"
    return None if size == entry.size_bytes else f"is {size:,} bytes; was {entry.size_bytes:,} when its batch finished"


def _requested(results: Path, launch: str) -> Iterator[Slot]:
    """Yield cell and repeat of what a launch was requested to measure; nothing if its request cannot be read."""
    path = results / "batches" / launch.rpartition("-l")[0] / "launches" / f"{launch}.json"
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        request = LaunchRequest.from_json(read_json(path))
        yield from [(cell.id, request.repeat) for cell in request.cells if isinstance(cell.id, str)]


def after_now_text(num_launches: int, time_utc: str, launch: str) -> str:
    """Return the warning of launches with times in the future. time_utc, launch: the latest of them."""
    have = "launch has a time" if num_launches == 1 else "launches have times"
    return f"{num_launches} {have} in the future, up to {time_utc} ({launch}): a clock was ahead"
