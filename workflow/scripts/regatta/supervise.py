"""Run the launches of one batch: each with deadlines; a cell that kills its launch is recorded, and the rest goes on.

What a batch has measured is read from the store, never remembered: a supervisor that is killed and started again resumes.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regatta import processes
from regatta.causes import (
    Cause,
    find_cause,
    kernel_oom_kills,
    read_log_tail,
    read_rank_errors,
    signal_name,
    store_write_error,
)
from regatta.driver_lines import launch_line, record_line, stopped_line
from regatta.errors import NO_SPACE, UserError
from regatta.history import summarise
from regatta.launch import launch_environment
from regatta.launch_request import launch_request
from regatta.locks import hold
from regatta.progress import Progress
from regatta.store import append_line, read_frozen, read_launch_file, write_json
from regatta.watch import Watch

POLL_SECONDS = 0.05
STACK_DUMP_SECONDS = 0.5  # time for hung ranks to write where they are
MIN_FREE_BYTES = 4 * 2**20  # several of the largest records
MAX_FRUITLESS_LAUNCHES = 2  # launches in a row that end before any cell starts; then the launch itself is what fails


class Stopped(Exception):
    """A signal asked the supervisor to stop. What was measured is in the store."""

    def __init__(self, reason: str, exit_code: int):
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass
class Run:
    """A batch being measured. `batch` is batch.json's content; `stop_signal` is set by the signal handler."""

    folder: Path
    batch: dict
    git: dict
    progress: Progress | None = None
    parent: int = field(default_factory=os.getppid)
    stop_signal: int | None = None
    is_waiting: bool = False

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def results(self) -> Path:
        return self.folder.parent.parent

    def launch_file(self, launch: str) -> Path:
        return self.results / "launches" / f"{launch}.jsonl"

    def attempts(self, index: int) -> list[Path]:
        """Return the launch files of one planned launch, oldest first."""
        return sorted((self.results / "launches").glob(f"{self.id}-l{index:03d}-a*.jsonl"))

    def next_launch(self, index: int) -> str:
        """Return the name of the next attempt. Requests are counted: an attempt may have left no launch file."""
        prefix = f"{self.id}-l{index:03d}-a"
        return f"{prefix}{len(list((self.folder / 'launches').glob(f'{prefix}*.json'))):02d}"

    def recorded(self, index: int) -> set[str]:
        """Return the cells of one planned launch that have a record which the analysis takes."""
        entries = [summarise(read_launch_file(path)) for path in self.attempts(index)]
        records = [record for entry in entries if entry for record in entry["records"]]
        return {record["cell"] for record in records if record["status"] != "invalid"}

    def remaining(self, index: int) -> list[str]:
        done = self.recorded(index)
        return [cell for cell in self.batch["launches"][index]["cells"] if cell not in done]


def supervise(folder: Path, git: dict) -> dict[str, int]:
    """Measure a batch to its end and write its manifest. Returns the number of records by status.

    Raises Stopped on SIGINT, SIGTERM or SIGHUP, or when the process that started this one dies;
    UserError when the disk is full or another supervisor holds this batch.
    """
    run = Run(folder, read_frozen(folder / "batch.json"), git)
    taken = f"{folder}: another supervisor is measuring this batch. Wait for it, or stop it."
    with hold(folder / "lock", taken), _noting_signals(run), _machine(run):
        left = [len(run.remaining(index)) for index in range(len(run.batch["launches"]))]
        shape = f"{run.batch['nodes']}x{run.batch['gpus_per_node']}"
        run.progress = Progress(shape, len(left), sum(left), run.batch["expected_seconds"])
        try:
            for index, count in enumerate(left):
                if count:
                    _run_planned_launch(run, index)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise no_space(run) from None
        finally:
            run.progress.close()
        return _write_manifest(run)


def no_space(run: Run) -> UserError:
    return UserError(
        f"{run.results}: no space left on the disk. What was measured is kept. Free some space and run the same line again."
    )


def _run_planned_launch(run: Run, index: int) -> None:
    """Launch until every cell has a record. Each turn records at least one cell, or is counted as fruitless."""
    num_fruitless = 0
    while remaining := run.remaining(index):
        if shutil.disk_usage(run.results).free < MIN_FREE_BYTES:
            raise no_space(run)
        launch = run.next_launch(index)
        request = _write_request(run, index, launch, remaining)
        watch, cause, elapsed_ns = _run_launch(run, index, launch, request)
        num_fruitless = 0 if watch.recorded or watch.current else num_fruitless + 1
        if cause is None:
            cause = Cause("failed", "launch", "the launch ended well, but without a record of this cell")
        if watch.current is not None:
            blamed = [watch.current]
        elif num_fruitless >= MAX_FRUITLESS_LAUNCHES:
            blamed = remaining
        else:
            blamed = []
        if blamed and not watch.has_header:
            append_line(run.launch_file(launch), launch_line(request))
        for cell in blamed:
            append_line(run.launch_file(launch), record_line(request, cell, cause, elapsed_ns))
            run.progress.recorded(cause.status)


