"""The topic of scaling: throughput and efficiency of training steps, and where the loss goes. docs/metrics.md."""

import pandas as pd

from regatta.core.text import NOT_PLANNED, rank_word
from regatta.model.frozen import FrozenCampaign
from regatta.report.bars import Bar, Bars
from regatta.report.page import is_large
from regatta.report.panels import Figure, Section, Table, common_words, divided, how_to_read, name_rows
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, steps_by_cell
from regatta.topics.memory import NAME
from regatta.topics.scaling.figures import headline, scaling_figures
from regatta.topics.scaling.scaling_findings import KINDS, efficiency_findings, findings, loss_rows, threads_text
from regatta.topics.scaling.scaling_tables import (
    EFFICIENCIES,
    EFFICIENCY,
    PARTS,
    SCALING,
    STRONG,
    efficiencies_table,
    scaling_table,
)

MOST_ROWS = 40  # rows shown in the table of baselines; the CSV has all


def section(data: ReportData) -> Section | None:
    scaling = data.tables["scaling"]
    placed = name_rows(data.with_stack_places(scaling), "train_step")
    figures = scaling_figures(placed, steps_by_cell(data.measurements), data.device)
    tables = baseline_tables(data.tables["efficiencies"], placed, data.device)
    if not figures and not tables:
        return None
    common = common_words(scaling) if len(scaling) else ""
    lead = f"All workloads: {common}. Batch size is per {rank_word(data.device)}." if common else ""
    drawn = how_to_read(scaling, "step_s") if figures else ""
    if is_large(data.campaign):  # charts of so many workloads are alike
        figures, drawn = [], "Efficiency of each workload and shape: heatmap above. Throughput: all cells, below."
    texts = (reference_text(data), lead, drawn, peaks_text(data.campaign, scaling))
    efficiency, throughput = divided(figures, "efficiency")
    losses = losses_figures(loss_rows(data), data)
    shown = {"figures": efficiency, "folded": ("Throughput", throughput)} if efficiency else {"figures": throughput}
    lead = " ".join(filter(None, texts))
    shown["figures"] += losses
    return Section("scaling", "Scaling", lead=lead, tables=tables, headline=headline(data, placed), **shown)


MOST_BARS = 24  # of the breakdown; its table has all


def losses_figures(rows: list[dict], data: ReportData) -> tuple[Figure, ...]:
    """Return the throughput breakdown, a stacked bar for each shape; none without rows.

    Of more than MOST_BARS rows, the largest shapes of each workload and stack. rows: of `loss_rows`.
    """
    groups = grouped(rows, ("name",))
    shapes = max(1, MOST_BARS // max(len(groups), 1))
    shown = [row for of in groups.values() for row in of[:shapes]][:MOST_BARS]
    if not shown:
        return ()
    bars = [Bar(row["name"], row["shape"], row["cell"], _percents(row)) for row in shown]
    heads = ("efficiency", *(part.label for part in PARTS))
    title = "Throughput breakdown, largest shapes first"
    title += f": {len(shown)} of {len(rows)} bars" if len(shown) < len(rows) else ""
    columns = ("cell", *(f"{head[0].upper()}{head[1:]} (%)" for head in heads))
    texts = ([NOT_PLANNED if part is None else f"{part:z.1f}" for part in _percents(row)] for row in rows)
    lines = tuple((data.names[row["cell"]], *text) for row, text in zip(rows, texts, strict=True))
    table = Table("Throughput breakdown", columns, lines, cells=tuple(row["cell"] for row in rows))
    return (Figure("losses", title, Bars(bars, heads), table, "scaling", EFFICIENCY.block_key),)


def _percents(row: dict) -> tuple[float | None, ...]:
    """Return what is left and what each part loses, in percent."""
    return tuple(None if part is None else 100 * part for part in (row["kept"], *(loss for _, loss in row["losses"])))


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
    title += f"; {len(shown)} of {len(rows)} rows" if len(shown) < len(rows) else ""
    columns = (NAME, *EFFICIENCIES.of_table("baselines"))
    return (Table.of_columns(title, columns, shown, device, sources=("efficiencies",)),)


def peaks_text(campaign: FrozenCampaign, scaling: pd.DataFrame) -> str:
    """Return the peaks that MFU is relative to, with their sources; empty if there is no MFU."""
    used = {(row.peak_dtype, row.peak_tflop_per_s) for row in scaling[scaling["mfu_ratio"].notna()].itertuples()}
    texts = [
        f"{peak['tflop_per_s']:g} TFLOP/s ({peak['dtype']}) of {peak['device']}, by {peak['source']}"
        for peak in campaign.cluster.get("peaks") or []
        if (peak["dtype"], float(peak["tflop_per_s"])) in used
    ]
    return f"MFU is relative to {'; '.join(texts)}." if texts else ""


TABLES = {
    "scaling": TableSpec.of(SCALING, scaling_table, "campaign", "measurements"),
    "efficiencies": TableSpec.of(EFFICIENCIES, efficiencies_table, "campaign", "measurements"),
}
TOPIC = Topic("scaling", "Scaling", TABLES, section, findings, kinds=KINDS)
