"""Efficiency relative to a baseline cell, and the parts of its loss. Definitions: docs/metrics.md."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from regatta.core.benchmarks import built_in_names, load_benchmark
from regatta.core.statistics import Estimate
from regatta.core.text import is_unknown
from regatta.kit.columns import TEXT, WHOLE, Column, Columns
from regatta.model.frozen import FrozenCampaign
from regatta.store.csv_files import cell_row, make_table
from regatta.tables.counterparts import BaselineLookup, Pair, baselines_of
from regatta.tables.estimates import Estimates
from regatta.tables.pairs import compared_steps
from regatta.tables.primary_times import Times, times_by_cell

EXCELLENT, GOOD = 0.9, 0.8  # efficiency above which the words are given
WIDE_RATIO = 0.2  # an efficiency whose range is wider than this share of it is uncertain
SCRIPT = "script"  # its `baseline` may name the parameters that the user named
WITH_BASELINE = (*(name for name in built_in_names() if load_benchmark(name).has_baseline), SCRIPT)


def efficiencies(pairs: list[Pair], lookup: BaselineLookup, times: dict[str, Times]) -> list[Estimate]:
    """Return throughput per GPU relative to the baseline's, (b/T) / (b0/T0), of all pairs of one table.

    pairs: cell and baseline. With weak scaling b = b0: T0/T. With strong scaling b = b0/n on n ranks: T(1) / (n T(n)).
    If samples are unknown, steps have equal work.
    """
    verdicts, found = compared_steps(pairs, times), []
    for pair in pairs:
        samples, base = (lookup.cells[name].samples if name else None for name in pair)
        ratio = verdicts[pair].ratio if pair in verdicts else Estimate(0)
        found.append(ratio.times(samples / base if samples and base else 1))
    return found


def is_baseline(row: object) -> bool:
    return not is_unknown(row.baseline) and row.cell == row.baseline


def is_too_wide(efficiency_ratio: float, low: float | None, high: float | None) -> bool:
    """Return whether the range of an efficiency is too wide for a conclusion; False if it is unknown."""
    return not (is_unknown(low) or is_unknown(high)) and high - low > WIDE_RATIO * efficiency_ratio


def is_wide(row: object) -> bool:
    return is_too_wide(row.efficiency_ratio, row.efficiency_low_ratio, row.efficiency_high_ratio)


def grade(efficiency_ratio: float, low: float | None = None, high: float | None = None) -> str | None:
    """Return the grade of an efficiency, or None if its range is unknown, too wide or crosses a limit."""
    if is_unknown(low) or is_unknown(high):
        return None  # otherwise one launch would get a firmer statement than six
    if is_too_wide(efficiency_ratio, low, high) or any(low <= limit < high for limit in (EXCELLENT, GOOD)):
        return None
    return "excellent" if efficiency_ratio > EXCELLENT else "good" if efficiency_ratio > GOOD else "poor"


# Formulas of metrics. values: `tables.cells.CellValues`.


def baselines(values) -> list[str | None]:
    """Return the id of each cell's baseline; none in a sweep. It differs in the fields of the campaign's `baseline`.

    Fields that a script lacks, such as the strategy, are ignored.
    """
    found, baseline = {}, values.campaign.baseline
    for benchmark in () if values.campaign.sweep else WITH_BASELINE:
        lookup = values.lookups[benchmark]
        for cell in lookup.cells.values():
            known = {"nodes", "gpus_per_node", *cell.parameters, *cell.user_parameters}
            changes = {name: value for name, value in baseline.items() if name in known or benchmark != SCRIPT}
            found[cell.id] = lookup.find(cell, changes)
    return [found.get(cell.id) for cell in values.cells]


def efficiency(values) -> Estimates:
    """Return the efficiency of each cell; that of a measured baseline is 1 by definition, without an interval."""
    times, baselines = times_by_cell(values.measurements), values["baseline"]
    pairs = [(cell.id, baseline) for cell, baseline in zip(values.cells, baselines, strict=True)]
    found = [Estimate(0)] * len(pairs)
    for benchmark in WITH_BASELINE:
        places = np.flatnonzero(values.is_of(benchmark)).tolist()
        of_benchmark = [pairs[place] for place in places]
        for place, ratio in zip(places, efficiencies(of_benchmark, values.lookups[benchmark], times), strict=True):
            cell, baseline = pairs[place]
            found[place] = Estimate(0, 1.0 if times.get(cell) else None) if cell == baseline else ratio
    return Estimates.of(found)


def efficiency_kinds(values) -> list[str | None]:
    kinds = values["efficiency_ratio"].kinds
    pairs = zip(values.cells, values["baseline"], kinds, strict=True)
    return [None if baseline in (None, cell.id) else kind for cell, baseline, kind in pairs]


def baseline_rates(values) -> list[float | None]:
    rates = values["throughput_samples_per_s"].mean
    return [None if of is None else rates[values.places[of]] for of in values["baseline"]]


def grades(values) -> list[str | None]:
    return [grade(*ends) for ends in zip(*values["efficiency_ratio"].ends, strict=True)]


def part_of_loss(name: str) -> Callable:
    """Return a formula: a factor of the efficiency, the time without a part of the loss over that with it."""

    def ratio(values) -> list[float | None]:
        found = [None] * len(values.cells)
        if values.campaign.sweep:
            return found
        lookup, means = values.lookups["train_step"], values["step_s"].mean
        for cell in lookup.cells.values():
            pair = lookup.parts(cell).get(name, (None, None))
            if None not in pair:
                slow, fast = (means[values.places[of]] for of in pair)
                found[values.places[cell.id]] = fast / slow
        return found

    return ratio


OF_BASELINE = {"table": "efficiency", "better": "larger", "benchmarks": WITH_BASELINE}
OF_STEPS = {"benchmarks": WITH_BASELINE}
BASELINE = Column("baseline", type=TEXT, help="the baseline's cell", **OF_STEPS, formula=baselines)
BASELINE_RATE = Column(
    "baseline_samples_per_s", help="X₀: throughput of the baseline", **OF_STEPS, formula=baseline_rates
)
EFFICIENCY = Column(
    *("efficiency_ratio", "efficiency"),
    **OF_BASELINE,
    shown_as="%",
    interval="efficiency_interval",
    help="(X(n)/n) / (X₀/n₀): throughput per {rank} relative to that of the baseline cell, which has the same workload,"
    " stack and backend. Its interval includes the variation of both cells",
    applies=lambda row: not is_baseline(row),
    is_shown=True,
    formula=efficiency,
)
EFFICIENCY_KIND = Column(
    *("efficiency_interval", "", TEXT),
    help="kind of the efficiency's interval: `interval` only if both cells have 3 launches",
    **OF_STEPS,
    formula=efficiency_kinds,
)
GRADE = Column(
    *("grade", "grade", TEXT),
    table="efficiency",
    **OF_STEPS,
    help="above 0.9 excellent, above 0.8 good, else poor. Empty for the baseline, without an interval, and if the"
    " interval includes 0.9 or 0.8 or is wider than 20 % of the efficiency",
    formula=grades,
)
DDP, INTRA_NODE, INTER_NODE = (
    Column(
        f"{label.lower().replace('-', '_')}_ratio",
        label,
        **OF_BASELINE | {"benchmarks": ("train_step",)},
        help=text,
        applies=applies,
        note="factor of the efficiency",
        formula=part_of_loss(f"{label.lower().replace('-', '_')}_ratio"),
    )
    for label, text, applies in (
        ("DDP", "X(1) / X_none(1): cost of DDP on one {rank}", lambda row: row.strategy != "none"),
        (
            "intra-node",
            "X(g) / (g X(1)): cost of additional {ranks} in a node. Empty for g = 1",
            lambda row: row.gpus_per_node > 1,
        ),
        (
            "inter-node",
            "X(k g) / (k X(g)): cost of additional nodes. Empty for k = 1",
            lambda row: row.nodes > 1,
        ),
    )
)

PARTS_OF_LOSS = (DDP, INTRA_NODE, INTER_NODE)

# Efficiency against each baseline that the campaign has: tables/efficiencies.csv.

SHOWN = {"table": "baselines"}
IS_WEAK = "weak: the same batch size per {rank}; strong: the same global batch size"
OF_BASE = "weak: T₀ / T. Strong: T₀ / (n T), with T₀ on one {rank}"
EFFICIENCIES = Columns(
    Column("cell", type=TEXT, help="the cell"),
    Column("num_planned", type=WHOLE),
    Column("num_launches", "n", WHOLE, text=lambda row: f"{row.num_launches} vs. {row.num_baseline_launches}", **SHOWN),
    Column("scaling", "scaling", TEXT, help=IS_WEAK, **SHOWN),
    Column("against", "baseline", TEXT, help="name of the baseline", **SHOWN),
    Column("baseline", type=TEXT, help="the baseline's cell"),
    Column("num_baseline_launches", type=WHOLE, help="number of its ok launches"),
    Column("baseline_step_s", help="T₀: time per step of the baseline"),
    replace(EFFICIENCY, interval="interval", applies=None, help=OF_BASE, **SHOWN),
    Column("interval", type=TEXT, help="kind of the efficiency's interval"),
)


def efficiencies_table(campaign: FrozenCampaign, measurements: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each train_step cell of several ranks and each of its planned baselines."""
    steps, rows, pairs = cells.set_index("cell"), [], []
    num_launches, step_s = steps["num_launches"].to_dict(), steps["step_s"].to_dict()
    lookup = BaselineLookup(campaign.cells_of("train_step"))
    for cell in lookup.cells.values():
        for scaling, against, changes in baselines_of(cell):
            if (baseline := lookup.find(cell, changes)) is None:
                continue
            row = {"num_planned": campaign.repeats, "scaling": scaling, "against": against, "baseline": baseline}
            row |= {"num_launches": num_launches[cell.id], "num_baseline_launches": num_launches[baseline]}
            rows.append(cell_row(cell) | row | {"baseline_step_s": step_s[baseline]})
            pairs.append((cell.id, baseline))
    for row, ratio in zip(rows, efficiencies(pairs, lookup, times_by_cell(measurements)), strict=True):
        row |= dict(zip(EFFICIENCY.names, ratio.ends, strict=True)) | {"interval": ratio.kind}
    return make_table(rows, EFFICIENCIES)
