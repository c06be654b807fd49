"""nccl-tests: the tables that they print (12, 13 and 21 columns) and their JSON (-J). Read only.

A row of a table is bytes, count, type, redop and root (either may be blank), then time, algbw, busbw and #wrong out of
place and in place, with -I also smallest, largest, p99 and variation of single calls. The head announces the sizes and
the last lines are a summary, so a truncated run is rejected. JSON has the summary of each size, and with
-I the time of every call; its process environment is not imported.

Source of the forms: NVIDIA/nccl-tests, src/common.cu and src/util.cu.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace

from regatta.core.text import plural
from regatta.formats.base import (
    Format,
    Options,
    Reading,
    Source,
    collective_parameters,
    lines_of,
    quoted,
    refusal,
    times_ns,
)
from regatta.topics.bandwidth import BUS_FACTOR

# Program without `_perf` -> operation, and whether Regatta's benchmark does it in place.
PROGRAMS = {
    "all_reduce": ("all_reduce", True),
    "all_gather": ("all_gather", False),
    "reduce_scatter": ("reduce_scatter", False),
    "alltoall": ("all_to_all", False),
    "broadcast": ("broadcast", True),
    "reduce": ("reduce", True),
    "sendrecv": ("send_recv_ring", False),
    "gather": ("gather", False),
    "scatter": ("scatter", False),
}
PROGRAM = re.compile(rf"\b({'|'.join([*PROGRAMS, 'alltoallv', 'hypercube'])})_perf(?:_mpi)?\b")
DTYPES = {"float": "fp32", "bfloat16": "bf16", "half": "fp16", "double": "fp64"}
AVERAGED = ", averaged over ranks (nccl-tests default); "
PIPELINED = f"mean of back-to-back calls{AVERAGED}not a single blocking call; no range"
BLOCKING = f"mean of blocking calls{AVERAGED}no range"
EVENTS = "single calls timed by device events, slowest process; issued back to back, not blocking"
PLACEMENTS = ("out_of_place", "in_place")
MOST_GPUS = 4096  # limit per process; a larger number means a damaged file


@dataclass(frozen=True)
class Device:
    """The GPU of a rank. name: None if the file does not list it."""

    rank: int
    group: int
    host: str
    name: str | None


@dataclass(frozen=True)
class Run:
    """Facts on all rows of a file. is_blocking: calls were waited for one by one (-z)."""

    name: str
    operation: str
    is_in_place: bool
    nodes: int
    gpus_per_node: int
    is_blocking: bool
    num_iterations: int
    num_warmup: int

    def placement(self, sides: dict) -> str:
        """Return the placement whose time counts: that of Regatta's benchmark, or the only one."""
        wanted = "in_place" if self.is_in_place else "out_of_place"
        return wanted if wanted in sides else next(iter(sides))


@dataclass(frozen=True)
class Side:
    """One placement of one row, as printed. num_wrong: None if the result was not checked."""

    time_us: float
    algbw: float
    busbw: float
    num_wrong: float | None
    time_slack: float = 0.0


def _program(text: str, name: str, line: int | None) -> tuple[str, bool]:
    """Return (operation, whether in place) of the program that the text names."""
    found = sorted({match[1] for match in PROGRAM.finditer(text)})
    if len(found) == 1 and found[0] in PROGRAMS:
        return PROGRAMS[found[0]]
    known = ", ".join(f"{program}_perf" for program in PROGRAMS)
    want = f"one of {known}. Old versions do not print it: add a first line '# all_reduce_perf'"
    raise refusal(name, line, f"found the programs {', '.join(found)}" if found else "no program name", want)


