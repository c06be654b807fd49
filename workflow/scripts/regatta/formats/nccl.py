"""Read nccl-tests tables (12, 13 and 21 columns); import only. JSON: nccl_json.py.

A row is bytes, count, type, redop and root (either may be blank), then time, algbw, busbw and #wrong out of place and
in place, with -I also smallest, largest, p99 and variation of single calls. The header announces the sizes and the last
lines are a summary, so a truncated run is rejected. An excerpt without a header is read if the user states its shape.

Source of the forms: NVIDIA/nccl-tests, src/common.cu and src/util.cu.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from regatta.core.text import one_line, plural
from regatta.formats.base import (
    Format,
    ImportedFile,
    Options,
    Reading,
    collective_parameters,
    lines_of,
    refusal,
    stated_shape,
    without_empty,
)
from regatta.formats.text_tables import (
    AGAIN,
    WHOLE,
    ColumnLayout,
    LineMatches,
    RowOfTable,
    TableLayout,
    TableRun,
    find_lines,
    join_runs,
    parts_of,
    read_rows,
    starts_of_runs,
)
from regatta.run.preflight_verdict import parse_nccl_log
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
GRAPHS, AGGREGATED = "; calls replayed in CUDA graphs", "; each several calls in one group"
EVENTS = "single calls timed by device events, slowest process; issued back to back, not blocking"
PLACEMENTS = {"out_of_place": "", "in_place": AGAIN}  # and how the names of their columns end
SUMS = ("none", "sum")  # redop of the operations of Regatta's benchmark
UNCHECKED = (None, "nan", "N/A", "n/a", -1)  # number of wrong results of a run that did not check them
MOST_GPUS = 4096  # limit per process; a larger number means a damaged file


@dataclass(frozen=True)
class Device:
    """The GPU of a rank. name: None if the file does not list it."""

    rank: int
    group: int
    host: str
    name: str | None


@dataclass(frozen=True)
class NcclRun:
    """Facts on all rows of a file. is_blocking: calls were waited for one by one (-z)."""

    name: str
    operation: str
    is_in_place: bool
    nodes: int
    gpus_per_node: int
    is_blocking: bool
    num_iterations: int | None
    num_warmup: int | None

    def placement(self, sides: Collection[str]) -> str:
        """Return the placement whose time counts: that of Regatta's benchmark, or the only one."""
        wanted = "in_place" if self.is_in_place else "out_of_place"
        return wanted if wanted in sides else next(iter(sides))


def find_program(text: str, name: str, options: Options, line: int | None) -> tuple[str, bool]:
    """Return (operation, whether in place) of the program that the text names, else of --operation."""
    found = sorted({match[1] for match in PROGRAM.finditer(text)})
    requested = [program for program, (operation, _) in PROGRAMS.items() if operation == options.operation]
    [program, *others] = found or requested or [""]
    if program in PROGRAMS and not others:
        if requested not in ([], [program]):
            contradiction = f"the file is from {program}_perf, but --operation is {options.operation}"
            raise refusal(name, line, contradiction, "the same operation, or no --operation")
        return PROGRAMS[program]
    known = ", ".join(f"{program}_perf" for program in PROGRAMS)
    want = f"one of {known}. Old versions do not print it: add --operation"
    raise refusal(name, line, f"found the programs {', '.join(found)}" if found else "no program name", want)


