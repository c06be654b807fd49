"""MLPerf training logs: time from run_start to run_stop, several runs, and logs that state no time."""

import json

import pytest
from formats_files import NEEDS, read_text, text_of

from regatta.core.errors import UserError
from regatta.formats.base import Options

LOG = "mlperf.log"
SHAPE = NEEDS[LOG]


def without(key: str) -> str:
    return "".join(line for line in text_of(LOG).splitlines(keepends=True) if f'"{key}"' not in line)


def test_a_line_that_every_rank_printed_counts_once():
    text = "".join(f"{line}\n" * 4 for line in text_of(LOG).splitlines())
    assert [reading.times_s["p50_s"] for reading in read_text(text, "f", SHAPE).readings] == [602.5, 620.0]


def test_prefixes_and_other_output_are_ignored():
    text = "".join(f" 0: {line}\n" for line in text_of(LOG).splitlines())
    assert len(read_text(text, "f", SHAPE).readings) == 2


def test_an_aborted_run_is_a_failure_without_a_time():
    reading = read_text(text_of(LOG).replace('"success"', '"aborted"', 1), "f", SHAPE).readings[0]
    assert reading.times_s == {}
    assert "aborted" in reading.failure


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (without("run_stop"), r"f:15: run_start in lines 9 and 15"),
        (without("run_start"), r"f:11: no run_start"),
        (without("submission_benchmark"), r"f:8: no submission_benchmark"),
        (text_of(LOG).replace("1745926702510", "1745926100009"), r"f:12: run_stop 1 ms before run_start in line 9"),
        (text_of(LOG).replace(', "status": "success"', "", 1), r"f:12: run_stop without a status"),
        (
            text_of(LOG).replace('"success"', '"finished"', 1),
            r"f:12: run_stop with status .*finished.*success or aborted",
        ),
        (text_of(LOG)[:-30], r"f:17: invalid JSON"),
        (text_of(LOG).replace('"time_ms": 1745926000000', '"time_ms": "soon"'), r"f:1: time_ms"),
        (":::MLLOG nothing\n", r"f:1: .*JSON object"),
    ],
)
def test_a_log_without_one_time_per_run_names_the_line(text, message):
    with pytest.raises(UserError, match=message):
        read_text(text, "f", SHAPE)


def test_a_run_that_has_not_ended_names_the_missing_line():
    lines = text_of(LOG).splitlines(keepends=True)
    with pytest.raises(UserError, match=r"f:16: no run_stop"):
        read_text("".join(lines[:16]), "f", SHAPE)


@pytest.mark.parametrize(
    ("options", "word"), [(Options(), "--nodes and --gpus-per-node"), (Options(nodes=2), "--gpus-per-node")]
)
def test_the_shape_is_stated_by_the_user(options, word):
    with pytest.raises(UserError, match=f"f:1: .*{word}"):
        read_text(text_of(LOG), "f", options)


@pytest.mark.parametrize("num_lines", [13, 14, 15])
def test_a_log_that_ends_before_its_second_run_starts_is_refused(num_lines):
    lines = text_of(LOG).splitlines(keepends=True)
    with pytest.raises(UserError, match=rf"f:{num_lines}: no run_start"):
        read_text("".join(lines[:num_lines]), "f", SHAPE)


def test_what_follows_the_last_run_is_of_no_run():
    later = ':::MLLOG {"time_ms": 1745927730000, "key": "seed", "value": 99}\n'
    assert read_text(text_of(LOG) + later, "f", SHAPE).readings[1].printed["seed"] == 8


def test_what_follows_a_run_is_not_of_the_next_run():
    later = ':::MLLOG {"time_ms": 1745926702520, "key": "seed", "value": 99}\n'
    lines = text_of(LOG).splitlines(keepends=True)
    first, second = read_text("".join([*lines[:12], later, *lines[12:]]), "f", SHAPE).readings
    assert (first.printed["seed"], second.printed["seed"]) == (7, 8)


def test_two_ranks_that_stop_at_different_times_are_refused(wording):
    lines = text_of(LOG).splitlines(keepends=True)
    other = lines[11].replace("1745926702510", "1745926702511")
    with wording.raises(UserError):
        read_text("".join([*lines[:12], other, *lines[12:]]), "f", SHAPE)


def test_logs_of_different_batch_sizes_are_different_cells():
    other = json.loads(text_of(LOG).splitlines()[4].partition("MLLOG ")[2]) | {"value": 32}
    lines = text_of(LOG).splitlines()
    lines[4] = f":::MLLOG {json.dumps(other)}"
    first, second = read_text("\n".join(lines) + "\n", "f", SHAPE).readings
    assert first.parameters["data"] != second.parameters["data"]
