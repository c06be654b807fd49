"""Truncated or damaged files: the same result, a rejection, or (if the format has no end) fewer rows."""

import dataclasses

import pytest
from formats_files import ALL, NEEDS, SEEN_WHOLE, read, read_text, text_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regatta.core.errors import UserError
from regatta.formats.base import Options


def result_of(name, text):
    """Return the readings of a text under the name of a golden file, or None where it is refused."""
    try:
        return read_text(text, name, NEEDS.get(name, Options())).readings
    except UserError:
        return None


def alone(readings):
    """Return readings without what is stated of each of several runs: a truncated file may have one."""
    return readings and tuple(dataclasses.replace(reading, backend=None, environment=None) for reading in readings)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=50)
@given(data=st.data())
def test_any_cut_gives_the_same_or_a_refusal_or_fewer_of_the_same_rows(name, data):
    text, whole = text_of(name), alone(read(name).readings)
    # Half of the cuts near the end, where most of a file is there and the temptation is greatest.
    length = len(text)
    cut = data.draw(st.integers(0, length) | st.integers(max(0, length - 400), length))
    found = alone(result_of(name, text[:cut]))
    assert found is None or found == whole or (name not in SEEN_WHOLE and found == whole[: len(found)])


@pytest.mark.parametrize("name", ["ddp-2x4-gh200.txt", "osu-allreduce.txt", "nccl-21-columns.txt", "times.csv"])
def test_every_single_cut_of_a_table_gives_the_same_or_a_refusal_or_fewer_of_the_same_rows(name):
    text, whole = text_of(name), read(name).readings
    for cut in range(len(text)):
        found = result_of(name, text[:cut])
        assert found is None or found == whole[: len(found)], text[:cut][-80:]
        assert found is None or found == whole or name not in SEEN_WHOLE


def test_a_table_of_benchmark_py_that_is_cut_inside_a_row_is_never_read():
    """Only two cuts give fewer rows: those behind a row of the first table, and those behind a whole table."""
    text = text_of("ddp-2x4-gh200.txt")
    nums = {len(found) for cut in range(len(text)) if (found := result_of("ddp-2x4-gh200.txt", text[:cut])) is not None}
    assert nums == {1, 2, 3, 4, 5, 6, 12}


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=50)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_and_nothing_else(name, data):
    text = text_of(name)
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.sampled_from([1, 2, 7, 60]))
    junk = data.draw(st.text(alphabet="0123456789.eE-+ \n\t,:{}[]\"'#/sNAn\0\x85\u2028٣", max_size=8))
    found = result_of(name, text[:at] + junk + text[at + length :])
    assert found is None or len(found) > 0


@given(text=st.text(max_size=200))
@example(text="﻿{")
@example(text="benchmark,seconds")
@example(text='benchmark,seconds\n"')
@example(text="# OSU MPI Latency Test v5\n# Size Latency (us)\n")
@example(text="1 GPUs --")
@example(text="out-of-place")
@example(text='{"benchmark_results": 1, "bucket_size": 1, "distributed_backend": "x"}')
@example(text='{"nccl_version": 1, "config": 2}')
@example(text='[{"world_size": 1, "results": 1, "config": 1}]')
@example(text='{"world_size": 1e400, "results": {}, "config": {}}')
def test_any_text_at_all_is_a_refusal(text):
    assert result_of("f", text) is None


@pytest.mark.parametrize("name", [name for name in ALL if "nccl" in name and name.endswith("txt")])
@settings(max_examples=40)
@given(data=st.data())
def test_lines_of_nccl_between_the_rows_change_nothing(name, data):
    lines = text_of(name).split("\n")
    for at in sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=5)), reverse=True):
        lines.insert(at, "nid001000:41200:41288 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via P2P/CUMEM 12 3.5")
    found = result_of(name, "\n".join(lines))
    without = [dataclasses.replace(reading, line=None) for reading in found]
    assert without == [dataclasses.replace(reading, line=None) for reading in read(name).readings]
