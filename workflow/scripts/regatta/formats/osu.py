"""Tables of the OSU micro-benchmarks: point-to-point, one-sided, multi-pair and collective tests. Read only.

A table states neither the number of ranks nor that it is complete: the user gives the shape, and a table that was cut
off between two rows cannot be detected. A missing row can: sizes double from row to row.
"""

import re
from dataclasses import dataclass, replace
from functools import partial

from regatta.core.text import quoted
from regatta.formats.base import refusal, stated_shape
from regatta.formats.rounding import common, printed_interval, scaled
from regatta.formats.text_tables import (
    CHECK,
    ITERATIONS,
    SIZE,
    ColumnLayout,
    Measured,
    TableLayout,
    TableRun,
    table_format,
)

CALLS = {"put": "put", "get": "get", "accumulate": "acc", "get_accumulate": "get_acc"}
CALLS |= {"fetch_and_op": "fop", "compare_and_swap": "cas"}
SETTING = re.compile(r"# (?:Window creation|Synchronization): MPI_Win_(\S+)\s*")  # of one-sided tests
DTYPES = {"MPI_FLOAT": "fp32", "MPI_CHAR": "char", "MPI_INT": "int32"}
MEAN = "mean over iterations, averaged over ranks; no range"
STREAM = "message bytes / bandwidth of back-to-back messages, not the time of a single message; no range"
ALONE = "mean of a non-blocking call without computation (Pure Comm.), averaged over ranks; no range"
OVERLAP = "overall time, compute time and overlap of non-blocking calls are only in the records (imported.printed)"


@dataclass(frozen=True)
class Test:
    """A test. ranks: "all", "two", or "pairs" if the table has their number. is_of_part: its sizes are of one rank."""

    operation: str
    ranks: str
    statistic: str
    is_of_part: bool = False


# By what the title says, without "Latency". Regatta has no benchmark like the ones with osu_ in their names.
TESTS = {
    "allreduce": Test("all_reduce", "all", MEAN),
    "allgather": Test("all_gather", "all", MEAN, is_of_part=True),
    "all-to-all personalized exchange": Test("all_to_all", "all", MEAN, is_of_part=True),
    **{name: Test(name, "all", MEAN) for name in ("reduce_scatter", "broadcast", "reduce", "barrier")},
    **{
        f"non-blocking {name}": Test(f"osu_i{name}", "all", ALONE)
        for name in ("allreduce", "allgather", "reduce_scatter", "reduce", "barrier", "gather", "scatter")
    },
    "non-blocking broadcast": Test("osu_ibcast", "all", ALONE),
    "non-blocking all-to-all": Test("osu_ialltoall", "all", ALONE),
    "latency": Test("osu_latency", "two", MEAN),
    "bandwidth": Test("osu_bw", "two", STREAM),
    "bi-directional bandwidth": Test("osu_bibw", "two", STREAM),
    "multi": Test("osu_multi_lat", "all", MEAN),
    "multiple bandwidth / message rate": Test("osu_mbw_mr", "pairs", STREAM),
}


def _measured(run: TableRun) -> Measured:
    test, title = _test(run.title, run.lines), run.title
    if test is None:
        found = f"unsupported test {quoted(title[0])}"
        raise refusal(run.name, run.line, found, "a test that docs/formats.md lists under OSU")
    shape = _shape(test, run)
    num_ranks = shape[0] * shape[1]
    is_device = bool(title["device"]) or title["library"] != "MPI" or run.facts["device"] is not None
    dtype = run.facts["dtype"] and run.facts["dtype"][1]
    return Measured(
        test.operation,
        shape,
        test.statistic,
        "mpi" if title["library"] == "MPI" else "nccl",
        "cuda" if is_device else "cpu",
        DTYPES.get(dtype, dtype),
        size_factor=num_ranks if test.is_of_part else 1,
        rate_factor=num_ranks / 2 if test.ranks == "pairs" else 1,  # the rate is of all pairs together
        notes=(OVERLAP,) if test.statistic == ALONE else (),
        check=partial(_check_rate, run),
    )


