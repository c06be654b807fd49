"""The report in a browser. Screenshots are kept in the folder REGATTA_SCREENSHOTS, if set."""

import base64
import io
import os
from pathlib import Path

import numpy as np
import pytest
from explore_page import wait
from PIL import Image

pytestmark = pytest.mark.browser

SCREENS = [(1280, "light"), (360, "light"), (1280, "dark"), (360, "dark")]
OVERFLOWING = """
[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  const isSeen = e.checkVisibility() && !e.closest('.scroll, pre, .skip');
  return isSeen && box.width && box.right > innerWidth + 1;
}).map(e => e.tagName + ' ' + e.className).slice(0, 5)
"""
BROKEN_IMAGES = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.alt)"
# WCAG contrast of every text against the nearest ground that is not transparent.
LOW_CONTRAST = """
(() => {
  // A mixed color is "color(srgb 0.5 0.7 0.9)".
  const parse = c => (c.match(/[\\d.]+/g) || []).map((v, i) => c.startsWith('color(') && i < 3 ? 255 * v : Number(v));
  const light = c => { const [r, g, b] = parse(c).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (parse(c).length < 4 || parse(c)[3] > 0) return c; } return 'rgb(255,255,255)'; };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) low.push(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2));
  }
  return [...new Set(low)].slice(0, 5);
})()
"""


@pytest.fixture(params=["laptop", "cluster"])
def report(request, reports) -> Path:
    return reports[request.param]


@pytest.fixture
def folder(tmp_path) -> Path:
    kept = os.environ.get("REGATTA_SCREENSHOTS")
    path = Path(kept) if kept else tmp_path
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_page_is_quiet_whole_and_no_wider_than_the_screen(browser, report, folder, width, scheme):
    browser.open(report, width, scheme=scheme)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [report.resolve().as_uri()]
    assert browser.evaluate(BROKEN_IMAGES) == []
    for is_open in (False, True):
        browser.evaluate(f"document.querySelectorAll('details').forEach(d => d.open = {str(is_open).lower()})")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(OVERFLOWING) == []
        assert browser.evaluate(LOW_CONTRAST) == []
        name = f"{report.parent.name}-{width}-{scheme}{'-open' if is_open else ''}.png"
        browser.screenshot(folder / name)
        assert (folder / name).stat().st_size > 10_000


def test_no_row_of_the_bucket_sizes_is_nearly_empty_on_a_phone(browser, report):
    browser.open(report, 390)
    browser.evaluate("document.querySelectorAll('#bucket details').forEach(d => d.open = true)")
    heights = browser.evaluate(
        "[...document.querySelectorAll('#bucket tr')].map(r => r.getBoundingClientRect().height)"
    )
    assert len(heights) > 4
    assert 0 < min(heights) <= max(heights) <= 140  # headings of six short lines


HINTED = """
[...document.querySelectorAll('.scroll')].filter(e => e.clientWidth).map(e => [
  e.scrollWidth > e.clientWidth + 1, getComputedStyle(e, '::before').content.includes('sideways')])
"""


def test_a_table_that_is_cut_on_a_phone_says_that_it_scrolls(browser, report):
    browser.open(report, 390)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    wait(lambda: [True, False] not in browser.evaluate(HINTED), timeout_s=5)
    found = browser.evaluate(HINTED)
    assert [True, True] in found
    assert [True, False] not in found
    assert [False, True] not in found


# Texts of the header and the filters that a button for the contents overlaps.
COVERED = """
(() => {
  const menus = [...document.querySelectorAll('.menu')].map(e => e.getBoundingClientRect()).filter(box => box.width);
  const texts = [...document.querySelectorAll('header *, #filters *')].filter(
    e => !e.closest('.menu') && e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
  const isOver = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return [menus.length, texts.filter(e => {
    const range = document.createRange();
    range.selectNodeContents(e);
    return [...range.getClientRects()].some(box => menus.some(menu => isOver(box, menu)));
  }).map(e => e.textContent)];
})()
"""


def test_the_contents_button_covers_nothing_on_a_phone(browser, report):
    browser.open(report, 390)
    for top in (0, 100, 300):
        browser.evaluate(f"scrollTo(0, {top})")
        num, covered = browser.evaluate(COVERED)
        assert (num > 0, covered) == (True, [])


# Texts that stand beside a link or a menu at the top right, and overlap it.
OVERLAPPED = """
[...document.querySelectorAll('.answers li, figure')].filter(of => {
  const corner = of.querySelector(':scope > .save > summary') || of.querySelector('a');
  if (!corner) return false;
  const box = corner.getBoundingClientRect();
  return [...of.querySelectorAll(':scope .label, :scope .mark, :scope > p')].some(text => {
    const range = document.createRange();
    range.selectNodeContents(text);
    return [...range.getClientRects()].some(part => part.right > box.left && part.left < box.right
      && part.bottom > box.top + 1 && part.top < box.bottom - 1);
  });
}).map(of => of.textContent.trim().slice(0, 60))
"""


@pytest.mark.parametrize("width", [1440, 390])
def test_no_text_overlaps_a_link_or_a_menu_in_a_corner(browser, report, width):
    browser.open(report, width)
    assert browser.evaluate("document.querySelectorAll('.answers a').length") > 0
    assert browser.evaluate(OVERLAPPED) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_segments_of_a_bar_are_separated_by_a_line_of_the_ground(browser, report, scheme):
    """Two neighbors may be equally bright; each stands out from the background (tests/unit/test_figures.py)."""
    browser.open(report, 1280, scheme=scheme)
    lines = browser.evaluate(
        "[...document.querySelectorAll('#losses svg path[data-cell]')].map(path => getComputedStyle(path))"
        ".map(style => [parseFloat(style.strokeWidth), style.stroke, getComputedStyle(document.body).backgroundColor])"
    )
    assert lines
    assert all(width >= 1 and line == ground for width, line, ground in lines)


