"""The files of a running campaign, read as they grow: each line of the store once, each other file when it changes.

Nothing is written, and no lock is taken.
"""

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from regatta.core.errors import UserError
from regatta.core.files import is_held
from regatta.core.text import utc_seconds
from regatta.model.frozen import FrozenCampaign
from regatta.model.launches import JobEvent, RecordSummary, Slot, generation_of
from regatta.store.frozen_files import mismatch, read_frozen_campaign
from regatta.store.history import latest_records, read_manifest
from regatta.store.jobs import noted_jobs, open_job
from regatta.store.launch_files import Tail, launch_paths, read_json

BATCH_ID = re.compile(r"n(\d+)g(\d+)-[0-9a-f]+")
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass
class BatchFiles:
    """A batch: what it is to measure unless it is finished, and the notes of its jobs.

    ends_s: when records were written, for a job whose end is unknown. current: the cell that is being measured.
    """

    folder: Path
    frozen_s: float
    nodes: int
    gpus_per_node: int
    generation: int = 1
    slots: list[Slot] = field(default_factory=list)
    is_finished: bool = False
    notes: list[JobEvent] = field(default_factory=list)
    notes_bytes: int = 0
    ends_s: list[float] = field(default_factory=list)
    current: str | None = None

    @property
    def id(self) -> str:
        return self.folder.name

    def read_notes(self) -> None:
        with contextlib.suppress(OSError):
            num_bytes = (self.folder / "jobs.jsonl").stat().st_size
            if num_bytes != self.notes_bytes:
                self.notes, self.notes_bytes = noted_jobs(self.folder), num_bytes