def _device_of_each_rank(
    devices: list[Device], threads: int, gpus: int, name: str, line: int | None, has_all: bool
) -> list[Device]:
    """Return a device for each rank: a process has one for each GPU of each of its threads.

    has_all: every device is listed, as in the text. JSON up to version 3 lists only the first one of each process.
    """
    per_process, ranks = threads * gpus, sorted(device.rank for device in devices)
    is_first_alone = not has_all and ranks == list(range(0, len(ranks) * per_process, per_process or 1))
    if not 1 <= per_process <= MOST_GPUS or not (is_first_alone or len(ranks) % per_process == 0):
        listed = f"{plural(len(ranks), 'device')} listed, with {threads} x {gpus} = {per_process} GPUs per process"
        want = "threads x GPUs of each process" if has_all else "the first GPU of each process"
        raise refusal(name, line, listed, want)
    if not is_first_alone:
        return devices
    return [
        replace(device, rank=device.rank + index, name=device.name if index == 0 else None)
        for device in devices
        for index in range(per_process)
    ]


def _shape_of_devices(devices: list[Device], name: str, options: Options, line: int | None) -> tuple[int, int]:
    """Return (nodes, GPUs per node), from the hosts that the file lists."""
    if not devices:
        raise refusal(name, line, "no device listed", "'# Rank 0 Group 0 Pid ... on <host> device 0 [...] <name>'")
    if len({device.group for device in devices}) > 1:
        raise refusal(name, line, "ranks are split into groups (NCCL_TESTS_SPLIT)", "one group of all ranks")
    ranks = sorted(device.rank for device in devices)
    if ranks != list(range(len(ranks))):
        raise refusal(name, line, f"ranks {ranks[0]} to {ranks[-1]} with gaps or duplicates", "each rank once")
    by_host = Counter(device.host for device in devices)
    per_host, *others = sorted(set(by_host.values()))
    if others:
        raise refusal(name, line, f"hosts with {[per_host, *others]} ranks", "the same number of ranks on each host")
    if options.gpus_per_node not in (None, per_host):
        found = f"{per_host} ranks per host, but --gpus-per-node {options.gpus_per_node}"
        raise refusal(name, line, found, "the same number; remove the option")
    return len(by_host), per_host


def _environment(devices: list[Device], nccl: str | None) -> dict:
    hosts: dict[str, list[int]] = {}
    for device in sorted(devices, key=lambda device: device.rank):
        hosts.setdefault(device.host, []).append(device.rank)
    gpus = [{"rank": device.rank, "host": device.host, "name": device.name} for device in devices if device.name]
    return {"nccl": nccl, "hosts": [{"host": host, "ranks": ranks} for host, ranks in hosts.items()], "gpus": gpus}


def _check_side(run: Run, size: int, side: Side, line: int | None) -> None:
    """Refuse a row with contradictory time and bandwidths: a shifted column, or ranks that are not listed."""
    factor = BUS_FACTOR.get(run.operation)
    if factor is None or not size:  # a row of 0 bytes has nothing to check
        return
    algbw = size / side.time_us / 1000 if side.time_us else float("inf")
    if abs(algbw - side.algbw) > 0.006 + (0.01 + side.time_slack) * algbw:
        found = f"{size} bytes in {side.time_us:g} us with algbw {side.algbw:g} GB/s"
        raise refusal(run.name, line, found, f"algbw {algbw:.2f}, bytes / time")
    num_ranks = run.nodes * run.gpus_per_node
    busbw = side.algbw * factor(num_ranks)
    if abs(busbw - side.busbw) > 0.02 + 0.01 * busbw:
        found = f"algbw {side.algbw:g} and busbw {side.busbw:g} GB/s with {num_ranks} ranks"
        raise refusal(run.name, line, found, f"busbw {busbw:.2f} of {run.operation}")


def _reading(
    run: Run, line: int | None, size: int, dtype: str, redop: str | None, sides: dict[str, Side], **calls
) -> Reading:
    """Return one row. calls: what -I reports about single calls, as fields of a reading."""
    for side in sides.values():
        _check_side(run, size, side, line)
    placement = run.placement(sides)
    printed = {"placement": placement}
    for key, value in sides.items():
        printed |= {f"{key}_time_us": value.time_us, f"{key}_algbw_gb_per_s": value.algbw}
        printed |= {f"{key}_busbw_gb_per_s": value.busbw, f"{key}_num_wrong": value.num_wrong}
    num_wrong = sum(value.num_wrong or 0 for value in sides.values())
    operation = run.operation if redop in (None, "none", "sum") else f"{run.operation}_{redop}"
    times = {("mean_s" if run.is_blocking else "window_step_s"): sides[placement].time_us / 1e6}
    times |= calls.pop("times_s", {})
    calls |= {"num_iterations": run.num_iterations, "num_warmup": run.num_warmup}
    if num_wrong:
        calls["failure"] = f"{num_wrong:g} wrong values in the result (nccl-tests, #wrong)"
    parameters = collective_parameters(operation, size, DTYPES.get(dtype, dtype))
    return Reading(line, "collective", parameters, run.nodes, run.gpus_per_node, times, printed, **calls)


