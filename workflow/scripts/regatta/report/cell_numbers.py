"""The numbers of a cell that the page lists, in the order of its table, and the tables that they come from."""

from dataclasses import dataclass

IN_MILLISECONDS, IN_MICROSECONDS, IN_PERCENT, IN_MIB = 1e3, 1e6, 100, 2**-20


@dataclass(frozen=True)
class Number:
    """A number of a cell. Its column in the table is `<name>_<unit>`, or with `_low_` and `_high_` for its interval.

    label: with the unit after `factor`; {rank} is GPU or process. interval: the column that says which kind it is.
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


TIMES = ("step_ms", "latency_us", "total_s", "both_passes_us")  # a cell with one of these needs no median_ms
# In the order of the table; the first known one is the main number of a cell. A key may be a column of several tables.
NUMBERS = (
    Number("step_ms", "Step time (ms)", "scaling", "step", "s", IN_MILLISECONDS, is_shown=True),
    Number("latency_us", "Latency (µs)", "collectives", "latency", "s", IN_MICROSECONDS, is_shown=True),
    Number("total_s", "Total time (s)", "training_runs", "total", "s", is_shown=True),
    Number("both_passes_us", "Forward and backward (µs)", "batch_norms", "time", "s", IN_MICROSECONDS, is_shown=True),
    Number("step_p50_ms", "Step time p50 (ms)", "percentiles", "p50", "s", IN_MILLISECONDS),
    Number(
        *("efficiency_percent", "Efficiency (%)", "scaling", "efficiency", "ratio", IN_PERCENT),
        is_shown=True,
        interval="efficiency_interval",
    ),
    Number("throughput", "Throughput (samples/s)", "scaling", "throughput", "samples_per_s"),
    Number("throughput", "Throughput (samples/s)", "training_runs", "throughput", "samples_per_s"),
    Number(
        *("throughput_per_rank", "Throughput per {rank} (samples/s)", "scaling", "throughput_per_gpu"),
        "samples_per_s",
        is_shown=True,
    ),
    Number("hours_per_million", "{hours} per million samples", "", "", ""),  # derived: see _with_hours
    Number("mfu_percent", "MFU (%)", "scaling", "mfu", "ratio", IN_PERCENT),
    Number("exposed_ms", "Exposed communication (ms)", "strategies", "exposed", "s", IN_MILLISECONDS),
    Number(
        *("exposed_percent", "Exposed communication (% of step)", "strategies", "exposed_share", "ratio", IN_PERCENT)
    ),
    Number("busbw", "Bus bandwidth (GB/s)", "collectives", "busbw", "gb_per_s", is_shown=True),
    Number("pipelined_us", "Pipelined call (µs)", "collectives", "pipelined", "s", IN_MICROSECONDS),
    Number("pipelined_busbw", "Pipelined bus bandwidth (GB/s)", "collectives", "pipelined_busbw", "gb_per_s"),
    Number("accuracy_percent", "Accuracy (%)", "training_runs", "accuracy", "ratio", IN_PERCENT, is_shown=True),
    Number("median_ms", "Time (ms)", "launch_ranges", "median", "s", IN_MILLISECONDS, is_shown=True),
    Number("range_percent", "Range of launches (%)", "launch_ranges", "range", "ratio", IN_PERCENT, is_shown=True),
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
        for table in ("memory", "training_runs", "batch_norms")
    ),
)
