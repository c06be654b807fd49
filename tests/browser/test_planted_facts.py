"""Seven campaigns made with known facts (planted_facts.yaml): answer.json and the page state them where a reader looks.

On a screen of 1440 x 900 pixels, the summary is on the first screen. A phone has the same facts.
"""

import random
import re
from pathlib import Path

import pytest
import yaml
from explore_page import show, without_script

pytestmark = pytest.mark.browser

FACTS = yaml.safe_load(Path(__file__).with_name("planted_facts.yaml").read_text("utf-8"))
LINE = """(() => {
  const line = [...document.querySelectorAll('#summary li')].find(li => li.querySelector('.label').textContent === %s);
  return line && {text: line.lastElementChild.innerText + ' ' + line.querySelector('.mark').innerText, bottom: line.getBoundingClientRect().bottom};
})()"""
ELEMENT = "(() => { const found = document.querySelector(%s); return found && {text: found.innerText ?? found.textContent, bottom: found.getBoundingClientRect().bottom}; })()"


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


def make_pairs(folder: Path):
    from synthetic import analyse
    from synthetic_sweep import sweep_campaign, write_sweep

    names = [f"n{i:02d}" for i in range(1, 17)]
    slow = {("n07", ""): 1.25, ("n03, n12", ""): 1 / 0.41}
    return said(analyse(write_sweep(folder, sweep_campaign(names, "pairs", messages=(2**28,)), slow)))


def make_script(folder: Path):
    from synthetic import analyse
    from synthetic_own import write_own

    return said(analyse(write_own(folder)))


def make_collectives(folder: Path):
    """Write collectives alone, whose all-reduces of 64 KiB take twice as long as their model."""
    from planted import plant
    from synthetic import CLUSTER, analyse, cluster_campaign

    def seconds(spec: dict, *_) -> float:
        is_dropped = spec["parameters"].get("message_bytes") == 65536 and spec["nodes"] == 8
        return CLUSTER.seconds(spec | {"stack": {"name": "same"}}) * (2 if is_dropped else 1)

    campaign = cluster_campaign()
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "collective"]
    cells = [cell for cell in cells if cell["spec"]["stack"]["name"] == "contained"]
    return said(analyse(plant(folder, campaign | {"cells": cells, "name": "collectives"}, seconds)))


def make_bad_night(folder: Path):
    from synthetic import analyse
    from synthetic_failures import write_failing

    return said(analyse(write_failing(folder)))


def later(folder: Path, names: dict[str, float], cells: list[dict], is_slower) -> list[Path]:
    """Write a results folder for each name, a day after the one before, in which some cells take `factor` as long."""
    from comparison_results import write_folder
    from synthetic import CLUSTER

    rng, found = random.Random(1), []
    for day, (name, factor) in enumerate(names.items(), start=10):
        times = []
        for cell in cells:
            time = CLUSTER.seconds(cell["spec"] | {"stack": {"name": "same"}})
            time *= factor if is_slower(cell["spec"]) else 1
            times.append((cell, [time * rng.lognormvariate(0, 0.004) for _ in range(6)]))
        found.append(write_folder(folder / name, times, str(day), {"torch": f"2.{day - 8}.0"}))
        (folder / name / "report.html").touch()
    return found


def of_contained() -> list[dict]:
    from synthetic import cluster_campaign

    return [cell for cell in cluster_campaign()["cells"] if cell["spec"]["stack"]["name"] == "contained"]


def make_versions(folder: Path):
    from regatta.compare.campaigns import compare_campaigns, read_campaign
    from regatta.compare.comparison_output import comparison_page

    names = {"v1": 1.0, "v2": 1.0, "v3": 1.12, "v4": 1.0, "v5": 1.0}
    folders = later(folder, names, of_contained(), lambda spec: (spec["benchmark"], spec["nodes"]) == ("train_step", 8))
    base, *others = map(read_campaign, folders)
    page = folder / "compare.html"
    page.write_text(comparison_page([compare_campaigns(base, of, 0.05) for of in others], page), "utf-8")
    return page, None


def make_nights(folder: Path):
    from test_index_page import write_answer

    from regatta.compare.index import write_index

    names = {f"night-{n:02d}": 1.3 if n == 10 else 1.0 for n in range(1, 11)}
    cells = [cell for cell in of_contained() if cell["spec"]["parameters"].get("model") != "resnet101"]
    for day, path in enumerate(later(folder, names, cells, lambda _: True), start=10):
        write_answer(path, str(day))
    return write_index(folder), None


MAKERS = {
    "laptop": make_laptop,
    "stacks": make_stacks,
    "five thousand": make_five_thousand,
    "comparison": make_comparison,
    "sweep": make_sweep,
    "imported": make_imported,
    "bad night": make_bad_night,
    "pairs": make_pairs,
    "script": make_script,
    "collectives": make_collectives,
    "versions": make_versions,
    "nights": make_nights,
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
        elif fact.get("is_first", is_line) and width == 1440 and found["bottom"] > 900:
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
    page = planted(name)[0]
    for width, scheme in ((1440, "dark"), (390, "light")):
        with without_script(browser):
            browser.open(page, width, scheme=scheme)
        assert browser.axe_violations() == []
    show(browser, page, width=390, scheme="dark")
    assert browser.axe_violations() == []
    show(browser, page, width=1440)
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
    assert len(found) == 4
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
