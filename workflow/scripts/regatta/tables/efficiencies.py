"""Efficiency of training steps against each baseline that the campaign has: tables/efficiencies.csv."""

from dataclasses import replace

import pandas as pd

from regatta.kit.columns import TEXT, WHOLE, Column, Columns
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.store.collect import cell_row
from regatta.store.csv_files import make_table
from regatta.tables.baselines import EFFICIENCY, NO_DDP, ONE_RANK, BaselineLookup, efficiencies
from regatta.tables.primary_times import times_by_cell

WEAK, STRONG = "weak", "strong"
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


def baselines_of(cell: Cell) -> list[tuple[str, str, dict]]:
    """Return (weak or strong, name, changes) for each baseline of a cell; none for one rank."""
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
