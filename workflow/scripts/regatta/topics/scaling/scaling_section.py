"""The topic of scaling: throughput and efficiency of training steps, and where the loss goes. docs/metrics.md."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

import pandas as pd

from regatta.core.names import PLACE, CellName
from regatta.core.text import NOT_PLANNED, rank_word
from regatta.kit.columns import FULL_NAME, table_rows
from regatta.model.frozen import FrozenCampaign
from regatta.report import panels
from regatta.report.chart import GROUND, LEVEL, LOSS, Chart, PlotAxis, Style
from regatta.report.panels import MOST_FIGURES, Figure, Section, Table, folded
from regatta.report.plots import Plot, figures_of, full, ideal, named, section_of
from regatta.tables.baselines import EFFICIENCIES, EFFICIENCY, efficiencies_table
from regatta.tables.counterparts import STRONG
from regatta.tables.metrics import METRICS, STEP, THROUGHPUT
from regatta.topics.base import ReportData, TableSpec, Topic, with_context
from regatta.topics.scaling.scaling_findings import (
    KINDS,
    LOSSES,
    efficiency_findings,
    fastest,
    findings,
    loss_bars,
    threads_text,
)

MOST_ROWS = 40  # rows shown in the table of baselines; the CSV has all


def section(data: ReportData) -> Section | None:
    scaling = data.cells_of("train_step")
    rows = panel_rows(data, scaling)
    throughput, efficiency = figures_of(data, THROUGHPUT_PLOT, rows), figures_of(data, EFFICIENCY_PLOT, rows)
    tables = baseline_tables(data.tables["efficiencies"], rows, data.device)
    if not throughput and not tables:
        return None
    common = panels.common_words(scaling)
    lead = f"All workloads: {common}. Batch size is per {rank_word(data.device)}." if common else ""
    peaks = peaks_text(data.campaign, scaling, set(data.ok["gpu"].dropna()))
    above = above_texts(scaling, losses := losses_figures(data))
    sentences, shown = [reference_text(data), lead, *above, peaks], [*(efficiency or throughput), *losses]
    first = headline(data, rows)
    parts = folded("throughput", "Throughput", throughput if efficiency else ())
    if is_many := len(shown) > MOST_FIGURES:  # charts of so many workloads are alike
        sentences.append("Efficiency of each workload and shape: matrix above. Throughput: all cells, below.")
    if is_many or (first and losses):
        parts = () if is_many else (*folded("efficiency", "Efficiency by workload", efficiency), *parts)
        shown = (*first, *losses)
    more = {"parts": parts, "headlines": first or tuple(shown)}
    return section_of(scaling, STEP, sentences, shown, tables, **more)


LEAST_ABOVE = 1.005  # what is shown as 101 %
MOST_BARS = 6  # of the breakdown; its table has all
# Of what is left, and of each loss. That by a slow node, the exception, is hollow.
FILLS = (Style(LEVEL), *(Style(LOSS, opacity=tint) for tint in (0.55, 0.75, 1.0)), Style(GROUND))


def losses_figures(data: ReportData) -> tuple[Figure, ...]:
    """Return the throughput breakdown, a stacked bar for each shape; none without bars.

    Of more than MOST_BARS, those of the largest shapes.
    """
    if not (bars := loss_bars(data)):
        return ()
    largest = list(dict.fromkeys(bar.label for bar in bars))[: max(1, MOST_BARS // len({bar.group for bar in bars}))]
    shown = [bar for bar in bars if bar.label in largest][:MOST_BARS]
    heads = ("efficiency", *(part.label for part in LOSSES))
    heads = heads[: None if any(bar.parts[-1] for bar in shown) else -1]  # without a slow node
    labels = {bar.label for bar in shown}
    title = f"Throughput breakdown{f' at {min(labels)}' if len(labels) == 1 else ', largest shapes first'}"
    title += f": {len(shown)} of {len(bars)} bars" if len(shown) < len(bars) else ""
    columns = ("cell", "n", *(f"{head[0].upper()}{head[1:]} (%)" for head in heads))
    texts = ([NOT_PLANNED if part is None else f"{part:z.1f}" for part in bar.parts[: len(heads)]] for bar in bars)
    lines = tuple((data.names[bar.cell], bar.launches, *text) for bar, text in zip(bars, texts, strict=True))
    table = Table("Throughput breakdown", columns, lines, cells=tuple(bar.cell for bar in bars))
    marks = [
        {"cell": bar.cell, "group": bar.group, "y": bar.label, "part": head, "x": part}
        for bar in shown
        for head, part in zip(heads, bar.parts, strict=False)
    ]
    frame, styles = pd.DataFrame(marks).astype({"x": float}), dict(zip(heads, FILLS, strict=False))
    share = PlotAxis("share of the ideal throughput (%)", value="{:z.1f}".format)
    chart = Chart("stacked", frame, share, PlotAxis("shape"), series="part", styles=styles)
    return (Figure("losses", title, chart, table, "cells", EFFICIENCY.block_key),)


def above_texts(scaling: pd.DataFrame, losses: Sequence[Figure]) -> list[str]:
    """Return what efficiencies and bars above 100 % mean, of those that occur once rounded. losses: the breakdown."""
    frames = [figure.chart.frame[figure.chart.frame["x"] > 0] for figure in losses]
    sums = [of for frame in frames for of in frame.groupby("cell")["x"].sum()]
    found = {
        "Above 100 %: faster than the baseline.": bool((scaling["efficiency_ratio"] >= LEAST_ABOVE).any()),
        "A negative loss is a gain. It has no segment, and the others exceed 100 %.": max(sums, default=0)
        > 100 * LEAST_ABOVE,
    }
    return [text for text, is_shown in found.items() if is_shown]


def reference_text(data: ReportData) -> str:
    """Return what the efficiencies and losses of the findings are relative to; empty without any."""
    found = efficiency_findings(data)
    if not found:
        return ""
    names = [data.cell_names[finding.cells[1]] for finding in found]
    bases = [f"{name.parts['shape']} {name.ranks} \N{MIDDLE DOT} {name.say(*name.series)}" for name in names]
    return f"Baseline: {' or '.join(dict.fromkeys(bases))}, same workload and stack. {threads_text(data)}".strip()


def baseline_tables(efficiencies: pd.DataFrame, scaling: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table of weak and strong scaling, with the cells that have two baselines or a strong one.

    scaling: rows with names.
    """
    rows = efficiencies[efficiencies["efficiency_ratio"].notna()]
    rows = rows[rows["cell"].duplicated(keep=False) | (rows["scaling"] == STRONG)]
    if rows.empty:
        return ()
    rows = rows.merge(scaling[["cell", "cell_name", "world_size"]], on="cell")
    shown = rows.sort_values("world_size", ascending=False, kind="stable").head(MOST_ROWS)
    title = "Efficiency by baseline, largest shapes first"
    title += f"; {len(shown)} of {len(rows):,} rows" if len(shown) < len(rows) else ""
    columns = (FULL_NAME, *EFFICIENCIES.of_table("baselines"))
    return (Table.of_columns(title, columns, shown, device, sources=("efficiencies",)),)


