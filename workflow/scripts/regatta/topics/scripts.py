"""Training scripts of users: time of a step, throughput, efficiency, percentiles and memory: tables/scripts.csv."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE
from regatta.core.statistics import PERCENTILES, interval_values
from regatta.core.text import is_unknown, natural, plural, rank_word, ranks_word, size, thousands
from regatta.kit.columns import TEXT, Column, Columns
from regatta.kit.kinds import RESULT, SUMMARY, Kind, Value
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.report import panels
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import CELL_NAME, LAUNCHES, Figure, Section, Table, how_to_read, make_figure, name_rows
from regatta.report.plotting import Panel, PlotAxis, size_ticks
from regatta.report.rows import Row, table_rows
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics.base import (
    ReportData,
    TableSpec,
    Topic,
    columns_by_cell,
    headline_rows,
    largest_values,
    steps_by_cell,
)
from regatta.topics.comparison.comparison_tables import times_by_cell
from regatta.topics.scaling.scaling_tables import (
    EFFICIENCY,
    STEP,
    THROUGHPUT,
    TOKENS,
    BaselineLookup,
    compare_steps,
    is_baseline,
    is_wide,
    step_means,
)

BENCHMARK = "script"
OfTime = Callable[[Row, float], float]
OF_STEPS = {"table": "steps", "shown_as": "ms", "better": "smaller"}
SINGLE = "median over launches of each launch's percentile of single steps, slowest rank"
PEAKS = ("peak_allocated_bytes", "peak_rss_bytes")
ROUNDS = ("whole_step_s", "no_sync_s")
EXPOSED = Column(
    *("exposed_s", "exposed communication"),
    **OF_STEPS,
    help="`whole_step_s` − `no_sync_s`: medians over launches of alternating steps with and without synchronization",
)
STEP_HELP = "T: time between optimizer steps, mean over launches; slowest rank"
STEP_TIME = replace(STEP, table="steps", note="", help=STEP_HELP)
SCRIPTS = Columns(
    *described(axes_of(BENCHMARK)),
    STEP_TIME,
    *(Column(name, name.removesuffix("_s"), **OF_STEPS, help=SINGLE) for name in ("p50_s", *PERCENTILES)),
    replace(THROUGHPUT, table="steps", help="n `samples_per_step` / T, for n {ranks}"),
    replace(TOKENS, table="steps", help="n `tokens_per_step` / T"),
    Column("baseline", type=TEXT, help="the baseline's cell"),
    replace(EFFICIENCY, table="steps", applies=lambda row: not is_baseline(row)),
    Column("efficiency_interval", type=TEXT, help="kind of the efficiency's interval"),
    *(result_column(name, "parts_ns", table="steps") for name in ROUNDS),
    EXPOSED,
    *(result_column(name, "memory", table="steps", help="largest over launches and ranks") for name in PEAKS),
)


def scripts_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each script cell, measured or not."""
    cells, rows = campaign.cells_of(BENCHMARK), []
    means, lookup = step_means(measurements), BaselineLookup(cells, campaign.baseline)
    launches = measurements[measurements["status"] == "ok"].groupby("cell")
    times = launches[["p50_s", *PERCENTILES, *ROUNDS]]
    medians = times.median().where(times.count().eq(launches.size(), axis=0))
    known = columns_by_cell(medians.join(largest_values(measurements, PEAKS)))
    pairs = [(cell.id, lookup.find(cell, _baseline(campaign, cell))) for cell in cells]
    ratios = compare_steps(pairs, times_by_cell(measurements))
    for cell, pair in zip(cells, pairs, strict=True):
        name, baseline = pair
        step, world_size = means[name], cell.world_size
        row = cell_row(cell) | {"num_planned": campaign.repeats, "num_launches": step.num, "interval": step.kind}
        row |= interval_values("step", "s", step) | {"baseline": baseline}
        samples, tokens = (cell.parameters.get(key) for key in ("samples_per_step", "tokens_per_step"))
        if samples and step.mean:
            ends = (end and world_size * samples / end for end in (step.mean, step.high, step.low))
            row |= dict(zip(THROUGHPUT.names, ends, strict=False))
        row[TOKENS.name] = world_size * tokens / step.mean if tokens and step.mean else None
        if name == baseline:
            row["efficiency_ratio"] = 1.0 if step.mean else None
        elif pair in ratios:
            row |= _efficiency(ratios[pair].ratio, samples, lookup.cells[baseline])
        row |= known.get(name, {})
        if row.get("no_sync_s") is not None:
            row[EXPOSED.name] = row["whole_step_s"] - row["no_sync_s"]
        rows.append(row)
    return make_table(rows, SCRIPTS)


