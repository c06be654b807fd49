"""Percentiles of single training steps and the rate of one GPU at each. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.core.statistics import CONFIDENCE, PERCENTILES, min_samples
from regatta.kit.columns import TEXT, Column
from regatta.report.panels import LAUNCHES, Section, Table, name_rows
from regatta.tables.metrics import CALL_TIMES, NAMES, NUM_SAMPLES, RATES
from regatta.topics.base import ReportData, Topic

NAME = Column("name", "cell", TEXT)
COLUMNS = (NAME, LAUNCHES, NUM_SAMPLES, *CALL_TIMES, *RATES)


def percentile_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each measured workload: a row for each cell, a time and a rate for each percentile."""
    return tuple(
        Table.of_columns(f"Step-time percentiles of {workload}", COLUMNS, from_one_rank_up(group), device, ("cells",))
        for workload, group in name_rows(percentiles, "train_step").groupby("workload", sort=True)
        if group["call_p50_s"].notna().any()
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
    tables, title = percentile_tables(data.cells_of("train_step"), data.device), "Step-time percentiles"
    return Section("percentiles", title, lead=lead, tables=tables, summary=title if tables else "")


TOPIC = Topic("percentiles", "Step-time percentiles", section=section, part_of="stability", benchmarks=("train_step",))
