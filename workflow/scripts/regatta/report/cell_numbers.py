"""The numbers of a cell that the page lists, in the order of its table, and the tables that they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from regatta.store.csv_files import REAL, TEXT, make_table
from regatta.store.records import MEMORY_BYTES

IN_MILLISECONDS, IN_MICROSECONDS, IN_PERCENT, IN_MIB = 1e3, 1e6, 100, 2**-20
PIPELINED = "pipelined: back to back, one synchronization per window"
SYNCHRONIZED = "synchronized individually"


@dataclass(frozen=True)
class Number:
    """A number of a cell. Its column in the table is `<name>_<unit>`, or with `_low_` and `_high_` for its interval.

    label: with the unit after `factor`; {rank} is GPU or process. interval: the column that says which kind it is.
    note: how it was timed, beside the label in the drawer. help: definition, below the table of all cells.
    """

    key: str
    label: str
    table: str
    name: str
    unit: str
    factor: float = 1
    is_shown: bool = False
    interval: str = "interval"
    group: str = "results"
    note: str = ""
    help: str = ""


def hours_per_million(rate_per_rank: float) -> float:
    """Return ranks × hours per million samples, from samples per second and rank; tokens likewise."""
    return 1e6 / rate_per_rank / 3600


# For all other numbers, the largest value is the worst.
LARGER_IS_BETTER = {"efficiency_percent", "mfu_percent", "accuracy_percent", "throughput", "throughput_per_rank"}
LARGER_IS_BETTER |= {"busbw"}
TIMES = ("step_ms", "call_us", "total_s", "both_passes_us")  # a cell with one of these needs no median_ms
# In the order of the table; the first known one is the main number of a cell. A key may be a column of several tables.
NUMBERS = (
    Number(
        *("step_ms", "Step time (ms)", "scaling", "step", "s", IN_MILLISECONDS, True),
        note=PIPELINED,
        help="time per step in pipelined windows, slowest rank; throughput and efficiency derive from it",
    ),
    Number(
        *("call_us", "Time per call (µs)", "collectives", "time", "s", IN_MICROSECONDS, True),
        note=PIPELINED,
        help="time per call in pipelined windows, slowest rank; bus bandwidth derives from it",
    ),
    Number(
        *("latency_us", "Latency (µs)", "collectives", "latency", "s", IN_MICROSECONDS),
        note=SYNCHRONIZED,
        help="time of a blocking call, slowest rank",
    ),
    Number("total_s", "Total time (s)", "training_runs", "total", "s", is_shown=True, note="sum of epochs"),
    Number(
        *("both_passes_us", "Forward and backward (µs)", "batch_norms", "time", "s", IN_MICROSECONDS, True),
        note=SYNCHRONIZED,
    ),
    Number(
        *("step_p50_ms", "Step time p50 (ms)", "percentiles", "p50", "s", IN_MILLISECONDS),
        note=SYNCHRONIZED,
        help="median of single, synchronized steps; includes the synchronization that pipelining avoids",
    ),
    Number(
        *("efficiency_percent", "Efficiency (%)", "scaling", "efficiency", "ratio", IN_PERCENT, True),
        interval="efficiency_interval",
        help="throughput per {rank} relative to that of the baseline cell",
    ),
    Number("throughput", "Throughput (samples/s)", "scaling", "throughput", "samples_per_s"),
    Number("throughput", "Throughput (samples/s)", "training_runs", "throughput", "samples_per_s"),
    Number(
        *("throughput_per_rank", "Throughput per {rank} (samples/s)", "scaling", "throughput_per_gpu"),
        "samples_per_s",
        is_shown=True,
    ),
    Number("hours_per_million", "{hours} per million samples", "", "", ""),  # derived: see _with_hours
    Number(
        *("mfu_percent", "MFU (%)", "scaling", "mfu", "ratio", IN_PERCENT),
        help="model FLOP/s utilization: computed FLOP/s relative to the peak in the cluster file",
    ),
    Number(
        *("exposed_ms", "Exposed communication (ms)", "strategies", "exposed", "s", IN_MILLISECONDS),
        help="step time with minus without gradient synchronization",
    ),
    Number(
        *("exposed_percent", "Exposed communication (% of step)", "strategies", "exposed_share", "ratio", IN_PERCENT)
    ),
    Number(
        *("busbw", "Bus bandwidth (GB/s)", "collectives", "busbw", "gb_per_s"),
        is_shown=True,
        note="of pipelined calls",
        help="size / time \N{MULTIPLICATION SIGN} a factor for operation and rank count; comparable with link peaks",
    ),
    Number("accuracy_percent", "Accuracy (%)", "training_runs", "accuracy", "ratio", IN_PERCENT, is_shown=True),
    Number("median_ms", "Time (ms)", "launch_ranges", "median", "s", IN_MILLISECONDS, is_shown=True),
    *(
        Number(
            *("ratio_to_median_percent", "Time / median node or pair (%)", table, "time", "ratio", IN_PERCENT, True),
            help="median over repeats of the ratio to the median node or pair of the same repeat",
        )
        for table in ("sweep_nodes", "sweep_pairs")
    ),
    Number(
        *("range_percent", "Between-launch range (%)", "main_ranges", "range", "ratio", IN_PERCENT, True),
        note="of pipelined times where recorded",
        help="(maximum \N{MINUS SIGN} minimum) / median over launches of the pipelined time, else the median or total",
    ),
    Number(
        *("blocking_range_percent", "Between-launch range of latency (%)", "blocking_ranges", "range", "ratio"),
        IN_PERCENT,
        help="the same for the latency of blocking calls",
    ),
    *(
        Number(f"{name}_mib", f"{label} (MiB)", table, name, "bytes", IN_MIB, name == "peak_allocated", group="memory")
        for name, label in {
            "peak_allocated": "Peak allocated memory",
            "peak_rss": "Peak process memory (RSS)",
            "device_used": "Device memory",
            "parameter": "Weights",
            "gradient": "Gradients",
            "optimizer": "Optimizer state",
            "saved": "Saved for backward",
            "algorithm": "Buckets and buffers",
        }.items()
        for table in ("peaks", "memory", "training_runs", "batch_norms")
    ),
)
SETTINGS_HELP = {
    "name": "combination of settings, measured once per launch",
    "status": "worst status over the cell's launches",
    "benchmark": "program that measures",
    "message_bytes": "bytes per call, counted as in nccl-tests",
    "shape": "nodes \N{MULTIPLICATION SIGN} {ranks} per node",
    "stack": "software environment: host or container, with its environment variables",
    "strategy": "how gradients are synchronized",
    "bucket": "gradient bytes per all-reduce",
    "backend": "communication library",
    "num_ok": "launches with a valid record / planned launches",
}


def with_derived(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables with three more: memory of all benchmarks, and between-launch ranges by what was timed.

    launch_ranges.csv has pipelined windows where there are any. The main number of a training run is its total.
    """
    measurements, ranges = tables["measurements"], tables["launch_ranges"][["cell", "range_ratio"]]
    ok = measurements[measurements["status"] == "ok"]
    calls = ok[ok["cell"].isin(tables["collectives"].dropna(subset="pipelined_s")["cell"])]
    runs = tables["epochs"].groupby(["cell", "repeat"], as_index=False)["epoch_s"].sum()
    totals = _ranges(runs["cell"], runs["epoch_s"])
    return {
        **tables,
        "peaks": ok[["cell", *MEMORY_BYTES]].groupby("cell", as_index=False).max(),
        "main_ranges": pd.concat([ranges[~ranges["cell"].isin(totals["cell"])], totals]),
        "blocking_ranges": _ranges(calls["cell"], calls["p50_s"]),
    }


def _ranges(cells: pd.Series, seconds: pd.Series) -> pd.DataFrame:
    """Return (maximum - minimum) / median of each cell with two known times or more."""
    by_cell = seconds.loc[cells.index].dropna().astype(float).groupby(cells)
    found = by_cell.agg(["count", "median", "min", "max"]).query("count > 0")
    rows = [
        {"cell": cell, "range_ratio": (high - low) / median if num > 1 else None}
        for cell, num, median, low, high in found.itertuples(name=None)
    ]
    return make_table(rows, {"cell": TEXT, "range_ratio": REAL})
