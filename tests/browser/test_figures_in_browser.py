"""Saved data, tooltips and shapes of the report's figures, as a reader with a pointer uses them."""

import base64
import csv
import io
import re

import pytest
from explore_page import show, text, wait

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the report of two stacks on two shapes with equal times, so that marks of the stacks coincide."""
    from synthetic import CLUSTER, make_campaign, make_report, train_cell, write_results

    cells = [train_cell("resnet50", 1, 1, "none", stack=stack) for stack in STACKS]
    for bucket in (1, 25):
        cells += [train_cell("resnet50", 1, gpus, bucket=bucket, stack=stack) for gpus in (1, 2, 4) for stack in STACKS]
    machine = type(CLUSTER)(CLUSTER.step_s, CLUSTER.gradient_bytes, 0.9, 1e-5, 1e9, noise=1e-6)
    return make_report(write_results(tmp_path_factory.mktemp("figures") / "r", make_campaign(cells), machine))


@pytest.fixture(scope="module")
def pages(reports, tmp_path_factory) -> dict:
    """Return the reports of all kinds, with one of two stacks on one shape, which has strips."""
    from synthetic import CLUSTER, make_campaign, make_report, train_cell, write_results

    cells = [train_cell("resnet50", 1, 1, "none", stack=stack) for stack in STACKS]
    for model in ("resnet50", "resnet101"):
        cells += [train_cell(model, 1, 1, bucket=bucket, stack=stack) for bucket in (1, 25) for stack in STACKS]
        cells += [train_cell(model, 1, 1, "fsdp", stack=STACKS[0])]
    for cell in cells:
        cell["spec"]["stack"]["binds"] = [cell["spec"]["stack"]["name"]]  # else the stacks are identical
    results = write_results(tmp_path_factory.mktemp("strips") / "r", make_campaign(cells), CLUSTER)
    return reports | {"one_size": make_report(results)}


@pytest.fixture(scope="module")
def block(page) -> dict:
    from regatta.report.explore import decoded

    return decoded(re.search(r'id="data-block">(.*?)<', page.read_text(encoding="utf-8"))[1])


STACKS = ("bound", "contained")
FIGURE = "#efficiency figure[data-shows=efficiency_percent]"


def show_open(browser, page) -> None:
    """Show a page with the folded figures of efficiency open."""
    show(browser, page)
    browser.evaluate("document.querySelector('#efficiency details').open = true")


def saved(browser, place: str = FIGURE) -> tuple[str, bytes]:
    """Return name and content of the file that a button saves."""
    return_file = f"""(async () => {{
      const original = URL.createObjectURL;
      const found = new Promise(done => {{ URL.createObjectURL = blob => {{ done(blob); return original(blob); }}; }});
      const named = new Promise(done => {{
        HTMLAnchorElement.prototype.click = function () {{ done(this.download); }};
      }});
      document.querySelector('{place} button.save').click();
      const bytes = new Uint8Array(await (await found).arrayBuffer());
      return [await named, btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(''))];
    }})()"""
    done = browser.call("Runtime.evaluate", expression=return_file, awaitPromise=True, returnByValue=True)
    name, content = done["result"]["value"]
    return name, base64.b64decode(content)


def test_the_button_of_a_figure_saves_the_marks_that_are_drawn(browser, page, block):
    show_open(browser, page)
    name, content = saved(browser)
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert name == "efficiency-1.csv"
    drawn = browser.evaluate(f"[...document.querySelectorAll('{FIGURE} svg [data-cell]')].map(e => e.dataset.cell)")
    assert {row["cell"] for row in rows} - {""} == {block["cells"]["id"][int(cell)] for cell in drawn}
    value = {row["cell"]: float(row["Efficiency (%)"]) for row in rows if row["cell"]}
    for cell, percent in zip(block["cells"]["id"], block["cells"]["efficiency_percent"], strict=True):
        if cell in value:
            assert value[cell] == pytest.approx(percent, rel=1e-4)


def test_a_matrix_is_saved_as_it_is_shown(browser, page):
    show(browser, page)
    name, content = saved(browser, "#matrix table")
    head, *rows = csv.reader(io.StringIO(content.decode()))
    texts = "[...document.querySelectorAll('#matrix tbody tr:has(td)')].map(r => [...r.cells].map(e => e.textContent))"
    assert (name, head) == ("matrix.csv", ["", "", "1×1", "1×2", "1×4"])
    assert [row[1:] for row in rows] == browser.evaluate(texts)
    assert {row[0] for row in rows} == {"ResNet-50"}
    show(browser, page, "#stack=bound")
    assert len(list(csv.reader(io.StringIO(saved(browser, "#matrix table")[1].decode())))) == 1 + len(rows) / 2


def test_bucket_sizes_are_saved_with_the_names_of_their_workloads(browser, page):
    show(browser, page)
    name, content = saved(browser, "#bucket table")
    assert name == "bucket.csv"
    names = {row[0] for row in csv.reader(io.StringIO(content.decode()))} - {""}
    places = [name.rpartition(" · ") for name in names]
    assert {workload for workload, _, _ in places} == {"ResNet-50 · ddp"}
    assert {stack for *_, stacks in places for stack in stacks.split(", ")} == {*STACKS}  # together where they agree


# Of each figure, the percentage of its card that plot and labels cover, and texts beyond the card. "Data" stays closed.
COVERED = """
[...document.querySelectorAll('figure:has(svg.chart)')].filter(e => e.checkVisibility() && e.id !== 'gantt').map(e => {
  const card = e.getBoundingClientRect(), svg = e.querySelector('svg.chart'), box = svg.getBBox();
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const cut = [...svg.querySelectorAll('text')].filter(text => {
    const clips = getComputedStyle(svg).overflow === 'hidden';
    const at = text.getBoundingClientRect(), around = clips ? svg.getBoundingClientRect() : card;
    return at.left < around.left - 1 || at.right > around.right + 1;
  });
  return [e.id, 100 * scale ** 2 * box.width * box.height / card.width / card.height, cut.map(text => text.textContent)];
})
"""


def test_no_tick_is_cut_on_a_phone(browser, reports):
    show(browser, reports["cluster"], width=390)
    browser.evaluate("document.querySelectorAll('main details:not(figure *)').forEach(d => d.open = true)")
    found = {figure: cut for figure, _, cut in browser.evaluate(COVERED) if figure.startswith(("bandwidth", "latency"))}
    assert len(found) > 2
    assert [text for cut in found.values() for text in cut if re.search(r"\ds$|B/s$| [mµ]?s$", text)] == []


@pytest.mark.parametrize("name", ["laptop", "cluster", "one_size"])
def test_plots_fill_their_cards_and_no_label_is_cut(browser, pages, name):
    show(browser, pages[name], width=1440)
    browser.evaluate("document.querySelectorAll('main details:not(figure *)').forEach(d => d.open = true)")
    found = browser.evaluate(COVERED)
    assert len(found) > 3
    assert {figure: round(percent) for figure, percent, _ in found if percent < 60} == {}
    assert {figure: cut for figure, _, cut in found if cut} == {}


# Of each figure, the percentage of its card that its axes cover, without labels: the extent of its grid and spines.
FRAMES = """
[...document.querySelectorAll('figure:has(svg.chart)')].filter(e => e.checkVisibility() && e.id !== 'gantt').map(e => {
  const card = e.getBoundingClientRect(), paths = [...e.querySelectorAll('svg.chart path')];
  const boxes = paths.filter(p => !p.closest('[data-cell], [data-line]')).map(p => p.getBoundingClientRect());
  const [width, height] = ['width', 'height'].map(side => Math.max(...boxes.map(box => box[side])));
  return [e.id, 100 * width * height / card.width / card.height];
})
"""
LEAST_FRAMES = {"laptop": 41, "cluster": 38, "one_size": 30}  # percent; the last has names beside rows
BARS = "losses"  # their numbers stand beside them, as in a table


@pytest.mark.parametrize("name", LEAST_FRAMES)
def test_axes_cover_much_of_their_cards(browser, pages, name):
    show(browser, pages[name], width=1440)
    browser.evaluate("document.querySelectorAll('main details:not(figure *)').forEach(d => d.open = true)")
    found = {figure: percent for figure, percent in browser.evaluate(FRAMES) if figure != BARS}
    assert len(found) > 3
    assert {figure: round(percent) for figure, percent in found.items() if percent < LEAST_FRAMES[name]} == {}


# Of a strip of the first screen and one of scaling: which share of the width the names of rows take, the gap to the
# first stroke, and the middles of names and of strokes.
ROWS = """
['#headline', '#scaling figure'].map(place => {
  const svg = document.querySelector(`${place} svg.chart`), around = svg.getBoundingClientRect();
  const box = element => element.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
  const names = texts.filter(text => /end/.test(getComputedStyle(text).textAnchor)).map(box);
  const strokes = [...svg.querySelectorAll('[data-cell]')].map(box).filter(b => b.height > 2 * b.width);
  const [first, end] = [Math.min(...strokes.map(b => b.left)), Math.max(...names.map(b => b.right))];
  return [(end - around.left) / around.width, first - end,
          names.map(b => (b.top + b.bottom) / 2), strokes.map(b => (b.top + b.bottom) / 2)];
})
"""


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_names_of_rows_are_beside_their_strokes_and_outside_the_plot(browser, pages, width, scheme):
    show(browser, pages["one_size"], width=width, scheme=scheme)
    for share, gap, names, strokes in browser.evaluate(ROWS):
        assert 3 <= len(strokes) <= len(names)
        assert share < 0.45
        assert gap > 0
        for middle in strokes:
            assert min(abs(middle - name) for name in names) < 8
    found = browser.evaluate(COVERED)
    assert {figure: cut for figure, _, cut in found if cut} == {}
    assert browser.complaints() == []


def point_at(browser, selector: str) -> None:
    browser.evaluate(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    x, y = browser.evaluate(
        f"(b => [b.x + b.width / 2, b.y + b.height / 2])(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    for place in (x + 1, x):
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place, y=y)
    wait(lambda: text(browser, "#tip"))


def test_the_tooltip_has_all_marks_that_coincide_with_number_and_launches(browser, page, block):
    show_open(browser, page)
    point_at(browser, f"{FIGURE} svg [data-cell]")
    cell = int(browser.evaluate(f"document.querySelector('{FIGURE} svg [data-cell]').dataset.cell"))
    name, percent = block["cells"]["name"][cell], block["texts"]["efficiency_percent"][cell]
    marks = [mark.split("\n") for mark in text(browser, "#tip").split("\n\n")]
    assert {mark[0].rpartition(" · ")[2] for mark in marks} == set(STACKS)
    [lines] = [mark for mark in marks if mark[0] == name]
    assert lines[1].split(": ")[1].split()[0] == percent
    assert lines[-1].endswith(block["texts"]["num_ok"][cell])
    assert browser.evaluate(f"document.querySelector('{FIGURE} svg [data-cell]').ariaLabel") == "\n".join(lines)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    wait(lambda: text(browser, "#tip") == "")
    assert text(browser, "#tip") == ""


PLACES = f"""(() => {{
  document.querySelector('{FIGURE}').scrollIntoView({{block: 'center'}});
  const boxes = [...document.querySelectorAll('main svg [data-cell]')].map(e => e.getBoundingClientRect());
  return boxes.map(b => [b.x + b.width / 2, b.y + b.height / 2])
    .filter(at => document.elementsFromPoint(...at).some(e => e.matches('svg [data-cell]')));
}})()"""


def test_no_tooltip_covers_an_open_cell(browser, page):
    show_open(browser, page)
    places = browser.evaluate(PLACES)
    left = browser.evaluate("document.body.parentElement.clientWidth - 608")  # of the drawer
    [x, y], below = max(at for at in places if at[0] < left), max(places)
    assert below[0] > left + 20

    def move(x: float, y: float, kind: str = "mouseMoved") -> None:
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    move(x, y)
    wait(lambda: text(browser, "#tip"))
    for kind in ("mousePressed", "mouseReleased"):
        move(x, y, kind)
    wait(lambda: browser.evaluate("document.querySelector('#drawer').matches(':popover-open')"))
    assert text(browser, "#tip") == ""
    move(x + 0.5, y)
    wait(lambda: text(browser, "#tip"))
    ends = "['#tip', '#drawer'].map(id => document.querySelector(id).getBoundingClientRect())"
    tip, drawer = browser.evaluate(f"(([a, b]) => [a.right, b.left])({ends})")
    assert 200 < tip <= drawer == left
    move(*below)
    wait(lambda: text(browser, "#tip") == "")
    assert text(browser, "#tip") == ""
    assert browser.complaints() == []
