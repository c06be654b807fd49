"""The topic of comparisons inside the campaign: ratios, verdicts, and what else differs. docs/metrics.md."""

from collections.abc import Iterator

import pandas as pd

from regatta.core.text import plural
from regatta.core.verdicts import FALSE_DISCOVERIES, MIN_LAUNCHES_EQUIVALENT, MIN_LAUNCHES_TEST, MIN_NOISE_PAIRS
from regatta.report.findings import Finding, of_rows, percent_number
from regatta.report.panels import Section, Table
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.comparison.environment import Side, differences
from regatta.topics.comparison.figures import alike_table, comparison_figures, environment_table, pair_text
from regatta.topics.comparison.tables import (
    COMPARISONS,
    MARGIN,
    alike_stacks,
    by_effect,
    cell_pairs,
    comparisons_table,
    shifts_of_alike,
    versus_of,
)
from regatta.topics.comparison.words import (
    COMPARED,
    VERDICTS,
    direction,
    direction_text,
    judged_rows,
    margin_text,
    spread_text,
    too_few,
)


def section(data: ReportData) -> Section:
    comparisons = data.tables["comparisons"]
    versus = versus_of(data.campaign)["axis"]
    axis = versus.replace("_", " ")
    empty = f"No two cells differ in {axis} alone, so nothing is compared (versus in the campaign file)."
    if num := int((comparisons["axis"] == versus).sum()):
        empty = f"None of the {num} pairs of cells that differ in {axis} alone has valid launches on both sides."
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
    values = {
        "pair": pair_text(judged),
        "num": len(judged),
        "by_verdict": {word: int((judged["verdict"] == word).sum()) for word in VERDICTS},
        "num_undecidable": int(too_few(judged).sum()),
        "margins": tuple(sorted(float(margin) for margin in judged["margin_ratio"].unique())),
        "direction": direction(judged),
    }
    for row in decided.itertuples():
        values |= {
            "largest": data.names[row.cell],
            "largest_ratio": float(row.time_ratio),
            "largest_text": spread_text(row),
        }
    key = ("cell", "reference")
    sources = (of_rows("comparisons", pd.concat([decided, judged.drop(decided.index)]), key),)
    return [Finding("comparisons", values, sources, tuple(decided["cell"]), "comparisons")]


def sentence(finding: Finding) -> str:
    values = finding.values
    text = values["pair"][:1].upper() + values["pair"][1:]
    if values["direction"]:
        text += f": {direction_text(values['direction'])}."
    else:
        text += f": {plural(values['num'], 'comparison')}."
    margin = " or ".join(f"{percent_number(margin)} %" for margin in values["margins"])
    counts = ", ".join(f"{num} {word}" for word, num in values["by_verdict"].items() if num)
    text += f" Verdicts at a margin of {margin}: {counts}." if values["num_undecidable"] < values["num"] else ""
    if values["num_undecidable"]:
        few = f"{values['num_undecidable']} of {values['num']}" if values["num_undecidable"] < values["num"] else "All"
        text += f" {few} have fewer than {MIN_LAUNCHES_TEST} launches, too few for a verdict."
    if "largest" in values:
        text += f" Largest difference: {values['largest']}, {values['largest_text']} times the time."
    return text


def methods(campaign: dict) -> list[tuple[str, str]]:
    if not cell_pairs(campaign) and not alike_stacks(campaign):
        return []
    text = (
        "Ratio of the medians over launches of p50_s (synchronized steps, blocking calls); for launches that shared an allocation,"
        " the median of their ratios. Above 1 is slower. Slower, faster: the whole interval lies beyond the margin, and"
        f" p ≤ {FALSE_DISCOVERIES:g} that the ratio is 1 (Mann-Whitney U or Wilcoxon signed ranks; a t test of logarithms where no"
        " rank test could reach the corrected level; Benjamini-Hochberg over all rows). Equivalent: the whole interval lies within"
        f" the margin, from {MIN_LAUNCHES_EQUIVALENT[False]} launches per side or {MIN_LAUNCHES_EQUIVALENT[True]} pairs. Margin:"
        f" the campaign's (else {100 * MARGIN:g} %), and no less than the noise of cells on identical stacks (A/A): the 95th"
        f" percentile of their distance from 1, with {MIN_NOISE_PAIRS} pairs of {MIN_LAUNCHES_TEST} launches or more. A/A pairs"
        " get no verdict."
    )
    return [("Comparisons", text)]


def _lead(axis: str, comparisons: pd.DataFrame, has_environments: bool) -> str:
    judged = judged_rows(comparisons)
    told = [f"Cells that differ in {axis} alone.", COMPARED]
    told += ["What differs besides is listed below."] if has_environments else []
    told += [f"Margin: {margin_text(judged)}."] if len(judged) else []
    return " ".join([*told, *shifts_of_alike(comparisons)])


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
TOPIC = Topic("comparison", "Comparisons", TABLES, section, findings, sentence, methods=methods)
