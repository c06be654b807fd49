"""Throughput and efficiency of training steps: tables/scaling.csv and efficiencies.csv. Definitions: docs/metrics.md.

Rates are never averaged: times per step are averaged over launches, and rates are derived from the mean.
"""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from regatta.core.statistics import Estimate, fast_median, interval_values
from regatta.core.text import is_unknown
from regatta.core.verdicts import judge_all
from regatta.kit.columns import PIPELINED, TEXT, WHOLE, Column, Columns
from regatta.store.collect import cell_row
from regatta.store.csv_files import STEP_COLUMNS, described, make_table
from regatta.topics.base import cells_of, launch_means, values_of_cells, with_primary
from regatta.topics.comparison.tables import Times, sides_of, times_by_cell
from regatta.topics.scaling.utilization import UTILIZATION_COLUMNS, utilization

STEP = Column(
    *("step_s", "step time"),
    shown_as="ms",
    table="throughput",
    better="smaller",
    interval="interval",
    note=PIPELINED,
    help="T: primary time of a step, mean over launches; pipelined windows, slowest rank",
    is_shown=True,
    is_main=True,
)
RATE = {"table": "throughput", "better": "larger"}
THROUGHPUT = Column(
    *("throughput_samples_per_s", "throughput"),
    **RATE,
    interval="interval",
    help="X(n) = n b / T, for n {ranks} of batch size b. Its low end is from the high end of T",
)
PER_RANK = Column(
    *("throughput_per_gpu_samples_per_s", "throughput per {rank}"),
    **RATE,
    help="X(n)/n",
    key="throughput_per_rank",
    is_shown=True,
)
TOKENS = Column("throughput_tokens_per_s", "throughput", **RATE, help="X(n) × `context_length`. Empty for images")
COST = {"label": "cost", "better": "smaller", "interval": "interval"}
OF_SAMPLES = "{hours} per million samples: n T / (n b) × 10⁶ / 3600"
OF_TOKENS = "{hours} per million tokens: the same / `context_length`. Empty for images"
COST_OF_SAMPLES = Column("cost_hours_per_million_samples", **COST, help=OF_SAMPLES)
COST_OF_TOKENS = Column("cost_hours_per_million_tokens", **COST, help=OF_TOKENS)
REACHED = "`flops_per_sample` × b / T / 10¹²: model operations of one {rank}"
COMPUTE = Column("compute_per_gpu_tflop_per_s", "compute rate per {rank}", **RATE, help=REACHED)
MFU = Column(
    *("mfu_ratio", "MFU"),
    **RATE,
    shown_as="%",
    help="model FLOP/s utilization: `compute_per_gpu_tflop_per_s` / `peak_tflop_per_s`, that of the fastest math mode"
    " that torch's settings allow; a multiply-add counts as two operations. Empty if GPU, settings or peak are unknown",
)


def is_baseline(row: object) -> bool:
    return not is_unknown(row.baseline) and row.cell == row.baseline


OF_BASELINE = {"table": "efficiency", "better": "larger"}
EFFICIENCY = Column(
    *("efficiency_ratio", "efficiency"),
    **OF_BASELINE,
    shown_as="%",
    interval="efficiency_interval",
    help="(X(n)/n) / (X₀/n₀): throughput per {rank} relative to that of the baseline cell, which has the same workload,"
    " stack and backend. Its interval includes the variation of both cells",
    applies=lambda row: not is_baseline(row),
    is_shown=True,
)
DDP = Column(
    *("ddp_ratio", "DDP"),
    **OF_BASELINE,
    help="X(1) / X_none(1): cost of DDP on one {rank}",
    applies=lambda row: row.strategy != "none",
)
INTRA_NODE = Column(
    *("intra_node_ratio", "intra-node"),
    **OF_BASELINE,
    help="X(g) / (g X(1)): cost of additional {ranks} in a node. Empty for g = 1",
    applies=lambda row: row.gpus_per_node > 1,
)
INTER_NODE = Column(
    *("inter_node_ratio", "inter-node"),
    **OF_BASELINE,
    help="X(k g) / (k X(g)): cost of additional nodes. Empty for k = 1",
    applies=lambda row: row.nodes > 1,
)
PARTS = (DDP, INTRA_NODE, INTER_NODE)
SCALING = Columns(
    *described(STEP_COLUMNS),
    STEP,
    Column("step_median_s", help="median over launches of the time per step"),
    *(THROUGHPUT, PER_RANK, TOKENS, COST_OF_SAMPLES, COST_OF_TOKENS),
    Column(
        *("flops_per_sample", "", WHOLE),
        help="floating-point operations of the forward and backward pass for one sample: see below",
    ),
    COMPUTE,
    Column("peak_dtype", type=TEXT, help="math mode of the peak"),
    Column("peak_tflop_per_s", help="peak of one GPU in the cluster file"),
    MFU,
    Column("baseline", type=TEXT, help="the baseline's cell"),
    Column("baseline_samples_per_s", help="X₀: throughput of the baseline"),
    EFFICIENCY,
    Column(
        *("efficiency_interval", "", TEXT),
        help="kind of the efficiency's interval: `interval` only if both cells have 3 launches",
    ),
    Column(
        *("grade", "", TEXT),
        help="above 0.9 excellent, above 0.8 good, else poor. Empty for the baseline and in three cases, which the"
        " report names: no interval (`one launch`); an interval that includes 0.9 or 0.8 (`good or poor`); an interval"
        " wider than 20 % of the efficiency (`uncertain`). On CPUs, the report (not this column) also omits the grade"
        " if threads per rank differ from the baseline's",
    ),
    *PARTS,
)
NEVER_NULL = ("model", "strategy", "nodes", "gpus_per_node")  # never null in a train_step cell; they narrow the search