def _test(title: re.Match, lines: list[str]) -> Test | None:
    """Return the test that a title names. The operation of a one-sided test contains its window and synchronization."""
    test = TESTS.get(title["test"].lower().removesuffix(" latency"))
    if not title["call"] or test is None:
        return test
    call = CALLS.get(title["call"].lower())
    if call is None or test.ranks != "two":
        return None
    settings = [re.sub(r"\W+", "_", m[1]) for line in lines if (m := SETTING.fullmatch(line.strip()))]
    return replace(test, operation="_".join([test.operation.replace("osu_", f"osu_{call}_"), *settings]))


def _shape(test: Test, run: TableRun) -> tuple[int, int]:
    name, line, gpus_per_node = run.name, run.line, run.options.gpus_per_node
    if test.ranks == "all":
        return stated_shape(run.options, name, line)
    nodes, _ = stated_shape(replace(run.options, gpus_per_node=gpus_per_node or 1), name, line)
    pairs = int(run.facts["pairs"][1]) if run.facts["pairs"] else 0
    if test.ranks == "pairs" and not pairs:
        raise refusal(name, line, "no number of pairs", "a line '# [ pairs: <number> ] [ window size: <number> ]'")
    num_ranks = 2 * pairs if test.ranks == "pairs" else 2
    if num_ranks % nodes:
        raise refusal(name, line, f"{num_ranks} ranks on --nodes {nodes}", f"--nodes that divides {num_ranks}")
    per_node = num_ranks // nodes
    if test.ranks == "pairs" and gpus_per_node not in (None, per_node):
        found = f"{num_ranks} ranks on {nodes} nodes, but --gpus-per-node is {gpus_per_node}"
        raise refusal(name, line, found, f"{per_node}, or no --gpus-per-node")
    return nodes, per_node


def _check_rate(run: TableRun, numbers: dict[str, float], line: int) -> None:
    """Refuse a row with contradictory bandwidth and message rate: a shifted column, or a lost digit."""
    size, bandwidth, messages = (numbers.get(name) for name in ("Size", "MB/s", "Messages/s"))
    if size and bandwidth and messages is not None:
        rate, printed = size * messages / 1e6, bandwidth / 1e6
        of_messages = scaled(printed_interval(f"{messages:.2f}"), size / 1e6)
        if not common(of_messages, printed_interval(f"{printed:.2f}")):
            found = f"{size:.0f} bytes at {printed:g} MB/s and {messages:g} messages/s"
            raise refusal(run.name, line, found, f"{rate:.2f} MB/s, bytes x messages/s")


PERCENTILES = {f"P{p} Tail Lat": ColumnLayout(f"p{p}_s", "us") for p in (50, 75, 90, 95, 99)}
OSU = table_format(
    TableLayout(
        "osu-text",
        "a table of OSU",
        title=r"# OSU (?P<library>MPI|NCCL|RCCL)(?:_(?P<call>\w+))?(?P<device>-\w+)? (?P<test>.+?) Test(?: Test)?"
        r"(?: v[\w.]+)?",
        recognized="^[ \\t]*# OSU ",
        example="'# OSU MPI <name> Test v<version>'",
        head=r"#?\s*(?:Size|Avg Latency|Latency|Bandwidth|Overall)\b[^=]*",
        columns={
            "Size": SIZE,
            "Iterations": ITERATIONS,
            "Validation": CHECK,
            **dict.fromkeys(("Latency", "Avg Latency", "Pure Comm."), ColumnLayout("mean_s", "us")),
            **PERCENTILES,
            **dict.fromkeys(("Bandwidth", "MB/s"), ColumnLayout("rate", "MB/s")),
            **dict.fromkeys(
                ("Min Latency", "Max Latency", "Messages/s", "Overall", "Compute", "Coll. Init"), ColumnLayout()
            ),
            **dict.fromkeys(("MPI_Test", "MPI_Wait", "Overlap"), ColumnLayout()),
        },
        facts={
            "dtype": r"# Datatype: (\w+).*",
            "pairs": r"# \[ pairs: (\d{1,7}) \].*",
            "device": r".*on DEVICE \(D\).*",
        },
        program="OSU",
        counts_processes=True,
        measured=_measured,
    )
)
