"""Six campaigns made with known facts (planted_facts.yaml): answer.json and the page state them where a reader looks.

On a screen of 1440 x 900 pixels, the summary is on the first screen. A phone has the same facts.
"""

import random
import re
from pathlib import Path

import pytest
import yaml
from explore_page import show

pytestmark = pytest.mark.browser

FACTS = yaml.safe_load(Path(__file__).with_name("planted_facts.yaml").read_text("utf-8"))
LINE = """(() => {
  const line = [...document.querySelectorAll('#summary li')].find(li => li.querySelector('.label').textContent === %s);
  return line && {text: line.lastElementChild.innerText + ' ' + line.querySelector('.mark').innerText, bottom: line.getBoundingClientRect().bottom};
})()"""
ELEMENT = "(() => { const found = document.querySelector(%s); return found && {text: found.innerText, bottom: 0}; })()"


def said(data) -> tuple[Path, dict]:
    from planted import Said

    return data.launches.with_name("report.html"), Said(data).lines


def make_laptop(folder: Path):
    from planted import plant
    from synthetic import analyse, laptop_campaign
    from test_planted_truths import laptop_seconds

    return said(analyse(plant(folder, laptop_campaign(), laptop_seconds, noise=0.012)))


def make_stacks(folder: Path):
    from planted import plant
    from synthetic import analyse, cluster_campaign
    from test_planted_truths import broken_node, stacks_seconds

    return said(analyse(plant(folder, cluster_campaign(), stacks_seconds, broken_node, slow={"n05": 1.2})))


def make_five_thousand(folder: Path):
    from five_thousand_cells import MACHINE, campaign
    from planted import plant_tables

    made = campaign()
    for cell in made["cells"]:
        stack = cell["spec"]["stack"]
        stack["binds"] = ["/opt/lib:/host"] * (stack["name"] == "bound")
    return said(plant_tables(folder, made, lambda spec, rng: MACHINE.seconds(spec) * rng.lognormvariate(0, 0.004)))


def make_comparison(folder: Path):
    from comparison_results import write_folder
    from synthetic import CLUSTER, cluster_campaign

    from regatta.compare.campaigns import compare_campaigns, read_campaign
    from regatta.compare.comparison_output import comparison_page

    rng, sides = random.Random(1), []
    cells = [cell for cell in cluster_campaign()["cells"] if cell["spec"]["stack"]["name"] == "contained"]
    for name, slower in (("base", 1.0), ("test", 1.1)):
        times = []
        for cell in cells:
            spec = cell["spec"]
            is_slower = (spec["benchmark"], spec["nodes"]) == ("train_step", 8)
            time = CLUSTER.seconds(spec) * (slower if is_slower else 1)
            times.append((cell, [time * rng.lognormvariate(0, 0.004) for _ in range(6)]))
        sides.append(read_campaign(write_folder(folder / name, times, "01" if name == "base" else "09")))
        (folder / name / "report.html").touch()
    page = folder / "compare.html"
    page.write_text(comparison_page([compare_campaigns(*sides, 0.05)], page), "utf-8")
    return page, None


def make_sweep(folder: Path):
    from synthetic import analyse
    from synthetic_sweep import sweep_campaign, write_sweep

    faults = {("n9", repeat): ("failed", "measure", "rank 0 on n9: RuntimeError: CUDA error") for repeat in range(6)}
    campaign = sweep_campaign([f"n{i}" for i in range(1, 33)])
    return said(analyse(write_sweep(folder, campaign, {("n17", ""): 1.2}, faults)))


def make_imported(folder: Path):
    from test_planted_truths import imported

    return said(imported(folder, "nccl-13-columns.txt").data)


MAKERS = {
    "laptop": make_laptop,
    "stacks": make_stacks,
    "five thousand": make_five_thousand,
    "comparison": make_comparison,
    "sweep": make_sweep,
    "imported": make_imported,
}


def is_true(value: object, fact: dict, truth: object) -> bool:
    """Return whether a value of the page or of answer.json is the fact, or close enough to it."""
    if isinstance(truth, str) or value is None:
        return value == truth
    return float(str(value).replace(",", "")) == pytest.approx(truth, rel=fact.get("within", 0), abs=1e-12)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", FACTS)
