"""The timeline: times of launches and jobs, the shares of allocations, the chart and its axis. All values by hand."""

import html
import itertools
import json
import random
import re
from xml.etree import ElementTree

import pytest
from synthetic import LAPTOP, analyse, make_campaign, make_report, report_data, train_cell, write_lines, write_results
from synthetic_timeline import WEEK, timed_cells, utc, write_job, write_launch, write_nights

from regatta.core.text import utc_seconds
from regatta.kit.kinds import LOW
from regatta.store.csv_files import JOBS, LAUNCHES, MEASUREMENTS, make_table
from regatta.tables.times import allocations_table, elapsed_text, timeline_table
from regatta.topics.timeline import (
    TOPIC,
    allocated_hours,
    bars_of,
    findings,
    overlaps,
    runs_of,
    section,
    shown_rows,
    ticks_of,
)

BATCH = "n02g04-0000000000aa"


def launch(number=0, start=0, end=40, **columns):
    """Return a row of launches.csv: on two nodes, 24 s of 40 s in cells."""
    row = {"batch": BATCH, "launch": f"{BATCH}-l{number:03d}-a00", "stack": "host", "nodes": 2, "gpus_per_node": 4}
    row |= {"hosts": "n1, n2", "start_utc": utc(start), "end_utc": utc(end), "end": "complete", "num_ok": 3}
    return row | {"cells_s": 24.0, "warmup_s": 6.0, "measuring_s": 15.0, "num_failed": 0} | columns


def job(begin=0, finish=100, **columns):
    row = {"batch": BATCH, "job": "7", "nodes": 2, "gpus_per_node": 4, "end": "finished"}
    times = {"start_utc": begin, "end_utc": finish}
    return row | {name: None if at is None else utc(at) for name, at in times.items()} | columns


def tables_of(launches, jobs):
    collected = make_table(launches, LAUNCHES), make_table(jobs, JOBS)
    return timeline_table(*collected), allocations_table(*collected)


def rows_of(table):
    return table.astype(object).where(table.notna(), None).to_dict("records")


def data_of(launches, jobs, device="cuda"):
    timeline, allocations = tables_of(launches, jobs)
    measurements = make_table([], MEASUREMENTS)
    return report_data(make_campaign([], device=device), measurements, timeline=timeline, allocations=allocations)


def test_a_launch_has_seconds_since_the_first_and_its_time_outside_cells():
    timeline, _ = tables_of([launch(1, 60, 105), launch(0, 5, 45)], [job(0, 110)])
    assert timeline["launch"].tolist() == [f"{BATCH}-l000-a00", f"{BATCH}-l001-a00"]
    columns = ["start_s", "end_s", "duration_s", "overhead_s", "job"]
    assert timeline[columns].to_numpy().tolist() == [[0, 40, 40, 16, "7"], [55, 100, 45, 21, "7"]]


def test_the_clock_of_the_ranks_decides_if_utc_times_show_less():
    timeline, allocations = tables_of([launch(0, 0, 10)], [job(0, 10)])
    [row], [allocation] = rows_of(timeline), rows_of(allocations)
    assert (row["duration_s"], row["end_s"], row["overhead_s"]) == (24, 24, 0)
    assert (allocation["allocation_s"], allocation["idle_s"]) == (24, 0)


def test_an_allocation_is_split_into_cells_launch_start_and_idle_time():
    _, allocations = tables_of([launch(0, 5, 45), launch(1, 50, 90, hosts="n2, n10")], [job(0, 100)])
    [row] = rows_of(allocations)
    assert (row["hosts"], row["num_launches"], row["start_s"], row["end_s"]) == ("n1, n2, n10", 2, -5, 95)
    assert [row[name] for name in ("allocation_s", "measuring_s", "warmup_s", "cells_s")] == [100, 30, 12, 48]
    assert (row["launch_start_s"], row["idle_s"], row["measuring_ratio"]) == (32, 20, 0.3)
    assert (row["gpu_hours"], row["idle_gpu_hours"]) == pytest.approx((8 * 100 / 3600, 8 * 20 / 3600))


HOURS_2 = 7200