class BaselineLookup:
    """Find the cell that a cell is compared with: the same but for some changes, such as one rank and no DDP."""

    def __init__(self, cells: list[dict]) -> None:
        self.specs = {cell["id"]: cell["spec"] for cell in cells}
        self._flat = {cell: _flat(spec) for cell, spec in self.specs.items()}
        values: dict[str, set] = {}
        for name, value in (item for spec in self.specs.values() for item in spec["parameters"].items()):
            values.setdefault(name, set()).add(value)
        self._varied_first = sorted(values, key=lambda name: -len(values[name]))
        self._like: dict[tuple, list[str]] = {}
        for cell, flat in self._flat.items():
            self._like.setdefault(_key(flat), []).append(cell)

    def find(self, spec: dict, changes: dict) -> str | None:
        """Return the one cell that equals `spec` but for `changes` (to shape or parameters), or None.

        A parameter that is null in the found cell has no effect there, so it need not be equal.
        """
        wanted = _flat(spec) | changes
        names = [*(name for name in self._varied_first if name in wanted), *wanted]  # most differ in the first

        def is_like(found: dict) -> bool:
            return wanted.keys() == found.keys() and all(
                found[name] == wanted[name] or (found[name] is None and name not in changes) for name in names
            )

        matches = [cell for cell in self._like.get(_key(wanted), []) if is_like(self._flat[cell])]
        return matches[0] if len(matches) == 1 else None


def _key(flat: dict) -> tuple:
    return flat["stack"]["name"], *(flat.get(name) for name in NEVER_NULL)


def _flat(spec: dict) -> dict:
    return {name: value for name, value in spec.items() if name != "parameters"} | spec["parameters"]


EXCELLENT, GOOD = 0.9, 0.8  # efficiency above which the words are given
WIDE_RATIO = 0.2  # an efficiency whose range is wider than this share of it is uncertain
ONE_RANK = {"nodes": 1, "gpus_per_node": 1}
NO_DDP = ONE_RANK | {"strategy": "none"}


def scaling_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    cells, steps, rows = cells_of(campaign, "train_step"), StepTimes(measurements), []
    lookup = BaselineLookup(cells)
    baselines = {cell["id"]: lookup.find(cell["spec"], campaign["baseline"]) for cell in cells}
    pairs = [(lookup.specs[cell], lookup.specs.get(of), cell, of) for cell, of in baselines.items()]
    ratios = efficiencies(pairs, steps)
    ok = measurements.loc[measurements["status"] == "ok", ["cell", *UTILIZATION_COLUMNS]]
    launches = {name: values_of_cells(ok, name) for name in UTILIZATION_COLUMNS}
    for cell, ratio in zip(cells, ratios, strict=True):
        row = {"num_planned": campaign["repeats"]} | cell_row(cell)
        row |= _rates(cell, steps) | _efficiency_columns(baselines[cell["id"]], cell["id"], ratio, lookup, steps)
        row |= _parts(cell["spec"], lookup, steps)
        of_cell = {name: values.get(cell["id"], []) for name, values in launches.items()}
        rows.append(row | utilization(campaign, cell["spec"], of_cell, row["step_s"]))
    return make_table(rows, SCALING)


