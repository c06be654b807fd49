"""The topic of stability: variation between launches as one strip, and iterations of the most variable cells.

Stragglers, percentiles and warnings are parts of its section. Before it, the warnings on imprecise measurements:
variation, drift, outliers. Definitions: docs/metrics.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.patterns import axes_of, find_pattern
from regatta.core.statistics import DRIFT_P
from regatta.core.text import natural, percent, three, time_scale
from regatta.kit.columns import CELL_ID, TEXT, WHOLE, Column, Columns
from regatta.kit.kinds import FAIR, LOW, NOTE, SUMMARY, Kind, Value
from regatta.model.frozen import FrozenCampaign
from regatta.report.cell_numbers import RANGE
from regatta.report.charts import MARKERS, Chart, LegendEntry, Marks, set_ticks
from regatta.report.findings import Finding, Source, file_of, of_cells, of_runs
from regatta.report.lines import DASHES, LEFT, MAX_POINTS, PLOT_WIDTH, WIDTH_IN, PlotAxis
from regatta.report.panels import Figure, Section, Table
from regatta.report.strips import Strip
from regatta.report.svg import CELL, COLORS
from regatta.store.csv_files import make_table
from regatta.store.launch_files import read_one_line
from regatta.store.records import INCOMPLETE, slowest_rank
from regatta.topics.base import ReportData, TableSpec, Topic, plain_rows, with_primary
from regatta.topics.slow_launches import where_slower

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
IMPORT_MORE = "mport the output of at least {least_runs} runs of the same command"
MORE = (f"I{IMPORT_MORE}.", f"Set repeats to {MIN_LAUNCHES} or more: only missing launches will run.")
QUIETER = "find the load that disturbs the machine"
RISING = "check clocks and temperatures (throttling), memory growth and other load"
STEPS = {"rising": f"times rise: {RISING}", "falling": "warm up longer"}  # by the direction of a drift
MORE_LAUNCHES = (f"i{IMPORT_MORE}", "take more launches: `repeats: {repeats}`, `{run}`")
OF_MEASUREMENTS = "in {num} of {num_known:measurement}"
KINDS = (
    Kind(
        *("confidence", SUMMARY),
        lead=(f"{VARIES} {{num_varying}} of {{num_cells:cell}}", f"{VARIES} 0 of {{num_cells:cell}}", "no ranges"),
        term="Confidence",
        help="Low: a warning makes comparisons of its cells unreliable. Fair: compare its cells with caution. Good: no"
        f" such warning. If more than {LOWEST} of the cells with two or more valid launches vary by more than {LIMIT}"
        f" between launches, confidence is low; above {GOOD}, fair; otherwise this is a note.",
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
    return [Finding(kind, values, (of_runs("measurements", rows),), tuple(rows["cell"].unique()), "warnings", words)]


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
    found = [Finding("confidence", counts, (Source(file_of("launch_ranges"), what="all rows"),), (), "warnings")]
    runs = {"least_runs": MIN_LAUNCHES if data.campaign.imported else None, "repeats": MIN_LAUNCHES}
    if 2 * len(single) > len(ranges):
        values, source = {"num": len(single), "num_cells": len(ranges)}, of_cells("launch_ranges", single)
        return [*found, Finding("single_launches", values, (source,), tuple(single), "warnings", runs)]
    if len(large):
        is_above = [len(large) > limit * len(known) for limit in (CELLS_GOOD_RATIO, CELLS_LOW_RATIO)]
        kind = ("some_variation", "variation", "noisy_machine")[sum(is_above)]
        values = {"num": len(large), "num_cells": len(known), "worst_ratio": Value(RANGE, float(large.iloc[0]))}
        words, source = {"worst": data.names[large.index[0]]}, of_cells("launch_ranges", large.index)
        (pattern, place), noun = where_slower(data, DISAGREEMENT_RATIO), "measurement"
        if pattern is None:
            axes = [axes_of(data.cell_names[cell], data.campaign.by_id[cell].fields) for cell in known.index]
            pattern, noun = find_pattern(axes, [cell in large.index for cell in known.index]), "cell"
        values["pattern"] = pattern and pattern.values
        if pattern:
            counts = dict(zip(("num_inside", "num_outside"), pattern.counts_text(noun), strict=True))
            words |= {"where": ", ".join(filter(None, (pattern.text(data.device), place)))} | counts
        found.append(Finding(kind, values, (source,), tuple(large.index), "warnings", words))
    cells = data.campaign.cells
    if few := tuple(cell.id for cell in cells if data.campaign.repeats_of(cell) < MIN_LAUNCHES):
        values, source = {"num": len(few), "num_cells": len(cells)}, Source(data.campaign.source, what="repeats")
        found.append(Finding("few_launches", values, (source,), few, "warnings", runs))
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
PRECISION = Topic("precision", "Warnings", TABLES, None, findings, KINDS, (TERM,), is_of_sweeps=True, is_judge=True)

# The section.

MOST_ROWS = 20  # of the strip's table
MOST_ECDFS = 5
MOST_STEPS = 40  # of one line; of more iterations these quantiles are drawn
QUANTILES = np.linspace(0, 1, MOST_STEPS + 1)
LEAST_OPACITY = 0.65  # of the last launch's line; dashes distinguish launches too
TICKS = (0, 1, 2, 3, 4, 5, 7, 10, 20, 50, 100, 200, 500, 1000)  # percent
ITERATIONS = (
    Column("launch", "launch", WHOLE),
    Column("num_samples", "iterations", WHOLE),
    *(Column(f"{name}_s", name, shown_as="ms") for name in ("min", "p50", "max")),
)
TIME = Column("iteration_s", "time", shown_as="ms")


def section(data: ReportData) -> Section:
    rows, styles = most_variable(data.tables["launch_ranges"]), stack_styles(data.campaign)
    figures = (variation_figure(rows, styles, data.names, data.device),) if len(rows) else ()
    ecdfs = ecdf_figures(rows, data.ok, data.launches, styles, data.names)
    title, num_over = "Iteration times by launch", (rows["range_ratio"] > DISAGREEMENT_RATIO).sum()
    lead = (
        "Empirical distribution of the cells with the largest variation. Single synchronized"
        " iterations, slowest rank; pipelined windows are not included."
    )
    # Folded if so few cells vary that confidence may be good.
    summary = "" if num_over > CELLS_GOOD_RATIO * len(rows) else title
    part = Section("launch-times", title, lead=lead, figures=ecdfs, summary=summary)
    lead = f"Variation: range over launches / median. Dashed line: {LIMIT}." if figures else ""
    return Section("stability", "Stability", lead=lead, figures=figures, parts=(part,) if ecdfs else ())


def most_variable(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with a known range, the largest first; equal ones in the order of the table."""
    return ranges.dropna(subset="range_ratio").sort_values("range_ratio", ascending=False, kind="stable")


