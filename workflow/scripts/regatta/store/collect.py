"""Turn the store into tables, and report which records were left out and why.

measurements.csv has one row per planned cell and repeat; epochs.csv and ranks.csv have those of training runs;
waits.csv shows for which rank the others of a launch waited; launches.csv and jobs.csv when launches and jobs ran.

The latest valid record of a cell and repeat counts (regatta.store.history). A slot without one has the status
`not_measured`. Times are those of the slowest rank in each iteration.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from regatta.core.text import one_line
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.model.launches import END_NOT_RECORDED, ENDED_EARLY, ListedLaunch, Slot, record_order
from regatta.store.csv_files import (
    COLLECTED,
    TABLE_DIGITS,
    cell_row,
    columns_in,
    make_table,
    read_csv,
    to_csv,
)
from regatta.store.frozen_files import mismatch
from regatta.store.history import is_after_now, size_problem
from regatta.store.jobs import noted_jobs, open_job
from regatta.store.launch_files import launch_paths, read_json, write_text
from regatta.store.launch_times import job_rows, launch_row
from regatta.store.nodes import blame_text, blamed_nodes
from regatta.store.summaries import Summary, read_summaries
from regatta.store.waits import wait_rows

DIGITS = {"measurements": 12, "epochs": None}  # significant ones in their files; None: all


def collected_csv(collected: dict[str, pd.DataFrame]) -> dict[str, str]:
    """Return the text of each file by the name of its table."""
    return {name: to_csv(collected[name], DIGITS.get(name, TABLE_DIGITS)) for name in COLLECTED}


def summaries_beside(launches: Path) -> Path:
    """Return the folder of the summaries of a results folder's launch files."""
    return launches.parent / "cache" / "summaries"


def write_collected(collected: dict[str, pd.DataFrame], measurements: Path) -> None:
    """Write measurements.csv at this path and the other tables beside it."""
    for name, text in collected_csv(collected).items():
        write_text(path_of(name, measurements), text)


def read_collected(campaign: FrozenCampaign, measurements: Path) -> dict[str, pd.DataFrame]:
    """Read measurements.csv and the other tables beside it."""
    columns = {name: columns_in(campaign, of) for name, of in COLLECTED.items()}
    return {name: read_csv(path_of(name, measurements), of) for name, of in columns.items()}


def path_of(name: str, measurements: Path) -> Path:
    return measurements if name == "measurements" else measurements.with_name(f"{name}.csv")


@dataclass
class Found:
    """The store's content for one campaign, and which part of it is not in the tables.

    rows: for each slot (order among its records, row, training, waits as JSON). cell_rows: columns of each cell that
    is planned. no_record: why a slot with a trace in the store has no record. undeclared: problems of fields that no
    schema declares, each reported once. interrupted: jobs that ended before their batch was finished, even if a later
    job finished it. after_now: the latest time of each launch that has one in the future; its records are used.
    num_unchecked: launch files without checksums. num_truncated: those that end within a line. batches: the folder of
    all batches. launches, jobs: rows of these tables.
    """

    planned: Mapping[str, FrozenCell]
    repeats: int
    batches: Path
    cell_rows: dict[str, dict]
    rows: dict[Slot, tuple[tuple, dict, dict, dict | None]] = field(default_factory=dict)
    no_record: dict[Slot, str] = field(default_factory=dict)
    undeclared: set[str] = field(default_factory=set)
    corrupt: list[str] = field(default_factory=list)
    num_unchecked: int = 0
    num_truncated: int = 0
    invalid: list[dict] = field(default_factory=list)
    superseded: list[dict] = field(default_factory=list)
    beyond_repeats: list[dict] = field(default_factory=list)
    interrupted: list[dict] = field(default_factory=list)
    not_planned: Counter = field(default_factory=Counter)
    after_now: dict[str, str] = field(default_factory=dict)
    blamed_nodes: list[dict] = field(default_factory=list)
    launches: list[dict] = field(default_factory=list)
    jobs: list[dict] = field(default_factory=list)

    def problems(self) -> dict:
        """Return the content of problems.json, which the report shows."""
        lists = {name: getattr(self, name) for name in ("corrupt", "invalid", "superseded", "beyond_repeats")}
        lists["interrupted"] = sorted(self.interrupted, key=lambda job: job["batch"])  # those of a batch in their order
        lists["not_planned"] = [{"cell": cell, "num_records": num} for cell, num in sorted(self.not_planned.items())]
        after_now = [{"launch": launch, "time_utc": time} for launch, time in sorted(self.after_now.items())]
        later = {"after_now": after_now, "blamed_nodes": self.blamed_nodes, "num_unchecked": self.num_unchecked}
        later["num_truncated"] = self.num_truncated
        return {"schema": 1, **lists, **{name: entries for name, entries in later.items() if entries}}


