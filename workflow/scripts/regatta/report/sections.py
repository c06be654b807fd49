"""The sections of the report that show numbers, in their order. Each is one call of the module that draws it."""

from dataclasses import dataclass

import pandas as pd

from regatta.analysis.scaling import steps_by_cell
from regatta.report.advice import threads_by_shape
from regatta.report.collective_figures import collective_figures
from regatta.report.heatmap import heatmap_figures
from regatta.report.panels import Section, common_words
from regatta.report.strategy_figures import memory_tables, strategy_figures
from regatta.report.training_figures import bucket_figures, scaling_figures


@dataclass(frozen=True)
class Numbers:
    """What sections are made of. tables: by name, as in tables/<name>.csv. headers: first lines of the launch files."""

    campaign: dict
    measurements: pd.DataFrame
    tables: dict[str, pd.DataFrame]
    headers: list[dict]

    @property
    def ok(self) -> pd.DataFrame:
        return self.measurements[self.measurements["status"] == "ok"]


def sections(numbers: Numbers) -> list[Section]:
    return [
        scaling_section(numbers),
        heatmap_section(numbers),
        bucket_section(numbers),
        strategy_section(numbers),
        communication_section(numbers),
        memory_section(numbers),
    ]


def scaling_section(numbers: Numbers) -> Section:
    campaign, scaling = numbers.campaign, numbers.tables["scaling"]
    threads = threads_by_shape(campaign, numbers.headers)
    figures = scaling_figures(scaling, steps_by_cell(numbers.measurements), campaign["device"], threads)
    one = "process" if campaign["device"] == "cpu" else "GPU"
    common = common_words(scaling) if len(scaling) else ""
    lead = f"All workloads: {common}. A batch is that of one {one}." if common else ""
    has_efficiency = any(figure.id.startswith("efficiency") for figure in figures)
    told = ("efficiency", 3) if has_efficiency else ("throughput", 2)
    return Section("scaling", "Scaling", "No training step was measured.", lead, tuple(figures), findings=(told,))


def heatmap_section(numbers: Numbers) -> Section:
    figures = heatmap_figures(numbers.tables["scaling"], numbers.measurements)
    return Section("heatmap", "Efficiency at a glance", "No efficiency was measured.", figures=tuple(figures))


def bucket_section(numbers: Numbers) -> Section:
    figures = bucket_figures(numbers.tables["scaling"], steps_by_cell(numbers.measurements))
    empty = "No workload was measured with two bucket sizes."
    return Section("bucket", "Bucket size", empty, figures=tuple(figures), findings=(("bucket", 1),))


def strategy_section(numbers: Numbers) -> Section:
    figures = strategy_figures(numbers.tables["strategies"], numbers.measurements)
    empty = "No step was measured with and without exchange of gradients."
    return Section("strategies", "Exchange of gradients", empty, figures=tuple(figures), findings=(("strategy", 1),))


def communication_section(numbers: Numbers) -> Section:
    ok = numbers.ok
    medians = {cell: group["p50_s"].tolist() for cell, group in ok[ok["p50_s"].notna()].groupby("cell")}
    figures = collective_figures(numbers.tables["collectives"], medians)
    told = ("bandwidth", 2) if any(f.id.startswith("bandwidth") for f in figures) else ("latency", 2)
    return Section(
        "communication", "Communication", "No collective was measured.", figures=tuple(figures), findings=(told,)
    )


def memory_section(numbers: Numbers) -> Section:
    table = memory_tables(numbers.tables["memory"])
    return Section("memory", "Memory", "No training step was measured.", tables=(table,) if table else ())
