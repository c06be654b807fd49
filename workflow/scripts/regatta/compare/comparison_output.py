"""The comparison of two campaigns in words: what the terminal and the head of the page say."""

from regatta.compare.campaigns import CampaignResults, CampaignsCompared
from regatta.core.text import UNKNOWN, duration, plural
from regatta.kit.columns import table_rows
from regatta.model.frozen import Cell, names_by_id
from regatta.report.findings import Finding
from regatta.tables.facts import NOT_KNOWN, NOTHING, Difference
from regatta.topics.base import once_per_report
from regatta.topics.comparison import sides, texts
from regatta.topics.comparison.comparison_tables import is_within_margin

SHOWN = 10  # cells of a list
LABELS = {"verdicts": "Pairs", "compared": "Difference", "environment": "Environment"}  # by kind of a finding
HOW_TO_READ = (
    "Ratio of times: above 1 is slower. [ ]: 95 % confidence interval; ( ): range. n: launches, test vs. base."
)


def comparison_text(found: CampaignsCompared, shows_all: bool = False) -> str:
    """Return the text on two campaigns. shows_all: no row folded, no list cut."""
    rows, is_within = found.comparisons, is_within_margin(found.comparisons)
    names, lists = names_and_lists(found)
    rows = rows.assign(full_name=names)
    listed = rows if shows_all else rows[~is_within]
    lines = [f"{name}: {campaign_text(side)}" for name, side in (("base", found.base), ("test", found.test))] + [""]
    lines += [
        lead + (". " if text[:1].isupper() else "; " * bool(text)) + text for _, _, lead, text in statements(found)
    ]
    differences = found.environment if found.has_environments else []
    lines += [f"  {difference_text(difference, 'in base', 'in test')}" for difference in differences]
    lines += [f"Note: {found.fallback}."] if found.fallback else []
    if len(listed):
        heads = ("cell", "base", "test", "test/base", "n", "verdict")
        lines += [HOW_TO_READ, "", *aligned([heads, *map(_texts, table_rows(listed))])]
    if len(listed) < len(rows):
        folded = rows.loc[is_within, "verdict"].value_counts().sort_index()
        words = ", ".join(f"{num} {word}" for word, num in folded.items())
        num = plural(folded.sum(), "row")
        lines += ["", f"Not shown: {num} with a ratio within the margin ({words}). --all shows them."]
    for title, items in lists.items():
        most = len(items) if shows_all else SHOWN
        lines += ["", title, *(f"  {item}" for item in items[:most])]
        lines += [f"  ... and {len(items) - most} more"] if len(items) > most else []
    return "\n".join(lines) + "\n"


@once_per_report
def names_and_lists(found: CampaignsCompared) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of the compared cells, distinct from all others, and lists of what is not compared by title."""
    compared = [found.test.campaign.by_id[cell] for cell in found.comparisons["cell"]]
    cells = [cell for group in (compared, *found.unmatched.values()) for cell in group]
    names, devices = names_by_id(cells), {cell.device for cell in cells}

    def name(cell: Cell) -> str:
        return names[cell.id].full + (f" · {cell.device}" if len(devices) > 1 else "")

    lists = {"Not compared, because they differ in one field": found.fields} if found.fields else {}
    for reason, group in found.unmatched.items():
        lists[f"{reason}: {plural(len(group), 'cell')}"] = list(map(name, group))
    return list(map(name, compared)), lists


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Return rows as lines: the first and the last column to the left, the others to the right."""
    *widths, last = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"<{widths[0]}", *(f">{width}" for width in widths[1:]), f"<{last}"]
    return ["  ".join(map(format, row, forms)).rstrip() for row in rows]


@once_per_report
def statements(found: CampaignsCompared) -> list[tuple[str, str, str, str]]:
    """Return anchor, label, lead and text of each finding: the verdicts, what differs in times, and in environments."""
    judged = sides.with_labels(texts.judged_rows(found.comparisons))
    known = [difference.name for difference in found.environment if not difference.name.startswith(NOT_KNOWN)]
    is_known = found.has_environments
    words = {"num": len(known), "names": known if is_known else [], "unknown": "" if is_known else "no launch files"}
    findings = [*texts.compared_findings(judged)[::-1], Finding("environment", words, (), (), "environment")]
    found_texts = [(f, *texts.KIND_OF[f.kind].words(f.values | f.words)) for f in findings]
    said = [
        (f.anchor, LABELS[f.kind], f"{lead[:1].upper()}{lead[1:].removesuffix('.')}", text)
        for f, lead, text in found_texts
    ]
    return [
        *said[:-1],
        *([("comparisons", "Gate", "A gate would decide differently", found.gate)] if found.gate else []),
        said[-1],
    ]


def difference_text(difference: Difference, in_reference: str, in_other: str) -> str:
    """Return a difference as a line. in_reference, in_other: words for the sides, such as `in base`."""
    name, reference, other = difference.name, difference.reference, difference.other
    if not name.startswith(NOT_KNOWN):
        return f"{name}: {reference} -> {other}"
    # A fact that is missing on one side was recorded on the other.
    sides = ((in_reference, other), (in_other, reference))
    known = [f"{where}: {facts}" for where, facts in sides if facts != NOTHING]
    return f"recorded only {'; '.join(known)}" + name.removeprefix(NOT_KNOWN)


def _texts(row) -> tuple[str, ...]:
    times = duration(row.reference_time_s), duration(row.time_s)
    return row.full_name, *times, texts.interval_text(row), texts.launches_text(row), texts.verdict_text(row)


def campaign_text(side: CampaignResults) -> str:
    """Return name and folder of a campaign, its size and its time."""
    ok = side.measurements[side.measurements["status"] == "ok"]
    size = f"{plural(ok['cell'].nunique(), 'cell')} in {plural(ok['launch'].nunique(), 'launch', 'launches')}"
    notes = "".join(f". Note: {note}" for note in side.notes)
    return f"{side.campaign.name} ({side.folder}, {size}, first record {side.first_time_utc or UNKNOWN}){notes}"


def title_of(found: CampaignsCompared) -> str:
    return " vs. ".join(distinct_names(found.test, found.base))


def distinct_names(*campaigns: CampaignResults) -> list[str]:
    """Return the names of campaigns; if two are equal, those of folders, or with their dates."""
    for names in (
        [side.campaign.name for side in campaigns],
        [side.folder.resolve().name for side in campaigns],
        [f"{side.campaign.name} of {(side.first_time_utc or UNKNOWN)[:10]}" for side in campaigns],
    ):
        if len(set(names)) == len(names):
            return names
    return [str(side.folder) for side in campaigns]
