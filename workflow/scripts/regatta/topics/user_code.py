"""What the findings on users' scripts, programs and benchmarks share: the best value of each."""

from dataclasses import replace

from regatta.core.text import plural, rank_word, ranks_word
from regatta.kit.columns import Column, Row
from regatta.kit.kinds import RESULT, SUMMARY, Kind, Value
from regatta.report.findings import Finding, of_cells
from regatta.topics.base import ReportData, best_row, headline_rows, on_most_ranks, with_summary

BEST_OF = "best mean of {num:cell} on {ranks}"


def name_below(data: ReportData, row: Row) -> str:
    """Return the name of a row's cell below that of its script or program."""
    return data.cell_names[row.cell].without("subject").full


def kinds_of_subjects(
    name: str, other: str, leads: tuple[str, ...], num: str, subjects: str, **of_line: object
) -> tuple[Kind, Kind]:
    """Return the kind of the summary of the first subject, and that of each subject.

    num: what `num` counts. subjects: what `num_subjects` counts. of_line: more fields of the first one.
    """
    parts = ("{name}", num, f"first of {{num_subjects:{subjects}}}")
    sentences = ("{name}.", f"{num[:1].upper()}{num[1:]}.")
    first = Kind(name, SUMMARY, leads, parts, **of_line)
    return first, Kind(other, RESULT, tuple(f"{lead}." for lead in leads), sentences)


def best_value(data: ReportData, rows: list[Row], column: Column, **values: object) -> Finding:
    """Return the best value of a column on the most ranks, for `findings_of_subjects`. values: other ones."""
    known = headline_rows(data, on_most_ranks(rows))
    best = best_row(known, column)
    words = {"name": name_below(data, best), "num": len(known) if len(known) > 1 else None}
    words["ranks"] = plural(int(best.world_size), rank_word(data.device), ranks_word(data.device))
    sources = (of_cells("cells", [row.cell for row in known]),)
    return Finding("", values | {"value": Value.of(best, column)}, sources, (best.cell,), words=words)


def findings_of_subjects(data: ReportData, kinds: tuple[Kind, Kind], found: list[Finding]) -> list[Finding]:
    """Return a finding of each subject with its kind (`kinds_of_subjects`), after the summary of the first one."""
    summary, result = kinds
    num = {"num_subjects": len(found) if len(found) > 1 else None}
    found = [replace(one, kind=result.name, words=one.words | num) for one in found]
    return with_summary(data, found, lambda first: replace(first, kind=summary.name))
