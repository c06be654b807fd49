"""The metrics of cells: columns of cells.csv, and how each is computed. Definitions: docs/metrics.md.

A metric is a column of measurements.csv over launches (`source`, `over`), or a formula of other metrics. Rates are
never averaged: times are averaged over launches, and rates are derived from the mean.
"""

from dataclasses import replace

import numpy as np

from regatta.core.statistics import PERCENTILES
from regatta.core.text import is_unknown
from regatta.kit.columns import EACH, FLAG, MICROSECONDS, PIPELINED, REAL, SYNCHRONIZED, TEXT, WHOLE, Column, Over
from regatta.store.csv_files import result_column
from regatta.store.records import MEMORY_BYTES
from regatta.tables import formulas
from regatta.tables.bandwidth import ALGBW, BUSBW, PEAK, PEAK_SHARE, PIPELINED_RATES
from regatta.tables.baselines import BASELINE, BASELINE_RATE, EFFICIENCY, EFFICIENCY_KIND, GRADE, PARTS_OF_LOSS
from regatta.tables.estimates import numbers, reduced
from regatta.tables.reported import BETTER, SLOWEST, UNIT, VALUE

STEP_OF_MODEL, SCRIPTS, CALLS, PROGRAMS = ("train_step",), ("script",), ("collective",), ("program",)
RUNS, NORMS, STEPS = ("train_run",), ("sync_batchnorm",), (*STEP_OF_MODEL, *SCRIPTS)
MAIN = {"is_shown": True, "is_main": True}  # of a column with the time of a cell
TIME = {"better": "smaller", "interval": "interval"}
MS, US = {"shown_as": "ms"}, {"shown_as": MICROSECONDS}
MILLION_PER_HOUR, TFLOP = 10**6 / 3600, 10**12


# Times.


STEP = Column(
    *("step_s", "step time"),
    **TIME | MS | MAIN,
    note=PIPELINED,
    table="throughput",
    help="T: primary step time, mean over launches; pipelined windows, slowest rank. For a script: time"
    " between optimizer steps",
    benchmarks=STEPS,
    formula=lambda values: values.primary,
)
CALL = Column(
    *("time_s", "time per call"),
    **TIME | US | MAIN,
    help="t: primary time of a call or iteration, mean over launches; slowest rank. For collectives, from"
    " pipelined windows",
    formula=lambda values: values.primary.where(~values.is_of(*STEPS, *RUNS, *PROGRAMS)),
)
LATENCY = Column(
    *("latency_s", "latency"),
    **TIME | US,
    note=SYNCHRONIZED,
    help="time of a blocking call: mean over launches of `p50_s`, slowest rank",
    source="p50_s",
    over=Over.GEOMETRIC,
    benchmarks=CALLS,
)
WINDOW = Column(
    "pipelined_s",
    interval="interval",
    help="time per call of many calls issued back to back, with one wait at the end: mean over launches of"
    " `window_step_s`",
    source="window_step_s",
    over=Over.GEOMETRIC,
    benchmarks=CALLS,
)
TOTAL = Column(
    *("total_s", "total time"),
    **TIME | MAIN,
    note="sum of epochs",
    help="sum over epochs of `epoch_s`, then the mean over launches. Excludes setup and reading the data",
    source="total_s",
    over=Over.GEOMETRIC,
    benchmarks=RUNS,
)
NAMES = {time: time.removesuffix("_s") for time in ("p50_s", *PERCENTILES)}
PERCENTILE = {"better": "smaller", "note": SYNCHRONIZED, "figures": 4, "over": Over.MEDIAN_OF_ALL, "benchmarks": STEPS}
PERCENTILE |= {
    "help": "time of a single step: median over launches of each launch's percentile. Empty if any launch has too few"
    " steps. Using only launches with enough steps would select the faster ones"
}
CALL_TIMES = tuple(
    Column(
        f"call_{time}", f"step time {name}", key=f"step_{name}_ms", table="percentiles", source=time, **PERCENTILE | MS
    )
    for time, name in NAMES.items()
)
CALL_P50, *_ = CALL_TIMES
OF_STEP = {"table": "steps", "benchmarks": STEP_OF_MODEL}
OF_CALLS = {"better": "smaller", "note": SYNCHRONIZED, "over": Over.MEDIAN} | OF_STEP
OF_CALLS |= {"help": "mean and standard deviation of single steps: medians over launches"}
CALL_MEAN = Column("step_mean_s", "step time mean", source="mean_s", **OF_CALLS | MS)
CALL_SD = Column("step_std_s", "step time SD", source="std_s", **OF_CALLS | MS)
PART_NAMES = "whole_step_s", "no_sync_s", "communication_s", "host_wait_s", "communication_stream_s", "exposed_stream_s"
SAME = "median over launches of the column of the same name in `measurements.csv`"
PARTS = tuple(
    result_column(name, "parts_ns", table="steps", help=SAME, source=name, over=Over.MEDIAN, benchmarks=STEPS)
    for name in PART_NAMES
)
PASS = "means over launches of the columns of the same name. Means are not additive: `time_s` is not their sum"
PASSES = tuple(
    result_column(
        *(f"{name}_s", "parts_ns"),
        **TIME | US,
        note=SYNCHRONIZED,
        benchmarks=NORMS,
        help=PASS,
        source=f"{name}_s",
        over=Over.GEOMETRIC,
    )
    for name in ("forward", "backward")
)
EPOCH = "median over epochs of `train_s` and `test_s` in each launch, then the median over launches"
EPOCH_TIMES = tuple(
    Column(name, label, better="smaller", help=EPOCH, source=name, over=Over.MEDIAN, benchmarks=RUNS)
    for name, label in (("epoch_train_s", "train time per epoch"), ("epoch_test_s", "test time per epoch"))
)


