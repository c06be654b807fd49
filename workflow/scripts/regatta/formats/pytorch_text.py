"""Tables that PyTorch's benchmarks/distributed/ddp/benchmark.py prints. Read only.

A row is `<ranks> GPUs -- <machines>M/<GPUs per machine>G`, then seconds per step and samples per second and GPU at p50,
p75, p90 and p95 of the steps of all ranks together. The seconds have three decimals and the rate is cut to a whole
number; that of the two which is finer over a table gives its times. The `8G` of the last rows is a constant of the program: on machines with
four GPUs it is wrong, and ranks and GPUs per node decide.
"""

import re
from dataclasses import dataclass, field

from regatta.formats.base import Options, Reading, Source, parameters_of, quoted, refusal, shape_of

FORMAT = "pytorch-text"
BANNER = "PyTorch distributed benchmark suite"
IMAGE_SIZE, DEFAULT_BUCKET_MB = 224, 25  # constants of benchmark.py
PERCENTS = (50, 75, 90, 95)
TITLE = re.compile(r"Benchmark: (?P<model>\w+) with batch size (?P<batch>\d{1,15})\s*")
ROW = re.compile(
    r"\s*(?P<ranks>\d{1,15}) GPUs --\s+(?P<label>no ddp|\d{1,15}M/\d{1,15}G):"
    + "".join(rf"\s+p{p}:\s+(?P<s{p}>\d{{1,15}}\.\d{{3}})s\s+(?P<x{p}>\d{{1,15}})/s" for p in PERCENTS)
    + r"(?:</code></pre>)?\s*"
)
FACTS = {
    "torch": re.compile(r"\* PyTorch version: (\S+)\s*"),
    "cuda": re.compile(r"\* CUDA version: (\S+)\s*"),
    "backend": re.compile(r"\* Distributed backend: (\w+)\s*"),
    "bucket": re.compile(r"\* Maximum bucket size: (\d{1,15})MB\s*"),
}
ROW_FORM = "'<ranks> GPUs -- <n>M/<g>G:  p50: <seconds>s <rate>/s  p75: ...  p90: ...  p95: ...'"
STATISTIC = (
    "the median over the steps of all ranks together, each step synchronised; not of the slowest rank, and no spread"
)


@dataclass
class Table:
    """One model's table. rows: (line number, match)."""

    line: int
    model: str
    batch_size: int
    rows: list[tuple[int, re.Match]] = field(default_factory=list)
    is_open: bool = True
    is_diff: bool = False

    @property
    def labels(self) -> list[str]:
        return [f"{match['ranks']} GPUs -- {match['label']}" for _, match in self.rows]


def is_pytorch_text(text: str) -> bool:
    return BANNER in text or re.search(r"^\s*\d+ GPUs --", text, re.MULTILINE) is not None


def read_pytorch_text(lines: list[str], name: str, options: Options) -> Source:
    tables, facts = _tables(lines, name), _facts(lines)
    shown = _gpus_in_topology(lines)
    gpus_per_node = options.gpus_per_node or shown or _gpus_in_labels(tables, name)
    notes = []
    if shown not in (None, gpus_per_node):
        notes.append(f"nvidia-smi shows {shown} GPUs; --gpus-per-node {gpus_per_node} was taken")
    if "bucket" not in facts:
        notes.append(f"the bucket size is not printed; the program's default is {DEFAULT_BUCKET_MB} MB")
    bucket = int(facts.get("bucket", DEFAULT_BUCKET_MB))
    readings = [
        _reading(table, line, match, gpus_per_node, bucket, name, notes)
        for table in tables
        for line, match in table.rows
    ]
    environment = {"torch": facts.get("torch"), "cuda": facts.get("cuda")}
    backend = facts.get("backend", "nccl")
    return Source(FORMAT, STATISTIC, backend, "cuda", tuple(readings), tuple(notes), environment, twice="again")


def _tables(lines: list[str], name: str) -> list[Table]:
    """Return the tables of measurements. Those of diff.py, which stand in upstream's README beside them, are no measurements."""
    tables: list[Table] = []
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("Benchmark:"):
            match = TITLE.fullmatch(line)
            if match is None:
                raise refusal(name, number, f"found {quoted(line)}", "'Benchmark: <model> with batch size <number>'")
            tables.append(Table(number, match["model"], int(match["batch"])))
        elif tables and tables[-1].is_open:
            _read_line(tables[-1], number, line, is_last=number == len(lines), name=name)
        elif "GPUs --" in line:
            raise refusal(
                name, number, f"found a row outside of a table: {quoted(line)}", "'Benchmark: <model> ...' above it"
            )
    tables = [table for table in tables if not table.is_diff]
    _check_complete(tables, len(lines), name)
    return tables


def _read_line(table: Table, number: int, line: str, *, is_last: bool, name: str) -> None:
    """Read a line between a table's title and the blank line behind its rows."""
    if not line.strip():
        table.is_open = not table.rows
    elif "sec/iter" in line:
        table.is_diff = "diff" in line.split()
        table.is_open = not table.is_diff
    elif match := ROW.fullmatch(line):
        _check_row(table, number, match, name)
        table.rows.append((number, match))
    elif "GPUs --" in line or is_last:
        raise refusal(name, number, f"found {quoted(line)}", f"a whole row: {ROW_FORM}")


