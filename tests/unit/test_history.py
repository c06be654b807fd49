"""The content of the store, from manifests and from launch files."""

import json
import re

import pytest
from campaign_files import write_launch

from regatta.model.frozen import fields_to_json
from regatta.store.history import History, read_history, summarize
from regatta.store.launch_files import read_launch_file


def ok(cell: str, seconds: float = 2.0) -> dict:
    return {"cell": cell, "status": "ok", "elapsed_ns": int(seconds * 1e9)}


def write_manifest(results, batch: str, launches: list[str], **changes):
    """Write a manifest as the supervisor does, from launch files that are there."""
    entries = [fields_to_json(summarize(read_launch_file(results / "launches" / f"{name}.jsonl"))) for name in launches]
    path = results / "batches" / batch / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schema": 1, "batch": batch, "counts": {}, "launches": entries} | changes))
    return path


def known(history: History) -> dict:
    return {slot: (one.status, one.cause, one.launch, one.elapsed_s) for slot, one in history.slots.items()}


def test_a_folder_that_is_not_there_has_no_history(tmp_path):
    history = read_history(tmp_path / "none")
    assert (history.slots, history.launch_overheads_s, history.problems) == ({}, [], [])


def test_a_launch_is_summarized_without_its_samples(tmp_path):
    failed = {"cell": "b", "status": "failed", "cause": "why", "elapsed_ns": None}
    path = write_launch(tmp_path, "x-l001-a00", 1, [ok("a"), failed])
    entry = fields_to_json(summarize(read_launch_file(path)))
    assert entry == {
        "launch": "x-l001-a00",
        "repeat": 1,
        "stack": "host",
        "time_utc": "2026-11-21T03:00:00Z",
        "size_bytes": path.stat().st_size,
        "overhead_s": 3.0,  # 1 s of the launch outside its cells, and 2 s until its ranks were ready
        "records": [
            {"cell": "a", "status": "ok", "cause": None, "elapsed_s": 2.0, "time_utc": "2026-11-21T03:00:00Z"},
            {"cell": "b", "status": "failed", "cause": "why", "elapsed_s": None, "time_utc": "2026-11-21T03:00:00Z"},
        ],
    }


@pytest.mark.parametrize("environment", [None, {}, {"seconds_to_ready": None}])
def test_an_unknown_start_is_left_out_of_the_overhead(tmp_path, environment):
    path = write_launch(tmp_path, "x", 0, [ok("a")], environment=environment)
    assert summarize(read_launch_file(path)).overhead_s == 1.0


def test_a_launch_that_was_cut_off_has_no_overhead(tmp_path):
    path = write_launch(tmp_path, "x", 0, [ok("a")])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert summarize(read_launch_file(path)).overhead_s is None
    assert read_history(tmp_path).slots["a", 0].status == "ok"


def test_a_file_without_its_launch_line_gives_nothing_and_is_said(tmp_path, wording):
    path = write_launch(tmp_path, "x", 0, [ok("a")])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    history = read_history(tmp_path)
    assert history.slots == {}
    wording(history.problems)


def test_launch_files_without_a_manifest_are_read(tmp_path):
    write_launch(tmp_path, "x-l000-a00", 0, [ok("a")])
    write_launch(tmp_path, "x-l001-a00", 1, [{"cell": "a", "status": "timeout", "cause": "late"}])
    assert known(read_history(tmp_path)) == {
        ("a", 0): ("ok", None, "x-l000-a00", 2.0),
        ("a", 1): ("timeout", "late", "x-l001-a00", None),
    }


def test_a_finished_batch_is_read_from_its_manifest_if_its_files_are_undamaged(tmp_path, monkeypatch):
    write_launch(tmp_path, "x-l000-a00", 0, [ok("a")])
    write_manifest(tmp_path, "x", ["x-l000-a00"])
    monkeypatch.setattr("regatta.store.history.read_launch_file", lambda path: pytest.fail("parsed"))
    history = read_history(tmp_path)
    assert known(history) == {("a", 0): ("ok", None, "x-l000-a00", 2.0)}
    assert history.problems == []
    assert history.launch_overheads_s == [3.0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"launches": [{"launch": "x-l0',
        b"\x00\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"launches": 3}',
        b'{"launches": [3]}',
        b'{"launches": [{"launch": "x-l000-a00"}]}',
        pytest.param(b"[" * 100_000, id="deeply nested"),
        b'{"launches": [{"launch": "x-l000-a00", "repeat": 0, "time_utc": "t", "overhead_s": null, "records": [{}]}]}',
    ],
)
def test_a_corrupt_manifest_is_noted_and_its_launch_files_are_read(tmp_path, content, wording):
    write_launch(tmp_path, "x-l000-a00", 0, [ok("a")])
    path = write_manifest(tmp_path, "x", ["x-l000-a00"])
    path.write_bytes(content)
    history = read_history(tmp_path)
    assert known(history) == {("a", 0): ("ok", None, "x-l000-a00", 2.0)}
    [problem] = history.problems
    wording(re.sub(r"\(.*\)", "(reason)", problem))


def test_the_cost_of_a_cell_is_the_median_of_its_records(tmp_path):
    for repeat, seconds in enumerate([2.0, 9.0, 3.0]):
        write_launch(tmp_path, f"x-l00{repeat}-a00", repeat, [ok("a", seconds), {"cell": "b", "status": "failed"}])
    assert read_history(tmp_path).cell_seconds() == {"a": 3.0}


def test_a_record_that_the_analysis_would_refuse_is_invalid_and_says_why(tmp_path, wording):
    spoiled = ok("a") | {"samples_ns": [[1000], [1000, 2000]]}
    unknown = ok("b") | {"surprise": 1}
    write_launch(tmp_path, "x-l000-a00", 0, [spoiled, unknown, ok("c")])
    slots = read_history(tmp_path).slots
    assert slots["a", 0].status == "invalid"
    wording(slots["a", 0].cause)
    assert slots["b", 0].status == "invalid"
    assert slots["c", 0].status == "ok"


def test_a_launch_file_whose_size_changed_is_read_again(tmp_path):
    path = write_launch(tmp_path, "x-l000-a00", 0, [ok("a"), ok("b")])
    write_manifest(tmp_path, "x", ["x-l000-a00"])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    history = read_history(tmp_path)
    assert set(history.slots) == {("a", 0)}
    assert history.unlisted == [path]