def peaks_text(campaign: FrozenCampaign, scaling: pd.DataFrame, gpus: Collection[str]) -> str:
    """Return the peaks that MFU is relative to, with their sources; empty if there is no MFU. gpus: those measured."""
    used = {(row.peak_dtype, row.peak_tflop_per_s) for row in scaling[scaling["mfu_ratio"].notna()].itertuples()}
    found = defaultdict(list)
    for peak in campaign.cluster.get("peaks") or []:
        if (peak["dtype"], float(peak["tflop_per_s"])) in used and peak["device"] in gpus:
            found[peak["device"], peak["source"]].append(f"{peak['tflop_per_s']:g} TFLOP/s ({peak['dtype']})")
    texts = [f"{', '.join(of)} of {gpu}, by {source}" for (gpu, source), of in found.items()]
    return f"MFU is relative to {'; '.join(texts)}." if texts else ""


# Throughput and efficiency over the number of ranks.

MOST_LINES = {False: 6, True: 12}  # of the headline, whose labels stand at their ends; rows, if it has one size
OF_PANEL = {"line": panels.series_fields, "title": panels.workload, "context": "other bucket sizes"}
THROUGHPUT_PLOT, EFFICIENCY_PLOT = (
    Plot(
        *(of.label, of, None, tuple(one for one in METRICS if one.table == of.label)),
        guides=guides,
        guided_by=(EFFICIENCY, THROUGHPUT),
        **OF_PANEL,
    )
    for of, guides in ((THROUGHPUT, ideal), (EFFICIENCY, full))
)


