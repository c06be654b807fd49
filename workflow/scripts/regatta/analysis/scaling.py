"""Throughput and efficiency of training steps: tables/scaling.csv. Definitions: docs/metrics.md.

Rates are never averaged: the median over launches is taken of the time per step, and the rate derived from it.
"""

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.launch_values import LaunchValues
from regatta.analysis.partners import Partners
from regatta.analysis.tables import SCALING, make_table
from regatta.analysis.utilisation import COLUMNS as UTILISATION_COLUMNS
from regatta.analysis.utilisation import utilisation
from regatta.cell_words import natural
from regatta.statistics import over_launches, ratio_over_launches

EXCELLENT, GOOD = 0.9, 0.8  # efficiency above which the words are given
WIDE_RATIO = 0.2  # an efficiency whose spread is wider than this share of it is inconclusive
NO_WRAPPER = {"strategy": "none", "nodes": 1, "gpus_per_node": 1}


def scaling_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    specs = {c["id"]: c["spec"] for c in campaign["cells"] if c["spec"]["benchmark"] == "train_step"}
    steps, partners = steps_by_cell(measurements), Partners(specs)
    ok = measurements.loc[measurements["status"] == "ok", ["cell", *UTILISATION_COLUMNS]]
    launches = dict(list(ok.groupby("cell")))
    rows = []
    for cell in (cell for cell in campaign["cells"] if cell["id"] in specs):
        row = cell_row(cell) | _rates(cell, campaign, partners, steps)
        own = launches.get(cell["id"], ok.iloc[:0])
        rows.append(row | utilisation(campaign, cell["spec"], own, row["step_s"]))
    rows.sort(key=lambda row: natural(row["cell"]))
    return make_table(rows, SCALING)


def steps_by_cell(measurements: pd.DataFrame) -> dict[str, list[float]]:
    """Return for each cell the seconds per pipelined step of each ok launch."""
    launches = LaunchValues(measurements, ["window_step_s"])
    steps = {cell: launches.of(cell, "window_step_s") for cell in launches.cells()}
    return {cell: values for cell, values in steps.items() if values}


def is_inconclusive(efficiency_ratio: float, low: float | None, high: float | None) -> bool:
    """Return whether the spread of an efficiency is too wide to tell anything by it. Without a spread: False."""
    return low is not None and high is not None and high - low > WIDE_RATIO * efficiency_ratio


def grade(efficiency_ratio: float, low: float | None = None, high: float | None = None) -> str | None:
    """Return the word for an efficiency, or None where its spread is unknown, inconclusive or on both sides of a limit."""
    if low is None or high is None:
        return None  # one launch would else get firmer words than six
    is_on_both_sides = any(low <= limit < high for limit in (EXCELLENT, GOOD))
    if is_on_both_sides or is_inconclusive(efficiency_ratio, low, high):
        return None
    return _word(efficiency_ratio)


def grades_within(low: float, high: float) -> list[str]:
    """Return the words that a spread reaches over, the best first."""
    words = ["excellent", "good", "poor"]
    return words[words.index(_word(high)) : words.index(_word(low)) + 1]


def _word(efficiency_ratio: float) -> str:
    if efficiency_ratio > EXCELLENT:
        return "excellent"
    return "good" if efficiency_ratio > GOOD else "poor"


def _rates(cell: dict, campaign: dict, partners: Partners, steps: dict[str, list[float]]) -> dict:
    spec = cell["spec"]
    batch, world_size = spec["parameters"]["batch_size"], spec["nodes"] * spec["gpus_per_node"]
    own = over_launches(steps.get(cell["id"], []))
    baseline = partners.find(spec, campaign["baseline"])
    row = {
        "num_planned": campaign["repeats"],
        "num_launches": own.num,
        "interval": own.kind,
        "step_s": own.median,
        "step_low_s": own.low,
        "step_high_s": own.high,
        "throughput_samples_per_s": _rate(world_size * batch, own.median),
        "throughput_low_samples_per_s": _rate(world_size * batch, own.high),
        "throughput_high_samples_per_s": _rate(world_size * batch, own.low),
        "throughput_per_gpu_samples_per_s": _rate(batch, own.median),
        "baseline": baseline,
    }
    if baseline is not None:
        row |= _efficiency(spec, partners.specs[baseline], steps.get(cell["id"], []), steps.get(baseline, []))
    if baseline == cell["id"]:  # 1 by definition, so it has neither spread nor grade
        row |= {"efficiency_low_ratio": None, "efficiency_high_ratio": None, "efficiency_interval": None, "grade": None}
    return row | _parts(spec, partners, steps)


def _efficiency(spec: dict, baseline: dict, own_steps: list[float], baseline_steps: list[float]) -> dict:
    """Throughput per GPU as a ratio of the baseline's: (b/T) / (b0/T0)."""
    batch, batch_0 = spec["parameters"]["batch_size"], baseline["parameters"]["batch_size"]
    ratio = ratio_over_launches([step / batch_0 for step in baseline_steps], [step / batch for step in own_steps])
    base = over_launches(baseline_steps)
    return {
        "baseline_samples_per_s": _rate(baseline["nodes"] * baseline["gpus_per_node"] * batch_0, base.median),
        "efficiency_ratio": ratio.median,
        "efficiency_low_ratio": ratio.low,
        "efficiency_high_ratio": ratio.high,
        "efficiency_interval": ratio.kind,
        "grade": None if ratio.median is None else grade(ratio.median, ratio.low, ratio.high),
    }


def _parts(spec: dict, partners: Partners, steps: dict[str, list[float]]) -> dict:
    """Where efficiency is lost: wrapper X(1)/X_none(1), intra-node X(g)/(g X(1)), inter-node X(kg)/(k X(g)).

    A part that this shape does not have (no second GPU or node) and one with a missing cell are both unknown.
    """
    k, g = spec["nodes"], spec["gpus_per_node"]

    def per_gpu(changes: dict) -> float | None:
        cell = partners.find(spec, changes)
        return (
            None if cell is None else _rate(spec["parameters"]["batch_size"], over_launches(steps.get(cell, [])).median)
        )

    one_gpu, one_node, all_nodes = per_gpu({"nodes": 1, "gpus_per_node": 1}), per_gpu({"nodes": 1}), per_gpu({})
    is_wrapped = spec["parameters"]["strategy"] != "none"
    return {
        "wrapper_ratio": _ratio(one_gpu, per_gpu(NO_WRAPPER)) if is_wrapped else None,
        "intra_node_ratio": _ratio(one_node, one_gpu) if g > 1 else None,
        "inter_node_ratio": _ratio(all_nodes, one_node) if k > 1 else None,
    }


def _rate(work: float, seconds: float | None) -> float | None:
    return None if seconds is None else work / seconds


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below
