"""The plan's page in a browser. Screenshots are kept in the folder REGATTA_SCREENSHOTS, if set."""

import os
from pathlib import Path

import pytest
from test_report_in_browser import LOW_CONTRAST, OVERFLOWING, SCREENS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", params=["partly_finished", "crowded"])
def page(request, tmp_path_factory) -> Path:
    """Return plan.html of a campaign that has run in part, or of one with long names and many shapes."""
    from campaign_files import plan
    from synthetic_plan import campaign, partly_finished

    from regatta.plan.plan_page import write_plan

    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "partly_finished":
        made = partly_finished(folder)
    else:
        data = campaign(["resnet18", "alexnet"], ["4KiB", "1MiB"])
        data["shapes"] = [{"nodes": [1], "gpus_per_node": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]}]
        data["stacks"] = {"s" * 64: {"kind": "host"}, "t" * 64: {"kind": "host", "env": {"A": "x" * 300}}}
        data |= {"description": "d" * 300, "exclude": [{"when": {"bucket_cap_mb": 1}, "reason": "r" * 300}]}
        made = plan(folder, data)
    write_plan(made)
    return made.results / "plan.html"


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_plan_is_quiet_whole_and_no_wider_than_the_screen(browser, page, tmp_path, width, scheme):
    folder = Path(os.environ.get("REGATTA_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    browser.open(page, width, scheme=scheme)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.resolve().as_uri()]
    for is_open in (False, True):
        browser.evaluate(f"document.querySelectorAll('details').forEach(d => d.open = {str(is_open).lower()})")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(OVERFLOWING) == []
        assert browser.evaluate(LOW_CONTRAST) == []
        name = f"plan-{page.parents[2].name}-{width}-{scheme}{'-open' if is_open else ''}.png"
        browser.screenshot(folder / name)
        assert (folder / name).stat().st_size > 10_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_the_plan(browser, page, scheme):
    browser.open(page, 1280, scheme=scheme)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.axe_violations() == []


def test_the_bars_of_the_plan_are_as_long_as_their_numbers(browser, page):
    browser.open(page, 1280)
    drawn = browser.evaluate(
        """[...document.querySelectorAll('#time .bar')].map(bar => {
          const { paddingLeft, paddingRight } = getComputedStyle(bar.parentElement);
          return bar.clientWidth / (bar.parentElement.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
        })"""
    )
    said = browser.evaluate("[...document.querySelectorAll('#time .bar')].map(b => parseFloat(b.style.width) / 100)")
    assert len(said) == (4 if "partly" in str(page) else 20)
    assert max(said) == 1
    assert all(abs(d - s) < 0.02 for d, s in zip(drawn, said, strict=True))


def test_the_plan_prints(browser, page, tmp_path):
    browser.open(page, 1280)
    browser.print_pdf(tmp_path / "plan.pdf")
    assert (tmp_path / "plan.pdf").read_bytes().startswith(b"%PDF")
