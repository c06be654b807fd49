"""Take the pictures of the documentation from a report: python tests/browser/pictures.py results/laptop/report.html

report.png is the first screen; drawer.png the page filtered to one model, with one cell open.
"""

import base64
import shutil
import sys
from pathlib import Path

from chromium import Chromium
from explore_page import wait

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDTH, HEIGHTS = 1440, {"report": 1000, "drawer": 900}
IS_READY = "document.documentElement.classList.contains('has-script')"
OPEN = "document.querySelector('#cells-table tbody tr .open-cell').click()"


def main() -> None:
    report = Path(sys.argv[1])
    for name, fragment in (("report", ""), ("drawer", "#scaling&model=resnet18")):
        with Chromium(shutil.which("chromium") or "google-chrome") as browser:
            browser.open(report, WIDTH, HEIGHTS[name], fragment=fragment)
            wait(lambda browser=browser: browser.evaluate(IS_READY))
            if name == "drawer":
                browser.evaluate(OPEN)
            taken = browser.call("Page.captureScreenshot", format="png")
            (FOLDER / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main()
