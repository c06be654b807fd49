"""How precise the numbers are: variation between launches, drift, autocorrelation, outliers. tables/launch_ranges.csv.

Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.core.statistics import DRIFT_P, MIN_LAUNCHES_INTERVAL
from regatta.core.text import natural, percent, plural, three
from regatta.report.findings import Advice, Finding, Source, of_cells, of_runs, percent_number
from regatta.store.tables import REAL, TEXT, WHOLE, make_table
from regatta.topics.base import ReportData, TableSpec, Topic

INDEPENDENT_RATIO = 0.1  # effective samples below this share of a launch's samples are reported
OUTLIER_RATIO = 0.05  # more outliers than this share are reported; of an exponential tail it is 1 %
MIN_OUTLIERS = 3  # fewer say nothing: of 23 samples, two are 9 %
CHANCE = 0.01  # of so many drifting measurements
SLOW_FIRST_RATIO = 10  # a first iteration of more than this many medians is reported
DISAGREEMENT_RATIO = 0.05  # range of launches over their median
LAUNCH_RANGES = {"cell": TEXT, "num_launches": WHOLE} | dict.fromkeys(
    ("median_s", "min_s", "max_s", "range_ratio"), REAL
)


def launch_ranges_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell with an ok launch that has a time: of one step in windows, else the launch's median.

    range_ratio: (largest - smallest) / median; unknown for one launch.
    """
    ok = measurements[measurements["status"] == "ok"]
    value = ok["window_step_s"].fillna(ok["p50_s"])
    found = value.groupby(ok["cell"]).agg(["count", "median", "min", "max"])
    rows = [
        {"cell": cell, "num_launches": num, "median_s": median, "min_s": low, "max_s": high}
        | {"range_ratio": (high - low) / median if num > 1 else None}
        for cell, num, median, low, high in found[found["count"] > 0].itertuples(name=None)
    ]
    return make_table(sorted(rows, key=lambda row: natural(row["cell"])), LAUNCH_RANGES)


def findings(data: ReportData) -> list[Finding]:
    """Return the finding on cells whose launches vary so much that small differences between cells are not reliable."""
    ratio = data.tables["launch_ranges"].set_index("cell")["range_ratio"].dropna()
    large = ratio[ratio > DISAGREEMENT_RATIO].sort_values(ascending=False, kind="stable")
    if large.empty:
        return []
    worst = large.index[0]
    values = {
        "num": len(large),
        "num_cells": len(ratio),
        "worst_ratio": float(large.iloc[0]),
        "worst": data.names[worst],
    }
    return [Finding("noisy", values, (of_cells("launch_ranges", large.index),), tuple(large.index), "warnings")]


def sentence(finding: Finding) -> str:
    values = finding.values
    lead = "Noisy machine" if 2 * values["num"] > values["num_cells"] else "Variation"
    return (
        f"{lead}: {values['num']} of {plural(values['num_cells'], 'result')} vary by more than"
        f" {100 * DISAGREEMENT_RATIO:g} % between launches (worst: {values['worst']},"
        f" {percent_number(values['worst_ratio'])} %)."
    )


def warnings(data: ReportData) -> list[Advice]:
    campaign, ok, names = data.campaign, data.ok, data.names
    noisy = (
        "Check for other work on the machine, clocks and placement. More launches (repeats) narrow the median; longer"
        " sampling does not."
    )
    found = [
        *(Advice(sentence(finding), noisy, finding.sources, finding.values) for finding in findings(data)),
        imprecise(campaign, ok, data.tables["launch_ranges"]),
        drifting(ok, names),
        autocorrelated(ok, names),
        outlying(ok, names),
        _slow_first(ok, names),
        _few_launches(campaign),
    ]
    return list(filter(None, found))


def imprecise(campaign: dict, ok: pd.DataFrame, launch_ranges: pd.DataFrame) -> Advice | None:
    """Return the warning on missed precision. The advice depends on the variation between launches."""
    missed = ok[ok["stop"].isin(["max_seconds", "max_samples"])]
    if missed.empty:
        return None
    limits = ", ".join(f"{limit}: {num}" for limit, num in sorted(missed["stop"].value_counts().items()))
    missed = missed.sort_values("half_width_ratio", ascending=False, kind="stable")
    ranges = launch_ranges[launch_ranges["cell"].isin(missed["cell"]) & launch_ranges["range_ratio"].notna()]
    half_width, between = missed["half_width_ratio"].median(), ranges["range_ratio"].median()
    values = {"num": len(missed), "num_ok": len(ok), "num_cells": int(missed["cell"].nunique())}
    text = (
        f"Precision missed{_requested(campaign, missed)}: {values['num']} of {plural(len(ok), 'measurement')}, in"
        f" {plural(values['num_cells'], 'cell')} (stopped by {limits})."
    )
    advice = f"Raise {' and '.join(sorted(missed['stop'].unique()))} under sampling, or accept the precision."
    if not pd.isna(half_width):
        values |= {"half_width_ratio": float(half_width), "worst_ratio": float(missed["half_width_ratio"].max())}
        text += (
            f" Reached: ±{percent(values['half_width_ratio'])} % (median), ±{percent(values['worst_ratio'])} % (worst)."
        )
    if not pd.isna(half_width) and not pd.isna(between):
        values["between_ratio"] = float(between)
        text += f" Between launches these cells vary by {percent(values['between_ratio'])} % (median)."
        if between > 2 * half_width:  # the whole width of an interval
            advice = "Between-launch variation dominates; increase repeats."
    sources = (of_runs("measurements", missed), *([of_cells("launch_ranges", ranges["cell"])] if len(ranges) else []))
    return Advice(text, advice, sources, values)


