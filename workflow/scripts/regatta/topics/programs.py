"""Programs of users: the time or rate that each prints, in its unit: tables/programs.csv."""

from collections import defaultdict
from dataclasses import replace
from functools import partial

import pandas as pd

from regatta.campaign.program_entries import is_unverified, quantity_of, size_of
from regatta.core.benchmarks import axes_of
from regatta.core.readers import Quantity
from regatta.core.recorded_times import shown_value, work_of
from regatta.core.statistics import Estimate, fast_median
from regatta.core.text import UNKNOWN, is_unknown, size
from regatta.core.units import fitted
from regatta.kit.columns import TEXT, WHOLE, Column, Columns
from regatta.kit.kinds import NOTE, Kind
from regatta.model.frozen import FrozenCampaign
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section, by_cell, how_to_read, rates
from regatta.report.rows import Row, table_rows
from regatta.store.csv_files import described, make_table
from regatta.topics import base, user_code
from regatta.topics.bandwidth import BUSBW, BYTES_PER_GB
from regatta.topics.base import MAIN, ReportData, TableSpec, Topic

BENCHMARK = "program"
SHOWN = {"table": "programs"}


def with_unit(name: str, row: Row) -> str:
    """Return the text of a column of programs.csv in a row, with the unit that suits its value."""
    column = in_unit(row, getattr(row, name), PROGRAMS.named(name)[0])
    shown = column.cell(row)
    return shown if shown == UNKNOWN else f"{shown} {column.shown_as}".rstrip()


VALUE = Column(
    *("reported", "value"),
    interval="interval",
    text=partial(with_unit, "reported"),
    of_row=lambda row: in_unit(row, row.reported),
    help="mean over launches of the number that the program prints, in its unit; of several samples, their median",
    **SHOWN,
    **MAIN,
)
SLOWEST = Column(
    *("slow_reported", "slow 5 %"),
    text=partial(with_unit, "slow_reported"),
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
    Column("unit", "unit", TEXT, help="unit of the values"),
    Column("better", type=TEXT, help="`smaller` or `larger`"),
)


def programs_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell of a program, measured or not."""
    times, slow = base.primary_means(measurements), base.values_by_cell(measurements, "p95_s")
    factors = base.largest_values(measurements, ("bus_factor",))["bus_factor"].dropna().to_dict()
    quantities, values, bandwidths = quantities_of(campaign), {}, defaultdict(lambda: Estimate(0))
    for cell in campaign.cells_of(BENCHMARK):
        time, quantity, num_bytes = times[cell.id], quantities[cell.id], size_of(cell.spec)
        of_second = shown_value(1, quantity)
        values[cell.id] = time.times(of_second) if work_of(quantity) is None else time.rate(of_second)
        if cell.id in factors and num_bytes:
            bandwidths[cell.id] = time.rate(factors[cell.id] * num_bytes / BYTES_PER_GB)
    rows = base.rows_of_cells(campaign, BENCHMARK, {VALUE: values, BUS: bandwidths})
    for row in rows:
        quantity, times = quantities[row["cell"]], slow.get(row["cell"], [])
        row |= {"unit": quantity.unit, "better": quantity.better}
        is_known = times and len(times) == row["num_launches"]
        row[SLOWEST.name] = shown_value(fast_median(times), quantity) if is_known else None
    return make_table(rows, PROGRAMS)


def quantities_of(campaign: FrozenCampaign) -> dict[str, Quantity]:
    """Return what each cell of a program reports."""
    return {cell.id: quantity_of(cell.spec)[1] for cell in campaign.cells_of(BENCHMARK)}


def quantity_name(row: Row) -> str:
    """Return the name of a row's quantity, without its SI unit."""
    return row.reported_quantity.rpartition(" (")[0]


def in_unit(row: Row, value: float | None = None, column: Column = VALUE) -> Column:
    """Return the column of values with the unit of a row, or the one with another prefix that suits a value in it."""
    given = "" if is_unknown(row.unit) else row.unit  # a dimensionless number has none
    unit, scale = (given, 1.0) if is_unknown(value) else fitted(given, value)
    return replace(column, text=None, of_row=None, shown_as=unit, scale=scale, better=row.better)


