"""Following a launch file while it is written. Time is injected; nothing sleeps."""

import json

import pytest

from regatta.run.progress import Watch

HEADER = {"kind": "launch", "repeat": 0, "stack": "host", "time_utc": "2026-11-21T03:04:05Z"}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watch(tmp_path, clock):
    return Watch(tmp_path / "l.jsonl", {"a": 7.0, "b": 60.0}, 30.0, clock)


def append(watch, *parts: dict | bytes) -> None:
    with watch.path.open("ab") as file:
        for part in parts:
            file.write(part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n")


def test_before_there_is_a_file_the_start_s_deadline_counts(watch, clock):
    clock.now = 125.0
    assert watch.update() == []
    assert watch.deadline() == 130.0


def test_each_cell_has_its_own_deadline_from_its_start(watch, clock):
    clock.now = 110.0
    append(watch, HEADER, {"kind": "start", "cell": "a"})
    assert [line["kind"] for line in watch.update()] == ["launch", "start"]
    assert (watch.current, watch.deadline(), watch.header.stack) == ("a", 117.0, "host")
    clock.now = 112.0
    append(watch, {"kind": "record", "cell": "a", "status": "ok"}, {"kind": "start", "cell": "b"})
    watch.update()
    assert (watch.current, watch.deadline()) == ("b", 172.0)
    assert watch.recorded == {"a": "ok"}


def test_a_silence_between_cells_has_the_start_s_deadline(watch, clock):
    append(watch, HEADER, {"kind": "start", "cell": "a"}, {"kind": "record", "cell": "a", "status": "failed"})
    clock.now = 105.0
    watch.update()
    assert watch.current is None
    assert watch.deadline() == 135.0
    assert watch.recorded == {"a": "failed"}


def test_silence_moves_no_deadline(watch, clock):
    append(watch, {"kind": "start", "cell": "a"})
    watch.update()
    clock.now = 1000.0
    assert watch.update() == []
    assert watch.deadline() == 107.0


def test_a_line_counts_when_its_end_is_there(watch, clock):
    append(watch, b'{"kind": "start", "ce')
    clock.now = 120.0
    assert watch.update() == []
    assert (watch.current, watch.deadline()) == (None, 130.0)
    append(watch, b'll": "a"}')
    assert watch.update() == []
    append(watch, b'\n{"kind": "rec')
    assert watch.update() == [{"kind": "start", "cell": "a"}]
    assert (watch.current, watch.deadline()) == ("a", 127.0)


def test_a_line_that_does_not_parse_is_no_sign_of_life(watch, clock):
    clock.now = 120.0
    append(watch, b"\xff\xfe\n", b"[1]\n", b'{"kind": 5}\n', b'{"kind": "start"}\n')
    assert watch.update() == []
    assert watch.deadline() == 130.0


def test_a_character_cut_in_two_is_joined(watch):
    line = json.dumps({"kind": "start", "cell": "a", "note": "ä"}, ensure_ascii=False).encode() + b"\n"
    cut = line.index("ä".encode()) + 1
    append(watch, line[:cut])
    assert watch.update() == []
    append(watch, line[cut:])
    assert watch.update()[0]["note"] == "ä"


def test_complete_is_noticed_and_lines_come_once(watch):
    append(watch, {"kind": "complete"})
    assert len(watch.update()) == 1
    assert watch.end == "complete"
    assert watch.update() == []


def test_a_cell_without_a_record_is_known_when_its_launch_is_complete(watch):
    append(watch, HEADER, {"kind": "start", "cell": "a"}, {"kind": "complete"})
    watch.update()
    assert (watch.current, watch.end) == ("a", "complete")