def test_what_a_bar_of_the_timeline_tells_a_pointer_is_in_a_table(browser, reports):
    browser.open(reports["cluster"], 1280)
    wait(lambda: browser.evaluate("document.documentElement.classList.contains('has-script')"))
    bars = browser.evaluate(
        "new Set([...document.querySelectorAll('#timeline svg [data-mark]')].map(e => e.ariaLabel.split(',')[0])).size"
    )
    listed = (
        "[...document.querySelectorAll('#timeline table')].find(t => t.caption?.textContent.startsWith('Launches ('))"
    )
    batches = browser.evaluate(f"new Set([...{listed}.tBodies[0].rows].map(r => r.cells[2].textContent)).size")
    assert 0 < bars <= batches


def test_no_element_scrolls_vertically(browser, report):
    browser.open(report, 1440)
    browser.evaluate("document.querySelectorAll('main details').forEach(d => d.open = true)")
    boxes = "[...document.querySelectorAll('main *')].filter(e => getComputedStyle(e).overflowY === 'auto')"
    assert browser.evaluate(f"{boxes}.filter(e => e.scrollHeight > e.clientHeight + 1).map(e => e.className)") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser, report, scheme):
    browser.open(report, 1280, scheme=scheme)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.axe_violations() == []


def test_axe_would_find_an_image_without_words(browser, report):
    browser.open(report, 1280)
    image = '<svg role="img" width="9" height="9"><rect width="9" height="9"/></svg>'
    browser.evaluate(f"document.querySelector('figure').insertAdjacentHTML('beforeend', '{image}')")
    assert [line.split(":")[0] for line in browser.axe_violations()] == ["svg-img-alt"]


def test_the_text_of_a_figure_can_be_read_on_a_phone(browser, report):
    browser.open(report, 360)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    shown = "[...document.querySelectorAll('svg.chart text')].filter(t => t.getBoundingClientRect().width)"
    heights = f"{shown}.map(t => t.getBoundingClientRect().height)"
    assert browser.evaluate(f"Math.min(...{heights})") >= 9


def test_the_first_tab_stop_is_the_skip_link_and_can_be_seen(browser, report):
    browser.open(report, 1280)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.evaluate("document.activeElement.className") == "skip"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_page_prints(browser, report, folder):
    browser.open(report, 1280)
    browser.print_pdf(folder / f"{report.parent.name}.pdf")
    assert (folder / f"{report.parent.name}.pdf").read_bytes().startswith(b"%PDF")


def test_no_column_of_all_cells_is_cut_on_a_desktop(browser, report):
    browser.open(report, 1440)
    box = "document.querySelector('#cells > .scroll')"
    wait(lambda: browser.evaluate("document.documentElement.classList.contains('has-script')"))
    assert browser.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    assert browser.evaluate(f"{box}.querySelectorAll('thead th').length") > 4


@pytest.mark.parametrize("width", [1440, 390])
def test_texts_have_four_sizes(browser, report, width):
    browser.open(report, width)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    sizes = """[...document.querySelectorAll('body *')].filter(e => !e.closest('svg') && e.checkVisibility() &&
      [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(e => getComputedStyle(e).fontSize)"""
    assert set(browser.evaluate(sizes)) == {"12px", "14px", "17px", "24px"}


def test_nothing_is_white_in_the_dark(browser, report):
    """No tile of 16 pixels is white throughout, in the whole page with everything open."""
    browser.open(report, 1440, scheme="dark")
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    height = min(browser.evaluate("document.documentElement.scrollHeight"), 12_000)
    clip = {"x": 0, "y": 0, "width": 1440, "height": height, "scale": 0.5}
    picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    gray = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))).convert("L"))
    tiles = gray[: len(gray) // 8 * 8].reshape(len(gray) // 8, 8, -1, 8).min(axis=(1, 3))
    assert tiles.size > 1000
    assert int((tiles > 225).sum()) == 0


def test_the_head_of_a_page_with_long_names_is_one_line_each(browser, tmp_path):
    from synthetic import CLUSTER, make_campaign, make_report, train_cell, write_results

    name = "a-campaign-with-a-name-that-is-much-longer-than-any-line-of-a-page-" * 2
    stacks = [f"stack-{letter * 40}" for letter in "abcd"]
    cells = [
        train_cell(f"resnet{num}", 1, gpus, stack=stack) for num in (50, 101) for gpus in (1, 2) for stack in stacks
    ]
    campaign = make_campaign(cells, name=name, description="What it is for. " * 30)
    browser.open(make_report(write_results(tmp_path / "r", campaign, CLUSTER)), 1440)
    lines = """[...document.querySelectorAll('header > :is(h1, .machine, .lead), .chips')].map(e =>
      [e.getBoundingClientRect().top, e.offsetHeight, parseFloat(getComputedStyle(e).fontSize)])"""
    found = browser.evaluate(lines)
    assert len(found) == 4
    assert all(height < 2 * size for _, height, size in found)
    (title, *_), (machine, *_) = found[:2]
    assert abs(machine - title) < 20  # beside each other
    assert browser.evaluate("document.querySelector('h1').title") == name
    titles = browser.evaluate("[...document.querySelectorAll('.chips li')].map(e => [e.title, e.textContent])")
    assert all(title == text for title, text in titles)
    assert browser.evaluate("document.querySelector('.machine').getBoundingClientRect().right") <= 1440
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1440
