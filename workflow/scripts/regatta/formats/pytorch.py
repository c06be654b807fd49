"""PyTorch's benchmarks/distributed/ddp/benchmark.py: the tables that it prints (read only), and its --json reports.

A row of a table is `<ranks> GPUs -- <machines>M/<GPUs per machine>G`, then seconds per step and samples per second and
GPU at p50, p75, p90 and p95 of the steps of all ranks together. The seconds are rounded to three decimals, the rate is
truncated to an integer. A time is the middle of the interval that both leave. The `8G` of the last rows is a constant
of the program, which is wrong on machines with four GPUs: ranks and GPUs per node decide.

A report has one entry per model, and in it one per number of ranks; only its position marks the first as without DDP.
`measurements` are seconds of single synchronized steps, those of rank 0 first, then those of rank 1.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from regatta.core.errors import UserError
from regatta.core.text import is_unknown, quoted, shape
from regatta.formats.base import (
    NANOSECONDS,
    Format,
    ImportedFile,
    NotFinite,
    Options,
    Reading,
    entry_cell,
    entry_parameters,
    lines_of,
    object_with,
    parameters_of,
    refusal,
    shape_of_ranks,
    times_ns,
)
from regatta.formats.results_folder import ResultsFolder
from regatta.formats.text_tables import LineMatches, find_lines, join_runs, parts_of
from regatta.model.frozen import FrozenCell

BANNER = "PyTorch distributed benchmark suite"
IMAGE_SIZE, DEFAULT_BUCKET_MB = 224, 25  # constants of benchmark.py
HALF_DIGIT_S = 0.0005  # seconds have three decimals
SLACK_S = 1e-6  # for binary fractions at the ends of an interval
PERCENTS = (50, 75, 90, 95)
FIGURES = "".join(rf"\s+p{p}:\s+(?P<s{p}>\d{{1,15}}\.\d{{3}})s\s+(?P<x{p}>\d{{1,15}})/s" for p in PERCENTS)
FORMS = {
    "title": r"Benchmark:(?: (?P<model>\w+) with batch size (?P<batch>\d{1,15})|.*)",
    "row": rf"(?P<ranks>\d{{1,15}}) GPUs --\s+(?P<label>no ddp|\d{{1,15}}M/\d{{1,15}}G):{FIGURES}(?:</code></pre>)?",
    "diff": r".*sec/iter.*\bdiff\b.*",  # head of a table of diff.py, which upstream's README also shows
    "torch": r"\* PyTorch version: (\S+)",
    "cuda": r"\* CUDA version: (\S+)",
    "backend": r"\* Distributed backend: (\w+)",
    "bucket": r"\* Maximum bucket size: (\d{1,15})MB",
}
ROW_FORM = "'<ranks> GPUs -- <n>M/<g>G:  p50: <seconds>s <rate>/s  p75: ...  p90: ...  p95: ...'"
TEXT_STATISTIC = "median over the synchronized steps of all ranks, not of the slowest rank; no range"


@dataclass(frozen=True)
class PrintedRow:
    """A row of one model's table, as printed."""

    line: int
    model: str
    batch_size: int
    match: re.Match

    @property
    def label(self) -> str:
        return f"{self.match['ranks']} GPUs -- {self.match['label']}"

    def bounds(self, p: int) -> tuple[float, float]:
        """Return the shortest and the longest time that the seconds and the rate of a percentile can mean."""
        seconds, rate = float(self.match[f"s{p}"]), int(self.match[f"x{p}"])
        low = max(seconds - HALF_DIGIT_S, self.batch_size / (rate + 1))
        return low, min(seconds + HALF_DIGIT_S, self.batch_size / rate if rate else 0)


def _read_text(text: str, name: str, options: Options) -> ImportedFile:
    lines = lines_of(text)
    starts = [index for index, line in enumerate(lines) if BANNER in line]
    return join_runs([_read_run(part, name, options) for part in parts_of(lines, starts)], name)


def _read_run(lines: list[str], name: str, options: Options) -> ImportedFile:
    found = find_lines(lines, FORMS)
    rows = _rows(found, lines, name, options.is_incomplete)
    facts = {key: found[key][0][1][1] for key in ("torch", "cuda", "backend", "bucket") if found[key]}
    shown = _gpus_in_topology(lines)
    gpus_per_node = options.gpus_per_node or shown or _gpus_in_labels(rows, name)
    notes = []
    if shown not in (None, gpus_per_node):
        notes.append(f"nvidia-smi lists {shown} GPUs; used: --gpus-per-node {gpus_per_node}")
    if "bucket" not in facts:
        notes.append(f"bucket size not printed; used: the program's default, {DEFAULT_BUCKET_MB} MB")
    bucket = int(facts.get("bucket", DEFAULT_BUCKET_MB))
    open_ratio = max((high - low) / (high + low) for low, high in (row.bounds(50) for row in rows))
    notes.append(f"rounding in the file makes p50 uncertain by up to ±{100 * open_ratio:.2g} %")
    readings = tuple(_row_reading(row, gpus_per_node, bucket, name, notes) for row in rows)
    environment = {"torch": facts.get("torch"), "cuda": facts.get("cuda")}
    backend = facts.get("backend", "nccl")
    return ImportedFile(TEXT_STATISTIC, backend, "cuda", readings, tuple(notes), environment, twice="again")