def read_store(
    campaign: FrozenCampaign, launches_dir: Path, summaries: Path | None = None
) -> tuple[dict[str, pd.DataFrame], dict]:
    """Return the tables of COLLECTED by name, and problems.json as an object.

    summaries: the folder in which those of launch files are kept (store/summaries.py); None to keep none.
    """
    cell_rows = {cell.id: cell_row(cell) for cell in campaign.cells}
    found = Found(campaign.by_id, campaign.repeats, launches_dir.parent / "batches", cell_rows)
    paths = launch_paths(launches_dir)
    for summary in read_summaries(paths, campaign, summaries):
        found.corrupt += [one_line(problem) for problem in summary.problems]
        found.num_unchecked += not summary.is_checked
        found.num_truncated += summary.is_truncated
        if summary.header is not None:
            _read_launch(summary, found)
    _read_batches(found, {path.stem: path for path in paths})
    blamed = blamed_nodes(launches_dir.parent).items()
    found.blamed_nodes = [{"host": one_line(host), "text": blame_text(host, evidence)} for host, evidence in blamed]
    rows = [_slot_row(slot, found) for slot in campaign.slots]
    skipped = {"status": "skipped", "repeat": None}
    rows += [cell_row(cell) | skipped | {"cause": _text(cell.reason)} for cell in campaign.skipped]
    rows.sort(key=lambda row: (row["cell"], -1 if row["repeat"] is None else row["repeat"]))
    measured_rows = [found.rows[slot] for slot in sorted(found.rows)]
    all_rows = {
        "measurements": rows,
        "epochs": [_place_of(row) | line for _, row, training, _ in measured_rows for line in training["epochs"]],
        "ranks": [_place_of(row) | line for _, row, training, _ in measured_rows for line in training["ranks"]],
        "waits": wait_rows([(row, waits) for _, row, _, waits in measured_rows if waits is not None]),
        "launches": found.launches,
        "jobs": found.jobs,
    }
    columns = {name: columns_in(campaign, of) for name, of in COLLECTED.items()}
    return {name: make_table(all_rows[name], of) for name, of in columns.items()}, found.problems()


def _read_launch(summary: Summary, found: Found) -> None:
    header, valid_lines = summary.header, []
    for line in summary.lines:
        if line["problem"]:
            _refuse(summary, line, line["problem"], found)
            continue
        valid_lines.append(line)
        if line["kind"] not in ("start", "record"):
            continue
        slot = (line["cell"], header.repeat)
        if line["kind"] == "start":
            found.no_record[slot] = f"started (line {line['number']} of {summary.path.name}) but not recorded"
        elif line["cell"] not in found.planned:
            found.not_planned[line["cell"]] += 1
        elif not 0 <= header.repeat < found.repeats:
            found.beyond_repeats.append(_place(slot, summary, line))
        else:
            _read_record(summary, line, slot, found)
    first = next(index for index, line in enumerate(summary.lines) if line["kind"] == "launch")
    if not summary.lines[first]["problem"]:
        valid_lines = [line for line in valid_lines if line is not summary.lines[first]]
        if row := launch_row(header, summary.launch, valid_lines, found.batches):
            found.launches.append(row)


