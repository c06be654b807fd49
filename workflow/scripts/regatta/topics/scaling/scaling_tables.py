"""Throughput and efficiency of training steps: tables/scaling.csv and efficiencies.csv. Definitions: docs/metrics.md.

Rates are never averaged: times per step are averaged over launches, and rates are derived from the mean.
"""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from regatta.core.statistics import Estimate, fast_median, interval_values
from regatta.core.text import is_unknown
from regatta.core.verdicts import Verdict, judge_all
from regatta.kit.columns import PIPELINED, TEXT, WHOLE, Column, Columns
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.store.collect import cell_row
from regatta.store.csv_files import STEP_COLUMNS, described, make_table
from regatta.topics.base import MAIN, primary_means, rows_of_cells, values_of_cells
from regatta.topics.comparison.comparison_tables import Times, sides_of, times_by_cell
from regatta.topics.scaling.utilization import UTILIZATION_COLUMNS, utilization

Pair = tuple[str | None, str | None]  # ids of a cell and of the one that it is compared with
RATE = {"table": "throughput", "better": "larger"}
COST = {"table": "throughput", "better": "smaller", "interval": "interval"}
STEP_HELP = "T: primary step time, mean over launches; pipelined windows, slowest rank"
STEP = Column("step_s", "step time", shown_as="ms", **COST | MAIN, note=PIPELINED, help=STEP_HELP)
X_HELP = "X(n) = n b / T, for n {ranks} of batch size b. Its lower bound uses the upper bound of T"
THROUGHPUT = Column("throughput_samples_per_s", "throughput", **RATE, interval="interval", help=X_HELP)
PER_RANK = Column(
    *("throughput_per_gpu_samples_per_s", "throughput per {rank}"),
    **RATE,
    help="X(n)/n",
    key="throughput_per_rank",
    is_shown=True,
)
TOKENS = Column("throughput_tokens_per_s", "throughput", **RATE, help="X(n) × `context_length`. Empty for images")
OF_SAMPLES = "{hours} per million samples: n T / (n b) × 10⁶ / 3600"
OF_TOKENS = "{hours} per million tokens: the same / `context_length`. Empty for images"
COST_OF_SAMPLES = Column("cost_hours_per_million_samples", "cost", **COST, help=OF_SAMPLES)
COST_OF_TOKENS = Column("cost_hours_per_million_tokens", "cost", **COST, help=OF_TOKENS)
REACHED = "`flops_per_sample` × b / T / 10¹²: model operations of one {rank}"
COMPUTE = Column("compute_per_gpu_tflop_per_s", "compute rate per {rank}", **RATE, help=REACHED)
UTILIZED = (
    "model FLOP/s utilization: `compute_per_gpu_tflop_per_s` / `peak_tflop_per_s`, that of the fastest math mode that"
    " torch's settings allow; a multiply-add counts as two operations. Empty if GPU, settings or peak are unknown"
)
MFU = Column("mfu_ratio", "MFU", **RATE, shown_as="%", help=UTILIZED)


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
DDP_HELP = "X(1) / X_none(1): cost of DDP on one {rank}"
INTRA_HELP = "X(g) / (g X(1)): cost of additional {ranks} in a node. Empty for g = 1"
INTER_HELP = "X(k g) / (k X(g)): cost of additional nodes. Empty for k = 1"
DDP, INTRA_NODE, INTER_NODE = (
    Column(
        f"{label.lower().replace('-', '_')}_ratio",
        label,
        **OF_BASELINE,
        help=text,
        applies=applies,
        note="factor of the efficiency",
    )
    for label, text, applies in (
        ("DDP", DDP_HELP, lambda row: row.strategy != "none"),
        ("intra-node", INTRA_HELP, lambda row: row.gpus_per_node > 1),
        ("inter-node", INTER_HELP, lambda row: row.nodes > 1),
    )
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
        *("grade", "grade", TEXT),
        table="efficiency",
        help="above 0.9 excellent, above 0.8 good, else poor. Empty for the baseline, without an interval, and if the"
        " interval includes 0.9 or 0.8 or is wider than 20 % of the efficiency",
    ),
    *PARTS,
)
EXCELLENT, GOOD = 0.9, 0.8  # efficiency above which the words are given
WIDE_RATIO = 0.2  # an efficiency whose range is wider than this share of it is uncertain
ONE_RANK = {"nodes": 1, "gpus_per_node": 1}
NO_DDP = ONE_RANK | {"strategy": "none"}


