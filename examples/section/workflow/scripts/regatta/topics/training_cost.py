"""Cost of training: GPU-hours for a million samples, and what of them scaling losses cost. From cells.csv."""

from regatta.core.text import percent, rank_word, three
from regatta.report.panels import Section, Table, launches, name_rows
from regatta.topics.base import ReportData, Topic

SAMPLES, SECONDS_PER_HOUR = 1_000_000, 3600


def section(data: ReportData) -> Section:
    rows = data.cells_of("train_step").dropna(subset="throughput_per_gpu_samples_per_s")
    tables = (_table(name_rows(rows, "train_step"), data.device),) if len(rows) else ()
    return Section("cost", "Cost of training", "No training step was measured.", tables=tables)


def _table(rows, device: str) -> Table:
    hours = f"{rank_word(device)}-hours per million samples"
    body = tuple(
        (
            row.cell_name.full,
            launches(row),
            three(SAMPLES / row.throughput_per_gpu_samples_per_s / SECONDS_PER_HOUR),
            percent(1 - row.efficiency_ratio),
        )
        for row in rows.sort_values("throughput_per_gpu_samples_per_s", ascending=False).itertuples()
    )
    return Table(
        "Cost of training, cheapest first", ("cell", "n", hours, "lost to scaling (%)"), body, sources=("cells",)
    )


TERM = (
    "Cost of training",
    "Inverse of the throughput per GPU or process. Lost to scaling: one minus the efficiency of the cell.",
)
TOPIC = Topic("cost", "Cost of training", section=section, terms=(TERM,))
