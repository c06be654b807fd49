"""The wording of the report and of the plan: the text of eight pages, as a reader sees it, with their numbers.

Only these files contain whole sentences of the report; other tests check values. After rewording, read the diff of
REGATTA_WRITE_GOLDEN=1 pytest tests/unit/test_golden_pages.py
"""

import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic import make_report
from synthetic_own import write_own
from synthetic_plan import partly_finished
from test_frozen_tables import CAMPAIGNS

from regatta.plan.plan_page import render

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "pages"
NOT_TEXT = {"svg", "style", "script", "fieldset"}
SCRIPTED = re.compile(r"<(details|button) [^>]*by-script.*?</\1>", re.DOTALL)  # is not shown without script
INLINE = {"a", "abbr", "b", "code", "em", "i", "label", "mark", "small", "span", "strong", "sub", "sup", "time"}


class Text(HTMLParser):
    """The text of a page: one line for each block, cells of a table separated by a bar."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.skipped = [""], 0

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.skipped += tag in NOT_TEXT
        if tag in ("td", "th"):
            self.lines[-1] += " | "
        elif tag not in INLINE and tag not in ("br", "td", "th"):
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        self.skipped -= tag in NOT_TEXT
        if tag not in INLINE and tag not in ("td", "th"):
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.lines[-1] += data


def text_of(page: str, scratch: Path) -> str:
    parser = Text()
    parser.feed(SCRIPTED.sub("", page))
    lines = [" ".join(line.split()).strip("| ") for line in parser.lines]
    text = "\n".join(line for line in lines if line).replace(f"{scratch}/", "")
    return re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?", "<time>", text) + "\n"


def check(name: str, text: str) -> None:
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("REGATTA_WRITE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["laptop", "failures", "trainings", "sweep", "sweep-pairs", "own"])
def test_the_text_of_the_page_is_the_golden_one(name, tmp_path):
    (CAMPAIGNS | {"own": write_own})[name](tmp_path / name)
    text = text_of(make_report(tmp_path / name).read_text(encoding="utf-8"), tmp_path)
    head, _, provenance = text.rpartition("\nProvenance\n")
    assert provenance
    check(name, f"{head}\n")


@pytest.mark.parametrize(("name", "is_retry"), [("plan", False), ("plan-retry", True)])
def test_the_text_of_the_plan_is_the_golden_one(name, is_retry, tmp_path):
    text = text_of(render(partly_finished(tmp_path, is_retry=is_retry)), tmp_path)
    text = text.replace(sys.executable, "<python>").replace(str(ROOT), "<regatta>")
    check(name, re.sub(r"-[0-9a-f]{12}\b", "-<id>", text))
