"""The progress line of a batch."""

import io
from collections import Counter
from types import SimpleNamespace

import pytest

from regatta.report.page import marked_status
from regatta.run.batch import BatchRun, launch_line
from regatta.run.causes import Cause
from regatta.run.progress import Progress, counts_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(stream, now, total=20):
    return Progress("1x2", 6, total, stream, clock=lambda: now[0])


def test_the_time_left_is_an_interval_from_two_launches_on(wording):
    now = [50.0]
    line = progress(Terminal(), now)
    line.recorded("ok")
    wording(line.line(1, None))
    line.show(1, "cell")
    for number, seconds in ((2, 100.0), (3, 120.0)):
        assert line.seconds_left() is None
        now[0] += seconds
        line.show(number, None)
    now[0] += 90.0  # within the third launch: three more follow it
    assert line.seconds_left() == (10 + 3 * 100, 30 + 3 * 120)
    assert line.line(3, "cell").split(", ")[1] == "5.2\N{EN DASH}6.5 min left"


def test_the_time_left_never_rises_within_a_launch():
    now = [0.0]
    line = progress(Terminal(), now)
    for number in (2, 3):
        now[0] += 100.0
        line.show(number, None)
    told = []
    for _ in range(30):
        now[0] += 10.0
        told.append(line.seconds_left())
    assert told[0] == (390, 390)
    assert told[-1] == (300, 300)  # the launch takes longer than the others; three are left
    assert told == sorted(told, reverse=True)


def test_launches_at_the_same_time_have_no_time_left():
    now = [0.0]
    line = progress(Terminal(), now)
    for _ in range(10):
        for number in range(1, 7):  # nodes of a sweep, one by one
            now[0] += 0.1
            line.show(number, "cell")
    assert line.seconds_left() is None
    assert "left" not in line.line(6, "cell")


def test_a_launch_beyond_the_last_leaves_no_negative_time():
    now = [0.0]
    line = progress(Terminal(), now)
    for number in range(2, 12):
        now[0] += 10.0
        line.show(number, None)
    now[0] += 100.0
    assert line.seconds_left() == (0, 0)


def test_an_unchanged_line_is_written_once():
    stream = Terminal()
    line = progress(stream, [0.0])
    for _ in range(3):
        line.show(1, "cell")
    assert stream.getvalue().count("\r") == 1


def test_nothing_is_written_where_there_is_no_terminal():
    stream = io.StringIO()
    line = progress(stream, [0.0])
    line.show(1, "cell")
    line.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("columns", [20, 200])
def test_a_terminal_gets_one_line_that_fits_and_is_wiped_at_the_end(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    line = progress(stream, [0.0])
    line.show(1, "cell")
    begin, full = "\r\x1b[K", line.line(1, "cell")
    assert stream.getvalue() == begin + full[: columns - 1]
    line.close()
    assert stream.getvalue().endswith(begin)
    assert "\n" not in stream.getvalue()


def test_a_terminal_that_was_closed_does_not_end_the_batch():
    class Closed(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    line = progress(Closed(), [0.0])
    line.show(1, None)
    assert not line.is_terminal
    line.close()


def test_a_record_of_a_launch_that_was_skipped_is_not_started():
    assert counts_text(Counter({"ok": 3, "skipped": 2})).split(", ") == ["3 ok", "2 not started"]
    assert marked_status("skipped").endswith(" skipped")  # on the page, of a cell that is not planned


def test_each_launch_of_a_job_is_one_line_of_its_log(tmp_path):
    run = BatchRun(tmp_path, {"launches": [{"stack": "host", "cells": ["a"]}] * 6, "cells": {"a": {"spec": {}}}}, {})
    request = {"cells": [1, 2, 3], "repeat": 1, "stack": "host"}
    watch = SimpleNamespace(recorded={"a": "ok", "b": "failed"})
    line = launch_line(run, 2, request, watch, Cause("failed", None, "rank 1 died"), 12.4)
    words = ("3 of 6", "launch 2", "stack host", "2 of 3 cells", "1 failed, 1 ok", "12 s", "rank 1 died")
    assert [word for word in words if word not in line] == []
    assert "\n" not in line
    assert "early" not in launch_line(run, 2, request, watch, None, 12.4)
