"""JSON of a suite of communication, training and memory benchmarks, one object for each world size. Read and written.

The outer form is {name, world_size, timestamp, config{warmup_iters, benchmark_iters, device}, results{communication
{allreduce, allgather, ...}, training, memory}}. What stands inside `allreduce`, `training` and `memory` was never published;
docs/formats.md has the form that Regatta writes and reads there.
"""

import pandas as pd

from regatta.core.errors import UserError
from regatta.core.statistics import over_launches
from regatta.formats.base import Node, Options, Reading, Source, collective_parameters, refusal, shape_of  # fmt: skip
from regatta.formats.exported_fields import (
    cell_fields,
    is_there,
    other_parameters,
    read_cell_fields,
    read_parameters,
    stated_shape,
)
from regatta.formats.exporter import ResultsFolder
from regatta.topics.scaling.tables import LaunchValues

FORMAT = "suite-json"
NAMES = {"all_reduce": "allreduce", "all_gather": "allgather"}  # Regatta's operation -> the suite's, where they differ
OPERATIONS = {name: operation for operation, name in NAMES.items()}
MEDIAN = "median over launches"
MEAN_IN_WORDS, MEDIAN_IN_WORDS = "the mean over iterations; no spread", "the median over launches; no spread"

# Of files that Regatta wrote before they had blocking_step_time_ms.
PIPELINED_ALONE = (
    "training: step_time_ms is the time of a step in pipelined windows. The file has no median of single steps, so"
    " p50_s is that time too: do not compare it with the p50_s of a measured campaign, but export that campaign again"
)


