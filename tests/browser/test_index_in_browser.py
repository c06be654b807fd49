"""The index of a results folder in a browser: a sortable table, lines of dots, small screens."""

import pytest
from test_report_in_browser import LOW_CONTRAST, OVERFLOWING, SCREENS

pytestmark = pytest.mark.browser

CHANGES = (1.0, 1.004, 0.99, 1.012)  # of SMALL, to the first campaign


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    from test_index_page import LARGE, SMALL, write_campaign

    from regatta.compare.index import write_index

    folder = tmp_path_factory.mktemp("index")
    for place, change in enumerate(CHANGES):
        times = [(SMALL, [change]), (LARGE, [2.0 / change])]
        write_campaign(folder / f"c{place + 9}", times, f"{place + 10}", {"torch": f"2.{min(place, 2)}"})
    return write_index(folder)


def column(browser, table, place):
    return browser.evaluate(
        f"[...document.querySelector('{table}').tBodies[0].rows].map(r => r.cells[{place}].textContent.trim())"
    )


def sort(browser, table, place):
    browser.evaluate(f"document.querySelectorAll('{table} thead th')[{place}].querySelector('button').click()")
    return browser.evaluate(f"document.querySelectorAll('{table} thead th')[{place}].getAttribute('aria-sort')")


def test_tables_are_sorted_by_a_click_on_a_heading(browser, page):
    browser.open(page, 1440)
    assert column(browser, ".campaigns", 0) == ["c12", "c11", "c10", "c9"]
    assert sort(browser, ".campaigns", 0) == "ascending"
    assert column(browser, ".campaigns", 0) == ["c9", "c10", "c11", "c12"]
    assert sort(browser, ".campaigns", 6) == "ascending"  # the environment: that of the first is unknown
    assert [text[:5] for text in column(browser, ".campaigns", 6)] == ["none", "torch", "torch", ""]
    assert browser.evaluate("document.querySelectorAll('.campaigns [aria-sort]').length") == 1
    assert browser.evaluate("document.querySelectorAll('.campaigns .unsorted button').length") == 0


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_index_is_accessible_and_no_wider_than_the_screen(browser, page, width, scheme):
    browser.open(page, width, scheme=scheme)
    assert browser.complaints() == []
    for is_open in (False, True):
        browser.evaluate(f"document.querySelectorAll('details').forEach(d => d.open = {str(is_open).lower()})")
        assert browser.axe_violations() == []
        assert browser.evaluate(LOW_CONTRAST) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(OVERFLOWING) == []
        box = "document.querySelector('.campaigns').parentElement"
        assert browser.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")


def test_a_line_of_a_campaign_ends_with_the_campaign(browser, page):
    browser.open(page, 1440)
    dots = "[...document.querySelectorAll('.campaigns tbody tr')].map(row => [...row.querySelectorAll('.dots i')].map(e => e.style.getPropertyValue('--x')))"
    places = browser.evaluate(dots)
    assert [len(of) for of in places] == [4, 3, 2, 0]
    assert places[1] == places[0][:3]


def test_an_index_of_ten_campaigns_fits_a_screen_with_a_line_for_each(browser, planted):
    browser.open(planted("nights")[0], 1440)
    assert browser.evaluate("document.documentElement.scrollHeight") <= 900
    heights = browser.evaluate("[...document.querySelectorAll('.campaigns tbody tr')].map(row => row.offsetHeight)")
    assert len(heights) == 10
    assert max(heights) < 32