@pytest.mark.parametrize(
    ("second", "finish", "step", "idle"),
    [
        ((50, 90), 100, None, 20),
        ((50 + HOURS_2, 90 + HOURS_2), 100 + HOURS_2, HOURS_2, 20),  # set between launches
        ((50, 90 + HOURS_2), 100 + HOURS_2, HOURS_2, 36),  # during the second: only its cells count
        ((50 - HOURS_2, 90 - HOURS_2), 100 - HOURS_2, -HOURS_2, 20),
        ((50, 90 - HOURS_2), 100 - HOURS_2, -HOURS_2, 36),
        ((50, 90 + 57), 100 + 57, 57, 0),  # the launches seem longer than their job: at most its time
    ],
)
def test_a_clock_that_is_set_during_a_job_is_no_idle_time(second, finish, step, idle):
    launches, jobs = [launch(0, 5, 45), launch(1, *second)], [job(0, finish, elapsed_s=100.0)]
    timeline, allocations = tables_of(launches, jobs)
    [row] = rows_of(allocations)
    assert (row["allocation_s"], row["cells_s"], row["idle_s"], row["clock_step_s"]) == (100, 48, idle, step)
    assert row["cells_s"] + row["launch_start_s"] + row["idle_s"] == 100
    assert row["gpu_hours"] == pytest.approx(8 * 100 / 3600)
    assert timeline["job"].tolist() == ["7", "7"]
    assert timeline["duration_s"].min() >= 24
    found = [finding.values for finding in findings(data_of(launches, jobs)) if finding.kind == "clock_step"]
    assert found == ([{"step_s": step, "num": 1}] if step else [])


def test_times_of_an_earlier_version_that_run_backwards_count_no_negative_hours():
    launches, jobs = [launch(0, 5, 45), launch(1, 50 - HOURS_2, 90 - HOURS_2)], [job(0, 100 - HOURS_2)]
    _, allocations = tables_of(launches, jobs)
    [row] = rows_of(allocations)
    assert (row["allocation_s"], row["idle_s"], row["clock_step_s"]) == (80, 0, 100 - HOURS_2)


def test_launches_belong_to_the_job_that_was_running():
    launches = [launch(0, 5, 45), launch(1, 998, 1040), launch(2, 1050, 1090)]  # one clock is 2 s behind
    jobs = [job(0, None, end="stopped"), job(1000, 1100, job="8")]
    timeline, allocations = tables_of(launches, jobs)
    assert timeline["job"].tolist() == ["7", "8", "8"]
    lost, finished = rows_of(allocations)
    assert (lost["end"], lost["num_launches"], lost["measuring_s"]) == ("stopped", 1, 15)
    assert [lost[name] for name in ("end_utc", "allocation_s", "idle_s", "gpu_hours", "measuring_ratio")] == [None] * 5
    assert (finished["num_launches"], finished["allocation_s"], finished["idle_s"]) == (2, 100, 18)


def test_a_job_without_a_launch_was_idle_and_a_batch_without_a_job_is_unknown():
    other = "n01g01-0000000000bb"
    _, allocations = tables_of([launch(0, 5, 45, batch=other, nodes=1, gpus_per_node=1)], [job(0, 90, end="no_start")])
    idle, unknown = rows_of(allocations)
    assert (idle["end"], idle["num_launches"], idle["idle_s"], idle["idle_gpu_hours"]) == ("no_start", 0, 90, 0.2)
    assert (unknown["batch"], unknown["job"], unknown["num_launches"], unknown["gpu_hours"]) == (other, None, 1, None)


def test_an_allocation_with_a_launch_of_unknown_length_has_no_idle_time():
    _, allocations = tables_of([launch(0, start_utc=None), launch(1, 50, 90)], [job(0, 100)])
    [row] = rows_of(allocations)
    assert (row["num_launches"], row["idle_s"], row["launch_start_s"], row["gpu_hours"]) == (2, None, None, None)


def test_hours_are_summed_over_allocations_of_different_shapes():
    other = "n01g01-0000000000bb"
    small = launch(0, 0, 40, batch=other, launch=f"{other}-l000-a00", nodes=1, gpus_per_node=1)
    _, allocations = tables_of([launch(), small], [job(0, 90), job(0, 900, batch=other, nodes=1, gpus_per_node=1)])
    hours = allocated_hours(allocations)
    # 8 ranks for 90 s and one for 900 s; a mean of the two shares of idle time would be 75.6 %.
    expected = {"total": 1620, "measuring": 9 * 15, "warmup": 9 * 6, "other": 9 * 3, "launch_start": 9 * 16}
    expected |= {"idle": 8 * 50 + 860, "import": 0}
    assert hours == pytest.approx({name: seconds / 3600 for name, seconds in expected.items()})
    assert sum(hours.values()) == pytest.approx(2 * hours["total"])
    jobs = [job(0, 90), job(0, 900, batch=other, nodes=1, gpus_per_node=1)]
    finding = kinds_of(data_of([launch(), small], jobs))["allocated_time"]
    assert finding.values["idle_ratio"] == pytest.approx(expected["idle"] / 1620)


