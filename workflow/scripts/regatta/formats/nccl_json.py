"""Read JSON of nccl-tests (-J), of rccl-tests (-Z json -x FILE), and SuperBench's results-summary.jsonl; import only.

nccl-tests has a summary per size and, with -I, the time of every call. Its process environment is not imported.
rccl-tests has an object for each size and placement; runs with MPI also have nodes, ranks, ranksPerNode and
gpusPerRank. SuperBench has an object for each node with the metrics of all benchmarks, of which nccl-bw and rccl-bw are
imported. Each node is a launch, because it ran separate processes; a note names the other benchmarks.
"""

import re
from collections import defaultdict
from dataclasses import replace

from regatta.core.text import quoted
from regatta.formats.base import (
    Format,
    ImportedFile,
    Options,
    Reading,
    object_with,
    refusal,
    stated_shape,
    times_ns,
    without_empty,
)
from regatta.formats.nccl_base import (
    FIGURES,
    PLACEMENTS,
    PROGRAMS,
    UNCHECKED,
    Device,
    NcclRun,
    device_of_each_rank,
    environment_of,
    find_program,
    other_placement,
    reading_of,
    refuse_repeats,
    shape_of_devices,
    version_of,
)
from regatta.formats.nccl_runs import processes_note
from regatta.formats.nccl_settings import BLOCKS, EVENTS, PIPELINED, option_values, statistic_of
from regatta.formats.text_tables import AGAIN, join_runs

TRUE = ("true", True)
NAMES = {program.replace("_", ""): pair for program, pair in PROGRAMS.items()}  # AllReduce, in lower case


# nccl-tests. A boolean may be the text "true" or "false", a missing number the text "nan".

COLUMNS = {"time": "time", "alg_bw": "algbw", "bus_bw": "busbw", "nwrong": "wrong"}


def _read_nccl(file: dict, name: str, options: Options) -> ImportedFile:
    config = file["config"]
    operation, is_in_place = find_program(
        file["args"][0].rsplit("/", 1)[-1] if file["args"] else "", name, options, None
    )
    listed = [Device(int(d["rank"]), int(d["group"]), d["hostname"], d["device_info"]) for d in config["devices"]]
    threads, gpus = int(config["nthreads"]), int(config["ngpus"])
    devices = device_of_each_rank(listed, threads, gpus, name, None, has_all=False)
    shape = shape_of_devices(devices, name, options, None)
    is_blocking = config["blocking_collectives"] in TRUE
    run = NcclRun(
        name, operation, is_in_place, *shape, is_blocking, int(config["iterations"]), int(config["warmup_iters"])
    )
    readings = [_result(row, f"results[{i}]", run) for i, row in enumerate(file["results"]) if row["size"]]
    if not readings:
        raise refusal(name, None, "results is empty", "at least one result")
    if file["out_of_bounds"]["okay"] not in TRUE and not any(reading.failure for reading in readings):
        raise refusal(name, None, "out_of_bounds.okay is false", "nwrong for each wrong result")
    refuse_repeats(readings, name)
    has_calls = any(reading.slowest_ns or reading.samples_ns for reading in readings)
    counts = {"graph": "graph", "aggregated": "aggregated_iterations"}
    counts |= {"iterations": "iterations", "warmup": "warmup_iters"}
    counts = {key: int(config[name]) for key, name in counts.items() if name in config}
    words = file["args"][1:]
    blocking = option_values(words, BLOCKS).get("z", 1) if is_blocking else 0
    statistic = statistic_of(blocking, counts, (threads, gpus), words, EVENTS if has_calls else None)
    statistic += other_placement(run, readings)
    ranks = f"{len(listed)} x {threads} threads x {gpus} GPUs = {len(devices)} ranks"
    notes = [f"the file lists one device per process: {ranks}"] if len(devices) > len(listed) else []
    notes += processes_note(len(devices))
    library = version_of(int(file["nccl_version"]))
    environment, argv, start = environment_of(devices, library), tuple(file["args"]), file.get("start_time")
    return ImportedFile(statistic, "nccl", "cuda", tuple(readings), tuple(notes), environment, argv, start)


