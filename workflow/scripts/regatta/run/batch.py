"""A batch that is being measured: its launch requests, its records in the store, and the records that the driver adds.

What a batch has measured is read from the store, never remembered: a supervisor that is killed and restarted resumes.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from regatta.core.errors import UserError
from regatta.core.files import ROOT
from regatta.core.text import plural
from regatta.launchers import PROGRAM, RUN_LAUNCH, Allocation, launch_argv
from regatta.launchers.base import Geometry
from regatta.model.frozen import FrozenBatch
from regatta.run import program_launches as programs
from regatta.run.causes import Cause
from regatta.run.progress import StackWatch, Watch, counts_text
from regatta.run.record_lines import first_line, record_line
from regatta.store.history import ALWAYS_RETRIED, digest_of, summarize
from regatta.store.jobs import END_NOT_RECORDED, NO_SPACE_LEFT, hosts_to_avoid, note_job, open_job
from regatta.store.launch_files import append_launch_line, read_launch_file, utc_now, write_json
from regatta.store.nodes import blamed_nodes

SCHEMA = 1  # version of a launch request (docs/contracts.md)


class Stopped(Exception):
    """The supervisor was stopped by a signal. What was measured is in the store.

    state: job state, such as TIMEOUT or NODE_FAIL; None outside of a job, or if unknown to the scheduler.
    """

    def __init__(self, reason: str, exit_code: int, state: str | None = None):
        super().__init__(f"{reason}: {state}" if state else reason)
        self.exit_code = exit_code
        self.state = state


@dataclass
class BatchRun:
    """A batch being measured. `stop_signal` is set by the signal handler.

    not_started: planned launches whose ranks did not start in this job, each with its last request and the cause.
    held: stacks that are neither started nor recorded, with the cause: the preflight failed them, or they were edited.
    """

    folder: Path
    batch: FrozenBatch
    git: dict
    allocation: Allocation = field(default_factory=Allocation)
    held: dict[str, str] = field(default_factory=dict)
    stacks: StackWatch = field(default_factory=StackWatch)
    not_started: dict[int, tuple[dict, Cause]] = field(default_factory=dict)
    has_come_up: bool = False  # any launch, in this job
    prologues: dict[str, dict[str, str | None]] = field(default_factory=dict)  # changed variables by stack
    num_records: int = 0  # of this job
    known_programs: dict[tuple[str, int], list[Path]] = field(default_factory=dict)  # launches of user's programs
    parent: int = field(default_factory=os.getppid)
    stop_signal: int | None = None

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def results(self) -> Path:
        return self.folder.parent.parent

    def geometry(self, index: int | None = None) -> Geometry:
        """Return where the ranks of a planned launch start, or those of the largest one."""
        of = self.batch if index is None else self.batch.launches[index]
        hosts = ([] if index is None else self.sweep_hosts(index)) or self._step_hosts(of.nodes)
        return Geometry(self.batch.cluster, of.nodes, of.gpus_per_node, self.batch.device, hosts=hosts)

    def _step_hosts(self, num_nodes: int) -> list[str]:
        """Return the nodes of a launch if the job has more than it needs: preferably those that failed no job."""
        avoid = [*hosts_to_avoid(self.folder), *blamed_nodes(self.results)]
        avoid += self.allocation.launcher.queue.excluded_nodes(self.batch.cluster)
        return self.allocation.step_hosts(num_nodes, avoid)

    def sweep_hosts(self, index: int) -> list[str]:
        """Return the nodes of a planned launch of a sweep; otherwise none."""
        return [*self.batch.launches[index].hosts]

    def watched(self, index: int) -> str:
        """Return the name under which failures of a planned launch are counted: its stack; in a sweep, also nodes.

        Of a user's program, also its name: when it fails, the others of the stack may work.
        """
        launch = self.batch.launches[index]
        cell = self.batch.cells[launch.cells[0]]
        program = f", program {cell.parameters['program']}" if "program" in cell.spec else ""
        nodes = f" on {', '.join(launch.hosts)}" if launch.hosts else ""
        return f"{launch.stack}{program}{nodes}"

    def noted_cell(self, index: int, cell: str) -> str:
        """Return the cell under which a failure counts: those of a program that runs once fail together."""
        cells = self.batch.launches[index].cells
        return min(cells) if "program" in self.batch.cells[cells[0]].spec else cell

    def launch_file(self, launch: str) -> Path:
        return self.results / "launches" / f"{launch}.jsonl"

    def summaries(self, *indices: int) -> list[dict]:
        """Return the content of the launch files of planned launches, the oldest attempt of each first."""
        folder = self.results / "launches"
        paths = [path for index in indices for path in sorted(folder.glob(f"{self.id}-l{index:03d}-a*.jsonl"))]
        return [entry for entry in (summarize(read_launch_file(path)) for path in paths) if entry]

    def next_launch(self, index: int) -> str:
        """Return the name of the next attempt. Requests are counted: an attempt may have left no launch file."""
        prefix = f"{self.id}-l{index:03d}-a"
        return f"{prefix}{len(list((self.folder / 'launches').glob(f'{prefix}*.json'))):02d}"

    def recorded(self, index: int) -> set[str]:
        """Return the cells of one planned launch that have a conclusive record."""
        records = [record for entry in self.summaries(index) for record in entry["records"]]
        return {record["cell"] for record in records if record["status"] not in ALWAYS_RETRIED}

    def remaining(self, index: int) -> list[str]:
        done = self.recorded(index)
        return [cell for cell in self.batch.launches[index].cells if cell not in done]

    @contextlib.contextmanager
    def noting_end(self) -> Iterator[None]:
        """Record that this job measures the batch, and how it ends; for an earlier job that could not, its state."""
        if lost := open_job(self.folder):
            state = self.allocation.state_of(lost["job"])
            end = f"{self.allocation.launcher.title} reports {state}" if state else "it was killed, or its node failed"
            note_job(self.folder, "stopped", lost["job"], [], f"{END_NOT_RECORDED}: {end}")
        note_job(self.folder, "started", self.allocation.job, [], "")
        try:
            yield
        except (Stopped, UserError, OSError) as end:
            self.note_early_end(end)
            raise
        note_job(self.folder, "finished", self.allocation.job, [], "")

    def note_early_end(self, end: Exception) -> None:
        """Record why this job does not finish the batch, unless that is recorded or the disk is full."""
        with contextlib.suppress(OSError):
            if open_job(self.folder):
                note_job(self.folder, "stopped", self.allocation.job, [], str(end), self.num_records)

    def no_space(self) -> UserError:
        remedy = "Completed measurements are kept. Free some space and run the same command again."
        return UserError(f"{self.results}: {NO_SPACE_LEFT} the disk. {remedy}")

    def write_request(self, index: int, cells: list[str]) -> dict:
        """Write and return the request of the next attempt at a planned launch: to measure `cells`, in this order."""
        batch, planned, launch = self.batch, self.batch.launches[index], self.next_launch(index)
        path = (self.folder / "launches" / f"{launch}.json").resolve()
        store_file, error_dir = self.launch_file(launch).resolve(), path.parent.parent / "errors" / launch
        geometry = self.geometry(index)
        specs = [batch.cells[cell].spec for cell in cells]
        scripts = [Path(spec[key]["path"]).parent for spec in specs for key in ("script", "module") if key in spec]
        place, timed, words = geometry, cells, [str(RUN_LAUNCH), "--request", str(path)]
        if is_program := "program" in specs[0]:  # all cells are read from its output
            timed, folder = cells[:1], programs.folder_of(self.folder, launch)
            place, arguments = programs.prepare(specs[0], geometry.cluster, folder, error_dir)
            place, words = replace(place, hosts=geometry.hosts[: place.nodes]), ["sh", str(PROGRAM), *arguments]
        argv = launch_argv(
            place,
            batch.stacks[planned.stack],
            words,
            variables=os.environ,
            folders=(ROOT, store_file.parent.parent, *scripts),
            # The sum of all deadlines, of cells and of the starts between them.
            limit_seconds=60 + sum(batch.cells[c].limit_seconds + batch.launch_start_seconds for c in timed),
            is_python=not is_program,
        )
        request = {
            "schema": SCHEMA,
            "campaign": batch.campaign,
            "batch": path.parent.parent.name,
            "launch": launch,
            "generation": batch.generation,
            "time_utc": utc_now(),
            "repeat": planned.repeat,
            "stack": planned.stack,
            **{key: getattr(geometry, key) for key in ("nodes", "gpus_per_node", "device")},
            # Half, so that ranks can report a missing one before the whole launch is late.
            "start_timeout_seconds": batch.launch_start_seconds / 2,
            "store_file": str(store_file),
            "error_dir": str(error_dir),
            "argv": argv,
            "git": self.git,
            "cells": [{"id": c, "spec": batch.cells[c].spec, "command": batch.cells[c].command} for c in cells],
        }
        store_file.parent.mkdir(parents=True, exist_ok=True)
        error_dir.mkdir(parents=True, exist_ok=True)
        write_json(path, request)
        return request

    def write_records(self, index: int, request: dict, cells: list[str], cause: Cause, elapsed_ns: int | None) -> None:
        """Record cells that no rank is left to record. Without a line of the ranks, the environment is unknown."""
        path = self.launch_file(request["launch"])
        if not path.exists() or read_launch_file(path).header is None:
            append_launch_line(path, first_line(request, None))
        for cell in cells:
            line = record_line(request, cell, cause, elapsed_ns)
            append_launch_line(path, line)
            self.count(index, line)

    def close_stopped_launch(self, watch: Watch, request: dict, stop: Stopped) -> None:
        """Write why a launch was stopped. If a node failed, record the current cell as well."""
        watch.update()
        if not watch.has_header or watch.is_complete:
            return
        if stop.state == "NODE_FAIL" and watch.current:
            cause = Cause("node_failure", None, f"{self.allocation.launcher.title} ended the job: a node failed")
            append_launch_line(watch.path, record_line(request, watch.current, cause, None))
        append_launch_line(watch.path, {"kind": "stopped", "signal": str(stop), "time_utc": utc_now()})

    def count(self, index: int, line: dict) -> None:
        """Note a new line of a launch file."""
        if line["kind"] == "record":
            self.num_records += 1
            self.stacks.note(self.watched(index), line, self.noted_cell(index, line["cell"]))

    def launch_line(self, index: int, request: dict, watch: Watch, cause: Cause | None, seconds: float) -> str:
        """Return a launch that has ended as one line: how many cells it recorded, and why it ended early."""
        place = f"{index + 1} of {len(self.batch.launches)} in the batch"
        counts = counts_text(Counter(watch.recorded.values())) or "none"
        done = (
            f"{len(watch.recorded)} of {plural(len(request['cells']), 'cell')} recorded ({counts}) in {seconds:.0f} s"
        )
        why = f"; ended early: {cause.text}" if cause else ""
        return f"{utc_now()} launch {request['repeat'] + 1}, stack {self.watched(index)} ({place}): {done}{why}"

    def note_earlier_records(self) -> None:
        """Count the records of a supervisor that was stopped, so that failing stacks are known."""
        for index in range(len(self.batch.launches)):
            for record in (record for entry in self.summaries(index) for record in entry["records"]):
                self.stacks.note(self.watched(index), {"phase": None, **record}, self.noted_cell(index, record["cell"]))

    def write_manifest(self) -> dict:
        """Write and return the manifest, which marks the batch as finished."""
        entries = self.summaries(*range(len(self.batch.launches)))
        counts = Counter(record["status"] for entry in entries for record in entry["records"])
        manifest = {"schema": 1, "batch": self.id, "counts": counts, "held": self.held, "launches": entries}
        manifest["digest"] = digest_of(entries)
        write_json(self.folder / "manifest.json", manifest)
        return manifest
