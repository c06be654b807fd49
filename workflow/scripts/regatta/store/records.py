"""Validation of the lines of a launch file, and the columns computed from one record.

The schema is workflow/schemas/record.yaml. The many samples are checked as arrays instead.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import cache

import fastjsonschema
import numpy as np

from regatta.core.benchmarks import Benchmark, benchmark_names, load_benchmark, result_columns
from regatta.core.schemas import first_violation, load_schema
from regatta.core.statistics import drift, effective_samples, fast_median, median_interval, num_outliers, percentiles
from regatta.core.text import one_line
from regatta.model.launches import LaunchHeader

MOST_WHOLE = 2**63 - 1
ARRAYS = ("samples_ns", "slowest_rank_samples_ns", "rank_quantiles_ns", "windows", "parts_ns")
MEMORY_BYTES = tuple(result_columns("memory"))  # value of one rank, or maximum over ranks
RANK_BYTES = tuple(name for name, result in result_columns("memory").items() if result.per == "rank")
# Substitutes for the median of an imported record without samples, in this order (docs/formats.md). The column `stop`
# of measurements.csv names the one used, which marks the number as imported.
INCOMPLETE = "; incomplete file"  # ends the column `stop`, or the cause of a failure
CENTERS = {"p50_s": "median", "mean_s": "mean", "window_step_s": "back-to-back mean"}


# Times and numbers of a record, checked: it may come from a different version, or be damaged.


def whole_times(values: object, name: str, num_ranks: int, least: int = 1) -> np.ndarray:
    """Return [rank][iteration] as an array (ranks, iterations), nanoseconds. Raises ValueError with what is wrong."""
    try:
        times = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: the ranks have different numbers of values") from None
    if times.ndim != 2 or times.shape[1] == 0:
        raise ValueError(f"{name}: is not a list of values for each rank")
    if times.dtype.kind not in "iu" or bool((times < least).any()):
        raise ValueError(f"{name}: contains a value that is not a positive integer (nanoseconds)")
    if len(times) != num_ranks:
        raise ValueError(f"{name}: has {len(times)} ranks; the shape has {num_ranks}")
    return times


def slowest_rank(record: dict, num_ranks: int) -> np.ndarray:
    """Return nanoseconds of the slowest rank, (iterations,). Raises ValueError if samples break the contract."""
    if record.get("samples_ns") is not None:
        return whole_times(record["samples_ns"], "samples_ns", num_ranks).max(axis=0)
    if record.get("slowest_rank_samples_ns") is not None:
        return whole_times([record["slowest_rank_samples_ns"]], "slowest_rank_samples_ns", 1)[0]
    raise ValueError("status ok, but neither samples_ns nor slowest_rank_samples_ns is present")


def number(value: object, name: str, low: float | None = None, high: float | None = None) -> float | None:
    """Return a finite number between low and high, or None. Raises ValueError for anything else."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} = {value!r}: is not a number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} = {value!r}: is outside {low} to {high}")
    return float(value)