def _read_batches(found: Found, paths: dict[str, Path]) -> None:
    """Note when jobs ran, and why cells have no trace in the store: a stack was held, or a job ended before them."""
    events = {path.parent: noted_jobs(path.parent) for path in sorted(found.batches.glob("*/jobs.jsonl"))}
    for folder in events:
        shape = {name: _part(folder / "batch.json", name, None) for name in ("nodes", "gpus_per_node")}
        found.jobs += job_rows(folder.name, events[folder], shape)
    folders = [path.parent for path in found.batches.glob("*/batch.json") if path.is_file()]
    batches = [(folder, events.get(folder, [])) for folder in folders]
    # Compare recorded times: file times change with each copy of the folder.
    batches.sort(key=lambda batch: (max((event.time_utc for event in batch[1]), default=""), batch[0].name))
    for folder, of_batch in batches:
        stops = [event for event in of_batch if event.kind in ENDED_EARLY]
        if lost := open_job(of_batch):
            stops.append(replace(lost, kind="stopped", cause=END_NOT_RECORDED))
        manifest = folder / "manifest.json"
        held = _part(manifest, "held", {})
        for entry in map(ListedLaunch.from_json, _part(manifest, "launches", [])):
            if problem := size_problem(entry, paths.get(entry.launch)):
                found.corrupt.append(one_line(f"{entry.launch}.jsonl: {problem}"))
        if not stops and not held:
            continue
        launches = _part(folder / "batch.json", "launches", [])
        if any(cell in found.planned for launch in launches for cell in launch["cells"]):
            found.interrupted += [
                {"batch": folder.name, "job": _text(stop.job), "kind": _text(stop.kind), "cause": _text(stop.cause)}
                | {"hosts": [one_line(host) for host in stop.hosts]}
                for stop in stops
            ]
        is_finished = manifest.exists()
        for launch in launches:
            cause = held.get(launch["stack"])
            if cause is None and stops and not is_finished:
                cause = f"the job ended before this measurement: {stops[-1].cause}"
            if cause is not None:
                found.no_record |= {(cell, launch["repeat"]): one_line(cause) for cell in launch["cells"]}


def _part(path: Path, key: str, otherwise: object) -> object:
    """Return one part of a batch's file, or `otherwise` if the file is unreadable or the part breaks its schema."""
    content = read_json(path)
    return otherwise if mismatch(content, path.stem, key) else content[key]


def _read_record(launch: Summary, line: dict, slot: Slot, found: Found) -> None:
    if line["unreadable"]:
        _refuse(launch, line, line["unreadable"], found)
        return
    for text in line["undeclared"]:  # each field once; the rest of the record is used
        if text not in found.undeclared:
            found.undeclared.add(text)
            _note_invalid(launch, line, text, found)
    row = found.cell_rows[slot[0]] | _place(slot, launch, line) | line["columns"] | launch.of_launch
    row |= (line["waits"] or {}).get("last_host") or {}
    row |= {"position": launch.positions.get(slot[0])}
    row |= {name: line[name] for name in ("status", "phase", "cause", "time_utc")}
    row |= {"elapsed_s": None if line["elapsed_ns"] is None else line["elapsed_ns"] * 1e-9}
    header = launch.header
    key = record_order(launch.launch, header.generation, header.time_utc, line["number"])
    latest = (key, row, line["training"], line["waits"])
    if slot in found.rows:
        older, latest = sorted((found.rows[slot], latest), key=lambda entry: entry[0])
        place = _place_of(older[1])
        by = f"{latest[1]['launch']}:{latest[1]['line']}"
        found.superseded.append(place | {"status": older[1]["status"], "by": by})
    found.rows[slot] = latest
    time_utc = max(header.time_utc, line["time_utc"])
    if is_after_now(time_utc):
        found.after_now[launch.launch] = max(time_utc, found.after_now.get(launch.launch, ""))


def _refuse(launch: Summary, line: dict, problem: str, found: Found) -> None:
    """Note a line that breaks the schema. It stays in the store, where a later version of Regatta may read it."""
    _note_invalid(launch, line, problem, found)
    if line["kind"] == "record":
        text = f"line {line['number']} of {launch.path.name} is not a valid record: {problem}"
        found.no_record[_text(line["cell"]), launch.header.repeat] = text


def _note_invalid(launch: Summary, line: dict, problem: str, found: Found) -> None:
    place = {"launch": launch.launch, "line": line["number"], "kind": one_line(line["kind"])}
    found.invalid.append(place | {"cell": _text(line["cell"]), "problem": problem})


def _slot_row(slot: Slot, found: Found) -> dict:
    if slot in found.rows:
        return found.rows[slot][1]
    cause = found.no_record.get(slot, "no record in the store")
    return found.cell_rows[slot[0]] | {"repeat": slot[1], "status": "not_measured", "cause": cause}


def _place(slot: Slot, launch: Summary, line: dict) -> dict:
    return {"cell": slot[0], "repeat": slot[1], "launch": launch.launch, "line": line["number"]}


def _place_of(row: dict) -> dict:
    return {name: row[name] for name in ("cell", "repeat", "launch", "line")}


def _text(value: object) -> str | None:
    return None if value is None else one_line(value)