def test_imports_are_a_part_of_launch_startup_where_they_were_recorded():
    launches = [launch(0, 0, 40, import_s=5.0), launch(1, 40, 80), launch(2, 80, 120, import_s=20.0)]
    timeline, allocations = tables_of(launches, [job(0, 120)])
    assert timeline["import_s"].fillna(-1).tolist() == [5, -1, 16]  # at most the 16 s outside cells
    assert allocations[["launch_start_s", "import_s"]].to_numpy().tolist() == [[48, 21]]
    hours = allocated_hours(allocations)
    assert (hours["launch_start"], hours["import"]) == pytest.approx((8 * 27 / 3600, 8 * 21 / 3600))
    [unknown] = rows_of(tables_of([launch()], [job(0, 54)])[1])
    assert unknown["import_s"] is None
    words = kinds_of(data_of(launches, [job(0, 120)]))["allocated_time"].words["shares"]
    assert re.search(r"\b18\b", words)  # 21 of 120 s
    assert "imports" not in kinds_of(data_of([launch()], [job(0, 54)]))["allocated_time"].words["shares"]


def test_imports_fit_into_an_allocation_whose_clock_was_stepped_forward():
    launches = [launch(0, 0, 40 + HOURS_2, import_s=5.0), launch(1, 50, 90, import_s=5.0)]
    _, allocations = tables_of(launches, [job(0, 50 + HOURS_2, elapsed_s=50.0)])
    [row] = rows_of(allocations)
    assert 0 <= row["import_s"] <= row["launch_start_s"]


def kinds_of(data):
    return {finding.kind: finding for finding in findings(data)}


def test_the_idle_time_of_allocations_has_its_hours_and_share():
    finding = kinds_of(data_of([launch()], [job(0, 54)]))["allocated_time"]  # 14 s of idle time
    assert finding.values["idle_ratio"] == pytest.approx(14 / 54)
    assert finding.values["idle_hours"] == pytest.approx(8 * 14 / 3600)
    assert finding.values["allocated_hours"] == pytest.approx(8 * 54 / 3600)
    assert finding.sources[0].rows == ("row 1",)
    assert finding.words["idle"] == "1.9 GPU minutes"
    assert finding.values["num_excluded"] == 0


def test_the_section_lists_the_launches():
    assert section(data_of([launch()], [job(0, 54)])).figures == ()  # below five minutes
    shown = section(data_of([launch(end=400)], [job(0, 540)], device="cpu"))
    launches = shown.figures[0].table
    assert launches.rows == (("0 s", "6.7 min", BATCH, "host", "2×4", "n1, n2", "3", "0"),)  # what a bar's title says
    assert shown.state[0] == "26 % idle"


def test_without_recorded_jobs_there_are_launches_and_no_shares():
    shown = section(data_of([launch()], []))
    assert shown.state[0] == "1 launch"
    found = kinds_of(data_of([launch()], []))
    assert found.keys() == {"allocated_time"}
    assert found["allocated_time"].values == {"num": 1}  # no hours
    assert TOPIC.stated(found["allocated_time"]).text
    assert findings(data_of([], [])) == []
    assert section(data_of([], [])) is None


def test_the_axis_is_broken_only_at_gaps_longer_than_all_launches_together():
    assert runs_of([(0, 100), (190, 200)]) == [(0, 200)]
    assert runs_of([(0, 100), (50, 140), (300, 320), (WEEK, WEEK + 40)]) == [(0, 320), (WEEK, WEEK + 40)]
    many = [(10_000 * n, 10_000 * n + 10) for n in range(40)]
    assert len(runs_of(many + [(10_000 * 40 + 1000 * n, 10_000 * 40 + 1000 * n + 10) for n in range(3)])) <= 11


