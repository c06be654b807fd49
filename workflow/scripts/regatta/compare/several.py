"""More than two campaigns, each compared with the first, the base: the text and the page of compare.py."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from regatta.compare.campaign_history import CampaignHistory, Followed, Point, changes_of
from regatta.compare.campaigns import CampaignResults, CampaignsCompared
from regatta.compare.comparison_output import aligned, campaign_text, distinct_names, names_and_lists, statements
from regatta.compare.comparison_page import VERDICTS, counted, report_of
from regatta.core.text import UNKNOWN, change_text, duration, plural
from regatta.kit.columns import table_rows
from regatta.model.frozen import names_by_id
from regatta.report.page import TEMPLATES, load_template, script_source
from regatta.tables.pairs import is_within_margin, judged_rows

MOST_DRAWN = 24  # cells with the largest changes; the table has the others
MOST_ROWS = 1000
HOW_TO_READ = "Change in time against base in %: positive is slower. [ ]: 95 % confidence interval; ( ): range."


@dataclass(frozen=True)
class SeveralCampaigns(CampaignHistory):
    """Campaigns in the given order, the base first, and the cells of the base by their largest change.

    compared: each other campaign with the base.
    """

    campaigns: list[CampaignResults]
    compared: list[CampaignsCompared]

    def first_in(self, verdict: str) -> list[tuple[str, int]]:
        """Return in which campaign cells have a verdict for the first time, as (name, number of cells)."""
        places = ([at for at, row in cell.rows.items() if row.verdict == verdict] for cell in self.followed)
        counts = Counter(min(of_cell) for of_cell in places if of_cell)
        return [(self.names[place], counts[place]) for place in sorted(counts)]

    def row_of(self, cell: Followed) -> tuple[str, str, list[str]]:
        """Return the name of a cell, its time in base, and its change in each other campaign; n/a if not compared."""
        rows, places = cell.rows, range(1, len(self.names))
        changes = [change_text(rows[place]) if place in rows else UNKNOWN for place in places]
        return cell.cell, duration(cell.compared.reference_time_s), changes


def follow(compared: list[CampaignsCompared]) -> SeveralCampaigns:
    """Return how campaigns compare with the first one. compared: each other one with it."""
    campaigns, found = [compared[0].base, *(of.test for of in compared)], {}
    for place, of in enumerate(compared, start=1):
        for row in table_rows(judged_rows(of.comparisons)):
            point = Point(row.time_ratio, f"{change_text(row)} %, {row.verdict}", row)
            found.setdefault(row.reference, {0: Point(1.0, "base")})[place] = point
    cells = [cell for cell in campaigns[0].campaign.by_id.values() if cell.id in found]
    names = names_by_id(cells)
    followed = [Followed("", names[cell.id].full, found[cell.id]) for cell in cells]
    followed.sort(key=lambda cell: -cell.largest)
    return SeveralCampaigns(distinct_names(*campaigns), changes_of(campaigns), followed, campaigns, compared)


def several_text(history: SeveralCampaigns, shows_all: bool = False) -> str:
    """Return the text on more than two campaigns. shows_all: also cells within the margin in each."""
    names = history.names
    lines = [f"{name}: {campaign_text(of)}" for name, of in zip(["base", *names[1:]], history.campaigns, strict=True)]
    for name, of in zip(names[1:], history.compared, strict=True):
        found = [
            lead + (f". {text}" if text else "") for anchor, _, lead, text in statements(of) if anchor != "environment"
        ]
        lines += ["", f"{name} (test) vs. base", *(f"  {line}" for line in found)]
        lines += [f"  {title}" for title in names_and_lists(of)[1]]
    for name, before, changes in zip(names[1:], names, history.changes[1:], strict=False):
        text = UNKNOWN if changes is None else "; ".join(changes) or "no change recorded"
        lines += [f"Environment of {name} since {before}: {text}"]
    rows = [of.comparisons for of in history.compared]
    beyond = {cell for of in rows for cell in of["reference"][~is_within_margin(of)]}
    shown = [cell for cell in history.followed if shows_all or cell.compared.reference in beyond]
    if shown:
        rows = [(name, time, *changes) for name, time, changes in map(history.row_of, shown)]
        lines += ["", HOW_TO_READ, "", *aligned([("cell", "base", *names[1:]), *rows])]
    if num := len(history.followed) - len(shown):
        lines += ["", f"Not shown: {num} of {len(history.followed)} cells, within the margin. --all shows them."]
    return "\n".join(lines) + "\n"


def page_of_several(history: SeveralCampaigns, path: Path) -> str:
    """Return a page on more than two campaigns. path: of the page, to which its links to reports are relative."""
    names, cells = history.names, history.followed
    num = sum(map(bool, history.changes))
    reports = [report_of(campaign, path) for campaign in history.campaigns]
    script = (TEMPLATES / "sort.js").read_text(encoding="utf-8")
    return load_template("several.html.j2").render(
        title=f"{names[0]} (base) to {names[-1]}: {len(names)} campaigns",
        facts=list(zip(["Base", *names[1:]], map(campaign_text, history.campaigns), strict=True)),
        contents=[
            ("environment", "Environment", plural(num, "change") if num else "", "quiet"),
            ("comparisons", "Verdicts", plural(len(names) - 1, "campaign"), "quiet"),
            ("changes", "Changes by cell", plural(len(cells), "cell"), "quiet"),
            ("unmatched", "Not compared", "", ""),
        ],
        summary=_summary(history),
        environment=list(zip(names, [*names[:1], *names], history.changes, strict=False))[1:],
        counts={
            "": [
                counted(judged_rows(of.comparisons), name, address=report or "")
                for name, report, of in zip(names[1:], reports[1:], history.compared, strict=True)
            ]
        },
        heads=VERDICTS,
        reports=reports,
        history=history,
        drawn=cells[:MOST_DRAWN],
        listed=cells[:MOST_ROWS],
        address=lambda place, cell: reports[place] and f"{reports[place]}#cell={quote(cell)}",
        lists=[
            (name, *of)
            for name, found in zip(names[1:], history.compared, strict=True)
            for of in names_and_lists(found)[1].items()
        ],
        script=script,
        script_source=script_source(script),
    )


def _summary(history: SeveralCampaigns) -> list[tuple[str, str, str, str]]:
    """Return anchor, label, lead and text: the latest campaign against base, since when, and changed environments."""
    _, _, lead, text = statements(history.compared[-1])[0]
    found = [("comparisons", f"{history.names[-1]} vs. {history.names[0]}", lead, text)]
    for verdict in ("slower", "faster"):
        texts = [f"{plural(num, 'cell')} in {name}" for name, num in history.first_in(verdict)]
        found += [("changes", f"First {verdict}", "; ".join(texts), "")] if texts else []
    changed = [name for name, changes in zip(history.names, history.changes, strict=True) if changes]
    lead = f"Changed in {', '.join(changed)}" if changed else "No change was recorded"
    return [*found, ("environment", "Environment", lead, "")]
