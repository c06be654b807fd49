"""Tables that nccl-tests print: 12, 13 and 21 columns (-I), with NCCL's own lines between the rows. Read only.

A row is bytes, count, type, redop and root (either may be blank), then time, algbw, busbw and #wrong out of place and in
place, with -I also smallest, largest, p99 and variation of single calls. The head says which sizes follow and the last
lines are a summary, so that a run that was cut off is seen.
"""

import re
from dataclasses import replace

from regatta.formats.base import Options, Reading, Source, quoted, refusal
from regatta.formats.nccl_rows import (  # fmt: skip
    BLOCKING,
    PIPELINED,
    Device,
    Run,
    Side,
    device_of_each_rank,
    environment_of,
    program_of,
    reading_of,
    shape_of_devices,
)

FORMAT = "nccl-tests-text"
HEAD = re.compile(
    r"#\s*nThread (?P<threads>\d{1,15}) nGpus (?P<gpus>\d{1,15}) minBytes (?P<least>\d{1,15}) maxBytes (?P<most>\d{1,15})"
    r" step: (?P<step>\d{1,15})\((?P<kind>factor|bytes)\) warmup iters: (?P<warmup>\d{1,15}) iters: (?P<iters>\d{1,15})\b.*"
)
DEVICE = re.compile(
    r"#\s+Rank\s+(\d{1,15})\s+(?:Group\s+(\d{1,15})\s+)?Pid\s+\d{1,15} on\s+(\S+) device\s+\d{1,15} \[[^\]]*\]\s*(?P<name>.*?)\s*"
)
COLUMNS = re.compile(r"#\s+size\s+count\s+type\b.*")
STARTS_ROW = re.compile(r"\s*\d{1,15}\s+\d{1,15}\s+[a-z]\w*\s")
REDUCED = re.compile(r"Reducing maxBytes to (\d{1,15})")
WRONG = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,15}) (OK|FAILED)\s*")
MEAN = re.compile(r"#\s*Avg bus bandwidth\s*:\s*[-+.\deE]+.*")
LIBRARY = re.compile(r"NCCL version (\d{1,15}\.\d{1,15}\.\d{1,15})")
MOST_SIZES = 10_000  # a head that asks for more is damaged


def is_nccl_text(text: str) -> bool:
    return re.search(r"^#\s*nThread \d+ nGpus ", text, re.MULTILINE) is not None or "out-of-place" in text


def read_nccl_text(lines: list[str], name: str, options: Options) -> Source:
    head_line, head = _head(lines, name)
    wrong = _summary(lines, name)
    devices = [
        Device(int(m[1]), int(m[2] or 0), m[3], m["name"]) for line in lines if (m := DEVICE.fullmatch(line.rstrip()))
    ]
    threads, gpus = int(head["threads"]), int(head["gpus"])
    devices = device_of_each_rank(devices, threads, gpus, name, head_line, has_all=True)
    operation, is_in_place = program_of("\n".join(line for line in lines if "NCCL INFO" not in line), name, head_line)
    nodes, gpus_per_node = shape_of_devices(devices, name, options, head_line)
    is_blocking = any(line.startswith("# Blocking Enabled") for line in lines)
    run = Run(name, operation, is_in_place, nodes, gpus_per_node, is_blocking, int(head["iters"]), int(head["warmup"]))
    rows, notes = _rows(lines, run, head_line)
    _check_sizes(rows, head, lines, run)
    readings = [reading for reading in rows if reading.parameters["message_bytes"]]
    if len(readings) < len(rows):
        notes.append(f"{len(rows) - len(readings)} rows of 0 bytes were left out")
    if wrong and not any(reading.failure for reading in readings):
        told = f"the run ends with {wrong} values out of bounds, and does not say in which rows"
        readings = [replace(reading, failure=told) for reading in readings]
    library = next((m[1] for line in lines if (m := LIBRARY.search(line))), None)
    statistic = BLOCKING if is_blocking else PIPELINED
    return Source(FORMAT, statistic, "nccl", "cuda", tuple(readings), tuple(notes), environment_of(devices, library))


def _head(lines: list[str], name: str) -> tuple[int, re.Match]:
    found = [(number, m) for number, line in enumerate(lines, start=1) if (m := HEAD.fullmatch(line.rstrip()))]
    if not found:
        raise refusal(
            name, len(lines), "no line '# nThread ... minBytes ... maxBytes ... iters: ...'", "one above the table"
        )
    if len(found) > 1:
        raise refusal(name, found[1][0], "a second run begins here", "one run; give each a file of its own")
    return found[0]


