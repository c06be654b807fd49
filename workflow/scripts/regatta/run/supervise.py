"""Run the launches of one batch, with deadlines. A cell that kills its launch is recorded, and the rest resumes."""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from regatta.campaign.executables import edited_file
from regatta.campaign.stacks import changed_since_planned
from regatta.core.errors import NO_SPACE, UserError
from regatta.core.files import hold
from regatta.launchers import find_allocation
from regatta.model.frozen import FrozenBatch
from regatta.run.batch import BatchRun, LaunchRun, Stopped
from regatta.run.causes import (
    Cause,
    blame_network,
    find_cause,
    kernel_oom_kills,
    read_log_tail,
    read_rank_errors,
    signal_name,
    store_write_error,
)
from regatta.run.host_load import LaunchLoad, OtherLoad, record_field
from regatta.run.preflight import failed_stacks
from regatta.run.program_launches import begin_log, note_start, record_output
from regatta.run.progress import Watch
from regatta.run.prologue import PrologueFailed, run_prologue
from regatta.store.frozen_files import read_frozen
from regatta.store.jobs import is_full, jobs_without_start, note_job
from regatta.store.nodes import blame_nodes

POLL_SECONDS = 0.05
SECONDS_WITHOUT_ANSWER = 600  # limit without an answer of the scheduler
MAX_FRUITLESS_LAUNCHES = 2  # consecutive launches that end before any cell starts; then the launch itself is at fault
NOT_RUN = (126, 127)  # exit codes of a shell whose program is absent, no program, or lacks a library
MAX_JOBS_WITHOUT_START = 3  # jobs in which no launch of a batch could start; then its cells are recorded as failed


def supervise(folder: Path, git: dict, parent: int) -> dict:
    """Run a batch to its end. Returns its manifest.

    Raises Stopped on SIGINT, SIGTERM or SIGHUP, or when the process that started this one, `parent`, dies;
    UserError when the disk is full, another supervisor holds this batch, or other nodes should be tried.
    """
    batch = FrozenBatch.from_json(read_frozen(folder / "batch.json"))
    run = BatchRun(folder, batch, git, find_allocation(batch.cluster), _held_stacks(folder, batch), parent=parent)
    taken = f"{folder}: another supervisor is measuring this batch. Wait for it, or stop it."
    alone = run.allocation.exclusive_use(run.results.parent, run.id, lambda: _raise_if_stopped(run))
    with hold(folder / "lock", taken), _noting_signals(run), alone:
        left = [launch for launch in run.launches if launch.planned.stack not in run.held and launch.remaining()]
        run.note_earlier_records()
        try:
            with run.noting_end():
                for _, group in itertools.groupby(left, key=_turn):
                    _run_together(group)
                _settle_launches_without_start(run)
                _blame_nodes_without_start(run)
                return run.write_manifest()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise run.no_space() from None


def _held_stacks(folder: Path, batch: FrozenBatch) -> dict[str, str]:
    """Return the stacks that failed the batch's preflight, with the cause."""
    failed = failed_stacks(folder.parents[1] / "preflight" / f"{batch.preflight}.json") if batch.preflight else {}
    return {stack: f"stack {stack} failed the preflight: {cause}" for stack, cause in failed.items()}


def _turn(launch: LaunchRun) -> tuple:
    """Return a key that launches share if they run at the same time, as in a sweep."""
    together = launch.planned.together
    return ("alone", launch.index) if together is None else ("together", together)


def _run_together(launches: Iterable[LaunchRun]) -> None:
    """Run planned launches at the same time. If one of them ends the batch, so do all."""
    active = [_run_planned_launch(launch) for launch in launches]
    try:
        while active:
            active = [launch for launch in active if next(launch, "over") != "over"]
            time.sleep(POLL_SECONDS if active else 0)
    except (Stopped, UserError, OSError) as error:
        for launch in active:  # they write that they were stopped
            with contextlib.suppress(Stopped, UserError, OSError, StopIteration):
                launch.throw(error)
        for launch in active:  # then wait for their ranks to end
            with contextlib.suppress(Stopped, UserError, OSError):
                launch.close()
        raise


