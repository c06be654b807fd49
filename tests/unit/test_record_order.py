"""Which record of a cell and repeat counts: one order for the plan and the report, independent of clocks."""

import json
import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import collective_cell, make_campaign, make_failure, make_header, make_record, write_lines
from typed import collect

from regatta.model.frozen import fields_to_json
from regatta.model.launches import generation_of, record_order
from regatta.store.history import read_history, summarize
from regatta.store.launch_files import read_launch_file
from regatta.topics.machines import _problems

CELL = collective_cell(4096, 1, 2)
CAMPAIGN = make_campaign([CELL], repeats=1)
EARLY, LATE, AHEAD = "2026-11-21T03:00:00Z", "2026-11-21T04:00:00Z", "2036-11-21T03:00:00Z"
PLACES = st.tuples(
    st.from_regex(r"n01g02-[0-9a-f]{2}-(l00[01]-a[0-9]{2,3}|l000-i00)", fullmatch=True),
    st.integers(0, 3),
    st.sampled_from([EARLY, LATE, AHEAD]),
    st.integers(2, 5),
)


@given(st.lists(PLACES, unique_by=lambda place: (place[0], place[3]), min_size=2, max_size=6))
def test_the_order_is_total_and_does_not_depend_on_the_order_of_files(places):
    keys = {place: record_order(*place) for place in places}
    assert len(set(keys.values())) == len(places)  # no two records tie, so one of each pair is before the other
    ordered = [sorted(some, key=keys.get) for some in permutations(places)]
    assert all(found == ordered[0] for found in ordered)


@given(PLACES, PLACES)
def test_a_higher_generation_counts_and_within_it_a_later_attempt(one, other):
    (launch, generation, time_utc, line), (launch_2, _, time_2, line_2) = one, other
    assert record_order(launch_2, generation + 1, time_2, line_2) > record_order(launch, generation, time_utc, line)
    first, second = (record_order(f"x-l000-a{n}", 1, when, 2) for n, when in (("99", time_utc), ("100", time_2)))
    assert second > first


def test_without_a_generation_times_decide_and_attempts_do_not():
    assert record_order("x-l000-a01", 0, EARLY, 2) < record_order("b-l000-a00", 0, LATE, 2)


@pytest.mark.parametrize("value", [None, "2", 2.0, True, 0, -1, 10**9, [], {}])
def test_what_is_no_generation_is_as_if_it_were_not_there(value):
    assert generation_of({"generation": value}) == 0


def write(folder, launch, records, time_utc, generation=None):
    """records: statuses, in the order of the file."""
    header = make_header(CAMPAIGN, launch, 0, [CELL], time_utc) | ({"generation": generation} if generation else {})
    lines = [header]
    for status in records:
        is_ok = status == "ok"
        ok = make_record(CELL, 0, 0.1, 0.01, random.Random(1), time_utc)
        lines.append(ok if is_ok else make_failure(CELL, 0, status, "measure", "why", time_utc))
    path = folder / "launches" / f"{launch}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, lines)


def counted(folder):
    """Return (launch, status) of the record that counts, as plan and report see it."""
    slot = read_history(folder).slots[CELL["id"], 0]
    tables, problems = collect(CAMPAIGN, folder / "launches")
    row = tables["measurements"].iloc[0]
    assert (row["launch"], row["status"]) == (slot.launch, slot.status)
    return (slot.launch, slot.status), problems


def test_a_failure_from_the_future_is_superseded_and_told(tmp_path):
    write(tmp_path, "n01g02-aa-l000-a00", ["failed"], AHEAD, 1)
    write(tmp_path, "n01g02-00-l000-a00", ["ok"], EARLY, 2)
    found, problems = counted(tmp_path)
    assert found == ("n01g02-00-l000-a00", "ok")
    assert [(p["launch"], p["by"]) for p in problems["superseded"]] == [("n01g02-aa-l000-a00", "n01g02-00-l000-a00:2")]
    assert problems["after_now"] == [{"launch": "n01g02-aa-l000-a00", "time_utc": AHEAD}]
    [ahead] = _problems(problems)
    assert (ahead.kind, ahead.values["num"]) == ("after_now", 1)
    assert ahead.words["latest"] == f"{AHEAD} (n01g02-aa-l000-a00)"
    assert AHEAD in read_history(tmp_path).problems[0]


def test_the_next_attempt_at_a_launch_supersedes_one_from_the_future(tmp_path):
    write(tmp_path, "n01g02-aa-l000-a00", ["node_failure"], AHEAD, 1)
    write(tmp_path, "n01g02-aa-l000-a01", ["ok"], EARLY, 1)
    assert counted(tmp_path)[0] == ("n01g02-aa-l000-a01", "ok")


def test_of_two_records_in_one_launch_file_the_later_line_counts(tmp_path):
    write(tmp_path, "n01g02-aa-l000-a00", ["ok", "failed"], EARLY, 1)
    found, problems = counted(tmp_path)
    assert found == ("n01g02-aa-l000-a00", "failed")
    assert [p["line"] for p in problems["superseded"]] == [2]


def test_a_manifest_holds_the_generation_of_its_launches(tmp_path):
    write(tmp_path, "n01g02-aa-l000-a00", ["failed"], AHEAD, 7)
    entry = fields_to_json(summarize(read_launch_file(tmp_path / "launches" / "n01g02-aa-l000-a00.jsonl")))
    assert entry["generation"] == 7
    manifest = tmp_path / "batches" / "n01g02-aa" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"launches": [entry]}))
    assert read_history(tmp_path).slots[CELL["id"], 0].generation == 7
    assert read_history(tmp_path).unlisted == []


STORES = st.dictionaries(
    st.sampled_from([f"n01g02-{batch}-l000-a{n:02d}" for batch in ("aa", "bb") for n in range(3)]),
    st.tuples(
        st.lists(st.sampled_from(["ok", "failed", "timeout"]), min_size=1, max_size=2),
        st.sampled_from([EARLY, LATE, AHEAD]),
        st.sampled_from([None, 1, 2]),
    ),
    min_size=1,
)


@given(STORES)
def test_plan_and_report_take_the_same_record(tmp_path_factory, store):
    folder = tmp_path_factory.mktemp("store")
    for launch, (records, time_utc, generation) in store.items():
        write(folder, launch, records, time_utc, generation)
    expected = max(store, key=lambda launch: record_order(launch, store[launch][2] or 0, store[launch][1], 0))
    assert counted(folder)[0] == (expected, store[expected][0][-1])