def _baseline(campaign: FrozenCampaign, cell: Cell) -> dict:
    """Return what differs from a cell in the baseline's: fields of other benchmarks, such as strategy, do not count."""
    known = {"nodes", "gpus_per_node", *cell.parameters, *cell.user_parameters}
    return {name: value for name, value in campaign.baseline.items() if name in known}


def _efficiency(ratio, samples: int | None, baseline: Cell) -> dict:
    """Return throughput per rank relative to the baseline's; with equal settings the work of a step is equal."""
    base = baseline.parameters.get("samples_per_step")
    found = ratio.times(samples / base) if samples and base else ratio
    return interval_values("efficiency", "ratio", found) | {"efficiency_interval": found.kind}


NAME = Column("name", "cell", TEXT, text=lambda row: row.cell_name.say("shape", "settings", *PLACE))


def tables_of_cells(
    data: ReportData, benchmark: str, known: str, columns: Iterable[Column], caption: str
) -> tuple[Table, ...]:
    """Return a table of the measured cells for each script or program, whose name fills the caption.

    known: a column that only measured cells have.
    """
    name = f"{benchmark}s"
    rows = data.tables[name]
    rows = rows[rows[known].notna()].sort_values([benchmark, "settings", "nodes", "gpus_per_node", "stack"])
    groups = name_rows(rows, benchmark).groupby(benchmark, sort=True) if len(rows) else ()
    columns = (NAME, LAUNCHES, *columns)
    return tuple(Table.of_columns(caption.format(of), columns, group, data.device, (name,)) for of, group in groups)


def figures_of_cells(
    data: ReportData, benchmark: str, rows: pd.DataFrame, column: Column, of_time: OfTime, **axis: object
) -> list[Figure]:
    """Return a figure of a column for each script or program of several cells: over the number of ranks, or of one
    shape by setting.

    rows: of a table with one row for each cell; with a column `message_bytes`, figures are over that instead. of_time:
    the column's value, as it is shown, of a row and the time of one of its launches. axis: of the vertical axis.
    """
    known, times = rows[rows[column.name].notna()], steps_by_cell(data.measurements)
    known = known.sort_values("settings", key=lambda texts: texts.fillna("").map(natural), kind="stable")
    named = panels.in_order(name_rows(data.with_stack_places(known), benchmark))
    found, kind = [], column.label.capitalize()
    is_of_sizes = "message_bytes" in named
    line = (lambda name: ("shape", *panels.series_fields(name))) if is_of_sizes else panels.series_fields
    several = [(title, part) for title, part in panels.panels(named, line) if len(part) > 1]
    for number, (title, part) in enumerate(several, start=1):
        if is_of_sizes:
            label, x, sizes = "label", "message_bytes", part["message_bytes"].tolist()
            below = PlotAxis("message size", True, min(sizes), max(sizes), size_ticks(sizes, size))
        elif part["world_size"].nunique() > 1:
            label, x, below = "label", "world_size", panels.ranks_axis(part)
        else:
            settings = [name.say("settings", always=("settings",)) for name in part["cell_name"]]
            places = {text: place for place, text in enumerate(dict.fromkeys(settings))}
            part, label, x = part.assign(place=[places[text] for text in settings]), "stack", "place"
            ticks = tuple((place, text.replace(", ", "\n")) for text, place in places.items())
            below = PlotAxis("", low=-0.5, high=len(places) - 0.5, ticks=ticks)
        series = panels.make_series(
            *(part, label, x),
            lambda row: [of_time(row, time) for time in times.get(row.cell, ())],
            lambda row: column.of(row)[0],
        )
        series = tuple(replace(one, has_line=x != "place") for one in series)
        panel = Panel(below, PlotAxis(column.heading(data.device), **axis), series)
        table = Table.of_columns(f"{kind} of {title}", (CELL_NAME, LAUNCHES, column), part, data.device)
        name = f"{benchmark}-{column.stem}-{number}"
        found.append(make_figure(name, f"{kind}: {title}", panel, table, f"{benchmark}s", column))
    return found


