"""A batch that is being measured: its launch requests, its records in the store, and the records that the driver adds.

What a batch has measured is read from the store, never remembered: a supervisor that is killed and restarted resumes.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from regatta.campaign.program_entries import geometry_of
from regatta.core.errors import UserError
from regatta.core.files import ROOT
from regatta.core.text import plural
from regatta.launchers import RUN_LAUNCH, Allocation, launch_argv, launch_context, program_words
from regatta.launchers.base import Geometry
from regatta.model.frozen import FrozenBatch, FrozenLaunch, fields_to_json
from regatta.model.launches import END_NOT_RECORDED, Cause, LaunchRequest, ListedLaunch, RecordSummary, utc_now
from regatta.run import program_launches as programs
from regatta.run.progress import StackWatch, Watch, counts_text
from regatta.runtimes import runtime_of
from regatta.store.history import ALWAYS_RETRIED, digest_of, summarize
from regatta.store.jobs import NO_SPACE_LEFT, hosts_to_avoid, note_job, noted_jobs, open_job
from regatta.store.launch_files import append_launch_line, read_launch_file, write_json
from regatta.store.nodes import blamed_nodes

USER_CODE = {"script", "program", "module"}  # keys of the specs of cells that run a user's code


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

    not_started: planned launches whose ranks did not start in this job, each with the cause. held: stacks that are
    neither started nor recorded, with the cause: the preflight failed them, or they were edited.
    """

    folder: Path
    batch: FrozenBatch
    git: dict
    allocation: Allocation = field(default_factory=Allocation)
    held: dict[str, str] = field(default_factory=dict)
    stacks: StackWatch = field(default_factory=StackWatch)
    not_started: list[tuple["LaunchRun", Cause]] = field(default_factory=list)
    has_come_up: bool = False  # any launch, in this job
    prologues: dict[str, dict[str, str | None]] = field(default_factory=dict)  # changed variables by stack
    num_records: int = 0  # of this job
    parent: int = field(default_factory=os.getppid)
    stop_signal: int | None = None

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def results(self) -> Path:
        return self.folder.parent.parent

    @cached_property
    def launches(self) -> list["LaunchRun"]:
        """The planned launches of the batch."""
        return [LaunchRun(self, index, planned) for index, planned in enumerate(self.batch.launches)]

    def geometry(self, planned: FrozenLaunch | None = None) -> Geometry:
        """Return where the ranks of a planned launch start, or those of the largest one.

        If the job has more nodes than needed, they are pinned: to those of a sweep, else preferably to nodes that
        failed no job.
        """
        of = planned or self.batch
        hosts = planned.hosts if planned else ()
        if not hosts:
            avoid = [*hosts_to_avoid(self.folder), *blamed_nodes(self.results)]
            avoid += self.allocation.launcher.queue.excluded_nodes(self.batch.cluster)
            hosts = self.allocation.step_hosts(of.nodes, avoid)
        return Geometry(self.batch.cluster, of.nodes, of.gpus_per_node, self.batch.device, hosts=hosts)

    @contextlib.contextmanager
    def noting_end(self) -> Iterator[None]:
        """Record that this job measures the batch, and how it ends; for an earlier job that could not, its state."""
        if lost := open_job(noted_jobs(self.folder)):
            state = self.allocation.state_of(lost.job)
            end = f"{self.allocation.launcher.title} reports {state}" if state else "it was killed, or its node failed"
            note_job(self.folder, "stopped", lost.job, [], f"{END_NOT_RECORDED}: {end}")
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
            if open_job(noted_jobs(self.folder)):
                note_job(self.folder, "stopped", self.allocation.job, [], str(end), self.num_records)

    def no_space(self) -> UserError:
        remedy = "Completed measurements are kept. Free some space and run the same command again."
        return UserError(f"{self.results}: {NO_SPACE_LEFT} the disk. {remedy}")

    def note_earlier_records(self) -> None:
        """Count the records of a supervisor that was stopped, so that failing stacks are known."""
        for launch in self.launches:
            for record in launch.earlier_records():
                launch.note_failure(record.cell, record.status, record.cause)

    def write_manifest(self) -> dict:
        """Write and return the manifest, which marks the batch as finished."""
        listed = [entry for launch in self.launches for entry in launch.summaries()]
        counts, entries = Counter(r.status for entry in listed for r in entry.summaries), [*map(fields_to_json, listed)]
        manifest = {"schema": 1, "batch": self.id, "counts": counts, "held": self.held, "launches": entries}
        manifest["digest"] = digest_of(entries)
        write_json(self.folder / "manifest.json", manifest)
        return manifest


