"""The report's section on comparisons inside the campaign: forest plots, and what differs besides the numbers."""

import pandas as pd

from regatta.report.panels import Section, Table
from regatta.report.sources import Trace, file_of
from regatta.topics.comparison.environment import Side, differences
from regatta.topics.comparison.figures import alike_table, comparison_figures, environment_table
from regatta.topics.comparison.tables import shifts_of_alike, versus_of
from regatta.topics.comparison.words import COMPARED, judged_rows, margin_text


def comparison_section(
    campaign: dict, measurements: pd.DataFrame, comparisons: pd.DataFrame, headers: list[dict], nccl: dict[str, dict]
) -> Section:
    """Return the section. headers: first lines of launch files. nccl: what the preflight found, by stack; may be empty."""
    versus = versus_of(campaign)["axis"]
    axis = versus.replace("_", " ")
    empty = f"No two cells differ in {axis} alone, so nothing is compared (versus in the campaign file)."
    if num := int((comparisons["axis"] == versus).sum()):
        empty = f"Of the {num} pairs of cells that differ in {axis} alone, none has ok launches on both sides."
    figures = comparison_figures(comparisons)
    environments = tuple(_environments(campaign, measurements, comparisons, headers, nccl))
    alike = alike_table(comparisons)
    return Section(
        "comparisons",
        "Comparisons",
        empty,
        _lead(axis, comparisons, bool(environments)),
        tuple(figures),
        (*environments, alike) if alike else environments,
        findings=(("comparison", 1),),
        traces=(Trace(file_of("comparisons"), what="all rows"),),
    )


def _lead(axis: str, comparisons: pd.DataFrame, has_environments: bool) -> str:
    judged = judged_rows(comparisons)
    told = [f"Cells that differ in {axis} alone.", COMPARED]
    told += ["What differs besides is listed below."] if has_environments else []
    told += [f"Margin: {margin_text(judged)}."] if len(judged) else []
    return " ".join([*told, *shifts_of_alike(comparisons)])


def _environments(
    campaign: dict, measurements: pd.DataFrame, comparisons: pd.DataFrame, headers: list[dict], nccl: dict
):
    """Yield a table for each two values that were compared in different launches, where anything differed."""
    specs = {cell["id"]: cell["spec"] for cell in campaign["cells"]}
    launches = measurements[measurements["status"] == "ok"].groupby("cell")["launch"].agg(set).to_dict()
    known = comparisons[comparisons["verdict"].notna()]
    for (_, reference, other), rows in known.groupby(["axis", "reference_value", "value"], sort=False):
        sides = [
            _side([specs[cell] for cell in cells], set().union(*(launches[cell] for cell in cells)), headers, nccl)
            for cells in (rows["reference"], rows["cell"])
        ]
        if sides[0].headers != sides[1].headers:
            title = f"What differs between {reference} and {other} besides the numbers"
            table: Table | None = environment_table(title, differences(*sides), reference, other)
            if table:
                yield table


def _side(specs: list[dict], launches: set[str], headers: list[dict], nccl: dict[str, dict]) -> Side:
    stacks = {spec["stack"]["name"] for spec in specs}
    found = nccl.get(next(iter(stacks))) if len(stacks) == 1 else None
    return Side([header for header in headers if header["launch"] in launches], specs, found)
