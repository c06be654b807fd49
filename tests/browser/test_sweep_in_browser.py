"""The report of an acceptance sweep in a browser: nodes, pairs, and filters that find one of them."""

import pytest
from explore_page import show
from test_report_in_browser import LOW_CONTRAST, OVERFLOWING, SCREENS

NAMES = [f"n{i}" for i in range(1, 19)]


@pytest.fixture(scope="module", params=["nodes", "pairs"])
def page(request, tmp_path_factory):
    from synthetic import make_report
    from synthetic_sweep import FAULTS, SLOWDOWNS, sweep_campaign, write_sweep

    campaign = sweep_campaign(NAMES, request.param, messages=(2**28,))
    return make_report(write_sweep(tmp_path_factory.mktemp("sweep") / request.param, campaign, SLOWDOWNS, FAULTS))


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_page_is_accessible_and_no_wider_than_the_screen(browser, page, width, scheme):
    show(browser, page, width=width, scheme=scheme)
    assert browser.complaints() == []
    for is_open in (False, True):
        browser.evaluate(f"document.querySelectorAll('#sweep details').forEach(d => d.open = {str(is_open).lower()})")
        assert browser.axe_violations() == []
        assert browser.evaluate(LOW_CONTRAST) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(OVERFLOWING) == []


def test_a_square_opens_its_cell_and_a_filter_leaves_one_node(browser, page):
    show(browser, page, "#search=n17", width=1440)
    shown = "[...document.querySelectorAll('#sweep .matrix td:not(.is-off)')]"
    shown += ".filter(e => e.dataset.cell && e.checkVisibility())"
    # Both workloads of the node, or both halves of the matrix of pairs.
    assert browser.evaluate(f"{shown}.length") == (2 if page.parent.name == "nodes" else 2 * (len(NAMES) - 1))
    browser.evaluate(f"{shown}.at(-1).querySelector('button, a, [tabindex]')?.click() ?? {shown}.at(-1).click()")
    assert browser.evaluate("document.getElementById('drawer').checkVisibility()")
    assert "n17" in browser.evaluate("document.getElementById('drawer').textContent")
