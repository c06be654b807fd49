"""The sections of the report that show numbers, in their order. Each is one call of the module that draws it."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from regatta.core.statistics import PERCENTILES, min_samples
from regatta.core.text import plural, rank_word
from regatta.report.panels import Section, common_words
from regatta.report.sources import Finding, Trace
from regatta.report.warnings import threads_by_shape
from regatta.topics.buckets import best_bucket_table
from regatta.topics.communication import collective_figures
from regatta.topics.comparison.section import comparison_section
from regatta.topics.fits.figures import communication_model_figures, refusal_table, scaling_model_figures
from regatta.topics.gradient_communication import strategy_figures
from regatta.topics.memory import memory_figures, memory_tables
from regatta.topics.percentiles import bucket_tables, percentile_tables
from regatta.topics.scaling.figures import bucket_figures, scaling_figures
from regatta.topics.scaling.heatmap import heatmap_figures
from regatta.topics.scaling.tables import LaunchValues, steps_by_cell
from regatta.topics.scaling.words import baseline_tables, model_tables, peaks_text
from regatta.topics.stragglers.figures import straggler_section
from regatta.topics.sync_batchnorm import batch_norm_figures
from regatta.topics.training_runs.figures import common_of_runs, training_run_figures, training_tables

MOST_EFFICIENCIES = 4  # among the findings


@dataclass(frozen=True)
class Numbers:
    """What sections are made of. tables: by name, as in tables/<name>.csv. headers: first lines of the launch files.

    epochs: epochs.csv; waits: waits.csv. nccl: what the preflight found of NCCL, by stack. straggler_times_ns: of the record
    that is drawn of the worst straggler, (ranks, iterations).
    """

    campaign: dict
    measurements: pd.DataFrame
    tables: dict[str, pd.DataFrame]
    headers: list[dict]
    epochs: pd.DataFrame
    nccl: dict[str, dict] = field(default_factory=dict)
    waits: pd.DataFrame = field(default_factory=pd.DataFrame)
    straggler_times_ns: np.ndarray | None = None

    @property
    def ok(self) -> pd.DataFrame:
        return self.measurements[self.measurements["status"] == "ok"]


def sections(numbers: Numbers) -> list[Section]:
    return [
        scaling_section(numbers),
        heatmap_section(numbers),
        percentile_section(numbers),
        bucket_section(numbers),
        strategy_section(numbers),
        communication_section(numbers),
        model_section(numbers),
        memory_section(numbers),
        training_run_section(numbers),
        batch_norm_section(numbers),
        straggler_section(numbers.tables, numbers.waits, numbers.straggler_times_ns),
        comparisons_of(numbers),
    ]


def scaling_section(numbers: Numbers) -> Section:
    campaign, scaling = numbers.campaign, numbers.tables["scaling"]
    threads = threads_by_shape(campaign, numbers.headers)
    figures = scaling_figures(scaling, steps_by_cell(numbers.measurements), campaign["device"], threads)
    one = rank_word(campaign["device"])
    common = common_words(scaling) if len(scaling) else ""
    lead = f"All workloads: {common}. A batch is that of one {one}." if common else ""
    lead = " ".join(text for text in (lead, peaks_text(campaign, scaling)) if text)
    has_efficiency = any(figure.id.startswith("efficiency") for figure in figures)
    told = ("efficiency", MOST_EFFICIENCIES) if has_efficiency else ("throughput", 2)
    num = sum(figure.id.startswith("efficiency") for figure in figures)
    few = f"The {MOST_EFFICIENCIES} lowest of {num} are told: efficiencies of the largest shape of each workload and stack."
    traces = (Trace("tables/scaling.csv", what="all rows with an efficiency"),)
    counted = (Finding(few, "scaling", "Scaling", traces),) if num > MOST_EFFICIENCIES else ()
    models = (*baseline_tables(numbers.tables["efficiencies"], scaling), *model_tables(numbers.ok))
    empty = "No training step was measured."
    return Section("scaling", "Scaling", empty, lead, tuple(figures), models, (told,), counted)


def heatmap_section(numbers: Numbers) -> Section:
    figures = heatmap_figures(numbers.tables["scaling"], numbers.measurements)
    return Section("heatmap", "Efficiency at a glance", "No efficiency was measured.", figures=tuple(figures))


def percentile_section(numbers: Numbers) -> Section:
    tables = percentile_tables(numbers.tables["percentiles"], numbers.campaign["device"])
    least = ", ".join(f"{name.removesuffix('_s')} {min_samples(p)}" for name, p in PERCENTILES.items())
    lead = (
        "As the imported files print them."
        if numbers.campaign.get("imported")
        else (
            "Single steps, the device idle before and after each. Times: median over launches of each launch's percentile, of"
            " the slowest rank. Rates: batch of one rank / that time, so that at p95 it is the rate of slow steps. n/a where a"
            f" launch has too few steps ({least})."
        )
    )
    return Section("percentiles", "Percentiles of the step", "No training step was measured.", lead, tables=tables)


def bucket_section(numbers: Numbers) -> Section:
    figures = bucket_figures(numbers.tables["scaling"], steps_by_cell(numbers.measurements))
    tables = bucket_tables(numbers.tables["percentiles"], numbers.campaign["device"])
    best = best_bucket_table(numbers.tables["buckets"])
    tables = (*tables, best) if best else tables
    told = "In the tables, slower than is the difference of a percentile's medians over launches: no test of it, and minus is faster."
    lead = told if tables else ""
    empty = "No workload was measured with two bucket sizes."
    return Section("bucket", "Bucket size", empty, lead, tuple(figures), tables, findings=(("bucket", 1),))


def strategy_section(numbers: Numbers) -> Section:
    figures = strategy_figures(numbers.tables["strategies"], numbers.measurements)
    empty = "No step was measured with and without exchange of gradients."
    return Section("strategies", "Exchange of gradients", empty, figures=tuple(figures), findings=(("strategy", 1),))


def communication_section(numbers: Numbers) -> Section:
    figures = collective_figures(
        numbers.tables["collectives"], medians_of_launches(numbers.measurements), bool(numbers.campaign.get("imported"))
    )
    told = ("bandwidth", 2) if any(f.id.startswith("bandwidth") for f in figures) else ("latency", 2)
    return Section(
        "communication", "Communication", "No collective was measured.", figures=tuple(figures), findings=(told,)
    )


def model_section(numbers: Numbers) -> Section:
    tables, device = numbers.tables, numbers.campaign["device"]
    steps = steps_by_cell(numbers.measurements)
    figures = (
        *scaling_model_figures(tables["scaling_models"], tables["scaling"], steps, device),
        *communication_model_figures(tables["communication_models"], tables["collectives"]),
    )
    counts = [
        f"{int(tables[name]['refusal'].isna().sum())} of {plural(len(tables[name]), f'{kind} curve')}"
        for kind, name in (("communication", "communication_models"), ("scaling", "scaling_models"))
        if len(tables[name])
    ]
    num_told = min(1, sum(figure.weight > 0 for figure in figures))  # of a curve that lacks sizes or launches none
    refused = refusal_table(tables["scaling_models"], tables["communication_models"])
    lead = (
        "Of each model the curve with the largest throughput, of each operation one of the largest shape;"
        f" {' and '.join(counts)} could be fitted, all are in"
        " scaling_models.csv and communication_models.csv."
    )
    return Section(
        "models", "Fitted models", "Nothing was measured that a model could be fitted to.", lead if figures else "",
        figures, (refused,) if refused else (), findings=(("scaling-model", num_told),),
    )  # fmt: skip


def memory_section(numbers: Numbers) -> Section:
    table = memory_tables(numbers.tables["memory"])
    figures = memory_figures(numbers.tables["memory"], numbers.campaign["device"])
    empty = "No record of a training step says how much memory it took."
    return Section("memory", "Memory", empty, figures=tuple(figures), tables=(table,) if table else ())


def training_run_section(numbers: Numbers) -> Section:
    runs = numbers.tables["training_runs"]
    figures = training_run_figures(numbers.tables, numbers.epochs)
    return Section(
        "training-runs",
        "Training runs",
        "No whole training was measured.",
        common_of_runs(runs) if figures else "",
        tuple(figures),
        tuple(training_tables(runs)),
        findings=(("accuracy", 2), ("epoch-time", 1)),
    )


def batch_norm_section(numbers: Numbers) -> Section:
    figures = batch_norm_figures(numbers.tables["batch_norms"], medians_of_launches(numbers.measurements))
    empty = "No synchronised batch norm was measured."
    title = "Synchronised batch norm"
    return Section("batch-norms", title, empty, figures=tuple(figures), findings=(("batch-norm", 2),))


def medians_of_launches(measurements: pd.DataFrame) -> dict[str, list[float]]:
    """Return the median of each ok launch, in seconds, by cell."""
    launches = LaunchValues(measurements, ["p50_s"])
    medians = {cell: launches.of(cell, "p50_s") for cell in launches.cells()}
    return {cell: values for cell, values in medians.items() if values}


def comparisons_of(numbers: Numbers) -> Section:
    return comparison_section(
        numbers.campaign, numbers.measurements, numbers.tables["comparisons"], numbers.headers, numbers.nccl
    )
