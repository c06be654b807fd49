"""Comparisons in a browser: the matrix, and verdicts that a reader sees without scrolling sideways."""

from dataclasses import replace

import pytest
from explore_page import count, show, text, wait
from test_report_in_browser import OVERFLOWING

pytestmark = pytest.mark.browser

SIX = [1.00, 1.005, 1.01, 1.015, 1.02, 1.025]
NUM_CELLS = 24  # more rows than stay open in the report
# Verdict cells that are not displayed, or are cut off by the screen or by the box that scrolls.
CLIPPED = """
[...document.querySelectorAll('TABLE :is(td, thead th):nth-child(2)')].filter(e => {
  const box = e.getBoundingClientRect(), around = e.closest('.scroll').getBoundingClientRect();
  return !box.width || box.left < 0 || box.right > innerWidth || box.right > around.right + 1;
}).map(e => e.textContent)
"""
LISTS = {"compare": "#cells-table", "report": "#comparisons .folds table:not(.words)"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the page of two campaigns, and the report of two stacks: 1 to 24 % slower, some not settled."""
    from comparison_results import cell_of, write_folder
    from synthetic import CLUSTER, make_campaign, make_report, train_cell, write_results

    from regatta.compare.campaigns import compare_campaigns, read_campaign
    from regatta.compare.comparison_output import comparison_page

    folder = tmp_path_factory.mktemp("comparisons")
    cells = [cell_of("bound", 1024 * (i + 1)) for i in range(NUM_CELLS)]
    base = write_folder(folder / "base", [(cell, SIX) for cell in cells], "01")
    slower = [(cell, [(1 + (i + 1) / 100) * t for t in SIX]) for i, cell in enumerate(cells)]
    test = write_folder(folder / "test", slower, "09")
    page = folder / "compare.html"
    for side in (base, test):
        (side / "report.html").touch()
    compared = compare_campaigns(read_campaign(base), read_campaign(test), 0.05)
    page.write_text(comparison_page([compared], page), "utf-8")
    trained = []
    for stack in ("contained", "bound"):
        for bucket in range(1, NUM_CELLS + 1):
            cell = train_cell("resnet50", 1, 2, bucket=bucket, stack=stack)
            cell["spec"]["stack"]["binds"] = [stack]
            trained.append(cell)
    results = write_results(folder / "stacks", make_campaign(trained, repeats=2), CLUSTER)
    return {"compare": page, "report": make_report(results)}


@pytest.mark.parametrize("name", ["compare", "report"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_verdict_is_seen_without_scrolling_sideways(browser, pages, name, width):
    show(browser, pages[name], width=width)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.evaluate("document.getElementById('cells-more').click()")
    table, clipped = LISTS[name], CLIPPED.replace("TABLE", LISTS[name])
    assert browser.evaluate(f"document.querySelectorAll('{table} td:nth-child(2)').length") == NUM_CELLS
    assert browser.evaluate(f"document.querySelector('{table} thead th:nth-child(2)').textContent") == "Verdict"
    assert browser.evaluate(clipped) == []
    if width == 390:  # the last column must be scrolled to: what is cut off is found
        assert len(browser.evaluate(clipped.replace("nth-child(2)", "last-child"))) > NUM_CELLS


@pytest.fixture(scope="module")
def more_pages(tmp_path_factory, pages):
    """Return pages by what is compared: two imported files, one of them with a campaign, a gate, and three campaigns."""
    from comparison_results import cell_of, write_folder
    from formats_files import FILES

    from regatta.compare.campaigns import compare_campaigns, read_campaign, read_imported
    from regatta.compare.comparison_output import comparison_page
    from regatta.compare.gate import judge
    from regatta.compare.gate_files import headline
    from regatta.formats.base import Options
    from regatta.store.csv_files import MEASUREMENTS, read_csv

    folder = tmp_path_factory.mktemp("more")
    text = (FILES / "nccl-13-columns.txt").read_text("utf-8")
    (folder / "before.txt").write_text(text, "utf-8")
    (folder / "after.txt").write_text(
        text.replace("0.34       0    20.13    0.20    0.36", "0.34       0    40.26    0.10    0.18"), "utf-8"
    )
    scratch = folder / "scratch"
    scratch.mkdir()
    files = [read_imported(folder / name, None, Options(), scratch) for name in ("before.txt", "after.txt")]
    found = {"imported": folder / "imported.html", "gate": folder / "gate.html", "several": folder / "several.html"}
    found["imported"].write_text(comparison_page([compare_campaigns(*files, 0.05)], found["imported"]), "utf-8")
    base, test = (read_campaign(pages["compare"].parent / name) for name in ("base", "test"))
    measurements = read_csv(test.folder / "measurements.csv", MEASUREMENTS)
    gate = judge(replace(test, measurements=measurements), base, 0.05, 0.085)
    found["gate"].write_text(comparison_page([gate.found], found["gate"], headline(gate)), "utf-8")
    cells = [cell_of("bound", 1024 * (i + 1)) for i in range(NUM_CELLS)]
    third = [(cell, [1.02 * t for t in SIX]) for cell in cells]
    third = write_folder(folder / "third", third, "10", {"torch": "2.99"})
    several = [compare_campaigns(base, other, 0.05) for other in (test, read_campaign(third))]
    found["several"].write_text(comparison_page(several, found["several"]), "utf-8")
    return pages | found


PAGES = ["compare", "imported", "gate", "several"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_campaigns_is_readable(browser, more_pages, name, width, scheme):
    browser.open(more_pages[name], width, scheme=scheme)
    assert browser.complaints() == []
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(OVERFLOWING) == []
    assert browser.axe_violations() == []  # contrast too


@pytest.mark.parametrize(
    ("query", "num"),
    [("4KiB", 1), ("4 KiB", 1), ("24KiB", 1), ("allreduce", 24), ("1x2", 24), ("slower", 18), ("resnet", 0)],
)
def test_the_search_of_pairs_understands_values_and_verdicts(browser, pages, query, num):
    """Of 24 pairs, 7 to 24 % are slower by more than the margin of 5 %."""
    show(browser, pages["compare"], f"#search={query}")
    assert count(browser) == (num, NUM_CELLS)


def test_the_list_of_pairs_fits_a_screen(browser, pages):
    show(browser, pages["compare"], "#status=slower", width=1440)
    box = "document.querySelector('#cells-table').closest('.scroll')"
    assert browser.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    assert (
        browser.evaluate("document.querySelectorAll('#cells-table tbody tr:first-child td:last-child a').length") == 2
    )


HEADS = "[...document.querySelectorAll('#drawer-body h3')].map(head => head.textContent)"


def test_a_square_of_the_report_opens_its_cell_with_the_test_and_its_p(browser, pages):
    show(browser, pages["report"])
    browser.evaluate("document.querySelector('#comparisons .matrix td button').click()")
    assert text(browser, "#drawer-title").startswith("ResNet-50")
    body = text(browser, "#drawer-body")
    assert "Comparisons" in body
    assert "Ratio, " in body
    assert "Verdict" in body


TOP_OF_COMPARISONS = """
[...document.querySelectorAll('#drawer-body h3')].find(head => head.textContent === 'Comparisons').getBoundingClientRect().top
"""


def test_a_pair_opens_its_comparison(browser, pages):
    show(browser, pages["report"])
    browser.evaluate("document.querySelector('#comparisons .matrix td button').click()")
    assert -1 < browser.evaluate(TOP_OF_COMPARISONS) < 100  # a scrolled place is a whole number of pixels
    assert "Rerun by hand" in browser.evaluate(HEADS)
    browser.evaluate("document.querySelector('#bucket .matrix td button').click()")
    assert browser.evaluate("document.getElementById('drawer').scrollTop") == 0


SHOWN = "[...document.querySelectorAll('#cells-table tbody th .open-cell')].map(e => e.textContent)"


def test_a_count_of_the_summary_filters_the_page_to_its_pairs(browser, pages):
    """Ratios of 1.01 to 1.24 with intervals of about 2 %: few are equivalent to a margin of 5 %, most are slower."""
    show(browser, pages["compare"], width=1440)
    assert count(browser) == (NUM_CELLS, NUM_CELLS)
    link = "[...document.querySelectorAll('.verdicts a')].find(a => a.hash.endsWith('status=slower'))"
    num = int(browser.evaluate(f"{link}.textContent"))
    assert 12 < num < NUM_CELLS
    browser.evaluate(f"{link}.click()")
    wait(lambda: count(browser)[0] == num)
    assert count(browser) == (num, NUM_CELLS)


def test_the_list_of_pairs_is_searched_sorted_and_opened(browser, pages):
    show(browser, pages["compare"], "#search=24KiB", width=1440)
    assert count(browser) == (1, NUM_CELLS)
    show(browser, pages["compare"], "#sort=change", width=1440)
    assert browser.evaluate(SHOWN)[0].endswith(" 1 KiB")  # 1 % slower
    show(browser, pages["compare"], width=1440)
    assert browser.evaluate(SHOWN)[0].endswith(" 24 KiB")
    middles = (
        "[...document.querySelectorAll('#cells-table .strip')].map(e => parseFloat(e.style.getPropertyValue('--from')))"
    )
    assert browser.evaluate(middles) == sorted(browser.evaluate(middles), reverse=True)
    browser.evaluate("document.querySelector('#cells-table .open-cell').click()")
    assert text(browser, "#drawer-title").endswith(" 24 KiB")
    links = browser.evaluate("[...document.querySelectorAll('#drawer-reports a')].map(a => a.getAttribute('href'))")
    assert [link.partition("#")[0] for link in links] == ["base/report.html", "test/report.html"]
    assert browser.evaluate("document.querySelectorAll('#drawer-body section').length") == 2  # numbers and settings


def test_without_script_the_list_has_its_bars_and_links(browser, pages):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["compare"], 1440)
        assert browser.evaluate("document.querySelectorAll('#cells-table .strip').length") == NUM_CELLS
        assert (
            browser.evaluate("document.querySelectorAll('#cells-table a[href*=\"report.html#cell=\"]').length")
            == 2 * NUM_CELLS
        )
        assert not browser.evaluate("document.getElementById('filters').checkVisibility()")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_imported_files_have_their_pairs_and_their_notes(browser, more_pages):
    """One of the times of one size differs; with one launch per side nothing is judged."""
    show(browser, more_pages["imported"], width=1440)
    num = count(browser)[1]
    assert num > 10
    verdicts = browser.evaluate(
        "[...document.querySelectorAll('#cells-table tbody td:nth-child(2)')].map(e => e.innerText)"
    )
    assert set(verdicts) == {"too few launches"}
    changes = browser.evaluate(
        "[...document.querySelectorAll('#cells-table tbody td:nth-child(3)')].map(e => e.innerText)"
    )
    assert changes[0].startswith("+100.0")
    assert set(changes[1:]) == {"0.0"}
    browser.evaluate("document.querySelector('#cells-table .open-cell').click()")
    assert not browser.evaluate("Boolean(document.getElementById('drawer-reports'))")  # files have no report


def test_a_gate_begins_with_its_result_and_filters_to_its_slower_cells(browser, more_pages):
    """5 % and 8.5 % between allocations: cells slower by 14 % and more, with their intervals."""
    show(browser, more_pages["gate"], width=1440)
    assert text(browser, ".answers li:first-child .label") == "Gate"
    assert text(browser, ".answers li:first-child strong") == "Failed"
    num = int(
        browser.evaluate(
            "[...document.querySelectorAll('.verdicts a')].find(a => a.hash.endsWith('status=slower')).textContent"
        )
    )
    assert 5 <= num <= 10
    browser.evaluate(
        "[...document.querySelectorAll('.verdicts a')].find(a => a.hash.endsWith('status=slower')).click()"
    )
    wait(lambda: count(browser)[0] == num)
    assert count(browser) == (num, NUM_CELLS)


def test_differences_of_environment_are_one_line(browser, more_pages):
    for name in PAGES:
        browser.open(more_pages[name], 1440)
        assert browser.evaluate("document.querySelector('#environment').offsetHeight") < 50


def test_differences_of_environment_are_printed(browser, more_pages):
    browser.open(more_pages["several"], 1440)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert "2.99" in browser.evaluate("document.querySelector('#environment').innerText")
        assert browser.evaluate("document.querySelector('#environment dd:last-child').getClientRects().length") > 0
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


def test_a_count_of_a_campaign_filters_the_page_to_its_pairs(browser, more_pages):
    show(browser, more_pages["several"], width=1440)
    links = "[...document.querySelectorAll('.verdicts tbody tr:last-child a')]"
    link = f"{links}.find(a => a.hash.includes('status=equivalent'))"
    num = int(browser.evaluate(f"{link}.textContent"))
    assert 0 < num <= NUM_CELLS
    browser.evaluate(f"{link}.click()")
    wait(lambda: count(browser)[0] == num)
    assert count(browser) == (num, 2 * NUM_CELLS)