class BaselineLookup:
    """Find the cell that a cell is compared with: the same but for some changes, such as one rank and no DDP.

    A parameter that is null in the found cell has no effect there, so it need not be equal. names: fields that may be
    changed, if they are parameters that the user named.
    """

    def __init__(self, cells: Iterable[Cell], names: Iterable[str] = ()) -> None:
        self.cells, self.names = {cell.id: cell for cell in cells}, names
        self._ids: dict[tuple, list[str]] = {}  # by the names and values of what is not null
        for cell in self.cells.values():
            known = {name: value for name, value in self._flat(cell).items() if value is not None}
            self._ids.setdefault((tuple(known), *known.values()), []).append(cell.id)
        self._names = {names for names, *_ in self._ids}

    def find(self, cell: Cell, changes: dict) -> str | None:
        """Return the one cell that equals `cell` but for `changes` (to shape or parameters), or None."""
        wanted, changed = self._flat(cell) | changes, {name for name, value in changes.items() if value is not None}
        keys = [(names, *map(wanted.get, names)) for names in self._names if changed <= set(names)]
        matches = [found for key in keys for found in self._ids.get(key, ())]
        return matches[0] if len(matches) == 1 else None

    def parts(self, cell: Cell) -> dict[str, Pair]:
        """Return by part of the loss the cells whose times it compares: with the part, and without.

        A part that this shape does not have (no second GPU or node) is left out.
        """
        places = (NO_DDP, ONE_RANK, {"nodes": 1}, {})
        unwrapped, one_gpu, one_node, all_nodes = (self.find(cell, changes) for changes in places)
        found = {DDP.name: (one_gpu, unwrapped)} if cell.parameters["strategy"] != "none" else {}
        found |= {INTRA_NODE.name: (one_node, one_gpu)} if cell.gpus_per_node > 1 else {}
        return found | ({INTER_NODE.name: (all_nodes, one_node)} if cell.nodes > 1 else {})

    def _flat(self, cell: Cell) -> dict:
        fields = cell.fields_with(self.names).items()
        return {name: str(value) if isinstance(value, dict | list) else value for name, value in fields}


def scaling_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    means, times = primary_means(measurements), times_by_cell(measurements)
    lookup = BaselineLookup(campaign.cells_of("train_step"))
    pairs = [(name, lookup.find(cell, campaign.baseline)) for name, cell in lookup.cells.items()]
    ok = measurements.loc[measurements["status"] == "ok", ["cell", *UTILIZATION_COLUMNS]]
    launches = {name: values_of_cells(ok, name) for name in UTILIZATION_COLUMNS}
    rows = rows_of_cells(campaign, "train_step", {STEP: means})
    for row, efficiency in zip(rows, efficiency_values(pairs, lookup, times), strict=True):
        name, cell, baseline = row["cell"], lookup.cells[row["cell"]], efficiency["baseline"]
        row |= _rates(cell, means[name]) | efficiency
        row["step_median_s"] = fast_median([s for _, s in times[name].values()]) if row["num_launches"] else None
        if baseline is not None:
            row["baseline_samples_per_s"] = throughput_of(lookup.cells[baseline], means[baseline]).mean
        if row[EFFICIENCY.name] is not None:
            row["grade"] = grade(*(row[end] for end in EFFICIENCY.names))
        for part, pair in lookup.parts(cell).items():
            slow, fast = (None if of is None else means[of].mean for of in pair)
            row[part] = None if slow is None or fast is None else fast / slow
        of_cell = {column: values.get(name, []) for column, values in launches.items()}
        row |= utilization(campaign, cell, of_cell, row[STEP.name])
    return make_table(rows, SCALING)


def is_too_wide(efficiency_ratio: float, low: float | None, high: float | None) -> bool:
    """Return whether the range of an efficiency is too wide for a conclusion; False if it is unknown."""
    return not (is_unknown(low) or is_unknown(high)) and high - low > WIDE_RATIO * efficiency_ratio


def is_wide(row: object) -> bool:
    return is_too_wide(row.efficiency_ratio, row.efficiency_low_ratio, row.efficiency_high_ratio)


def grade(efficiency_ratio: float, low: float | None = None, high: float | None = None) -> str | None:
    """Return the word for an efficiency, or None if its range is unknown, too wide or crosses a limit."""
    if low is None or high is None:
        return None  # otherwise one launch would get a firmer statement than six
    if is_too_wide(efficiency_ratio, low, high) or any(low <= limit < high for limit in (EXCELLENT, GOOD)):
        return None
    return "excellent" if efficiency_ratio > EXCELLENT else "good" if efficiency_ratio > GOOD else "poor"


def samples_of(cell: Cell) -> int | None:
    """Return the samples of one step on one rank; None if they are unknown, as of some scripts."""
    return cell.parameters.get("batch_size", cell.parameters.get("samples_per_step"))


def throughput_of(cell: Cell, step: Estimate) -> Estimate:
    samples = samples_of(cell)
    return step.rate(cell.world_size * samples) if samples else Estimate(0)


def _rates(cell: Cell, step: Estimate) -> dict:
    """Return throughput, and ranks × hours per million samples, or tokens of a language model."""
    batch, context_length = cell.parameters["batch_size"], cell.parameters.get("context_length")
    hours = step.times(10**6 / 3600 / batch)
    row = interval_values("throughput", "samples_per_s", throughput_of(cell, step))
    row |= {PER_RANK.name: step.rate(batch).mean} | interval_values("cost", "hours_per_million_samples", hours)
    if context_length is None:
        return row
    return row | interval_values("cost", "hours_per_million_tokens", hours.times(1 / context_length))


