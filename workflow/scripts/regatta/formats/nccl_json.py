"""Read nccl-tests JSON (-J); import only.

It has a summary per size and, with -I, the time of every call. Its process environment is not imported.
"""

from dataclasses import replace

from regatta.formats.base import Format, ImportedFile, Options, Reading, refusal, times_ns
from regatta.formats.nccl import (
    EVENTS,
    PLACEMENTS,
    Device,
    NcclRun,
    PlacementResult,
    device_of_each_rank,
    environment_of,
    find_program,
    reading_of,
    shape_of_devices,
    statistic_of,
    version_of,
)

# A boolean may be the text "true" or "false", a missing number the text "nan".

TRUE = ("true", True)


def _read_json(file: dict, name: str, options: Options) -> ImportedFile:
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
    has_calls = any(reading.slowest_ns or reading.samples_ns for reading in readings)
    statistic = statistic_of(is_blocking, int(config.get("graph", 0)), int(config.get("aggregated_iterations", 1)))
    statistic = EVENTS if has_calls else statistic
    ranks = f"{len(listed)} x {threads} threads x {gpus} GPUs = {len(devices)} ranks"
    notes = (f"the file lists one device per process: {ranks}",) if len(devices) > len(listed) else ()
    library = version_of(int(file["nccl_version"]))
    environment, argv, start = environment_of(devices, library), tuple(file["args"]), file.get("start_time")
    return ImportedFile(statistic, "nccl", "cuda", tuple(readings), notes, environment, argv, start)


def _result(row: dict, place: str, run: NcclRun) -> Reading:
    sides = {}
    for key in (key for key in PLACEMENTS if row.get(key) is not None):
        side = row[key]
        if "time" not in side or "cpu_time" in side:
            found = f"{place}.{key} has no 'time'"
            raise refusal(run.name, None, found, "the time of the operation (run without -C)")
        num_wrong = None if side["nwrong"] in (None, "nan") else float(side["nwrong"])
        sides[key] = PlacementResult(float(side["time"]), float(side["alg_bw"]), float(side["bus_bw"]), num_wrong)
    if not sides:
        raise refusal(run.name, None, f"{place} has no time", "out_of_place or in_place with a time")
    key = f"{run.placement(sides)}_per_iter"
    samples = _samples(row[key], f"{place}.{key}", run) if row.get(key) is not None else {}
    if samples:
        run = replace(run, num_iterations=len(samples.get("slowest_ns") or samples["samples_ns"][0]))
    redop = row["redop"] if isinstance(row["redop"], str) else None
    return reading_of(run, None, int(row["size"]), row["type"], redop, sides, **samples)


def _samples(calls: dict, place: str, run: NcclRun) -> dict:
    """Return the times of single calls, by rank where each process has one; without those that -K skips."""
    has_all = len(calls["times_us"]) == run.num_iterations
    skipped = int(calls.get("skipped_iterations", 0)) if has_all else 0
    slowest = _calls_ns(calls["times_us"], f"{place}.times_us", skipped, run)
    if "per_process_max_times_us" not in calls:
        return {"slowest_ns": slowest}
    place = f"{place}.per_process_max_times_us"
    rows = [_calls_ns(row, f"{place}[{i}]", skipped, run) for i, row in enumerate(calls["per_process_max_times_us"])]
    if any(len(row) != len(slowest) for row in rows):
        raise refusal(run.name, None, place, f"{len(slowest) + skipped} times per process, as in times_us")
    return {"samples_ns": rows} if len(rows) == run.nodes * run.gpus_per_node else {"slowest_ns": slowest}


def _calls_ns(values: list, place: str, skipped: int, run: NcclRun) -> list[int]:
    times = times_ns(values, run.name, place, per_second=10**6)[skipped:]
    if not times:
        raise refusal(run.name, None, f"{place} has {len(values)} times", f"at least {skipped + 1} times")
    return times


NCCL_JSON = Format(
    "nccl-tests-json",
    "JSON of nccl-tests",
    lambda value: isinstance(value, dict) and {"nccl_version", "config"} <= value.keys(),
    _read_json,
    is_json=True,
)