@dataclass
class LaunchRun:
    """A planned launch of a batch being measured. request, watch, meeting (values of its templates): of its last
    attempt in this job."""

    run: BatchRun
    index: int
    planned: FrozenLaunch
    request: LaunchRequest | None = None
    watch: Watch | None = None
    meeting: dict[str, str] | None = None

    @property
    def spec(self) -> Mapping[str, object]:
        """Return the spec of its first cell; of a user's program, all have the same program."""
        return self.run.batch.cells[self.planned.cells[0]].spec

    @property
    def is_program(self) -> bool:
        return "program" in self.spec

    @property
    def name(self) -> str:
        """Return the name under which its failures are counted: its stack; in a sweep, also nodes.

        Of a user's program, also its name: when it fails, the others of the stack may work.
        """
        program = f", program {self.spec['parameters']['program']}" if self.is_program else ""
        nodes = f" on {', '.join(self.planned.hosts)}" if self.planned.hosts else ""
        return f"{self.planned.stack}{program}{nodes}"

    @property
    def log(self) -> Path:
        return self.run.folder / "logs" / f"{self.request.launch}.log"

    def summaries(self) -> list[ListedLaunch]:
        """Return the content of its launch files, the oldest attempt first."""
        paths = sorted((self.run.results / "launches").glob(f"{self._prefix}*.jsonl"))
        return [entry for entry in (summarize(read_launch_file(path)) for path in paths) if entry]

    def earlier_records(self) -> list[RecordSummary]:
        return [record for entry in self.summaries() for record in entry.summaries]

    def remaining(self) -> list[str]:
        """Return its cells without a conclusive record."""
        done = {record.cell for record in self.earlier_records() if record.status not in ALWAYS_RETRIED}
        return [cell for cell in self.planned.cells if cell not in done]

    @property
    def _prefix(self) -> str:
        return f"{self.run.id}-l{self.index:03d}-a"

    def write_request(self, cells: list[str]) -> LaunchRequest:
        """Write and return the request of the next attempt: to measure `cells`, in this order.

        Requests are counted: an attempt may have left no launch file.
        """
        run, batch = self.run, self.run.batch
        launch = f"{self._prefix}{len(list((run.folder / 'launches').glob(f'{self._prefix}*.json'))):02d}"
        path = (run.folder / "launches" / f"{launch}.json").resolve()
        store_file = (run.results / "launches" / f"{launch}.jsonl").resolve()
        error_dir = path.parent.parent / "errors" / launch
        geometry = run.geometry(self.planned)
        specs = [batch.cells[cell].spec for cell in cells]
        scripts = [Path(spec[key]["path"]).parent for spec in specs for key in ("script", "module") if key in spec]
        place, timed, words = geometry, cells, [str(RUN_LAUNCH), "--request", str(path)]
        stack = batch.stacks[self.planned.stack]
        runtime = runtime_of(stack)
        if self.is_program:  # all cells are read from its output
            timed, place = cells[:1], geometry_of(specs[0], geometry.cluster)
            hosts = geometry.hosts or run.allocation.hosts()
            place = replace(place, hosts=hosts[: place.nodes])  # the first: MASTER_ADDR is its name
        self.meeting = run.allocation.meeting(stack, place.hosts, self.is_program)
        mount = runtime.image_mount(stack, launch)
        if self.is_program:
            folder = programs.folder_of(run.folder, launch)
            command = programs.prepare(specs[0], folder, self.meeting)
            words = program_words(str(error_dir), str(folder), place, command, hosts, mount)
        folders = (ROOT, store_file.parent.parent, *scripts)
        argv = launch_argv(
            place,
            stack,
            words,
            variables=os.environ,
            folders=folders,
            # The sum of all deadlines, of cells and of the starts between them.
            limit_seconds=60 + sum(batch.cells[c].limit_seconds + batch.launch_start_seconds for c in timed),
            is_python=not self.is_program,
            error_dir=error_dir,
        )
        runtime.write_files(
            stack, launch_context(stack, self.meeting, variables=os.environ, folders=folders, error_dir=error_dir)
        )
        self.request = LaunchRequest(
            campaign=batch.campaign,
            batch=path.parent.parent.name,
            launch=launch,
            generation=batch.generation,
            time_utc=utc_now(),
            repeat=self.planned.repeat,
            stack=self.planned.stack,
            **{name: getattr(geometry, name) for name in ("nodes", "gpus_per_node", "device")},
            # Half, so that ranks can report a missing one before the whole launch is late.
            start_timeout_seconds=batch.launch_start_seconds / 2,
            store_file=str(store_file),
            error_dir=str(error_dir),
            argv=argv,
            image_mount=mount,
            git=run.git,
            cells=tuple(batch.cells[cell] for cell in cells),
        )
        limits = {cell.id: cell.limit_seconds for cell in batch.cells.values()}
        self.watch = Watch(store_file, limits, batch.launch_start_seconds)
        store_file.parent.mkdir(parents=True, exist_ok=True)
        error_dir.mkdir(parents=True, exist_ok=True)
        write_json(path, self.request.to_json())
        return self.request

    def update(self) -> list[dict]:
        """Read and count the new lines of the launch file, and return them."""
        lines = self.watch.update()
        for record in (line for line in lines if line["kind"] == "record"):
            self.run.num_records += 1
            self.note_failure(*(record.get(name) for name in ("cell", "status", "cause", "phase")))
        return lines

    def note_failure(self, cell: str, status: str, cause: str | None, phase: str | None = None) -> None:
        """Note a record, by which failing stacks are known. Cells of a program that runs once fail together."""
        counted = min(self.planned.cells) if self.is_program else cell
        is_user_code = not USER_CODE.isdisjoint(self.run.batch.cells[cell].spec)
        self.run.stacks.note(self.name, counted, status, cause, phase, is_user_code)

    def record(self, cells: list[str], cause: Cause, elapsed_ns: int | None) -> None:
        """Record cells that no rank is left to record. Without a line of the ranks, the environment is unknown."""
        request, path = self.request, Path(self.request.store_file)
        if not path.exists() or read_launch_file(path).header is None:
            append_launch_line(path, request.first_line(None))
        for cell in cells:
            append_launch_line(path, request.record_line(cell, cause, elapsed_ns))
        self.update()

    def close_stopped(self, stop: Stopped) -> None:
        """Write why the launch was stopped. If a node failed, record the current cell as well."""
        watch = self.watch
        watch.update()
        if watch.header is None or watch.end == "complete":
            return
        if stop.state == "NODE_FAIL" and watch.current:
            cause = Cause("node_failure", None, f"{self.run.allocation.launcher.title} ended the job: a node failed")
            append_launch_line(watch.path, self.request.record_line(watch.current, cause, None))
        append_launch_line(watch.path, {"kind": "stopped", "signal": str(stop), "time_utc": utc_now()})

    def line(self, cause: Cause | None, seconds: float) -> str:
        """Return the launch, which has ended, as one line: how many cells it recorded, and why it ended early."""
        recorded = self.watch.recorded
        counts = counts_text(Counter(recorded.values())) or "none"
        done = f"{len(recorded)} of {plural(len(self.request.cells), 'cell')} recorded ({counts}) in {seconds:.0f} s"
        why = f"; ended early: {cause.text}" if cause else ""
        place = f"{self.index + 1} of {len(self.run.batch.launches)} in the batch"
        return f"{utc_now()} launch {self.planned.repeat + 1}, stack {self.name} ({place}): {done}{why}"