class RunFiles:
    """The results folder of a campaign. Call `update` before each use. Raises UserError if it is not one.

    records: the record of each slot that counts. measured_rank_s: seconds × ranks of all records in batches.
    plan_s: seconds of each cell by plan.json. ratios: measured to planned time of each launch that has ended, or before
    the first, of those that run.
    """

    def __init__(self, results: Path):
        self.results = results
        self.campaign: FrozenCampaign | None = None
        self.names: dict[str, str] = {}
        self.planned: frozenset[Slot] = frozenset()
        self.batches: dict[str, BatchFiles] = {}
        self.records: dict[Slot, RecordSummary] = {}
        self.measured_rank_s = 0.0
        self.plan_s: dict[str, float] = {}
        self.ratios: list[float] = []
        self.planned_batches: set[str] = set()
        self._tails: dict[str, Tail] = {}
        self._records: dict[str, list[RecordSummary]] = {}  # by launch
        self._read: set[str] = set()  # launch files that are read to their end, and those of finished batches
        self._plan_time_ns = 0
        self._frozen: Path | None = None
        self.update()
        launch_paths(self.results / "launches")  # manifests alone would show a store that cannot be read as complete

    def update(self) -> None:
        self._read_campaign()
        self._read_plan()
        self._find_batches()
        unfinished = [batch for batch in self.batches.values() if not batch.is_finished]
        for batch in unfinished:
            if (batch.folder / "manifest.json").exists():
                self._read_manifest(batch)
        self._read_launch_files()
        for batch in self.batches.values():
            if batch in unfinished or open_job(batch.notes):  # a job notes its end after it has written the manifest
                batch.read_notes()
        self._summarize()

    def is_run_active(self) -> bool | None:
        """Return whether Snakemake runs this campaign; None if that was on another host."""
        return is_held(self.results / ".lock")

    def run_began_s(self) -> float | None:
        """Return when Snakemake last began to run this campaign."""
        with contextlib.suppress(OSError):
            return (self.results / ".lock").stat().st_mtime
        return None

    def _read_campaign(self) -> None:
        found = sorted(self.results.glob("campaign.*.json"))
        if self._frozen in found and len(found) == 1:
            return
        if len(found) != 1:
            if self._frozen and self.results.is_dir():  # a new one is being written
                return
            what = f"{len(found)} files campaign.<digest>.json instead of one" if found else "is not a results folder"
            what = what if self.results.is_dir() else "does not exist"
            raise UserError(f"{self.results}: {what}. Run the campaign first, or specify results/<name>.")
        self.campaign = read_frozen_campaign(found[0])
        self._frozen = found[0]
        self.names = {cell: name.full for cell, name in self.campaign.cell_names.items()}
        self.planned = frozenset(self.campaign.slots)

    def _read_plan(self) -> None:
        path = self.results / "plan.json"
        with contextlib.suppress(*UNREADABLE):  # only estimates depend on it
            if (time_ns := path.stat().st_mtime_ns) == self._plan_time_ns:
                return
            plan = read_json(path)
            cells = [cell for cell in plan["cells"] if cell["status"] != "skipped"]
            self.plan_s = {cell["id"]: float(cell["seconds_per_launch"]) for cell in cells}
            self.planned_batches = {batch["batch"] for batch in plan["batches"]}
            self._plan_time_ns = time_ns

    def _find_batches(self) -> None:
        """Add the batches that were frozen since the last call. A frozen batch never changes."""
        for name in _names(self.results / "batches"):
            path = self.results / "batches" / name / "batch.json"
            match = BATCH_ID.fullmatch(name)
            if name in self.batches or match is None:
                continue
            with contextlib.suppress(*UNREADABLE):  # it is being frozen, or damaged: the supervisor reports it
                batch = BatchFiles(path.parent, path.stat().st_mtime, *map(int, match.groups()))
                if not (path.parent / "manifest.json").exists():
                    content = read_json(path)
                    if mismatch(content, "batch", "launches"):
                        continue
                    batch.generation = generation_of(content) or 1
                    batch.slots = [(cell, la["repeat"]) for la in content["launches"] for cell in la["cells"]]
                self.batches[name] = batch

    def _read_launch_files(self) -> None:
        """Read the new lines of the launch files, without those of batches that are finished."""
        for name in _names(self.results / "launches"):
            launch = name.removesuffix(".jsonl")
            path = self.results / "launches" / name
            if name == launch or launch in self._read or (launch not in self._tails and not path.is_file()):
                continue
            tail = self._tails.setdefault(launch, Tail(path))
            batch = self.batches.get(launch.rpartition("-l")[0])
            with contextlib.suppress(OSError):
                lines = tail.read()
                if lines and batch:
                    batch.current = None if tail.end else tail.current
                for number, line in lines:
                    if line["kind"] == "record" and tail.header:
                        elapsed_ns = line.get("elapsed_ns")
                        elapsed_s = elapsed_ns / 1e9 if isinstance(elapsed_ns, int) else None
                        record = RecordSummary.of(launch, tail.header, number, line, elapsed_s)
                        self._records.setdefault(launch, []).append(record)
                if tail.end:
                    self._read.add(launch)

    def _read_manifest(self, batch: BatchFiles) -> None:
        """Read a finished batch. A record that the analysis rejects is known as `invalid` only here."""
        with contextlib.suppress(OSError, ValueError, RecursionError):  # else its launch files are read
            for entry in read_manifest(batch.folder / "manifest.json")[0]:
                self._records[entry.launch] = entry.summaries
                self._read.add(entry.launch)
                self._tails.pop(entry.launch, None)
        batch.is_finished, batch.current, batch.slots = True, None, []

    def _summarize(self) -> None:
        """Compute what the records of all launches say about slots, cells and batches."""
        self.records = latest_records(record for records in self._records.values() for record in records)
        self.measured_rank_s, ratios = 0.0, {}
        for batch in self.batches.values():
            batch.ends_s = []
        for launch, records in self._records.items():
            batch = self.batches.get(launch.rpartition("-l")[0])
            timed = [record for record in records if record.elapsed_s is not None]
            if batch:
                batch.ends_s += [utc_seconds(record.time_utc) or 0 for record in records]
                self.measured_rank_s += sum(record.elapsed_s for record in timed) * batch.nodes * batch.gpus_per_node
            planned = [record for record in timed if self.plan_s.get(record.cell)]
            if planned:
                planned_s = sum(self.plan_s[record.cell] for record in planned)
                ratios[launch] = sum(record.elapsed_s for record in planned) / planned_s
        self.ratios = [ratio for launch, ratio in ratios.items() if launch in self._read] or list(ratios.values())


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