def _summary(lines: list[str], name: str) -> int:
    """Return how many values were out of bounds. A run without its last lines was cut off."""
    wrong = [int(m[1]) for line in lines if (m := WRONG.fullmatch(line.rstrip()))]
    if len(wrong) != 1 or not any(MEAN.fullmatch(line.rstrip()) for line in lines):
        told = "the run is incomplete: its last lines are missing"
        raise refusal(name, len(lines), told, "'# Out of bounds values : ...' and '# Avg bus bandwidth : ...'")
    return wrong[0]


def _rows(lines: list[str], run: Run, head_line: int) -> tuple[list[Reading], list[str]]:
    columns: list[str] | None = None
    rows, is_checked = [], True
    for number, line in enumerate(lines, start=1):
        if COLUMNS.fullmatch(line.rstrip()):
            columns = line.split()
            if "cputime" in columns:
                raise refusal(run.name, number, "times of the CPU (-C)", "times of the operation; run without -C")
        elif number > head_line and STARTS_ROW.match(line):
            if columns is None:
                raise refusal(run.name, number, f"found {quoted(line)}", "the line of column names above it")
            reading = _row(line, number, columns, run)
            is_checked &= reading.printed[f"{reading.printed['placement']}_num_wrong"] is not None
            rows.append(reading)
    return rows, [] if is_checked else ["results were not checked (N/A) in some rows"]


def _row(line: str, number: int, columns: list[str], run: Run) -> Reading:
    """Return one row. Its figures are counted from the right, since redop and root may be blank."""
    fields = line.split()
    if "timestamp" in columns:
        fields = fields[:-2]
    per_side = 8 if "i_min" in columns else 4
    between = fields[3 : -2 * per_side]
    if len(fields) < 3 + 2 * per_side or len(between) > 2:
        raise _no_row(run, number, line, 5 + 2 * per_side)
    redop = next((word for word in between if not re.fullmatch(r"-?\d+", word)), None)
    figures = fields[-2 * per_side :]
    try:
        size = int(fields[0])
        out_of_place = _side(figures[:4], columns)
        in_place = _side(figures[per_side : per_side + 4], columns)
        single = {p: [float(f) for f in figures[start + 4 : start + per_side]] for p, start in
                  (("out_of_place", 0), ("in_place", per_side))}  # fmt: skip
    except ValueError:
        raise _no_row(run, number, line, 5 + 2 * per_side) from None
    times = {}
    if per_side == 8:
        low, high, p99, _ = single["in_place" if run.is_in_place else "out_of_place"]
        times = {"min_s": low / 1e6, "max_s": high / 1e6, "p99_s": p99 / 1e6}
    sides = {"out_of_place": out_of_place, "in_place": in_place}
    if size == 0:  # nothing to check
        return reading_of(replace(run, operation="none"), number, size, fields[2], redop, sides, times_s=times)
    return reading_of(run, number, size, fields[2], redop, sides, times_s=times)


def _side(figures: list[str], columns: list[str]) -> Side:
    """Return time, algbw, busbw and #wrong. Older versions print the largest error there, which is no count."""
    time_us, algbw, busbw = (_figure(figure) for figure in figures[:3])
    wrong = None if figures[3] == "N/A" else _figure(figures[3])
    if "error" in columns and wrong is not None:
        wrong = 0.0
    return Side(time_us, algbw, busbw, wrong, 0.06 if "e" in figures[0] else 0.0)


def _figure(text: str) -> float:
    if not re.fullmatch(r"\d+(?:\.\d*)?(?:e[-+]?\d+)?", text):
        raise ValueError(text)
    return float(text)


def _no_row(run: Run, number: int, line: str, num_columns: int):
    want = f"a row of {num_columns} columns. If NCCL wrote into it, run again with NCCL_DEBUG_FILE"
    return refusal(run.name, number, f"found {quoted(line, 160)}", want)


def _check_sizes(rows: list[Reading], head: re.Match, lines: list[str], run: Run) -> None:
    """Refuse a table that has not the rows that its head announces."""
    reduced = [int(m[1]) for line in lines if (m := REDUCED.search(line))]
    size, most, step = int(head["least"]), min([int(head["most"]), *reduced]), int(head["step"])
    is_growing = step > (1 if head["kind"] == "factor" else 0) and size > 0
    num = 0
    while size <= most and num <= MOST_SIZES and is_growing:
        num, size = num + 1, size * step if head["kind"] == "factor" else size + step
    if not rows or num == 0 or len(rows) % num:
        told = f"{len(rows)} rows, and the head announces {num} sizes ({head['least']} to {most} bytes)"
        raise refusal(run.name, len(lines), told, "a row for each size")
