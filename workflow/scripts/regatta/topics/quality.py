"""Whether measurements are precise: variation between launches, drift, autocorrelation, outliers. docs/metrics.md."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import pandas as pd

from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.statistics import DRIFT_P
from regatta.core.text import natural, percent, three
from regatta.kit.columns import CELL_ID, Column, Columns
from regatta.kit.findings import FAIR, LOW, NOTE, SUMMARY, Kind, Value
from regatta.report.cell_numbers import RANGE
from regatta.report.findings import Finding, Source, file_of, of_cells, of_runs
from regatta.store.csv_files import WHOLE, make_table
from regatta.store.records import INCOMPLETE
from regatta.topics.base import ReportData, TableSpec, Topic, plain_rows, with_primary

INDEPENDENT_RATIO = 0.1  # effective samples below this share of a launch's samples are reported
OUTLIER_RATIO = 0.05  # more outliers than this share are reported; of an exponential tail it is 1 %
MIN_OUTLIERS = 3  # fewer say nothing: of 23 samples, two are 9 %
CHANCE = 0.01  # chance of this many drifting measurements
SLOW_FIRST_RATIO = 10  # a first iteration of more than this many medians is reported
DISAGREEMENT_RATIO = 0.05  # range of launches over their median
CELLS_GOOD_RATIO, CELLS_LOW_RATIO = 0.2, 0.5  # shares of varying cells above which confidence is fair, and low
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


SHARE = Column("share_ratio", shown_as="%", figures=2)
LIMIT, GOOD, LOWEST = (f"{100 * ratio:g} %" for ratio in (DISAGREEMENT_RATIO, CELLS_GOOD_RATIO, CELLS_LOW_RATIO))
VARIES = f"between-launch variation above {LIMIT} in"
VARIATION = f"{VARIES} {{num}} of {{num_cells:cell}}."
WORST = ("Worst: {worst}, {worst_ratio:number}.",)
NOISY = (
    "Check for other load, clock frequency changes and process placement. More launches (repeats) narrow the confidence"
    " interval of the median; longer sampling does not."
)
MORE = f"Set repeats to {MIN_LAUNCHES} or more: only missing launches will run. For imports, add more runs."
QUIETER = "find the load that disturbs the machine"
MORE_LAUNCHES = f"more launches: `repeats: {MIN_LAUNCHES}`"
OF_MEASUREMENTS = "in {num} of {num_known:measurement}"
KINDS = (
    Kind(
        *("confidence", SUMMARY),
        lead=(f"{VARIES} {{num_varying}} of {{num_cells:cell}}", f"{VARIES} 0 of {{num_cells:cell}}", "no ranges"),
        term="Confidence",
        help="Low: a warning makes comparisons of its cells unreliable. Fair: compare its cells with caution. Good: no"
        " such warning. The summary lists these warnings, the worst first. Variation: range over launches above"
        f" {LIMIT} of the median. Confidence is low if this affects more than {LOWEST} of the cells with at least two"
        f" valid launches, fair above {GOOD}; otherwise it is a note.",
    ),
    *(
        Kind(name, rank, f"{subject}: {VARIATION}", WORST, NOISY, step)
        for name, rank, subject, step in (
            ("noisy_machine", LOW, "Noisy machine", QUIETER),
            ("variation", FAIR, "Variation", QUIETER),
            ("some_variation", NOTE, "Variation", ""),
        )
    ),
    Kind(
        *("single_launches", LOW, "Single launches: {num} of {num_cells:cell} have no second valid launch."),
        advice=f"No difference can be tested. {MORE}",
        next_step=MORE_LAUNCHES,
    ),
    Kind(
        *("drift", FAIR, "Drift within launches: {num} of {num_known:measurement}."),
        parts=("Expected by chance: {expected}. Largest: a trend of {trend} % of the median per launch, {run}.",),
        advice="The median depends on the sampling time. Rising: check clocks. Falling: raise max_warmup_seconds.",
        next_step="warm up longer: `max_warmup_seconds`",
    ),
    Kind(
        *("few_launches", FAIR),
        lead=f"Few launches: fewer than {MIN_LAUNCHES} for {{num}} of {{num_cells:cell}}.",
        parts=("They have ranges, not confidence intervals.",),
        advice=MORE,
        next_step=MORE_LAUNCHES,
    ),
    Kind(
        *("imprecise", NOTE),
        lead="Target precision missed: {num:measurement} of {num_known}, in {num_cells:cell} (limit: {limits}).",
        parts=(
            "Achieved: ±{half_width_ratio:number} (median).",
            "Variation of these cells between launches: {between_ratio:number} (median).",
        ),
        advice=(
            "Between-launch variation of {dominating:number} dominates; increase repeats.",
            "Increase max_seconds and max_samples under sampling, or accept this precision.",
        ),
    ),
    Kind(
        *("autocorrelated", NOTE),
        lead=f"Autocorrelated samples: effective sample size below {100 * INDEPENDENT_RATIO:g} % {OF_MEASUREMENTS}.",
        parts=("Minimum: {worst_effective_samples:.3g} of {worst_num_iterations}, {run}.",),
        advice="Intervals over launches are not affected. Increase repeats; longer sampling helps little.",
    ),
    Kind(
        *("outlying", NOTE),
        lead=f"Outliers: more than {100 * OUTLIER_RATIO:g} % of the samples, and at least {MIN_OUTLIERS},"
        f" {OF_MEASUREMENTS}.",
        parts=("Maximum: {worst_num_outliers} of {worst_num_iterations}, {run}.",),
        advice="Outliers are not removed; medians are barely affected. Check for other load on the machine.",
    ),
    Kind(
        *("slow_first", NOTE),
        lead=f"Slow first iteration: more than {SLOW_FIRST_RATIO} times the median {OF_MEASUREMENTS}.",
        parts=("Up to {worst:.3g} times, {run}.",),
        advice="It is excluded from all results. A job that restarts often pays this cost each time.",
    ),
    Kind(
        *("incomplete_files", NOTE, "Incomplete files: {num} of {num_known:measurement} imported with --incomplete."),
        advice="Rows of these files may be missing, such as the slowest or largest. Import the complete output.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the counts of the line on confidence, and findings on the precision of measurements."""
    ok, iterations, outliers = data.ok, data.ok["num_iterations"], data.ok["num_outliers"]
    many = outliers.where(outliers.isna() | (outliers >= MIN_OUTLIERS), 0) / iterations
    of = partial(_worst_first, data)
    return [
        *_between_launches(data),
        *_drifting(ok, of),
        *_imprecise(ok, data.tables["launch_ranges"], of),
        *of("autocorrelated", -ok["effective_samples"] / iterations, -INDEPENDENT_RATIO),
        *of("outlying", many, OUTLIER_RATIO),
        *of("slow_first", ok["first_iteration_s"] / ok["p50_s"], SLOW_FIRST_RATIO),
        *of("incomplete_files", ok["stop"].str.endswith(INCOMPLETE).fillna(False).astype(float), 0),
    ]