def test_planted_facts_stand_where_a_reader_looks(browser, planted, name, width):
    page, lines = planted(name)
    show(browser, page, width=width)
    assert browser.evaluate("document.querySelectorAll('section.is-off').length") == 0
    wrong = []
    for fact in FACTS[name]:
        if width < 1440 and fact.get("selector", "").startswith("nav"):  # closed on a phone
            continue
        is_line = "line" in fact
        found = browser.evaluate(LINE % repr(fact["line"]) if is_line else ELEMENT % repr(fact["selector"]))
        text = " ".join(found["text"].split()) if found else None
        truths = fact["truth"] if isinstance(fact["truth"], list) else [fact["truth"]]
        match = re.search(fact["shows"], text or "")
        values = match.groups() if match else ()
        if len(truths) == 1:
            truths *= len(values) or 1
        if len(values) != len(truths) or not all(
            is_true(value, fact, t) for value, t in zip(values, truths, strict=True)
        ):
            wrong.append((fact, text))
        elif is_line and width == 1440 and found["bottom"] > 900:
            wrong.append((fact, f"below the first screen: {found['bottom']}"))
        if "answer" in fact:
            id_, *keys = fact["answer"]
            value = lines[id_]
            for key in keys:
                value = value[key]
            value = value * fact["factor"] if "factor" in fact else value
            if not is_true(value, fact, truths[0]):
                wrong.append((fact, value))
    assert wrong == []


@pytest.mark.parametrize("name", MAKERS)
def test_planted_pages_are_accessible(browser, planted, name):
    show(browser, planted(name)[0], width=1440)
    assert browser.axe_violations() == []
    labels = browser.evaluate("[...document.querySelectorAll('[role=region]')].map(e => e.ariaLabel)")
    assert sorted(labels) == sorted(set(labels))


FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1440, 700), (390, 844)])
def test_the_panel_of_filters_opens_on_the_screen(browser, planted, width, height):
    show(browser, planted("stacks")[0], width=width)
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
    )
    box = "(b => [b.top, b.bottom])(document.querySelector('%s').getBoundingClientRect())"
    for place in ("start", "end"):  # of the bar, on the screen
        browser.evaluate(f"document.querySelector('#filters').scrollIntoView({{block: '{place}'}})")
        browser.call("Runtime.evaluate", expression=FRAMES, awaitPromise=True)  # an anchor is where it was drawn
        browser.evaluate("document.querySelector('#filter-main').showPopover()")
        browser.call("Runtime.evaluate", expression=FRAMES, awaitPromise=True)
        top, bottom = browser.evaluate(box % "#filter-main")
        button = browser.evaluate(box % "#filter-box")
        assert 0 <= top < bottom <= height
        assert min(abs(top - button[1]), abs(bottom - button[0])) < 20
        browser.evaluate("document.querySelector('#filter-main').hidePopover()")


# Of texts side by side in a row of a heatmap, the least distance in pixels; and whether the heatmap scrolls.
GAPS = """[...document.querySelectorAll('.matrix.dense')].filter(table => table.checkVisibility()).map(table => {
  const range = new Range(), gaps = [], scroll = table.closest('.scroll');
  const edges = (cell) => {
    range.selectNodeContents(cell);
    const boxes = [...range.getClientRects()].filter(box => box.width);
    return [Math.min(...boxes.map(box => box.left)), Math.max(...boxes.map(box => box.right))];
  };
  for (const row of table.tBodies[0].rows) {
    const found = [...row.cells].filter(cell => cell.textContent.trim()).map(edges);
    for (const [at, [left]] of found.slice(1).entries()) gaps.push(left - found[at][1]);
  }
  return [Math.min(...gaps), scroll.scrollWidth - scroll.clientWidth];
})"""


def test_texts_of_a_heatmap_are_apart_on_a_phone(browser, planted):
    show(browser, planted("five thousand")[0], width=390)
    found = browser.evaluate(GAPS)
    assert len(found) == 3
    assert min(gap for gap, _ in found) >= 3.3  # a space of 12 px
    assert max(beyond for _, beyond in found) <= 0


def test_a_caption_is_on_the_screen_while_its_table_scrolls(browser, planted):
    show(browser, planted("comparison")[0], width=390)
    scrolled = """(() => {
      const caption = document.querySelector('.verdicts caption'), range = new Range();
      caption.closest('.scroll').scrollLeft = 150;
      range.selectNodeContents(caption);
      const { left, right } = range.getBoundingClientRect();
      return [caption.closest('.scroll').scrollLeft, left, right];
    })()"""
    scroll, left, right = browser.evaluate(scrolled)
    assert scroll == 150
    assert left >= 12
    assert right <= 390 - 12 - 20  # where the table fades