def _requested(campaign: dict, missed: pd.DataFrame) -> str:
    """Return the requested precision of these cells, ` (±1.0 %)`, or "" for imported cells."""
    cells = set(missed["cell"])
    rules = [cell["spec"].get("sampling") for cell in campaign["cells"] if cell["id"] in cells]
    ratios = sorted({rule["target_precision"] for rule in rules if rule})
    return f" ({' or '.join(f'±{percent(ratio)} %' for ratio in ratios)})" if ratios else ""


def drifting(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """Return the warning on times that rise or fall within more launches than chance explains."""
    from scipy.stats import binomtest  # half a second, which only reports with these columns need

    tested = ok[ok["has_drift"].notna()]
    found = tested[tested["has_drift"].astype(bool)]
    # A record without drift is flagged with probability DRIFT_P at most: a change too small to matter is never flagged.
    if found.empty or binomtest(len(found), len(tested), DRIFT_P, alternative="greater").pvalue > CHANCE:
        return None
    most = found.loc[found["drift_ratio"].abs().idxmax()]
    rises, expected = int((found["drift_ratio"] > 0).sum()), DRIFT_P * len(tested)
    expected = f"{expected:.0f}" if expected >= 9.5 else f"{expected:.2g}"
    return Advice(
        f"Drift within launches: {len(found)} of {plural(len(tested), 'measurement')} ({rises} rose,"
        f" {len(found) - rises} fell; {expected} expected by chance). Largest:"
        f" {percent(float(most['drift_ratio']))} % from first to last sample, {_run(most, names)}.",
        "Rising: check temperatures and clocks. Falling: raise max_warmup_seconds. The median then depends on the"
        " sampling time.",
        (of_runs("measurements", found, most.name),),
        {"num": len(found), "num_tested": len(tested), "num_rising": rises, "largest": float(most["drift_ratio"])},
    )


def _run(row: pd.Series, names: dict[str, str]) -> str:
    return f"{names[row['cell']]}, repeat {row['repeat']}"


def autocorrelated(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """Return the warning on autocorrelated samples, which make an interval within the launch too narrow."""
    ratio = (ok["effective_samples"] / ok["num_iterations"]).dropna()
    few = ratio[ratio < INDEPENDENT_RATIO]
    if few.empty:
        return None
    least = ok.loc[few.idxmin()]
    effective = float(least["effective_samples"])
    return Advice(
        f"Autocorrelated samples: effective sample size below {100 * INDEPENDENT_RATIO:g} % in {len(few)} of"
        f" {plural(len(ratio), 'measurement')}. Least: {three(effective)} of {least['num_iterations']},"
        f" {_run(least, names)}.",
        "Intervals within such a launch (p50_low_s, the precision that ends sampling) are too narrow. Intervals over"
        " launches are not affected. Increase repeats; longer sampling helps little.",
        (of_runs("measurements", ok.loc[few.index], few.idxmin()),),
        {"num": len(few), "num_known": len(ratio), "least_effective_samples": effective},
    )


def outlying(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """Return the warning on measurements with many outliers."""
    counted = ok[ok["num_outliers"].notna()]
    total, num_samples = int(counted["num_outliers"].sum()), int(counted["num_iterations"].sum())
    ratio = (counted["num_outliers"] / counted["num_iterations"]).dropna()
    many = ratio[(ratio > OUTLIER_RATIO) & (counted["num_outliers"] >= MIN_OUTLIERS)]
    if many.empty:
        return None
    most = counted.loc[many.idxmax()]
    return Advice(
        f"Outliers: more than {100 * OUTLIER_RATIO:g} % of the samples in {len(many)} of"
        f" {plural(len(ratio), 'measurement')}. Most: {most['num_outliers']} of {most['num_iterations']},"
        f" {_run(most, names)}. Overall: {total:,} of {num_samples:,} samples ({percent(total / num_samples)} %).",
        "They are kept in all numbers: medians are barely affected, means and high percentiles are. Check for other"
        " work on the machine.",
        (of_runs("measurements", counted.loc[many.index], many.idxmax()),),
        {"num": len(many), "num_known": len(ratio), "num_outliers": total, "num_samples": num_samples},
    )


def _slow_first(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    ratio = (ok["first_iteration_s"] / ok["p50_s"]).dropna()
    slow = ratio[ratio > SLOW_FIRST_RATIO]
    if slow.empty:
        return None
    slowest = ok.loc[slow.idxmax()]
    return Advice(
        f"Slow first iteration: more than {SLOW_FIRST_RATIO} times the median in {len(slow)} of"
        f" {plural(len(ratio), 'measurement')} (up to {three(float(slow.max()))} times, {_run(slowest, names)}).",
        "It belongs to the warm-up and is in none of the numbers. A job that restarts often pays it each time.",
        (of_runs("measurements", ok.loc[slow.index], slow.idxmax()),),
        {"num": len(slow), "num_known": len(ratio), "largest": float(slow.max())},
    )


def _few_launches(campaign: dict) -> Advice | None:
    if campaign["repeats"] >= MIN_LAUNCHES_INTERVAL or campaign.get("imported"):
        return None
    return Advice(
        f"{plural(campaign['repeats'], 'launch', 'launches')} per cell: ranges over launches replace 95 % confidence"
        " intervals.",
        f"Set repeats to {MIN_LAUNCHES_INTERVAL} or more for intervals; only the missing launches run.",
        (Source(campaign["source"], what="repeats"),),
        {"num": campaign["repeats"]},
    )


TABLES = {"launch_ranges": TableSpec(LAUNCH_RANGES, lambda _, tables: launch_ranges_table(tables["measurements"]))}
TOPIC = Topic("precision", "Precision", TABLES, findings=findings, sentence=sentence, warnings=warnings)
