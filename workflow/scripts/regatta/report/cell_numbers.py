"""Numbers of a cell that no table has: memory of all benchmarks, and ranges between launches by what was timed."""

from collections.abc import Mapping

import pandas as pd

from regatta.kit.columns import CELL_ID, TEXT, WHOLE, Column, Columns
from regatta.store.csv_files import make_table, result_column
from regatta.store.records import MEMORY_BYTES

RANGE = Column(
    *("range_ratio", "variation between launches"),
    shown_as="%",
    better="smaller",
    note="of pipelined times where recorded",
    help="(maximum \N{MINUS SIGN} minimum) / median over launches of the pipelined time, else the median or total",
    table="variation",
    is_shown=True,
)
BLOCKING_RANGE = Column(
    *("range_ratio", "variation of latency between launches"),
    shown_as="%",
    better="smaller",
    help="the same for the latency of blocking calls",
    key="blocking_range_percent",
)
DERIVED = {
    "main_ranges": Columns(CELL_ID, RANGE),
    "blocking_ranges": Columns(CELL_ID, BLOCKING_RANGE),
    "peaks": Columns(*(result_column(name, "memory") for name in MEMORY_BYTES)),
}
SETTINGS = (  # of a cell, besides the axes of benchmarks
    Column("id", "Cell id", TEXT),
    Column("name", "Cell", TEXT, help="combination of settings, measured once per launch", is_shown=True),
    Column("status", type=TEXT, help="worst status over the cell's launches", is_shown=True),
    Column("benchmark", type=TEXT, help="program that measures"),
    Column("shape", type=TEXT, help="nodes \N{MULTIPLICATION SIGN} {ranks} per node"),
    Column("stack", type=TEXT, help="software environment: host or container, with its environment variables"),
    Column("backend", type=TEXT, help="communication library"),
    Column("num_ok", "Valid launches", WHOLE, help="launches with a valid record / planned launches", is_shown=True),
    Column("num_planned", "Planned launches", WHOLE),
)


def with_derived(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables with three more: memory of all benchmarks, and variation between launches by what was timed.

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
    return make_table(rows, DERIVED["main_ranges"])
