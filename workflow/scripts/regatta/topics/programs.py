"""Programs of users: the time or rate that each prints, in its unit."""

from dataclasses import replace

from regatta.campaign.program_entries import is_unverified, size_of
from regatta.kit.columns import Row, table_rows
from regatta.kit.kinds import NOTE, Kind
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section
from regatta.report.plots import Plot, figures_of, section_of, tables_of
from regatta.tables.bandwidth import BUSBW, MESSAGE
from regatta.tables.reported import SLOWEST, VALUE, in_unit
from regatta.topics import user_code
from regatta.topics.base import ReportData, Topic

BENCHMARK = "program"
BUS = replace(BUSBW, note="")


def quantity_name(row: Row) -> str:
    """Return the name of a row's quantity, without its SI unit."""
    return row.reported_quantity.rpartition(" (")[0]


def section(data: ReportData) -> Section | None:
    """Return a figure of each program's values, and a table of its measured cells."""
    rows, figures = data.cells_of(BENCHMARK), []
    sizes = {cell.id: size_of(cell.spec) for cell in data.campaign.cells_of(BENCHMARK)}
    known = rows.dropna(subset=VALUE.name)
    known = known.assign(message_bytes=known["cell"].map(sizes), is_of_sizes=known["cell"].map(sizes).notna())
    groups = known.groupby(["program", "reported_quantity", "unit", "is_of_sizes"], sort=True, dropna=False)
    for number, ((*_, is_of_sizes), part) in enumerate(groups, start=1):
        [first, *_] = table_rows(part)
        label = quantity_name(first).replace("{", "{{").replace("}", "}}")  # no word of the table
        column = replace(in_unit(first, float(part[VALUE.name].median())), label=label)
        if is_of_sizes:
            beside = part["settings"].str.replace(r"(, )?size \d+ ?[A-Za-z]*$", "", regex=True)
            part = part.assign(settings=beside.replace("", None))
        for name, shown in (("reported", column), ("busbw", BUS)):
            plot = Plot(f"program-{name}-{number}", shown, MESSAGE if is_of_sizes else None)
            figures += figures_of(data, plot, part.dropna(subset=shown.name), least=2)
    tables = tables_of(data, known, (VALUE, SLOWEST, BUS))
    return section_of(rows, VALUE, (LEAD,), figures, tables, headlines=tuple(figures))


KINDS = user_code.kinds_of_subjects(
    *("programs", "other_program", ("{program}, {quantity}: {value}", "{program}: {value}")),
    *(user_code.BEST_OF, "result"),
    place=4,
)
UNVERIFIED = Kind(
    *("unverified_ranks", NOTE, "Number of ranks not verified: {num:cell} of programs that start their own ranks."),
    advice="Such a program may run on fewer ranks than the shape has. Add check: {{ranks: PATTERN}} to its entry.",
    has_badge=True,
)


def findings(data: ReportData) -> list[Finding]:
    """Return the best value of each program's quantities on the most ranks."""
    rows, found = data.cells_of(BENCHMARK).dropna(subset=VALUE.name), []
    num_quantities = data.cells_of(BENCHMARK).groupby("program")["reported_quantity"].nunique()
    for _, part in rows.groupby(["program", "reported_quantity", "unit"], sort=True, dropna=False):
        cells = table_rows(part)
        name = quantity_name(cells[0]) if num_quantities[cells[0].program] > 1 else None
        column = in_unit(cells[0])
        values = {"program": cells[0].program, "quantity": name, "unit": column.shown_as}
        best = user_code.best_value(data, cells, column, **values)
        value = best.values["value"]
        shown = replace(value, column=in_unit(cells[0], value.estimate))
        found.append(replace(best, values=best.values | {"value": shown}))
    unverified = unverified_cells(data)
    values, source = {"num": len(unverified)}, (of_cells("cells", unverified),)
    note = Finding(UNVERIFIED.name, values, source, tuple(unverified))
    return user_code.findings_of_subjects(data, KINDS, found) + ([note] if unverified else [])


def unverified_cells(data: ReportData) -> list[str]:
    """Return the measured cells whose number of ranks nothing shows."""
    known = {*data.cells_of(BENCHMARK).dropna(subset=VALUE.name)["cell"]}
    return [cell.id for cell in data.campaign.cells_of(BENCHMARK) if cell.id in known and is_unverified(cell.spec)]


LEAD = (
    "Numbers that programs print. For rates, other sections show the time for a fixed amount of work: 10¹² bytes or"
    " floating-point operations, 10⁶ samples, tokens, iterations and similar, 1,000 of any other unit. Time ratios are"
    " therefore the inverse of rate ratios. Other numbers are shown there as proportional times."
)
TOPIC = Topic("programs", "Programs", {}, section, findings, kinds=(*KINDS, UNVERIFIED), benchmarks=("program",))
