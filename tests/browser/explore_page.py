"""How tests use the report's filters, drawer and table."""

import re
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest


def wait(is_done: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait until something is so. What is not so after the timeout is left to the assertion that follows."""
    deadline = time.monotonic() + timeout_s
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.02)


@contextmanager
def without_drawing():
    from matplotlib.figure import Figure

    with pytest.MonkeyPatch.context() as patch:
        empty = b'<svg viewBox="0 0 1 1"></svg>'
        patch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(empty))
        yield


def show(browser, page: Path, fragment: str = "", width: int = 1280, scheme: str = "light") -> None:
    """Load the page anew at a fragment and wait until its script has set it up. Not every page has cells."""
    browser.call("Page.navigate", url="about:blank")
    browser.open(page, width, scheme=scheme, fragment=fragment)
    is_ready = "document.documentElement.matches('.has-script') || !document.getElementById('data-block')"
    wait(lambda: browser.evaluate(is_ready))
    assert browser.evaluate(is_ready), browser.complaints()


@contextmanager
def without_script(browser):
    """Load pages as a browser without scripts does. axe is a script: it runs afterwards."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        yield
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def press(browser, key: str, modifiers: int = 0) -> None:
    """Press a key. modifiers: 8 for shift."""
    text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
    for kind in ("keyDown", "keyUp"):
        more = {"text": text} if text and kind == "keyDown" else {}
        browser.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key=key,
            code=key,
            windowsVirtualKeyCode=KEYS[key],
            modifiers=modifiers,
            **more,
        )


KEYS = {"Enter": 13, " ": 32, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "/": 191, "?": 191}


def choose(browser, facet: str, *names: str) -> None:
    """Choose the values of a facet whose texts contain these, and no others, as clicks on their boxes would."""
    browser.evaluate(f"""(() => {{
      const boxes = [...document.querySelectorAll('#filters [name="{facet}"]')];
      const wanted = {list(names)!r}.map(name => boxes.find(box => box.parentElement.textContent.includes(name)));
      for (const box of boxes) if (box.checked !== wanted.includes(box)) box.click();
    }})()""")


def text(browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({selector!r}).textContent")


def count(browser) -> tuple[int, int]:
    """Return the number of cells that the filters leave, and of all."""
    left, all_cells = re.search(r"([\d,]+) of ([\d,]+) (?:cells|pairs)", text(browser, "#filter-count")).groups()
    return int(left.replace(",", "")), int(all_cells.replace(",", ""))