# Rates and costs of steps.

RATE = {"table": "throughput", "better": "larger", "benchmarks": STEPS}
COST = {"table": "throughput", "benchmarks": STEP_OF_MODEL} | TIME
OF_TOKENS = {"applies": lambda row: row.benchmark in SCRIPTS or not is_unknown(row.context_length)}
THROUGHPUT = Column(
    *("throughput_samples_per_s", "throughput"),
    **RATE,
    interval="interval",
    help="X(n) = n b / T, for n {ranks} of batch size b, or of `samples_per_step` of a script. Its lower bound uses the"
    " upper bound of T",
    formula=lambda values: values["step_s"].rate(values.world_size * numbers(cell.samples for cell in values.cells)),
)
PER_RANK = Column(
    *("throughput_per_gpu_samples_per_s", "throughput per {rank}"),
    **RATE,
    help="X(n)/n",
    key="throughput_per_rank",
    is_shown=True,
    formula=lambda values: values["step_s"].rate(values.parameter("batch_size")).mean,
)
TOKENS = Column(
    *("throughput_tokens_per_s", "throughput"),
    **RATE | OF_TOKENS,
    help="X(n) × `context_length`, or n `tokens_per_step` / T of a script. Empty for images",
    formula=formulas.token_rate,
)
COST_OF_SAMPLES = Column(
    *("cost_hours_per_million_samples", "cost"),
    **COST,
    help="{hours} per million samples: n T / (n b) × 10⁶ / 3600",
    formula=lambda values: values["step_s"].times(MILLION_PER_HOUR / values.parameter("batch_size")),
)
COST_OF_TOKENS = Column(
    *("cost_hours_per_million_tokens", "cost"),
    **COST | OF_TOKENS,
    help="{hours} per million tokens: cost of samples / `context_length`. Empty for images",
    formula=lambda values: values[COST_OF_SAMPLES.name].times(1 / values.parameter("context_length")),
)
FLOPS = Column(
    *("flops_per_sample", "", WHOLE),
    help="floating-point operations of the forward and backward pass for one sample. Definition: docs/metrics.md",
    benchmarks=STEP_OF_MODEL,
    formula=lambda values: np.where(
        np.isnan(values["step_s"].mean), np.nan, numbers(values.agreed("flops_per_sample"))
    ),
)
COMPUTE = Column(
    *("compute_per_gpu_tflop_per_s", "compute rate per {rank}"),
    **RATE,
    help="`flops_per_sample` × b / T / 10¹²: model operations of one {rank}",
    formula=lambda values: values["flops_per_sample"] * values.parameter("batch_size") / values["step_s"].mean / TFLOP,
)


