"""Training scripts of users: time of a step, throughput, efficiency, percentiles and memory: tables/scripts.csv."""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE
from regatta.core.statistics import PERCENTILES, interval_values
from regatta.kit.columns import TEXT, Column, Columns
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.report.panels import LAUNCHES, Section, Table, name_rows
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics.base import ReportData, TableSpec, Topic, columns_by_cell, largest_values
from regatta.topics.comparison.tables import times_by_cell
from regatta.topics.scaling.tables import (
    EFFICIENCY,
    STEP,
    THROUGHPUT,
    TOKENS,
    BaselineLookup,
    compare_steps,
    is_baseline,
    step_means,
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
SCRIPTS = Columns(
    *described(axes_of(BENCHMARK)),
    replace(STEP, table="steps", note="", help="T: time between optimizer steps, mean over launches; slowest rank"),
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
    means, lookup = step_means(measurements), BaselineLookup(cells)
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
    known = {"nodes", "gpus_per_node", *cell.parameters}
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


def section(data: ReportData) -> Section:
    """Return a table of the measured cells for each script."""
    tables = tables_of_cells(data, BENCHMARK, "step_s", SCRIPTS.of_table("steps"), "Steps of {}")
    return Section("scripts", "Training scripts", lead=LEAD if tables else "", tables=tables)


LEAD = (
    "Time between optimizer steps of an unchanged script. Nothing is synchronized that the script does not synchronize."
    " Memory: peaks since the start of the script."
)
TABLES = {"scripts": TableSpec.of(SCRIPTS, scripts_table, "campaign", "measurements")}
TOPIC = Topic("scripts", "Training scripts", TABLES, section)
