"""JSON of nccl-tests (-J): the summary of each size, and with -I the time of every single call. Read only.

Booleans are the texts "true" and "false", and a number that is none is the text "nan". The file holds the whole environment
of the process; nothing of it is taken over.
"""

from dataclasses import replace

from regatta.formats.base import Node, Options, Reading, Source, whole_ns
from regatta.formats.nccl_rows import (  # fmt: skip
    BLOCKING,
    EVENTS,
    PIPELINED,
    Device,
    Run,
    Side,
    device_of_each_rank,
    environment_of,
    placement_of,
    program_of,
    reading_of,
    shape_of_devices,
)

FORMAT = "nccl-tests-json"
PLACEMENTS = ("out_of_place", "in_place")


def is_nccl_json(value: object) -> bool:
    return isinstance(value, dict) and "nccl_version" in value and "config" in value


def read_nccl_json(file: Node, options: Options) -> Source:
    for key in ("results", "out_of_bounds", "average_bus_bandwidth"):  # written last: without them the run was cut off
        file.key(key)
    config = file.key("config")
    argv = tuple(argument.text() for argument in file.key("args").items())
    operation, is_in_place = program_of(argv[0].rsplit("/", 1)[-1] if argv else "", file.name, None)
    listed = [_device(node) for node in config.key("devices").items()]
    threads, gpus = config.key("nthreads").whole(), config.key("ngpus").whole()
    devices = device_of_each_rank(listed, threads, gpus, file.name, None, has_all=False)
    nodes, gpus_per_node = shape_of_devices(devices, file.name, options, None)
    is_blocking = _flag(config.key("blocking_collectives"))
    iterations, warmup = config.key("iterations").whole(), config.key("warmup_iters").whole(least=0)
    run = Run(file.name, operation, is_in_place, nodes, gpus_per_node, is_blocking, iterations, warmup)
    results = [node for node in file.key("results").items() if node.key("size").whole(least=0)]
    if not results:
        raise file.key("results").refuse("a result of one size at least")
    readings = [_reading(node, run) for node in results]
    if not _flag(file.key("out_of_bounds").key("okay")) and not any(reading.failure for reading in readings):
        raise file.key("out_of_bounds").refuse("results that say which of them are wrong (nwrong)")
    has_calls = any(reading.slowest_ns or reading.samples_ns for reading in readings)
    statistic = EVENTS if has_calls else BLOCKING if is_blocking else PIPELINED
    environment = environment_of(devices, _library(file.key("nccl_version")))
    notes = []
    if len(devices) > len(listed):
        ranks = f"{len(listed)} x {threads} threads x {gpus} GPUs = {len(devices)} ranks"
        notes.append(f"the file lists one device of each process: {ranks}")
    return Source(
        FORMAT, statistic, "nccl", "cuda", tuple(readings), tuple(notes), environment, argv,
        file.key("start_time").text() if file.has("start_time") else None,
    )  # fmt: skip


def _device(node: Node) -> Device:
    rank, group = node.key("rank").whole(least=0), node.key("group").whole(least=0)
    return Device(rank, group, node.key("hostname").text(), node.key("device_info").text())


def _flag(node: Node) -> bool:
    if node.value in ("true", True):
        return True
    if node.value in ("false", False):
        return False
    raise node.refuse('"true" or "false"')


def _library(node: Node) -> str | None:
    """Return 2.28.3 for 22803, as nccl.h counts from 2.9 on."""
    code = node.whole(least=0)
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}" if code >= 20900 else None


def _reading(node: Node, run: Run) -> Reading:
    sides = {key: _side(node.key(key)) for key in PLACEMENTS if node.has(key) and node.key(key).value is not None}
    if not sides:
        raise node.refuse("out_of_place or in_place with a time")
    redop = node.key("redop").value
    calls = f"{placement_of(run, sides)}_per_iter"
    samples = _samples(node.key(calls), run) if node.has(calls) else {}
    if samples:
        run = replace(run, num_iterations=len(samples.get("slowest_ns") or samples["samples_ns"][0]))
    return reading_of(
        run, None, node.key("size").whole(), node.key("type").text(), redop if isinstance(redop, str) else None, sides, **samples
    )  # fmt: skip


def _side(node: Node) -> Side:
    if node.has("cpu_time"):
        raise node.refuse("'time', of the operation; run without -C")
    wrong = node.key("nwrong")
    num_wrong = None if wrong.value in (None, "nan") else wrong.number()
    return Side(node.key("time").positive(), node.key("alg_bw").number(), node.key("bus_bw").number(), num_wrong)


def _samples(calls: Node, run: Run) -> dict:
    """Return the times of single calls, by rank where each process has one; without those that -K skips."""
    has_all = len(calls.key("times_us").items()) == run.num_iterations
    skipped = calls.key("skipped_iterations").whole(least=0) if has_all and calls.has("skipped_iterations") else 0
    slowest = _times_ns(calls.key("times_us"), skipped)
    if not calls.has("per_process_max_times_us"):
        return {"slowest_ns": slowest}
    by_process = [_times_ns(row, skipped) for row in calls.key("per_process_max_times_us").items()]
    if any(len(row) != len(slowest) for row in by_process):
        raise calls.key("per_process_max_times_us").refuse(
            f"{len(slowest) + skipped} times of each process, as many as times_us has"
        )
    return {"samples_ns": by_process} if len(by_process) == run.num_ranks else {"slowest_ns": slowest}


def _times_ns(node: Node, skipped: int) -> list[int]:
    times = [whole_ns(value.positive() / 1e6) for value in node.items()][skipped:]
    if not times:
        raise node.refuse(f"{skipped + 1} times at least")
    return times
