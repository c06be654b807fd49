"""Size of the report for four campaigns: height, words, file, time to write, be ready, filter and hover, and A4 pages.

The results are synthetic: 10 cells, a laptop (tests/unit/synthetic.py), 164 cells with failures on two stacks
(synthetic_stacks.py), and 4,964 cells with 5 launches each (five_thousand_cells.py). Needs chromium.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from common import SCRIPTS, Figure, print_head, report, timed
from five_thousand_cells import MACHINE, PAUSE_S, campaign

from chromium import Chromium  # isort: skip
from synthetic import LAPTOP, analyse_files, collective_cell, make_campaign, train_cell, write_laptop, write_results  # isort: skip
from synthetic_stacks import write_stacks  # isort: skip

TEN_CELLS = [
    train_cell("resnet18", 1, 1, "none"),
    *(train_cell("resnet18", 1, gpus, "ddp", bucket) for gpus in (1, 2) for bucket in (1, 25)),
    *(collective_cell(4096 * 16**i, 1, 2) for i in range(5)),
]
WRITERS = {
    "10 cells": lambda folder: write_results(folder, make_campaign(TEN_CELLS), LAPTOP),
    "laptop": write_laptop,
    "two stacks": write_stacks,
    "4,964 cells": lambda folder: write_results(folder, campaign(), MACHINE, pause_s=PAUSE_S),
}
GOALS = {  # in the order of WRITERS
    "height at 1440 px": ("px", 2_700, 2_900, 4_400, 6_000),
    "file (MB)": ("MB", 0.3, 0.3, 0.6, 3),
    "ready (ms)": ("ms", 300, 300, 500, 1_000),
    "filter (ms)": ("ms", 100, 100, 100, 100),
    "hover (ms)": ("ms", 16, 16, 16, 16),
}
READY = """new Promise(done => {
  const poll = () => document.documentElement.matches('.has-script') ? done(performance.now()) : setTimeout(poll, 5);
  poll();
})"""
FILTER = """(() => {
  const box = document.getElementById('filter-search');
  box.focus();
  const start = performance.now();
  box.value = '25';
  box.dispatchEvent(new Event('input', {bubbles: true}));
  document.body.getBoundingClientRect();
  return performance.now() - start;
})()"""
# From the event to the end of its frame, where the pointer rests on a mark of the first figure below the summary.
HOVER = """new Promise(done => addEventListener('pointermove', () => {
  const start = performance.now();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
}, { capture: true, once: true }))"""
MARKS = """[...document.querySelectorAll('main svg [aria-label]')].slice(0, 200).map(at => at.getBoundingClientRect())
  .filter(box => box.width && box.top > 0 && box.bottom < innerHeight).map(box => [box.x, box.y])"""


def main() -> None:
    program = shutil.which("chromium")
    if program is None:
        sys.exit("report_size.py: chromium is not installed (Debian: apt-get install chromium)")
    found = {}
    with tempfile.TemporaryDirectory() as folder, Chromium(program) as browser:
        for name, write in WRITERS.items():
            results = write(Path(folder) / name.replace(" ", "-"))
            analyse_files(results)
            found[name] = write_report(results) | measure(browser, results / "report.html")
    print_head("", *found)
    for what in next(iter(found.values())):
        print(f"| {what} | " + " | ".join(f"{of[what]:,}" for of in found.values()) + " |")
    for what, (unit, *goals) in GOALS.items():
        for goal, (name, values) in zip(goals, found.items(), strict=True):
            if goal is not None:
                report(Figure(f"report, {name}: {what.partition(' (')[0]}", values[what], unit, goal))


def write_report(results: Path) -> dict[str, float]:
    """Write the report of a results folder, and return the seconds that report.py took, and those of its CPU time."""
    names = {"measurements": "measurements.csv", "tables": "tables", "launches": "launches", "out": "report.html"}
    options = [word for key, name in names.items() for word in (f"--{key}", results / name)]
    frozen = next(results.glob("campaign.*.json"))
    cost = timed([sys.executable, SCRIPTS / "report.py", "--campaign", frozen, *options])
    return {"time to write (s)": round(cost.seconds, 1), "CPU time of that (s)": round(cost.cpu_s, 1)}


def measure(browser: Chromium, page: Path) -> dict[str, float]:
    """Return the size of a page, and the milliseconds until its script has run and until a search is shown."""
    size = {"file (MB)": round(page.stat().st_size / 1e6, 2)}
    for width in (1440, 390):
        browser.open(page, width)
        ready = browser.call("Runtime.evaluate", expression=READY, awaitPromise=True)["result"]["value"]
        size[f"height at {width} px"] = browser.evaluate("document.documentElement.scrollHeight")
        if width == 1440:
            size["words"] = browser.evaluate("document.body.innerText.split(/\\s+/).length")
            size["ready (ms)"] = round(ready)
            browser.call("Emulation.setFocusEmulationEnabled", enabled=True)  # as of a window in the foreground
            size["hover (ms)"] = round(hover_ms(browser))
            size["filter (ms)"] = round(browser.evaluate(FILTER))
            browser.open(page, width)  # a filtered table is printed as it is
            browser.call("Runtime.evaluate", expression=READY, awaitPromise=True)
            size["A4 pages"] = browser.print_pdf(page.with_suffix(".pdf"))
    return size


def hover_ms(browser: Chromium) -> float:
    """Return the median milliseconds of a frame in which the pointer moves onto a mark; 0 if no figure has one."""
    browser.evaluate("document.querySelector('main svg [aria-label]')?.scrollIntoView({ block: 'center' })")
    times = []
    for x, y in browser.evaluate(MARKS)[:20]:
        browser.evaluate(f"window.hover = {HOVER}; 0")
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        times.append(browser.call("Runtime.evaluate", expression="window.hover", awaitPromise=True)["result"]["value"])
    return sorted(times)[len(times) // 2] if times else 0


if __name__ == "__main__":
    main()
