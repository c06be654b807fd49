"""The topic of comparisons inside the campaign: ratios, verdicts, and what else differs. docs/metrics.md."""

from collections.abc import Iterator

import pandas as pd

from regatta.core.verdicts import FALSE_DISCOVERIES, MIN_LAUNCHES_EQUIVALENT, MIN_LAUNCHES_TEST, MIN_NOISE_PAIRS
from regatta.report.findings import Finding, of_rows
from regatta.report.panels import Section, Table
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.comparison.environment import Side, differences, environment_table
from regatta.topics.comparison.figures import (
    COMPARED,
    comparison_figures,
    finding_text,
    finding_values,
    judged_rows,
    margin_text,
    pair_text,
    times_of_row,
    with_labels,
)
from regatta.topics.comparison.tables import (
    ALIKE,
    COMPARISONS,
    MARGIN,
    alike_stacks,
    by_effect,
    cell_pairs,
    comparisons_table,
    shifts_of_alike,
    versus_of,
)

MAX_ALIKE = 10  # rows of alike stacks; the others are nearer to 1


def section(data: ReportData) -> Section:
    comparisons = data.tables["comparisons"]
    versus = versus_of(data.campaign)["axis"]
    axis = versus.replace("_", " ")
    empty = f"No two cells differ only in {axis} (versus in the campaign file)."
    if num := int((comparisons["axis"] == versus).sum()):
        empty = f"None of the {num} pairs of cells that differ only in {axis} has valid launches on both sides."
    environments, alike = tuple(_environments(data)), alike_table(comparisons)
    return Section(
        "comparisons",
        "Comparisons",
        empty,
        _lead(axis, comparisons, bool(environments)),
        tuple(comparison_figures(comparisons)),
        (*environments, alike) if alike else environments,
    )


def findings(data: ReportData) -> list[Finding]:
    """Return the counts by verdict, the direction where nearly all pairs agree on one, and the largest effect."""
    judged = judged_rows(data.tables["comparisons"])
    if judged.empty:
        return []
    decided = by_effect(judged[judged["verdict"].isin(["slower", "faster"])]).head(1)
    values = finding_values(judged.assign(label=judged["cell"].map(data.names)))
    rows = pd.concat([decided, judged.drop(decided.index)])
    sources = (of_rows("comparisons", rows, ("cell", "reference")),)
    return [Finding("comparisons", values, sources, tuple(decided["cell"]), "comparisons")]


def methods(campaign: dict) -> list[tuple[str, str]]:
    if not cell_pairs(campaign) and not alike_stacks(campaign):
        return []
    text = (
        "Ratio of the medians over launches of p50_s (synchronized steps, blocking calls); for launches that shared an"
        " allocation, the median of their ratios. Above 1 is slower. Slower, faster: the whole interval lies beyond the"
        f" margin, and p ≤ {FALSE_DISCOVERIES:g} that the ratio is 1 (Mann-Whitney U or Wilcoxon signed ranks; a t test"
        " of logarithms where no rank test could reach the corrected level; Benjamini-Hochberg over all rows)."
        f" Equivalent: the whole interval lies within the margin, from {MIN_LAUNCHES_EQUIVALENT[False]} launches per"
        f" side or {MIN_LAUNCHES_EQUIVALENT[True]} pairs. Margin: the campaign's (else {100 * MARGIN:g} %), and no less"
        " than the noise of cells on identical stacks (A/A): the 95th percentile of their distance from 1, with"
        f" {MIN_NOISE_PAIRS} pairs of {MIN_LAUNCHES_TEST} launches or more. A/A pairs get no verdict."
    )
    return [("Comparisons", text)]


def _lead(axis: str, comparisons: pd.DataFrame, has_environments: bool) -> str:
    judged = judged_rows(comparisons)
    texts = [f"Cells that differ only in {axis}.", COMPARED]
    texts += ["Other differences are listed below."] if has_environments else []
    texts += [f"Margin: {margin_text(judged)}."] if len(judged) else []
    return " ".join([*texts, *shifts_of_alike(comparisons)])


def alike_table(comparisons: pd.DataFrame) -> Table | None:
    """Return the rows of stacks that differ only in their names (A/A), those furthest from 1, or None without any."""
    rows = comparisons[(comparisons["verdict"] == ALIKE).fillna(False)]
    if not len(rows):
        return None
    shown = by_effect(with_labels(rows)).head(MAX_ALIKE)
    num = f"{len(rows)}" if len(shown) == len(rows) else f"largest {len(shown)} of {len(rows)}"
    body = tuple((*times_of_row(row), row.verdict) for row in shown.itertuples())
    title = f"{pair_text(rows)}: identical stacks (A/A), not judged ({num})"
    return Table(title, ("cell", "reference", "this", "ratio", "n", "verdict"), body, sources=("comparisons",))


def _environments(data: ReportData) -> Iterator[Table]:
    """Yield a table for each two values that were compared in different launches, where anything differed."""
    comparisons = data.tables["comparisons"]
    specs = {cell["id"]: cell["spec"] for cell in data.campaign["cells"]}
    nccl = {stack["stack"]: stack["verdict"] for stack in data.preflight["stacks"]} if data.preflight else {}
    launches = data.ok.groupby("cell")["launch"].agg(set).to_dict()
    known = comparisons[comparisons["verdict"].notna()]
    for (_, reference, other), rows in known.groupby(["axis", "reference_value", "value"], sort=False):
        sides = [
            _side([specs[cell] for cell in cells], set().union(*(launches[cell] for cell in cells)), data.headers, nccl)
            for cells in (rows["reference"], rows["cell"])
        ]
        if sides[0].headers != sides[1].headers:
            title = f"Differences between {reference} and {other} besides the results"
            table = environment_table(title, differences(*sides), reference, other)
            if table:
                yield table


def _side(specs: list[dict], launches: set[str], headers: list[dict], nccl: dict[str, dict]) -> Side:
    stacks = {spec["stack"]["name"] for spec in specs}
    found = nccl.get(next(iter(stacks))) if len(stacks) == 1 else None
    return Side([header for header in headers if header["launch"] in launches], specs, found)


TABLES = {
    "comparisons": TableSpec(COMPARISONS, lambda campaign, tables: comparisons_table(campaign, tables["measurements"]))
}
TOPIC = Topic(
    "comparison",
    "Comparisons",
    TABLES,
    section,
    findings,
    lambda finding: finding_text(finding.values),
    methods=methods,
)
