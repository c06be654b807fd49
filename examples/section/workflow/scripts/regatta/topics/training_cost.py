"""Cost of training: GPU-hours for a million samples, and what of them scaling losses cost. From cells.csv."""

from regatta.core.text import percent, three
from regatta.kit.columns import Column
from regatta.report.panels import Section
from regatta.report.plots import Plot, figures_of, section_of, tables_of
from regatta.tables.metrics import COST_OF_SAMPLES
from regatta.topics.base import ReportData, Topic

HOURS = Column(
    "cost_hours_per_million_samples",
    "{hours} per million samples",
    text=lambda row: three(row.cost_hours_per_million_samples),
)
LOST = Column("efficiency_ratio", "lost to scaling (%)", text=lambda row: percent(1 - row.efficiency_ratio))
PLOT = Plot("cost", COST_OF_SAMPLES)


def section(data: ReportData) -> Section:
    rows = data.cells_of("train_step").dropna(subset=COST_OF_SAMPLES.name)
    tables = tables_of(data, rows, (HOURS, LOST), "Cost of training {}")
    return section_of(rows, COST_OF_SAMPLES, (), figures_of(data, PLOT, rows), tables)


TERM = (
    "Cost of training",
    "Inverse of the throughput per GPU or process. Lost to scaling: one minus the efficiency of the cell.",
)
TOPIC = Topic("cost", "Cost of training", section=section, terms=(TERM,))
