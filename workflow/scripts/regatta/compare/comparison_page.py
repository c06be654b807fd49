"""The page of compare.py: verdict, differences of environment, summary, and a list of pairs to filter and search."""

from pathlib import Path

from regatta.compare.campaigns import CampaignsCompared
from regatta.compare.comparison_output import campaign_text, names_and_lists, statements, title_of
from regatta.compare.pair_list import VERDICTS, counts_of, pairs_block
from regatta.core.text import plural
from regatta.report.explore import encoded
from regatta.report.page import load_template
from regatta.tables.pairs import judged_rows
from regatta.topics.comparison import heatmap, texts
from regatta.topics.comparison.comparison_section import environment_tables


def comparison_page(found: CampaignsCompared, path: Path, gate: tuple[str, str] | None = None) -> str:
    """Return a page on two campaigns. path: of the page, to which its links to reports are relative.

    gate: its result and what it is based on.
    """
    judged, comparisons = judged_rows(found.comparisons), found.comparisons
    order = {cell.id: place for place, cell in enumerate(found.test.campaign.cells)}
    planned = comparisons.sort_values("cell", key=lambda cells: cells.map(order))
    block, content = pairs_block(found, path), None
    if len(judged):
        content = {"matrices": heatmap.ratio_matrices(planned, {})}
    num, num_alone = len(found.environment), sum(map(len, found.unmatched.values()))
    return load_template("compare.html.j2").render(
        title=title_of(found),
        lead=texts.COMPARED,
        facts=[(name, campaign_text(side)) for name, side in (("Base", found.base), ("Test", found.test))],
        contents=[
            ("environment", "Environment", plural(num, "difference") if num else "", "quiet"),
            ("comparisons", "Comparisons", plural(len(judged), "pair"), "quiet"),
            ("cells", "All pairs", "", ""),
            ("unmatched", "Not compared", plural(num_alone, "cell") if num_alone else "", "quiet"),
        ],
        summary=[*([_gate_line(*gate)] if gate else []), *statements(found)],
        environment=environment_tables(found.environment, "base", "test"),
        counts=counts_of(block, judged) if len(judged) else {},
        heads={verdict: head for verdict, (_, head) in VERDICTS.items()},
        content=content,
        lists=names_and_lists(found)[1],
        block=block,
        cell_indices={cell: place for place, cell in enumerate(judged["cell"])},
        cell_data=encoded(block),
    )


def _gate_line(lead: str, text: str) -> tuple[str, str, str, str]:
    return "comparisons", "Gate", lead.removeprefix("gate: ").capitalize(), text