def stack_styles(campaign: FrozenCampaign) -> dict[str, LegendEntry]:
    """Return the color and marker of each cell's stack, by the cell's id in the order of the campaign."""
    stacks = {cell.id: cell.stack.name for cell in campaign.cells}
    styles = {}
    for place, stack in enumerate(dict.fromkeys(stacks.values())):
        hue = place % len(COLORS)
        styles[stack] = LegendEntry(stack, COLORS[hue], marker=list(MARKERS)[hue])
    return {cell: styles[stack] for cell, stack in stacks.items()}


def variation_figure(rows: pd.DataFrame, styles: dict[str, LegendEntry], names: dict[str, str], device: str) -> Figure:
    """Return the strip with a mark for each of the rows. styles: of `stack_styles`."""
    cell = Column("cell", "cell", TEXT, text=lambda row: names[row.cell])
    columns = (cell, Column("num_launches", "launches", WHOLE), *LAUNCH_RANGES.of_table("variation"))
    first = f"; first {MOST_ROWS} of {len(rows):,}" if len(rows) > MOST_ROWS else ""
    table = Table.of_columns(f"Variation, largest first{first}", columns, rows.head(MOST_ROWS), device)
    cells, limit = rows["cell"].head(MAX_POINTS).tolist(), RANGE.shown(DISAGREEMENT_RATIO)
    values = [RANGE.shown(ratio) for ratio in rows["range_ratio"].head(MAX_POINTS)]
    high = max(1.15 * values[0], 1.3 * limit)
    above = f", logarithmic above {limit:g}" if high > 2 * limit else ""
    ticks = tuple((tick, f"{tick:,g}") for tick in TICKS if tick <= high)
    order = "the most variable first"
    if len(rows) > len(cells):
        order = f"the {len(cells):,} most variable of {len(rows):,}"
    strip = Strip(
        f"cell, {order}",
        PlotAxis(f"{RANGE.heading(device)}{above}", low=-0.02 * limit, high=high, ticks=ticks),
        [(value, None, None) for value in values],
        [styles[cell] for cell in cells],
        cells,
        first=1,
        limits=((f"noisy above {limit:g} %", limit),),
        log_above=limit if above else 0,
        listed=tuple(dict.fromkeys(styles.values())) if len({styles[cell] for cell in cells}) > 1 else (),
    )
    return Figure("variation", "Variation between launches", strip, table, "launch_ranges", RANGE.block_key)


