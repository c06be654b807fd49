"""The topic of stability: variation between launches. Stragglers, percentiles and warnings are parts of its section."""

from regatta.kit.findings import RESULT, Kind
from regatta.report.findings import Finding, Source, file_of
from regatta.report.panels import Section
from regatta.report.plotting import MAX_POINTS
from regatta.topics.base import ReportData, Topic
from regatta.topics.quality import CELLS_GOOD_RATIO, DISAGREEMENT_RATIO
from regatta.topics.stability.figures import ecdf_figures, most_variable, stack_styles, variation_figure

LIMIT = f"{100 * DISAGREEMENT_RATIO:g} %"
KINDS = (
    Kind(
        *("launch_ranges", RESULT),
        lead=(
            f"Variation between launches above {LIMIT} (dashed line): {{num_over}} of {{num_known:cell}}.",
            f"Variation between launches: at most {LIMIT} in {{num_known:cell}}.",
            "Variation between launches: unknown; no cell has two valid launches.",
        ),
        parts=("Drawn: the {num_drawn:most variable cell}.", "Not shown: {num_single:cell} with one launch."),
        term="Variation between launches",
        help="(Largest − smallest) / median, over a cell's valid launches. The value of a launch is its pipelined time"
        f" per step or call, else the median of its iterations. Unknown with one launch. Limit: {LIMIT}.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return how many cells vary beyond the limit; nothing without a valid launch."""
    ranges, known = data.tables["launch_ranges"], most_variable(data.tables["launch_ranges"])
    over = known[known["range_ratio"] > DISAGREEMENT_RATIO]
    values = {"num_over": len(over), "num_known": len(known), "num_single": len(ranges) - len(known)}
    words = {"num_drawn": MAX_POINTS if len(known) > MAX_POINTS else 0}
    source = Source(file_of("launch_ranges"), what="all rows")
    return [Finding("launch_ranges", values, (source,), words=words)] if len(ranges) else []


def section(data: ReportData) -> Section:
    rows, styles = most_variable(data.tables["launch_ranges"]), stack_styles(data.campaign)
    figures = (variation_figure(rows, styles, data.names, data.device),) if len(rows) else ()
    ecdfs = ecdf_figures(rows, data.ok, data.launches, styles, data.names)
    title, num_over = "Iterations by launch", (rows["range_ratio"] > DISAGREEMENT_RATIO).sum()
    lead = (
        "Share of iterations at or below each time, for the cells with the largest variation. Single synchronized"
        " iterations, slowest rank; pipelined windows are not included."
    )
    # Folded if so few cells vary that confidence may be good.
    summary = "" if num_over > CELLS_GOOD_RATIO * len(rows) else title
    part = Section("launch-times", title, lead=lead, figures=ecdfs, summary=summary)
    return Section("stability", "Stability", figures=figures, parts=(part,) if ecdfs else ())


TOPIC = Topic("stability", "Stability", {}, section, findings, is_of_sweeps=True, kinds=KINDS)