def count(value: object, name: str) -> int | None:
    """Return an integer from 0, or None. Raises ValueError for anything else."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_WHOLE:
        raise ValueError(f"{name} = {value!r}: is not an integer of at least 0")
    return value


def numbers(
    values: object, name: str, num: int, what: str, low: float | None = None, high: float | None = None
) -> list[float | None]:
    """Return a list of `num` numbers or None, one for each `what`. Raises ValueError for anything else."""
    if not isinstance(values, list):
        raise ValueError(f"{name}: is not a list with a number for each {what}")
    if len(values) != num:
        raise ValueError(f"{name}: expected {num} values, one per {what}; found {len(values)}")
    return [number(value, name, low, high) for value in values]


def is_without_samples(record: dict) -> bool:
    samples = (record.get("samples_ns"), record.get("slowest_rank_samples_ns"))
    return record.get("imported") is not None and samples == (None, None)


def imported_times(record: dict) -> dict:
    """Return the columns of a record without samples. Raises ValueError for an invalid time.

    p50_s: the median, or else a mean (CENTERS).
    """
    given = record["imported"]["times_s"]
    times = {name: number(value, f"imported.times_s.{name}", 0) for name, value in given.items()}
    center = next((name for name in CENTERS if times.get(name)), None)
    if center is None:
        raise ValueError("status ok, but imported.times_s has neither a median nor a mean")
    is_cut = record["imported"].get("is_incomplete")
    times |= {"p50_s": times[center], "stop": f"imported: {CENTERS[center]}{INCOMPLETE if is_cut else ''}"}
    return times


# The epochs and ranks of a record of train_run: rows of epochs.csv and ranks.csv.

BENCHMARK = "train_run"


def training_of(record: dict, spec: dict) -> dict[str, list[dict]]:
    """Return the rows of epochs and ranks of an ok record of train_run with samples, none of another.

    They are without cell, repeat, launch and line. Raises ValueError.
    """
    if record["status"] != "ok" or spec["benchmark"] != BENCHMARK or is_without_samples(record):
        return {"epochs": [], "ranks": []}
    size = spec["nodes"] * spec["gpus_per_node"], spec["parameters"]["epochs"]
    return {"epochs": _epochs(record, *size), "ranks": _ranks(record, *size)}


LAST = ("train_loss", "test_loss", "accuracy_ratio", "train_samples")  # of the last epoch


def run_columns(epochs: list[dict]) -> dict:
    """Return the columns of measurements.csv of a training run; none without epochs."""
    if not epochs:
        return {}
    parts = {name: [epoch[f"{name}_s"] for epoch in epochs] for name in ("train", "test")}
    row = {"total_s": sum(epoch["epoch_s"] for epoch in epochs)} | {name: epochs[-1][name] for name in LAST}
    row |= {f"epoch_{name}_s": None if None in of else fast_median(of) for name, of in parts.items()}
    losses = repr([(epoch["train_loss"], epoch["test_loss"]) for epoch in epochs])
    return row | {"losses": hashlib.sha256(losses.encode()).hexdigest()[:16]}


def _epochs(record: dict, num_ranks: int, num_epochs: int) -> list[dict]:
    values = record["values"] or {}
    slowest = slowest_rank(record, num_ranks)
    if len(slowest) != num_epochs:
        raise ValueError(f"has {len(slowest)} timed epochs; the cell has {num_epochs}")
    num_images = count(values.get("train_samples_per_epoch"), "values.train_samples_per_epoch")
    columns = {
        "epoch_s": (slowest / 1e9).tolist(),
        **{f"{part}_s": _part(record, part, num_ranks, num_epochs) for part in ("train", "test")},
        "train_loss": numbers(values.get("train_loss"), "values.train_loss", num_epochs, "epoch"),
        "test_loss": numbers(values.get("test_loss"), "values.test_loss", num_epochs, "epoch"),
        "accuracy_ratio": numbers(values.get("accuracy"), "values.accuracy", num_epochs, "epoch", 0, 1),
    }
    return [
        {"epoch": index + 1, "train_samples": num_images} | {name: column[index] for name, column in columns.items()}
        for index in range(num_epochs)
    ]


def _part(record: dict, part: str, num_ranks: int, num_epochs: int) -> list[float | None]:
    """Return seconds of the slowest rank in each epoch; None for all if the record does not have the part."""
    rows = (record.get("parts_ns") or {}).get(part)
    if rows is None:
        return [None] * num_epochs
    slowest = whole_times(rows, f"parts_ns.{part}", num_ranks, least=0).max(axis=0)
    if len(slowest) != num_epochs:
        raise ValueError(f"parts_ns.{part}: has {len(slowest)} epochs; the cell has {num_epochs}")
    return (slowest / 1e9).tolist()


def _ranks(record: dict, num_ranks: int, num_epochs: int) -> list[dict]:
    """Return a row per rank. Its time is unknown if a record with very many samples kept only the slowest rank."""
    memory, samples = record["memory"] or {}, record.get("samples_ns")
    total_s = [None] * num_ranks
    if samples is not None:
        total_s = (whole_times(samples, "samples_ns", num_ranks).sum(axis=1) / 1e9).tolist()
    name, shares = "values.accuracy_by_rank", (record["values"] or {}).get("accuracy_by_rank")
    if not isinstance(shares, list) or len(shares) != num_epochs:
        raise ValueError(f"{name}: is not a list with a list for each of {num_epochs} epochs")
    accuracy = [numbers(row, name, num_ranks, "rank", 0, 1) for row in shares]  # on the rank's images
    columns = {"total_s": total_s, "accuracy_ratio": accuracy[-1]}
    for name in RANK_BYTES:
        values = memory.get(name)
        columns[name] = [None] * num_ranks if values is None else values
        if len(columns[name]) != num_ranks:
            raise ValueError(f"memory.{name}: has {len(values)} ranks; the shape has {num_ranks}")
    return [{"rank": rank} | {name: column[rank] for name, column in columns.items()} for rank in range(num_ranks)]


@cache
def _compiled(kind: str) -> Callable[[dict], dict]:
    """Compile the schema of a line: a store has many thousands of lines, and jsonschema takes ten times as long."""
    return fastjsonschema.compile(load_schema("record")["$defs"][kind], use_default=False)


def violation(line: dict) -> str | None:
    """Return how a line of a launch file breaks the schema, or None. Arrays of samples are not checked."""
    kind, schema = line["kind"], load_schema("record")
    if kind not in schema["x-kinds"]:
        return f"unknown kind {one_line(kind)!r}"
    rest = {name: value for name, value in line.items() if name not in ARRAYS}
    try:
        _compiled(kind)(rest)
    except (fastjsonschema.JsonSchemaValueException, RecursionError):
        found = first_violation(rest, schema["$defs"][kind])
        return found and one_line(found, 300)
    return None


def problem_of(line: dict) -> str | None:
    """Return why a line cannot be analyzed, or None: it breaks the schema, or a record's samples are unreadable."""
    try:
        if (problem := violation(line)) or line["kind"] != "record":
            return problem
        name = line["spec"].get("benchmark")
        return measured(line, line["spec"], load_benchmark(name) if name in benchmark_names() else None)[1]
    except (KeyError, TypeError) as error:
        return one_line(f"its spec lacks the shape ({error!r})")