# The tables, with log lines of NCCL between the rows.

HEAD = re.compile(
    r"#\s*nThread (?P<threads>\d{1,15}) nGpus (?P<gpus>\d{1,15}) minBytes (?P<least>\d{1,15})"
    r" maxBytes (?P<most>\d{1,15}) step: (?P<step>\d{1,15})\((?P<kind>factor|bytes)\)"
    r" warmup iters: (?P<warmup>\d{1,15}) iters: (?P<iters>\d{1,15})\b.*"
)
DEVICE = re.compile(
    r"#\s+Rank\s+(\d{1,15})\s+(?:Group\s+(\d{1,15})\s+)?Pid\s+\d{1,15} on\s+(\S+)"
    r" device\s+\d{1,15} \[[^\]]*\]\s*(?P<name>.*?)\s*"
)
COLUMNS = re.compile(r"#\s+size\s+count\s+type\b.*")
STARTS_ROW = re.compile(r"\s*\d{1,15}\s+\d{1,15}\s+[a-z]\w*\s")
REDUCED = re.compile(r"Reducing maxBytes to (\d{1,15})")
WRONG = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,15}) (OK|FAILED)\s*")
MEAN = re.compile(r"#\s*Avg bus bandwidth\s*:\s*[-+.\deE]+.*")
LIBRARY = re.compile(r"NCCL version (\d{1,15}\.\d{1,15}\.\d{1,15})")
FIGURE = re.compile(r"\d+(?:\.\d*)?(?:e[-+]?\d+)?")
MOST_SIZES = 10_000  # a header with more means a damaged file


def _read_text(text: str, name: str, options: Options) -> Source:
    lines = lines_of(text)
    head_line, head = _head(lines, name)
    num_wrong = _summary(lines, name)
    devices = [
        Device(int(m[1]), int(m[2] or 0), m[3], m["name"]) for line in lines if (m := DEVICE.fullmatch(line.rstrip()))
    ]
    devices = _device_of_each_rank(devices, int(head["threads"]), int(head["gpus"]), name, head_line, has_all=True)
    program = _program("\n".join(line for line in lines if "NCCL INFO" not in line), name, head_line)
    shape = _shape_of_devices(devices, name, options, head_line)
    is_blocking = any(line.startswith("# Blocking Enabled") for line in lines)
    run = Run(name, *program, *shape, is_blocking, int(head["iters"]), int(head["warmup"]))
    rows = _rows(lines, run, head_line)
    reduced = [int(m[1]) for line in lines if (m := REDUCED.search(line))]
    _check_num_rows(len(rows), head, min([int(head["most"]), *reduced]), name, len(lines))
    is_unchecked = any(row.printed[f"{row.printed['placement']}_num_wrong"] is None for row in rows)
    notes = ["some results were not checked (N/A)"] if is_unchecked else []
    readings = [reading for reading in rows if reading.parameters["message_bytes"]]
    if len(readings) < len(rows):
        notes.append(f"{plural(len(rows) - len(readings), 'row')} of 0 bytes excluded")
    if num_wrong and not any(reading.failure for reading in readings):
        failure = f"the run ends with {num_wrong} values out of bounds in unknown rows"
        readings = [replace(reading, failure=failure) for reading in readings]
    library = next((m[1] for line in lines if (m := LIBRARY.search(line))), None)
    statistic = BLOCKING if is_blocking else PIPELINED
    return Source(statistic, "nccl", "cuda", tuple(readings), tuple(notes), _environment(devices, library))


