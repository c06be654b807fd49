"""Training scripts of users: time of a step, throughput, efficiency, percentiles and memory."""

from dataclasses import replace

from regatta.core.text import is_unknown, plural, rank_word, ranks_word
from regatta.kit.columns import Row, table_rows
from regatta.kit.kinds import Value
from regatta.report.chart import MOST_LABELS
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section
from regatta.report.plots import Plot, figures_of, full, ideal, named, section_of, tables_of
from regatta.tables.baselines import EFFICIENCY, is_baseline, is_wide
from regatta.tables.metrics import CALL_TIMES, METRICS, STEP, THROUGHPUT, TOKENS
from regatta.topics import base, user_code
from regatta.topics.base import ReportData, Topic, with_context

BENCHMARK = "script"
STEP_TIME = replace(STEP, note="")
SHOWN = ("whole_step_s", "no_sync_s", "script_exposed_s", "peak_allocated_bytes", "peak_rss_bytes")
OTHERS = "other settings"
COLUMNS = (STEP_TIME, *CALL_TIMES, THROUGHPUT, TOKENS, EFFICIENCY, *(one for one in METRICS if one.name in SHOWN))


EFFICIENCIES = Plot("script-efficiency", EFFICIENCY, guides=full, context=OTHERS)
THROUGHPUTS = Plot("script-throughput", THROUGHPUT, guides=ideal, context=OTHERS, guided_by=(EFFICIENCY,))
STEPS = Plot("script-step", STEP_TIME, context=OTHERS)


def section(data: ReportData) -> Section | None:
    """Return efficiency and throughput, or without rates the time of a step, of each script, and a table."""
    rows = data.cells_of(BENCHMARK)
    shown = (
        rows if rows["settings"].nunique() <= MOST_LABELS else with_context(named(data, rows), "settings", STEP_TIME)
    )
    figures = [figure for plot in (EFFICIENCIES, THROUGHPUTS) for figure in figures_of(data, plot, shown, least=2)]
    figures = figures or figures_of(data, STEPS, shown, least=2)
    tables = tables_of(data, rows.dropna(subset=STEP_TIME.name), COLUMNS)
    return section_of(rows, STEP_TIME, (LEAD,), figures, tables, headlines=tuple(figures))


LEAD = (
    "Time between optimizer steps of an unchanged script. Regatta adds no synchronization to the timed steps."
    " Memory: peaks since the start of the script."
)


WORDS = (
    "{script}: {lowest:number} to {highest:number} scaling efficiency on {on}, each relative to the same stack (lowest:"
    " {lowest_name}, highest: {highest_name})",
    "{script}: {lowest} scaling efficiency on {on}",
    "{script}: {uncertain} scaling efficiency on {on} (too noisy)",
    "{script}: {throughput}",
    "{script}: {step:number} per step ({step:ends})",
)
KINDS = user_code.kinds_of_subjects(
    *("scripts", "other_script", WORDS, "{num:cell} too noisy", "script"),
    place=4,
)


def findings(data: ReportData) -> list[Finding]:
    """Return each script's efficiency on the most ranks, or without any the fastest cell there."""
    found = []
    for script, part in data.cells_of(BENCHMARK).dropna(subset="step_s").groupby("script", sort=True):
        rows = table_rows(part)
        with_baseline = [row for row in rows if not is_baseline(row) and not is_unknown(row.efficiency_ratio)]
        known = base.headline_rows(data, base.on_most_ranks(with_baseline or rows))
        values, words = (_efficiencies if with_baseline else _fastest)(data, known)
        num_ranks = int(known[0].world_size)
        values |= {"script": script, "world_size": num_ranks}
        words |= {"on": plural(num_ranks, rank_word(data.device), ranks_word(data.device))}
        cells = tuple(row.cell for row in known)
        found.append(Finding("", values, (of_cells("cells", cells),), cells, words=words))
    return user_code.findings_of_subjects(data, KINDS, found)


def _efficiencies(data: ReportData, rows: list[Row]) -> tuple[dict, dict]:
    """Return the range of efficiencies; the highest if all are too wide.

    Several are stated without intervals, which ignore the selection.
    """
    certain = sorted((row for row in rows if not is_wide(row)), key=lambda row: row.efficiency_ratio)
    if not certain:
        row = base.best_row(rows, EFFICIENCY)
        words = {"name": user_code.name_below(data, row), "num": len(rows) if len(rows) > 1 else None}
        return {"uncertain": Value.of(row, EFFICIENCY)}, words | {"mark": "uncertain"}
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


TOPIC = Topic("scripts", "Training scripts", {}, section, findings, kinds=KINDS, benchmarks=("script",))
