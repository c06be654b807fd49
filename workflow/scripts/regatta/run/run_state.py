"""The progress of a campaign, computed from its results folder and the job queue, without Snakemake.

`make watch` shows it, and a run prints it as a line.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from regatta.core.files import is_held
from regatta.core.text import UNKNOWN, one_line, plural, shape, span_text, status_text, utc_seconds, utc_text
from regatta.launchers import launcher_of
from regatta.model.frozen import FrozenCampaign
from regatta.model.launches import RecordSummary, Slot
from regatta.run.progress import signature
from regatta.run.run_files import BatchFiles, RunFiles
from regatta.store.history import ALWAYS_RETRIED
from regatta.store.jobs import open_job

QUEUE_SECONDS = 15.0  # at most one query of the scheduler in this time
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD")  # states in which a job has no nodes
MAX_LAST_RECORDS = 50
MIN_RECORDS = 3  # of a run, before the time left is shown
MAX_CAUSE = 300  # characters
MAX_NAME = 100  # characters of a campaign's name or a status
LOCK_SECONDS = 5.0  # a job that began this long before the run's lock belongs to the run: clocks differ


@dataclass(frozen=True)
class RunningBatch:
    """A running batch. cell: the one being measured, None between cells."""

    id: str
    shape: str
    num_recorded: int
    num_measurements: int
    job: str | None
    cell: str | None


@dataclass(frozen=True)
class FailureGroup:
    """Failures with the same status, and causes that differ only in numbers and paths. cause: the most frequent."""

    status: str
    cause: str
    num: int


@dataclass(frozen=True)
class RunState:
    """The state of a campaign. Unknown numbers are None.

    counts: measurements with a record, by status, without those that are being measured again. num_finished,
    num_queued, num_idle: of batches; no active run will start the idle ones. rank hours: time between the start and the
    end of each job × GPUs of its shape (on CPUs: processes). is_run_active: whether Snakemake runs the campaign; None
    if it was started on another host. seconds_left: by the least and the greatest ratio of measured to planned time of
    a launch. names: of cells, by id.
    """

    campaign: FrozenCampaign
    num_planned: int
    counts: dict[str, int]
    num_finished: int
    running: tuple[RunningBatch, ...]
    num_queued: int
    num_idle: int
    failures: tuple[FailureGroup, ...]
    measurements_per_hour: float | None
    seconds_left: tuple[float, float] | None
    rank_hours_spent: float | None
    rank_hours_left: float | None
    last_records: list[RecordSummary]
    names: dict[str, str]
    is_run_active: bool | None
    is_queue_known: bool

    @property
    def num_recorded(self) -> int:
        return sum(self.counts.values())

    @property
    def is_complete(self) -> bool:
        """Return whether every planned measurement has a record and no batch is queued or running."""
        return self.num_recorded == self.num_planned and not self.running and not self.num_queued


class RunWatcher:
    """Follow a campaign: read what was appended to its store, and query the queue at most every 15 s."""

    def __init__(self, results: Path):
        self.files = RunFiles(results)
        # The folder in which Snakemake was started: results/ itself may be a link.
        self.folder = results.absolute().parent.parent.resolve()
        self.queue: dict[str, str] | None = {}
        self.is_queue_known = True
        self.asked_s: float | None = None
        self.shown: tuple | None = None

    def state(self, now_s: float) -> RunState:
        """Return the state at a time in seconds since 1970. Raises UserError if the folder is gone."""
        self.files.update()
        if self.asked_s is None or not 0 <= now_s - self.asked_s < QUEUE_SECONDS:
            self.asked_s = now_s
            queue = launcher_of(self.files.campaign.cluster).queue
            queue.use_cluster(self.files.campaign.cluster)
            answer = queue.states(self.files.campaign.name, self.folder)
            self.is_queue_known, self.queue = answer is not None, self.queue if answer is None else answer
        return run_state(self.files, self.queue, now_s, self.is_queue_known)

    def next_line(self, now_s: float) -> tuple[RunState, str | None]:
        """Return the state, and its line if more than the time has changed since the last one."""
        state = self.state(now_s)
        before, self.shown = self.shown, (state.counts, len(state.running), state.num_queued, notes(state))
        return state, None if self.shown == before else state_text(state)


def run_state(files: RunFiles, queue: dict[str, str], now_s: float, is_queue_known: bool = True) -> RunState:
    """Return the state of a campaign. queue: states by job id and by batch. now_s: seconds since 1970."""
    is_active = files.is_run_active()
    unfinished = [batch for batch in files.batches.values() if not batch.is_finished]
    states = {batch.id: _live_state(batch, queue, is_queue_known) for batch in unfinished}
    left = _measurements_left(files, unfinished, states, is_active is not False)
    missing = {slot for slot in files.planned if not _has_result(files, slot)}.union(*left.values())
    counts = Counter(files.records[slot].status for slot in files.planned - missing)
    running = [batch for batch in unfinished if states[batch.id] == "running"]
    spent_s = _rank_seconds(files, {batch.id for batch in running}, now_s)
    is_priced = all(cell in files.plan_s for cell, _ in missing)
    per_hour, pace = None, None
    if is_active is not False or running or "queued" in states.values():
        per_hour, pace = _pace(files, now_s)
    # Sampling often ends before the limit by which the plan priced a cell.
    low, high = min(files.ratios, default=1.0), max(files.ratios, default=1.0)
    seconds_left, rank_hours_left = None, None
    if is_priced and pace is not None:
        planned_s = sum(files.plan_s[cell] for cell, _ in missing)
        seconds_left = pace * planned_s * low, pace * planned_s * high
    if is_priced:
        # Starts and pauses are part of what is spent: as much for the rest as for the records so far.
        overhead = max(1.0, spent_s / files.measured_rank_s) if spent_s and files.measured_rank_s else 1.0
        planned_rank_s = sum(files.plan_s[cell] * files.campaign.by_id[cell].world_size for cell, _ in missing)
        rank_hours_left = planned_rank_s * (low + high) / 2 * overhead / 3600
    planned = (record for slot, record in files.records.items() if slot in files.planned)
    return RunState(
        campaign=files.campaign,
        num_planned=len(files.planned),
        counts={status: counts[status] for status in sorted(counts, key=lambda status: (status != "ok", status))},
        num_finished=sum(batch.is_finished for batch in files.batches.values()),
        running=tuple(_running_batch(batch, left[batch.id], files) for batch in running),
        num_queued=sum(state == "queued" for state in states.values()),
        num_idle=sum(state == "idle" for state in states.values()),
        failures=_failures(files),
        measurements_per_hour=per_hour,
        seconds_left=seconds_left,
        rank_hours_spent=None if spent_s is None else spent_s / 3600,
        rank_hours_left=rank_hours_left,
        last_records=heapq.nlargest(MAX_LAST_RECORDS, planned, key=lambda record: (record.time_utc, record.order)),
        names=files.names,
        is_run_active=is_active,
        is_queue_known=is_queue_known,
    )


def state_text(state: RunState) -> str:
    """Return the state as one line."""
    parts = [f"{one_line(state.campaign.name, MAX_NAME)}: {done_text(state)}"]
    parts += [f"{plural(len(state.running), 'batch', 'batches')} running", f"{state.num_queued} queued"]
    parts += [f"{span_text(*state.seconds_left)} left"] if state.seconds_left else []
    return ", ".join([*parts, *notes(state)])


def done_text(state: RunState) -> str:
    """Return how many measurements have a record, by status: 120 of 1,212 measurements (118 ok, 2 failed)."""
    noun = "measurement" if state.num_planned == 1 else "measurements"
    counts = ", ".join(f"{num:,} {one_line(status_text(status), MAX_NAME)}" for status, num in state.counts.items())
    return f"{state.num_recorded:,} of {state.num_planned:,} {noun}{f' ({counts})' if counts else ''}"


def notes(state: RunState) -> list[str]:
    """Return remarks on the state: complete, no active run, no answer from the queue."""
    found = []
    if not state.is_queue_known:
        found.append("the job queue does not respond")
    if state.is_complete:
        found.append("complete")
    elif state.is_run_active is False and not state.running and not state.num_queued:
        found.append("no run is active")
    return found


def _live_state(batch: BatchFiles, queue: dict[str, str], is_queue_known: bool) -> str | None:
    """Return running or queued for a batch in the job queue, or with a live supervisor; None for any other."""
    if state := queue.get(batch.id):
        return "queued" if state in WAITING else "running"
    if (last := open_job(batch.notes)) is None:
        return None
    is_alive = is_held(batch.folder / "lock")
    if is_alive is None:  # on another host: known only if it is in a job
        is_alive = last.job is None or not is_queue_known or last.job in queue
    return "running" if is_alive else None


def _has_result(files: RunFiles, slot: Slot) -> bool:
    return slot in files.records and files.records[slot].status not in ALWAYS_RETRIED


def _measurements_left(
    files: RunFiles, unfinished: Iterable[BatchFiles], states: dict[str, str | None], may_start: bool
) -> dict[str, set[Slot]]:
    """Return the measurements left in each batch that runs or waits, and set the states of those without a job.

    A batch without a job is `queued` if a run is active that planned it, else `idle`. A folder also has batches of
    earlier plans: what they have left is part of newer ones, or already recorded.
    """
    is_plan_of_run = files.planned_batches <= files.batches.keys()  # else it is of a later `make plan`
    left, claimed = {}, set()
    for batch in sorted(unfinished, key=lambda batch: (states[batch.id] is None, -batch.frozen_s, batch.id)):
        slots = files.planned.intersection(batch.slots) - claimed
        unmeasured = {slot for slot in slots if not _has_result(files, slot)}
        repeated = {slot for slot in slots - unmeasured if files.records[slot].generation < batch.generation}
        may_start_batch = may_start and (batch.id in files.planned_batches or not is_plan_of_run)
        if states[batch.id] is None and (unmeasured or (repeated and may_start_batch)):
            states[batch.id] = "queued" if may_start_batch else "idle"
        if states[batch.id] is not None:
            left[batch.id] = unmeasured if states[batch.id] == "idle" else unmeasured | repeated
            claimed |= left[batch.id]
    return left


def _running_batch(batch: BatchFiles, left: set[Slot], files: RunFiles) -> RunningBatch:
    num, last = len(files.planned.intersection(batch.slots)), open_job(batch.notes)
    cell = batch.current and files.names.get(batch.current, batch.current)
    where = shape(batch.nodes, batch.gpus_per_node)
    return RunningBatch(batch.id, where, num - len(left), num, last and last.job, cell)


def _rank_seconds(files: RunFiles, running: Collection[str], now_s: float) -> float | None:
    """Return the time between start and end of each job × the ranks of its batch; None if no job was noted.

    A job whose end is unknown counts up to its last record. A finished one recorded its duration by the
    monotonic clock; a running one counts nothing while the clock is behind its start.
    """
    total, has_notes = 0.0, False
    for batch in files.batches.values():
        began_s = None
        for note in [*batch.notes, None]:
            noted_s = utc_seconds(note.time_utc) if note else now_s
            if noted_s is not None and began_s is not None:
                is_lost = note and (note.kind == "started" or note.is_by_next_job)
                is_end_known = not is_lost if note else batch.id in running
                end_s = noted_s if is_end_known else max((end for end in batch.ends_s if end <= noted_s), default=0)
                elapsed_s = note.elapsed_s if note and not is_lost else None
                elapsed_s = end_s - began_s if elapsed_s is None else elapsed_s
                total += max(0.0, elapsed_s) * batch.nodes * batch.gpus_per_node
            began_s = noted_s if note and note.kind == "started" else None
            has_notes |= note is not None
    return total if has_notes else None


def _pace(files: RunFiles, now_s: float) -> tuple[float | None, float | None]:
    """Return measurements per hour, and seconds of this run for each second of its cells, since its first job started.

    The latter is unknown before MIN_RECORDS.
    """
    run_s = files.run_began_s()
    notes = (note for batch in files.batches.values() for note in batch.notes if note.kind == "started")
    starts = (utc_seconds(note.time_utc) or 0.0 for note in notes)
    began_s = min((start for start in starts if run_s and start >= run_s - LOCK_SECONDS), default=now_s)
    began_utc = utc_text(began_s)
    recent = [record for record in files.records.values() if record.time_utc >= began_utc]
    if not recent or now_s <= began_s:
        return None, None
    measured_s = sum(record.elapsed_s or 0.0 for record in recent)
    pace = (now_s - began_s) / measured_s if measured_s > 0 and len(recent) >= MIN_RECORDS else None
    return 3600 * len(recent) / (now_s - began_s), pace


def _failures(files: RunFiles) -> tuple[FailureGroup, ...]:
    """Return the failures among the latest records, grouped by status and cause, the most common first."""
    groups: dict[tuple, Counter[str]] = defaultdict(Counter)
    for slot in files.planned & files.records.keys():
        record = files.records[slot]
        if record.status != "ok":
            cause = record.cause or UNKNOWN
            groups[signature(record.status, cause)][one_line(cause, MAX_CAUSE)] += 1
    found = []
    for (status, _), causes in groups.items():
        cause = min(causes, key=lambda text: (-causes[text], text))
        found.append(FailureGroup(status, cause, causes.total()))
    return tuple(sorted(found, key=lambda group: (-group.num, group.status, group.cause)))
