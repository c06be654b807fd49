"""Programs of users: the time or rate that each prints, in its unit: tables/programs.csv."""

import pandas as pd

from regatta.campaign.programs import quantity_of, shown_value, work_of
from regatta.core.benchmarks import axes_of
from regatta.core.statistics import Estimate, fast_median, interval_values
from regatta.kit.columns import TEXT, Column, Columns
from regatta.model.frozen import FrozenCampaign
from regatta.report.panels import Section
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table
from regatta.topics.base import ReportData, TableSpec, Topic, launch_means, values_by_cell, with_primary
from regatta.topics.scripts import tables_of_cells

BENCHMARK = "program"
SHOWN = {"table": "programs"}
VALUE = Column(
    *("reported", "value"),
    interval="interval",
    help="mean over launches of the number that the program prints, in the unit of `unit`; of samples, their median",
    **SHOWN,
)
SLOWEST = Column(
    *("slow_reported", "slow 5 %"),
    help="median over launches of each launch's 95th percentile of the time; of a rate, the rate at that time",
    **SHOWN,
)
PROGRAMS = Columns(
    *described(axes_of(BENCHMARK)),
    VALUE,
    SLOWEST,
    Column("unit", "unit", TEXT, help="unit of the values", **SHOWN),
    Column("better", type=TEXT, help="`smaller` or `larger`"),
)


def programs_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell of a program, measured or not."""
    means, rows = launch_means(with_primary(measurements), "primary_s"), []
    slow = values_by_cell(measurements, "p95_s")
    for cell in campaign.cells_of(BENCHMARK):
        _, quantity = quantity_of(cell.spec)
        found = means[cell.id]
        ends = [end and shown_value(end, quantity) for end in (found.mean, found.low, found.high)]
        if work_of(quantity) is not None:  # the least time is the highest rate
            ends[1:] = ends[:0:-1]
        shown = Estimate(found.num, *ends, found.kind)
        row = cell_row(cell) | {"num_planned": campaign.repeats, "num_launches": found.num, "interval": found.kind}
        row |= interval_values("reported", "", shown) | {"unit": quantity.unit}
        times = slow.get(cell.id, [])
        is_known = times and len(times) == found.num
        row |= {"slow_reported": shown_value(fast_median(times), quantity) if is_known else None}
        rows.append(row | {"better": quantity.better})
    return make_table(rows, PROGRAMS)


def section(data: ReportData) -> Section:
    """Return a table of the measured cells for each program."""
    tables = tables_of_cells(data, BENCHMARK, "reported", PROGRAMS.of_table("programs"), "{}")
    return Section("programs", "Programs", lead=LEAD if tables else "", tables=tables)


LEAD = (
    "Numbers that programs print. Other sections show the time of a fixed amount of work instead of a rate: 10¹² bytes"
    " or floating-point operations, 10⁶ of anything else. Ratios of these times are those of the rates, inverted."
)
TABLES = {"programs": TableSpec.of(PROGRAMS, programs_table, "campaign", "measurements")}
TOPIC = Topic("programs", "Programs", TABLES, section)
