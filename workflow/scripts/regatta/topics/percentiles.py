"""Percentiles of single training steps and the rate of one GPU at each: tables/percentiles.csv.

Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.core.statistics import CONFIDENCE, PERCENTILES, min_samples
from regatta.kit.columns import CELL_ID, SYNCHRONIZED, TEXT, Column, Columns, in_file
from regatta.model.frozen import FrozenCampaign
from regatta.report.panels import LAUNCHES, Section, Table, name_rows
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, WHOLE, make_table
from regatta.topics.base import ReportData, TableSpec, Topic, rows_of_cells

TIMES = ("p50_s", *PERCENTILES)  # columns of measurements.csv
WORKLOAD_AND_SHAPE = (*STEP_COLUMNS, *SHAPE_COLUMNS)

# Four figures: three are too few to recompute a difference of one percent.
TIME = {"shown_as": "ms", "better": "smaller", "note": SYNCHRONIZED, "figures": 4, "table": "percentiles"}
TIME |= {
    "help": "median over launches of each launch's percentile. Empty if any launch has too few steps. Using only"
    " launches with enough steps would select the faster ones"
}
RATE = {"better": "larger", "figures": 4, "table": "percentiles"}
RATE |= {
    "help": "b / that time: the rate of one {rank}, as in PyTorch's DDP benchmark. At p95 it is the rate of slow"
    " steps; it is never a percentile or a mean of rates"
}
NAMES = {time: time.removesuffix("_s") for time in TIMES}
TIME_COLUMNS = {time: Column(time, f"step time {p}", key=f"step_{p}_ms", **TIME) for time, p in NAMES.items()}
RATE_COLUMNS = {
    time: Column(f"{p}_per_gpu_samples_per_s", f"rate per {{rank}} at {p}", **RATE) for time, p in NAMES.items()
}
PERCENTILE_COLUMNS = Columns(
    CELL_ID,
    *(Column(name, type=CELL[name]) for name in WORKLOAD_AND_SHAPE),
    *in_file(WHOLE, "", "num_planned", "num_launches"),
    Column(
        *("num_samples", "timed steps", WHOLE),
        table="percentiles",
        help="timed steps of the launch with the fewest; determines which percentiles are available",
    ),
    *TIME_COLUMNS.values(),
    *RATE_COLUMNS.values(),
)
NAME = Column("name", "cell", TEXT)


def percentiles_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not.

    Medians over launches of each launch's percentile, and rates of these medians. A percentile that one launch lacks is
    unknown: launches with enough iterations for it were faster.
    """
    launches = measurements[(measurements["status"] == "ok") & measurements["p50_s"].notna()].groupby("cell")
    times, num_launches = launches[list(TIMES)], launches.size()
    medians = times.median().where(times.count().eq(num_launches, axis=0))
    rates = medians.rdiv(launches["batch_size"].first(), axis=0)
    found = medians.join(rates.rename(columns={time: column.name for time, column in RATE_COLUMNS.items()}))
    found = found.assign(num_launches=num_launches, num_samples=launches["num_iterations"].min())
    return make_table(rows_of_cells(campaign, "train_step", {}, found), PERCENTILE_COLUMNS)


def percentile_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each measured workload: a row for each cell, a time and a rate for each percentile."""
    columns = (NAME, LAUNCHES, *PERCENTILE_COLUMNS.of_table("percentiles"))
    return tuple(
        Table.of_columns(
            f"Step-time percentiles of {workload}", columns, from_one_rank_up(group), device, ("percentiles",)
        )
        for workload, group in name_rows(percentiles, "train_step").groupby("workload", sort=True)
        if group["p50_s"].notna().any()
    )


def from_one_rank_up(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in the order of the published table: by number of ranks, those without DDP first."""
    rows = rows.assign(is_wrapped=rows["strategy"] != "none")
    order = ["world_size", "nodes", "is_wrapped", "strategy", "bucket_cap_mb", "gradient_as_bucket_view"]
    return rows.sort_values([*order, "stack", "backend"], kind="stable", na_position="first")


def section(data: ReportData) -> Section:
    needed = ", ".join(f"{NAMES[time]} {min_samples(p)}" for time, p in PERCENTILES.items())
    lead = (
        "Percentiles as printed in the imported files."
        if data.campaign.imported
        else "Single steps, device synchronized before and after, slowest rank. Times: median over launches of each"
        " launch's percentile (linear interpolation), if each launch has enough steps that, with"
        f" {100 * CONFIDENCE:g} % confidence, one is longer than the percentile (at least {needed}). Rates: batch size"
        " per rank / time. Scaling and bucket sizes use pipelined steps instead."
    )
    tables, title = percentile_tables(data.tables["percentiles"], data.device), "Step-time percentiles"
    return Section("percentiles", title, lead=lead, tables=tables, summary=title if tables else "")


TABLES = {"percentiles": TableSpec.of(PERCENTILE_COLUMNS, percentiles_table, "campaign", "measurements")}
TOPIC = Topic("percentiles", "Step-time percentiles", TABLES, section, part_of="stability")