def is_suite_json(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and {"world_size", "results", "config"} <= first.keys()


def read_suite_json(file: Node, options: Options) -> Source:
    runs = file.items() if isinstance(file.value, list) else [file]
    if len({(_device(run), _backend(run), _is_median(run)) for run in runs}) > 1:
        raise refusal(file.name, None, "runs of several devices, backends or statistics", "one of each in a file")
    readings = [reading for run in runs for reading in _readings(run, options)]
    if not readings:
        raise runs[0].key("results").refuse("communication or training with one time at least")
    notes = []
    if not runs[0].key("config").has("backend"):
        notes.append(f"the backend is not named; {_backend(runs[0])} is what such a suite uses there")
    if _is_median(runs[0]) and any(r.benchmark == "train_step" and "p50_s" not in r.times_s for r in readings):
        notes.append(PIPELINED_ALONE)
    if any(run.key("results").has("memory") for run in runs):
        notes.append("memory is not taken over")
    times = [run.key("timestamp").text() for run in runs if run.has("timestamp") and run.key("timestamp").value]
    statistic = MEDIAN_IN_WORDS if _is_median(runs[0]) else MEAN_IN_WORDS
    return Source(
        FORMAT, statistic, _backend(runs[0]), _device(runs[0]), tuple(readings), tuple(notes), measured_at=max(times, default=None)
    )  # fmt: skip


def _device(run: Node) -> str:
    return "cpu" if run.key("config").key("device").text().lower().startswith("cpu") else "cuda"


def _backend(run: Node) -> str:
    config = run.key("config")
    return config.key("backend").text() if config.has("backend") else {"cuda": "nccl", "cpu": "gloo"}[_device(run)]


def _is_median(run: Node) -> bool:
    config = run.key("config")
    return config.has("statistic") and config.key("statistic").text() == MEDIAN


def _readings(run: Node, options: Options) -> list[Reading]:
    found, results, is_median = [], run.key("results"), _is_median(run)
    communication = results.key("communication").members() if is_there(results, "communication") else []
    for name, entries in communication:
        for _, entry in entries.members():
            operation = OPERATIONS.get(name, name)
            message = None if operation == "barrier" else entry.key("message_bytes").whole()
            dtype = entry.key("dtype").text() if is_there(entry, "dtype") else None
            parameters = collective_parameters(operation, message, dtype)
            if is_there(entry, "algorithm"):
                parameters["algorithm"] = entry.key("algorithm").text()
            times = {"p50_s" if is_median else "mean_s": entry.key("time_ms").positive() / 1e3}
            times |= _times(entry, window_step_s="pipelined_time_ms")
            found.append(_reading("collective", parameters, entry, run, options, times))
    for _, entry in results.key("training").members() if is_there(results, "training") else []:
        named = {name: entry.key(name).text() for name in ("model", "strategy")}
        named["batch_size"] = entry.key("batch_size").whole()
        parameters = read_parameters(entry, "train_step", **named)
        if is_median:
            times = _times(entry, p50_s="blocking_step_time_ms", window_step_s="step_time_ms")
        if not is_median or not times:
            times = {"mean_s": entry.key("step_time_ms").positive() / 1e3}
        found.append(_reading("train_step", parameters, entry, run, options, times))
    return found


def _times(entry: Node, **keys: str) -> dict[str, float]:
    """Return the times in seconds that the entry has. keys: name of the time -> key of the entry."""
    return {name: entry.key(key).positive() / 1e3 for name, key in keys.items() if is_there(entry, key)}


def _reading(benchmark: str, parameters: dict, entry: Node, run: Node, options: Options, times: dict) -> Reading:
    shape, fields = _shape(entry, run, options), read_cell_fields(entry)
    return Reading(None, benchmark, parameters, *shape, times_s=times, printed=_numbers(entry), **fields)


def _shape(entry: Node, run: Node, options: Options) -> tuple[int, int]:
    num_ranks = run.key("world_size").whole()
    if shape := stated_shape(entry, num_ranks):
        return shape
    if num_ranks > 1 and options.gpus_per_node is None:
        raise UserError(
            f"{run.name}: world_size is {num_ranks}, and such a file does not say how many GPUs a node has. Add"
            " --gpus-per-node. Nothing was imported."
        )
    shape = shape_of(num_ranks, options.gpus_per_node or 1)
    if shape is None:
        raise run.key("world_size").refuse(f"whole nodes of {options.gpus_per_node} GPUs; correct --gpus-per-node")
    return shape


def _numbers(entry: Node) -> dict:
    return {
        k: v.value for k, v in entry.members() if isinstance(v.value, int | float) and not isinstance(v.value, bool)
    }


def suite_reports(folder: ResultsFolder) -> list[dict]:
    """Return one object for each world size with results, the smallest first. Raises UserError where there is none."""
    for name in ("backend", "device"):
        folder.one_value(folder.cells, name)
    times = LaunchValues(folder.measurements, ("p50_s", "window_step_s"))
    measured = {cell["id"] for cell in folder.cells if times.of(cell["id"], "p50_s")}
    tables = {name: folder.tables[name] for name in ("collectives", "scaling", "memory")}
    tables = {name: table[table["cell"].isin(measured)] for name, table in tables.items()}
    sizes = sorted({int(n) for name in ("collectives", "scaling") for n in tables[name]["world_size"]})
    if not sizes:
        raise UserError(
            f"{folder.path}: no collective and no training step that was chosen has a valid record, and this format"
            " holds nothing else. Nothing is written."
        )
    return [
        _report(folder, num_ranks, {k: t[t["world_size"] == num_ranks] for k, t in tables.items()}, times)
        for num_ranks in sizes
    ]


def _report(folder: ResultsFolder, num_ranks: int, tables: dict[str, pd.DataFrame], times: LaunchValues) -> dict:
    rows = folder.measurements
    own = rows[(rows["world_size"] == num_ranks) & rows["cell"].isin(folder.ids) & (rows["status"] == "ok")]
    specs = {cell["id"]: cell["spec"] for cell in folder.cells}
    communication: dict[str, dict] = {}
    for row in _rows(tables["collectives"]):
        operation = NAMES.get(row["operation"], row["operation"])
        communication.setdefault(operation, {})[row["cell"]] = _collective(row, specs[row["cell"]], times)
    return {
        "name": f"{folder.campaign['name']}_{num_ranks}gpu",
        "world_size": num_ranks,
        "timestamp": max(own["time_utc"].dropna(), default=None),
        "config": {
            "warmup_iters": _one(own["warmup_iterations"]),
            "benchmark_iters": _one(own["num_iterations"]),
            "device": _device_name(folder),
            "backend": folder.cells[0]["spec"]["backend"],
            "statistic": MEDIAN,
        },
        "results": {
            "communication": communication,
            "training": {row["cell"]: _step(row, specs[row["cell"]], times) for row in _rows(tables["scaling"])},
            "memory": {row["cell"]: _memory(row) for row in _rows(tables["memory"])},
        },
    }


def _rows(table: pd.DataFrame) -> list[dict]:
    table = table.astype(object)
    return table.where(table.notna(), None).to_dict("records")


def _one(values: pd.Series) -> int | None:
    """Return the one number that all measurements share, or None: Regatta samples until a precision is reached."""
    found = set(values.dropna())
    return int(found.pop()) if len(found) == 1 else None


def _device_name(folder: ResultsFolder) -> str:
    if folder.campaign["device"] == "cpu":
        return "cpu"  # also on a machine with GPUs
    names = {
        gpu.get("name") for header in folder.headers for gpu in (header.get("environment") or {}).get("gpus") or []
    }
    return ", ".join(sorted(names - {None})) or folder.campaign["device"]


def _collective(row: dict, spec: dict, times: LaunchValues) -> dict:
    return {
        **{name: row[name] for name in ("message_bytes", "dtype", "algorithm")},
        **cell_fields(spec),
        "num_launches": times.num_launches(row["cell"]),
        "time_ms": _median_ms(row, "p50_s", times),
        "algorithm_bandwidth_gb_per_s": row["algbw_gb_per_s"],
        "bus_bandwidth_gb_per_s": row["busbw_gb_per_s"],
        "pipelined_time_ms": _median_ms(row, "window_step_s", times),
        "pipelined_bus_bandwidth_gb_per_s": row["pipelined_busbw_gb_per_s"],
    }


def _step(row: dict, spec: dict, times: LaunchValues) -> dict:
    efficiency, named = row["efficiency_ratio"], ("model", "batch_size", "strategy")
    return {
        **{name: row[name] for name in named},
        "parameters": other_parameters(spec, named),
        **cell_fields(spec),
        "num_launches": times.num_launches(row["cell"]),
        "blocking_step_time_ms": _median_ms(row, "p50_s", times),
        "step_time_ms": _median_ms(row, "window_step_s", times),
        "samples_per_second": row["throughput_samples_per_s"],
        "samples_per_second_per_gpu": row["throughput_per_gpu_samples_per_s"],
        "scaling_efficiency_percent": None if efficiency is None else 100 * efficiency,
        "grade": row["grade"],
        "baseline": row["baseline"],
        "baseline_samples_per_second": row["baseline_samples_per_s"],
    }


def _memory(row: dict) -> dict:
    return {name: row[name] for name in row if name.endswith("_bytes") and row[name] is not None}


def _median_ms(row: dict, column: str, times: LaunchValues) -> float | None:
    seconds = over_launches(times.of(row["cell"], column)).median
    return None if seconds is None else seconds * 1e3
