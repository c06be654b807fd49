"""Tables of the OSU micro-benchmarks: point-to-point, one-sided, multi-pair and collective tests. Read only.

A table states neither the number of ranks nor that it is complete: the user gives the shape, and a table that was cut
off between two rows cannot be detected. A missing row can: sizes double from row to row.
"""

import re
from dataclasses import dataclass

from regatta.core.errors import UserError
from regatta.formats.base import Format, Options, Reading, Source, collective_parameters, lines_of, quoted, refusal
from regatta.formats.runs import join_runs, parts_of

TITLE = re.compile(
    r"# OSU (?P<library>MPI|NCCL|RCCL)(?:_(?P<call>\w+))?(?P<device>-\w+)? (?P<test>.+?) Test(?: Test)?(?: v[\w.]+)?\s*"
)
# Test -> operation, and the factor from its size to Regatta's message size: `n` where it is one rank's part.
COLLECTIVES = {
    "allreduce": ("all_reduce", "1"),
    "allgather": ("all_gather", "n"),
    "all-to-all personalized exchange": ("all_to_all", "n"),
    "reduce_scatter": ("reduce_scatter", "1"),
    "broadcast": ("broadcast", "1"),
    "reduce": ("reduce", "1"),
    "barrier": ("barrier", "1"),
}
# Regatta has no benchmark like the following, so they keep their names and sizes.
NON_BLOCKING = {
    **{name: f"osu_i{name}" for name in ("allreduce", "allgather", "reduce_scatter", "reduce", "barrier")},
    **{name: f"osu_i{name}" for name in ("gather", "scatter")},
    "broadcast": "osu_ibcast",
    "all-to-all": "osu_ialltoall",
}
PAIRS = {"latency": "osu_latency", "bandwidth": "osu_bw", "bi-directional bandwidth": "osu_bibw"}
CALLS = {"put": "put", "get": "get", "accumulate": "acc", "get_accumulate": "get_acc"}
CALLS |= {"fetch_and_op": "fop", "compare_and_swap": "cas"}
MULTI_LATENCY, MESSAGE_RATE = "osu_multi_lat", "osu_mbw_mr"
MULTI_PAIR = {"multi latency": MULTI_LATENCY, "multiple bandwidth / message rate": MESSAGE_RATE}
SETTING = re.compile(r"# (?:Window creation|Synchronization): MPI_Win_(\S+)\s*")  # of one-sided tests
NUM_PAIRS = re.compile(r"# \[ pairs: (\d{1,7}) \].*")
COLUMN = re.compile(
    r"\s*(Size|Avg Latency|Min Latency|Max Latency|Latency|P\d\d Tail Lat|Bandwidth|MB/s|Messages/s|Overall|Compute"
    r"|Coll\. Init|MPI_Test|MPI_Wait|Pure Comm\.|Overlap|Iterations|Validation)(?:\s*\((?:us|MB/s|%)\))?(?=\s|$)"
)
HEAD = re.compile(r"\s*#?\s*(?:Size|Avg Latency|Latency|Bandwidth|Overall)\b[^=]*")
DECIMALS, WHOLE, CHECKED = r"\d{1,15}\.\d\d", r"\d{1,15}", r"Pass|Fail|-"
LATENCIES = {f"P{p} Tail Lat": f"p{p}_s" for p in (50, 75, 90, 95, 99)}
LATENCIES |= dict.fromkeys(("Latency", "Avg Latency", "Pure Comm."), "mean_s")
DTYPES = {"MPI_FLOAT": "fp32", "MPI_CHAR": "char", "MPI_INT": "int32"}
MEAN = "mean over iterations, averaged over ranks; no range"
STREAM = "message bytes / bandwidth of back-to-back messages, not the time of a single message; no range"
ALONE = "mean of a non-blocking call without computation (Pure Comm.), averaged over ranks; no range"
OVERLAP = "overall time, compute time and overlap of non-blocking calls are only in the records (imported.printed)"


@dataclass(frozen=True)
class Test:
    """A test. ranks: "all", "two", or "pairs" if the table has their number. factor: see COLLECTIVES."""

    operation: str
    ranks: str
    statistic: str
    factor: str = "1"