def _rows(found: dict[str, LineMatches], lines: list[str], name: str, is_incomplete: bool) -> list[PrintedRow]:
    """Return the rows of all tables. A table has a title, and ends with the first blank line after its rows."""
    titles, rows = dict(found["title"]), dict(found["row"])
    diffs = {max((title for title in titles if title < number), default=0) for number, _ in found["diff"]}
    tables, title, of_model = [], None, []
    for number, line in enumerate(lines, start=1):
        if number in titles:
            title, of_model = None if number in diffs else titles[number], []
            if number in diffs:
                continue
            if title["model"] is None:
                want = "'Benchmark: <model> with batch size <number>'"
                raise refusal(name, number, f"found {quoted(line)}", want)
            tables.append((number, title["model"], of_model))
        elif not line.strip():
            title = None if of_model else title
        elif title and number in rows:
            of_model.append(PrintedRow(number, title["model"], int(title["batch"]), rows[number]))
            _check_row(of_model, name)
        elif title and ("GPUs --" in line or ("sec/iter" not in line and number == len(lines))):
            raise refusal(name, number, f"found {quoted(line)}", f"a complete row: {ROW_FORM}")
        elif "GPUs --" in line:
            text = f"row outside a table: {quoted(line)}"
            raise refusal(name, number, text, "'Benchmark: <model> ...' above it")
    if not (is_incomplete and any(of_model for *_, of_model in tables)):
        _check_complete(tables, len(lines), name)
    return [row for *_, of_model in tables for row in of_model]


def _check_row(rows: list[PrintedRow], name: str) -> None:
    """Refuse a last row with contradictory seconds and rates: a digit was lost."""
    row = rows[-1]
    if (row.match["label"] == "no ddp") != (len(rows) == 1):
        want = "'1 GPUs -- no ddp' as the first row, and only there"
        raise refusal(name, row.line, f"found {quoted(row.match[0])}", want)
    for p in PERCENTS:
        low, high = row.bounds(p)
        if low > high + SLACK_S:
            found = f"p{p} is {row.match[f's{p}']}s and {int(row.match[f'x{p}'])}/s"
            raise refusal(name, row.line, found, f"{row.batch_size} samples per step / seconds = rate")
    values = [int(row.match[f"x{p}"]) for p in PERCENTS]
    if values != sorted(values, reverse=True):
        raise refusal(name, row.line, f"rates {values} of p50 to p95", "rates in descending order")


def _check_complete(tables: list[tuple[int, str, list[PrintedRow]]], num_lines: int, name: str) -> None:
    """Refuse tables without rows, or with other rows than the first. tables: line, model and rows of each."""
    if not tables:
        raise refusal(name, num_lines, "no table 'Benchmark: <model> with batch size <number>'", "at least one")
    _, first, wanted = tables[0]
    for line, model, rows in tables:
        if not rows:
            raise refusal(name, line, f"the table of {model} has no rows", ROW_FORM)
        if [row.label for row in rows] != [row.label for row in wanted]:
            found = f"the table of {model} has {len(rows)} rows ({rows[-1].label} is the last)"
            want = f"the {len(wanted)} rows of {first}'s ({wanted[-1].label} is its last)"
            raise refusal(name, rows[-1].line, found, want)


def _gpus_in_topology(lines: list[str]) -> int | None:
    """Return how many GPUs a machine has, by the head of `nvidia-smi topo -m`, which the program prints first."""
    for index, line in enumerate(lines):
        if "nvidia-smi topo -m" in line:
            for head in lines[index + 1 : index + 4]:
                if columns := re.findall(r"\bGPU\d+\b", head):
                    return len(columns)
    return None


def _gpus_in_labels(rows: list[PrintedRow], name: str) -> int:
    """Return the GPUs per machine that the labels give, if they fit the number of ranks."""
    for row in rows:
        if (num := math.prod(_label(row.match["label"]))) != int(row.match["ranks"]):
            found = f"label {row.match['label']} states {num} GPUs, but the row has {row.match['ranks']} ranks"
            raise refusal(name, row.line, found, "a matching label, or the GPUs per node as --gpus-per-node")
    return max(_label(row.match["label"])[1] for row in rows)