def iteration_times(ok: pd.DataFrame, cell: str, launches: Path) -> dict[int, np.ndarray]:
    """Return the synchronized iterations of the slowest rank in seconds, by repeat, of each launch that has some."""
    found = {}
    for row in ok[ok["cell"] == cell].sort_values("repeat").itertuples():
        record = read_one_line(launches / f"{row.launch}.jsonl", int(row.line))
        try:
            found[int(row.repeat)] = slowest_rank(record, int(row.world_size)) * 1e-9
        except (AttributeError, TypeError, ValueError):  # imported without times, or changed since it was collected
            continue
    return found


def ecdf_figures(
    rows: pd.DataFrame, ok: pd.DataFrame, launches: Path, styles: dict[str, LegendEntry], names: dict[str, str]
) -> tuple[Figure, ...]:
    """Return the figures of the first MOST_ECDFS rows that vary and have iterations. rows: of `most_variable`."""
    cells = rows.loc[rows["range_ratio"] > 0, "cell"].head(MOST_ECDFS)
    times = {cell: found for cell in cells if (found := iteration_times(ok, cell, launches))}
    figures = []
    for number, (cell, of_launches) in enumerate(times.items(), start=1):
        values = [(repeat + 1, len(of), *np.quantile(of, (0, 0.5, 1))) for repeat, of in of_launches.items()]
        table = pd.DataFrame(values, columns=[column.name for column in ITERATIONS])
        # As a landmark, a table needs a unique name.
        table = Table.of_columns(f"Iteration times by launch, {names[cell]}", ITERATIONS, table, "")
        chart = Distributions(cell, of_launches, styles[cell].color)
        figures.append(Figure(f"ecdf-{number}", names[cell], chart, table, "launches/*.jsonl"))
    return tuple(figures)


@dataclass(frozen=True)
class Distributions(Chart):
    """The share of iterations of a cell at or below each time, a line for each launch. times: seconds, by repeat."""

    cell: str
    times: dict[int, np.ndarray]
    color: str

    size_in = WIDTH_IN, 2.7
    axes_text = f"share of iterations by {TIME.heading('')}"

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        fading = (1 - LEAST_OPACITY) / max(len(self.times) - 1, 1)
        return tuple(
            LegendEntry(f"launch {repeat + 1}", self.color, DASHES[place % len(DASHES)], opacity=1 - fading * place)
            for place, repeat in enumerate(self.times)
        )

    @property
    def lines(self) -> list[tuple[LegendEntry, np.ndarray]]:
        """Return the style of each launch and its times, or quantiles of many, in the unit of the axis."""
        drawn = (
            TIME.factor * (of if len(of) <= MOST_STEPS else np.quantile(of, QUANTILES, method="inverted_cdf"))
            for of in self.times.values()
        )
        return list(zip(self.legend, drawn, strict=True))

    def draw_on(self, canvas) -> None:
        axes = self.add_plot(canvas, LEFT, 0.15, PLOT_WIDTH, 0.75, "Share of iterations")
        for style, of_launch in self.lines:
            line = {"color": style.color, "alpha": style.opacity, "dashes": style.dashes or (None, None)}
            axes.ecdf(of_launch, linewidth=1.6, clip_on=False, **line).set_gid(f"{CELL}{self.cell}")
        scale, unit = time_scale(max(of.max() for of in self.times.values()))
        axes.set(ylim=(-0.02, 1.04), xlabel=f"Time ({unit})")
        axes.xaxis.set_major_formatter(lambda place, _: f"{place * scale / TIME.factor:g}")
        set_ticks(axes.yaxis, [(0, "0"), (0.5, "0.5"), (1, "1")])
        axes.locator_params(axis="x", nbins=4)
        axes.grid(visible=True, clip_on=False)

    def marks(self) -> Marks:
        rows = (
            (self.cell, style.label, float(time), step / len(of_launch))
            for style, of_launch in self.lines
            for step, time in enumerate(np.sort(of_launch), start=1)
        )
        return Marks(("cell", "series", TIME.heading(""), "share of iterations"), tuple(rows))


TOPIC = Topic("stability", "Stability", section=section, is_of_sweeps=True)
