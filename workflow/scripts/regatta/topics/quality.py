"""Whether measurements are precise: variation between launches, drift, autocorrelation, outliers. docs/metrics.md."""

from dataclasses import replace

import pandas as pd

from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.statistics import DRIFT_P
from regatta.core.text import natural, percent, plural, three
from regatta.kit.columns import CELL_ID, Column, Columns
from regatta.report.cell_numbers import RANGE
from regatta.report.findings import Advice, Finding, Source, of_cells, of_runs, percent_number
from regatta.store.csv_files import WHOLE, make_table
from regatta.store.records import INCOMPLETE
from regatta.topics.base import ReportData, TableSpec, Topic, with_primary

INDEPENDENT_RATIO = 0.1  # effective samples below this share of a launch's samples are reported
OUTLIER_RATIO = 0.05  # more outliers than this share are reported; of an exponential tail it is 1 %
MIN_OUTLIERS = 3  # fewer say nothing: of 23 samples, two are 9 %
CHANCE = 0.01  # chance of this many drifting measurements
SLOW_FIRST_RATIO = 10  # a first iteration of more than this many medians is reported
DISAGREEMENT_RATIO = 0.05  # range of launches over their median
CELLS_GOOD_RATIO, CELLS_LOW_RATIO = 0.2, 0.5  # confidence: good up to this share of varying cells, low above that
_TIME = {"shown_as": "ms", "table": "variation"}
LAUNCH_RANGES = Columns(
    CELL_ID,
    Column("num_launches", type=WHOLE, help="ok launches with a primary time"),
    Column("median_s", "time", help="median over launches of the primary time", is_shown=True, is_main=True, **_TIME),
    Column("min_s", "fastest launch", help="smallest primary time of a launch", **_TIME),
    Column("max_s", "slowest launch", help="largest primary time of a launch", **_TIME),
    replace(RANGE, help="(`max_s` − `min_s`) / `median_s`; empty for one launch"),
)


