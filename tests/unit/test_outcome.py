"""The closing lines of a run."""

import re

from regatta.run.progress import outcome_text

HEAD = "cell,repeat,status,cause\n"


def test_counts_by_status_and_the_commonest_cause(tmp_path):
    rows = ["a,0,ok,", "a,1,failed,one", "b,0,failed,two", "b,1,timeout,two", "c,,skipped,cannot run"]
    (tmp_path / "measurements.csv").write_text(HEAD + "\n".join(rows) + "\n")
    first, second, third = outcome_text(tmp_path).splitlines()
    assert re.findall(r"\d+ [a-z]+", first) == ["4 measurements", "2 failed", "1 ok", "1 timed"]
    assert second.endswith("2 of 3 failures: two".partition(" of ")[2])
    assert "--forcerun measure" in third


def test_an_output_that_was_not_read_is_read_again_without_measuring(tmp_path):
    head, row = (
        "cell,benchmark,repeat,status,phase,cause,launch\n",
        "a,program,0,failed,measure,no line matches,x-l0-a0\n",
    )
    for text, is_unread in (
        (row, True),
        (row.replace("measure", ""), False),
        (row.replace("program", "script"), False),
    ):
        (tmp_path / "measurements.csv").write_text(head + text)
        *_, last = outcome_text(tmp_path).splitlines()
        assert ("make try" in last, "--forcerun measure" in last) == (is_unread, True)


def test_where_all_is_ok_one_line_says_so(tmp_path, wording):
    (tmp_path / "measurements.csv").write_text(HEAD + "a,0,ok,\na,1,not_measured,\n")
    wording(outcome_text(tmp_path), campaign=tmp_path.name)


def test_without_measurements_nothing_is_said(tmp_path):
    assert outcome_text(tmp_path) == ""
