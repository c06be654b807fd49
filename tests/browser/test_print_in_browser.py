"""The report on paper: a campaign of 164 cells with failures, printed on A4 with and without its script.

Sizes of text and headings are measured on pages of planted campaigns.
"""

import re
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

# Text that a reader of a sheet has no use for: labels of what is folded, buttons, filters, links to other parts.
CONTROLS = """
[...document.querySelectorAll('summary:not(.warning > *), button:not(.open-cell, thead *), .open-cell.more, #filters, #cells-tools > :not(span), nav, .menu')]
  .filter(e => e.getClientRects().length).map(e => e.tagName + ': ' + e.textContent.trim())
"""
WIDTH, HEIGHT = 703, 1031  # A4 less its margins, in CSS pixels
IS_PRINTED = "(id) => document.querySelector(id).getClientRects().length > 0"


@pytest.fixture(scope="module")
def sheet(tmp_path_factory):
    from synthetic import make_report
    from synthetic_stacks import write_stacks

    return make_report(write_stacks(tmp_path_factory.mktemp("sheet") / "stacks"))


@pytest.fixture(params=[True, False], ids=["script", "no script"])
def printed(request, browser, sheet):
    """Open the report and show it as a printer would."""
    yield show_printed(browser, sheet, has_script=request.param)
    show_on_screen(browser)


def show_printed(browser, page: Path, has_script: bool = True):
    browser.call("Emulation.setScriptExecutionDisabled", value=not has_script)
    browser.open(page, WIDTH + 15)  # with a scroll bar
    if has_script:
        ready = "new Promise(done => { const poll = () => document.documentElement.matches('.has-script')"
        ready += " ? done() : setTimeout(poll, 20); poll(); })"
        browser.call("Runtime.evaluate", expression=ready, awaitPromise=True)
        browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    browser.call("Emulation.setEmulatedMedia", media="print")
    return browser


def show_on_screen(browser) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    browser.call("Emulation.setEmulatedMedia", media="")


def test_two_hundred_cells_need_at_most_eight_sheets_in_full_size(printed, tmp_path):
    num_pages = printed.print_pdf(tmp_path / "sheet.pdf")
    assert 3 <= num_pages <= 7  # 8 with 200 cells
    assert scales(tmp_path / "sheet.pdf") == [pytest.approx(1, abs=0.001)] * num_pages


