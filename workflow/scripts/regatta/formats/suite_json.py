"""JSON of a suite of communication, training and memory benchmarks, one object for each world size. Read and written.

The outer form is {name, world_size, timestamp, config{warmup_iters, benchmark_iters, device}, results{communication
{allreduce, allgather, ...}, training, memory}}. What stands inside `allreduce`, `training` and `memory` was never published;
docs/formats.md has the form that Regatta writes and reads there.
"""

import pandas as pd

from regatta.errors import UserError
from regatta.formats.json_file import Node
from regatta.formats.reading import (
    Options,
    Reading,
    Source,
    collective_parameters,
    parameters_of,
    refusal,
    shape_of,
)  # fmt: skip
from regatta.formats.results_folder import ResultsFolder

FORMAT = "suite-json"
NAMES = {"all_reduce": "allreduce", "all_gather": "allgather"}  # Regatta's operation -> the suite's, where they differ
OPERATIONS = {name: operation for operation, name in NAMES.items()}
MEDIAN = "median over launches"
MEAN_IN_WORDS, MEDIAN_IN_WORDS = "the mean over iterations; no spread", "the median over launches; no spread"


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
    found, results, central = [], run.key("results"), "p50_s" if _is_median(run) else "mean_s"
    communication = results.key("communication").members() if _is_there(results, "communication") else []
    for name, entries in communication:
        for _, entry in entries.members():
            operation = OPERATIONS.get(name, name)
            message = None if operation == "barrier" else entry.key("message_bytes").whole()
            dtype = entry.key("dtype").text() if _is_there(entry, "dtype") else None
            parameters = collective_parameters(operation, message, dtype)
            if _is_there(entry, "algorithm"):
                parameters["algorithm"] = entry.key("algorithm").text()
            times = {central: entry.key("time_ms").positive() / 1e3}
            if _is_there(entry, "pipelined_time_ms"):
                times["window_step_s"] = entry.key("pipelined_time_ms").positive() / 1e3
            found.append(_reading("collective", parameters, entry, run, options, times))
    for _, entry in results.key("training").members() if _is_there(results, "training") else []:
        times = {central: entry.key("step_time_ms").positive() / 1e3}
        found.append(_reading("train_step", _train_parameters(entry), entry, run, options, times))
    return found


def _is_there(node: Node, key: str) -> bool:
    return node.has(key) and node.key(key).value is not None


def _train_parameters(entry: Node) -> dict:
    own = {name: entry.key(name).text() for name in ("model", "strategy")}
    own["batch_size"] = entry.key("batch_size").whole()
    more = entry.key("parameters").members() if _is_there(entry, "parameters") else []
    known = parameters_of("train_step", **own)
    for name, node in more:
        if name in known and name not in own:
            if isinstance(node.value, dict | list):
                raise node.refuse("a word, a number or null")
            known[name] = node.whole(0) if isinstance(node.value, float) and node.value.is_integer() else node.value
    return known


def _reading(benchmark: str, parameters: dict, entry: Node, run: Node, options: Options, times: dict) -> Reading:
    return Reading(None, benchmark, parameters, *_shape(entry, run, options), times_s=times, printed=_numbers(entry))


def _shape(entry: Node, run: Node, options: Options) -> tuple[int, int]:
    num_ranks = run.key("world_size").whole()
    if _is_there(entry, "nodes") and _is_there(entry, "gpus_per_node"):
        shape = entry.key("nodes").whole(), entry.key("gpus_per_node").whole()
        if shape[0] * shape[1] != num_ranks:
            raise entry.key("nodes").refuse(f"nodes x gpus_per_node = world_size {num_ranks}")
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
    tables = {name: folder.tables[name] for name in ("collectives", "scaling", "memory")}
    tables = {name: table[table["cell"].isin(folder.ids)] for name, table in tables.items()}
    measured = [tables["collectives"]["latency_s"].notna(), tables["scaling"]["step_s"].notna()]
    sizes = sorted(
        {
            int(n)
            for name, has in zip(("collectives", "scaling"), measured, strict=True)
            for n in tables[name]["world_size"][has]
        }
    )
    if not sizes:
        raise UserError(f"{folder.path}: nothing that was chosen has a valid record, so there is nothing to write.")
    return [
        _report(folder, num_ranks, {k: t[t["world_size"] == num_ranks] for k, t in tables.items()})
        for num_ranks in sizes
    ]


def _report(folder: ResultsFolder, num_ranks: int, tables: dict[str, pd.DataFrame]) -> dict:
    rows = folder.measurements
    own = rows[(rows["world_size"] == num_ranks) & rows["cell"].isin(folder.ids) & (rows["status"] == "ok")]
    specs = {cell["id"]: cell["spec"] for cell in folder.cells}
    communication: dict[str, dict] = {}
    for row in _rows(tables["collectives"][tables["collectives"]["latency_s"].notna()]):
        communication.setdefault(NAMES.get(row["operation"], row["operation"]), {})[row["cell"]] = _collective(row)
    training = tables["scaling"][tables["scaling"]["step_s"].notna()]
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
            "training": {row["cell"]: _step(row, specs[row["cell"]]["parameters"]) for row in _rows(training)},
            "memory": {
                row["cell"]: _memory(row) for row in _rows(tables["memory"][tables["memory"]["num_launches"] > 0])
            },
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
    names = {
        gpu.get("name") for header in folder.headers for gpu in (header.get("environment") or {}).get("gpus") or []
    }
    return ", ".join(sorted(names - {None})) or folder.campaign["device"]


def _collective(row: dict) -> dict:
    return {
        **{name: row[name] for name in ("message_bytes", "dtype", "algorithm", "stack", "nodes", "gpus_per_node")},
        "num_launches": row["num_launches"],
        "time_ms": _ms(row["latency_s"]),
        "algorithm_bandwidth_gb_per_s": row["algbw_gb_per_s"],
        "bus_bandwidth_gb_per_s": row["busbw_gb_per_s"],
        "pipelined_time_ms": _ms(row["pipelined_s"]),
        "pipelined_bus_bandwidth_gb_per_s": row["pipelined_busbw_gb_per_s"],
    }


def _step(row: dict, parameters: dict) -> dict:
    efficiency = row["efficiency_ratio"]
    return {
        **{name: row[name] for name in ("model", "batch_size", "strategy")},
        "parameters": {
            name: value for name, value in parameters.items() if name not in ("model", "batch_size", "strategy")
        },
        **{name: row[name] for name in ("stack", "nodes", "gpus_per_node", "num_launches")},
        "step_time_ms": _ms(row["step_s"]),
        "samples_per_second": row["throughput_samples_per_s"],
        "samples_per_second_per_gpu": row["throughput_per_gpu_samples_per_s"],
        "scaling_efficiency_percent": None if efficiency is None else 100 * efficiency,
        "grade": row["grade"],
        "baseline": row["baseline"],
        "baseline_samples_per_second": row["baseline_samples_per_s"],
    }


def _memory(row: dict) -> dict:
    return {name: row[name] for name in row if name.endswith("_bytes") and row[name] is not None}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