def _run_planned_launch(launch: LaunchRun) -> Iterator[None]:
    """Launch until every cell has a record, and yield while waiting.

    Each turn records at least one cell, or is counted as fruitless.
    """
    run, stack = launch.run, launch.planned.stack
    num_fruitless = 0
    while remaining := launch.remaining():
        _raise_if_stopped(run)
        _wait_for_scheduler(run)
        problem = changed_since_planned(stack, run.batch.stacks[stack], run.batch.cluster)
        if problem := problem or edited_file(run.batch.cells[cell].spec for cell in remaining):
            run.held[stack] = problem
            return
        if (prologue := _prologue(run, stack)) is None:
            return
        _raise_if_full(run)
        launch.write_request(remaining)
        if reason := run.stacks.given_up(launch.name):
            launch.record(remaining, Cause("skipped", None, reason), None)
            return
        if launch.name in (other.name for other, _ in run.not_started):
            text = f"not started: an earlier launch of stack {launch.name} failed to start"
            run.not_started.append((launch, Cause("skipped", None, text)))
            return
        began = time.monotonic()
        cause, elapsed_ns = yield from _run_launch(launch, prologue)
        current, recorded = launch.watch.current, launch.watch.recorded
        if cause is not None and run.allocation.job and "ok" not in recorded.values():
            hosts = run.geometry(launch.planned).hosts or run.allocation.hosts()
            cause = blame_network(cause, read_log_tail(launch.log), hosts)
        if run.allocation.job:  # for those who follow the job's log
            print(launch.line(cause, time.monotonic() - began), flush=True)
        run.has_come_up |= bool(recorded or current)
        gave_nothing = len(launch.remaining()) == len(remaining) and current is None
        num_fruitless = num_fruitless + 1 if gave_nothing else 0
        if cause is None:
            cause = Cause("failed", "launch", "the launch completed without a valid record of this cell")
        if current is not None:
            failed = [cell for cell in remaining if cell not in recorded] if launch.is_program else [current]
            launch.record(failed, cause, elapsed_ns and elapsed_ns // len(failed))
        is_node_failure = cause.status == "node_failure"
        if is_node_failure and not launch.planned.hosts:
            _leave_nodes(run, cause)
        # In a sweep, a node failure is the result of this node; the others go on.
        if is_node_failure or (current is None and num_fruitless >= MAX_FRUITLESS_LAUNCHES):
            run.not_started.append((launch, cause))
            return


def _raise_if_full(run: BatchRun) -> None:
    if is_full(run.results):
        raise run.no_space()


def _wait_for_scheduler(run: BatchRun) -> None:
    """Wait while the scheduler does not answer, as during a restart: a launch would fail, and no node is at fault."""
    deadline = time.monotonic() + SECONDS_WITHOUT_ANSWER
    while not run.allocation.launcher.queue.is_answering() and time.monotonic() < deadline:
        _raise_if_stopped(run)
        time.sleep(POLL_SECONDS)


def _leave_nodes(run: BatchRun, cause: Cause) -> None:
    """End the job after a node failure: no launch of this shape can start on the remaining nodes."""
    hosts = hosts_to_blame(run, [cause])
    note_job(run.folder, "node_failure", run.allocation.job, hosts, cause.text)
    named = {*cause.hosts} & {*run.allocation.hosts()}
    blame_nodes(run.results, named, run.id, run.allocation.job, cause.text)
    text = f"{run.id}: a node failed ({', '.join(hosts) or 'name unknown'}): {cause.text}"
    raise UserError(f"{text}. Completed measurements are kept; the batch continues in another job.")


def hosts_to_blame(run: BatchRun, causes: list[Cause]) -> list[str]:
    """Return those nodes of this job that the launcher names in the causes; all of them if it names none."""
    hosts = run.allocation.hosts()
    named = {host for cause in causes for host in cause.hosts}
    return [host for host in hosts if host in named] or hosts


def _settle_launches_without_start(run: BatchRun) -> None:
    """Decide about launches whose ranks did not start.

    If only other stacks started in this job, or without a scheduler, the stack does not work and its cells fail.
    Otherwise the nodes may be at fault: Snakemake resubmits the batch and avoids them.
    """
    if not run.not_started:
        return
    cause = run.not_started[0][1]
    earlier = jobs_without_start(run.folder)
    has_worked = any(launch.name in run.stacks.works for launch, _ in run.not_started)
    is_of_nodes = (has_worked or not run.has_come_up) and not any(launch.planned.hosts for launch, _ in run.not_started)
    if run.allocation.job and is_of_nodes and len(earlier) + 1 < MAX_JOBS_WITHOUT_START:
        hosts = hosts_to_blame(run, [cause for _, cause in run.not_started])
        note_job(run.folder, "no_start", run.allocation.job, hosts, cause.text)
        raise UserError(
            f"{run.id}: no rank started on {', '.join(hosts) or 'the nodes of this job'}: {cause.text}."
            f" Attempt {len(earlier) + 1} of {MAX_JOBS_WITHOUT_START}; the next job avoids these nodes if possible."
        )
    for launch, cause in run.not_started:
        launch.record(launch.remaining(), cause, None)


def _blame_nodes_without_start(run: BatchRun) -> None:
    """Blame the nodes on which earlier jobs of the batch could not start, once its launches have started on others."""
    for event in jobs_without_start(run.folder) if run.has_come_up and not run.not_started else ():
        blame_nodes(run.results, event.hosts, run.id, event.job, event.cause)


def _prologue(run: BatchRun, name: str) -> dict[str, str | None] | None:
    """Return the variables that a stack's prologue changes; None if it fails, which holds the stack back. It runs once
    per job."""
    if name in run.prologues:
        return run.prologues[name]
    stack, limit = run.batch.stacks[name], run.batch.launch_start_seconds
    folder, check = run.folder / "prologue" / name, partial(_raise_if_stopped, run)
    try:
        found = run_prologue(run.allocation, run.geometry(), stack, folder, limit, check)
    except PrologueFailed as failed:
        if failed.cause.status == "node_failure":
            _leave_nodes(run, failed.cause)
        blame_nodes(run.results, failed.cause.hosts, run.id, run.allocation.job, str(failed))
        run.held[name] = str(failed)
        return None
    return run.prologues.setdefault(name, found)


def _run_launch(launch: LaunchRun, prologue: dict) -> Generator[None, None, tuple[Cause | None, int | None]]:
    """Run one launch to its end, and yield while waiting. Returns why it ended early (None if it did not), and for how
    many nanoseconds its last cell ran."""
    request, watch, allocation = launch.request, launch.watch, launch.run.allocation
    stack, num_oom_kills = launch.run.batch.stacks[launch.planned.stack], kernel_oom_kills()
    if launch.is_program:
        begin_log(request, launch.log, allocation.launcher)
    try:
        started = {"prologue": prologue, "meeting": launch.meeting, "is_program": launch.is_program}
        process = allocation.start(request.argv, stack, launch.log, **started)
    except OSError as error:
        return Cause("failed", "launch", f"{request.argv[0]} cannot be started: {error.strerror}"), None
    load = None if allocation.launcher.submits else LaunchLoad(process)  # else the ranks are on other machines
    try:
        is_late = yield from _follow(launch, process, load)
        elapsed_ns = int((time.monotonic() - watch.since) * 1e9) if watch.current else None
        other_load = load.so_far() if load and is_late else None  # before the ranks end
        if is_late:
            allocation.dump_stacks(process, launch.planned.hosts)
    finally:
        allocation.stop(process, launch.planned.hosts)
    launch.update()
    if watch.end == "complete":
        return None, None
    _raise_if_job_ends(launch)
    if is_late:
        return _late(watch, other_load, launch.is_program), elapsed_ns
    text = read_log_tail(launch.log)
    if not launch.is_program and (problem := store_write_error(allocation.launcher, text)):
        raise UserError(f"{problem} Completed measurements are kept.")
    if launch.is_program:
        _raise_if_full(launch.run)  # its output may be cut
    if launch.is_program and process.returncode == 0:
        record_output(request, launch.log, elapsed_ns)
        launch.update()
        return None, None
    errors, num_oom_kills = read_rank_errors(Path(request.error_dir)), kernel_oom_kills() - num_oom_kills
    cause = find_cause(allocation.launcher, errors, text, process.returncode, num_oom_kills)
    if launch.is_program and watch.current and process.returncode not in NOT_RUN:  # its code failed, not the launch
        cause = replace(cause, phase=None)
    return cause, elapsed_ns


def _follow(launch: LaunchRun, process: subprocess.Popen, load: LaunchLoad | None) -> Generator[None, None, bool]:
    """Follow a launch until it ends or is late; return whether it is late. Raises Stopped on a signal.

    load: of this machine; it begins again with each cell.
    """
    run, watch = launch.run, launch.watch
    while True:
        is_over = process.poll() is not None  # before the file is read for the last time, so that nothing is missed
        if launch.is_program and watch.header is None:
            note_start(launch.request, is_over)
        if any(line["kind"] == "start" for line in launch.update()) and load:
            load.begin()
        if is_over:
            return False
        if watch.clock() > watch.deadline():
            return True
        try:
            _raise_if_stopped(run)
            yield
        except Stopped as stop:
            if run.allocation.job:  # the scheduler soon kills this process: write first, then wait
                launch.close_stopped(stop)
                run.note_early_end(stop)
                yield  # all launches of a round write before one waits
            else:
                run.allocation.stop(process, launch.planned.hosts)
                launch.close_stopped(stop)
            raise


def _raise_if_job_ends(launch: LaunchRun) -> None:
    """Raise Stopped if the launch ended because its job is ending: a scheduler ends ranks and supervisor together."""
    allocation = launch.run.allocation
    try:
        _raise_if_stopped(launch.run)
        state = allocation.state()
        if state not in (None, "RUNNING"):
            raise Stopped(f"{allocation.launcher.title} is ending the job", 143, state)
    except Stopped as stop:
        launch.close_stopped(stop)
        raise


def _raise_if_stopped(run: BatchRun) -> None:
    """Raise Stopped after a signal, or if the process that started this one is gone."""
    if run.stop_signal is None and os.getppid() == run.parent:
        return
    has_signal = run.stop_signal is not None
    state = run.allocation.state_after_signal(run.batch.cluster) if has_signal else run.allocation.state()
    state = None if state == "RUNNING" else "REQUEUED" if state == "PENDING" else state
    if has_signal:
        raise Stopped(signal_name(run.stop_signal), 128 + run.stop_signal, state)
    raise Stopped("the parent process died", 1, state)


def _late(watch: Watch, load: OtherLoad | None, is_without_stacks: bool) -> Cause:
    """Return the cause of a timeout. It names the load of a busy machine: the program may not be at fault."""
    rest = "" if is_without_stacks else "; stack traces are in the log"
    beside = f"; {load.text}" if load and load.is_busy else ""
    found = record_field(load) if load else None
    if watch.current is not None:
        limit = watch.limits[watch.current]
        text = f"no record within {limit:g} s (cell_seconds){beside}{rest}"
        return Cause("timeout", None, text, host_load=found)
    text = f"no cell started within {watch.start_seconds:g} s (launch_start_seconds){beside}{rest}"
    return Cause("timeout", "launch", text, host_load=found)


@contextlib.contextmanager
def _noting_signals(run: BatchRun) -> Iterator[None]:
    """Record the first stop signal while the batch runs; the loop acts on it. Under nohup SIGHUP stays ignored."""

    def note(number: int, _frame: object) -> None:
        run.stop_signal = run.stop_signal or number

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
