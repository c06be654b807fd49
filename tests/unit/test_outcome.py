"""The closing lines of a run."""

import re

from regatta.run.progress import outcome_text

HEAD = "cell,repeat,status,cause\n"


def test_counts_by_status_and_the_commonest_cause(tmp_path):
    rows = ["a,0,ok,", "a,1,failed,one", "b,0,failed,two", "b,1,timeout,two", "c,,skipped,cannot run"]
    (tmp_path / "measurements.csv").write_text(HEAD + "\n".join(rows) + "\n")
    first, second = outcome_text(tmp_path).splitlines()
    assert re.findall(r"\d+ [a-z]+", first) == ["4 measurements", "2 failed", "1 ok", "1 timed"]
    assert second.endswith("2 of 3 failures: two".partition(" of ")[2])


def test_where_all_is_ok_one_line_says_so(tmp_path, wording):
    (tmp_path / "measurements.csv").write_text(HEAD + "a,0,ok,\na,1,not_measured,\n")
    wording(outcome_text(tmp_path), campaign=tmp_path.name)


def test_without_measurements_nothing_is_said(tmp_path):
    assert outcome_text(tmp_path) == ""
