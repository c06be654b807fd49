"""The exit status of a run, from the planned measurements' records in the store."""

import json

import pytest

from regatta.run.progress import run_status
from regatta.store.checksums import sealed_file

PLANNED = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def store(folder, statuses, batch="n01g01-1"):
    """Write the manifest of a finished batch, whose launches recorded the planned measurements with these statuses."""
    launches = []
    (folder / "launches").mkdir(parents=True)
    for (cell, repeat), status in zip(PLANNED, statuses, strict=True):
        if status is None:
            continue
        launch = {"launch": f"{cell}{repeat}", "repeat": repeat, "time_utc": "2026-11-21T00:00:00Z", "overhead_s": None}
        record = {"cell": cell, "status": status, "cause": None, "elapsed_s": 1.0}
        header = {"kind": "launch", "launch": f"{cell}{repeat}", "repeat": repeat, "stack": "host", "time_utc": ""}
        content = sealed_file(
            [header, {"kind": "record", "cell": cell, "writer": "rank"} | record, {"kind": "complete"}],
            f"{cell}{repeat}",
        )
        (folder / "launches" / f"{cell}{repeat}.jsonl").write_bytes(content)
        launches.append(launch | {"size_bytes": len(content), "records": [record]})
    manifest = folder / "batches" / batch / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"launches": launches}))
    return folder


@pytest.mark.parametrize(
    ("statuses", "status", "cause"),
    [
        (["ok"] * 4, 0, ""),
        (["ok", "failed", "timeout", "skipped"], 0, ""),  # recorded failures are results
        (["ok", "ok", "ok", None], 3, "1 of 4 measurements have no record"),
        (["ok", "failed", "node_failure", "invalid"], 3, "2 of 4 measurements have no record"),  # measured again next
        (["failed", None, None, None], 4, "nothing was measured: 3 of 4 measurements have no record, and none is ok"),
        (["failed"] * 4, 4, "nothing was measured: all of 4 measurements have a record, and none is ok"),
        ([None] * 4, 4, "nothing was measured: 4 of 4 measurements have no record, and none is ok"),
    ],
)
def test_the_status_by_what_was_recorded(tmp_path, statuses, status, cause):
    results = store(tmp_path, statuses)
    assert run_status(results, PLANNED, ["n01g01-1"], None) == (status, cause)


@pytest.mark.parametrize("rows", ["", "a,0\na,1\nb,0\n", "a,0\na,1\nb,0\nb,7\n"])
def test_a_table_of_other_measurements_than_planned_is_an_unexpected_error(tmp_path, rows):
    results = store(tmp_path, ["ok"] * 4)
    table = results / "measurements.csv"
    table.write_text("cell,repeat\na,0\na,1\nb,0\nb,1\nskipped,\n")
    assert run_status(results, PLANNED, ["n01g01-1"], None) == (0, "")
    table.write_text("cell,repeat\n" + rows)
    status, cause = run_status(results, PLANNED, ["n01g01-1"], None)
    assert status == 1
    assert f"{rows.count(chr(10))} of 4" in cause


def test_a_campaign_without_a_cell_to_measure_is_nothing_measured(tmp_path, wording):
    status, cause = run_status(tmp_path, [], [], None)
    assert status == 4
    wording(cause)


def test_a_retry_that_was_stopped_is_not_finished_though_all_has_records_from_before(tmp_path):
    results = store(tmp_path, ["ok", "ok", "failed", "failed"])
    status, cause = run_status(results, PLANNED, ["n01g01-2"], None)
    assert (status, cause[:8]) == (3, "1 batch ")


@pytest.mark.parametrize("statuses", [["ok"] * 4, ["ok", None, None, None], [None] * 4])
def test_a_failure_other_than_of_measuring_is_an_unexpected_error(tmp_path, statuses):
    status, cause = run_status(store(tmp_path, statuses), PLANNED, [], "rule collect failed")
    assert status == 1
    assert cause.startswith("rule collect failed; ")