def _label(label: str) -> tuple[int, ...]:
    """Return (machines, GPUs per machine)."""
    return (1, 1) if label == "no ddp" else tuple(map(int, re.findall(r"\d+", label)))


def _row_reading(row: PrintedRow, gpus_per_node: int, bucket: int, name: str, notes: list[str]) -> Reading:
    ranks, label = int(row.match["ranks"]), row.match["label"]
    size = shape_of_ranks(ranks, Options(gpus_per_node=gpus_per_node), name, row.line)
    if label != "no ddp" and _label(label) != size:
        note = f"label {label} with {ranks} ranks is {size[0]} x {size[1]}: a node has {gpus_per_node} GPUs"
        note += "; the GPU count in the label is a constant of the program"
        if note not in notes:
            notes.append(note)
    strategy = "none" if label == "no ddp" else "ddp"
    named = {"model": row.model, "batch_size": row.batch_size, "strategy": strategy}
    parameters = parameters_of("train_step", **named, image_size=IMAGE_SIZE, bucket_cap_mb=bucket)
    times, printed = {}, {"label": row.label}
    for p in PERCENTS:
        times[f"p{p}_s"] = sum(row.bounds(p)) / 2
        printed |= {f"p{p}_sec_per_iter": float(row.match[f"s{p}"]), f"p{p}_ex_per_sec": int(row.match[f"x{p}"])}
    times |= dict(zip(("p50_low_s", "p50_high_s"), sorted(row.bounds(50)), strict=True))
    return Reading(row.line, "train_step", parameters, *size, times_s=times, printed=printed)


# Reports.

JSON_STATISTIC = "single synchronized steps of all ranks; the time of a step is that of its slowest rank"
NO_DEVICE = f"device and image size not in the file; used: cuda and {IMAGE_SIZE}, the defaults of benchmark.py"
NAMED = ("model", "batch_size", "strategy")  # parameters that a report has a key for


def _read_report(report: dict, name: str, options: Options) -> ImportedFile:
    readings, twice = [], "again"
    for i, entry in enumerate(report["benchmark_results"]):
        for position, result in enumerate(entry["result"]):
            if position == 0 and not result["measurements"]:
                continue  # a report that Regatta wrote of a campaign without such a cell
            place = f"benchmark_results[{i}].result[{position}]"
            if position == 0 and len(result["ranks"]) != 1:
                want = "one rank in the first result of a model (without DDP)"
                raise refusal(name, None, f"{place} has {len(result['ranks'])} ranks", want)
            named = {"model": entry["model"], "batch_size": int(entry["batch_size"])}
            named["strategy"] = "ddp" if position else "none"
            if result.get("parameters") is None:
                if report["bucket_size"] is None:
                    raise refusal(name, None, "bucket_size is null", "a number of MB")
                named |= {"image_size": IMAGE_SIZE, "bucket_cap_mb": report["bucket_size"]}
            parameters = entry_parameters(result, "train_step", **named)
            readings += _launches(result, parameters, options, name, place)
            twice = "launch" if "launches" in result else twice
    if not readings:
        raise refusal(name, None, "benchmark_results has no measurement", "measurements of at least one model")
    versions = {"torch": report["pytorch_version"], "cuda": report["cuda_version"]}
    versions = {key: None if isinstance(value, NotFinite | None) else str(value) for key, value in versions.items()}
    notes, backend = () if "device" in report else (NO_DEVICE,), report["distributed_backend"]
    return ImportedFile(
        JSON_STATISTIC, backend, report.get("device", "cuda"), tuple(readings), notes, versions, twice=twice
    )


def _launches(result: dict, parameters: dict, options: Options, name: str, place: str) -> Iterator[Reading]:
    """Yield the launches of a result: one, or those that a report of Regatta lists."""
    num_ranks = len(result["ranks"])
    cell = entry_cell(result, num_ranks, options, name, place)
    samples = _samples_ns(result, num_ranks, name, place)
    num, start = len(samples[0]), 0
    reading = Reading(None, "train_step", parameters, samples_ns=samples, num_iterations=num, **cell)
    if "launches" not in result:
        yield replace(reading, steps_per_window=1)
        return
    for launch in result["launches"]:
        end, step = start + int(launch["num_iterations"]), launch.get("window_step_s")
        times = {} if step is None else {"window_step_s": float(step)}
        part = [row[start:end] for row in samples]
        yield replace(reading, times_s=times, samples_ns=part, num_iterations=end - start)
        start = end
    if start != num:
        want = f"{num} iterations in total, as many as measurements per rank"
        raise refusal(name, None, f"{place}.launches has {start} iterations", want)