def _result(row: dict, place: str, run: NcclRun) -> Reading:
    sides = {key: row[key] for key in PLACEMENTS if row.get(key) is not None}
    values = {name: row.get(name) for name in ("size", "type", "redop", "root")}
    for key, side in sides.items():
        if "time" not in side or "cpu_time" in side:
            found = f"{place}.{key} has no 'time'"
            raise refusal(run.name, None, found, "the time of the operation (run without -C)")
        values |= {column + PLACEMENTS[key]: side[name] for name, column in COLUMNS.items()}
    if not sides:
        raise refusal(run.name, None, f"{place} has no time", "out_of_place or in_place with a time")
    key = f"{run.placement(sides)}_per_iter"
    calls = {} if row.get(key) is None else _calls(row[key], f"{place}.{key}", run)
    return reading_of(run, None, values, **calls)


def _calls(calls: dict, place: str, run: NcclRun) -> dict:
    """Return the times of single calls, by rank where each process has one; without those that -K skips."""
    has_all = len(calls["times_us"]) == run.num_iterations
    skipped = int(calls.get("skipped_iterations", 0)) if has_all else 0
    slowest = _calls_ns(calls["times_us"], f"{place}.times_us", skipped, run)
    counts = {"num_iterations": len(slowest)}
    if "per_process_max_times_us" not in calls:
        return counts | {"slowest_ns": slowest}
    place = f"{place}.per_process_max_times_us"
    rows = [_calls_ns(row, f"{place}[{i}]", skipped, run) for i, row in enumerate(calls["per_process_max_times_us"])]
    if any(len(row) != len(slowest) for row in rows):
        raise refusal(run.name, None, place, f"{len(slowest) + skipped} times per process, as in times_us")
    return counts | ({"samples_ns": rows} if len(rows) == run.nodes * run.gpus_per_node else {"slowest_ns": slowest})


def _calls_ns(values: list, place: str, skipped: int, run: NcclRun) -> list[int]:
    times = times_ns(values, run.name, place, per_second=10**6)[skipped:]
    if not times:
        raise refusal(run.name, None, f"{place} has {len(values)} times", f"at least {skipped + 1} times")
    return times


NCCL_JSON = Format(
    "nccl-tests-json", "JSON of nccl-tests", object_with("nccl_version", "config"), _read_nccl, is_json=True
)


# rccl-tests. The file names neither the library's version nor the GPUs.

RCCL_COLUMNS = ("time", "algBw", "busBw", "wrong")
SHAPE = ("nodes", "ranks", "ranksPerNode", "gpusPerRank")
ABSENT = "number of iterations and RCCL version not in the file"


def _read_rccl(rows: list[dict], name: str, options: Options) -> ImportedFile:
    shape = _shape(rows, name, options)
    results: dict[tuple, dict[int, int]] = defaultdict(dict)  # of a size -> placement -> index
    for index, row in enumerate(rows):
        of_size = results[tuple(row[key] for key in ("name", "size", "type", "redop"))]
        if row["inPlace"] in of_size:
            found = f"size {row['size']} again (numCycle {row.get('numCycle')})"
            raise refusal(f"{name}: [{index}]", None, found, "one cycle (-N 1), because cycles share their processes")
        of_size[row["inPlace"]] = index
    readings = []
    for (program, size, dtype, redop), indices in results.items():
        run = NcclRun(f"{name}: [{min(indices.values())}]", *NAMES[program.lower()], *shape, False, None, None)
        values = {"size": size, "type": dtype, "redop": redop}
        for placement, index in indices.items():
            values |= {name.lower() + AGAIN * placement: rows[index][name] for name in RCCL_COLUMNS}
        readings.append(reading_of(run, None, values))
    kept, empty = without_empty(readings, name, None)
    unchecked = ["some results were not checked (N/A)"] * any(row["wrong"] in UNCHECKED for row in rows)
    return ImportedFile(PIPELINED, "nccl", "cuda", kept, (ABSENT, *empty, *unchecked))


