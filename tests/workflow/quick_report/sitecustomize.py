"""Replace analyse.py and report.py: empty tables, and a page that is the text of what the report is made of.

Both take seconds, and tests of the workflow look at which files are made, when and from what. PYTHONPATH names this folder.
"""

import os
import sys
from pathlib import Path


def option(name: str) -> Path:
    words = [part for word in sys.orig_argv for part in word.split("=", 1)]
    return Path(words[words.index(name) + 1])


def write_tables() -> None:
    option("--out-dir").mkdir(parents=True, exist_ok=True)
    for name in os.environ["QUICK_REPORT_TABLES"].split(","):  # importing regatta.topics costs most of a second
        (option("--out-dir") / f"{name}.csv").write_text("")


def write_page() -> None:
    measurements = option("--measurements")
    sources = [option("--campaign"), measurements, measurements.with_name("problems.json")]
    option("--out").write_text("".join(path.read_text() for path in sources))


script = Path(sys.orig_argv[1]) if len(sys.orig_argv) > 1 else Path()
if script.name == "analyse.py":
    write_tables()
    os._exit(0)
if script.name == "report.py":
    write_page()
    os._exit(0)