def section(data: ReportData) -> Section:
    """Return a figure of each program's values, and a table of its measured cells."""
    rows, figures = data.tables["programs"], []
    quantities, steps = quantities_of(data.campaign), base.steps_by_cell(data.measurements)
    values = {cell: [shown_value(time, of) for time in steps.get(cell, ())] for cell, of in quantities.items()}
    sizes = {cell.id: size_of(cell.spec) for cell in data.campaign.cells_of(BENCHMARK)}
    known = rows[rows[VALUE.name].notna()]
    known = known.assign(message_bytes=known["cell"].map(sizes), is_of_sizes=known["cell"].map(sizes).notna())
    groups = known.groupby(["program", "reported_quantity", "unit", "is_of_sizes"], sort=True, dropna=False)
    for number, ((*_, is_of_sizes), part) in enumerate(groups, start=1):
        [first, *_] = table_rows(part)
        label = quantity_name(first).replace("{", "{{").replace("}", "}}")  # no word of the table
        column = replace(in_unit(first, float(part[VALUE.name].median())), label=label)
        if is_of_sizes:
            beside = part["settings"].str.replace(r"(, )?size \d+ ?[A-Za-z]*$", "", regex=True)
            part = part.assign(settings=beside.replace("", None))
        over = SIZE if is_of_sizes else None
        for name, shown, launches in (
            ("reported", column, by_cell(values)),
            ("busbw", BUS, rates(BUS, values, VALUE.name)),
        ):
            of = (f"program-{name}-{number}", "programs", BENCHMARK, part, shown, launches, over)
            figures += user_code.figures_of_cells(data, *of, is_log=shown is BUS)
    tables = user_code.tables_of_cells(data, "programs", BENCHMARK, known, PROGRAMS.of_table("programs"), "program")
    lead = f"{LEAD} {how_to_read(rows, VALUE.name, figures=figures)}" if tables else ""
    return Section("programs", "Programs", lead=lead, figures=tuple(figures), tables=tables)


SIZE = Column("message_bytes", "message size", WHOLE, text=lambda row: size(int(row.message_bytes)))
KINDS = user_code.kinds_of_subjects(
    *("programs", "other_program", ("{program}, {quantity}: {value}", "{program}: {value}")),
    *("best mean of {num:cell}", "result"),
)
UNVERIFIED = Kind(
    *("unverified_ranks", NOTE, "Number of ranks not verified: {num:cell} of programs that start their own ranks."),
    advice="Such a program may run on fewer ranks than the shape has. Add check: {{ranks: PATTERN}} to its entry.",
)


def findings(data: ReportData) -> list[Finding]:
    """Return the best value of each program's quantities on the most ranks."""
    rows, found = data.tables["programs"].dropna(subset=VALUE.name), []
    num_quantities = data.tables["programs"].groupby("program")["reported_quantity"].nunique()
    for _, part in rows.groupby(["program", "reported_quantity", "unit"], sort=True, dropna=False):
        cells = table_rows(part)
        name = quantity_name(cells[0]) if num_quantities[cells[0].program] > 1 else None
        column = in_unit(cells[0])
        values = {"program": cells[0].program, "quantity": name, "unit": column.shown_as}
        best = user_code.best_value(data, "programs", cells, column, **values)
        value = best.values["value"]
        shown = replace(value, column=in_unit(cells[0], value.estimate))
        found.append(replace(best, values=best.values | {"value": shown}))
    unverified = unverified_cells(data)
    values, source = {"num": len(unverified)}, (of_cells("programs", unverified),)
    note = Finding(UNVERIFIED.name, values, source, tuple(unverified), "warnings")
    return user_code.findings_of_subjects(KINDS, found) + ([note] if unverified else [])


def unverified_cells(data: ReportData) -> list[str]:
    """Return the measured cells whose number of ranks nothing shows."""
    known = {*data.tables["programs"].dropna(subset=VALUE.name)["cell"]}
    return [cell.id for cell in data.campaign.cells_of(BENCHMARK) if cell.id in known and is_unverified(cell.spec)]


LEAD = (
    "Numbers that programs print. For rates, other sections show the time for a fixed amount of work: 10¹² bytes or"
    " floating-point operations, 10⁶ samples, tokens, iterations and similar, 1,000 of any other unit. Time ratios are"
    " therefore the inverse of rate ratios. Other numbers are shown there as proportional times."
)
TABLES = {"programs": TableSpec.of(PROGRAMS, programs_table, "campaign", "measurements")}
TOPIC = Topic("programs", "Programs", TABLES, section, findings, kinds=(*KINDS, UNVERIFIED))
