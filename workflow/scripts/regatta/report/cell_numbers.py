"""Numbers that no table has: memory of all benchmarks, ranges between launches by what was timed, time of all cells."""

from collections.abc import Mapping

import pandas as pd

from regatta.core.text import rank_time
from regatta.kit.columns import CELL_ID, REAL, TEXT, WHOLE, Column, Columns
from regatta.report.findings import percent_number
from regatta.store.csv_files import result_column
from regatta.store.records import MEMORY_BYTES

TIMES = ("cells_s", "warmup_s", "measuring_s")  # columns of launches.csv
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
    "peaks": Columns(CELL_ID, *(result_column(name, "memory") for name in MEMORY_BYTES)),
}
SETTINGS = (  # of a cell, besides the axes of benchmarks
    Column("id", "Cell id", TEXT),
    Column("name", "Cell", TEXT, help="combination of settings, measured once per launch", is_shown=True),
    Column("status", type=TEXT, help="of all launches; partly failed: some are valid, others failed", is_shown=True),
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
    totals = _ranges(runs, "epoch_s")
    return {
        **tables,
        "peaks": ok[["cell", *MEMORY_BYTES]].groupby("cell", as_index=False).max(),
        "main_ranges": pd.concat([ranges[~ranges["cell"].isin(totals["cell"])], totals]),
        "blocking_ranges": _ranges(calls, "p50_s"),
    }


def _ranges(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return (maximum - minimum) / median of each cell with two known times or more."""
    by_cell = rows.dropna(subset=column).groupby("cell")[column]
    ratios = ((by_cell.max() - by_cell.min()) / by_cell.median()).where(by_cell.count() > 1)
    return ratios.astype(REAL).rename("range_ratio").reset_index()


def cell_hours(measurements: pd.DataFrame) -> float | None:
    """Return ranks x hours between the start and the record of cells: setup, checks, warm-up and sampling."""
    seconds = measurements["elapsed_s"] * measurements["world_size"]
    return float(seconds.sum() / 3600) if seconds.notna().any() else None


def cell_time_text(measurements: pd.DataFrame, launches: pd.DataFrame, device: str) -> str:
    """Return the cell time, with its parts if launches.csv has exactly the records of measurements.csv."""
    hours, ranks = cell_hours(measurements), launches["nodes"] * launches["gpus_per_node"] / 3600
    used = launches["launch"].isin(measurements["launch"].dropna())
    total, warmup, sampling = (float((launches[name] * ranks)[used].sum()) for name in TIMES)
    if not hours or abs(total - hours) > 1e-6 * hours:
        return f"{rank_time(hours or 0, device)} (setup, checks, warm-up, sampling)"
    shares = {"sampling": sampling, "warm-up": warmup, "setup and checks": total - warmup - sampling}
    listed = ", ".join(f"{percent_number(part / total)} % {name}" for name, part in shares.items())
    return f"{rank_time(hours, device)}: {listed}"