def measured(record: dict, spec: dict, benchmark: Benchmark | None) -> tuple[dict, str | None]:
    """Return the measured columns of a valid record, and what makes its samples unreadable (or None).

    benchmark: declares its results; None if it is of another version.

    Only an ok record has times: a failed or truncated one is not a measurement.
    """
    num_ranks, columns = spec["nodes"] * spec["gpus_per_node"], benchmark.columns if benchmark else {}
    try:
        row = {**_memory(record), **_values(record, columns), **_counts(record)}
        row["other_ranks"] = record.get("other_ranks")
        if record["status"] != "ok":
            return row, None
        if is_without_samples(record):
            return row | imported_times(record), None
        slowest = slowest_rank(record, num_ranks)
        step_s = _window_step(record.get("windows"), num_ranks)
        parts = _parts(record.get("parts_ns") or {}, num_ranks, columns)
        row |= run_columns(training_of(record, spec)["epochs"])
    except ValueError as error:
        return {}, one_line(error, 300)
    if step_s is None:  # a file may print the time of calls that ran back to back beside its samples
        step_s = ((record.get("imported") or {}).get("times_s") or {}).get("window_step_s")
    if (record.get("imported") or {}).get("is_incomplete"):
        row["stop"] = f"imported: samples{INCOMPLETE}"
    return row | _times(slowest * 1e-9) | {"window_step_s": step_s} | parts, None


LEAST_COUNTED_NS = 2 * 10**8  # of CPU time of the ranks, with which that of the cores is compared


def host_load_columns(record: dict, hosts: list[str | None]) -> dict:
    """Return the columns of a record's `host_load`: shares of CPU time, of the host with the largest.

    hosts: that of each rank. loaded_host: the one of other_processes_ratio. None where nothing is known.
    """
    entries = (record.get("host_load") or {}).get("hosts") or []
    others = [(_other_ns(entry), entry) for entry in entries]
    shares = {"other_processes_ratio": [(_share(ns, entry), entry["rank"]) for ns, entry in others]}
    for name in ("steal", "throttled"):
        shares[f"{name}_ratio"] = [(_share(entry.get(f"{name}_ns"), entry), entry["rank"]) for entry in entries]
    row: dict[str, object] = dict.fromkeys((*shares, "loaded_host"))
    for name, found in shares.items():
        known = [(share, -rank) for share, rank in found if share is not None]
        row[name] = round(max(known)[0], 4) if known else None
        if known and name == "other_processes_ratio" and -max(known)[1] < len(hosts):
            row["loaded_host"] = hosts[-max(known)[1]]
    return row


def _other_ns(entry: dict) -> int | None:
    """Return the CPU time of processes of other programs.

    None if the machine's counters do not include the ranks, as in some sandboxes.
    """
    busy_ns, ranks_ns = entry.get("busy_ns"), entry.get("ranks_cpu_ns")
    if busy_ns is None or ranks_ns is None or (ranks_ns >= LEAST_COUNTED_NS and 2 * busy_ns < ranks_ns):
        return None
    return max(0, busy_ns - ranks_ns)


