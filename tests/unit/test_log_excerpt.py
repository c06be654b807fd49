"""The part of a log that the report shows: the error of a rank, not the epilogue of a launcher."""

from pathlib import Path

import pytest

from regatta.launchers import LAUNCHERS
from regatta.run.causes import MAX_LINES, error_of, find_cause, log_excerpt, read_log_tail, tracebacks

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
RAISED = (GOLDEN / "start_ranks_raised.log").read_text(encoding="utf-8")
TORCHRUN = """W1121 03:04:05.000000 17 torch/distributed/run.py:774] Setting OMP_NUM_THREADS
Traceback (most recent call last):
  File "a.py", line 1, in <module>
ValueError: no
E1121 03:04:09.000000 17 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1)
Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
a.py FAILED
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 17)
============================================================
"""
CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
RuntimeError: no x
"""


def test_the_traceback_of_the_cause_is_chosen_not_that_of_a_rank_that_lost_its_peer(wording):
    lines = log_excerpt(RAISED, "rank 1 on host1: RuntimeError: bucket 3 of 7 is empty")
    assert len(lines) == 4
    wording(lines[1])
    wording(lines[-1])


def test_without_a_traceback_of_the_cause_the_last_one_is_shown(wording):
    lines = log_excerpt(RAISED, "no record within 600 s")
    wording(lines[0])
    assert lines[-1].startswith("[rank0]: RuntimeError: [/pytorch/third_party/gloo")


LABELS = """regatta: each line of a rank begins with its number
0: Traceback (most recent call last):
1: Traceback (most recent call last):
0:   File "a.py", line 1, in <module>
1: [rank1]:   File "a.py", line 2, in <module>
0: ConnectionError: lost rank 1
1: ValueError: no
0: bye
start_ranks: rank 1 exited with code 3
start_ranks: rank 0 exited with code -15
"""


@pytest.mark.parametrize("num_lines_before", [0, 20_000])  # the first line is in the excerpt, or far before it
def test_lines_with_labels_are_those_of_their_ranks(tmp_path, num_lines_before):
    first, _, rest = LABELS.partition("\n")
    (tmp_path / "log").write_text(first + "\n" + "1: step 1\n" * num_lines_before + rest)
    log = read_log_tail(tmp_path / "log")
    cause = find_cause(LAUNCHERS["none"], [], log, 3, 0)
    assert cause.text.endswith("[rank1]: ValueError: no")
    wanted = ["Traceback (most recent call last):", '  File "a.py", line 2, in <module>', "ValueError: no"]
    assert log_excerpt(log, cause.text) == [f"[rank1]: {line}" for line in wanted]


def test_the_summary_of_torchrun_is_not_shown(wording):
    wording(log_excerpt(TORCHRUN, "x"))
    only_summary = TORCHRUN.partition("ValueError: no\n")[2]
    assert log_excerpt("last words\n" + only_summary, "x") == ["last words"]


def test_chained_tracebacks_are_one():
    [block] = tracebacks(CHAINED.splitlines())
    assert (block[2], block[3][:15], block[-1]) == ("KeyError: 'x'", "During handling", "RuntimeError: no x")
    assert len(tracebacks((CHAINED + "done\n" + CHAINED).splitlines())) == 2


def test_lines_of_two_ranks_may_alternate(wording):
    begin, error = "Traceback (most recent call last):", "ValueError: {}"
    lines = [f"[rank{rank}]: {text}" for text in (begin, "  File x") for rank in (0, 1)]
    lines += [f"[rank{rank}]: {error.format(rank)}" for rank in (1, 0)]
    assert [[line[:7] for line in block] for block in tracebacks(lines)] == [["[rank0]"] * 3, ["[rank1]"] * 3]
    wording(log_excerpt("\n".join(lines), "rank 1 on n1: ValueError: 1"))


def test_a_cause_names_an_error_without_its_module():
    assert error_of(["  File x", "torch.distributed.DistBackendError: x.cpp:3"]) == "DistBackendError: x.cpp:3"


@pytest.mark.parametrize(
    ("name", "words"), [("srun/import_error", "ModuleNotFoundError"), ("start_ranks_no_program", "can't open file")]
)
def test_lines_of_the_launcher_are_left_out(name, words):
    lines = log_excerpt((GOLDEN / f"{name}.log").read_text(encoding="utf-8"), "x")
    assert lines
    assert all(words in line for line in lines)


def test_lines_of_the_launcher_are_shown_if_there_are_no_others(wording):
    text = (GOLDEN / "srun" / "killed.log").read_text(encoding="utf-8")
    wording(log_excerpt(text, "x"))
    assert log_excerpt("", "x") == log_excerpt("\n \n", "x") == []


def test_a_long_log_is_cut_and_control_characters_are_replaced():
    lines = log_excerpt("".join(f"line {n}\n" for n in range(100)) + "\x1b[31mred\x00 " + 1000 * "x", "x")
    assert (len(lines), lines[0]) == (MAX_LINES, "line 71")
    assert lines[-1].startswith("\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER} xx")
    assert len(lines[-1]) == 200
