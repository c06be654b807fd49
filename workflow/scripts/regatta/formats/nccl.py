"""Read nccl-tests tables (12, 13 and 21 columns); import only. JSON: nccl_json.py.

A row is bytes, count, type, redop and root (either may be blank), then time, algbw, busbw and #wrong out of place and
in place, with -I also smallest, largest, p99 and variation of single calls. The header announces the sizes and the last
lines are a summary, so a truncated run is rejected. An excerpt without a header is read if the user states its shape.

Source of the forms: NVIDIA/nccl-tests, src/common.cu and src/util.cu.
"""

import re
from dataclasses import replace

from regatta.core.errors import UserError
from regatta.core.text import one_line, plural
from regatta.formats.base import Format, ImportedFile, Options, Reading, lines_of, refusal, without_empty
from regatta.formats.nccl_base import (
    FIGURES,
    PLACEMENTS,
    PROGRAM,
    Device,
    NcclRun,
    UncountedRunError,
    device_of_each_rank,
    environment_of,
    find_program,
    parameters_of_row,
    reading_of,
    refuse_repeats,
    shape_of_devices,
    version_of,
)
from regatta.formats.nccl_runs import (
    Crash,
    cause_of,
    crash_of,
    numbers,
    processes_note,
    refuse_copies,
    starts_of_nccl_runs,
)
from regatta.formats.nccl_settings import statistic_of
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
)
from regatta.run.preflight_verdict import parse_nccl_log

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
    "blocking": "# Blocking Enabled.*?(?:(?P<no_barrier>no barrier)|(?P<excluded>time excludes barrier)|)",
    "reduced": r".*?Reducing maxBytes to (\d{1,15}).*",
    "library": r".*?(?:[NR]CCL version\s*:?\s*(\d{1,15}\.\d{1,15}\.\d{1,15})|\b[nr]ccl-library=(\d{5,6})\b).*",
    "wrong": r"#\s*Out of bounds values\s*:\s*(\d{1,15}) (OK|FAILED)",
    "mean": r"#\s*Avg bus bandwidth\s*:\s*[-+.\deE]+.*",
    "version": r"# nccl-tests version .*",
    "started": r"# Collective test starting: (\w+).*",
    "named": rf".*{PROGRAM.pattern}.*",
    "ended": r"# Collective test concluded: \w+",
}
RECOGNIZED = re.compile(r"^#\s*(?:nThread \d+ nGpus |size +count +type )", re.MULTILINE)
MOST_SIZES = 10_000  # a header with more means a damaged file
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
        **dict.fromkeys((*FIGURES, "cputime", "i_cv%"), ColumnLayout(form=FIGURE)),
        **dict.fromkeys(("wrong", "error"), ColumnLayout("text", form=rf"{FIGURE}|N/A|-?nan|-?inf")),
        **{f"i_{of_calls}": ColumnLayout(f"{of_calls}_s", "us", FIGURE) for of_calls in ("min", "max", "p99")},
        "timestamp": ColumnLayout("text", form=r"\S+\s+\S+"),
    },
)


def _read_text(text: str, name: str, options: Options) -> ImportedFile:
    lines = lines_of(text)
    found = find_lines(lines, FORMS)
    starts = starts_of_nccl_runs(found, lines)
    refuse_copies(found, starts, name)
    has_table = any(number > starts[-1] for number in numbers(found, "columns"))
    if options.is_incomplete and len(starts) > 1 and not has_table and not cause_of(lines[starts[-1] :]):
        lines, starts = lines[: starts[-1]], starts[:-1]
    runs, notes, errors = [], [], []
    for number, part in enumerate(parts_of(lines, starts), start=1):
        try:
            runs.append(_read_run(part, name, options, number == len(starts)))
        except UncountedRunError as error:
            errors.append(error)
            notes.append(str(error))
    if not runs:
        raise errors[0]
    source = join_runs(runs, name)
    return replace(source, notes=(*source.notes, *notes))


