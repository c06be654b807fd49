"""compare.py with more than two campaigns: each against the first."""

import random
import re
from urllib.parse import unquote

import pytest
from comparison_results import cell_of, write_folder
from test_comparison_campaigns import script  # noqa: F401
from test_report import Page

from regatta.compare.campaigns import compare_campaigns, read_campaign
from regatta.compare.change_groups import change_groups
from regatta.compare.comparison_output import (
    comparison_page,
    comparison_text,
    counts_of,
    pairs_block,
    pairs_of,
)
from regatta.tables.pairs import judged_rows

FIVE = [1.00, 1.01, 1.02, 1.03, 1.04]
CELLS = [cell_of("bound", 1024 << place) for place in range(4)]
# Ratio to the first campaign by campaign, of each cell; None: not measured.
RATIOS = {"b": (1.0, 1.2, 1.0, 0.8), "<i>c": (1.0, 1.4, 1.3, None)}
TORCH = {"a": "2.1", "b": "2.1", "<i>c": "2.2"}


def folders_in(folder, ratios=RATIOS):
    found = []
    for day, (name, of) in enumerate({"a": (1.0,) * 4, **ratios}.items(), start=1):
        times = [(cell, [ratio * t for t in FIVE]) for cell, ratio in zip(CELLS, of, strict=True) if ratio is not None]
        found.append(write_folder(folder / name, times, f"0{day}", {"torch": TORCH.get(name, "2.2")}))
    return found


def compared_in(folders):
    base, *others = map(read_campaign, folders)
    return [compare_campaigns(base, other, 0.05) for other in others]


@pytest.fixture
def compared(tmp_path):
    return compared_in(folders_in(tmp_path))


def rows_of(compared):
    return [row for of in compared for row in of.comparisons.to_dict("records")]


def test_each_campaign_is_compared_with_the_first(compared):
    found = [[row["value"], round(row["time_ratio"], 2), row["verdict"]] for row in rows_of(compared)]
    assert sorted(found) == sorted(
        [
            *(["b", 1.2, "slower"], ["b", 0.8, "faster"], ["b", 1.0, "equivalent"], ["b", 1.0, "equivalent"]),
            *(["<i>c", 1.4, "slower"], ["<i>c", 1.3, "slower"], ["<i>c", 1.0, "equivalent"]),
        ]
    )
    assert {row["reference_value"] for row in rows_of(compared)} == {"a"}


def test_cells_that_changed_together_are_a_group_before_each_has_a_verdict(tmp_path):
    """All 30 cells take 9 % longer since b, with three launches that vary by 2 %, so not all have a verdict there."""
    rng = random.Random(3)
    cells = [cell_of("bound", 1024 + place) for place in range(30)]

    def times(ratio):
        return [(cell, [ratio * rng.lognormvariate(0, 0.02) for _ in range(3)]) for cell in cells]

    folders = [
        write_folder(tmp_path / name, times(ratio), f"0{day}")
        for day, (name, ratio) in enumerate({"a": 1.0, "b": 1.09, "c": 1.09, "d": 1.09}.items(), start=1)
    ]
    compared = compared_in(folders)
    slower = [set(of.comparisons.loc[of.comparisons["verdict"] == "slower", "reference"]) for of in compared]
    assert 0 < len(slower[0]) < len(set.union(*slower))
    [group] = change_groups(compared, judged_rows(pairs_of(compared)))
    assert group.references == {cell["id"] for cell in cells}
    assert [step.word for step in group.steps] == ["slower"] * 3
    assert [step.ratio for step in group.steps] == pytest.approx([1.09] * 3, rel=0.01)


def test_cells_link_to_the_reports_of_their_campaigns(tmp_path):
    folders = folders_in(tmp_path)
    for folder in folders[::2]:
        (folder / "report.html").write_text("", encoding="utf-8")
    compared = compared_in(folders)
    text = comparison_page(compared, tmp_path / "page.html")
    row = next(row for row in compared[1].comparisons.itertuples() if row.cell.startswith("collective"))
    table = text[text.index('id="cells-table"') :]
    assert table.count(f'href="a/report.html#cell={row.reference}"') == 2  # of b, and of c
    assert table.count(f'href="%3Ci%3Ec/report.html#cell={row.cell}"') == 1
    assert "b/report.html" not in table


