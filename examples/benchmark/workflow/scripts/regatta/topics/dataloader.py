"""Data loading: throughput of torch's DataLoader over the number of workers."""

from regatta.kit.columns import WHOLE, Column
from regatta.report.panels import Section
from regatta.report.plots import Plot, figures_of, section_of
from regatta.tables.metrics import LOADING
from regatta.topics.base import ReportData, Topic

RATE, *_ = LOADING
PLOT = Plot("data-loading", RATE, over=Column("num_workers", "workers per rank", WHOLE), columns=LOADING)


def section(data: ReportData) -> Section:
    rows = data.cells_of("dataloader")
    return section_of(rows, RATE, figures=figures_of(data, PLOT, rows))


TERM = (
    "Data loading",
    "One iteration is one epoch on each rank, from the creation of the iterator to the last batch. Workers persist;"
    " nothing is prefetched before. Throughput: samples of all ranks over the time of the slowest. Samples are created"
    " in memory: storage, decoding and copies to a GPU are not included.",
)
TOPIC = Topic("data-loading", "Data loading", section=section, terms=(TERM,))
