"""The line on the terminal, and the lines of a batch in its log."""

import io
from collections import Counter
from types import SimpleNamespace

import pytest

from regatta.report.page import marked_status
from regatta.run.batch import BatchRun
from regatta.run.causes import Cause
from regatta.run.progress import TerminalLine, counts_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_unchanged_line_is_written_once():
    stream = Terminal()
    line = TerminalLine(stream)
    for _ in range(3):
        line.draw("cell")
    assert stream.getvalue().count("\r") == 1


def test_nothing_is_written_where_there_is_no_terminal():
    stream = io.StringIO()
    line = TerminalLine(stream)
    line.draw("cell")
    line.draw("")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("columns", [20, 200])
def test_a_terminal_gets_one_line_that_fits_and_is_wiped_at_the_end(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream, full, begin = Terminal(), "a cell of a batch that takes long", "\r\x1b[K"
    line = TerminalLine(stream)
    line.draw(full)
    assert stream.getvalue() == begin + full[: columns - 1]
    line.draw("")
    assert stream.getvalue().endswith(begin)
    assert "\n" not in stream.getvalue()


def test_a_terminal_that_was_closed_does_not_end_the_batch():
    class Closed(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    line = TerminalLine(Closed())
    line.draw("cell")
    assert not line.is_terminal
    line.draw("")


def test_the_line_names_the_launch_and_the_cell(tmp_path):
    run = BatchRun(tmp_path, SimpleNamespace(launches=[None] * 6, nodes=1, gpus_per_node=2), {})
    assert run.current_text(1, SimpleNamespace(current="c")).split(": ") == ["1×2", "launch 2 of 6 in the batch", "c"]
    assert run.current_text(1, SimpleNamespace(current=None)).endswith("starting")


def test_a_record_of_a_launch_that_was_skipped_is_not_started():
    assert counts_text(Counter({"ok": 3, "skipped": 2})).split(", ") == ["3 ok", "2 not started"]
    assert marked_status("skipped").endswith(" skipped")  # on the page, of a cell that is not planned


def test_each_launch_of_a_job_is_one_line_of_its_log(tmp_path):
    launches = [SimpleNamespace(stack="host", cells=["a"], hosts=())] * 6
    run = BatchRun(tmp_path, SimpleNamespace(launches=launches, cells={"a": SimpleNamespace(spec={})}), {})
    request = {"cells": [1, 2, 3], "repeat": 1, "stack": "host"}
    watch = SimpleNamespace(recorded={"a": "ok", "b": "failed"})
    line = run.launch_line(2, request, watch, Cause("failed", None, "rank 1 died"), 12.4)
    words = ("3 of 6", "launch 2", "stack host", "2 of 3 cells", "1 failed, 1 ok", "12 s", "rank 1 died")
    assert [word for word in words if word not in line] == []
    assert "\n" not in line
    assert "early" not in run.launch_line(2, request, watch, None, 12.4)