def test_ticks_are_round_times_since_the_first_start_and_in_later_runs_since_theirs():
    assert ticks_of([(-5, 1195)]) == [[(-5, "0 s"), *((300 * n - 5, f"{5 * n} min") for n in (1, 2, 3, 4))]]
    _, later = ticks_of([(0, 600), (WEEK, WEEK + 600)])
    assert [label for _, label in later] == ["7 days", "+5 min", "+10 min"]
    assert len(ticks_of([(0, 40 * 86400)])[0]) == 5
    texts = ["0.500 s", "30 s", "1.5 min", "1.5 h", "1 day", "7 days"]
    assert [elapsed_text(s) for s in (0.5, 30, 90, 5400, 86400, 7.04 * 86400)] == texts


def rows_of_chart(launches, jobs=()):
    timeline, allocations = tables_of(launches, list(jobs))
    return bars_of(rows_of(timeline.assign(repeat=range(len(timeline)))), rows_of(allocations))


# Of 40 s, by `launch`: 16 s outside cells, 3 s of setup and checks, 6 s of warm-up, 15 s of measuring.
SPENT = [("launch startup", 0, 16), ("setup and checks", 16, 3), ("warm-up", 19, 6), ("measuring", 25, 15)]


def test_a_row_is_a_host_with_its_launches_and_its_allocation():
    failed = launch(1, 60, 100, hosts="n2, n10", num_ok=0, num_failed=3, warmup_s=0.0, measuring_s=0.0)
    failure = [("launch startup", 60, 16), ("failed", 76, 24)]
    found = rows_of_chart([launch(0, 0, 40), failed], [job(0, 100)])
    assert {name: [bar[:3] for bar in bars] for name, bars in found.items()} == {
        "n1": [("allocated, idle", 0, 100), *SPENT],
        "n2": [("allocated, idle", 0, 100), *SPENT, *failure],
        "n10": [("allocated, idle", 0, 100), *failure],
    }
    assert all(word in found["n2"][1][3] for word in (BATCH, "launch 1", "40 s (16 s", "15 s", "0 failed"))
    assert all(word in found["n2"][-1][3] for word in (BATCH, "launch 2", "40 s", "3 failed"))


def test_a_host_of_launches_of_less_than_a_second_has_no_row():
    """Such as one on which no rank starts: both times are the same second, and no cell was measured."""
    short = launch(1, 50, 50, hosts="n2", cells_s=0, warmup_s=0, measuring_s=0, num_ok=0, num_failed=0)
    rows = rows_of_chart([launch(hosts="n1"), short])
    assert list(rows) == ["n1"]


@pytest.mark.parametrize(
    ("num_ok", "num_failed", "cells_s", "bars"),
    [
        (3, 0, 24.0, SPENT),
        # Of 28 s in cells, a quarter is that of the failed one.
        (3, 1, 28.0, [("launch startup", 0, 12), ("warm-up", 12, 6), ("measuring", 18, 15), ("failed", 33, 7)]),
        (0, 1, 0.0, [("failed", 0, 40)]),
        (0, 0, 0.0, [("no records", 0, 40)]),
    ],
)
def test_the_parts_of_a_launch_and_the_share_that_failed_are_bars(num_ok, num_failed, cells_s, bars):
    found = rows_of_chart([launch(hosts="n1", num_ok=num_ok, num_failed=num_failed, cells_s=cells_s)])
    assert [bar[:3] for bar in found["n1"]] == bars


def test_imports_are_a_bar_between_the_other_startup_and_setup():
    found = rows_of_chart([launch(hosts="n1", import_s=5.0)])["n1"]
    assert [bar[:3] for bar in found[:3]] == [
        ("launch startup", 0, 11),
        ("imports", 11, 5),
        ("setup and checks", 16, 3),
    ]
    assert all(word in found[0][3] for word in ("16 s", "5 s"))


def test_all_of_64_nodes_are_shown_and_of_more_those_with_failures_are_among_them():
    launches = [launch(n, 50 * n, 50 * n + 40, hosts=f"n{n}", num_failed=int(n in (68, 69))) for n in range(70)]
    shown = shown_rows(rows_of_chart(launches))
    assert (len(shown), shown[-3:]) == (64, ["n61", "n68", "n69"])
    assert len(shown_rows(rows_of_chart(launches[:64]))) == 64
    assert "6 of 70 nodes" in section(data_of(launches, [])).lead
    assert "nodes" not in section(data_of(launches[:64], [])).lead