def _run_launch(run: Run, index: int, launch: str, request: dict) -> tuple[Watch, Cause | None, int | None]:
    """Run one launch to its end. Returns what was seen of it, why it ended early (None if it did not), and the
    nanoseconds that its last cell had run."""
    stack = run.batch["stacks"][request["stack"]]
    log = run.folder / "logs" / f"{launch}.log"
    limits = {cell: entry["limit_seconds"] for cell, entry in run.batch["cells"].items()}
    watch = Watch(run.launch_file(launch), limits, run.batch["launch_start_seconds"])
    num_oom_kills = kernel_oom_kills()
    try:
        process = processes.start(request["argv"], launch_environment(stack), log)
    except OSError as error:
        return watch, Cause("failed", "launch", f"{request['argv'][0]} cannot be started: {error.strerror}"), None
    try:
        is_late = _follow(run, index, process, watch)
        elapsed_ns = int((time.monotonic() - watch.since) * 1e9) if watch.current else None
        if is_late:
            processes.dump_stacks(process)
            time.sleep(STACK_DUMP_SECONDS)
    finally:
        processes.stop(process)
    for line in watch.update():
        _count(run, line)
    if watch.is_complete:
        return watch, None, None
    if is_late:
        return watch, _late(watch), elapsed_ns
    text = read_log_tail(log)
    if problem := store_write_error(text):
        raise UserError(f"{problem} What was measured is kept.")
    errors = read_rank_errors(Path(request["error_dir"]))
    return watch, find_cause(errors, text, process.returncode, kernel_oom_kills() - num_oom_kills), elapsed_ns


def _follow(run: Run, index: int, process: subprocess.Popen, watch: Watch) -> bool:
    """Follow a launch until it ends or is late; return whether it is late. Raises Stopped when told to stop."""
    while True:
        is_over = process.poll() is not None  # before the last look at the file, so that nothing is missed
        for line in watch.update():
            _count(run, line)
        run.progress.show(index + 1, watch.current)
        if is_over:
            return False
        if watch.clock() > watch.deadline():
            return True
        try:
            _raise_if_stopped(run)
        except Stopped as stop:
            processes.stop(process)
            watch.update()
            if watch.has_header and not watch.is_complete:
                append_line(watch.path, stopped_line(str(stop)))
            raise
        time.sleep(POLL_SECONDS)


def _raise_if_stopped(run: Run) -> None:
    """Raise Stopped if a signal has come, or if the process that started this one is gone."""
    if run.stop_signal is not None:
        raise Stopped(signal_name(run.stop_signal), 128 + run.stop_signal)
    if os.getppid() != run.parent:
        raise Stopped("the process that started it died", 1)


def _late(watch: Watch) -> Cause:
    if watch.current is not None:
        limit = watch.limits[watch.current]
        return Cause("timeout", None, f"no record within {limit:g} s (cell_seconds); the log holds the ranks' stacks")
    limit = watch.start_seconds
    return Cause(
        "timeout",
        "launch",
        f"no cell started within {limit:g} s (launch_start_seconds); the log holds the ranks' stacks",
    )


def _count(run: Run, line: dict) -> None:
    if line["kind"] == "record":
        run.progress.recorded(line["status"])


def _write_request(run: Run, index: int, launch: str, cells: list[str]) -> dict:
    """Write what the ranks are asked to do, and return it."""
    path = (run.folder / "launches" / f"{launch}.json").resolve()
    request = launch_request(run.batch, index, cells, path, run.launch_file(launch).resolve(), run.git)
    Path(request["store_file"]).parent.mkdir(parents=True, exist_ok=True)
    Path(request["error_dir"]).mkdir(parents=True, exist_ok=True)
    write_json(path, request)
    return request


def _write_manifest(run: Run) -> dict[str, int]:
    entries = [summarise(read_launch_file(p)) for i in range(len(run.batch["launches"])) for p in run.attempts(i)]
    entries = [entry for entry in entries if entry is not None]
    counts: dict[str, int] = {}
    for entry in entries:
        for record in entry["records"]:
            counts[record["status"]] = counts.get(record["status"], 0) + 1
    write_json(run.folder / "manifest.json", {"schema": 1, "batch": run.id, "counts": counts, "launches": entries})
    return counts


@contextlib.contextmanager
def _machine(run: Run) -> Iterator[None]:
    """Have this machine to ourselves, where there is no scheduler to see to it: campaigns of one folder take turns."""
    if run.batch["cluster"]["scheduler"] != "none":
        yield
        return
    lock = None
    while lock is None:
        try:
            lock = hold(run.results.parent / ".machine.lock", "")
        except UserError:
            if not run.is_waiting:
                print(
                    f"{run.id}: waiting: another batch is being measured on this machine", file=sys.stderr, flush=True
                )
            run.is_waiting = True
            _raise_if_stopped(run)
            time.sleep(POLL_SECONDS)
    with lock:
        yield


@contextlib.contextmanager
def _noting_signals(run: Run) -> Iterator[None]:
    """Note a request to stop while the batch runs; the loop acts on it."""

    def note(number: int, _frame: object) -> None:
        run.stop_signal = number

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
