"""The topic of scaling: throughput and efficiency of training steps, and where the loss goes. docs/metrics.md."""

import pandas as pd

from regatta.core.text import is_unknown, plural, rank_word, ranks_word, shape, three
from regatta.report.findings import Finding, Source, Value, of_cells, percent_number, percent_text, value_text
from regatta.report.panels import Section, common_words
from regatta.report.provenance import threads_by_shape
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.scaling.figures import scaling_figures
from regatta.topics.scaling.heatmap import heatmap_figures
from regatta.topics.scaling.tables import (
    EFFICIENCIES,
    EXCELLENT,
    GOOD,
    SCALING,
    WIDE_RATIO,
    efficiencies_table,
    scaling_table,
    steps_by_cell,
)
from regatta.topics.scaling.words import (
    Threads,
    baseline_tables,
    best_of_largest,
    candidates,
    is_wide,
    model_tables,
    peaks_text,
)

WORKLOAD = ["model", "image_size", "context_length", "dtype", "batch_size", "optimizer", "compile", "channels_last"]
GROUP = [*WORKLOAD, "stack", "backend"]
MOST_EFFICIENCIES, MOST_THROUGHPUTS = 4, 2  # among the findings
PARTS = {"wrapper_ratio": "DDP", "intra_node_ratio": "within the node", "inter_node_ratio": "between nodes"}


def section(data: ReportData) -> Section:
    scaling, one = data.tables["scaling"], rank_word(data.device)
    figures = scaling_figures(
        scaling, steps_by_cell(data.measurements), data.device, threads_by_shape(data.campaign, data.headers)
    )
    common = common_words(scaling) if len(scaling) else ""
    lead = [f"All workloads: {common}. Batch size is per {one}."] if common else []
    tables = (*baseline_tables(data.tables["efficiencies"], scaling), *model_tables(data.ok))
    text = " ".join(part for part in (*lead, peaks_text(data.campaign, scaling)) if part)
    return Section("scaling", "Scaling", "No training step was measured.", text, tuple(figures), tables)


def heatmap_section(data: ReportData) -> Section:
    figures = heatmap_figures(data.tables["scaling"], data.measurements)
    return Section("heatmap", "Efficiency overview", "No efficiency was measured.", figures=tuple(figures))


def findings(data: ReportData) -> list[Finding]:
    """Return the lowest efficiencies, one for each workload and stack at its largest shape; else the highest throughputs.

    The fastest cell of a workload's largest shape speaks for it; cells whose interval overlaps its interval are ties.
    """
    scaling = data.tables["scaling"]
    groups = [rows for _, rows in scaling.groupby(GROUP, dropna=False, sort=True)]
    known = [rows for rows in groups if rows["efficiency_ratio"].notna().any()]
    if not known:
        measured = [best_of_largest(rows) for rows in groups if rows["step_s"].notna().any()]
        fastest = sorted(measured, key=lambda row: -row.throughput_samples_per_s)
        return [_throughput(row, data) for row in fastest[:MOST_THROUGHPUTS]]
    threads = threads_by_shape(data.campaign, data.headers)
    found = [_efficiency(rows[rows["efficiency_ratio"].notna()], scaling, threads, data) for rows in known]
    found = sorted(found, key=lambda finding: finding.values["efficiency"].estimate)
    found.sort(key=lambda finding: finding.kind == "efficiency_uncertain")  # after those that say how much is lost
    shown = found[:MOST_EFFICIENCIES]
    if len(found) > len(shown):
        source = Source("tables/scaling.csv", what="all rows with an efficiency")
        shown.append(Finding("lowest", {"num": len(shown), "num_groups": len(found)}, (source,)))
    return shown


def _throughput(row, data: ReportData) -> Finding:
    value = Value.of(row, "throughput", "samples_per_s")
    values = {"name": data.names[row.cell], "throughput": value}
    return Finding("throughput", values, (of_cells("scaling", [row.cell]),), (row.cell,))