def device_of_each_rank(
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


def shape_of_devices(devices: list[Device], name: str, options: Options, line: int | None) -> tuple[int, int]:
    """Return (nodes, GPUs per node), from the hosts that the file lists."""
    if not devices:
        return stated_shape(options, name, line)
    if len({device.group for device in devices}) > 1:
        raise refusal(name, line, "ranks are split into groups (NCCL_TESTS_SPLIT)", "one group of all ranks")
    ranks = sorted(device.rank for device in devices)
    if ranks != list(range(len(ranks))):
        raise refusal(name, line, f"ranks {ranks[0]} to {ranks[-1]} with gaps or duplicates", "each rank once")
    by_host = Counter(device.host for device in devices)
    per_host, *others = sorted(set(by_host.values()))
    if others:
        raise refusal(name, line, f"hosts with {[per_host, *others]} ranks", "the same number of ranks on each host")
    for option, listed in (("gpus-per-node", per_host), ("nodes", len(by_host))):
        if (requested := getattr(options, option.replace("-", "_"))) not in (None, listed):
            found = f"{plural(len(by_host), 'host')} with {per_host} ranks each, but --{option} is {requested}"
            raise refusal(name, line, found, f"{listed}, or no --{option}")
    return len(by_host), per_host


def version_of(code: int) -> str | None:
    """Return the version of NCCL_VERSION_CODE: 22803 is 2.28.3, as nccl.h counts from 2.9 on."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}" if code >= 20900 else None


def environment_of(devices: list[Device], nccl: str | None) -> dict:
    hosts: dict[str, list[int]] = {}
    for device in sorted(devices, key=lambda device: device.rank):
        hosts.setdefault(device.host, []).append(device.rank)
    gpus = [{"rank": device.rank, "host": device.host, "name": device.name} for device in devices if device.name]
    return {"nccl": nccl, "hosts": [{"host": host, "ranks": ranks} for host, ranks in hosts.items()], "gpus": gpus}


def reading_of(run: NcclRun, line: int | None, row: dict, times_s: dict | None = None, **calls) -> Reading:
    """Return one row. row: size, type, redop, and of each placement time (µs), algbw, busbw (GB/s) and wrong.

    times_s, calls: what -I reports about single calls, as fields of a reading.
    """
    sides = [placement for placement, again in PLACEMENTS.items() if f"time{again}" in row]
    placement, size, redop, num_wrong = run.placement(sides), int(row["size"]), row.get("redop"), 0
    printed = {"placement": placement}
    for side in sides:
        time_us, algbw, busbw = figures = [float(row[name + PLACEMENTS[side]]) for name in FIGURES]
        _check_figures(run, size, *figures, line)
        wrong = row.get(f"wrong{PLACEMENTS[side]}", 0)
        wrong = None if wrong in UNCHECKED else float(wrong)
        num_wrong += wrong or 0
        printed |= {f"{side}_time_us": time_us, f"{side}_algbw_gb_per_s": algbw}
        printed |= {f"{side}_busbw_gb_per_s": busbw, f"{side}_num_wrong": wrong}
    operation = f"{run.operation}_{redop}" if isinstance(redop, str) and redop not in SUMS else run.operation
    mean_us = printed[f"{placement}_time_us"]
    return Reading(
        line,
        "collective",
        collective_parameters(operation, size, DTYPES.get(row["type"], row["type"])),
        *(run.nodes, run.gpus_per_node),
        {("mean_s" if run.is_blocking else "window_step_s"): mean_us / 1e6} | (times_s or {}),
        printed,
        num_warmup=run.num_warmup,
        failure=f"{num_wrong:g} wrong values in the result (nccl-tests, #wrong)" if num_wrong else None,
        **{"num_iterations": run.num_iterations} | calls,
    )


def _check_figures(run: NcclRun, size: int, time_us: float, algbw: float, busbw: float, line: int | None) -> None:
    """Refuse a row with contradictory time and bandwidths: a shifted column, or ranks that are not listed."""
    factor = BUS_FACTOR.get(run.operation)
    if factor is None or not size:  # a row of 0 bytes has nothing to check
        return
    expected = size / time_us / 1000 if time_us else float("inf")
    rounding = 0.006 if algbw < 1e6 else algbw / 2  # larger ones have one digit: 1e+06
    if abs(expected - algbw) > rounding + (0.01 if time_us < 1e6 else 0.07) * expected:  # 1.2e+06 has two digits
        found = f"{size} bytes in {time_us:g} us with algbw {algbw:g} GB/s"
        raise refusal(run.name, line, found, f"algbw {expected:.2f}, bytes / time")
    num_ranks = run.nodes * run.gpus_per_node
    expected = algbw * factor(num_ranks)
    if abs(expected - busbw) > 0.02 + 0.01 * expected:
        found = f"algbw {algbw:g} and busbw {busbw:g} GB/s with {num_ranks} ranks"
        raise refusal(run.name, line, found, f"busbw {expected:.2f} of {run.operation}")


# The tables, with log lines of NCCL between the rows.

# Whole lines, by what they are.
FORMS = {
    "head": r"#\s*nThread (?P<threads>\d{1,15}) nGpus (?P<gpus>\d{1,15}) minBytes (?P<least>\d{1,15})"
    r" maxBytes (?P<most>\d{1,15}) step: (?P<step>\d{1,15})\((?P<kind>factor|bytes)\)"
    r" warmup iters: (?P<warmup>\d{1,15}) iters: (?P<iters>\d{1,15})\b"
    r"(?: agg iters: (?P<aggregated>\d{1,9}))?(?:.*? graph: (?P<graph>\d{1,9}))?.*",
    "device": r"#\s+Rank\s+(?P<rank>\d{1,15})\s+(?:Group\s+(?P<group>\d{1,15})\s+)?Pid\s+\d{1,15} on\s+(?P<host>\S+)"
    r" device\s+\d{1,15} \[[^\]]*\]\s*(?P<name>.*?)\s*",
    "columns": r"#\s+size\s+count\s+type\b.*",
    "row": r"\s*\d{1,15}\s+\d{1,15}\s+[a-z]\w*\s.*",
    "blocking": "# Blocking Enabled.*",
    "reduced": r".*?Reducing maxBytes to (\d{1,15}).*",
    "library": r".*?(?:[NR]CCL version\s*:?\s*(\d{1,15}\.\d{1,15}\.\d{1,15})|\b[nr]ccl-library=(\d{5,6})\b).*",
    "wrong": r"#\s*Out of bounds values\s*:\s*(\d{1,15}) (OK|FAILED)",
    "mean": r"#\s*Avg bus bandwidth\s*:\s*[-+.\deE]+.*",
    "started": r"# Collective test starting: \w+.*",
    "ended": r"# Collective test concluded: \w+",
}
RECOGNIZED = re.compile(r"^#\s*(?:nThread \d+ nGpus |size +count +type )", re.MULTILINE)
MOST_SIZES = 10_000  # a header with more means a damaged file
FIGURES = ("time", "algbw", "busbw")
FIGURE = r"\d+(?:\.\d*)?(?:e[-+]?\d+)?"
# A table has the columns from `time` on twice: for results out of place, and in place.
TABLE = TableLayout(
    "nccl-tests-text",
    "an nccl-tests table",
    title=FORMS["head"],
    head=FORMS["columns"],
    row=FORMS["row"],
    remedy=". If NCCL output is mixed in, run again with NCCL_DEBUG_FILE",
    doubles=False,
    columns={
        **dict.fromkeys(("size", "count"), ColumnLayout(form=WHOLE)),
        "type": ColumnLayout("text", form=r"[a-z]\w*"),
        "redop": ColumnLayout("text", form=r"[a-z]\w*", may_be_blank=True),
        "root": ColumnLayout("text", form=r"-?\d+", may_be_blank=True),
        **dict.fromkeys((*FIGURES, "cputime", "error", "i_cv%"), ColumnLayout(form=FIGURE)),
        "wrong": ColumnLayout("text", form=f"{FIGURE}|N/A"),
        **{f"i_{of_calls}": ColumnLayout(f"{of_calls}_s", "us", FIGURE) for of_calls in ("min", "max", "p99")},
        "timestamp": ColumnLayout("text", form=r"\S+\s+\S+"),
    },
)


def _read_text(text: str, name: str, options: Options) -> ImportedFile:
    lines = lines_of(text)
    found = find_lines(lines, FORMS)
    heads = [number for number, _ in found["head"] or found["columns"]]
    ends = sorted(number for name in ("row", "wrong", "mean", "ended") for number, _ in found[name])
    starts = starts_of_runs(heads, ends)
    # A program that was begun after the last table is an incomplete run.
    starts += [number - 1 for number, _ in found["started"] if heads and number > heads[-1]]
    has_table = any(number > starts[-1] for number, _ in found["columns"])
    if options.is_incomplete and len(starts) > 1 and not has_table:
        lines, starts = lines[: starts[-1]], starts[:-1]
    return join_runs([_read_run(part, name, options) for part in parts_of(lines, starts)], name)


def statistic_of(is_blocking: bool, graph: int, aggregated: int) -> str:
    """Return the description of times. graph: replays of a CUDA graph, 0 without; aggregated: calls in a group."""
    return (BLOCKING if is_blocking else PIPELINED) + GRAPHS * (graph > 0) + AGGREGATED * (aggregated > 1)


def _read_run(lines: list[str], name: str, options: Options) -> ImportedFile:
    """Read a table. Published tables are often excerpts without header, devices or summary: see docs/formats.md."""
    found = find_lines(lines, FORMS)
    head_line, head = _head(found, lines, name, options)
    is_excerpt = head is None
    num_wrong = _summary(found, len(lines), name, is_excerpt, options.is_incomplete)
    devices = [Device(int(m["rank"]), int(m["group"] or 0), m["host"], m["name"]) for _, m in found["device"]]
    if devices:
        per_process = (1, 1) if is_excerpt else (int(head["threads"]), int(head["gpus"]))
        devices = device_of_each_rank(devices, *per_process, name, head_line, has_all=True)
    named = [match[0] for _, match in found["started"]] or [line for line in lines if "NCCL INFO" not in line]
    program = find_program("\n".join(named), name, options, head_line)
    shape = shape_of_devices(devices, name, options, head_line)
    is_blocking = bool(found["blocking"])
    counts = (None, None) if is_excerpt else (int(head["iters"]), int(head["warmup"]))
    run = NcclRun(name, *program, *shape, is_blocking, *counts)
    _, table = read_rows(TABLE, TableRun(name, head_line - is_excerpt, head, {}, lines, options))
    rows = [_reading(run, row) for row in table]
    missing = "no header: completeness not checked" if is_excerpt else _missing_rows(len(rows), head, found["reduced"])
    if missing and not (is_excerpt or options.is_incomplete):
        raise refusal(name, len(lines), missing, "a row for each size")
    is_unchecked = any(row.printed[f"{row.printed['placement']}_num_wrong"] is None for row in rows)
    readings, empty = without_empty(rows, name, head_line)
    notes = (*["some results were not checked (N/A)"] * is_unchecked, *[missing] * bool(missing), *empty)
    if num_wrong and not any(reading.failure for reading in readings):
        failure = f"the run ends with {num_wrong} values out of bounds in unknown rows"
        readings = tuple(replace(reading, failure=failure) for reading in readings)
    library = next((m[1] or version_of(int(m[2])) for _, m in found["library"]), None)
    graph, aggregated = (0, 1) if is_excerpt else (int(head[name] or 0) for name in ("graph", "aggregated"))
    log = parse_nccl_log("\n".join(lines))
    settings = {"NCCL network": log.network, "NCCL plugin": log.plugin, "libfabric provider": log.provider}
    environment = environment_of(devices, library)
    environment["settings"] = {key: one_line(value) for key, value in settings.items() if value}
    statistic = statistic_of(is_blocking, graph, aggregated)
    return ImportedFile(statistic, "nccl", "cuda", readings, notes, environment)


def _head(found: dict[str, LineMatches], lines: list[str], name: str, options: Options) -> tuple[int, re.Match | None]:
    """Return the line of the header, and the header. Without one: the line of column names, if the shape is stated."""
    if found["head"]:
        return found["head"][0]
    if options.nodes and options.gpus_per_node and found["columns"]:
        return found["columns"][0][0], None
    missing = "no line '# nThread ... minBytes ... maxBytes ... iters: ...'"
    want = "this line above the table, or the line '# size count type ...' with --nodes and --gpus-per-node"
    raise refusal(name, len(lines), missing, want)


def _summary(found: dict[str, LineMatches], num_lines: int, name: str, is_excerpt: bool, is_incomplete: bool) -> int:
    """Return how many values were out of bounds. Raises UserError for a run without its last lines."""
    wrong = [int(match[1]) for _, match in found["wrong"]]
    if (is_excerpt or is_incomplete) and not wrong:
        return 0
    if len(wrong) != 1 or not (is_incomplete or found["mean"]):
        cut = "the run is incomplete: the last lines are missing"
        raise refusal(name, num_lines, cut, "'# Out of bounds values : ...' and '# Avg bus bandwidth : ...'")
    return wrong[0]


def _reading(run: NcclRun, row: RowOfTable) -> Reading:
    if not all(f"{name}{again}" in row.columns for name in FIGURES for again in PLACEMENTS.values()):
        found = "CPU times (-C)" if "cputime" in row.columns else f"the columns {', '.join(row.columns)}"
        raise refusal(run.name, row.line, found, "times of the operation, out of place and in place (run without -C)")
    again = PLACEMENTS[run.placement(PLACEMENTS)]
    single_s = {
        column.meaning: row.numbers[name][1]
        for name, column in row.columns.items()
        if column.meaning.endswith("_s") and name.endswith(AGAIN) == bool(again)
    }
    printed = {name: number for name, (number, _) in row.numbers.items()}
    return reading_of(run, row.line, row.texts | printed, single_s)


def _missing_rows(num_rows: int, head: re.Match, reduced: LineMatches) -> str:
    """Return how many rows a table has if it lacks some that its head announces. reduced: the largest size since."""
    most = min([int(head["most"]), *(int(match[1]) for _, match in reduced)])
    num, size, step, is_factor = 0, int(head["least"]), int(head["step"]), head["kind"] == "factor"
    while size <= most and num <= MOST_SIZES and size > 0 and step > is_factor:
        num, size = num + 1, size * step if is_factor else size + step
    if num_rows and num and num_rows % num == 0:
        return ""
    return f"{num_rows} rows, but the header announces {num} sizes ({head['least']} to {most} bytes)"


NCCL_TEXT = Format(
    TABLE.name,
    TABLE.contents,
    lambda text: "out-of-place" in text or RECOGNIZED.search(text) is not None,
    _read_text,
    begins=r"#\s*nThread \d{1,15} nGpus |#\s{1,99}size\s{1,99}count\s{1,99}type\b",
)