def scales(pdf: Path) -> list[float]:
    """Return by how much the browser scaled each page: below 1 if something is wider than the sheet."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf.read_bytes(), re.DOTALL):
        with suppress(zlib.error):
            text = zlib.decompressobj().decompress(stream)  # data may end with the line break before "endstream"
            if match := re.match(rb"([\d.]+) 0 0 -\1 0 [\d.]+ cm\nq\n([\d.]+) 0 0 \2 ", text):
                found.append(float(match[1]) * float(match[2]) * 96 / 72)
    return found


def test_texts_of_figures_have_eight_points_and_stay_on_their_cards(printed):
    texts = """[...document.querySelectorAll('svg.chart text')].filter(e => e.getClientRects().length && e.textContent.trim())
      .map(e => {
        const svg = e.closest('svg'), scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        const card = e.closest('figure').getBoundingClientRect(), box = e.getBoundingClientRect();
        return [card.left - box.left, box.right - card.right, parseFloat(getComputedStyle(e).fontSize) * scale * 72 / 96];
      })"""
    found = printed.evaluate(texts)
    assert len(found) > 100
    assert 8 <= min(size for *_, size in found) <= max(size for *_, size in found) < 9
    assert max(max(beyond) for *beyond, _ in found) < 6


def test_a_table_of_fifteen_columns_fits_on_a_sheet(printed, tmp_path):
    columns = "Cell,n,Step time (ms),95 % CI of step time,P50 (ms),P75 (ms),P90 (ms),P95 (ms),Throughput (samples/s)"
    columns += ",95 % CI of throughput,Throughput (tokens/s),Efficiency (%),95 % CI of efficiency"
    columns += ",Peak allocated (GiB),Peak resident memory (GiB)"
    heads = "".join(f"<th>{name}</th>" for name in columns.split(","))
    row = "<tr><th>1\N{MULTIPLICATION SIGN}1 batch 2, mode compile</th>" + 14 * "<td>178,000</td>" + "</tr>"
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{row}</tbody></table>"
    printed.evaluate(f"document.querySelector('#scaling').insertAdjacentHTML('beforeend', {table!r})")
    num_pages = printed.print_pdf(tmp_path / "wide.pdf")
    assert scales(tmp_path / "wide.pdf") == [pytest.approx(1, abs=0.001)] * num_pages


ALONE = """(above, below) => {
  const matrix = document.querySelector('#matrix table.matrix');
  const spacer = (height) => Object.assign(document.createElement('div'), { style: `height: ${height}px` });
  document.body.replaceChildren(spacer(above), matrix, spacer(below));
  return [matrix.getBoundingClientRect().height, matrix.tBodies[0].getBoundingClientRect().height];
}"""


def test_a_matrix_that_fits_on_a_sheet_is_not_split_and_models_of_others_are_not(printed, tmp_path):
    height, of_model = printed.evaluate(f"({ALONE})(0, 0)")
    assert 2 * of_model < height < HEIGHT / 2
    above = HEIGHT - height / 2
    rest = HEIGHT - height + 10  # of the second sheet, if the matrix stood there in full: 10 px too much
    printed.evaluate(f"({ALONE.replace('#matrix ', '')})({above}, {rest})")
    assert printed.print_pdf(tmp_path / "fits.pdf") == 3
    # Repeated until it is larger than a sheet: sheets end between models.
    printed.evaluate("""(() => {
      const table = document.querySelector('table.matrix'), model = table.tBodies[0];
      while (table.tBodies.length > 1) table.tBodies[1].remove();
      while (table.getBoundingClientRect().height < 1400) table.append(model.cloneNode(true));
      document.body.replaceChildren(table);
    })()""")
    ends = "[...document.querySelectorAll('tbody')].every(e => getComputedStyle(e).breakInside === 'avoid')"
    assert printed.evaluate(ends)
    assert printed.print_pdf(tmp_path / "split.pdf") == 2


# The heading at the foot of a sheet, and below it as much as fits on the next only without the heading.
FOOT = f"""(() => {{
  const methods = document.querySelector('#methods'), [title, terms] = ['h2', 'dl'].map(e => methods.querySelector(e));
  while (terms.children.length > 6) terms.lastElementChild.remove();
  const spacer = (height) => Object.assign(document.createElement('div'), {{ style: `height: ${{height}}px` }});
  document.body.replaceChildren(spacer({HEIGHT} - title.getBoundingClientRect().height - 20), methods);
  const below = methods.getBoundingClientRect().bottom - terms.getBoundingClientRect().top;
  document.body.append(spacer({HEIGHT} - below - 10));
}})()"""


def test_a_heading_stays_with_what_follows(printed, tmp_path):
    printed.evaluate(FOOT)
    assert printed.print_pdf(tmp_path / "foot.pdf") == 3


# The footer alone on a sheet, and below it as much as fits on that only without the last line of the page.
LAST = f"""(() => {{
  const main = document.querySelector('main'), footer = document.querySelector('footer');
  const spacer = (height) => Object.assign(document.createElement('div'), {{ style: `height: ${{height}}px` }});
  const last = Object.assign(document.createElement('p'), {{ textContent: 'last line' }});
  const section = document.querySelector('#methods');
  section.replaceChildren(spacer({HEIGHT} - 30), last);
  main.replaceChildren(section);
  document.body.replaceChildren(main, footer);
  document.body.append(spacer({HEIGHT} - footer.getBoundingClientRect().height - 10));
}})()"""


def test_the_footer_is_not_alone_on_a_sheet(printed, tmp_path):
    printed.evaluate(LAST)
    assert printed.print_pdf(tmp_path / "last.pdf") == 3


def test_a_printed_list_says_how_many_cells_it_has(planted_print):
    shown = "[...document.querySelectorAll('#cells-count, #cells-note')].filter(e => e.getClientRects().length)"
    [text] = planted_print.evaluate(f"{shown}.map(e => e.textContent)")
    listed, known = re.search(r"(\d+) of ([\d,]+) (?:cells|pairs)", text).groups()
    rows = "document.querySelectorAll('#cells-table tbody tr').length"
    assert int(listed) == planted_print.evaluate(rows) <= int(known.replace(",", ""))


def test_no_control_is_printed(printed):
    assert printed.evaluate(CONTROLS) == []


def test_the_methods_and_the_evidence_are_printed(printed):
    assert printed.evaluate(f"['#methods dd', '#summary', '#failures tbody'].map({IS_PRINTED})") == [True] * 3
    assert printed.evaluate("document.querySelector('#methods .methods').getBoundingClientRect().height") > 100
    assert printed.evaluate("document.querySelector('.warning p').getBoundingClientRect().height") > 5
    sections = ("matrix", "scaling", "bucket", "comparisons", "failures", "cells", "methods")
    assert printed.evaluate(f"{[f'#{name}-title' for name in sections]}.map({IS_PRINTED})") == [True] * len(sections)


def test_the_fifty_worst_cells_are_printed_with_those_that_failed_first(printed):
    """With script, those of the chosen benchmark; without, of each, half of them."""
    rows = printed.evaluate(
        "[...document.querySelectorAll('#cells table tbody tr')].filter(r => r.getClientRects().length)"
        ".map(r => r.cells[1].textContent)"
    )
    assert len(rows) == 50
    assert [text[0] for text in rows[:4]] == ["✗"] * 3 + ["✓"]
    of_each = "[...document.querySelectorAll('#cells table')].map(e => e.getClientRects().length && e.rows.length - 1)"
    assert printed.evaluate(of_each) in ([50, 0], [25, 25])
    if printed.evaluate(of_each) == [25, 25]:
        assert [text[0] for text in rows[25:27]] == ["◐", "✓"]


def test_no_bar_is_printed_over_a_number(planted_print):
    over = """[...document.querySelectorAll('td:has(> .strip)')].filter(e => e.getClientRects().length).map(cell => {
      const range = new Range(), strip = cell.querySelector('.strip').getBoundingClientRect();
      range.selectNode(cell.lastChild);
      const text = range.getBoundingClientRect();
      return text.left - strip.right;
    })"""
    found = planted_print.evaluate(over)
    assert len(found) >= 10
    assert min(found) >= 1


def test_figures_are_two_in_a_row(printed):
    boxes = "[...document.querySelectorAll('#communication figure')].map(f => f.getBoundingClientRect())"
    tops = printed.evaluate(f"{boxes}.filter(box => box.width).map(box => box.top)")  # others are folded
    assert len(tops) == 2
    assert tops[0] == tops[1]
    assert printed.evaluate("document.querySelector('#communication svg.chart').getBoundingClientRect().width") > 200


@pytest.fixture(params=["stacks", "five thousand", "comparison", "laptop"])
def planted_print(request, browser, planted):
    yield show_printed(browser, planted(request.param)[0])
    show_on_screen(browser)


# Size in points, class or tag, and start of each text. Of what has no box, such as contents of a button, the text has.
SMALL = """(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = new Range(), found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent.trim(), { parentElement: parent } = node;
    range.selectNode(node);
    if (!text || !range.getBoundingClientRect().width) continue;
    const matrix = parent.closest('svg') && parent.getScreenCTM(), scale = matrix ? Math.hypot(matrix.a, matrix.b) : 1;
    const size = parseFloat(getComputedStyle(parent).fontSize) * scale * 72 / 96;
    found.push([size, `${parent.localName} ${parent.closest('[class]')?.className} ${text.slice(0, 40)}`]);
  }
  return found;
})()"""


def test_all_text_has_eight_points_on_at_most_eight_sheets(planted_print, tmp_path):
    found = planted_print.evaluate(SMALL)
    assert len(found) > 300
    small = {where: size for size, where in found if size < 7.995}
    assert small == {}
    assert planted_print.print_pdf(tmp_path / "planted.pdf") <= 8
