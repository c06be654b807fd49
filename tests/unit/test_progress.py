"""The lines of a batch in the log of its job."""

from collections import Counter
from types import SimpleNamespace

from regatta.model.frozen import FrozenLaunch
from regatta.report.page import marked_status
from regatta.run.batch import BatchRun
from regatta.run.causes import Cause
from regatta.run.progress import counts_text


def test_a_record_of_a_launch_that_was_skipped_is_not_started():
    assert counts_text(Counter({"ok": 3, "skipped": 2})).split(", ") == ["3 ok", "2 not started"]
    assert marked_status("skipped").endswith(" skipped")  # on the page, of a cell that is not planned


def test_each_launch_of_a_job_is_one_line_of_its_log(tmp_path):
    launches = [FrozenLaunch(1, "host", ["a"], 1, 1)] * 6
    launch = BatchRun(tmp_path, SimpleNamespace(launches=launches, cells={"a": SimpleNamespace(spec={})}), {}).launches[
        2
    ]
    launch.request, launch.watch = (
        SimpleNamespace(cells=[1, 2, 3]),
        SimpleNamespace(recorded={"a": "ok", "b": "failed"}),
    )
    line = launch.line(Cause("failed", None, "rank 1 died"), 12.4)
    words = ("3 of 6", "launch 2", "stack host", "2 of 3 cells", "1 failed, 1 ok", "12 s", "rank 1 died")
    assert [word for word in words if word not in line] == []
    assert "\n" not in line
    assert "early" not in launch.line(None, 12.4)