PEAK_DTYPE, PEAK_RATE = (
    Column(name, type=kind, help=text, benchmarks=STEP_OF_MODEL, formula=formulas.of_peak(field))
    for name, kind, text, field in (
        ("peak_dtype", TEXT, "math mode of the peak", "dtype"),
        ("peak_tflop_per_s", REAL, "peak of one GPU in the cluster file", "tflop_per_s"),
    )
)
MFU = Column(
    *("mfu_ratio", "MFU"),
    **RATE,
    shown_as="%",
    help="model FLOP/s utilization: `compute_per_gpu_tflop_per_s` / `peak_tflop_per_s`, that of the fastest math mode"
    " that torch's settings allow; a multiply-add counts as two operations. Empty if GPU, settings or peak are unknown",
    formula=lambda values: values["compute_per_gpu_tflop_per_s"] / numbers(values["peak_tflop_per_s"]),
)
RATES = tuple(
    Column(
        *(f"{name}_per_gpu_samples_per_s", f"rate per {{rank}} at {name}"),
        better="larger",
        figures=4,
        table="percentiles",
        benchmarks=STEP_OF_MODEL,
        help="b / that time: the rate of one {rank}, as in PyTorch's DDP benchmark. At p95 it is the rate of slow"
        " steps; it is never a percentile or a mean of rates",
        formula=lambda values, time=time: values.parameter("batch_size") / values[f"call_{time}"],
    )
    for time, name in NAMES.items()
)
NUM_SAMPLES = Column(
    *("num_samples", "timed steps", WHOLE),
    table="percentiles",
    help="timed steps of the launch with the fewest; determines which percentiles are available",
    source="num_iterations",
    over=Over.LEAST,
    benchmarks=STEP_OF_MODEL,
)


# Gradient communication, and the alternating steps of scripts.


OF_SYNC = OF_STEP | {"applies": lambda row: row.nodes * row.gpus_per_node > 1 and row.strategy != "fsdp"}
EXPOSED = Column(
    *("exposed_s", "exposed communication"),
    **OF_SYNC | MS | {"better": "smaller", "interval": "exposed_interval"},
    help="`whole_step_s` − `no_sync_s` in each launch, then the arithmetic mean over launches. Includes all costs of"
    " synchronization, such as copies into buckets. Can be negative if it is smaller than the noise",
    formula=formulas.exposed_time,
)
EXPOSED_KIND = Column(
    "exposed_interval", "", TEXT, **OF_STEP, help="kind of its interval", formula=formulas.exposed_kinds
)
EXPOSED_SHARE = Column(
    *("exposed_share_ratio", "exposed share of the step"),
    **OF_SYNC,
    shown_as="%",
    better="smaller",
    key="exposed_percent",
    help="exposed / `whole_step_s` in each launch, then the arithmetic mean over launches",
    formula=formulas.exposed_over("whole_step_s"),
    of_launch=formulas.exposed_share,
)
HIDDEN = Column(
    *("hidden_ratio", "hidden communication"),
    **OF_SYNC,
    shown_as="%",
    better="larger",
    help="1 − exposed / `communication_s` in each launch, then the arithmetic mean over launches: the share of"
    " communication that overlaps with computation. Negative if synchronization lengthens the step by more than it"
    " takes alone",
    formula=lambda values: 1 - formulas.exposed_over("communication_s")(values),
)
SCRIPT_EXPOSED = Column(
    *("script_exposed_s", "exposed communication"),
    **MS | {"better": "smaller", "benchmarks": SCRIPTS},
    help="for a script: `whole_step_s` − `no_sync_s`, each the median over launches of alternating steps",
    formula=lambda values: values["whole_step_s"] - values["no_sync_s"],
)
MAXIMUM = {"help": "largest over launches", "over": Over.LARGEST}
NUM_CALLS = result_column("num_calls", source="num_calls", **OF_STEP | MAXIMUM)


# Memory and errors.

MEMORY = tuple(
    replace(column, source=column.name, over=Over.LARGEST, help=f"{column.help}; largest over launches")
    for column in (result_column(name, "memory") for name in MEMORY_BYTES)
)
ALL_PARTS = Column(
    *("part_bytes", "all parts", WHOLE),
    shown_as="MiB",
    better="smaller",
    help="sum of the known values of `parameter_bytes`, `gradient_bytes`, `optimizer_bytes`,"
    " `saved_bytes` and `algorithm_bytes`. Empty if `saved_bytes` is unknown",
    group="memory",
    benchmarks=STEP_OF_MODEL,
    formula=formulas.bytes_of_parts,
)
ERROR_HELP = (
    "largest absolute and relative difference of an all_reduce from the float64 sum. Maximum over ranks, launches and"
    " at most 262,144 evenly spaced elements. Inputs are in (0, 1], rounded to the dtype, so there is no cancellation"
)
OF_SUM = {"benchmarks": CALLS, "applies": lambda row: row.operation == "all_reduce"}
ERRORS = tuple(
    result_column(name, help=ERROR_HELP, source=name, over=Over.LARGEST, **OF_SUM)
    for name in ("max_abs_error", "max_rel_error")
)
LAYER_ERRORS = tuple(
    result_column(f"largest_{name}_error", source=f"largest_{name}_error", benchmarks=NORMS, **MAXIMUM)
    for name in ("output", "input_gradient")
)