def _read_run(lines: list[str], name: str, options: Options, is_last: bool) -> ImportedFile:
    """Read a table. Published tables are often excerpts without header, devices or summary: see docs/formats.md."""
    found = find_lines(lines, FORMS)
    head_line, head = _head(found, lines, name, options)
    is_excerpt = head is None
    sizes = _announced(head, found["reduced"])
    table_run = TableRun(name, head_line - is_excerpt, head, {}, lines, options)
    table, crash = _table(table_run, found, sizes, is_last)
    num_wrong = 0 if crash else _summary(found, len(lines), name, is_excerpt, options.is_incomplete)
    try:
        devices, run = _run(found, head, lines, name, options, head_line)
    except UserError as error:
        if crash is None or table:
            raise
        text = "a run is excluded, because it crashed before its operation and GPUs were known"
        raise UncountedRunError(f"{name}:{crash.line}: {text}: {crash.cause.text}") from error
    rows = [_reading(run, row) for row in table]
    missing = _missing_rows(len(rows), sizes, head)
    if missing and not (is_excerpt or crash or options.is_incomplete):
        raise refusal(name, len(lines), missing, "a row for each size")
    is_unchecked = any(row.printed[f"{row.printed['placement']}_num_wrong"] is None for row in rows)
    readings, empty = without_empty(rows, name, head_line) if rows or not crash else ((), [])
    refuse_repeats(readings, name)
    notes = [*["some results were not checked (N/A)"] * is_unchecked, *[missing] * bool(missing and not crash), *empty]
    notes += processes_note(run.nodes * run.gpus_per_node)
    if num_wrong and not any(reading.failure for reading in readings):
        failure = f"the run ends with {num_wrong} values out of bounds in unknown rows"
        readings = tuple(replace(reading, failure=failure) for reading in readings)
    if crash:
        failed, *more = _failed(run, crash, table, sizes)
        readings, notes = (*readings, failed), [*notes, *more]
    library = next((m[1] or version_of(int(m[2])) for _, m in found["library"]), None)
    log = parse_nccl_log("\n".join(lines))
    settings = {"NCCL network": log.network, "NCCL plugin": log.plugin, "libfabric provider": log.provider}
    environment = environment_of(devices, library)
    environment["settings"] = {key: one_line(value) for key, value in settings.items() if value}
    return ImportedFile(_statistic(found, head, lines), "nccl", "cuda", readings, tuple(notes), environment)


def _table(
    run: TableRun, found: dict[str, LineMatches], sizes: list[int], is_last: bool
) -> tuple[list[RowOfTable], Crash | None]:
    """Return the complete rows, and how the run crashed, if it did: it has the first of its rows, and no last lines."""
    if (found["wrong"] and found["mean"]) or not sizes:
        return read_rows(TABLE, run)[1], None
    begun, lines = numbers(found, "row"), run.lines
    try:
        rows = read_rows(TABLE, run)[1] if begun else []
    except UserError:  # the last row may be in progress
        lines = [*lines[: begun[-1] - 1], "", *lines[begun[-1] :]]
        rows = read_rows(TABLE, replace(run, lines=lines))[1] if begun[1:] else []
    after = rows[-1].line if rows else max(numbers(found, "head", "device", "columns"))
    place = {size: index for index, size in enumerate(sizes)}
    is_start = all(place.get(row.numbers["size"][0], n % len(sizes)) == n % len(sizes) for n, row in enumerate(rows))
    has_all = bool(rows) and len(rows) % len(sizes) == 0
    crash = crash_of(run.lines, after, is_last) if is_start and not has_all else None
    return (rows, crash) if crash else (read_rows(TABLE, run)[1], None)


