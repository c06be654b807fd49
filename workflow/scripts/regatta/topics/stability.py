"""The topic of stability: variation between launches, the most variable cells first.

Stragglers, percentiles and warnings are parts of its section. Before it, the warnings on imprecise measurements:
variation, drift, outliers. Definitions: docs/metrics.md.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import pandas as pd

from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.patterns import axes_of, find_pattern
from regatta.core.statistics import DRIFT_P
from regatta.core.text import percent, plural, three
from regatta.kit.columns import CELL_NAME, WHOLE, Column
from regatta.kit.kinds import FAIR, LOW, NOTE, WARNINGS, Kind, Value
from regatta.report.findings import Finding, Source, of_cells, of_runs
from regatta.report.panels import Section, Table
from regatta.store.csv_files import plain_rows
from regatta.store.records import INCOMPLETE
from regatta.tables.metrics import METRICS, RANGE
from regatta.topics.base import ReportData, Topic

OUTLIER_RATIO = 0.05  # more outliers than this share are reported; of an exponential tail it is 1 %
MIN_OUTLIERS = 3  # fewer say nothing: of 23 samples, two are 9 %
CHANCE = 0.01  # chance of this many drifting measurements
DISAGREEMENT_RATIO = 0.05  # range of launches over their median
CELLS_GOOD_RATIO, CELLS_LOW_RATIO = 0.2, 0.5  # shares of varying cells above which confidence is fair, and low
SHARE = Column("share_ratio", shown_as="%", figures=2)
LIMIT, GOOD, LOWEST = (f"{100 * ratio:g} %" for ratio in (DISAGREEMENT_RATIO, CELLS_GOOD_RATIO, CELLS_LOW_RATIO))
VARIATION = f"ariation between launches above {LIMIT} in {{num}} of {{num_cells:cell}}."
WHERE = "Where: {where} ({num_inside}), {num_outside} elsewhere."
NOISY = "Check for other load, clock changes and process placement. More launches (repeats) narrow intervals."
IMPORT_MORE = "mport the output of at least {least_runs} runs of the same command"
MORE = (f"I{IMPORT_MORE}.", f"Set repeats to {MIN_LAUNCHES} or more: only missing launches will run.")
QUIETER = "find the load that disturbs the machine"
RISING = "check clocks and temperatures (throttling), memory growth and other load"
STEPS = {"rising": f"times rise: {RISING}", "falling": "warm up longer"}  # by the direction of a drift
MORE_LAUNCHES = (f"i{IMPORT_MORE}", "take more launches: `repeats: {repeats}`, `{run}`")
OF_MEASUREMENTS = "in {num} of {num_known:measurement}"
KINDS = (
    *(
        Kind(name, rank, lead, (WHERE, "Worst: {worst}, {worst_ratio:number}."), NOISY, step, "variation")
        for name, rank, lead, step in (
            ("noisy_machine", LOW, f"Noisy machine: v{VARIATION}", QUIETER),
            ("variation", FAIR, f"V{VARIATION}", QUIETER),
            ("some_variation", NOTE, f"V{VARIATION}", ""),
        )
    ),
    Kind(
        *("varying_baseline", FAIR, "Baseline varies by {worst_ratio:number} between launches: {worst}."),
        parts=(f"Baselines that vary by more than {LIMIT} affect {{num_relative:efficiency/efficiencies}}.",),
        advice=NOISY,
        next_step="add launches of the baseline: increase `repeats`, `{run}`",
        key="varying_baselines",
    ),
    Kind(
        *("single_launches", LOW, "Single launches: {num} of {num_cells:cell} have no second valid launch."),
        advice=tuple(f"No difference can be tested. {more}" for more in MORE),
        next_step=MORE_LAUNCHES,
    ),
    Kind(
        *("few_launches", FAIR, f"Few launches: {{num}} of {{num_cells:cell}} have fewer than {MIN_LAUNCHES}."),
        parts=("They have ranges, not confidence intervals.",),
        advice=MORE,
        next_step=MORE_LAUNCHES,
    ),
    Kind(
        *("drift", FAIR, "Drift within launches: {num} of {num_known:measurement}."),
        parts=(
            ("Rising in {num_rising}, falling in {num_falling}.", "All of these rise: {num_rising}.", "All fall."),
            "Expected by chance: {expected}. Largest: a trend of {trend} % of the median per launch, {run}.",
        ),
        advice=f"The median depends on the sampling time. Rising: {RISING}. Falling: raise max_warmup_seconds.",
        next_step=(
            "{rising}; {falling} where they fall: `max_warmup_seconds`",
            "{rising}",
            "{falling}: `max_warmup_seconds`",
        ),
    ),
    Kind(
        *("imprecise", NOTE, "Target precision missed: {num} of {num_known:measurement}, in {num_cells:cell}."),
        parts=(
            "Achieved: ±{half_width_ratio:number} (median).",
            "Variation of their cells between launches: {between_ratio:number} (median).",
        ),
        advice="If the variation between launches exceeds the achieved precision, increase `repeats`; otherwise"
        " increase `max_seconds` and `max_samples`.",
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


def ranges_of(data: ReportData) -> pd.DataFrame:
    """Return the cells with a primary time."""
    cells = data.tables["cells"]
    return cells[cells["num_launches"] > 0]


def variations(data: ReportData) -> pd.Series:
    """Return the variation of each cell with several launches, the largest first."""
    known = ranges_of(data).set_index("cell")["range_ratio"].dropna()
    return known.sort_values(ascending=False, kind="stable")


def counts_of_variation(data: ReportData) -> dict[str, int]:
    """Return the counts of the line on confidence."""
    known = variations(data)
    num = int((known > DISAGREEMENT_RATIO).sum())
    return {"num_varying": num, "num_cells": len(known), "num_launches": data.campaign.repeats}


def findings(data: ReportData) -> list[Finding]:
    """Return the findings on the precision of measurements."""
    ok, outliers = data.ok, data.ok["num_outliers"]
    many = outliers.where(outliers.isna() | (outliers >= MIN_OUTLIERS), 0) / ok["num_iterations"]
    of = partial(_worst_first, data)
    return [
        *_between_launches(data),
        *_drifting(ok, of),
        *_imprecise(ok, ranges_of(data), of),
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
    return [Finding(kind, values, (of_runs("measurements", rows),), tuple(rows["cell"].unique()), words=words)]


def _between_launches(data: ReportData) -> list[Finding]:
    """Return the finding on variation, or that it is unknown; none if nothing is ok.

    Cells with too few launches are named unless most have one.
    """
    if data.ok.empty:
        return []
    ranges, known, found = ranges_of(data), variations(data), []
    large, single = known[known > DISAGREEMENT_RATIO], ranges.loc[ranges["range_ratio"].isna(), "cell"]
    runs = {"least_runs": MIN_LAUNCHES if data.campaign.imported else None, "repeats": MIN_LAUNCHES}
    if 2 * len(single) > len(ranges):
        values, source = {"num": len(single), "num_cells": len(ranges)}, of_cells("cells", single)
        return [Finding("single_launches", values, (source,), tuple(single), words=runs)]
    if len(large):
        is_above = [len(large) > limit * len(known) for limit in (CELLS_GOOD_RATIO, CELLS_LOW_RATIO)]
        kind = ("some_variation", "variation", "noisy_machine")[sum(is_above)]
        values = {"num": len(large), "num_cells": len(known), "worst_ratio": Value(RANGE, float(large.iloc[0]))}
        words, source = {"worst": data.names[large.index[0]]}, of_cells("cells", large.index)
        axes = [axes_of(data.cell_names[cell], data.campaign.by_id[cell].fields) for cell in known.index]
        pattern = find_pattern(axes, [cell in large.index for cell in known.index])
        values["pattern"] = pattern and pattern.values
        if pattern:
            counts = dict(zip(("num_inside", "num_outside"), pattern.counts_text(), strict=True))
            words |= {"where": pattern.text(data.device)} | counts
        found.append(Finding(kind, values, (source,), tuple(large.index), words=words))
    relative = ranges[(ranges["baseline"].isin(large.index) & (ranges["baseline"] != ranges["cell"])).fillna(False)]
    baselines = [cell for cell in large.index if cell in set(relative["baseline"])]
    if baselines and kind == "some_variation":  # else the machine is the cause
        values = {"num_relative": len(relative), "worst_ratio": Value(RANGE, float(large[baselines[0]]))}
        words, source = {"worst": data.names[baselines[0]]}, of_cells("cells", baselines)
        found.append(Finding("varying_baseline", values, (source,), tuple(baselines), words=words))
    cells = data.campaign.cells
    if few := tuple(cell.id for cell in cells if data.campaign.repeats_of(cell) < MIN_LAUNCHES):
        values, source = {"num": len(few), "num_cells": len(cells)}, Source(data.campaign.source, what="repeats")
        found.append(Finding("few_launches", values, (source,), few, words=runs))
    return found


def _drifting(ok: pd.DataFrame, of: Callable[..., list[Finding]]) -> list[Finding]:
    """Return the finding on times that rise or fall within more launches than chance explains."""
    from scipy.special import bdtrc

    tested = ok[ok["has_drift"].notna()]
    drifts = tested["drift_ratio"].where(tested["has_drift"].astype(bool), 0)
    num, expected = int((drifts != 0).sum()), DRIFT_P * len(tested)
    # A record without drift is flagged with probability DRIFT_P at most: a change too small to matter is never flagged.
    if num == 0 or bdtrc(num - 1, len(tested), DRIFT_P) > CHANCE:
        return []
    counts = {"rising": int((drifts > 0).sum()), "falling": int((drifts < 0).sum())}
    values, most = {f"num_{name}": n for name, n in counts.items()}, max(counts.values())
    is_real = {of: n == most or (n and bdtrc(n - 1, len(tested), DRIFT_P / 2) <= CHANCE) for of, n in counts.items()}
    words = {name: STEPS[name] for name in counts if is_real[name]}
    words |= {"trend": percent(largest := float(drifts.loc[drifts.abs().idxmax()])), "expected": three(expected, 2)}
    return of("drift", drifts.abs(), 0, values | {"largest": largest}, **words)


def _imprecise(ok: pd.DataFrame, ranges: pd.DataFrame, of: Callable[..., list[Finding]]) -> list[Finding]:
    """Return the finding on missed precision, with the variation of its cells between launches."""
    is_missed, widths = ok["stop"].isin(["max_seconds", "max_samples"]), ok["half_width_ratio"]
    cells = ok.loc[is_missed, "cell"]
    between = ranges.loc[ranges["cell"].isin(cells), "range_ratio"]
    medians = {"half_width_ratio": widths[is_missed].median(), "between_ratio": between.median()}
    values = {name: Value(SHARE, float(ratio)) for name, ratio in medians.items() if pd.notna(ratio)}
    return of("imprecise", is_missed * (1 + widths.fillna(0)), 0, {"num_cells": cells.nunique()} | values)


TERM = (
    "Variation between launches",
    "(Largest − smallest) / median, over a cell's valid launches. The value of a launch is its pipelined time per step"
    f" or call, else the median of its iterations. Unknown with one launch. Limit: {LIMIT}.",
)
CONFIDENCE = (
    "Confidence",
    "Low: a warning makes comparisons of its cells unreliable. Fair: compare its cells with caution. Good: no such"
    f" warning. If more than {LOWEST} of the cells with two or more valid launches vary by more than {LIMIT} between"
    f" launches, confidence is low; above {GOOD}, fair; otherwise variation is only a note.",
)
TERMS = (TERM, CONFIDENCE)
PRECISION = Topic("precision", "", {}, None, findings, KINDS, TERMS, is_of_sweeps=True, is_judge=True)

# The section.

MOST_ROWS = 20  # of the table
LAUNCHES = Column("num_launches", "launches", WHOLE)


def section(data: ReportData) -> Section:
    """Return the list of cells that vary beyond the limit, the worst first; equal ones in the order of the table."""
    nums = Counter(finding.rank == NOTE for finding in data.findings if finding.rank in WARNINGS)
    counts = [plural(nums[is_note], word) for is_note, word in enumerate(("warning", "note")) if nums[is_note]]
    known, state = ranges_of(data).dropna(subset="range_ratio"), (", ".join(counts), "quiet")
    rows = known[known["range_ratio"] > DISAGREEMENT_RATIO]
    if rows.empty:
        lead = f"No cell varies by more than {LIMIT} between launches." if len(known) else ""
        return Section(lead, state=state)
    rows = rows.sort_values("range_ratio", ascending=False, kind="stable")
    rows = rows.assign(full_name=rows["cell"].map(data.names))
    shown = [one for one in METRICS if one.table == "variation"]
    first = f"; first {MOST_ROWS} of {len(rows):,}" if len(rows) > MOST_ROWS else ""
    caption = f"Variation between launches above {LIMIT}, largest first{first}"
    table = Table.of_columns(caption, (CELL_NAME, LAUNCHES, *shown), rows.head(MOST_ROWS), data.device, ("cells",))
    return Section("Variation: (largest − smallest) / median over launches.", tables=(table,), state=state)


TOPIC = Topic("stability", "Stability", section=section, is_of_sweeps=True)