def _read(text: str, name: str, options: Options) -> Source:
    lines = lines_of(text)
    starts = [index for index, line in enumerate(lines) if TITLE.fullmatch(line.strip())]
    if not starts:
        raise refusal(name, 1, "no complete title", "'# OSU MPI <name> Test v<version>'")
    return join_runs([_read_table(part, name, options) for part in parts_of(lines, starts)], name)


def _read_table(lines: list[str], name: str, options: Options) -> Source:
    start, title = next((n, m) for n, line in enumerate(lines, start=1) if (m := TITLE.fullmatch(line.strip())))
    test = _test(title, lines)
    if test is None:
        found = f"unsupported test {quoted(title[0].strip())}"
        raise refusal(name, start, found, "a test that docs/formats.md lists under OSU")
    shape = _shape(test, lines, name, start, options)
    head, columns = _columns(lines, start, name)
    rows = _rows(lines, head, columns, name, options.is_incomplete)
    dtype = next((m[1] for line in lines if (m := re.match(r"# Datatype: (\w+)", line.strip()))), None)
    readings = [_reading(test, number, row, shape, DTYPES.get(dtype, dtype), name) for number, row in rows]
    kept = [reading for reading in readings if reading.parameters["message_bytes"] != 0]
    notes = ["excluded: the row of 0 bytes"] if len(kept) < len(readings) else []
    notes += [OVERLAP] if test.statistic == ALONE else []
    if not kept:
        raise refusal(name, head, "no row of 1 byte or more", "'<size> <figures>' in each row")
    is_device = bool(title["device"]) or title["library"] != "MPI" or any("on DEVICE (D)" in line for line in lines)
    backend = "mpi" if title["library"] == "MPI" else "nccl"
    return Source(test.statistic, backend, "cuda" if is_device else "cpu", tuple(kept), tuple(notes))


def _test(title: re.Match, lines: list[str]) -> Test | None:
    """Return the test that a title names. The operation of a one-sided test contains its window and synchronization."""
    words = title["test"].lower()
    statistic = STREAM if words.endswith(("bandwidth", "message rate")) else MEAN
    if title["call"]:
        call, kind = CALLS.get(title["call"].lower()), PAIRS.get(words)
        settings = [re.sub(r"\W+", "_", m[1]) for line in lines if (m := SETTING.fullmatch(line.strip()))]
        operation = "_".join([f"osu_{call}_{kind.removeprefix('osu_')}", *settings]) if call and kind else None
        return operation and Test(operation, "two", statistic)
    if words in PAIRS:
        return Test(PAIRS[words], "two", statistic)
    if words in MULTI_PAIR:
        return Test(MULTI_PAIR[words], "pairs" if MULTI_PAIR[words] == MESSAGE_RATE else "all", statistic)
    call = words.removesuffix(" latency")
    if call.removeprefix("non-blocking ") != call:
        operation = NON_BLOCKING.get(call.removeprefix("non-blocking "))
        return operation and Test(operation, "all", ALONE)
    return Test(COLLECTIVES[call][0], "all", MEAN, COLLECTIVES[call][1]) if call in COLLECTIVES else None


def _shape(test: Test, lines: list[str], name: str, line: int, options: Options) -> tuple[int, int]:
    needs_ranks = test.ranks == "all" and options.gpus_per_node is None
    if options.nodes is None or needs_ranks:
        missing = {
            "two": "whether the two ranks shared a node. Add --nodes 1 or --nodes 2",
            "pairs": "the number of nodes. Add --nodes",
            "all": "the number of ranks. Add --nodes and --gpus-per-node (ranks per node)",
        }
        raise UserError(f"{name}:{line}: the OSU table does not state {missing[test.ranks]}. Nothing was imported.")
    if test.ranks == "all":
        return options.nodes, options.gpus_per_node
    num_ranks = 2
    if test.ranks == "pairs":
        pairs = next((int(m[1]) for text in lines if (m := NUM_PAIRS.fullmatch(text.strip()))), 0)
        if not pairs:
            raise refusal(name, line, "no number of pairs", "a line '# [ pairs: <number> ] [ window size: <number> ]'")
        num_ranks = 2 * pairs
    if num_ranks % options.nodes:
        want = "--nodes 1 or --nodes 2" if num_ranks == 2 else f"--nodes that divides {num_ranks}"
        found = "two ranks" if num_ranks == 2 else f"{num_ranks} ranks"
        raise refusal(name, line, f"{found} on --nodes {options.nodes}", want)
    per_node = num_ranks // options.nodes
    if test.ranks == "pairs" and options.gpus_per_node not in (None, per_node):
        found = f"{num_ranks} ranks on {options.nodes} nodes, but --gpus-per-node is {options.gpus_per_node}"
        raise refusal(name, line, found, f"{per_node}, or no --gpus-per-node")
    return options.nodes, per_node


