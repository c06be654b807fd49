"""Take the pictures of the documentation: python tests/browser/pictures.py

report.png is the first screen of a synthetic campaign of two stacks; drawer.png the page filtered to one model, with one
cell open.
"""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from chromium import Chromium
from explore_page import wait

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "images"
WIDTH, HEIGHTS = 1440, {"report": 1000, "drawer": 900}
IS_READY = "document.documentElement.classList.contains('has-script')"
OPEN = "document.querySelector('#cells-table tbody tr .open-cell').click()"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = {"PYTHONPATH": f"{ROOT}/workflow/scripts:{ROOT}/tests/unit"}
        written = [ROOT / "tests" / "unit" / "synthetic.py", folder]
        subprocess.run([sys.executable, *written], env=os.environ | path, check=True, stdout=subprocess.DEVNULL)
        rebuilt = [ROOT / "workflow" / "scripts" / "rebuild_report.py", f"{folder}/cluster"]
        subprocess.run([sys.executable, *rebuilt], check=True, stdout=subprocess.DEVNULL)
        take_pictures(Path(folder) / "cluster" / "report.html")


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
