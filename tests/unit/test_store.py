"""The store: after a kill, a full disk or a bad sector, exactly the complete lines are read."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.core.errors import UserError
from regatta.model.launches import LaunchHeader
from regatta.store.frozen_files import read_frozen
from regatta.store.launch_files import append_line, read_launch_file, read_store, write_json, write_text

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
HEADER = {"kind": "launch", "repeat": 0, "stack": "host", "time_utc": "2026-11-21T03:04:05Z"}
LINES = [
    HEADER,
    {"kind": "start", "cell": "a"},
    {"kind": "record", "cell": "a", "status": "ok", "samples_ns": [[1, 2], [3, 4]], "cause": "ä \u2028 \\n"},
    {"kind": "record", "cell": "b", "status": "failed", "samples_ns": None, "cause": "}{"},
    {"kind": "complete", "elapsed_ns": 5},
]
TEXTS = [json.dumps(line).encode() for line in LINES]
WHOLE = b"".join(text + b"\n" for text in TEXTS)


def read(folder, content: bytes):
    path = folder / "l000.jsonl"
    path.write_bytes(content)
    return read_launch_file(path)


def test_a_whole_file_is_read_with_line_numbers(tmp_path):
    found = read(tmp_path, WHOLE)
    assert found.lines == list(enumerate(LINES, start=1))
    assert (found.launch, found.header, found.problems) == ("l000", LaunchHeader.from_json(HEADER), [])
    assert found.lines_of("complete")
    assert [line["cell"] for line in found.lines_of("record")] == ["a", "b"]


def test_a_torn_last_line_is_dropped_and_said(tmp_path, wording):
    found = read(tmp_path, WHOLE[:-10])
    assert [line for _, line in found.lines] == LINES[:-1]
    wording(found.problems, num_bytes=len(TEXTS[-1]) + 1 - 10)
    assert not found.lines_of("complete")


def test_a_last_line_that_lacks_only_its_end_is_whole(tmp_path):
    found = read(tmp_path, WHOLE[:-1])
    assert [line for _, line in found.lines] == LINES
    assert found.problems == []


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\xff\xfe\x80",
        b'{"kind": "record"',
        b"[1, 2]",
        b'{"cell": "a"}',
        b'{"kind": 3}',
        b'{"kind": "record", "status": "ok"}',
        b'{"kind": "start"}',
        b'{"kind": "launch", "repeat": 1}',
        b"null",
        pytest.param(b"[" * 100_000, id="deeply nested"),
        pytest.param(b"9" * 5000, id="a number too long for Python"),
    ],
)
def test_a_corrupt_middle_line_costs_only_itself(tmp_path, junk, wording):
    found = read(tmp_path, b"\n".join([TEXTS[0], junk, *TEXTS[1:], b""]))
    assert [line for _, line in found.lines] == LINES
    assert [number for number, _ in found.lines] == [1, 3, 4, 5, 6]
    wording(found.problems, num_bytes=f"{len(junk)} bytes")


def test_an_empty_file_is_no_launch_and_no_problem(tmp_path):
    found = read(tmp_path, b"")
    assert (found.header, found.lines, found.problems) == (None, [], [])


def test_empty_lines_count_but_say_nothing(tmp_path):
    found = read(tmp_path, b"\n\n" + TEXTS[0] + b"\n")
    assert found.lines == [(3, HEADER)]
    assert found.problems == []


def test_records_without_a_launch_line_are_not_placed_and_said(tmp_path, wording):
    found = read(tmp_path, b"\n".join(TEXTS[1:]))
    wording(found.problems)
    assert found.header is None


def test_the_first_launch_line_counts(tmp_path):
    found = read(tmp_path, TEXTS[0] + b"\n" + json.dumps(HEADER | {"repeat": 7}).encode())
    assert found.header.repeat == 0


def test_a_store_is_read_in_the_order_of_names_and_may_be_missing(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        (tmp_path / name).write_bytes(WHOLE)
    assert [found.launch for found in read_store(tmp_path)] == ["a", "b"]
    assert read_store(tmp_path / "none") == []


@given(st.integers(0, len(WHOLE)))
def test_a_file_cut_off_anywhere_gives_whole_lines_only(tmp_path_factory, size):
    found = read(tmp_path_factory.getbasetemp(), WHOLE[:size])
    ends = [
        sum(len(text) + 1 for text in TEXTS[:i]) - 1 for i in range(1, len(TEXTS) + 1)
    ]  # each line without its break
    assert [line for _, line in found.lines] == LINES[: sum(end <= size for end in ends)]


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(0, len(LINES)))
def test_no_junk_raises_or_hides_a_whole_line(tmp_path_factory, junk, position):
    junk = [part.replace(b"\n", b"") for part in junk]
    found = read(tmp_path_factory.getbasetemp(), b"\n".join([*TEXTS[:position], *junk, *TEXTS[position:]]))
    assert [line for _, line in found.lines if line in LINES] == LINES


def test_a_line_after_a_torn_one_is_whole_and_the_torn_one_is_said(tmp_path):
    path = tmp_path / "l000.jsonl"
    path.write_bytes(WHOLE[:-10])
    append_line(path, {"kind": "stopped"})
    found = read_launch_file(path)
    assert found.lines[-1] == (6, {"kind": "stopped"})
    assert len(found.lines) == 5
    assert len(found.problems) == 1
    assert path.read_bytes().startswith(WHOLE[:-10]), "nothing is ever rewritten"


@given(st.integers(0, len(WHOLE)))
def test_a_line_can_be_appended_after_any_cut(tmp_path_factory, size):
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    path.write_bytes(WHOLE[:size])
    before = read_launch_file(path).lines
    append_line(path, {"kind": "stopped"})
    assert [line for _, line in read_launch_file(path).lines] == [*(line for _, line in before), {"kind": "stopped"}]


NO_SPACE = """
import resource, signal, sys
from pathlib import Path
from regatta.store.launch_files import append_line
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    append_line(Path(sys.argv[1]), {"kind": "record", "cell": "c", "samples_ns": [[1] * 1000]})
except OSError as error:
    print("OSError", error.errno)