def test_the_page_has_counts_for_each_campaign(compared, tmp_path):
    text = comparison_page(compared, tmp_path / "page.html")
    page = Page(re.sub("<template.*?</template>", "", text, flags=re.DOTALL))
    assert "<h1>a (base) to &lt;i&gt;c" in text
    table = text[text.index('class="verdicts"') :].partition("</table>")[0]
    counts = [re.findall(r"<td>(?:<a [^>]*>)?(\d+)(?:</a>)?</td>", row) for row in re.findall("<tr><th.*?</tr>", table)]
    # pairs; faster, slower, inconclusive, equivalent
    assert counts == [["4", "1", "1", "0", "2"], ["3", "0", "2", "0", "1"]]
    assert "<i>c" not in text
    ids = [element["id"] for _, element in page.elements if "id" in element]
    assert len(ids) == len(set(ids))
    anchors = [element["href"][1:] for _, element in page.elements if (element.get("href") or "").startswith("#")]
    assert {anchor.partition("&")[0] for anchor in anchors} <= set(ids)


def test_each_pair_is_in_the_list_once_with_its_campaign(compared, tmp_path):
    pairs = pairs_of(compared)
    block = pairs_block(compared, pairs, tmp_path / "page.html")
    facet = block["facets"]["campaign"]
    columns = (block["cells"][name] for name in ("campaign", "change"))
    found = [(facet["names"][place], change) for place, change in zip(*columns, strict=True)]
    expected = {"b": [20, 0, 0, -20], "<i>c": [40, 30, 0]}
    assert sorted(found) == sorted((name, change) for name, changes in expected.items() for change in changes)
    assert len(set(block["cells"]["id"])) == len(pairs) == 7
    [b, c] = counts_of(judged_rows(pairs), dict.fromkeys(expected))
    assert unquote(b.by_verdict["slower"][2]) == "#cells&status=slower&campaign=b"
    assert unquote(c.by_verdict["slower"][2]) == "#cells&status=slower&campaign=<i>c"


def test_campaigns_without_valid_launches_have_no_pair(tmp_path):
    folders = folders_in(tmp_path)[:1]
    failed = [(cell, ["failed"] * 5) for cell in CELLS]
    folders += [write_folder(tmp_path / f"failed{day}", failed, f"0{day}") for day in (2, 3)]
    compared = compared_in(folders)
    page = Page(re.sub("<template.*?</template>", "", comparison_page(compared, tmp_path / "p.html"), flags=re.DOTALL))
    assert [table for table in page.all("table") if table.get("class") == "verdicts"] == []


def test_the_text_has_the_changes_beyond_the_margin(compared, wording):
    wording(comparison_text(compared))
    assert [num_rows(comparison_text(compared, shows_all)) for shows_all in (False, True)] == [4, 7]


def num_rows(text):
    return len(re.findall(r"^all-reduce.*KiB +1.02 s", text, flags=re.MULTILINE))


@pytest.mark.parametrize(("last", "status"), [("<i>c", 1), ("d", 0)])
def test_the_exit_status_is_that_of_the_last_campaign(tmp_path, script, last, status):  # noqa: F811
    ratios = {"b": RATIOS["b"], last: RATIOS.get(last, (1.0,) * 4)}
    page, table = tmp_path / "page.html", tmp_path / "rows.csv"
    done = script(*folders_in(tmp_path, ratios), "--html", page, "--csv", table)
    assert done[0] == status
    assert len(table.read_text().splitlines()) == (8 if status else 9)
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_campaign_without_a_cell_of_the_first_is_an_error_that_names_both(tmp_path, script):  # noqa: F811
    folders = folders_in(tmp_path)
    other = write_folder(tmp_path / "other", [(cell_of("contained", 7), FIVE)], "05")
    status, _, errors = script(*folders, other)
    assert status == 2
    assert str(other) in errors
    assert str(folders[0]) in errors