def _columns(lines: list[str], start: int, name: str) -> tuple[int, list[str]]:
    """Return the line of the column names, and the names."""
    for number, line in enumerate(lines[start:], start=start + 1):
        if not HEAD.fullmatch(line):
            continue
        rest, columns = line.strip().removeprefix("#"), []
        while match := COLUMN.match(rest):
            columns.append(match[1])
            rest = rest[match.end() :]
        if rest.strip() or not columns:
            found = f"unknown columns {quoted(rest.strip())} in {quoted(line)}"
            raise refusal(name, number, found, "a header such as '# Size  Avg Latency(us)'")
        return number, columns
    raise refusal(name, len(lines), "no header line", "a header such as '# Size  Avg Latency(us)'")


def _rows(
    lines: list[str], head: int, columns: list[str], name: str, is_incomplete: bool
) -> list[tuple[int, dict[str, str]]]:
    forms = {"Size": WHOLE, "Iterations": WHOLE, "Validation": CHECKED}
    pattern = re.compile(r"\s*" + r"\s+".join(f"({forms.get(column, DECIMALS)})" for column in columns) + r"\s*")
    found: list[tuple[int, dict[str, str]]] = []
    for number, line in enumerate(lines[head:], start=head + 1):
        if not re.match(r"\s*\d", line):
            continue
        match = pattern.fullmatch(line)
        is_cut = number == len(lines) and columns[-1] == "Iterations"  # no line break after an integer
        if match is None or is_cut:
            raise refusal(name, number, f"incomplete row {quoted(line)}", f"a complete row of {', '.join(columns)}")
        row = dict(zip(columns, match.groups(), strict=True))
        if found and "Size" in row:
            before, size = int(found[-1][1]["Size"]), int(row["Size"])
            if size != (expected := max(1, 2 * before)) and not (is_incomplete and size > before):
                raise refusal(name, number, f"size {size} after {before}", f"{expected}, as sizes double")
        found.append((number, row))
    if not found:
        raise refusal(name, len(lines), "no rows", f"rows of {', '.join(columns)}")
    return found


def _reading(
    test: Test, line: int, row: dict[str, str], shape: tuple[int, int], dtype: str | None, name: str
) -> Reading:
    size, num_ranks = int(row["Size"]) if "Size" in row else None, shape[0] * shape[1]
    if size is not None and test.factor == "n":
        size *= num_ranks
    failure = "wrong result (OSU, Validation: Fail)" if row.get("Validation") == "Fail" else None
    printed = {column: float(value) for column, value in row.items() if column not in ("Size", "Validation")}
    times = {LATENCIES[column]: value / 1e6 for column, value in printed.items() if column in LATENCIES}
    if size and printed.get("Bandwidth"):
        times["window_step_s"] = size / (printed["Bandwidth"] * 1e6)
    if size and printed.get("MB/s"):  # of all pairs together
        _check_rate(size, printed, name, line)
        times["window_step_s"] = num_ranks / 2 * size / (printed["MB/s"] * 1e6)
    iterations = int(row["Iterations"]) if "Iterations" in row else None
    if not any(times.values()):
        failure = failure or "the printed value is 0.00"
    parameters = collective_parameters(test.operation, size, dtype)
    return Reading(line, "collective", parameters, *shape, times, printed, num_iterations=iterations, failure=failure)


def _check_rate(size: int, printed: dict[str, float], name: str, line: int) -> None:
    """Refuse a row with contradictory bandwidth and message rate: a shifted column, or a lost digit."""
    rate = size * printed.get("Messages/s", printed["MB/s"] * 1e6 / size) / 1e6
    if abs(rate - printed["MB/s"]) > 0.006 + 1e-6 * rate:
        found = f"{size} bytes at {printed['MB/s']:g} MB/s and {printed['Messages/s']:g} messages/s"
        raise refusal(name, line, found, f"{rate:.2f} MB/s, bytes x messages/s")


OSU = Format(
    "osu-text", "a table of OSU", lambda text: re.search(r"^[ \t]*# OSU ", text, re.MULTILINE) is not None, _read
)