"""


@pytest.mark.parametrize("num_bytes_free", [0, 1, 100])
@pytest.mark.parametrize("torn_bytes", [0, 10])
def test_a_disk_without_space_is_said_and_leaves_the_store_as_it_was(tmp_path, num_bytes_free, torn_bytes):
    path = tmp_path / "l000.jsonl"
    content = WHOLE[: len(WHOLE) - torn_bytes]
    path.write_bytes(content)
    command = [sys.executable, "-c", NO_SPACE, str(path), str(len(content) + num_bytes_free)]
    done = subprocess.run(command, env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, check=False)
    assert done.stdout.split()[:1] == ["OSError"], done.stderr
    assert int(done.stdout.split()[1]) in (27, 28)  # EFBIG where nothing fits, ENOSPC where a part did
    assert path.read_bytes() == content
    append_line(path, {"kind": "stopped"})
    assert read_launch_file(path).lines[-1][1] == {"kind": "stopped"}


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "plan.json"
    write_json(path, {"a": "ä"})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_text(path, "x" * 100_000)
    assert error.value.filename == str(path)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ä"}
    assert list(path.parent.iterdir()) == [path], "no temporary file stays"


def test_half_a_character_does_not_stop_a_file_from_being_written(tmp_path):
    write_json(tmp_path / "x.json", {"cause": "/data/\udcfc"})
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"cause": "/data/?"}
    write_text(tmp_path / "x.txt", "see x\udce9.jsonl")
    assert (tmp_path / "x.txt").read_text(encoding="utf-8") == "see x?.jsonl"


@pytest.mark.parametrize("text", ["5", "[]", "null", "{", "[" * 100_000])
def test_a_frozen_file_that_is_no_object_is_told_as_damaged(tmp_path, text):
    path = tmp_path / "campaign.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="is damaged"):
        read_frozen(path)