def _worst_first(
    data: ReportData, kind: str, share: pd.Series, limit: float, values: Mapping = MappingProxyType({}), **words
) -> list[Finding]:
    """Return the finding on measurements whose share is above the limit, the worst first; none without any.

    Words include the columns of the worst one, such as `worst_num_outliers`.
    """
    known = share.dropna()
    rows = data.ok.loc[known[known > limit].sort_values(ascending=False, kind="stable").index]
    if rows.empty:
        return []
    worst = plain_rows(rows.head(1), tuple(rows))[0]
    words |= {f"worst_{name}": value for name, value in worst.items()}
    words |= {"run": f"{data.names[worst['cell']]}, launch {worst['repeat'] + 1}"}
    values = {"num": len(rows), "num_known": len(known), "worst": abs(float(known.max()))} | values
    cells = tuple(rows["cell"].unique())
    return [Finding(kind, values, (of_runs("measurements", rows),), cells, "warnings", words)]


def _between_launches(data: ReportData) -> list[Finding]:
    """Return the counts of varying cells, and the finding on variation, or that it is unknown; none if nothing is ok.

    Cells with too few launches are named unless most have one.
    """
    if data.ok.empty:
        return []
    ranges, repeats = data.tables["launch_ranges"].set_index("cell")["range_ratio"], data.campaign["repeats"]
    known = ranges.dropna().sort_values(ascending=False, kind="stable")
    large = known[known > DISAGREEMENT_RATIO]
    counts = {"num_varying": len(large), "num_cells": len(known), "num_launches": repeats}
    source = Source(file_of("launch_ranges"), what="all rows")
    found = [Finding("confidence", counts, (source,), (), "warnings")]
    single = ranges.index[ranges.isna()]
    if 2 * len(single) > len(ranges):
        values, source = {"num": len(single), "num_cells": len(ranges)}, of_cells("launch_ranges", single)
        return [*found, Finding("single_launches", values, (source,), tuple(single), "warnings")]
    if len(large):
        share = len(large) / len(known)
        kind = "variation" if share > CELLS_GOOD_RATIO else "some_variation"
        kind = "noisy_machine" if share > CELLS_LOW_RATIO else kind
        values = {"num": len(large), "num_cells": len(known), "worst_ratio": Value(RANGE, float(large.iloc[0]))}
        words = {"worst": data.names[large.index[0]]}
        source = of_cells("launch_ranges", large.index)
        found.append(Finding(kind, values, (source,), tuple(large.index), "warnings", words))
    planned = {cell["id"]: cell.get("repeats", repeats) for cell in data.campaign["cells"]}
    if few := tuple(cell for cell, num in planned.items() if num < MIN_LAUNCHES):
        values = {"num": len(few), "num_cells": len(planned)}
        source = Source(data.campaign["source"], what="repeats")
        found.append(Finding("few_launches", values, (source,), few, "warnings"))
    return found


