"""JSON of a suite of communication, training and memory benchmarks, one object for each world size. Read and written.

The outer form is {name, world_size, timestamp, config{warmup_iters, benchmark_iters, device}, results{communication
{allreduce, allgather, ...}, training, memory}}. The content of `allreduce`, `training` and `memory` was never
published; docs/formats.md has the form that Regatta writes and reads there.
"""

import numpy as np
import pandas as pd

from regatta.core.errors import UserError
from regatta.formats.base import (
    Format,
    Options,
    Reading,
    ResultsFolder,
    Source,
    cell_fields,
    collective_parameters,
    entry_cell,
    entry_parameters,
    other_parameters,
    refusal,
)
from regatta.topics.base import plain_rows

NAMES = {"all_reduce": "allreduce", "all_gather": "allgather"}  # Regatta's operation -> the suite's, if they differ
OPERATIONS = {name: operation for operation, name in NAMES.items()}
OVER_LAUNCHES = "geometric mean over launches"
MEDIAN = "median over launches"  # of files of earlier versions
STATISTICS = {False: "mean over iterations; no range", True: "mean or median over launches; no range"}
STEP = ("model", "batch_size", "strategy")


def _is_suite(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and {"world_size", "results", "config"} <= first.keys()


def _read(file: dict | list, name: str, options: Options) -> Source:
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
    return Source(STATISTICS[is_over_launches], backend, device, readings, tuple(notes), measured_at=measured_at)


def _settings(run: dict) -> tuple[str, str, bool]:
    """Return (device, backend, whether times are medians)."""
    config = run["config"]
    device = "cpu" if config["device"].lower().startswith("cpu") else "cuda"
    return (
        device,
        config.get("backend", {"cuda": "nccl", "cpu": "gloo"}[device]),
        config.get("statistic") in (OVER_LAUNCHES, MEDIAN),
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


def _write(folder: ResultsFolder) -> list[dict]:
    """Return one object for each world size with results, the smallest first. Raises UserError if there is none."""
    for name in ("backend", "device"):
        folder.one_value(folder.cells, name)
    ok = folder.rows[(folder.rows["status"] == "ok") & folder.rows["p50_s"].notna()]
    by_cell = ok.groupby("cell")
    logs = np.log(ok[["p50_s", "window_step_s"]].astype(float)).groupby(ok["cell"]).mean()
    times = (1e3 * np.exp(logs)).assign(num_launches=by_cell.size())
    specs = {cell["id"]: cell["spec"] for cell in folder.cells}
    reports: dict[int, dict] = {}
    for table in ("collectives", "scaling", "memory"):
        merged = folder.tables[table].merge(times, left_on="cell", right_index=True)
        for row in plain_rows(merged, tuple(merged)):
            size = row["world_size"]
            if table != "memory":
                reports.setdefault(size, _report(folder, size))
            if size in reports:
                _add(reports[size]["results"], table, row, specs[row["cell"]])
    if not reports:
        raise UserError(
            f"{folder.path}: no selected collective or training step has a valid record, and this format represents"
            " nothing else. Nothing was written."
        )
    return [reports[size] for size in sorted(reports)]


def _report(folder: ResultsFolder, num_ranks: int) -> dict:
    rows = folder.rows
    ok = rows[(rows["world_size"] == num_ranks) & (rows["status"] == "ok")]
    return {
        "name": f"{folder.campaign['name']}_{num_ranks}gpu",
        "world_size": num_ranks,
        "timestamp": max(ok["time_utc"].dropna(), default=None),
        "config": {
            "warmup_iters": _only(ok["warmup_iterations"]),
            "benchmark_iters": _only(ok["num_iterations"]),
            "device": _device_name(folder),
            "backend": folder.cells[0]["spec"]["backend"],
            "statistic": OVER_LAUNCHES,
        },
        "results": {"communication": {}, "training": {}, "memory": {}},
    }


def _only(values: pd.Series) -> int | None:
    """Return the number that all measurements share, or None: Regatta samples until a precision is reached."""
    found = set(values.dropna())
    return int(found.pop()) if len(found) == 1 else None


def _device_name(folder: ResultsFolder) -> str:
    if folder.campaign["device"] == "cpu":
        return "cpu"  # even on a machine with GPUs
    gpus = [gpu for header in folder.headers for gpu in (header.get("environment") or {}).get("gpus") or []]
    return ", ".join(sorted({gpu.get("name") for gpu in gpus} - {None})) or folder.campaign["device"]


def _add(results: dict, table: str, row: dict, spec: dict) -> None:
    common = cell_fields(spec) | {"num_launches": row["num_launches_y"]}
    if table == "collectives":
        entries = results["communication"].setdefault(NAMES.get(row["operation"], row["operation"]), {})
        entries[row["cell"]] = {
            **{name: row[name] for name in ("message_bytes", "dtype", "algorithm")},
            **common,
            "time_ms": row["p50_s"],
            "bus_bandwidth_gb_per_s": row["busbw_gb_per_s"],
            "pipelined_time_ms": row["window_step_s"],
        }
    elif table == "scaling":
        efficiency = row["efficiency_ratio"]
        results["training"][row["cell"]] = {
            **{name: row[name] for name in STEP},
            "parameters": other_parameters(spec, STEP),
            **common,
            "blocking_step_time_ms": row["p50_s"],
            "step_time_ms": row["window_step_s"],
            "samples_per_second": row["throughput_samples_per_s"],
            "scaling_efficiency_percent": None if efficiency is None else 100 * efficiency,
            "grade": row["grade"],
        }
    else:
        results["memory"][row["cell"]] = {k: v for k, v in row.items() if k.endswith("_bytes") and v is not None}


SUITE = Format(
    "suite-json",
    "JSON with world_size and results",
    _is_suite,
    _read,
    is_json=True,
    write=_write,
    benchmarks=("train_step", "collective"),
    not_held="single launches and iterations, percentiles, intervals, warm-up, parts of a step",
)
