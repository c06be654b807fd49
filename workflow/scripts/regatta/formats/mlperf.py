"""Logs of MLPerf Training (`:::MLLOG` lines): the time to train, from run_start to run_stop. Read only.

A log has no shape, so the user states it. Runs that follow each other in one file are launches of their own. Source of
the keys: mlcommons/logging, mllog/constants.py.
"""

import re

from regatta.core.benchmarks import load_benchmark
from regatta.core.text import quoted
from regatta.formats.base import (
    Format,
    ImportedFile,
    NotFinite,
    Options,
    Reading,
    check_json,
    lines_of,
    parse_json,
    refusal,
    stated_shape,
)
from regatta.formats.text_tables import join_runs

MARK = ":::MLLOG"
LINE = re.compile(rf"{MARK}\s+(\{{.*)")
START, STOP = "run_start", "run_stop"
STATUSES = ("success", "aborted")
NEEDED = "submission_benchmark"
BEGINS = (NEEDED, "init_start", START)  # one of these after run_stop: another run
# Values that are kept beside the time; of a key that is repeated, such as the accuracy, the last one.
KEPT = ("submission_org", "submission_platform", "submission_division", "seed", "global_batch_size", "eval_accuracy")
STATISTIC = "run_start to run_stop: training and evaluation until the target quality is reached; one time per run"

Event = tuple[int, dict]  # line from 1, content


def _read(text: str, name: str, options: Options) -> ImportedFile:
    lines = lines_of(text)
    events = _events(lines, name)
    shape = stated_shape(options, name, events[0][0])
    runs = _runs(events)
    if options.is_incomplete:  # a run without its end has no time
        runs = [run for run in runs if any(event["key"] == STOP for _, event in run)] or runs
    return join_runs([_read_run(run, name, shape) for run in runs], name)


def _runs(events: list[Event]) -> list[list[Event]]:
    """Return the events of each run. What follows run_stop, before another run begins, belongs to no run."""
    found: list[list[Event]] = [[]]
    has_stopped = False
    for event in events:
        key = event[1]["key"]
        if has_stopped and key in BEGINS:
            found.append([])
            has_stopped = False
        if not has_stopped or key == STOP:  # a second run_stop is an error of this run
            found[-1].append(event)
        has_stopped = has_stopped or key == STOP
    return found


def _events(lines: list[str], name: str) -> list[Event]:
    """Return the events in the order of the file. An event that several ranks printed alike counts once."""
    found, seen = [], set()
    for number, line in enumerate(lines, start=1):
        if (match := LINE.search(line)) and (text := match[1].strip()) not in seen:
            seen.add(text)
            event = parse_json(text, name, number - 1)
            has_no_time = event.get("key") not in (START, STOP) and isinstance(event.get("time_ms"), NotFinite)
            check_json(event | {"time_ms": 0} if has_no_time else event, f"{name}:{number}", "mlperf-log")
            found.append((number, event))
    if not found:
        number = next(n for n, line in enumerate(lines, start=1) if MARK in line)
        raise refusal(name, number, f"found {quoted(lines[number - 1])}", f"{MARK} and a JSON object")
    return found


def _read_run(events: list[Event], name: str, shape: tuple[int, int]) -> ImportedFile:
    start, stop = (_only(events, key, name) for key in (START, STOP))
    elapsed_ms = stop[1]["time_ms"] - start[1]["time_ms"]
    status = (stop[1].get("metadata") or {}).get("status")
    if elapsed_ms <= 0:
        raise refusal(name, stop[0], f"{STOP} {-elapsed_ms} ms before {START} in line {start[0]}", "a later time")
    if status not in STATUSES:
        found = f"{STOP} without a status" if status is None else f"{STOP} with status {quoted(str(status))}"
        raise refusal(name, stop[0], found, f"metadata with status {' or '.join(STATUSES)}")
    values = {event["key"]: event.get("value") for _, event in events}
    if not isinstance(values.get(NEEDED), str):
        raise refusal(name, start[0], f"no {NEEDED} in the file", f"the line of {NEEDED}, which names the workload")
    batch = values.get("global_batch_size")
    if isinstance(batch, NotFinite):
        raise refusal(name, start[0], f"global_batch_size {batch!r}", "a number of samples")
    named = {"model": values[NEEDED], "data": "MLPerf" if batch is None else f"MLPerf-gbs{batch}"}
    reading = Reading(
        start[0],
        "train_run",
        dict.fromkeys(load_benchmark("train_run").parameters) | named,  # the others are not in the log
        *shape,
        {"p50_s": elapsed_ms / 1000} if status == "success" else {},
        {"time_to_train_ms": elapsed_ms} | {key: _printed(values[key]) for key in KEPT if key in values},
        num_iterations=1,
        failure=None if status == "success" else f"{STOP} has status {quoted(status)}: target quality not reached",
    )
    return ImportedFile(STATISTIC, "nccl", "cuda", (reading,), ("Backend nccl and device cuda assumed.",))


def _only(events: list[Event], key: str, name: str) -> Event:
    """Return the only event with this key. Ranks that log at different times would disagree on the time."""
    found = [event for event in events if event[1]["key"] == key]
    if not found:
        raise refusal(name, events[-1][0], f"no {key}", f"the complete log of a run, with {START} and {STOP}")
    if len(found) > 1:
        lines = f"{key} in lines {found[0][0]} and {found[1][0]}, at different times"
        raise refusal(name, found[1][0], lines, f"one {key} per run: keep the lines of one rank")
    return found[0]


def _printed(value: object) -> float | str | None:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


MLPERF = Format("mlperf-log", "an MLPerf training log", lambda text: MARK in text, _read)
