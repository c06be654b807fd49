"""Whether measurements are precise: variation between launches, drift, outliers. docs/metrics.md."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.patterns import axes_of, find_pattern
from regatta.core.statistics import DRIFT_P
from regatta.core.text import natural, percent, three
from regatta.kit.columns import CELL_ID, Column, Columns
from regatta.kit.kinds import FAIR, LOW, NOTE, SUMMARY, Kind, Value
from regatta.report.cell_numbers import RANGE
from regatta.report.findings import Finding, Source, file_of, of_cells, of_runs
from regatta.store.csv_files import WHOLE, make_table
from regatta.store.records import INCOMPLETE
from regatta.topics.base import ReportData, TableSpec, Topic, plain_rows, with_primary

OUTLIER_RATIO = 0.05  # more outliers than this share are reported; of an exponential tail it is 1 %
MIN_OUTLIERS = 3  # fewer say nothing: of 23 samples, two are 9 %
CHANCE = 0.01  # chance of this many drifting measurements
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
    times = with_primary(measurements).groupby("cell")["primary_s"]
    found = times.agg(num_launches="count", median_s="median", min_s="min", max_s="max").reset_index()
    ratios = (found["max_s"] - found["min_s"]) / found["median_s"]
    rows = found.assign(range_ratio=ratios.where(found["num_launches"] > 1)).to_dict("records")
    return make_table(sorted(rows, key=lambda row: natural(row["cell"])), LAUNCH_RANGES)


SHARE = Column("share_ratio", shown_as="%", figures=2)
LIMIT, GOOD, LOWEST = (f"{100 * ratio:g} %" for ratio in (DISAGREEMENT_RATIO, CELLS_GOOD_RATIO, CELLS_LOW_RATIO))
VARIES = f"variation between launches above {LIMIT} in"
VARIATION = f"{VARIES[1:]} {{num}} of {{num_cells:cell}}."
WHERE = "Where: {where} ({num_inside}), {num_outside} elsewhere."
NOISY = "Check for other load, clock changes and process placement. More launches (repeats) narrow intervals."
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
        f" such warning. Variation between launches above {LIMIT} is low in more than {LOWEST} of the cells with two"
        f" valid launches or more, fair in more than {GOOD}; otherwise it is a note.",
    ),
    *(
        Kind(name, rank, lead, (WHERE, "Worst: {worst}, {worst_ratio:number}."), NOISY, step)
        for name, rank, lead, step in (
            ("noisy_machine", LOW, f"Noisy machine: v{VARIATION}", QUIETER),
            ("variation", FAIR, f"V{VARIATION}", QUIETER),
            ("some_variation", NOTE, f"V{VARIATION}", ""),
        )
    ),
    Kind(
        *("single_launches", LOW, "Single launches: {num} of {num_cells:cell} have no second valid launch."),
        advice=f"No difference can be tested. {MORE}",
        next_step=MORE_LAUNCHES,
    ),
    Kind(
        *("few_launches", FAIR, f"Few launches: fewer than {MIN_LAUNCHES} for {{num}} of {{num_cells:cell}}."),
        parts=("They have ranges, not confidence intervals.",),
        advice=MORE,
        next_step=MORE_LAUNCHES,
    ),
    Kind(
        *("drift", FAIR, "Drift within launches: {num} of {num_known:measurement}."),
        parts=("Expected by chance: {expected}. Largest: a trend of {trend} % of the median per launch, {run}.",),
        advice="The median depends on the sampling time. Rising: check clocks. Falling: raise max_warmup_seconds.",
        next_step="warm up longer: `max_warmup_seconds`",
    ),
    Kind(
        *("imprecise", NOTE, "Target precision missed: {num:measurement} of {num_known}, in {num_cells:cell}."),
        parts=(
            "Achieved: ±{half_width_ratio:number} (median).",
            "Their variation between launches: {between_ratio:number} (median).",
        ),
        advice="If they vary more between launches, increase repeats; else max_seconds and max_samples (sampling).",
    ),
    Kind(
        *("outlying", NOTE),
        lead=f"Outliers: more than {100 * OUTLIER_RATIO:g} % of the iterations, and at least {MIN_OUTLIERS},"
        f" {OF_MEASUREMENTS}.",
        parts=("Maximum: {worst_num_outliers} of {worst_num_iterations}, {run}.",),
        advice="Outliers are not removed; medians are barely affected. Check for other load on the machine.",
    ),
    Kind(
        *("incomplete_files", NOTE, "Incomplete files: {num} of {num_known:measurement} imported with --incomplete."),
        advice="Rows of these files may be missing, such as the slowest or largest. Import the complete output.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the counts of the line on confidence, and findings on the precision of measurements."""
    ok, outliers = data.ok, data.ok["num_outliers"]
    many = outliers.where(outliers.isna() | (outliers >= MIN_OUTLIERS), 0) / ok["num_iterations"]
    of = partial(_worst_first, data)
    return [
        *_between_launches(data),
        *_drifting(ok, of),
        *_imprecise(ok, data.tables["launch_ranges"], of),
        *of("outlying", many, OUTLIER_RATIO),
        *of("incomplete_files", ok["stop"].str.endswith(INCOMPLETE).fillna(False).astype(float), 0),
    ]