def test_beyond_100_launches_a_bar_sums_consecutive_ones_of_a_batch_by_part():
    hosts = [f"n{n}" for n in range(64)]
    launches = [launch(n, 50 * n, 50 * n + 40, hosts=", ".join(hosts), import_s=5.0) for n in range(101)]
    launches[0] |= {"num_ok": 1, "num_failed": 2}  # 16 of 24 s in cells
    launches[100] |= {"batch": "n02g04-0000000000bb"}
    rows = rows_of_chart(launches)
    assert shown_rows(rows) == hosts
    # 400 bars on 64 rows are 6 of each, so 17 launches in one bar, and 15 in the last of 100.
    starts = [start for state, start, *_ in rows["n7"] if state == "launch startup"]
    assert starts == [850 * n for n in range(6)] + [5000]
    sums = {}
    for state, _, seconds, *_ in rows["n7"]:
        sums[state] = sums.get(state, 0) + seconds
    assert sums["failed"] == pytest.approx(16)
    # The rest of the first launch is 24 s, of parts that sum to 16 + 6 + 15 = 37 s.
    rest = 24 / 37
    parts = {"launch startup": 1100 + 11 * rest, "imports": 500 + 5 * rest, "setup and checks": 300}
    parts |= {"warm-up": 600 + 6 * rest, "measuring": 1500 + 15 * rest, "failed": 16}
    assert sums == pytest.approx(parts)
    assert "sums several" in section(data_of(launches, [])).lead
    single = rows_of_chart(launches[:100])["n7"]
    assert len({bar[3] for bar in single}) == 100


def test_a_sum_of_launches_does_not_span_a_gap_of_the_axis():
    starts = [50 * n for n in range(60)] + [WEEK + 50 * n for n in range(60)]
    hosts = ", ".join(f"n{n}" for n in range(64))
    rows = rows_of_chart([launch(n, start, start + 40, hosts=hosts) for n, start in enumerate(starts)])
    begins = [start for state, start, *_ in rows["n1"] if state == "launch startup"]
    assert begins == [0, 1000, 2000, WEEK, WEEK + 1000, WEEK + 2000]  # 20 launches in each


def test_shares_of_all_launches_are_stated_unless_the_finding_on_allocations_has_them():
    spent = section(data_of([launch(0, 0, 40), launch(1, 50, 90)], [])).lead
    assert list(map(float, re.findall(r"([\d.]+) %", spent))) == [40, 7.5, 15, 38]
    assert section(data_of([launch()], [job()])).lead == ""


@pytest.mark.usefixtures("drawing")
def test_a_part_of_a_launch_is_a_bar_on_each_of_its_hosts_and_has_its_row(tmp_path):
    shown = section(analyse(write_nights(tmp_path / "r")))
    [figure] = shown.figures
    bars = ElementTree.fromstring(figure.svg).findall(".//path[@data-mark]")
    # By shape: 6 launches on 1 host, 6 on 2, 6 on 4, 6 on 2, each of 5 parts; 3 on 2 hosts have a sixth, the failed one,
    # and one on 4 hosts has only startup, imports and failure.
    assert sum(bar.get("d").count("m") for bar in bars) == 5 * (6 + 12 + 24 + 12) + 3 * 2 - 2 * 4
    marks = figure.chart.marks.iloc[[int(bar.get("data-mark")) for bar in bars]]
    assert marks["launch"].nunique() == 24
    assert len(bars) == 5 * 24 + 3 - 2  # one element on all hosts
    assert shown.lead == ""


def test_times_are_read_from_the_request_else_from_the_first_line(tmp_path):
    campaign = make_campaign(timed_cells(2, "host"), device="cuda", repeats=3)
    folder = tmp_path / "r"
    write_results(folder, campaign | {"cells": []}, LAPTOP)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    for repeat, options in enumerate(({}, {"is_requested": False, "import_s": None}, {"num_failed": 1})):
        name = f"{BATCH}-l{repeat:03d}-a00"
        write_launch(folder, name, campaign["cells"], 60 * repeat, ["a", "b"], repeat=repeat, **options)
    path = folder / "launches" / f"{BATCH}-l002-a00.jsonl"
    first, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    write_lines(path, [first | {"environment": None}, *lines[:-1], {"kind": "x"}])
    launches = analyse(folder).tables["launches"]
    assert launches["start_utc"].tolist() == [utc(0), utc(62), utc(120)]  # 8 s until the first line, minus 6 s
    assert launches["end_utc"].tolist() == [utc(40), utc(100), utc(154)]
    rows = rows_of(launches)
    assert [row["end"] for row in rows] == ["complete", "complete", None]
    assert [row["hosts"] for row in rows] == ["a, b", "a, b", None]
    assert [row["import_s"] for row in rows] == [4.5, None, None]
    assert [(row["cells_s"], row["warmup_s"], row["measuring_s"]) for row in rows] == [
        (24, 6, 15),
        (24, 6, 15),
        (24, 4, 10),
    ]
    assert [(row["num_ok"], row["num_failed"]) for row in rows] == [(3, 0), (3, 0), (2, 1)]