def _share(ns: int | None, entry: dict) -> float | None:
    """Return a time as share of that of all cores, at most 1."""
    available = (entry.get("elapsed_ns") or 0) * (entry.get("num_cores") or 0)
    return None if ns is None or not available else min(1.0, ns / available)


def _memory(record: dict) -> dict:
    """Return the bytes of each kind of memory; the maximum if it differs by rank."""
    row = {name: (record["memory"] or {}).get(name) for name in MEMORY_BYTES}
    by_rank = {name: value for name, value in row.items() if isinstance(value, list)}
    return row | {name: max({*value} - {None}, default=None) for name, value in by_rank.items()}


def _values(record: dict, columns: Mapping) -> dict:
    """Return the columns from `values` of a record. columns: of its benchmark. Raises ValueError."""
    values, read = record["values"] or {}, {"integer": count, "number": number}
    known = columns.get(("values", "measurements"), {}).items()
    return {column: read[of.type](values.get(of.name), f"values.{of.name}") for column, of in known}


def _counts(record: dict) -> dict:
    warmup, sampling = record["warmup"] or {}, record["sampling"] or {}
    first_ns = warmup.get("first_iteration_ns")
    return {name: sampling.get(name) for name in ("num_iterations", "stop", "half_width_ratio")} | {
        "warmup_iterations": warmup.get("num_iterations"),
        "warmup_stop": warmup.get("stop"),
        "first_iteration_s": None if first_ns is None else first_ns * 1e-9,
    }


def _parts(parts: object, world_size: int, columns: Mapping) -> dict:
    """Return for each part with a column the median over iterations of its slowest rank. Raises ValueError."""
    if not isinstance(parts, dict):
        raise ValueError("parts_ns is not a mapping of names")
    times = {name: whole_times(rows, f"parts_ns.{name}", world_size, least=0) for name, rows in parts.items()}
    known = columns.get(("parts_ns", "measurements"), {}).items()
    return {column: fast_median(times[of.name].max(axis=0)) * 1e-9 for column, of in known if of.name in times}


def _window_step(windows: dict | None, world_size: int) -> float | None:
    """Return seconds per step over all pipelined windows: total time of the slowest ranks over total steps."""
    if windows is None:
        return None
    if not isinstance(windows, dict) or not {"steps_per_window", "elapsed_ns"} <= windows.keys():
        raise ValueError("windows lacks steps_per_window or elapsed_ns")
    if not (steps := count(windows["steps_per_window"], "windows.steps_per_window")):
        raise ValueError(f"windows.steps_per_window = {steps!r} is not a positive integer")
    slowest = whole_times(windows["elapsed_ns"], "windows.elapsed_ns", world_size).max(axis=0)
    return float(slowest.sum() * 1e-9 / (steps * len(slowest)))


def _times(slowest: np.ndarray) -> dict:
    """Return the columns of one launch's samples, (iterations,) in seconds."""
    low, high = median_interval(slowest) or (None, None)
    trend, effective = drift(slowest), effective_samples(slowest)
    return {
        "min_s": float(slowest.min()),
        "p50_s": fast_median(slowest),
        "p50_low_s": low,
        "p50_high_s": high,
        **percentiles(slowest),
        "max_s": float(slowest.max()),
        "mean_s": float(slowest.mean()),
        "std_s": float(slowest.std(ddof=1)) if len(slowest) > 1 else None,
        # For warnings in the report; rounded to the accuracy of such estimates.
        "drift_ratio": round(trend.change_ratio, 4) if trend else None,
        "has_drift": trend.is_flagged if trend else None,
        "effective_samples": None if effective is None else round(effective, 1),
        "num_outliers": num_outliers(slowest),
    }


SETTINGS = ("allow_tf32_matmul", "allow_tf32_cudnn")


def device_of(header: LaunchHeader) -> dict[str, object]:
    """Return the columns gpu and SETTINGS of a launch. gpu: the one name of all its GPUs, or None."""
    gpus, settings = header.environment.get("gpus"), header.environment.get("settings")
    names = [gpu.get("name") if isinstance(gpu, dict) else None for gpu in (gpus if isinstance(gpus, list) else [])]
    names = {name if isinstance(name, str) else None for name in names}
    settings = settings if isinstance(settings, dict) else {}
    allowed = {key: settings[key] if isinstance(settings.get(key), bool) else None for key in SETTINGS}
    return {"gpu": names.pop() if len(names) == 1 else None, **allowed}
