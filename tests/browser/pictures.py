"""Take the pictures of the documentation: python tests/browser/pictures.py

report.png is the first screen of the planted campaign of two stacks; drawer.png the page filtered to one model, with one
cell open.
"""

import base64
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests" / "unit")]

from chromium import Chromium  # noqa: E402
from explore_page import wait  # noqa: E402
from test_planted_facts import make_stacks  # noqa: E402

FOLDER = ROOT / "docs" / "images"
WIDTH, HEIGHTS = 1440, {"report": 1000, "drawer": 900}
IS_READY = "document.documentElement.classList.contains('has-script')"
OPEN = "document.querySelector('#cells-table tbody tr .open-cell').click()"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page, _ = make_stacks(Path(folder) / "stacks")
        take_pictures(page)


def take_pictures(report: Path) -> None:
    for name, fragment in (("report", ""), ("drawer", "#scaling&model=resnet50")):
        with Chromium(shutil.which("chromium") or "google-chrome") as browser:
            browser.open(report, WIDTH, HEIGHTS[name], fragment=fragment)
            wait(lambda browser=browser: browser.evaluate(IS_READY))
            if name == "drawer":
                browser.evaluate(OPEN)
            taken = browser.call("Page.captureScreenshot", format="png")
            (FOLDER / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main()
