"""Training scripts of users: time of a step, throughput, efficiency, percentiles and memory: tables/scripts.csv."""

from dataclasses import replace

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.statistics import PERCENTILES, interval_values
from regatta.core.text import is_unknown, plural, rank_word, ranks_word
from regatta.kit.columns import TEXT, Column, Columns
from regatta.kit.kinds import Value
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section, by_cell, how_to_read, rates
from regatta.report.rows import Row, table_rows
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics import base, user_code
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.comparison.comparison_tables import times_by_cell
from regatta.topics.scaling.scaling_tables import (
    EFFICIENCY,
    STEP,
    THROUGHPUT,
    TOKENS,
    BaselineLookup,
    efficiency_values,
    is_baseline,
    is_wide,
    throughput_of,
)

BENCHMARK = "script"
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
    means, lookup = base.primary_means(measurements), BaselineLookup(campaign.cells_of(BENCHMARK), campaign.baseline)
    launches = measurements[measurements["status"] == "ok"].groupby("cell")
    times = launches[["p50_s", *PERCENTILES, *ROUNDS]]
    found = (
        times.median().where(times.count().eq(launches.size(), axis=0)).join(base.largest_values(measurements, PEAKS))
    )
    found[EXPOSED.name] = found["whole_step_s"] - found["no_sync_s"]
    rows = base.rows_of_cells(campaign, BENCHMARK, {STEP_TIME: means}, found)
    pairs = [(name, lookup.find(cell, _baseline(campaign, cell))) for name, cell in lookup.cells.items()]
    for row, efficiency in zip(rows, efficiency_values(pairs, lookup, times_by_cell(measurements)), strict=True):
        cell, step = lookup.cells[row["cell"]], means[row["cell"]]
        row |= efficiency | interval_values(THROUGHPUT.stem, THROUGHPUT.unit, throughput_of(cell, step))
        tokens = cell.parameters.get("tokens_per_step")
        row[TOKENS.name] = cell.world_size * tokens / step.mean if tokens and step.mean else None
    return make_table(rows, SCRIPTS)


def _baseline(campaign: FrozenCampaign, cell: Cell) -> dict:
    """Return what differs from a cell in the baseline's: fields of other benchmarks, such as strategy, do not count."""
    known = {"nodes", "gpus_per_node", *cell.parameters, *cell.user_parameters}
    return {name: value for name, value in campaign.baseline.items() if name in known}


def section(data: ReportData) -> Section:
    """Return efficiency and throughput, or without rates the time of a step, of each script, and a table."""
    rows, steps = data.tables["scripts"], base.steps_by_cell(data.measurements)
    others, figures = rows[(rows["cell"] != rows["baseline"]).fillna(True)], []
    for column, of in ((EFFICIENCY, others), (THROUGHPUT, rows)):
        figure_id, values = f"script-{column.stem}", rates(column, steps, STEP_TIME.name)
        is_log = column is THROUGHPUT
        figures += user_code.figures_of_cells(data, figure_id, "scripts", BENCHMARK, of, column, values, is_log=is_log)
    if not figures:
        figures = user_code.figures_of_cells(data, "script-step", "scripts", BENCHMARK, rows, STEP_TIME, by_cell(steps))
    measured = rows.dropna(subset=STEP_TIME.name)
    tables = user_code.tables_of_cells(data, "scripts", BENCHMARK, measured, SCRIPTS.of_table("steps"), "script")
    lead = f"{LEAD} {how_to_read(rows, STEP_TIME.name, figures=figures)}" if tables else ""
    return Section("scripts", "Training scripts", lead=lead, figures=tuple(figures), tables=tables)


LEAD = (
    "Time between optimizer steps of an unchanged script. Regatta adds no synchronization to the timed steps."
    " Memory: peaks since the start of the script."
)


WORDS = (
    "{script}: scaling efficiency on {on}: {lowest:number} ({lowest_name}) to {highest:number} ({highest_name})",
    "{script}: scaling efficiency on {on}: {lowest}",
    "{script}: scaling efficiency on {on}: {uncertain}: too noisy",
    "{script}: {throughput}",
    "{script}: {step:number} per step ({step:ends})",
)
KINDS = user_code.kinds_of_subjects("scripts", "other_script", WORDS, "{num:cell} too noisy", "script")


def findings(data: ReportData) -> list[Finding]:
    """Return each script's efficiency on the most ranks, or without any the fastest cell there."""
    found = []
    for script, part in data.tables["scripts"].dropna(subset="step_s").groupby("script", sort=True):
        rows = table_rows(part)
        with_baseline = [row for row in rows if not is_baseline(row) and not is_unknown(row.efficiency_ratio)]
        known = base.headline_rows(data, base.on_most_ranks(with_baseline or rows))
        values, words = (_efficiencies if with_baseline else _fastest)(data, known)
        num_ranks = int(known[0].world_size)
        values |= {"script": script, "world_size": num_ranks}
        words |= {"on": plural(num_ranks, rank_word(data.device), ranks_word(data.device))}
        cells = tuple(row.cell for row in known)
        found.append(Finding("", values, (of_cells("scripts", cells),), cells, "scripts", words))
    return user_code.findings_of_subjects(KINDS, found)


def _efficiencies(data: ReportData, rows: list[Row]) -> tuple[dict, dict]:
    """Return the range of efficiencies; the highest if all are too wide.

    Several are stated without intervals, which ignore the selection.
    """
    certain = sorted((row for row in rows if not is_wide(row)), key=lambda row: row.efficiency_ratio)
    if not certain:
        row = base.best_row(rows, EFFICIENCY)
        words = {"name": user_code.name_below(data, row), "num": len(rows) if len(rows) > 1 else None}
        return {"uncertain": Value.of(row, EFFICIENCY)}, words
    ends = {"lowest": certain[0]} | ({"highest": certain[-1]} if len(certain) > 1 else {})
    values = {name: Value.of(row, EFFICIENCY) for name, row in ends.items()}
    words = {f"{name}_name": user_code.name_below(data, row) for name, row in ends.items()}
    words |= {"name": user_code.name_below(data, certain[0])} if len(certain) == 1 else {}
    return values, words | {"num": len(rows) - len(certain)}


def _fastest(data: ReportData, rows: list[Row]) -> tuple[dict, dict]:
    """Return throughput, or step time without samples, of the fastest cell."""
    with_rate = [row for row in rows if not is_unknown(row.throughput_samples_per_s)]
    name, column = ("throughput", THROUGHPUT) if with_rate else ("step", STEP_TIME)
    row = base.best_row(with_rate or rows, column)
    return {name: Value.of(row, column)}, {"name": user_code.name_below(data, row)}


TABLES = {"scripts": TableSpec.of(SCRIPTS, scripts_table, "campaign", "measurements")}
TOPIC = Topic("scripts", "Training scripts", TABLES, section, findings, kinds=KINDS)