def _run(
    found: dict[str, LineMatches], head: re.Match | None, lines: list[str], name: str, options: Options, line: int
) -> tuple[list[Device], NcclRun]:
    devices = [Device(int(m["rank"]), int(m["group"] or 0), m["host"], m["name"]) for _, m in found["device"]]
    if devices:
        per_process = (int(head["threads"]), int(head["gpus"])) if head else (1, 1)
        devices = device_of_each_rank(devices, *per_process, name, line, has_all=True)
    named = [match[0] for _, match in found["started"]] or [line for line in lines if "NCCL INFO" not in line]
    program = find_program("\n".join(named), name, options, line)
    shape = shape_of_devices(devices, name, options, line)
    counts = (int(head["iters"]), int(head["warmup"])) if head else (None, None)
    return devices, NcclRun(name, *program, *shape, bool(found["blocking"]), *counts)


def _failed(run: NcclRun, crash: Crash, table: list[RowOfTable], sizes: list[int]) -> tuple[Reading, str, str]:
    """Return the cell that a run was measuring when it crashed, and notes."""
    place = len(table) % len(sizes)
    row = table[-1].texts if place else {}
    row = {"type": row.get("type"), "redop": row.get("redop"), "root": row.get("root")} | crash.row
    notes = [] if row["type"] else ["data type of the crashed run not printed; assumed: float, the default"]
    size = int(row.get("size") or sizes[place])
    parameters = parameters_of_row(run, size, row | {"type": row["type"] or "float"})
    reading = Reading(crash.line, "collective", parameters, run.nodes, run.gpus_per_node, crash=crash.cause)
    rest = f"; {plural(num, 'larger size')} not measured" if (num := len(sizes) - place - 1) else ""
    return reading, f"{parameters['operation']} crashed at {size:,} bytes: {crash.cause.text}{rest}", *notes


def _statistic(found: dict[str, LineMatches], head: re.Match | None, lines: list[str]) -> str:
    blocks = [2 if match["no_barrier"] else 3 if match["excluded"] else 1 for _, match in found["blocking"]]
    commands = [lines[number - 1] for number, _ in found["named"] if "NCCL INFO" not in lines[number - 1]]
    words = " ".join(command[PROGRAM.search(command).end() :] for command in commands).split()
    blocking, counts, processes = (blocks or [0])[0], {}, (1, 1)
    if head:
        given = {"graph": head["graph"], "aggregated": head["aggregated"], "iterations": head["iters"]}
        counts = {name: int(text) for name, text in (given | {"warmup": head["warmup"]}).items() if text}
        processes = int(head["threads"]), int(head["gpus"])
    return statistic_of(blocking, counts, processes, words)


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
    errors = [row.texts[name] for name in ("error", f"error{AGAIN}") if name in row.texts]
    unchecked = {f"wrong{again}": "N/A" for again in PLACEMENTS.values()} if "N/A" in errors else {}
    return reading_of(run, row.line, row.texts | unchecked, single_s)


def _announced(head: re.Match | None, reduced: LineMatches) -> list[int]:
    """Return the sizes that a header announces. reduced: the largest size since."""
    if head is None:
        return []
    most = min([int(head["most"]), *(int(match[1]) for _, match in reduced)])
    sizes, size, step, is_factor = [], int(head["least"]), int(head["step"]), head["kind"] == "factor"
    while size <= most and len(sizes) <= MOST_SIZES and size > 0 and step > is_factor:
        sizes.append(size)
        size = size * step if is_factor else size + step
    return sizes


def _missing_rows(num_rows: int, sizes: list[int], head: re.Match | None) -> str:
    """Return how many rows a table has if it lacks some that its head announces."""
    if head is None:
        return "no header: completeness not checked"
    if num_rows and sizes and num_rows % len(sizes) == 0:
        return ""
    span = f"{head['least']} to {sizes[-1] if sizes else head['most']} bytes"
    return f"{num_rows} rows, but the header announces {len(sizes)} sizes ({span})"


NCCL_TEXT = Format(
    TABLE.name,
    TABLE.contents,
    lambda text: "out-of-place" in text or RECOGNIZED.search(text) is not None,
    _read_text,
    begins=r"#\s*nThread \d{1,15} nGpus |#\s{1,99}size\s{1,99}count\s{1,99}type\b",
)