def _head(lines: list[str], name: str) -> tuple[int, re.Match]:
    found = [(number, m) for number, line in enumerate(lines, start=1) if (m := HEAD.fullmatch(line.rstrip()))]
    if not found:
        for number, line in enumerate(lines, start=1):
            if (inside := HEAD.search(line)) and line[: inside.start()].strip():
                text = f"the line begins with {quoted(line[: inside.start()])}, as not all lines do"
                raise refusal(name, number, text, "nccl-tests' own output. Remove what was put before each line")
        missing = "no line '# nThread ... minBytes ... maxBytes ... iters: ...'"
        raise refusal(name, len(lines), missing, "this line above the table")
    if len(found) > 1:
        raise refusal(name, found[1][0], "a second run", "one run per file")
    return found[0]


def _summary(lines: list[str], name: str) -> int:
    """Return how many values were out of bounds. Raises UserError for a run without its last lines."""
    wrong = [int(m[1]) for line in lines if (m := WRONG.fullmatch(line.rstrip()))]
    if len(wrong) != 1 or not any(MEAN.fullmatch(line.rstrip()) for line in lines):
        found = "the run is incomplete: the last lines are missing"
        raise refusal(name, len(lines), found, "'# Out of bounds values : ...' and '# Avg bus bandwidth : ...'")
    return wrong[0]


def _rows(lines: list[str], run: Run, head_line: int) -> list[Reading]:
    columns: list[str] | None = None
    rows = []
    for number, line in enumerate(lines, start=1):
        if COLUMNS.fullmatch(line.rstrip()):
            columns = line.split()
            if "cputime" in columns:
                raise refusal(run.name, number, "CPU times (-C)", "times of the operation (run without -C)")
        elif number > head_line and STARTS_ROW.match(line):
            if columns is None:
                raise refusal(run.name, number, f"found {quoted(line)}", "the line of column names above it")
            rows.append(_row(line, number, columns, run))
    return rows


def _row(line: str, number: int, columns: list[str], run: Run) -> Reading:
    """Return one row. Its figures are counted from the right, since redop and root may be blank."""
    fields = line.split()
    if "timestamp" in columns:
        fields = fields[:-2]
    per_side = 8 if "i_min" in columns else 4
    between, figures = fields[3 : -2 * per_side], fields[-2 * per_side :]
    try:
        if len(fields) < 3 + 2 * per_side or len(between) > 2:
            raise ValueError
        halves = dict(zip(PLACEMENTS, (figures[:per_side], figures[per_side:]), strict=True))
        sides = {placement: _side(half, columns) for placement, half in halves.items()}
        single = [float(f) / 1e6 for f in halves[run.placement(halves)][4:]]
        times = dict(zip(("min_s", "max_s", "p99_s"), single, strict=False))
        size = int(fields[0])
    except ValueError:
        want = f"a row of {5 + 2 * per_side} columns. If NCCL output is mixed in, run again with NCCL_DEBUG_FILE"
        raise refusal(run.name, number, f"found {quoted(line, 160)}", want) from None
    redop = next((word for word in between if not re.fullmatch(r"-?\d+", word)), None)
    return _reading(run, number, size, fields[2], redop, sides, times_s=times)


def _side(figures: list[str], columns: list[str]) -> Side:
    """Return time, algbw, busbw and #wrong. Older versions print the largest error there, not a count."""
    if not all(FIGURE.fullmatch(figure) for figure in figures[:4] if figure != "N/A"):
        raise ValueError
    wrong = None if figures[3] == "N/A" else 0.0 if "error" in columns else float(figures[3])
    return Side(*map(float, figures[:3]), wrong, 0.06 if "e" in figures[0] else 0.0)


def _check_num_rows(num_rows: int, head: re.Match, most: int, name: str, last_line: int) -> None:
    """Refuse a table without all rows that its head announces. most: the largest size, in bytes."""
    num, size, step, is_factor = 0, int(head["least"]), int(head["step"]), head["kind"] == "factor"
    while size <= most and num <= MOST_SIZES and size > 0 and step > is_factor:
        num, size = num + 1, size * step if is_factor else size + step
    if num_rows == 0 or num == 0 or num_rows % num:
        found = f"{num_rows} rows, but the header announces {num} sizes ({head['least']} to {most} bytes)"
        raise refusal(name, last_line, found, "a row for each size")


