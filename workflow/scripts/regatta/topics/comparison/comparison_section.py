"""The topic of comparisons: ratios, verdicts, and how the environments of two sides differ. docs/metrics.md."""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from regatta.core.text import plural
from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.report.findings import Finding, Source, of_rows
from regatta.report.panels import Figure, Section, Table
from regatta.tables import pairs
from regatta.tables.facts import NOT_KNOWN, Difference, differences
from regatta.tables.primary_times import values_by_cell
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report
from regatta.topics.comparison import comparison_findings, texts
from regatta.topics.comparison.comparison_figures import changes_figure, ratio_matrices
from regatta.topics.comparison.texts import axis_label, axis_text, pair_text, sides_text, with_labels

MOST_ROWS = 40  # of a table; comparisons.csv has all


def section(data: ReportData) -> Section | None:
    comparisons = data.tables["comparisons"]
    if comparisons.empty:
        return None
    axis = axis_label(comparisons["axis"].iloc[0])
    alike = comparisons[(comparisons["verdict"] == pairs.ALIKE).fillna(False)]
    environments = found = tuple(_environments(data))
    if len(alike):
        found += (pairs_table(alike, f"{pair_text(alike)}: identical stacks (A/A), no verdict"),)
    lead = f"Cells that differ only in {axis}. {texts.COMPARED}"
    lead += " Environment differences are listed below." if environments else ""
    judged = pairs.judged_rows(comparisons)
    if not len(judged):
        return Section(lead, tables=found)
    found = (pairs_table(judged, "Largest effects"), *found)
    fold = f"Ratios: all {len(judged):,} pairs are equivalent" if texts.is_equal(judged) else ""
    content = {"matrices": ratio_matrices(comparisons, data.names, fold)}
    template, state = "matrix.html.j2", (plural(len(judged), "pair"), "quiet")
    return Section(lead, (), found, template, content, state)


def change_by_pair(data: ReportData) -> Figure | None:
    """Return the figure of the first screen if cells have one size: the change of each pair; None without any."""
    judged = pairs.judged_rows(data.tables["comparisons"])
    return changes_figure(judged) if len(judged) else None


@once_per_report
def findings(data: ReportData) -> list[Finding]:
    """Return the statement on the compared pairs with the verdicts behind it, and the warnings."""
    comparisons, blocks = data.tables["comparisons"], in_blocks(data)
    judged = pairs.judged_rows(comparisons)
    judged = judged.assign(label=texts.result_texts(judged) + judged["cell"].map(data.names))
    largest_first = pd.concat([comparison_findings.largest_effect(judged), judged]).drop_duplicates("cell")
    launches = pairs.launches_in(data.campaign, data.tables["measurements"]) if len(judged) else {}
    found = comparison_findings.compared_findings(judged, launches, (_rows(largest_first),))
    found = [replace(finding, values=finding.values | {"num_in_blocks": len(blocks)}) for finding in found]
    alike, num_alike, expected = pairs.alike_that_differ(comparisons)
    undecided = judged[judged["verdict"] == "inconclusive"]
    repeats = pairs.repeats_needed(undecided, data.campaign.repeats) if len(undecided) else None
    axes = {"axis": ", ".join(map(axis_label, blocks["axis"].unique()))}
    num_compared = int((comparisons["verdict"].notna() & comparisons["result"].isna()).sum())
    for kind, rows, cells, values, words in (
        ("alike_differ", alike, tuple(alike["cell"]), {"num_pairs": num_alike, "expected": expected}, {}),
        ("not_interleaved", blocks, (), {"num_pairs": num_compared}, axes),
        ("open_pairs", undecided, (), {"num_pairs": len(judged), "repeats": repeats}, {}),
    ):
        if len(rows):
            found.append(Finding(kind, {"num": len(rows)} | values, (_rows(rows),), cells, words=words))
    return found


def _rows(comparisons: pd.DataFrame) -> Source:
    return of_rows("comparisons", comparisons, ("cell", "reference"))


MIN_LAUNCHES_ORDER = 2  # per side; one launch of each cannot alternate


@once_per_report
def in_blocks(data: ReportData) -> pd.DataFrame:
    """Return the compared rows for which all launches of one side started before all of the other.

    Launches without a recorded start, such as imported ones, are left out.
    """
    known = data.tables["launches"][["launch", "start_utc"]].dropna()
    ok = data.ok[["cell", "launch"]].merge(known.sort_values("start_utc"), how="right", on="launch")
    starts = ok.groupby("cell")["start_utc"].agg(["first", "last", "count"])
    starts = starts[starts["count"] >= MIN_LAUNCHES_ORDER]
    rows = data.tables["comparisons"]
    rows = rows[rows["result"].isna()]
    rows = rows[rows["verdict"].notna() & rows["cell"].isin(starts.index) & rows["reference"].isin(starts.index)]
    one, other = (starts.loc[rows[side]].set_index(rows.index) for side in ("cell", "reference"))
    return rows[(one["last"] < other["first"]) | (other["last"] < one["first"])]


LABEL = Column("label", "cell", TEXT)
VERDICT = Column("verdict", "verdict", TEXT, text=texts.verdict_text)
LAUNCHES = Column("num_launches", "n", WHOLE, text=texts.launches_text)


def pairs_table(rows: pd.DataFrame, title: str) -> Table:
    """Return the rows with the largest effects, the verdict early so that a narrow screen shows it."""
    largest = pairs.by_effect(with_labels(rows)).head(MOST_ROWS)
    words = dict(zip(("reference", "other"), sides_text(largest), strict=True))
    columns = LABEL, VERDICT, *pairs.COMPARISONS.of_table("pairs"), LAUNCHES
    title += f": {len(largest)} of {len(rows):,} rows" if len(largest) < len(rows) else ""
    return Table.of_columns(title, columns, largest, largest["device"].iloc[0], ("comparisons",), **words)


def _environments(data: ReportData) -> Iterator[Table]:
    """Yield a table for each pair of values that were compared in different launches, where anything differed."""
    comparisons = data.tables["comparisons"]
    by_id, launches = data.campaign.by_id, values_by_cell(data.measurements, "launch")
    known = comparisons[comparisons["verdict"].notna()]
    for (axis, reference, other), rows in known.groupby(["axis", "reference_value", "value"], sort=False):
        sides = [
            {name for cell in cells for name in (*launches[cell], by_id[cell].stack.name)}
            for cells in (rows["reference"], rows["cell"])
        ]
        if sides[0] != sides[1]:
            facts = ([fact for fact in data.facts if (fact.launch or fact.stack) in names] for names in sides)
            words = [axis_text(axis, value) for value in (reference, other)]
            title = f"Environment differences between {' and '.join(words)}"
            if table := environment_table(title, differences(*facts), *words):
                yield table


def environment_table(title: str, found: list[Difference] | None, reference: str, other: str) -> Table | None:
    """Return what differs between the environments of two sides, or None if nothing is known to differ."""
    if not found:
        return None
    rows = tuple((d.name.replace(NOT_KNOWN, f"{NOT_KNOWN}, so not compared", 1), d.reference, d.other) for d in found)
    return Table(title, ("property", reference, other), rows, is_words=True, sources=("launches/*.jsonl",))


TABLES = {"comparisons": TableSpec.of(pairs.COMPARISONS, pairs.comparisons_table, "campaign", "measurements")}
TOPIC = Topic("comparisons", "Comparisons", TABLES, section, findings, is_judge=True, kinds=comparison_findings.KINDS)
