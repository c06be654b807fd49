"""Tables of the OSU micro-benchmarks: latency, bandwidth, and blocking collectives. Read only.

A table states neither the number of ranks nor that it is complete: the user gives the shape, and a table that was cut
off between two rows cannot be detected. A missing row can: sizes double from row to row.
"""

import re

from regatta.core.errors import UserError
from regatta.formats.base import Format, Options, Reading, Source, collective_parameters, lines_of, quoted, refusal

TITLE = re.compile(r"# OSU (?P<library>MPI|NCCL|RCCL)(?P<device>-\w+)? (?P<test>.+?) Test(?: v[\w.]+)?\s*")
# Test -> operation, and the factor from its size to Regatta's message size: `n` where it is one rank's part.
COLLECTIVES = {
    "Allreduce Latency": ("all_reduce", "1"),
    "Allgather Latency": ("all_gather", "n"),
    "All-to-All Personalized Exchange Latency": ("all_to_all", "n"),
    "Reduce_scatter Latency": ("reduce_scatter", "1"),
    "Broadcast Latency": ("broadcast", "1"),
    "Reduce Latency": ("reduce", "1"),
    "Barrier Latency": ("barrier", "1"),
}
# Tests between two ranks. Regatta has no benchmark like them, so they keep their names.
PAIRS = {"Latency": "osu_latency", "Bandwidth": "osu_bw", "Bi-Directional Bandwidth": "osu_bibw"}
COLUMN = re.compile(
    r"\s*(Size|Avg Latency|Min Latency|Max Latency|Latency|P\d\d Tail Lat|Bandwidth|Iterations|Validation)\b"
    r"(?:\s*\((us|MB/s)\))?"
)
DECIMALS, WHOLE, CHECKED = r"\d{1,15}\.\d\d", r"\d{1,15}", r"Pass|Fail|-"
LATENCIES = {f"P{p} Tail Lat": f"p{p}_s" for p in (50, 75, 90, 95, 99)} | {"Latency": "mean_s", "Avg Latency": "mean_s"}
DTYPES = {"MPI_FLOAT": "fp32", "MPI_CHAR": "char", "MPI_INT": "int32"}
MEAN = "mean over iterations, averaged over ranks; no range"
STREAM = "message bytes / bandwidth of back-to-back messages, not the time of a single message; no range"


def _read(text: str, name: str, options: Options) -> Source:
    lines = lines_of(text)
    titles = [(number, m) for number, line in enumerate(lines, start=1) if (m := TITLE.fullmatch(line.strip()))]
    if len(titles) != 1:
        found, line = (f"{len(titles)} tables", titles[1][0]) if titles else ("no complete title", 1)
        raise refusal(name, line, found, "one '# OSU MPI <name> Test v<version>' per file")
    start, title = titles[0]
    if title["test"] not in (*COLLECTIVES, *PAIRS):
        known = ", ".join((*COLLECTIVES, *PAIRS))
        raise refusal(name, start, f"unsupported test {quoted(title['test'])}", f"one of: {known}")
    shape = _shape(title["test"], name, start, options)
    head, columns = _columns(lines, start, name)
    rows = _rows(lines, head, columns, name)
    dtype = next((m[1] for line in lines if (m := re.match(r"# Datatype: (\w+)", line.strip()))), None)
    readings = [_reading(title["test"], number, row, shape, DTYPES.get(dtype, dtype)) for number, row in rows]
    kept = [reading for reading in readings if reading.parameters["message_bytes"] != 0]
    notes = ["excluded: the row of 0 bytes"] if len(kept) < len(readings) else []
    if not kept:
        raise refusal(name, head, "no row of 1 byte or more", "'<size> <figures>' in each row")
    is_device = bool(title["device"]) or title["library"] != "MPI" or any("on DEVICE (D)" in line for line in lines)
    backend = "mpi" if title["library"] == "MPI" else "nccl"
    statistic = STREAM if title["test"].endswith("Bandwidth") else MEAN
    return Source(statistic, backend, "cuda" if is_device else "cpu", tuple(kept), tuple(notes))


def _shape(test: str, name: str, line: int, options: Options) -> tuple[int, int]:
    is_pair = test in PAIRS
    if options.nodes is None or (options.gpus_per_node is None and not is_pair):
        of_ranks = "the number of ranks. Add --nodes and --gpus-per-node (ranks per node)"
        missing = "whether the two ranks shared a node. Add --nodes 1 or --nodes 2" if is_pair else of_ranks
        raise UserError(f"{name}:{line}: the OSU table does not state {missing}. Nothing was imported.")
    if not is_pair:
        return options.nodes, options.gpus_per_node
    if options.nodes > 2:
        raise refusal(name, line, f"two ranks on --nodes {options.nodes}", "--nodes 1 or --nodes 2")
    return options.nodes, 2 // options.nodes


def _columns(lines: list[str], start: int, name: str) -> tuple[int, list[str]]:
    """Return the line of the column names, and the names."""
    for number, line in enumerate(lines[start:], start=start + 1):
        if not re.match(r"\s*#.*\b(Latency|Bandwidth)", line):
            continue
        rest, columns = line.strip().removeprefix("#"), []
        while match := COLUMN.match(rest):
            columns.append(match[1])
            rest = rest[match.end() :]
        if rest.strip() or not columns:
            raise refusal(name, number, f"unknown columns {quoted(line)}", "a header such as '# Size  Avg Latency(us)'")
        return number, columns
    raise refusal(name, len(lines), "no header line", "a header such as '# Size  Avg Latency(us)'")


def _rows(lines: list[str], head: int, columns: list[str], name: str) -> list[tuple[int, dict[str, str]]]:
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
            if size != (expected := max(1, 2 * before)):
                raise refusal(name, number, f"size {size} after {before}", f"{expected}, as sizes double")
        found.append((number, row))
    if not found:
        raise refusal(name, len(lines), "no rows", f"rows of {', '.join(columns)}")
    return found


def _reading(test: str, line: int, row: dict[str, str], shape: tuple[int, int], dtype: str | None) -> Reading:
    size = int(row["Size"]) if "Size" in row else None
    operation, factor = COLLECTIVES.get(test) or (PAIRS[test], "1")
    if size is not None and factor == "n":
        size *= shape[0] * shape[1]
    failure = "wrong result (OSU, Validation: Fail)" if row.get("Validation") == "Fail" else None
    printed = {column: float(value) for column, value in row.items() if column not in ("Size", "Validation")}
    times = {LATENCIES[column]: value / 1e6 for column, value in printed.items() if column in LATENCIES}
    if size and printed.get("Bandwidth"):
        times["window_step_s"] = size / (printed["Bandwidth"] * 1e6)
    iterations = int(row["Iterations"]) if "Iterations" in row else None
    if not any(times.values()):
        failure = failure or "the printed value is 0.00"
    parameters = collective_parameters(operation, size, dtype)
    return Reading(line, "collective", parameters, *shape, times, printed, num_iterations=iterations, failure=failure)


OSU = Format("osu-text", "a table of OSU", lambda text: re.search(r"^\s*# OSU ", text, re.MULTILINE) is not None, _read)