def test_the_end_of_a_job_is_unknown_if_the_next_job_wrote_it(tmp_path):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet18", 1, 2)]), LAPTOP)
    lost = "end not recorded: it was killed, or its node failed"
    write_job(folder, BATCH, "7", 0, None)
    write_job(folder, BATCH, "7", None, 500, kind="stopped", cause=lost)
    write_job(folder, BATCH, None, 500, 560, kind="node_failure")
    write_job(folder, BATCH, "9", None, 700, kind="stopped")  # its first line was lost
    write_job(folder, BATCH, "10", 900, None)
    with (folder / "batches" / BATCH / "jobs.jsonl").open("a") as file:
        file.write('{"kind": "finished", "job": "10", "hosts": [], "cause": "", "time_utc": "<b>"}\n{"kind"')
    jobs = rows_of(analyse(folder).tables["jobs"])
    assert [(row["job"], row["start_utc"], row["end_utc"], row["end"]) for row in jobs] == [
        ("7", utc(0), None, "stopped"),
        (None, utc(500), utc(560), "node_failure"),
        ("9", None, utc(700), "stopped"),
        ("10", utc(900), None, "finished"),
    ]


def test_hostile_names_are_escaped(tmp_path):
    folder = tmp_path / "r"
    bad = '"><script>x</script>'
    cells = timed_cells(2, bad)
    campaign = make_campaign(cells, device="cuda", repeats=1)
    folder.mkdir()
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    write_launch(folder, f"{BATCH}-l000-a00", cells, 0, [bad, "n2\x1b[31m" + 10_000 * "x"])
    page = make_report(folder).read_text(encoding="utf-8")
    shown = page.partition('<section id="timeline"')[2].partition("</section>")[0]
    assert "<script>" not in shown
    assert "\x1b" not in shown
    assert bad in html.unescape(shown)
    assert len(shown) < 40_000


def test_launches_that_overlap_on_a_host_are_a_warning():
    """Two batches at once: n2 is in both for 20 s. One second more than the tolerance of clocks is enough."""
    other = {"batch": "other", "hosts": "n2, n3"}
    rows = [launch(0, 0, 40), launch(1, 40, 80), launch(2, 60, 90, launch="other-l000-a00", **other)]
    data = data_of(rows, [])
    assert overlaps(data.tables["timeline"]) == [(f"{BATCH}-l001-a00", "other-l000-a00", "n2")]
    finding = kinds_of(data)["overlapping_launches"]
    assert finding.values == {"num": 2, "num_launches": 3, "num_hosts": 1}
    assert finding.sources[0].rows == ("row 2", "row 3")
    assert TOPIC.stated(finding).rank == LOW


def test_overlaps_are_those_of_all_pairs():
    """A launch is in a pair if and only if it overlaps with any other on a host."""
    rng = random.Random(1)
    for _ in range(100):
        rows = []
        for number in range(rng.randint(2, 8)):
            start, hosts = rng.randint(0, 200), rng.sample(["n1", "n2", "n3"], rng.randint(1, 3))
            rows.append(launch(number, start, start + rng.randint(7, 90), hosts=", ".join(hosts)))
        found = {name for one, other, _ in overlaps(tables_of(rows, [])[0]) for name in (one, other)}
        expected = set()
        for one, other in itertools.combinations(rows, 2):
            seconds = min(one["end_utc"], other["end_utc"]), max(one["start_utc"], other["start_utc"])
            common = utc_seconds(seconds[0]) - utc_seconds(seconds[1])
            if common > 5 and set(one["hosts"].split(", ")) & set(other["hosts"].split(", ")):
                expected |= {one["launch"], other["launch"]}
        assert found == expected


def test_launches_without_times_or_hosts_do_not_overlap():
    rows = [launch(0), launch(1, start_utc=None), launch(2, hosts=None), launch(3, 100, 130)]
    assert "overlapping_launches" not in kinds_of(data_of(rows, []))