# JSON. A boolean may be the text "true" or "false", a missing number the text "nan".

TRUE = ("true", True)


def _read_json(file: dict, name: str, options: Options) -> Source:
    config = file["config"]
    operation, is_in_place = _program(file["args"][0].rsplit("/", 1)[-1] if file["args"] else "", name, None)
    listed = [Device(int(d["rank"]), int(d["group"]), d["hostname"], d["device_info"]) for d in config["devices"]]
    threads, gpus = int(config["nthreads"]), int(config["ngpus"])
    devices = _device_of_each_rank(listed, threads, gpus, name, None, has_all=False)
    shape = _shape_of_devices(devices, name, options, None)
    is_blocking = config["blocking_collectives"] in TRUE
    run = Run(name, operation, is_in_place, *shape, is_blocking, int(config["iterations"]), int(config["warmup_iters"]))
    readings = [_result(row, f"results[{i}]", run) for i, row in enumerate(file["results"]) if row["size"]]
    if not readings:
        raise refusal(name, None, "results is empty", "at least one result")
    if file["out_of_bounds"]["okay"] not in TRUE and not any(reading.failure for reading in readings):
        raise refusal(name, None, "out_of_bounds.okay is false", "nwrong for each wrong result")
    has_calls = any(reading.slowest_ns or reading.samples_ns for reading in readings)
    statistic = EVENTS if has_calls else BLOCKING if is_blocking else PIPELINED
    ranks = f"{len(listed)} x {threads} threads x {gpus} GPUs = {len(devices)} ranks"
    notes = (f"the file lists one device per process: {ranks}",) if len(devices) > len(listed) else ()
    code = int(file["nccl_version"])  # 22803 is 2.28.3, as nccl.h counts from 2.9 on
    library = f"{code // 10000}.{code // 100 % 100}.{code % 100}" if code >= 20900 else None
    environment, argv, start = _environment(devices, library), tuple(file["args"]), file.get("start_time")
    return Source(statistic, "nccl", "cuda", tuple(readings), notes, environment, argv, start)


def _result(row: dict, place: str, run: Run) -> Reading:
    sides = {}
    for key in (key for key in PLACEMENTS if row.get(key) is not None):
        side = row[key]
        if "time" not in side or "cpu_time" in side:
            found = f"{place}.{key} has no 'time'"
            raise refusal(run.name, None, found, "the time of the operation (run without -C)")
        num_wrong = None if side["nwrong"] in (None, "nan") else float(side["nwrong"])
        sides[key] = Side(float(side["time"]), float(side["alg_bw"]), float(side["bus_bw"]), num_wrong)
    if not sides:
        raise refusal(run.name, None, f"{place} has no time", "out_of_place or in_place with a time")
    key = f"{run.placement(sides)}_per_iter"
    samples = _samples(row[key], f"{place}.{key}", run) if row.get(key) is not None else {}
    if samples:
        run = replace(run, num_iterations=len(samples.get("slowest_ns") or samples["samples_ns"][0]))
    redop = row["redop"] if isinstance(row["redop"], str) else None
    return _reading(run, None, int(row["size"]), row["type"], redop, sides, **samples)


def _samples(calls: dict, place: str, run: Run) -> dict:
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


def _calls_ns(values: list, place: str, skipped: int, run: Run) -> list[int]:
    times = times_ns(values, run.name, place, per_second=10**6)[skipped:]
    if not times:
        raise refusal(run.name, None, f"{place} has {len(values)} times", f"at least {skipped + 1} times")
    return times


NCCL_TEXT = Format(
    "nccl-tests-text",
    "an nccl-tests table",
    lambda text: "out-of-place" in text or re.search(r"^#\s*nThread \d+ nGpus ", text, re.MULTILINE) is not None,
    _read_text,
)
NCCL_JSON = Format(
    "nccl-tests-json",
    "JSON of nccl-tests",
    lambda value: isinstance(value, dict) and {"nccl_version", "config"} <= value.keys(),
    _read_json,
    is_json=True,
)