def _check_row(table: Table, number: int, match: re.Match, name: str) -> None:
    """Refuse a row whose seconds and rates contradict each other: a digit of it was lost."""
    if (match["label"] == "no ddp") != (not table.rows):
        raise refusal(name, number, f"found {quoted(match[0])}", "'1 GPUs -- no ddp' as the first row, and only there")
    for p in PERCENTS:
        seconds, rate = float(match[f"s{p}"]), int(match[f"x{p}"])
        # The rate was cut to a whole number, the seconds were rounded to three decimals.
        slowest = table.batch_size / rate if rate else float("inf")
        if not table.batch_size / (rate + 1) - 0.000501 <= seconds <= slowest + 0.000501 or slowest == float("inf"):
            told = f"p{p} is {match[f's{p}']}s and {rate}/s"
            raise refusal(name, number, told, f"{table.batch_size} samples a step / seconds = rate")
    values = [int(match[f"x{p}"]) for p in PERCENTS]
    if values != sorted(values, reverse=True):
        raise refusal(name, number, f"rates {values} of p50 to p95", "no percentile faster than one before it")


def _check_complete(tables: list[Table], num_lines: int, name: str) -> None:
    if not tables:
        raise refusal(name, num_lines, "no table 'Benchmark: <model> with batch size <number>'", "at least one")
    for table in tables:
        if not table.rows:
            raise refusal(name, table.line, f"the table of {table.model} has no row", ROW_FORM)
        if table.labels != tables[0].labels:
            told = f"the table of {table.model} has {len(table.rows)} rows ({table.labels[-1]} is the last)"
            want = f"the {len(tables[0].rows)} rows of {tables[0].model}'s ({tables[0].labels[-1]} is its last)"
            raise refusal(name, table.rows[-1][0], told, want)


def _facts(lines: list[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        for key, pattern in FACTS.items():
            if match := pattern.fullmatch(line):
                found[key] = match[1]
    return found


def _gpus_in_topology(lines: list[str]) -> int | None:
    """Return how many GPUs a machine has, by the head of `nvidia-smi topo -m`, which the program prints first."""
    for index, line in enumerate(lines):
        if "nvidia-smi topo -m" in line:
            for head in lines[index + 1 : index + 4]:
                if columns := re.findall(r"\bGPU\d+\b", head):
                    return len(columns)
    return None


def _gpus_in_labels(tables: list[Table], name: str) -> int:
    """Return the GPUs per machine that the labels give, where they fit the number of ranks."""
    largest = 1
    for table in tables:
        for number, match in table.rows:
            ranks, label = int(match["ranks"]), match["label"]
            machines, gpus = (1, 1) if label == "no ddp" else _label(label)
            if machines * gpus != ranks:
                told = f"label {label} says {machines * gpus} GPUs, and {ranks} took part"
                raise refusal(name, number, told, "a label that fits, or --gpus-per-node to say how many a node has")
            largest = max(largest, gpus)
    return largest


def _label(label: str) -> tuple[int, int]:
    machines, gpus = re.fullmatch(r"(\d+)M/(\d+)G", label).groups()
    return int(machines), int(gpus)


def _reading(table, line: int, match, gpus_per_node: int, bucket: int, name: str, notes: list[str]) -> Reading:
    ranks, label = int(match["ranks"]), match["label"]
    shape = shape_of(ranks, gpus_per_node)
    if shape is None or ranks == 0:
        raise refusal(
            name, line, f"{ranks} ranks on nodes of {gpus_per_node} GPUs", "whole nodes; correct --gpus-per-node"
        )
    if label != "no ddp" and _label(label) != shape:
        note = f"label {label} with {ranks} ranks is {shape[0]} x {shape[1]}: a node has {gpus_per_node} GPUs"
        note += ", and the GPUs in the label are a constant of the program"
        if note not in notes:
            notes.append(note)
    is_rate = _is_rate_finer(table)
    strategy = "none" if label == "no ddp" else "ddp"
    parameters = parameters_of(
        "train_step", model=table.model, batch_size=table.batch_size, image_size=IMAGE_SIZE, strategy=strategy,
        bucket_cap_mb=bucket,
    )  # fmt: skip
    times, printed = {}, {"label": f"{ranks} GPUs -- {label}"}
    for p in PERCENTS:
        seconds, rate = float(match[f"s{p}"]), int(match[f"x{p}"])
        times[f"p{p}_s"] = table.batch_size / rate if is_rate else seconds
        printed |= {f"p{p}_sec_per_iter": seconds, f"p{p}_ex_per_sec": rate}
    return Reading(line, "train_step", parameters, *shape, times_s=times, printed=printed)


def _is_rate_finer(table: Table) -> bool:
    """Return whether a step of 1/s says more than one of 1 ms. One column for a whole table: ratios must not mix them."""
    pairs = [(float(match["s50"]), int(match["x50"])) for _, match in table.rows]
    return sum(1 / rate for _, rate in pairs) < sum(0.001 / max(seconds, 0.0005) for seconds, _ in pairs)
