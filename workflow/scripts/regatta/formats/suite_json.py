"""JSON of a suite of communication, training and memory benchmarks, one object for each world size. Read only.

The outer form is {name, world_size, timestamp, config{warmup_iters, benchmark_iters, device}, results{communication
{allreduce, allgather, ...}, training, memory}}. The content of `allreduce`, `training` and `memory` was never
published; docs/formats.md has the form that Regatta writes and reads there.
"""

from regatta.formats.base import (
    Format,
    ImportedFile,
    Options,
    Reading,
    collective_parameters,
    entry_cell,
    entry_parameters,
    object_with,
    refusal,
)

OPERATIONS = {"allreduce": "all_reduce", "allgather": "all_gather"}  # if Regatta's name differs
OVER_LAUNCHES = ("geometric mean over launches", "median over launches")  # of files that Regatta once exported
STATISTICS = {False: "mean over iterations; no range", True: "mean or median over launches; no range"}
STEP = ("model", "batch_size", "strategy")


def _read(file: dict | list, name: str, options: Options) -> ImportedFile:
    runs = file if isinstance(file, list) else [file]
    settings = {_settings(run) for run in runs}
    if len(settings) > 1:
        raise refusal(name, None, "runs of several devices, backends or statistics", "one of each per file")
    [(device, backend, is_over_launches)], notes = settings, []
    readings = tuple(reading for run in runs for reading in _readings(run, is_over_launches, name, options))
    if not readings:
        raise refusal(name, None, "no time in results", "communication or training with at least one time")
    if "backend" not in runs[0]["config"]:
        notes.append(f"backend not in the file; used: {backend}, the default of the suite")
    if any("memory" in run["results"] for run in runs):
        notes.append("memory is not imported")
    measured_at = max((run["timestamp"] for run in runs if run.get("timestamp")), default=None)
    return ImportedFile(STATISTICS[is_over_launches], backend, device, readings, tuple(notes), measured_at=measured_at)


def _settings(run: dict) -> tuple[str, str, bool]:
    """Return (device, backend, whether times are medians)."""
    config = run["config"]
    device = "cpu" if config["device"].lower().startswith("cpu") else "cuda"
    return (
        device,
        config.get("backend", {"cuda": "nccl", "cpu": "gloo"}[device]),
        config.get("statistic") in OVER_LAUNCHES,
    )


def _readings(run: dict, is_over_launches: bool, name: str, options: Options) -> list[Reading]:
    found, results = [], run["results"]
    blocking = "p50_s" if is_over_launches else "mean_s"
    for section, entries in (results.get("communication") or {}).items():
        operation = OPERATIONS.get(section, section)
        for key, entry in entries.items():
            message = None if operation == "barrier" else int(entry["message_bytes"])
            parameters = collective_parameters(operation, message, entry.get("dtype"))
            if entry.get("algorithm") is not None:
                parameters["algorithm"] = entry["algorithm"]
            times = _times(entry, {blocking: "time_ms", "window_step_s": "pipelined_time_ms"})
            found.append(("collective", parameters, f"communication.{section}.{key}", entry, times))
    for key, entry in (results.get("training") or {}).items():
        named = {parameter: entry[parameter] for parameter in STEP} | {"batch_size": int(entry["batch_size"])}
        both_keys = {"p50_s": "blocking_step_time_ms", "window_step_s": "step_time_ms"}
        keys = both_keys if is_over_launches else {"mean_s": "step_time_ms"}
        parameters = entry_parameters(entry, "train_step", **named)
        found.append(("train_step", parameters, f"training.{key}", entry, _times(entry, keys)))
    readings = []
    for benchmark, parameters, place, entry, times in found:
        if not times:
            raise refusal(name, None, f"results.{place} has no time", "a time in milliseconds")
        cell = entry_cell(entry, int(run["world_size"]), options, name, f"results.{place}")
        printed = {key: value for key, value in entry.items() if type(value) in (int, float)}
        readings.append(Reading(None, benchmark, parameters, times_s=times, printed=printed, **cell))
    return readings


def _times(entry: dict, keys: dict[str, str]) -> dict[str, float]:
    """Return the times in seconds that the entry has. keys: name of the time -> key of the entry."""
    return {name: entry[key] / 1e3 for name, key in keys.items() if entry.get(key) is not None}


RECOGNIZED = object_with("world_size", "results", "config")
SUITE = Format("suite-json", "JSON with world_size and results", RECOGNIZED, _read, is_json=True)