def _efficiency(rows: pd.DataFrame, scaling: pd.DataFrame, threads: Threads, data: ReportData) -> Finding:
    best, chosen = best_of_largest(rows), candidates(rows)
    overlapping = chosen[(chosen["step_low_s"] <= best.step_high_s).fillna(False) & (chosen["cell"] != best.cell)]
    base = scaling.set_index("cell").loc[best.baseline]
    places = {(int(row.nodes), int(row.gpus_per_node)) for row in (best, base)}
    own_threads = {place: tuple(sorted(threads[place])) for place in sorted(places) if place in threads}
    values = {
        "name": data.names[best.cell],
        "baseline": data.names[best.baseline],
        "efficiency": Value.of(best, "efficiency", "ratio", "efficiency_interval"),
        **{name: float(getattr(best, name)) for name in PARTS if not is_unknown(getattr(best, name))},
        "num_candidates": len(chosen),
        "ties": tuple(data.names[cell] for cell in overlapping["cell"]),
        "threads": own_threads if len(set(own_threads.values())) > 1 else {},
        "ranks": ranks_word(data.device),
    }
    sources = (of_cells("scaling", [best.cell, best.baseline, *chosen["cell"]]),)
    return Finding(
        "efficiency_uncertain" if is_wide(best) else "efficiency", values, sources, (best.cell, best.baseline)
    )


def sentence(finding: Finding) -> str:
    values = finding.values
    if finding.kind == "lowest":
        return f"Shown are the lowest {values['num']} of {plural(values['num_groups'], 'efficiency', 'efficiencies')}."
    if finding.kind == "throughput":
        return f"{values['name']}: {value_text(values['throughput'], three, 'samples/s')}. No baseline was measured."
    if finding.kind == "efficiency_uncertain":
        return f"{values['name']}: efficiency uncertain, {percent_text(values['efficiency'])}. More launches needed."
    text = f"{values['name']}: {percent_text(values['efficiency'])} scaling efficiency against {values['baseline']}."
    losses = [f"{label} {percent_number(1 - values[name])} %" for name, label in PARTS.items() if name in values]
    text += f" Lost: {', '.join(losses)}." if losses else ""
    if values["threads"]:
        listed = ", ".join(
            f"{'/'.join(map(str, nums))} at {shape(*place)}" for place, nums in values["threads"].items()
        )
        text += f" The {values['ranks']} share the cores (threads each: {listed})."
    if values["ties"]:
        text += f" Within noise of it: {'; '.join(values['ties'])}."
    return text


def methods(campaign: dict) -> list[tuple[str, str]]:
    steps = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "train_step"]
    baseline = ", ".join(f"{name} {value}" for name, value in campaign["baseline"].items())
    terms = [
        (
            "Step time",
            "Time per step of train_step: several steps run back to back in a window, and the device is synchronized only"
            " at its ends. Total time of the slowest ranks / total steps. measurements.csv also has single synchronized"
            " steps (p50_s).",
        ),
        (
            "Throughput",
            "Ranks × batch size per rank / median over launches of the time per step. Times are summarized and rates derived;"
            " rates are never averaged. The batch size per rank is fixed: weak scaling.",
        ),
        (
            "Efficiency",
            f"Throughput per rank / throughput per rank of the baseline ({baseline}) for the same workload, stack and"
            f" backend. Above {EXCELLENT:.1f} excellent, above {GOOD:.1f} good, else poor. No grade if the range crosses a"
            f" limit, or if ranks and baseline ran with different numbers of threads. Uncertain if the range is wider than"
            f" {100 * WIDE_RATIO:g} % of the efficiency.",
        ),
        (
            "Loss by part",
            "Wrapper = X(1) / X without DDP(1). Intra-node = X(g) / (g X(1)). Inter-node = X(kg) / (k X(g)), for throughput X"
            " on k nodes of g ranks. Their product is the efficiency against one rank without DDP. n/a if a cell has no"
            " valid record.",
        ),
    ]
    if steps and campaign["cluster"].get("peaks"):
        text = (
            "Model FLOP/s utilization: operations of the model's matrix products (model, not hardware; a multiply-add counts"
            " as two) per second and GPU / peak of the GPU in the cluster file, for the fastest arithmetic that torch's"
            " settings allow. Empty if GPU, settings or peak are unknown."
        )
        terms.append(("MFU", text))
    return terms if steps else []


TABLES = {
    "scaling": TableSpec(SCALING, lambda campaign, tables: scaling_table(campaign, tables["measurements"])),
    "efficiencies": TableSpec(
        EFFICIENCIES, lambda campaign, tables: efficiencies_table(campaign, tables["measurements"])
    ),
}
TOPIC = Topic("scaling", "Scaling", TABLES, section, findings, sentence, methods=methods)
HEATMAP = Topic("heatmap", "Efficiency overview", section=heatmap_section)
