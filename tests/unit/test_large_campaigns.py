"""Fast paths for large campaigns match the reference implementation."""

import json
from functools import partial

import pandas as pd
import pytest
from synthetic import analyse, write_laptop

from regatta.core.errors import UserError
from regatta.kit.columns import table_rows
from regatta.store import frozen_files
from regatta.store.csv_files import FLAG, REAL, TEXT, WHOLE, make_table, to_csv
from regatta.store.frozen_files import read_frozen
from regatta.store.history import is_after_now
from regatta.tables.primary_times import values_by_cell
from regatta.topics.base import once_per_report


@pytest.fixture
def frozen(tmp_path, monkeypatch):
    """A frozen campaign that is checked as a large one."""
    monkeypatch.setattr(frozen_files, "LARGE_FILE_BYTES", 0)
    return next(write_laptop(tmp_path / "laptop").glob("campaign.*.json"))


def test_a_large_campaign_is_read_without_the_slow_check(frozen, monkeypatch):
    monkeypatch.setattr(frozen_files, "mismatch", lambda *_: pytest.fail("checked by jsonschema"))
    assert read_frozen(frozen, "campaign")["name"] == "laptop"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "nodes = 1.0 is not an integer"),
        (True, "nodes = true is not an integer"),
        ("1", "nodes = '1' is not an integer"),
        (float("nan"), "nodes = nan is not an integer"),
    ],
)
def test_fast_validation_is_equally_strict(frozen, value, text):
    campaign = json.loads(frozen.read_text())
    campaign["cells"][3]["spec"]["nodes"] = value
    frozen.write_text(json.dumps(campaign))
    with pytest.raises(UserError) as caught:
        read_frozen(frozen, "campaign")
    assert text in str(caught.value)


def test_columns_of_a_table_have_their_type_also_if_nothing_is_known():
    columns = {"cell": TEXT, "line": WHOLE, "p50_s": REAL, "has_drift": FLAG, "p75_s": REAL, "status": TEXT}
    table = make_table([{"cell": "a", "line": 2**62, "p50_s": 0.1}, {"cell": "b", "p50_s": None}], columns)
    assert table.dtypes.astype(str).to_dict() == columns
    assert table["line"].tolist() == [2**62, pd.NA]
    assert table["p50_s"].tolist() == [0.1, pd.NA]
    assert table[["has_drift", "p75_s", "status"]].isna().all(axis=None)
    assert len(make_table([], columns)) == 0


def test_rows_read_the_columns_that_are_asked_for():
    table = pd.DataFrame({"cell": ["a", "b"], "p50_s": pd.array([0.1, None], dtype="Float64")}, index=[7, 3])
    first, second = table_rows(table)
    assert (first.cell, first.p50_s, second.cell) == ("a", 0.1, "b")
    assert second.p50_s is pd.NA
    with pytest.raises(AttributeError, match="no column p75_s"):
        _ = first.p75_s


def test_values_by_cell_leave_out_failed_and_unknown_launches():
    rows = [("a", "ok", 1.0), ("a", "failed", 2.0), ("b", "ok", None), ("a", "ok", 3.0)]
    table = make_table(
        [{"cell": cell, "status": status, "p50_s": value} for cell, status, value in rows],
        {"cell": TEXT, "status": TEXT, "p50_s": REAL},
    )
    assert values_by_cell(table, "p50_s") == {"a": [1.0, 3.0]}


def test_a_result_is_computed_once_for_each_report(tmp_path):
    calls = []

    @once_per_report
    def number(data) -> int:
        calls.append(data)
        return len(calls)

    data, other = (analyse(write_laptop(tmp_path / name)) for name in ("one", "two"))
    assert [number(data), number(data), number(other), number(data)] == [1, 1, 2, 1]


@pytest.mark.parametrize(
    ("time_utc", "expected"),
    [
        ("2026-11-23T03:05:00Z", False),
        ("2026-11-23T03:05:01Z", True),
        ("2027-01-01T00:00:00Z", True),
        ("2027-13-01T00:00:00Z", False),
        ("zzz", False),
        ("", False),
        ("9999-99-99T00:00:00Z", False),
    ],
)
def test_times_more_than_five_minutes_ahead_are_after_now(monkeypatch, time_utc, expected):
    monkeypatch.setattr("regatta.store.history.time.time", pd.Timestamp("2026-11-23T03:00:00Z").timestamp)
    assert is_after_now(time_utc) is expected


@pytest.mark.parametrize(
    ("write", "options"), [(to_csv, {"float_format": "%.9g"}), (partial(to_csv, num_digits=None), {})]
)
def test_a_table_is_written_as_pandas_writes_it(write, options):
    texts = ["plain", 'a "quoted" word', "a, b", "two\nlines", "", None]
    numbers = [0.1 + 0.2, 1e-5, 1e16, 2.0, float("inf"), None]
    table = pd.DataFrame(
        {
            "text": pd.array(texts, dtype="string"),
            "with, comma": pd.array(range(6), dtype="Int64"),
            "real": pd.array(numbers, dtype="Float64"),
            "flag": pd.array([True, False, None] * 2, dtype="boolean"),
            "unknown": pd.array([None] * 6, dtype="Int64"),
            "object": texts,
            "float": numbers,
        }
    )
    assert write(table) == table.to_csv(index=False, lineterminator="\n", **options)
    assert write(table[:0]) == table[:0].to_csv(index=False, lineterminator="\n")