def section(data: ReportData) -> Section:
    """Return efficiency and throughput, or without rates the time of a step, of each script, and a table."""
    rows = data.tables["scripts"]
    others, figures = rows[(rows["cell"] != rows["baseline"]).fillna(True)], []
    for column, of in ((EFFICIENCY, others), (THROUGHPUT, rows)):
        axis = {"low": 0} if column is EFFICIENCY else {"is_log": True, "show": thousands}
        figures += figures_of_cells(data, BENCHMARK, of, column, partial(_rate, column), **axis)
    if not figures:
        figures = figures_of_cells(data, BENCHMARK, rows, STEP_TIME, lambda row, time: STEP_TIME.shown(time), low=0)
    tables = tables_of_cells(data, BENCHMARK, "step_s", SCRIPTS.of_table("steps"), "Steps of {}")
    lead = f"{LEAD} {how_to_read(rows, 'step_s')}" if tables else ""
    return Section("scripts", "Training scripts", lead=lead, figures=tuple(figures), tables=tables)


def _rate(column: Column, row: Row, time_s: float) -> float:
    """Return one launch's rate, scaled from that of the mean time."""
    return column.of(row)[0] * row.step_s / time_s


LEAD = (
    "Time between optimizer steps of an unchanged script. Nothing is synchronized that the script does not synchronize."
    " Memory: peaks since the start of the script."
)


def name_below(data: ReportData, row: Row) -> str:
    """Return the name of a row's cell below that of its script or program."""
    return data.cell_names[row.cell].without("subject").full


WORDS = (
    "{script}: scaling efficiency on {on}: {lowest:number} ({lowest_name}) to {highest:number} ({highest_name})",
    "{script}: scaling efficiency on {on}: {lowest}",
    "{script}: scaling efficiency on {on} uncertain, {uncertain}",
    "{script}: {throughput}",
    "{script}: {step:number} per step ({step:ends})",
)
KINDS = (
    Kind("scripts", SUMMARY, WORDS, ("{name}", "{num:cell} uncertain", "first of {num_scripts:script}")),
    Kind("other_script", RESULT, tuple(f"{text}." for text in WORDS), ("{name}.", "{num:cell} uncertain.")),
)


def findings(data: ReportData) -> list[Finding]:
    """Return each script's efficiency on the most ranks, or without any the fastest cell there."""
    rows = data.tables["scripts"].dropna(subset="step_s")
    groups = [table_rows(of_script) for _, of_script in rows.groupby("script", sort=True)]
    found = []
    for of_script in groups:
        with_baseline = [row for row in of_script if not is_baseline(row) and not is_unknown(row.efficiency_ratio)]
        largest = max(row.world_size for row in with_baseline or of_script)
        known = [row for row in with_baseline or of_script if row.world_size == largest]
        known = headline_rows(data, known, lambda row: [row.cell])
        values, words = (_efficiencies if with_baseline else _fastest)(data, known)
        values |= {"script": known[0].script, "world_size": int(largest)}
        words |= {"on": plural(int(largest), rank_word(data.device), ranks_word(data.device))}
        words |= {"num_scripts": len(groups) if len(groups) > 1 else None}
        cells = tuple(row.cell for row in known)
        kind = "other_script" if found else "scripts"
        found.append(Finding(kind, values, (of_cells("scripts", cells),), cells, "scripts", words))
    return found


def _efficiencies(data: ReportData, rows: list[Row]) -> tuple[dict, dict]:
    """Return the range of efficiencies. Several are stated without intervals, which ignore the selection."""
    certain = sorted((row for row in rows if not is_wide(row)), key=lambda row: row.efficiency_ratio)
    if not certain:
        row = min(rows, key=lambda row: row.efficiency_ratio)
        return {"uncertain": Value.of(row, EFFICIENCY)}, {"name": name_below(data, row)}
    ends = {"lowest": certain[0]} | ({"highest": certain[-1]} if len(certain) > 1 else {})
    values = {name: Value.of(row, EFFICIENCY) for name, row in ends.items()}
    words = {f"{name}_name": name_below(data, row) for name, row in ends.items()}
    words |= {"name": name_below(data, certain[0])} if len(certain) == 1 else {}
    return values, words | {"num": len(rows) - len(certain)}


def _fastest(data: ReportData, rows: list[Row]) -> tuple[dict, dict]:
    """Return throughput, or step time without samples, of the fastest cell."""
    with_rate = [row for row in rows if not is_unknown(row.throughput_samples_per_s)]
    if with_rate:
        row = max(with_rate, key=lambda row: row.throughput_samples_per_s)
        return {"throughput": Value.of(row, THROUGHPUT)}, {"name": name_below(data, row)}
    row = min(rows, key=lambda row: row.step_s)
    return {"step": Value.of(row, STEP_TIME)}, {"name": name_below(data, row)}


TABLES = {"scripts": TableSpec.of(SCRIPTS, scripts_table, "campaign", "measurements")}
TOPIC = Topic("scripts", "Training scripts", TABLES, section, findings, kinds=KINDS)