# Training runs.

LAST = {"interval": "interval", "over": Over.ARITHMETIC, "benchmarks": RUNS}
LAST |= {"help": "value after the last epoch: arithmetic mean over launches"}
LOSSES = tuple(
    Column(f"{name}_loss", f"{name} loss", better="smaller", figures=4, source=f"{name}_loss", **LAST)
    for name in ("train", "test")
)
ACCURACY = Column(
    *("accuracy_ratio", "accuracy"), shown_as="%", better="larger", is_shown=True, source="accuracy_ratio", **LAST
)
RUN_THROUGHPUT = Column(
    *("training_run_throughput_samples_per_s", "throughput"),
    better="larger",
    benchmarks=RUNS,
    help="`train_samples` / `epoch_train_s`",
    formula=lambda values: reduced(values.of_launches("train_samples"), np.max) / values["epoch_train_s"],
)
HAS_SAME_LOSSES = Column(
    *("has_same_losses", "", FLAG),
    help="whether all launches have identical train and test losses in all epochs, to the last digit. Empty for a"
    " single launch. On a CPU, false causes a warning in the report; on a GPU, differences are expected",
    benchmarks=RUNS,
    formula=formulas.has_same_losses,
)


# Variation between launches.

VARIATION = {"shown_as": "ms", "table": "variation"}
MEDIAN_TIME = Column(
    *("median_s", "time"),
    **VARIATION | MAIN,
    help="median over launches of the primary time",
    formula=lambda values: reduced(values.primary_times, np.median),
)
FASTEST, SLOWEST_LAUNCH = (
    Column(
        name, label, **VARIATION, help=text, formula=lambda values, reduce=reduce: reduced(values.primary_times, reduce)
    )
    for name, label, text, reduce in (
        ("min_s", "fastest launch", "smallest primary time of a launch", np.min),
        ("max_s", "slowest launch", "largest primary time of a launch", np.max),
    )
)
RANGE = Column(
    *("range_ratio", "variation between launches"),
    shown_as="%",
    better="smaller",
    note="of pipelined times where recorded",
    help="(`max_s` − `min_s`) / `median_s` over the primary times of launches; empty for one launch",
    table="variation",
    is_shown=True,
    formula=lambda values: formulas.range_ratio(values.primary_times),
)
LATENCY_RANGE = Column(
    *("latency_range_ratio", "variation of latency between launches"),
    shown_as="%",
    better="smaller",
    help="(largest − smallest) / median of `p50_s` over launches. Empty without pipelined times",
    key="blocking_range_percent",
    benchmarks=CALLS,
    formula=formulas.range_of_latencies,
)


# In the order of cells.csv.
METRICS = (
    *(STEP, replace(CALL, shown_as=EACH, key="call"), TOTAL, VALUE, SLOWEST, UNIT, BETTER, LATENCY, WINDOW),
    *(*CALL_TIMES, CALL_MEAN, CALL_SD, NUM_SAMPLES),
    *(THROUGHPUT, PER_RANK, TOKENS, RUN_THROUGHPUT, *RATES, COST_OF_SAMPLES, COST_OF_TOKENS),
    *(FLOPS, COMPUTE, PEAK_DTYPE, PEAK_RATE, MFU),
    *(BASELINE, BASELINE_RATE, EFFICIENCY, EFFICIENCY_KIND, GRADE, *PARTS_OF_LOSS),
    *(ALGBW, BUSBW, PEAK_SHARE, PEAK, *PIPELINED_RATES),
    *(*PARTS, EXPOSED, EXPOSED_KIND, EXPOSED_SHARE, HIDDEN, SCRIPT_EXPOSED, NUM_CALLS, *PASSES),
    *(*EPOCH_TIMES, *LOSSES, ACCURACY, HAS_SAME_LOSSES, *MEMORY, ALL_PARTS, *ERRORS, *LAYER_ERRORS),
    *(MEDIAN_TIME, FASTEST, SLOWEST_LAUNCH, RANGE, LATENCY_RANGE),
)
