"""Warnings about the samples within launches: that they drift, resemble their neighbours, or lie far out. All are kept."""

from dataclasses import dataclass

import pandas as pd

from regatta.cell_words import with_words
from regatta.numbers import percent, plural, three
from regatta.report.traces import Trace, of_rows
from regatta.statistics import DRIFT_P

INDEPENDENT_RATIO = 0.1  # effective samples below this share of a launch's samples are worth a word
OUTLIER_RATIO = 0.05  # so are more outliers than this share; of an exponential tail it is 1 %
MIN_OUTLIERS = 3  # fewer say nothing of a launch: of 23 samples, two are 9 %
CHANCE = 0.01  # that chance alone finds so many drifting measurements


@dataclass(frozen=True)
class Advice:
    """What was found, what to do about it, and the rows that it was found in, the one that is told first."""

    found: str
    advice: str
    traces: tuple[Trace, ...]


def of_measurements(found: pd.DataFrame, first: object) -> Trace:
    """Return the rows of measurements.csv, that of the index `first` before the others."""
    return of_rows("measurements", pd.concat([found.loc[[first]], found.drop(first)]))


def drifting(ok: pd.DataFrame, words: dict[str, str]) -> Advice | None:
    """Times that rise or fall within launches, where more do than chance explains."""
    from scipy.stats import binomtest  # half a second, which a report without such columns need not spend

    tested = ok[ok["has_drift"].notna()]
    found = tested[tested["has_drift"].astype(bool)]
    # What has no drift is flagged with a chance of DRIFT_P, or less: a change too small to matter is never flagged.
    if found.empty or binomtest(len(found), len(tested), DRIFT_P, alternative="greater").pvalue > CHANCE:
        return None
    most = found.loc[found["drift_ratio"].abs().idxmax()]
    rises = int((found["drift_ratio"] > 0).sum())
    return Advice(
        f"Times rose or fell within the launch in {plural(len(found), 'measurement')} of {len(tested)} (about"
        f" {_about(DRIFT_P * len(tested))} expected by chance; {rises} rose, {len(found) - rises} fell); most, by {percent(float(most['drift_ratio']))} % from first to last sample, in {with_words(most['cell'], words)},"
        f" repeat {most['repeat']}.",
        "Rising: look at temperatures and clocks, and for work that grows. Falling: raise max_warmup_seconds. The median is then one of"
        " a time that changes, and depends on how long was sampled.",
        traces=(of_measurements(found, most.name),),
    )


def _about(expected: float) -> str:
    """Return an expected number of measurements with two figures: 0.03, 8.2, 123."""
    return f"{expected:.0f}" if expected >= 9.5 else f"{expected:.2g}"


def few_independent(ok: pd.DataFrame, words: dict[str, str]) -> Advice | None:
    """Samples that resemble their neighbours are worth fewer, so that an interval within the launch is too narrow."""
    ratio = (ok["effective_samples"] / ok["num_iterations"]).dropna()
    few = ratio[ratio < INDEPENDENT_RATIO]
    if few.empty:
        return None
    least = ok.loc[few.idxmin()]
    return Advice(
        f"Samples resemble their neighbours in {plural(len(few), 'measurement')} of {len(ratio)}: they are worth fewer than"
        f" {100 * INDEPENDENT_RATIO:g} % as many independent ones; least in {with_words(least['cell'], words)}, repeat"
        f" {least['repeat']}: {three(float(least['effective_samples']))} of {least['num_iterations']}.",
        "Intervals within such a launch (p50_low_s, the precision that ends sampling) are too narrow; those over launches are not"
        " touched. More launches (repeats) help, longer sampling little.",
        traces=(of_measurements(ok.loc[few.index], few.idxmin()),),
    )


def outlying(ok: pd.DataFrame, words: dict[str, str]) -> Advice | None:
    counted = ok[ok["num_outliers"].notna()]
    total, num_samples = int(counted["num_outliers"].sum()), int(counted["num_iterations"].sum())
    ratio = (counted["num_outliers"] / counted["num_iterations"]).dropna()
    many = ratio[(ratio > OUTLIER_RATIO) & (counted["num_outliers"] >= MIN_OUTLIERS)]
    if many.empty:
        return None
    most = counted.loc[many.idxmax()]
    return Advice(
        f"Outliers are more than {100 * OUTLIER_RATIO:g} % of the samples in {plural(len(many), 'measurement')} of {len(ratio)}; most in"
        f" {with_words(most['cell'], words)}, repeat {most['repeat']}: {most['num_outliers']} of {most['num_iterations']}. In all"
        f" measurements {total} of {num_samples} samples, {percent(total / num_samples)} %.",
        "They are kept in all numbers; medians hardly feel them, means and high percentiles do. Look for other work on the machine.",
        traces=(of_measurements(counted.loc[many.index], many.idxmax()),),
    )
