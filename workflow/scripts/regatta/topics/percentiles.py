"""Percentiles of single training steps and the rate of one GPU at each: tables/percentiles.csv.

Definitions: docs/metrics.md.
"""

from dataclasses import replace

import pandas as pd

from regatta.core.statistics import CONFIDENCE, PERCENTILES, fast_median, min_samples
from regatta.kit.columns import CELL_ID, SYNCHRONIZED, TEXT, Column, Columns, in_file
from regatta.report.panels import LAUNCHES, Section, Table, name_rows
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, WHOLE, make_table
from regatta.topics.base import LaunchValues, ReportData, TableSpec, Topic, cells_of

TIMES = ("p50_s", *PERCENTILES)  # columns of measurements.csv
USUAL_MIB = 25  # the default of DistributedDataParallel
COMPARED = ("p75_s", "p95_s")  # percentiles of the published comparison
WORKLOAD_AND_SHAPE = (*STEP_COLUMNS, *SHAPE_COLUMNS)

# Four figures: three are too few to recompute a difference of one percent.
TIME = {"shown_as": "ms", "better": "smaller", "note": SYNCHRONIZED, "figures": 4, "table": "percentiles"}
TIME |= {
    "help": "median over launches of each launch's percentile. Empty if any launch has too few steps. Using only"
    " launches with enough steps would select the faster ones"
}
RATE = {"better": "larger", "figures": 4, "table": "percentiles"}
RATE |= {
    "help": "b / that time: the rate of **one {rank}**, as in PyTorch's DDP benchmark. At p95 it is the rate of slow"
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
PAIR_LAUNCHES = Column("num_launches", "n", WHOLE, text=lambda row: f"{row.num_launches} vs. {row.base_num_launches}")


def percentiles_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    launches = LaunchValues(measurements[measurements["p50_s"].notna()], ("num_iterations", *TIMES))
    planned, cells = {"num_planned": campaign["repeats"]}, cells_of(campaign, "train_step")
    return make_table([cell_row(cell) | planned | _percentiles(cell, launches) for cell in cells], PERCENTILE_COLUMNS)


def _percentiles(cell: dict, launches: LaunchValues) -> dict:
    """Return medians over launches of each launch's percentile, and rates of these medians.

    A percentile that one launch lacks is unknown: launches with enough iterations for it were faster.
    """
    num, samples = launches.num_launches(cell["id"]), launches.of(cell["id"], "num_iterations")
    row = {"num_launches": num, "num_samples": int(min(samples)) if samples else None}
    for time in TIMES:
        values = launches.of(cell["id"], time)
        if values and len(values) == num:
            median = fast_median(values)
            row |= {time: median, RATE_COLUMNS[time].name: cell["spec"]["parameters"]["batch_size"] / median}
    return row


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


# The published comparison: PyTorch's DDP benchmark prints percentiles of each bucket size against the default's.


def bucket_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each workload and bucket size against the default: the times of both, and their difference.

    Without the default, the sizes are compared with the largest.
    """
    rows = name_rows(percentiles, "train_step", without=("bucket_cap_mb",))
    rows = rows[rows["bucket_cap_mb"].notna()]
    sizes = set(rows["bucket_cap_mb"])
    base = USUAL_MIB if USUAL_MIB in sizes else max(sizes, default=None)
    same = [name for name in WORKLOAD_AND_SHAPE if name != "bucket_cap_mb"]
    bases = rows.loc[rows["bucket_cap_mb"] == base, [*same, "num_launches", *TIMES]]
    bases = bases.rename(columns={name: f"base_{name}" for name in ("num_launches", *TIMES)})
    found = []
    for (mib, workload), group in rows[rows["bucket_cap_mb"] != base].groupby(["bucket_cap_mb", "workload"], sort=True):
        pairs = from_one_rank_up(group).merge(bases, on=same)
        if (pairs["p50_s"].notna() & pairs["base_p50_s"].notna()).any():
            found.append(_comparison(workload, pairs, f"{base:g} MiB", f"{mib:g} MiB", device))
    return tuple(found)


def _comparison(workload: str, pairs: pd.DataFrame, base_mib: str, mib: str, device: str) -> Table:
    known = [time for time in COMPARED if pairs[[time, f"base_{time}"]].notna().any(axis=None)]
    columns = [NAME, PAIR_LAUNCHES]
    for time in known or ["p50_s"]:  # too few iterations for a higher percentile
        column, change = TIME_COLUMNS[time], f"{NAMES[time]}_change_ratio"
        pairs[change] = pairs[time] / pairs[f"base_{time}"] - 1
        columns.append(replace(column, name=f"base_{time}", label=f"{column.label}, {base_mib}"))
        columns.append(replace(column, label=f"{column.label}, {mib}"))
        columns += [RATE_COLUMNS[time], Column(change, f"Δ {NAMES[time]}", shown_as="%", figures=2)]
    caption = f"Bucket size {mib} vs. {base_mib}: {workload} (single steps; rate at {mib})"
    return Table.of_columns(caption, columns, pairs, device, ("percentiles",))


def section(data: ReportData) -> Section:
    needed = ", ".join(f"{NAMES[time]} {min_samples(p)}" for time, p in PERCENTILES.items())
    lead = (
        "Percentiles as printed in the imported files."
        if data.campaign.get("imported")
        else "Single steps, device synchronized before and after, slowest rank. Times: median over launches of each"
        " launch's percentile (linear interpolation), if it has enough steps to contain a longer one with"
        f" {100 * CONFIDENCE:g} % confidence ({needed}). Rates: batch size per rank / time. Scaling and bucket sizes"
        " use pipelined steps instead."
    )
    tables, title = percentile_tables(data.tables["percentiles"], data.device), "Step-time percentiles"
    return Section("percentiles", title, lead=lead, tables=tables, summary=title if tables else "")


TABLES = {"percentiles": TableSpec.of(PERCENTILE_COLUMNS, percentiles_table, "campaign", "measurements")}
TOPIC = Topic("percentiles", "Step-time percentiles", TABLES, section, part_of="stability")