def panel_rows(data: ReportData, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the bucket sizes that are context."""
    return with_context(named(data, rows), "bucket_cap_mb", THROUGHPUT)


def headline(data: ReportData, rows: pd.DataFrame) -> tuple[Figure, ...]:
    """Return the efficiency on each size, a line for the configuration of each workload and stack that is the fastest
    on most ranks.

    Of one size, that of the fastest cell of each workload, stack and strategy. Of more than MOST_LINES, those of the
    workloads with the lowest efficiency. None without any. rows: with names.
    """
    rows = rows.assign(configuration=[name.without("shape").full for name in rows["cell_name"]])
    known = rows[rows["efficiency_ratio"].notna() & (rows["cell"] != rows["baseline"]).fillna(False)]
    is_one_size = known["world_size"].nunique() < 2
    lines, kinds = [], ["workload", "stack", "backend", *(["strategy"] if is_one_size else [])]
    for _, of_line in known.groupby(kinds, sort=True):
        is_chosen = of_line["configuration"] == fastest(table_rows(of_line)).configuration
        of_sizes = of_line[is_chosen].sort_values("world_size", kind="stable")
        lines += [table_rows(of_sizes)] if is_one_size or of_sizes["world_size"].nunique() > 1 else []
    if not lines:
        return ()
    lines.sort(key=lambda line: (-line[-1].world_size, line[-1].efficiency_ratio))
    workloads, drawn = dict.fromkeys(line[-1].workload for line in lines), []
    for workload in workloads if len(lines) > MOST_LINES[is_one_size] else ():
        of_workload = [line for line in lines if line[-1].workload == workload]
        drawn += of_workload if len(drawn) + len(of_workload) <= MOST_LINES[is_one_size] else []
    drawn = drawn or lines[: MOST_LINES[is_one_size]]
    num_drawn = len({line[-1].workload for line in drawn})
    rows = rows[rows["world_size"].isin(known["world_size"])] if is_one_size else rows
    shown = rows[rows["configuration"].isin({row.configuration for line in drawn for row in line})]
    shown = shown.sort_values("subject_place", kind="stable")
    title = "Scaling efficiency of the fastest configurations"
    if num_drawn < len(workloads):  # of several lines of a workload, the others may be the highest of all
        has_one = len(lines) == len(workloads)
        of = f"{num_drawn} of {len(workloads)} workloads"
        title += f": lowest {of}" if has_one else f": {of}, those with the lowest values"
    more = {"line": headline_fields, "title": lambda _: "", "most": MOST_LINES[True]}
    plot = Plot("headline", EFFICIENCY, guides=lambda rows: (*full(rows), *without_slow_node(data, rows)), **more)
    [figure] = figures_of(data, plot, shown.drop(columns="is_context"))
    return (replace(figure, id="headline", title=title, table=replace(figure.table, caption=title)),)


def without_slow_node(data: ReportData, rows: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    """Return the guide of the highest efficiency that rows may have without their slow node, from the size before.

    rows: with `configuration`. None without a slow node.
    """
    cells = {cell: of.values for of in efficiency_findings(data) if of.values["slow_node"] for cell in of.cells[:1]}
    slow = [row for row in rows.itertuples() if row.cell in cells]
    if not slow:
        return []
    best = max(slow, key=lambda row: cells[row.cell]["without_slow_node_ratio"].estimate)
    before = rows[(rows["configuration"] == best.configuration) & (rows["world_size"] < best.world_size)]
    values = before.sort_values("world_size")["efficiency_ratio"].tail(1)
    values[best.Index] = cells[best.cell]["without_slow_node_ratio"].estimate
    return [(f"without {cells[best.cell]['slow_node']}", values.reindex(rows.index))]


def headline_fields(name: CellName) -> tuple[str, ...]:
    return ("subject", *name.settings, *PLACE)


TABLES = {
    "efficiencies": TableSpec.of(EFFICIENCIES, efficiencies_table, "campaign", "measurements", "cells"),
}
TOPIC = Topic("scaling", "Scaling", TABLES, section, findings, kinds=KINDS, benchmarks=("train_step",))