def _samples_ns(result: dict, num_ranks: int, name: str, place: str) -> list[list[int]]:
    """Return [rank][iteration] from measurements listed rank by rank, the same number of each."""
    times = times_ns(result["measurements"], name, f"{place}.measurements")
    if num_ranks == 0 or not times or len(times) % num_ranks:
        found = f"{place}.measurements has {len(times)} values for {num_ranks} ranks"
        raise refusal(name, None, found, "the same number for each rank")
    num = len(times) // num_ranks
    return [times[rank * num : (rank + 1) * num] for rank in range(num_ranks)]


def _report(folder: ResultsFolder) -> dict:
    """Return the measured training steps as a report that upstream's diff.py reads.

    The samples of all launches of a cell are concatenated by rank. Raises UserError if the format has no place for
    the results: two bucket sizes, two stacks, strategies other than none and ddp.
    """
    cells = [cell for cell in folder.cells if cell.benchmark == "train_step" and len(folder.ok_rows(cell))]
    if not cells:
        raise UserError(f"{folder.path}: no training step has a valid record. Nothing was written.")
    _check_room(folder, cells)
    models: dict[tuple, list[FrozenCell]] = {}
    for cell in cells:
        models.setdefault((cell.parameters["model"], cell.parameters["batch_size"]), []).append(cell)
    wrapped = [cell.parameters["bucket_cap_mb"] for cell in cells if _is_wrapped(cell)]
    return {
        "pytorch_version": folder.version("torch"),
        "cuda_version": folder.version("cuda"),
        "distributed_backend": cells[0].backend,
        "bucket_size": wrapped[0] if wrapped else None,
        "device": cells[0].device,
        "benchmark_results": [
            {"model": model, "batch_size": batch_size, "result": _results(folder, of_model)}
            for (model, batch_size), of_model in models.items()
        ],
    }


def _is_wrapped(cell: FrozenCell) -> bool:
    return cell.parameters["strategy"] != "none"


def _check_room(folder: ResultsFolder, cells: list[FrozenCell]) -> None:
    """Refuse cells that a report could not distinguish."""
    folder.one_value(cells, "strategy", ("none", "ddp"))
    folder.one_value([cell for cell in cells if _is_wrapped(cell)], "bucket_cap_mb")
    others = [name for name in cells[0].parameters if name not in (*NAMED, "bucket_cap_mb")]
    for name in ("stack", "backend", "device", *others):
        folder.one_value(cells, name)
    shapes: dict[int, tuple] = {}
    for cell in filter(_is_wrapped, cells):
        if (other := shapes.setdefault(cell.world_size, cell.shape)) != cell.shape:
            raise UserError(
                f"{folder.path}: {shape(*other)} and {shape(*cell.shape)} have the same number of ranks, and this"
                f" format has no field for nodes. Select one with --where nodes={cell.nodes}."
            )


def _results(folder: ResultsFolder, cells: list[FrozenCell]) -> list[dict]:
    """Return the results of one model: first the one without DDP, empty if there is none, then by number of ranks."""
    cells = sorted(cells, key=lambda cell: (_is_wrapped(cell), cell.world_size))
    results = [_result(folder, cell) for cell in cells]
    return [{"ranks": [0], "measurements": []}, *results] if _is_wrapped(cells[0]) else results


def _result(folder: ResultsFolder, cell: FrozenCell) -> dict:
    """Return one result. Upstream's programs read `ranks` and `measurements`; the import needs the other keys."""
    by_rank: list[list[float]] = [[] for _ in range(cell.world_size)]
    launches = []
    for _, row in folder.ok_rows(cell).iterrows():
        samples, window_step_s = folder.record(row).get("samples_ns"), row["window_step_s"]
        if samples is None:
            raise UserError(
                f"{folder.path}: {cell.id} has no iterations by rank, which this format requires. Use --format csv."
            )
        for of_rank, more in zip(by_rank, samples, strict=True):
            of_rank += [value / NANOSECONDS for value in more]
        step = None if is_unknown(window_step_s) else float(window_step_s)
        launches.append({"num_iterations": len(samples[0]), "window_step_s": step})
    return {
        "ranks": list(range(len(by_rank))),
        "measurements": [value for of_rank in by_rank for value in of_rank],
        **{name: cell.field(name) for name in ("stack", "version", "nodes", "gpus_per_node")},
        "parameters": {name: value for name, value in cell.parameters.items() if name not in NAMED},
        "launches": launches,
    }


PYTORCH_TEXT = Format(
    "pytorch-text",
    "a table from PyTorch's benchmark.py",
    lambda text: BANNER in text or re.search(r"^[ \t]*\d+ GPUs --", text, re.MULTILINE) is not None,
    _read_text,
    begins=rf"{BANNER}|\d{{1,15}} GPUs --",
)
PYTORCH_JSON = Format(
    "pytorch-json",
    "a --json report from PyTorch's benchmark.py",
    object_with("benchmark_results"),
    _read_report,
    is_json=True,
    write=_report,
    benchmarks=("train_step",),
    not_held="memory, warm-up, parts of a step",
)
