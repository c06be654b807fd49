"""Programs of users: the time or rate that each prints, in its unit: tables/programs.csv."""

from dataclasses import replace

import pandas as pd

from regatta.campaign.program_entries import quantity_of, shown_value, size_of, work_of
from regatta.core.benchmarks import axes_of
from regatta.core.statistics import Estimate, fast_median, interval_values
from regatta.core.text import thousands
from regatta.kit.columns import TEXT, Column, Columns
from regatta.kit.kinds import RESULT, SUMMARY, Kind, Value
from regatta.model.frozen import FrozenCampaign
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section, how_to_read
from regatta.report.rows import Row, table_rows
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table
from regatta.topics.bandwidth import BUSBW, BYTES_PER_GB
from regatta.topics.base import (
    ReportData,
    TableSpec,
    Topic,
    columns_by_cell,
    headline_rows,
    largest_values,
    launch_means,
    values_by_cell,
    with_primary,
)
from regatta.topics.scripts import figures_of_cells, name_below, tables_of_cells

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
BUS = replace(
    BUSBW,
    table="programs",
    note="",
    help="size / time × `bus_factor`, if `read` names a format that states the operation",
)
PROGRAMS = Columns(
    *described(axes_of(BENCHMARK)),
    VALUE,
    SLOWEST,
    BUS,
    Column("unit", "unit", TEXT, help="unit of the values", **SHOWN),
    Column("better", type=TEXT, help="`smaller` or `larger`"),
)


def programs_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell of a program, measured or not."""
    means, rows = launch_means(with_primary(measurements), "primary_s"), []
    slow = values_by_cell(measurements, "p95_s")
    factors = columns_by_cell(largest_values(measurements, ("bus_factor",)))
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
        factor, num_bytes = factors.get(cell.id, {}).get("bus_factor"), size_of(cell.spec)
        if factor and num_bytes and found.mean:
            times = (found.mean, found.high, found.low)
            bandwidths = (time and factor * num_bytes / BYTES_PER_GB / time for time in times)
            row |= dict(zip(BUS.names, bandwidths, strict=True))
        rows.append(row | {"better": quantity.better})
    return make_table(rows, PROGRAMS)


def in_unit(row: Row) -> Column:
    """Return the column of values with the unit of a row."""
    return replace(VALUE, shown_as=row.unit, better=row.better)


def section(data: ReportData) -> Section:
    """Return a figure of each program's values, and a table of its measured cells."""
    rows = data.tables["programs"]
    cells, figures = {cell.id: cell for cell in data.campaign.cells_of(BENCHMARK)}, []
    quantities = {name: quantity_of(cell.spec)[1] for name, cell in cells.items()}
    sizes = {name: size_of(cell.spec) for name, cell in cells.items()}
    known = rows[rows["reported"].notna()]
    known = known.assign(is_of_sizes=[sizes[cell] is not None for cell in known["cell"]])
    for _, part in known.groupby(["program", "reported_quantity", "unit", "is_of_sizes"], sort=True):
        [first, *_] = table_rows(part)
        column = replace(in_unit(first), label=first.reported_quantity.partition(" (")[0])
        axis = {"low": 0}
        if first.is_of_sizes:
            beside = part["settings"].str.replace(r"(, )?size \d+ ?[A-Za-z]*$", "", regex=True)
            part = part.assign(message_bytes=part["cell"].map(sizes), settings=beside.replace("", None))
            axis = {"is_log": True}
        figures += figures_of_cells(
            *(data, BENCHMARK, part, column),
            lambda row, time: shown_value(time, quantities[row.cell]),
            show=thousands,
            **axis,
        )
        figures += figures_of_cells(
            *(data, BENCHMARK, part, BUS),
            lambda row, time: row.busbw_gb_per_s * row.reported / shown_value(time, quantities[row.cell]),
            is_log=True,
        )
    tables = tables_of_cells(data, BENCHMARK, "reported", PROGRAMS.of_table("programs"), "{}")
    lead = f"{LEAD} {how_to_read(rows, 'reported')}" if tables else ""
    return Section("programs", "Programs", lead=lead, figures=tuple(figures), tables=tables)


KINDS = (
    Kind(
        *("programs", SUMMARY, "{program}: {value}"),
        parts=("{name}", "best mean of {num:cell}", "first of {num_programs:program}"),
    ),
    Kind("other_program", RESULT, "{program}: {value}.", ("{name}.", "Best mean of {num:cell}.")),
)


def findings(data: ReportData) -> list[Finding]:
    """Return each program's best value on the most ranks."""
    rows = data.tables["programs"].dropna(subset="reported")
    groups = [table_rows(part) for _, part in rows.groupby(["program", "reported_quantity"], sort=True)]
    found = []
    for of_program in groups:
        largest = [row for row in of_program if row.world_size == max(row.world_size for row in of_program)]
        known = headline_rows(data, largest, lambda row: [row.cell])
        best = (max if known[0].better == "larger" else min)(known, key=lambda row: row.reported)
        values = {"program": best.program, "value": Value.of(best, in_unit(best)), "unit": best.unit}
        words = {"name": name_below(data, best), "num": len(known) if len(known) > 1 else None}
        words |= {"num_programs": len(groups) if len(groups) > 1 else None}
        source, kind = of_cells("programs", [row.cell for row in known]), "other_program" if found else "programs"
        found.append(Finding(kind, values, (source,), (best.cell,), "programs", words))
    return found


LEAD = (
    "Numbers that programs print. Other sections show the time of a fixed amount of work instead of a rate: 10¹² bytes"
    " or floating-point operations, 10⁶ of anything else. Ratios of these times are those of the rates, inverted."
)
TABLES = {"programs": TableSpec.of(PROGRAMS, programs_table, "campaign", "measurements")}
TOPIC = Topic("programs", "Programs", TABLES, section, findings, kinds=KINDS)