def compare_steps(pairs: list[Pair], times: dict[str, Times], margin: float | None = None) -> dict[Pair, Verdict]:
    """Return the verdicts on the step time of the second cell over that of the first. Others than pairs are left out.

    The interval of a ratio is that of a moderated contrast (verdicts.py). margin: as in `judge_all`.
    """
    known = [pair for pair in pairs if None not in pair and pair[0] != pair[1]]
    sides = [replace(sides_of(*(times[cell] for cell in pair)), allocations=((), ())) for pair in known]
    return dict(zip(known, judge_all(sides, [margin] * len(sides)), strict=True))


def efficiencies(pairs: list[Pair], lookup: BaselineLookup, times: dict[str, Times]) -> list[Estimate]:
    """Return throughput per GPU relative to the baseline's, (b/T) / (b0/T0), of all pairs of one table.

    pairs: cell and baseline. With weak scaling b = b0: T0/T. With strong scaling b = b0/n on n ranks: T(1) / (n T(n)).
    If samples are unknown, steps have equal work.
    """
    found = compare_steps(pairs, times)

    def efficiency(pair: Pair) -> Estimate:
        if pair not in found:
            return Estimate(0)
        samples, base = (samples_of(lookup.cells[name]) for name in pair)
        return found[pair].ratio.times(samples / base if samples and base else 1)

    return [efficiency(pair) for pair in pairs]


def efficiency_values(pairs: list[Pair], lookup: BaselineLookup, times: dict[str, Times]) -> list[dict]:
    """Return the columns on the efficiency of each pair; that of the baseline is 1 by definition, without an interval.

    Parameters: as of `efficiencies`.
    """
    rows = []
    for (name, baseline), ratio in zip(pairs, efficiencies(pairs, lookup, times), strict=True):
        if name == baseline:
            ratio = Estimate(0, 1.0 if times.get(name) else None)
        values = interval_values("efficiency", "ratio", ratio) | {"baseline": baseline}
        has_kind = baseline not in (None, name)
        rows.append(values | {"efficiency_interval": ratio.kind if has_kind else None})
    return rows


WEAK, STRONG = "weak", "strong"
SHOWN = {"table": "baselines"}
IS_WEAK = "weak: the same batch size per {rank}; strong: the same global batch size"
OF_BASE = "weak: T₀ / T. Strong: T₀ / (n T), with T₀ on one {rank}"
EFFICIENCIES = Columns(
    Column("cell", type=TEXT, help="the cell"),
    *SCALING.named("num_planned"),
    Column("num_launches", "n", WHOLE, text=lambda row: f"{row.num_launches} vs. {row.num_baseline_launches}", **SHOWN),
    Column("scaling", "scaling", TEXT, help=IS_WEAK, **SHOWN),
    Column("against", "baseline", TEXT, help="name of the baseline", **SHOWN),
    Column("baseline", type=TEXT, help="the baseline's cell"),
    Column("num_baseline_launches", type=WHOLE, help="number of its ok launches"),
    Column("baseline_step_s", help="T₀: time per step of the baseline"),
    replace(EFFICIENCY, interval="interval", applies=None, help=OF_BASE, **SHOWN),
    Column("interval", type=TEXT, help="kind of the efficiency's interval"),
)


def efficiencies_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each train_step cell of several ranks and each baseline of it that the campaign has."""
    cells, rows, pairs = campaign.cells_of("train_step"), [], []
    means, lookup = primary_means(measurements), BaselineLookup(cells)
    for cell in cells:
        for scaling, against, changes in baselines_of(cell):
            if (baseline := lookup.find(cell, changes)) is None:
                continue
            base = means[baseline]
            row = {"num_planned": campaign.repeats, "scaling": scaling, "against": against, "baseline": baseline}
            row |= {"num_launches": means[cell.id].num, "num_baseline_launches": base.num}
            rows.append(cell_row(cell) | row | {"baseline_step_s": base.mean})
            pairs.append((cell.id, baseline))
    for row, ratio in zip(rows, efficiencies(pairs, lookup, times_by_cell(measurements)), strict=True):
        row |= interval_values("efficiency", "ratio", ratio) | {"interval": ratio.kind}
    return make_table(rows, EFFICIENCIES)


def baselines_of(cell: Cell) -> list[tuple[str, str, dict]]:
    """Return (weak or strong, its name, what differs from the cell) for each baseline of a cell; none of one rank."""
    n, strategy = cell.world_size, cell.parameters["strategy"]
    if n == 1:
        return []
    one_rank = [(f"{strategy}, 1 rank", ONE_RANK)]
    if strategy != "none":
        one_rank.insert(0, ("none, 1 rank", NO_DDP))
    one_node = [(f"{strategy}, 1 node", {"nodes": 1})] if cell.nodes > 1 else []
    same_work = {"batch_size": cell.parameters["batch_size"] * n}
    strong = [(STRONG, name, changes | same_work) for name, changes in one_rank]
    return [(WEAK, *baseline) for baseline in one_rank + one_node] + strong