class StepTimes:
    """The primary times of all cells. means: over launches, by cell. launches: repeat -> (batch, seconds), by cell."""

    def __init__(self, measurements: pd.DataFrame) -> None:
        self.means = launch_means(with_primary(measurements), "primary_s")
        self.launches: dict[str, Times] = times_by_cell(measurements)


def is_too_wide(efficiency_ratio: float, low: float | None, high: float | None) -> bool:
    """Return whether the range of an efficiency is too wide for a conclusion; False if it is unknown."""
    return not (is_unknown(low) or is_unknown(high)) and high - low > WIDE_RATIO * efficiency_ratio


def grade(efficiency_ratio: float, low: float | None = None, high: float | None = None) -> str | None:
    """Return the word for an efficiency, or None if its range is unknown, too wide or crosses a limit."""
    if low is None or high is None:
        return None  # otherwise one launch would get a firmer statement than six
    is_on_both_sides = any(low <= limit < high for limit in (EXCELLENT, GOOD))
    return None if is_on_both_sides or is_too_wide(efficiency_ratio, low, high) else _word(efficiency_ratio)


def grades_within(low: float, high: float) -> list[str]:
    """Return the words that a range covers, the best first."""
    words = ["excellent", "good", "poor"]
    return words[words.index(_word(high)) : words.index(_word(low)) + 1]


def _word(efficiency_ratio: float) -> str:
    if efficiency_ratio > EXCELLENT:
        return "excellent"
    return "good" if efficiency_ratio > GOOD else "poor"


def _rates(cell: dict, steps: StepTimes) -> dict:
    spec, step = cell["spec"], steps.means[cell["id"]]
    batch, world_size = spec["parameters"]["batch_size"], spec["nodes"] * spec["gpus_per_node"]
    seconds = [seconds for _, seconds in steps.launches[cell["id"]].values()]
    return {
        "num_launches": step.num,
        "interval": step.kind,
        **interval_values("step", "s", step),
        "step_median_s": fast_median(seconds) if seconds else None,
        "throughput_samples_per_s": _rate(world_size * batch, step.mean),
        "throughput_low_samples_per_s": _rate(world_size * batch, step.high),
        "throughput_high_samples_per_s": _rate(world_size * batch, step.low),
        "throughput_per_gpu_samples_per_s": _rate(batch, step.mean),
        **_costs(step, batch, spec["parameters"].get("context_length")),
    }


def _costs(step: Estimate, batch: int, context_length: int | None) -> dict:
    """Return ranks × hours per million samples, and per million tokens of a language model, with their intervals."""
    hours = step.times(10**6 / 3600 / batch)
    costs = interval_values("cost", "hours_per_million_samples", hours)
    if context_length is None:
        return costs
    return costs | interval_values("cost", "hours_per_million_tokens", hours.times(1 / context_length))


def efficiencies(pairs: list[tuple[dict, dict | None, str, str | None]], steps: StepTimes) -> list[Estimate]:
    """Return throughput per GPU relative to the baseline's, (b/T) / (b0/T0), of all pairs of one table.

    pairs: specs of cell and baseline, and their ids; without a baseline None. With weak scaling b = b0: T0/T. With
    strong scaling b = b0/n on n ranks: T(1) / (n T(n)). The interval is that of a moderated contrast (verdicts.py).
    """
    known = [i for i, (*_, cell, baseline) in enumerate(pairs) if baseline not in (None, cell)]
    compared = [sides_of(*(steps.launches[name] for name in pairs[i][2:])) for i in known]
    compared = [replace(pair, allocations=((), ())) for pair in compared]
    found = [Estimate(0) for _ in pairs]
    for i, verdict in zip(known, judge_all(compared, [None] * len(compared)), strict=True):
        batch, batch_0 = (spec["parameters"]["batch_size"] for spec in pairs[i][:2])
        found[i] = verdict.ratio.times(batch / batch_0)
    return found


