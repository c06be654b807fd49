"""The report on paper: a campaign of 164 cells with failures, printed on A4 with and without its script."""

import pytest

pytestmark = pytest.mark.browser

# Text that a reader of a sheet has no use for: labels of what is folded, buttons, filters, links to other parts.
CONTROLS = """
[...document.querySelectorAll('summary:not(.warning > *), button:not(.open-cell, thead *), .open-cell.more, #filters, #cells-tools, nav, .menu')]
  .filter(e => e.getClientRects().length).map(e => e.tagName + ': ' + e.textContent.trim())
"""
IS_PRINTED = "(id) => document.querySelector(id).getClientRects().length > 0"


@pytest.fixture(scope="module")
def sheet(tmp_path_factory):
    from synthetic import make_report
    from synthetic_stacks import write_stacks

    return make_report(write_stacks(tmp_path_factory.mktemp("sheet") / "stacks"))


@pytest.fixture(params=[True, False], ids=["script", "no script"])
def printed(request, browser, sheet):
    """Open the report and show it as a printer would."""
    browser.call("Emulation.setScriptExecutionDisabled", value=not request.param)
    browser.open(sheet, 718)  # A4 less its margins, in CSS pixels
    if request.param:
        ready = "new Promise(done => { const poll = () => document.documentElement.matches('.has-script')"
        ready += " ? done() : setTimeout(poll, 20); poll(); })"
        browser.call("Runtime.evaluate", expression=ready, awaitPromise=True)
        browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    browser.call("Emulation.setEmulatedMedia", media="print")
    yield browser
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    browser.call("Emulation.setEmulatedMedia", media="")


def test_two_hundred_cells_need_at_most_eight_sheets(printed, tmp_path):
    num_pages = printed.print_pdf(tmp_path / "sheet.pdf")
    assert 3 <= num_pages <= 8


def test_no_control_is_printed(printed):
    assert printed.evaluate(CONTROLS) == []


def test_the_methods_and_the_evidence_are_printed(printed):
    assert printed.evaluate(f"['#methods dd', '#summary', '#failures tbody'].map({IS_PRINTED})") == [True] * 3
    assert printed.evaluate("document.querySelector('#methods .methods').getBoundingClientRect().height") > 100
    assert printed.evaluate("document.querySelector('.warning p').getBoundingClientRect().height") > 5
    sections = ("matrix", "scaling", "bucket", "comparisons", "failures", "cells", "methods")
    assert printed.evaluate(f"{[f'#{name}-title' for name in sections]}.map({IS_PRINTED})") == [True] * len(sections)


def test_the_fifty_worst_cells_are_printed_with_those_that_failed_first(printed):
    rows = printed.evaluate(
        "[...document.querySelectorAll('#cells-table tbody tr')].filter(r => r.getClientRects().length)"
        ".map(r => r.cells[1].textContent)"
    )
    assert len(rows) == 50
    assert [text.startswith("✗") for text in rows[:5]] == [True] * 4 + [False]


def test_figures_are_two_in_a_row(printed):
    boxes = "[...document.querySelectorAll('#scaling figure')].map(f => f.getBoundingClientRect())"
    tops = printed.evaluate(f"{boxes}.filter(box => box.width).map(box => box.top)")  # others are folded
    assert len(tops) == 3
    assert tops[0] == tops[1] < tops[2]
    assert printed.evaluate("document.querySelector('#scaling svg.chart').getBoundingClientRect().width") > 200