def _shape(rows: list[dict], name: str, options: Options) -> tuple[int, int]:
    """Return (nodes, GPUs per node), from the file if it was written by a run with MPI."""
    stated = {tuple(row.get(key) for key in SHAPE) for row in rows}
    if stated == {(None,) * len(SHAPE)}:
        return stated_shape(options, name, None)
    if len(stated) > 1:
        raise refusal(name, None, f"several values of {', '.join(SHAPE)}", "one shape per file")
    [(nodes, ranks, per_node, gpus)] = stated
    if None in (nodes, ranks, per_node, gpus) or nodes * per_node != ranks:
        found = ", ".join(f"{key} {value}" for key, value in zip(SHAPE, (nodes, ranks, per_node, gpus), strict=True))
        raise refusal(name, None, found, "all four, with nodes x ranksPerNode = ranks")
    return nodes, per_node * gpus


RCCL_JSON = Format("rccl-tests-json", "JSON of rccl-tests", object_with("inPlace", "busBw"), _read_rccl, is_json=True)


# SuperBench.

COLLECTIVES = ("nccl-bw", "rccl-bw")
METRIC = re.compile(
    r"(?P<benchmark>[nr]ccl-bw)(?::(?P<variant>[^/]+))?/(?P<operation>[a-z]+)_(?P<size>\d{1,15})"
    r"_(?P<kind>time|algbw|busbw)(?::\d+)?"
)
RETURN_CODE = re.compile(r".*/return_code(?::\d+)?")
ASSUMED = "placement and data type not in the file; assumed: out of place and fp32, SuperBench's defaults"


def _read_superbench(file: dict | list, name: str, options: Options) -> ImportedFile:
    nodes = file if isinstance(file, list) else [file]
    shape = stated_shape(replace(options, nodes=options.nodes or 1), name, None)
    variants = {m["variant"] for node in nodes for key in node if (m := METRIC.fullmatch(key))}
    runs = [_read_node(node, index, name, shape, len(variants) > 1) for index, node in enumerate(nodes)]
    return join_runs(runs, name)


def _read_node(node: dict, index: int, name: str, shape: tuple[int, int], has_variants: bool) -> ImportedFile:
    """Return the collectives of one node. has_variants: the variants of a benchmark are stacks."""
    line, others, results = index + 1, set(), defaultdict(dict)
    for key, value in node.items():
        if key == "node" or (RETURN_CODE.fullmatch(key) and value == 0):
            continue
        if not key.startswith(COLLECTIVES):
            others.add(re.split("[:/]", key)[0])
            continue
        metric = METRIC.fullmatch(key)
        if metric is None or metric["operation"] not in NAMES:
            want = "'nccl-bw:<variant>/<operation>_<bytes>_time', _algbw or _busbw, of " + ", ".join(NAMES)
            raise refusal(name, line, f"metric {quoted(key)} = {quoted(value)}", want)
        result = results[metric["variant"] or "", metric["operation"], int(metric["size"])]
        if metric["kind"] in result:
            raise refusal(name, line, f"metric {quoted(key)} of several ranks", "one rank per benchmark")
        result[metric["kind"]] = value
    unused = ", ".join(sorted(others))
    if not results:
        found = f"node {quoted(node['node'])} has no {' or '.join(COLLECTIVES)}, only {quoted(unused, 300)}"
        raise refusal(name, line, found, "at least one collective; Regatta does not measure the others")
    readings = []
    for (variant, operation, size), result in sorted(results.items()):
        if missing := {*FIGURES} - result.keys():
            raise refusal(name, line, f"no {operation}_{size}_{min(missing)}", "time, algbw and busbw of each result")
        run = NcclRun(name, NAMES[operation][0], False, *shape, False, None, None)
        stack = {"stack": re.sub(r"\W+", "_", variant or "default")} if has_variants else {}
        readings.append(reading_of(run, line, result | {"size": size, "type": "float", "wrong": None}, **stack))
    kept, empty = without_empty(readings, name, line)
    notes = [ASSUMED] + ([f"excluded, because Regatta does not measure them: {unused}"] if unused else [])
    hosts = [{"host": node["node"], "ranks": list(range(shape[1]))}] if shape[0] == 1 else []
    return ImportedFile(PIPELINED, "nccl", "cuda", kept, (*notes, *empty), {"hosts": hosts})


SUPERBENCH = Format(
    "superbench-jsonl", "a results-summary.jsonl of SuperBench", object_with("node"), _read_superbench, is_json=True
)
