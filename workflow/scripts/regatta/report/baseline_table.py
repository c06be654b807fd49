"""The efficiencies of the largest shape against every baseline, weak and strong apart."""

import pandas as pd

from regatta.numbers import UNKNOWN, bracket, is_unknown, percent, spread_head
from regatta.report.panels import Table, name_training

MOST_ROWS = 40  # the CSV has all


def baseline_tables(efficiencies: pd.DataFrame, scaling: pd.DataFrame) -> tuple[Table, ...]:
    """Return a table of weak and one of strong scaling, each only where a cell has two baselines or a strong one."""
    named = name_training(scaling).set_index("cell")
    found = []
    for kind in ("weak", "strong"):
        rows = efficiencies[(efficiencies["scaling"] == kind) & efficiencies["efficiency_ratio"].notna()]
        if kind == "weak":
            rows = rows[rows.groupby("cell")["against"].transform("nunique") > 1]
        cells = named.loc[rows["cell"]]
        rows = rows.assign(world_size=cells["world_size"].to_numpy())
        rows = rows.sort_values("world_size", ascending=False, kind="stable")
        shown = rows[rows["cell"].isin(_first_cells(rows))]
        if len(rows):
            body = tuple(_row(row, named.loc[row.cell]) for row in shown.itertuples())
            heads = ("cell", "against", "n", "efficiency (%)", f"{spread_head(shown['interval'])} (%)")
            title = f"Efficiency by baseline, {kind} scaling; the largest shapes first"
            title += (
                f"; {len(shown)} of {len(rows)} rows, all are in efficiencies.csv" if len(shown) < len(rows) else ""
            )
            found.append(Table(title, heads, body, sources=("efficiencies",)))
    return tuple(found)


def _first_cells(rows: pd.DataFrame) -> list[str]:
    """Return as many cells as have MOST_ROWS rows together at most, and one at least: none is cut in two."""
    counts = rows.groupby("cell", sort=False).size()
    ends = counts.cumsum()
    return list(counts.index[(ends <= MOST_ROWS) | (ends == counts)])


def _row(row, cell: pd.Series) -> tuple[str, ...]:
    spread = bracket(row.efficiency_low_ratio, row.efficiency_high_ratio, row.interval, percent)
    num = f"{row.num_launches} against {row.num_baseline_launches}"
    ratio = UNKNOWN if is_unknown(row.efficiency_ratio) else percent(row.efficiency_ratio)
    return f"{cell['workload']}: {cell['name']}", row.against, num, ratio, spread