def _worst_first(
    data: ReportData, kind: str, share: pd.Series, limit: float, values: dict | None = None, **words
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
    values = {"num": len(rows), "num_known": len(known), "worst": float(known.max())} | (values or {})
    cells = tuple(rows["cell"].unique())
    return [Finding(kind, values, (of_runs("measurements", rows),), cells, "warnings", words)]


def _between_launches(data: ReportData) -> list[Finding]:
    """Return the counts of varying cells, and the finding on variation, or that it is unknown; none if nothing is ok.

    Cells with too few launches are named unless most have one.
    """
    if data.ok.empty:
        return []
    ranges, repeats = data.tables["launch_ranges"].set_index("cell")["range_ratio"], data.campaign.repeats
    known = ranges.dropna().sort_values(ascending=False, kind="stable")
    large, single = known[known > DISAGREEMENT_RATIO], ranges.index[ranges.isna()]
    counts = {"num_varying": len(large), "num_cells": len(known), "num_launches": repeats}
    source = Source(file_of("launch_ranges"), what="all rows")
    found = [Finding("confidence", counts, (source,), (), "warnings")]
    if 2 * len(single) > len(ranges):
        values, source = {"num": len(single), "num_cells": len(ranges)}, of_cells("launch_ranges", single)
        return [*found, Finding("single_launches", values, (source,), tuple(single), "warnings")]
    if len(large):
        is_above = [len(large) > limit * len(known) for limit in (CELLS_GOOD_RATIO, CELLS_LOW_RATIO)]
        kind = ("some_variation", "variation", "noisy_machine")[sum(is_above)]
        values = {"num": len(large), "num_cells": len(known), "worst_ratio": Value(RANGE, float(large.iloc[0]))}
        words, source = {"worst": data.names[large.index[0]]}, of_cells("launch_ranges", large.index)
        axes = [axes_of(data.cell_names[cell], data.campaign.by_id[cell].fields) for cell in known.index]
        pattern = find_pattern(axes, [cell in large.index for cell in known.index])
        values["pattern"] = pattern and pattern.values
        if pattern:
            counts = dict(zip(("num_inside", "num_outside"), pattern.counts_text(), strict=True))
            words |= {"where": pattern.text(data.device)} | counts
        found.append(Finding(kind, values, (source,), tuple(large.index), "warnings", words))
    cells = data.campaign.cells
    if few := tuple(cell.id for cell in cells if data.campaign.repeats_of(cell) < MIN_LAUNCHES):
        source = Source(data.campaign.source, what="repeats")
        values = {"num": len(few), "num_cells": len(cells)}
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
    """Return the finding on missed precision, with the variation of its cells between launches."""
    is_missed, widths = ok["stop"].isin(["max_seconds", "max_samples"]), ok["half_width_ratio"]
    cells = ok.loc[is_missed, "cell"]
    between = launch_ranges.loc[launch_ranges["cell"].isin(cells), "range_ratio"]
    medians = {"half_width_ratio": widths[is_missed].median(), "between_ratio": between.median()}
    values = {name: Value(SHARE, float(ratio)) for name, ratio in medians.items() if pd.notna(ratio)}
    return of("imprecise", is_missed * (1 + widths.fillna(0)), 0, {"num_cells": cells.nunique()} | values)


TABLES = {"launch_ranges": TableSpec.of(LAUNCH_RANGES, launch_ranges_table, "measurements")}
TERM = (
    "Variation between launches",
    "(Largest − smallest) / median, over a cell's valid launches. The value of a launch is its pipelined time per step"
    f" or call, else the median of its iterations. Unknown with one launch. Limit: {LIMIT}.",
)
TOPIC = Topic("precision", "Warnings", TABLES, None, findings, KINDS, (TERM,), is_of_sweeps=True, is_judge=True)