def launch_ranges_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell with an ok launch that has a primary time.

    range_ratio: (largest - smallest) / median; unknown for one launch.
    """
    found = with_primary(measurements).groupby("cell")["primary_s"].agg(["count", "median", "min", "max"])
    rows = [
        (cell, num, median, low, high, (high - low) / median if num > 1 else None)
        for cell, num, median, low, high in found[found["count"] > 0].itertuples(name=None)
    ]
    rows.sort(key=lambda row: natural(row[0]))
    return make_table([dict(zip(LAUNCH_RANGES, row, strict=True)) for row in rows], LAUNCH_RANGES)


def noise_findings(data: ReportData) -> list[Finding]:
    """Return the finding on cells whose launches vary so much that small differences between cells are not reliable."""
    ratio = data.tables["launch_ranges"].set_index("cell")["range_ratio"].dropna()
    large = ratio[ratio > DISAGREEMENT_RATIO].sort_values(ascending=False, kind="stable")
    if large.empty:
        return []
    values = {"num": len(large), "num_cells": len(ratio)}
    values |= {"worst_ratio": float(large.iloc[0]), "worst": data.names[large.index[0]]}
    return [Finding("noisy", values, (of_cells("launch_ranges", large.index),), tuple(large.index), "warnings")]


def noise_sentence(finding: Finding) -> str:
    values = finding.values
    lead = "Noisy machine" if 2 * values["num"] > values["num_cells"] else "Variation"
    vary = "varies" if values["num"] == 1 else "vary"
    return (
        f"{lead}: {values['num']} of {plural(values['num_cells'], 'result')} {vary} by more than"
        f" {100 * DISAGREEMENT_RATIO:g} % between launches (worst: {values['worst']},"
        f" {percent_number(values['worst_ratio'])} %)."
    )


def precision_warnings(data: ReportData) -> list[Advice]:
    campaign, ok, names = data.campaign, data.ok, data.names
    noisy = (
        "Check for other load, clock frequency changes and process placement. More launches (repeats) narrow the"
        " confidence interval of the median; longer sampling does not."
    )
    found = [
        *(
            Advice(noise_sentence(finding), noisy, finding.sources, finding.values, finding.cells)
            for finding in noise_findings(data)
        ),
        imprecise(campaign, ok, data.tables["launch_ranges"]),
        drifting(ok, names),
        autocorrelated(ok, names),
        outlying(ok, names),
        _slow_first(ok, names),
        _few_launches(campaign),
        _single_values(campaign, ok),
        _incomplete_files(ok),
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
        f"Target precision{_requested(campaign, missed)} missed: {values['num']:,} of {plural(len(ok), 'measurement')},"
        f" in {plural(values['num_cells'], 'cell')} (stopped by {limits})."
    )
    advice = f"Increase {' and '.join(sorted(missed['stop'].unique()))} under sampling, or accept this precision."
    if not pd.isna(half_width):
        values |= {"half_width_ratio": float(half_width), "worst_ratio": float(missed["half_width_ratio"].max())}
        median, worst = (percent(values[name]) for name in ("half_width_ratio", "worst_ratio"))
        text += f" Achieved: ±{median} %" + (f" (median), ±{worst} % (worst)." if median != worst else ".")
    if num_unknown := int(missed["half_width_ratio"].isna().sum()):
        values["num_without_interval"] = num_unknown
        text += f" Without an interval: {num_unknown:,} (fewer than 40 samples, or strong autocorrelation)."
    if not pd.isna(half_width) and not pd.isna(between):
        values["between_ratio"] = float(between)
        text += f" Variation of these cells between launches: {percent(values['between_ratio'])} % (median)."
        if between > 2 * half_width:  # the whole width of an interval
            advice = "Between-launch variation dominates; increase repeats."
    sources = (of_runs("measurements", missed), *([of_cells("launch_ranges", ranges["cell"])] if len(ranges) else []))
    return Advice(text, advice, sources, values, _cells(missed))


def _requested(campaign: dict, missed: pd.DataFrame) -> str:
    """Return the requested precision of these cells, ` (±1.0 %)`, or "" for imported cells."""
    cells = set(missed["cell"])
    rules = [cell["spec"].get("sampling") for cell in campaign["cells"] if cell["id"] in cells]
    ratios = sorted({rule["target_precision"] for rule in rules if rule})
    return f" ({' or '.join(f'±{percent(ratio)} %' for ratio in ratios)})" if ratios else ""


def drifting(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """Return the warning on times that rise or fall within more launches than chance explains."""
    from scipy.special import bdtrc  # scipy.stats takes half a second to import

    tested = ok[ok["has_drift"].notna()]
    found = tested[tested["has_drift"].astype(bool)]
    # A record without drift is flagged with probability DRIFT_P at most: a change too small to matter is never flagged.
    if found.empty or bdtrc(len(found) - 1, len(tested), DRIFT_P) > CHANCE:
        return None
    most = found.loc[found["drift_ratio"].abs().idxmax()]
    rises, expected = int((found["drift_ratio"] > 0).sum()), DRIFT_P * len(tested)
    expected = f"{expected:.0f}" if expected >= 9.5 else f"{expected:.2g}"
    return Advice(
        f"Drift within launches: {len(found)} of {plural(len(tested), 'measurement')} ({rises} rose,"
        f" {len(found) - rises} fell; {expected} expected by chance). Largest: a trend of"
        f" {percent(float(most['drift_ratio']))} % of the median per launch, {_run(most, names)}.",
        "With drift, the median depends on the sampling time. Rising: check temperatures and clocks. Falling: increase"
        " max_warmup_seconds.",
        (of_runs("measurements", found, most.name),),
        {"num": len(found), "num_tested": len(tested), "num_rising": rises, "largest": float(most["drift_ratio"])},
        _cells(found),
    )


def _cells(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(rows["cell"].unique())


def _run(row: pd.Series, names: dict[str, str]) -> str:
    return f"{names[row['cell']]}, launch {row['repeat'] + 1}"


def autocorrelated(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """Return the warning on autocorrelated samples, which widen intervals within the launch."""
    ratio = (ok["effective_samples"] / ok["num_iterations"]).dropna()
    few = ratio[ratio < INDEPENDENT_RATIO]
    if few.empty:
        return None
    least = ok.loc[few.idxmin()]
    effective = float(least["effective_samples"])
    return Advice(
        f"Autocorrelated samples: effective sample size below {100 * INDEPENDENT_RATIO:g} % in {len(few)} of"
        f" {plural(len(ratio), 'measurement')}. Minimum: {three(effective)} of {least['num_iterations']},"
        f" {_run(least, names)}.",
        "Intervals within such a launch (p50_low_s, target precision) are wider. Intervals over launches are not"
        " affected. Increase repeats; longer sampling helps little.",
        (of_runs("measurements", ok.loc[few.index], few.idxmin()),),
        {"num": len(few), "num_known": len(ratio), "least_effective_samples": effective},
        _cells(ok.loc[few.index]),
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
        f"Outliers: more than {100 * OUTLIER_RATIO:g} % of the samples, and at least {MIN_OUTLIERS}, in {len(many)} of"
        f" {plural(len(ratio), 'measurement')}. Maximum: {most['num_outliers']} of {most['num_iterations']},"
        f" {_run(most, names)}. Overall: {total:,} of {num_samples:,} samples ({percent(total / num_samples)} %).",
        "Outliers are not removed. They raise means and high percentiles; medians are barely affected. Check for"
        " other load on the machine.",
        (of_runs("measurements", counted.loc[many.index], many.idxmax()),),
        {"num": len(many), "num_known": len(ratio), "num_outliers": total, "num_samples": num_samples},
        _cells(counted.loc[many.index]),
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
        "It is part of the warm-up and excluded from all results. A job that restarts often pays this cost each time.",
        (of_runs("measurements", ok.loc[slow.index], slow.idxmax()),),
        {"num": len(slow), "num_known": len(ratio), "largest": float(slow.max())},
        _cells(ok.loc[slow.index]),
    )


def _single_values(campaign: dict, ok: pd.DataFrame) -> Advice | None:
    """Return the warning on imported results that consist of one launch each."""
    launches = ok.groupby("cell").size()
    num = int((launches == 1).sum())
    if not campaign.get("imported") or not num:
        return None
    return Advice(
        f"No range or interval (single launch): {num} of {plural(len(launches), 'imported result')}.",
        "Differences between single launches cannot be tested. Import the output of further runs of the same program.",
        (of_runs("measurements", ok[ok["cell"].isin(launches[launches == 1].index)]),),
        {"num_single": num, "num_cells": len(launches)},
    )


def _incomplete_files(ok: pd.DataFrame) -> Advice | None:
    """Return the warning on results imported from excerpts or truncated files."""
    rows = ok[ok["stop"].str.endswith(INCOMPLETE).fillna(False)]
    if rows.empty:
        return None
    return Advice(
        f"Incomplete files: {len(rows):,} of {plural(len(ok), 'measurement')} imported with --incomplete.",
        "Rows of these files may be missing, such as the slowest or largest. Import the complete output.",
        (of_runs("measurements", rows),),
        {"num": len(rows), "num_ok": len(ok)},
        _cells(rows),
    )


def _few_launches(campaign: dict) -> Advice | None:
    if campaign["repeats"] >= MIN_LAUNCHES or campaign.get("imported"):
        return None
    return Advice(
        f"{plural(campaign['repeats'], 'launch', 'launches')} per cell: too few for 95 % confidence intervals; ranges"
        " over launches are shown.",
        f"Set repeats to {MIN_LAUNCHES} or more. Only the missing launches will run.",
        (Source(campaign["source"], what="repeats"),),
        {"num": campaign["repeats"]},
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    text = (
        f"A cell varies if its range over launches exceeds {100 * DISAGREEMENT_RATIO:g} % of the median. Good:"
        f" {MIN_LAUNCHES} or more launches planned per cell, at most {100 * CELLS_GOOD_RATIO:g} % of the cells"
        " vary, and compared cells were interleaved in time. Low: more than"
        f" {100 * CELLS_LOW_RATIO:g} % vary, no cell has two valid launches, or ranks of another launch ran on the same"
        " host. Otherwise fair. Cells with one valid launch are not counted."
    )
    return [("Confidence", text)]


TABLES = {"launch_ranges": TableSpec(LAUNCH_RANGES, lambda _, tables: launch_ranges_table(tables["measurements"]))}
TOPIC = Topic(
    *("precision", "Warnings", TABLES, None, noise_findings, noise_sentence, precision_warnings, methods),
    is_of_sweeps=True,
)