def _drifting(ok: pd.DataFrame, of: Callable[..., list[Finding]]) -> list[Finding]:
    """Return the finding on times that rise or fall within more launches than chance explains."""
    from scipy.special import bdtrc  # scipy.stats takes half a second to import

    tested = ok[ok["has_drift"].notna()]
    drifts = tested["drift_ratio"].where(tested["has_drift"].astype(bool), 0)
    num, expected = int((drifts != 0).sum()), DRIFT_P * len(tested)
    # A record without drift is flagged with probability DRIFT_P at most: a change too small to matter is never flagged.
    if num == 0 or bdtrc(num - 1, len(tested), DRIFT_P) > CHANCE:
        return []
    values = {"largest": float(drifts.loc[drifts.abs().idxmax()])}
    return of("drift", drifts.abs(), 0, values, trend=percent(values["largest"]), expected=three(expected, 2))


def _imprecise(ok: pd.DataFrame, launch_ranges: pd.DataFrame, of: Callable[..., list[Finding]]) -> list[Finding]:
    """Return the finding on missed precision. The advice depends on the variation between launches."""
    is_missed = ok["stop"].isin(["max_seconds", "max_samples"])
    missed, widths = ok[is_missed], ok["half_width_ratio"]
    between = launch_ranges.loc[launch_ranges["cell"].isin(missed["cell"]), "range_ratio"]
    ratios = {"half_width_ratio": widths[is_missed].median(), "between_ratio": between.median()}
    ratios = {name: float(ratio) for name, ratio in ratios.items() if pd.notna(ratio)}
    values = {"num_cells": int(missed["cell"].nunique())} | {
        name: Value(SHARE, ratio) for name, ratio in ratios.items()
    }
    words = {"limits": [f"{limit} in {num}" for limit, num in sorted(missed["stop"].value_counts().items())]}
    if ratios.get("between_ratio", 0) > 2 * ratios.get("half_width_ratio", math.inf):  # the whole width of an interval
        words["dominating"] = values["between_ratio"]
    return of("imprecise", is_missed * (1 + widths.fillna(0)), 0, values, **words)


TABLES = {"launch_ranges": TableSpec.of(LAUNCH_RANGES, launch_ranges_table, "measurements")}
TOPIC = Topic("precision", "Warnings", TABLES, findings=findings, is_of_sweeps=True, is_judge=True, kinds=KINDS)
