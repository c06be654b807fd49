"""The page of compare.py: planted differences appear in the summary, and the list."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from comparison_results import cell_of, write_folder
from synthetic import train_cell
from test_report import Page

from regatta.compare.campaigns import compare_campaigns, read_campaign
from regatta.compare.comparison_output import axis_of, comparison_page, counts_of, pairs_block, pairs_of, strip
from regatta.core.text import three
from regatta.tables.facts import NOT_KNOWN, Difference
from regatta.tables.pairs import judged_rows

FIVE = [1.00, 1.01, 1.02, 1.03, 1.04]
HOSTILE = "<b>after"
# Of each benchmark and shape: the ratio of test to base.
COLLECTIVES = {(4096, 2): 1.0, (8192, 2): 1.0, (4096, 4): 0.8, (8192, 4): 0.5}
STEPS = {("resnet18", 2): 1.2, ("resnet50", 2): 1.0, ("resnet18", 4): 1.3, ("resnet50", 4): 1.06}


def planted():
    """Return (cell, ratio): 2 improved, 2 regressed, 3 unchanged and 1 open cell at a margin of 5 %."""
    cells = []
    for (size, nodes), ratio in COLLECTIVES.items():
        cell = cell_of("bound", size)
        cell["spec"]["nodes"] = nodes
        cells.append((cell | {"id": f"collective-{size}-{nodes}"}, ratio))
    return cells + [(train_cell(model, nodes, 2), ratio) for (model, nodes), ratio in STEPS.items()]


def found_in(folder, has_reports=False):
    cells = planted()
    before = write_folder(folder / "before", [(cell, FIVE) for cell, _ in cells], "01")
    after = write_folder(folder / HOSTILE, [(cell, [r * t for t in FIVE]) for cell, r in cells], "09")
    for path in (before, after) if has_reports else ():
        (path / "report.html").touch()
    return compare_campaigns(read_campaign(before), read_campaign(after), 0.05)


def test_the_page_stands_alone(tmp_path):
    text = comparison_page([found_in(tmp_path)], tmp_path / "page.html")
    page = Page(re.sub("<template.*?</template>", "", text, flags=re.DOTALL))
    assert [image for image in page.all("img") if not image.get("alt")] == []
    assert len(page.all("script")) == 2
    ids = [element["id"] for _, element in page.elements if "id" in element]
    assert len(ids) == len(set(ids))
    addresses = [element[name] for _, element in page.elements for name in ("href", "src") if element.get(name)]
    anchors = [address[1:].partition("&")[0] for address in addresses if address.startswith("#")]
    assert anchors
    assert set(anchors) <= set(ids)
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert HOSTILE not in text
    assert "&lt;b&gt;after" in text


def test_the_page_begins_with_its_verdict(tmp_path):
    text = comparison_page([found_in(tmp_path)], tmp_path / "page.html")
    answers = text.partition('<ul class="answers">')[2].partition("</ul>")[0]
    assert re.findall(r'<a href="#(\w+)"', answers) == ["comparisons"] * 2 + ["environment"]  # the second: a gate
    basis = text.partition("</ul>")[2].partition("</p>")[0]
    assert re.findall(r"\d+ (?:slower|faster|equivalent)", basis)[:3] == ["2 slower", "2 faster", "3 equivalent"]
    places = [text.index(f'id="{name}"') for name in ("environment", "comparisons", "cells", "unmatched")]
    assert places == sorted(places)


def test_the_page_says_base_and_test_only(tmp_path, wording):
    page = comparison_page([found_in(tmp_path, has_reports=True)], tmp_path / "page.html")
    wording(re.findall('<th scope="col" class="\\w+">(.*?)</th>', page[page.index('id="cells-table"') :])[:7])
    assert "reference" not in page[page.index("<main>") : page.index("</main>")]  # below are the columns of the CSV


def test_the_table_counts_what_was_planted(tmp_path):
    [every] = counts_of(judged_rows(found_in(tmp_path).comparisons), {})
    # pairs, improved, regressed, open, unchanged
    assert (every.num, *(num for num, *_ in every.by_verdict.values())) == (8, 2, 2, 1, 3)
    improved, regressed, _, unchanged = every.by_verdict.values()
    mean = 100 * (math.sqrt(0.8 * 0.5) - 1)  # of the ratios: geometric
    assert improved[1].replace("\N{MINUS SIGN}", "-") == f"{mean:.1f} (-50.0 to -20.0)"
    assert regressed[1] == f"+{100 * (math.sqrt(1.2 * 1.3) - 1):.1f} (+20.0 to +30.0)"
    assert unchanged[1] == "0.0 (0.0 to 0.0)"
    assert improved[2] == "#cells&status=faster"


def test_the_list_has_the_largest_effect_first_with_its_interval_on_the_common_axis(tmp_path):
    found = found_in(tmp_path)
    block = pairs_block([found], pairs_of([found]), tmp_path / "page.html")
    assert block["cells"]["change"] == [-50, 30, -20, 20, 6, *[0] * 3]
    [strips] = [column["strips"] for column in block["columns"] if "strips" in column]
    axis = axis_of(judged_rows(found.comparisons))
    middles = [float(re.search(r"--from:([\d.]+)%", strip)[1]) for strip in strips]
    ratios = [0.5, 1.3, 0.8, 1.2, 1.06, 1, 1, 1]
    assert middles == pytest.approx([50 + 50 * math.log(ratio) / axis.end for ratio in ratios], abs=0.06)
    low, high = map(float, re.search(r"--low:([\d.]+)%.*--high:([\d.]+)%", strips[1]).groups())
    text = block["texts"]["change"][1]
    ends = [50 + 50 * math.log1p(float(end) / 100) / axis.end for end in re.findall(r"\+([\d.]+)[,\]]", text)]
    assert [low, high] == pytest.approx(ends, abs=0.1)
    assert block["band"] == f"{50 * math.log(1.05) / axis.end:.1f}%"


def rows_of(*ratios, margin=0.05, verdict="equivalent"):
    """Return judged rows with intervals of one percent around these ratios."""
    rows = [
        {"time_ratio": r, "time_low_ratio": r / 1.01, "time_high_ratio": r * 1.01, "margin_ratio": margin}
        | {"verdict": verdict, "cell": f"cell-{place}"}
        for place, r in enumerate(ratios)
    ]
    return pd.DataFrame(rows)


def test_a_gate_has_its_verdicts_and_margin_on_the_page(tmp_path):
    """Cells with two launches are screened: without a test, all launches of one must be slower by more than both."""
    cells = planted()
    before = write_folder(tmp_path / "before", [(cell, FIVE[:2]) for cell, _ in cells], "01")
    after = write_folder(tmp_path / "after", [(cell, [r * t for t in FIVE[:2]]) for cell, r in cells], "09")
    found = compare_campaigns(read_campaign(before), read_campaign(after), 0.05, allocation_variation=0.1)
    judged = judged_rows(found.comparisons)
    [every] = counts_of(judged, {})
    # Beyond 1.05 x 1.1 = 1.155: 1.2 (by 1.19 in the worst case), 1.3, 0.8 and 0.5; the other four are open.
    assert {verdict: num for verdict, (num, *_) in every.by_verdict.items() if num} == {
        "faster": 2,
        "slower": 2,
        "inconclusive": 4,
    }
    assert list(judged["margin_ratio"]) == pytest.approx([0.155] * 8)
    text = comparison_page([found], tmp_path / "page.html", ("gate: failed", "2 regressions"))
    assert text.index("<strong>Failed</strong>") < text.index("Environment</h2>")


def test_the_axis_of_the_list_spans_all_ratios_with_their_ends():
    """Six pairs at +12 % beside an interval up to a ratio of 50: each bar ends where its interval does."""
    rows = rows_of(*[1.12] * 6, 1.0, 50 / 1.01)
    axis = axis_of(rows)
    assert axis.end == pytest.approx(math.log(50))
    first, last = (strip(axis, row) for row in rows.iloc[[0, 7]].itertuples())
    places = [50 + 50 * math.log(ratio) / math.log(50) for ratio in (1.12 / 1.01, 1.12 * 1.01, 1.12)]
    assert first == "--low:{0:.1f}%;--from:{2:.1f}%;--to:{2:.1f}%;--high:{1:.1f}%".format(*places)
    assert last.startswith("--low:99.7%;")
    assert last.endswith("--high:100%")
    assert axis_of(rows_of(1.0, 1.0)).end == pytest.approx(2 * math.log(1.05))  # at least twice the margin
    alone = SimpleNamespace(time_ratio=1.0, time_low_ratio=None, time_high_ratio=None)
    assert strip(axis, alone) == "--low:50%;--from:50%;--to:50%;--high:50%"


def test_the_cell_of_a_pair_is_linked_in_both_reports(tmp_path):
    found = found_in(tmp_path, has_reports=True)
    (tmp_path / "compare").mkdir()
    block = pairs_block([found], pairs_of([found]), tmp_path / "compare" / "page.html")
    [links] = [column["links"] for column in block["columns"] if "links" in column]
    cell = found.comparisons["cell"].iloc[0]
    assert links[0] == [
        ("base", f"../before/report.html#cell={cell}"),
        ("test", f"../%3Cb%3Eafter/report.html#cell={cell}"),
    ]
    (tmp_path / "before" / "report.html").unlink()
    assert pairs_block([found], pairs_of([found]), tmp_path / "page.html")["columns"][-1]["links"][0][0][0] == "test"


def test_differences_of_environment_are_folded_to_their_numbers(tmp_path):
    found = [Difference("torch", "2.1", "2.2"), Difference("nccl", "2.1", "2.2"), Difference("UCX", "1.15", "not set")]
    found.append(Difference(NOT_KNOWN, "cuda", "nothing"))
    page = comparison_page([replace(found_in(tmp_path), environment=found)], tmp_path / "page.html")
    summaries = re.findall("<summary>(.*?)</summary>", page[page.index('<section id="environment"') :])
    assert re.findall(r"\d+", summaries[0]) == ["3"]


def test_the_default_order_and_texts_are_those_of_the_verdicts(tmp_path):
    found = found_in(tmp_path)
    block = pairs_block([found], pairs_of([found]), tmp_path / "page.html")
    facet = block["facets"]["status"]
    words = [facet["names"][index] for index in block["cells"]["status"]]
    assert words == ["faster", "slower", "faster", "slower", "inconclusive", *["equivalent"] * 3]
    assert block["texts"]["verdict"][4].startswith("3.")  # 3.x-9.x % slower, against a margin of 5 %
    assert block["texts"]["n"] == ["5"] * 8
    assert block["texts"]["base"][0] == f"{three(1.02)} s"
