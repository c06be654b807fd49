"""The page of compare.py for more than two campaigns: verdicts by campaign, and a small chart of each cell."""

from pathlib import Path
from urllib.parse import quote

import pandas as pd

from regatta.compare.comparison_output import campaign_text, names_and_lists, statements
from regatta.compare.pair_list import VERDICTS, changes_text, report_of
from regatta.compare.several import SeveralCampaigns, changes_of
from regatta.core.text import plural
from regatta.report.page import TEMPLATES, load_template, script_source
from regatta.tables.pairs import judged_rows

MOST_DRAWN = 24  # cells with the largest changes; the table has the others
MOST_ROWS = 1000


def page_of_several(history: SeveralCampaigns, path: Path) -> str:
    """Return a page on more than two campaigns. path: of the page, to which its links to reports are relative."""
    names, cells = history.names, history.cells
    environment = list(zip(names, [*names[:1], *names], history.changes, strict=False))[1:]
    num = sum(bool(changes) for changes in history.changes)
    lists = [(name, *of) for name, found in zip(names[1:], history.compared, strict=True) for of in unmatched(found)]
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
        summary=summary_of(history),
        environment=environment,
        heads={verdict: head for verdict, (_, head) in VERDICTS.items()},
        verdicts=[verdicts_row(history, place) for place in range(1, len(names))],
        reports=[report_of(campaign, path) for campaign in history.campaigns],
        history=history,
        names=names,
        cells=cells,
        drawn=cells[:MOST_DRAWN],
        listed=cells[:MOST_ROWS],
        changes_of=changes_of,
        margin=[history.height(ratio) for ratio in (1 + history.margin, 1 / (1 + history.margin))],
        quote=quote,
        lists=lists,
        script=script,
        script_source=script_source(script),
    )


def all_rows(history: SeveralCampaigns) -> pd.DataFrame:
    """Return the rows of all comparisons, in the order of the campaigns."""
    return pd.concat([of.comparisons for of in history.compared], ignore_index=True)


def unmatched(found) -> list[tuple[str, list[str]]]:
    return list(names_and_lists(found)[1].items())


def summary_of(history: SeveralCampaigns) -> list[tuple[str, str, str, str]]:
    """Return anchor, label, lead and text: the latest campaign against base, since when, and changed environments."""
    _, _, lead, text = statements(history.compared[-1])[0]
    found = [("comparisons", f"{history.names[-1]} vs. {history.names[0]}", lead, text)]
    for verdict in ("slower", "faster"):
        if firsts := history.first_in(verdict):
            texts = [f"{plural(num, 'cell')} in {name}" for name, num in firsts]
            found.append(("changes", f"First {verdict}", "; ".join(texts), ""))
    changed = [name for name, changes in zip(history.names, history.changes, strict=True) if changes]
    lead = f"Changed in {', '.join(changed)}" if changed else "No change was recorded"
    return [*found, ("environment", "Environment", lead, "")]


def verdicts_row(history: SeveralCampaigns, place: int) -> tuple[str, int, list[tuple[str, int, str]], str]:
    """Return name of a campaign, number of pairs, (verdict, number, change) of each, and the change of all."""
    judged = judged_rows(history.compared[place - 1].comparisons)
    by_verdict = ((verdict, judged[judged["verdict"] == verdict]) for verdict in VERDICTS)
    counts = [(verdict, len(rows), changes_text(rows)) for verdict, rows in by_verdict]
    return history.names[place], len(judged), counts, changes_text(judged)