def _efficiency_columns(
    baseline: str | None, cell: str, ratio: Estimate, lookup: BaselineLookup, steps: StepTimes
) -> dict:
    """Return the columns of the baseline. A baseline itself has efficiency 1, without range and grade."""
    if baseline is None:
        return {"baseline": None}
    spec, base = lookup.specs[baseline], steps.means[baseline]
    work = spec["nodes"] * spec["gpus_per_node"] * spec["parameters"]["batch_size"]
    row = {"baseline": baseline, "baseline_samples_per_s": _rate(work, base.mean)}
    if baseline == cell:
        return row | {"efficiency_ratio": None if base.mean is None else 1.0}
    word = None if ratio.mean is None else grade(ratio.mean, ratio.low, ratio.high)
    return row | interval_values("efficiency", "ratio", ratio) | {"efficiency_interval": ratio.kind, "grade": word}


def _parts(spec: dict, lookup: BaselineLookup, steps: StepTimes) -> dict:
    """Return where efficiency is lost: DDP X(1)/X_none(1), intra-node X(g)/(g X(1)), inter-node X(kg)/(k X(g)).

    A part that this shape does not have (no second GPU or node) and one with a missing cell are both unknown.
    """

    def step_s(changes: dict) -> float | None:
        cell = lookup.find(spec, changes)
        return None if cell is None else steps.means[cell].mean

    unwrapped, one_gpu, one_node, all_nodes = map(step_s, (NO_DDP, ONE_RANK, {"nodes": 1}, {}))
    is_wrapped = spec["parameters"]["strategy"] != "none"
    return {
        "ddp_ratio": _ratio(unwrapped, one_gpu) if is_wrapped else None,
        "intra_node_ratio": _ratio(one_gpu, one_node) if spec["gpus_per_node"] > 1 else None,
        "inter_node_ratio": _ratio(one_node, all_nodes) if spec["nodes"] > 1 else None,
    }


def _rate(work: float, seconds: float | None) -> float | None:
    return None if seconds is None else work / seconds


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


WEAK, STRONG = "weak", "strong"
EFFICIENCIES = Columns(
    Column("cell", type=TEXT, help="the cell"),
    *(column for column in SCALING.declared if column.name in ("num_planned", "num_launches")),
    Column("scaling", type=TEXT, help="weak: the same batch size per {rank}; strong: the same global batch size"),
    Column("against", type=TEXT, help="name of the baseline"),
    Column("baseline", type=TEXT, help="the baseline's cell"),
    Column("num_baseline_launches", type=WHOLE, help="number of its ok launches"),
    Column("baseline_step_s", help="T₀: time per step of the baseline"),
    replace(
        EFFICIENCY, interval="interval", applies=None, help="weak: T₀ / T. Strong: T₀ / (n T), with T₀ on one {rank}"
    ),
    Column("interval", type=TEXT, help="kind of the efficiency's interval"),
)


def efficiencies_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each train_step cell of several ranks and each baseline of it that the campaign has."""
    cells, steps, rows, pairs = cells_of(campaign, "train_step"), StepTimes(measurements), [], []
    lookup = BaselineLookup(cells)
    for cell in cells:
        for scaling, against, changes in baselines_of(cell["spec"]):
            if (baseline := lookup.find(cell["spec"], changes)) is None:
                continue
            base, pair = steps.means[baseline], (cell["spec"], lookup.specs[baseline], cell["id"], baseline)
            row = {"num_planned": campaign["repeats"], "scaling": scaling, "against": against, "baseline": baseline}
            row |= {"num_launches": steps.means[cell["id"]].num, "num_baseline_launches": base.num}
            rows.append(cell_row(cell) | row | {"baseline_step_s": base.mean})
            pairs.append(pair)
    for row, ratio in zip(rows, efficiencies(pairs, steps), strict=True):
        row |= interval_values("efficiency", "ratio", ratio) | {"interval": ratio.kind}
    return make_table(rows, EFFICIENCIES)


def baselines_of(spec: dict) -> Iterator[tuple[str, str, dict]]:
    """Yield (weak or strong, its name, what differs from the cell) for each baseline of a cell; none of one rank."""
    n, parameters = spec["nodes"] * spec["gpus_per_node"], spec["parameters"]
    if n == 1:
        return
    strategy, same_work = parameters["strategy"], {"batch_size": parameters["batch_size"] * n}
    if strategy != "none":
        yield WEAK, "none, 1 rank", NO_DDP
    yield WEAK, f"{strategy}, 1 rank", ONE_RANK
    if spec["nodes"] > 1:
        yield WEAK, f"{strategy}, 1 node", {"nodes": 1}
    if strategy != "none":
        yield STRONG, "none, 1 rank", NO_DDP | same_work
    yield STRONG, f"{strategy}, 1 rank", ONE_RANK | same_work
