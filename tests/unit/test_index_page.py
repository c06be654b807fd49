"""The index of a results folder: its campaigns, and the history of those with cells in common."""

import html
import json
import math
import os
import re
import shutil
import time
import urllib.parse
from pathlib import Path

import pandas as pd
import pytest
from comparison_results import cell_of, write_folder
from synthetic import analyse, train_cell, write_laptop
from typed import typed

import warm_start
from regatta.compare.campaign_history import (
    MOST_CAMPAIGNS,
    MOST_CHANGES,
    MOST_SERIES,
    connected,
    read_keys,
    read_trends,
)
from regatta.compare.index import answers, index_page, neighbors, read_entries, read_entry, rows_of
from regatta.core.errors import UserError
from regatta.topics.summary import answer_json

SMALL, LARGE = cell_of("bound", 4096), cell_of("bound", 16384)
HOSTILE = '"><script>alert(1)</script>'


def write_answer(folder, day="21", **fields):
    """Write answer.json: 51 planned measurements, all ok."""
    answer = {"schema": 1, "campaign": folder.name, "cluster": "local", "device": "cpu"}
    answer |= {"first_record_utc": f"2026-11-{day}T03:00:05Z", "last_record_utc": f"2026-11-{day}T04:10:05Z"}
    answer |= {"num_planned": 51, "num_by_status": {"ok": 51}}
    answer["lines"] = [
        {"id": "subject", "lead": "ResNet-18", "text": "", "anchor": "matrix", "values": {}},
        {
            "id": "scaling",
            "lead": "Scaling on 2 processes: 37 %",
            "text": "uncertain",
            "anchor": "scaling",
            "values": {},
        },
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answer.json").write_text(json.dumps(answer | fields), encoding="utf-8")
    return folder


def write_campaign(folder, times, day="21", environment=None, **fields):
    """Write a results folder with an answer."""
    write_folder(folder, times, day, environment, **fields)
    return write_answer(folder, day)


def at(cell, *gb_per_s):
    """Return a cell and the times of launches with these bus bandwidths: on two ranks, bytes / time."""
    return cell, [cell["spec"]["parameters"]["message_bytes"] / rate / 1e9 for rate in gb_per_s]


def trends_of(folder):
    entries = read_entries(folder)[0]
    return read_trends({entry.folder: entry.keys for entry in entries if entry.answer and entry.keys != {}})


def texts(column):
    return [point.text.replace("\N{NO-BREAK SPACE}", " ") for point in column.points.values()]


def numbers(column, num):
    return [column.points[place].number if place in column.points else None for place in range(num)]


# The list of campaigns.


def test_campaigns_are_listed_latest_record_first_and_those_without_records_last(tmp_path):
    for name, day in (("may", "09"), ("june", "21"), ("a-tie", "09")):
        write_answer(tmp_path / name, day)
    write_answer(tmp_path / "never", first_record_utc=None, last_record_utc=None)
    (tmp_path / "planned").mkdir()
    (tmp_path / "planned" / "plan.json").touch()
    for name in ("foreign", ".hidden", "compare"):
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").touch()
    (tmp_path / "loop").symlink_to("loop")
    entries, others = read_entries(tmp_path)
    assert [entry.name for entry in entries] == ["june", "a-tie", "may", "never", "planned"]
    assert others == ["foreign"]
    assert [entry.records for entry in entries[::3]] == [["2026-11-21 03:00", "04:10"], ["n/a"]]
    assert (entries[0].machine, entries[4].machine) == ("local, cpu", "n/a")


def test_the_answer_of_a_report_is_accepted(tmp_path):
    answer = answer_json(analyse(write_laptop(tmp_path / "laptop")))
    (tmp_path / "laptop" / "answer.json").write_text(json.dumps(answer))
    entry = read_entry(tmp_path / "laptop")
    assert (entry.problem, entry.records) == (None, ["2026-11-21 03:01", "03:06"])
    assert [(re.findall(r"\d+", text), css) for text, css in entry.status] == [
        (["1", "51"], "bad"),
        (["3", "51"], "bad"),
    ]


def test_records_of_two_days_have_both_dates(tmp_path):
    entry = read_entry(write_answer(tmp_path / "a", last_record_utc="2026-11-22T00:01:00Z"))
    assert entry.records == ["2026-11-21 03:00", "2026-11-22 00:01"]
    entry = read_entry(write_answer(tmp_path / "a", last_record_utc="2026-11-21T03:00:59Z"))
    assert entry.records == ["2026-11-21 03:00"]


@pytest.mark.parametrize(
    ("planned", "counts", "status"),
    [
        (51, {"ok": 51}, [("complete", "good")]),
        (51, {"ok": 40, "not_measured": 10, "not_started": 1}, [("incomplete: 11 of 51", "bad")]),
        (1200, {"ok": 1, "failed": 1198, "timeout": 1}, [("failed: 1,199 of 1,200", "bad")]),
        (3, {"failed": 1, "not_measured": 2}, [("incomplete: 2 of 3", "bad"), ("failed: 1 of 3", "bad")]),
        (0, {}, [("nothing planned", "quiet")]),
    ],
)
def test_the_status_counts_what_is_missing_and_what_failed(tmp_path, planned, counts, status):
    entry = read_entry(write_answer(tmp_path / "a", num_planned=planned, num_by_status=counts))
    assert entry.status == status


def test_a_campaign_without_an_answer_has_no_report_yet(tmp_path):
    write_folder(tmp_path / "a", [(SMALL, [1.0])])
    assert read_entry(tmp_path / "a").status == [("no report yet", "quiet")]
    assert "no report yet" in index_page(tmp_path)


def test_a_campaign_links_to_its_report_and_its_plan_if_they_exist(tmp_path):
    entry = read_entry(write_answer(tmp_path / "a b"))
    assert entry.report is None
    for name in ("report.html", "plan.html"):
        (tmp_path / "a b" / name).touch()
    assert entry.report == "a%20b/report.html"
    hrefs = re.findall('href="([^"#][^"]*)"', index_page(tmp_path))
    assert sorted(hrefs) == ["a%20b/plan.html", "a%20b/report.html", "data:,"]


def write_bytes(content):
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (write_bytes(b"{"), "not a JSON object"),
        (write_bytes(b"\xff"), "not a JSON object"),
        (write_bytes(b"[" * 100_000), "not a JSON object"),
        (write_bytes(b"[]"), None),
        (write_bytes(b"null"), None),
        (write_bytes(b"{}"), None),
        (os.mkfifo, "Is a pipe or device"),
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    ],
)
def test_a_damaged_answer_is_reported_and_hides_nothing_else(tmp_path, damage, problem):
    write_answer(tmp_path / "good")
    write_answer(tmp_path / "bad")
    (tmp_path / "bad" / "answer.json").unlink()
    damage(tmp_path / "bad" / "answer.json")
    entry = read_entry(tmp_path / "bad")
    assert entry.answer is None
    assert entry.problem == problem if problem else entry.problem
    assert entry.status == [(f"answer.json damaged: {entry.problem}", "bad")]
    page = index_page(tmp_path)
    assert "answer.json damaged" in page
    assert page.count('class="state ">') == 1  # the other one


@pytest.mark.parametrize(
    "fields",
    [
        {"schema": 2},
        {"cluster": None},
        {"num_planned": -1},
        {"num_planned": 1.5},
        {"num_by_status": {"ok": "51"}},
        {"last_record_utc": "yesterday"},
        {"first_record_utc": 0},
        {"lines": [{"lead": 1, "text": "", "anchor": ""}]},
        {"lines": ["text"]},
    ],
)
def test_an_answer_that_breaks_its_contract_is_damaged(tmp_path, fields):
    assert read_entry(write_answer(tmp_path / "a", **fields)).problem


def test_hostile_names_and_texts_are_escaped_and_their_links_lead_to_the_files(tmp_path):
    names = [
        HOSTILE.replace("/", "|"),
        "javascript:alert(1)",
        "a\nb",
        "\x1b[31m",
        os.fsdecode(b"x\xe9y"),
        "-dash",
        "%41 #?",
    ]
    line = {"id": "x", "lead": HOSTILE + "\x1b[31m" + "x" * 10_000, "text": HOSTILE, "anchor": f"{HOSTILE}#"}
    for name in names:
        write_answer(tmp_path / name, cluster=HOSTILE, device=HOSTILE, lines=[line] * 50)
        (tmp_path / name / "report.html").touch()
    (tmp_path / HOSTILE.replace("/", "|").join("ab")).mkdir()
    (tmp_path / "compare").mkdir()
    (tmp_path / "compare" / f"{names[0]}.html").touch()
    page = index_page(tmp_path)
    assert page.count("<script") == page.count("</script>") == 1
    assert "\x1b" not in page
    assert "x" * 500 not in page
    assert "default-src 'none'" in page
    hrefs = {html.unescape(href).partition("#")[0] for href in re.findall('href="([^"]*)"', page)} - {"", "data:,"}
    assert len(hrefs) == len(names) + 1
    for href in hrefs:
        assert os.path.isfile(os.path.join(os.fsencode(tmp_path), urllib.parse.unquote_to_bytes(href)))
        assert ":" not in href
    page.encode()


def test_an_empty_folder_gives_a_page_and_a_missing_one_an_error(tmp_path, wording):
    assert "<table" not in index_page(tmp_path)
    with wording.raises(UserError):
        index_page(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Not a directory"):
        index_page(tmp_path / "file")


# Groups of campaigns.


def test_campaigns_are_connected_through_others_and_in_the_order_given():
    keys = {name: dict.fromkeys(cells, "id") for name, cells in (("e", "xy"), ("d", "pq"), ("c", "yz"), ("b", "q"))}
    keys |= {"a": {"z": "id"}, "alone": {"w": "id"}, "imported": {}}
    assert connected(keys) == [["e", "c", "a"], ["d", "b"]]


def test_two_groups_that_a_later_campaign_joins_become_one():
    keys = {name: dict.fromkeys(cells, "id") for name, cells in (("d", "x"), ("c", "y"), ("b", "y"), ("a", "xy"))}
    assert connected(keys) == [["d", "c", "b", "a"]]


@pytest.mark.parametrize("changed", [{"version": 3}, {"nodes": 2}, {"parameters": {"message_bytes": 1}}])
def test_another_version_shape_or_parameter_is_another_cell(tmp_path, changed):
    frozen = write_folder(tmp_path / "a", [(SMALL, [1.0])]) / "campaign.0123456789ab.json"
    [key] = read_keys(frozen)
    campaign = json.loads(frozen.read_text())
    campaign["cells"][0]["id"] = "other-id"
    campaign["cells"][0]["spec"]["cluster"] = "another name, as in a comparison"
    frozen.write_text(json.dumps(campaign))
    assert read_keys(frozen) == {key: typed(campaign["cells"][0])}
    campaign["cells"][0]["spec"] |= changed
    frozen.write_text(json.dumps(campaign))
    assert key not in read_keys(frozen)


@pytest.mark.parametrize("content", [b"{", b"[]", b"null", b'{"cells": [{}]}', b'{"cells": 1}', b"[" * 100_000])
def test_a_damaged_campaign_file_has_no_cells(tmp_path, content):
    path = tmp_path / "campaign.0.json"
    path.write_bytes(content)
    assert read_keys(path) is None


def test_an_imported_campaign_is_not_dated(tmp_path):
    for name in ("a", "b"):
        write_campaign(tmp_path / name, [(SMALL, [1.0])], imported=[])
    assert read_entry(tmp_path / "a").records == ["imported 2026-11-21"]
    assert trends_of(tmp_path).trends == []


# Trends.


def test_a_trend_follows_a_cell_of_the_latest_campaign(tmp_path, wording):
    write_campaign(tmp_path / "june", [at(SMALL, 1.0), at(LARGE, 1.6, 2.5)], "21")  # whose geometric mean is 2
    write_campaign(tmp_path / "may", [at(LARGE, 4.0)], "09")
    write_campaign(tmp_path / "april", [at(SMALL, 2.0), (LARGE, ["failed"])], "01")
    [trend] = trends_of(tmp_path).trends
    assert [folder.name for folder in trend.folders] == ["april", "may", "june"]
    column = trend.followed[0]
    assert column.cell.endswith("16 KiB")
    assert numbers(column, 3) == [None, pytest.approx(4.0), pytest.approx(2.0)]
    wording([column.title, *texts(column)])


def test_a_trend_does_not_select_the_cell_that_is_highest_by_chance_in_the_latest_campaign(tmp_path):
    """SMALL: 1.0, then 3.0. LARGE: 2.0, then 2.5. In its lowest campaign, LARGE is higher."""
    for name, day, small, large in (("a", "01", 1.0, 2.0), ("b", "02", 3.0, 2.5)):
        write_campaign(tmp_path / name, [at(SMALL, small), at(LARGE, large)], day)
    [trend] = trends_of(tmp_path).trends
    assert trend.followed[0].cell.endswith("16 KiB")
    assert numbers(trend.followed[0], 2) == pytest.approx([2.0, 2.5])


def test_the_throughput_is_that_of_the_largest_shape(tmp_path, wording):
    """Efficiency, a ratio within a campaign, would be the same in a night in which all is slower."""
    one, two, other = (train_cell("resnet18", *where, batch_size=8) for where in ((1, 1), (1, 2), (2, 2)))
    times, baseline = [(one, [1.0]), (two, [2.5])], {"nodes": 1, "gpus_per_node": 1}
    write_campaign(tmp_path / "a", times, "01", baseline=baseline)
    write_campaign(tmp_path / "b", [*times, (other, [1.0])], "02", baseline=baseline)
    [trend] = trends_of(tmp_path).trends
    [throughput] = trend.followed
    assert "1×2" in throughput.cell
    assert numbers(throughput, 2) == pytest.approx([6.4] * 2)
    wording([text for column in trend.followed[:2] for text in texts(column)])


def test_the_line_of_a_campaign_shows_a_change_of_one_percent_within_the_margin(tmp_path):
    for name, day, ratio in (("a", "01", 1.0), ("b", "02", 1.01), ("c", "03", 1.0)):
        write_campaign(tmp_path / name, [(SMALL, [ratio]), (LARGE, [2 * ratio])], day)
    [trend] = trends_of(tmp_path).trends
    assert trend.axis.end == pytest.approx(2 * math.log(1.05))
    change = 42 * math.log(1.01) / (2 * math.log(1.05))
    assert [height for _, height, *_ in trend.dots(2)] == pytest.approx([50, 50 - change, 50], abs=0.06)
    assert [len(trend.dots(place)) for place in range(3)] == [1, 2, 3]


def test_a_change_of_the_environment_is_marked_and_an_unknown_one_is_no_change(tmp_path, wording):
    variables = {"X": HOSTILE + "x" * 10_000} | {f"Y{number}": "x" for number in range(4)}
    for name, day, environment in (
        ("a", "01", {"torch": "2.12.1"}),
        ("b", "02", {"torch": "2.13.0"}),
        ("c", "03", {"torch": "2.13.0"}),
        ("d", "04", {"torch": "2.13.0", "variables": variables}),
        ("e", "05", None),
    ):
        write_campaign(tmp_path / name, [(SMALL, [1.0])], day, environment)
    shutil.rmtree(tmp_path / "e" / "launches")
    [trend] = trends_of(tmp_path).trends
    assert [changes and len(changes) for changes in trend.changes[:3]] == [None, 1, []]
    assert HOSTILE in " ".join(trend.changes[3])
    assert len(trend.changes[3]) == MOST_CHANGES + 1
    assert trend.changes[3][-1] == "and 2 more"  # of six: Y0 to Y3, X, and OMP_NUM_THREADS, which is not set
    wording(trend.changes[1])
    assert max(map(len, trend.changes[3])) == 200
    assert trend.changes[4] is None
    page = index_page(tmp_path)
    assert len(re.findall('class="environment" title=', page)) == 2
    assert page.count("<script") == 1


def test_neighbors_without_a_common_stack_have_no_known_change(tmp_path):
    other = cell_of("contained", 4096)
    for name, day, cells in (("a", "01", [SMALL]), ("b", "02", [other]), ("c", "03", [SMALL, other])):
        write_campaign(tmp_path / name, [(cell, [1.0]) for cell in cells], day)
    [trend] = trends_of(tmp_path).trends
    assert trend.changes == [None, None, []]
    assert [since and since.base for since in trend.since] == [None, None, 1]


def test_a_campaign_that_cannot_be_read_is_named_and_the_others_are_followed(tmp_path):
    for day in ("01", "02", "03", "04"):
        write_campaign(tmp_path / f"c{day}", [(SMALL, [1.0])], day)
    (tmp_path / "c02" / "measurements.csv").write_text("cell\nx\n")
    (tmp_path / "c03" / "measurements.csv").unlink()
    os.mkfifo(tmp_path / "c03" / "measurements.csv")
    found = trends_of(tmp_path)
    assert [folder.name for folder in found.trends[0].folders] == ["c01", "c04"]
    assert {folder.name: str(folder) in text for folder, text in found.problems.items()} == {"c03": True, "c02": True}
    assert re.search(r"be compared: (\d)", index_page(tmp_path))[1] == "2"


def damage_cells(folder):
    (folder / "campaign.0123456789ab.json").write_text('{"cells": [')


def remove_cells(folder):
    (folder / "campaign.0123456789ab.json").unlink()


def add_cells(folder):
    (folder / "campaign.ba9876543210.json").write_text("{}")


def damage_measurements(folder):
    (folder / "measurements.csv").write_text("cell\nx\n")


@pytest.mark.parametrize("damage", [damage_cells, remove_cells, add_cells, damage_measurements])
def test_a_campaign_whose_files_are_damaged_is_marked_and_not_green(tmp_path, damage):
    write_nights(tmp_path, [1.0, 1.0, 1.0])
    damage(tmp_path / "night-03")
    last, other, first = index_rows(tmp_path)
    assert ([css for _, css in last.states], last.since) == (["", "bad"], None)
    assert "night-03" in trends_of(tmp_path).problems[last.entry.folder]
    assert [css for row in (other, first) for _, css in row.states] == ["good", ""]


@pytest.mark.parametrize(("repeat", "num_problems"), [("", 1), ("900000000", 0)])
def test_a_damaged_number_of_a_launch_stops_no_index(tmp_path, repeat, num_problems):
    for day in ("01", "02", "03"):
        write_campaign(tmp_path / f"c{day}", [(SMALL, [1.0, 1.0])], day)
    path = tmp_path / "c02" / "measurements.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.loc[0, "repeat"] = repeat
    table.to_csv(path, index=False)
    found = trends_of(tmp_path)
    assert [str(path) in problem for problem in found.problems.values()] == [True] * num_problems
    assert len(found.trends[0].folders) == 3 - num_problems


def test_cells_in_common_that_were_not_measured_twice_have_no_history(tmp_path):
    write_campaign(tmp_path / "a", [(SMALL, [1.0])], "01")
    write_campaign(tmp_path / "b", [(SMALL, ["failed"])], "02")
    assert trends_of(tmp_path).trends == []
    assert 'class="dots"' not in index_page(tmp_path)


def test_older_campaigns_and_groups_beyond_the_limits_are_counted(tmp_path):
    for number in range(MOST_CAMPAIGNS + 2):
        write_campaign(tmp_path / f"c{number:02d}", [(SMALL, [1.0])], f"{number + 1:02d}")
    [trend] = trends_of(tmp_path).trends
    assert (trend.num_older, len(trend.folders)) == (2, MOST_CAMPAIGNS)
    assert trend.folders[-1].name == f"c{MOST_CAMPAIGNS + 1:02d}"
    assert "2 older" in index_page(tmp_path)
    folders = [tmp_path / f"none{number}" for number in range(2 * (MOST_SERIES + 3))]
    assert read_trends({folder: {str(place // 2): "id"} for place, folder in enumerate(folders)}).num_more == 3


# Changes since the previous campaign.

FIVE = [1.00, 1.01, 1.02, 1.03, 1.04]
CELLS = [cell_of("bound", 1024 << place) for place in range(10)]


def write_nights(folder, nights, launches=FIVE):
    """Write a campaign for each night. nights: ratios of the times of CELLS, or of all of them; None: not measured."""
    for day, ratios in enumerate(nights, start=1):
        ratios = [ratios] * len(CELLS) if isinstance(ratios, float) else ratios
        times = [(cell, [ratio * t for t in launches]) for cell, ratio in zip(CELLS, ratios, strict=True) if ratio]
        write_campaign(folder / f"night-{day:02d}", times, f"{day:02d}", {"torch": f"2.{day}"})


def index_rows(folder):
    """Return the rows of the table, the latest first."""
    found = trends_of(folder)
    trends = [(trend, neighbors(folder, trend)) for trend in found.trends]
    return rows_of(read_entries(folder)[0], trends, found.problems)


def test_a_night_that_is_30_percent_slower_is_complete_and_slower_and_not_green(tmp_path):
    write_nights(tmp_path, [1.0, 1.0, 1.3])
    last, *others, first = index_rows(tmp_path)
    assert [text.split()[-1] for text, _ in last.states] == ["complete", "slower"]
    assert "good" not in {css for _, css in last.states}
    assert last.since.counts == {"slower": 10}
    assert last.since.time_ratio == pytest.approx(1.3)
    assert [row.states for row in others] == [[("complete", "good")]]
    assert first.states == [("complete", "")]  # compared with none
    assert (others[0].since.verdict, first.since) == ("equivalent", None)
    [(css, _, lead, notes)] = answers(trends_of(tmp_path).trends)
    assert (css, lead.startswith("night-03: +30.0 %"), "2.2 \u2192 2.3" in notes) == ("slower", True, True)


def test_slower_and_faster_cells_are_counted_and_the_largest_is_named(tmp_path):
    """Seven cells stay, two take 12 and 40 % longer, and one takes 20 % less."""
    write_nights(tmp_path, [1.0, [1.12, 1.4, 0.8, *[1.0] * 7]])
    since = index_rows(tmp_path)[0].since
    assert since.counts == {"slower": 2, "faster": 1, "equivalent": 7}
    assert (since.largest, since.time_ratio) == pytest.approx((1.4, 1.0))
    assert [css for _, css in since.states] == ["slower", "faster"]
    assert re.findall(r"(\d+) of .*?(slower|faster)", since.text) == [("2", "slower"), ("1", "faster")]
    assert "+40.0 %" in since.text


def test_a_slowdown_that_stays_is_still_the_last_change_and_a_repaired_one_is_faster(tmp_path):
    write_nights(tmp_path, [1.0, 1.3, 1.3, 1.3])
    [trend] = trends_of(tmp_path).trends
    assert (trend.last_change, trend.is_worse) == (1, False)
    assert answers([trend])[0][0] == "slower"
    assert list(trend.levels[3].values()) == pytest.approx([1, *[1.3] * 3])
    assert [(x, verdict) for x, _, verdict, _ in trend.dots(1)] == [(3, "base"), (34.3, "slower")]
    heights = [height for _, height, *_ in trend.dots(3)]
    assert heights == [50, 8, 8, 8]  # percent from the top: slower is higher, and the largest change is at the end
    write_nights(tmp_path / "repaired", [1.0, 1.3, 1.0])
    [trend] = trends_of(tmp_path / "repaired").trends
    assert answers([trend])[0][0] == "faster"
    assert list(trend.levels[2].values()) == pytest.approx([1, 1.3, 1])


def test_one_launch_a_night_is_not_judged_and_not_green(tmp_path):
    write_nights(tmp_path, [1.0, 1.0, 1.3], launches=[1.0])
    last, other, _ = index_rows(tmp_path)
    assert (last.since.counts, last.since.time_ratio) == ({"inconclusive": 10}, pytest.approx(1.3))
    assert [of for of in last.states if of[1]] == []
    assert other.states == [("complete", "good")]
    assert answers(trends_of(tmp_path).trends)[0][0] == "inconclusive"


def test_a_campaign_is_compared_with_the_latest_earlier_one_that_measured_its_cells(tmp_path):
    few, rest = [1.0] * 4 + [None] * 6, [None] * 4 + [1.0] * 6
    write_nights(tmp_path, [1.0, few, rest, [1.2] * 4 + [None] * 6])
    [trend] = trends_of(tmp_path).trends
    assert [since and (since.base, sum(since.counts.values())) for since in trend.since] == [
        None, (0, 4), (0, 6), (1, 4)
    ]  # fmt: skip
    assert list(trend.levels[3]) == [0, 1, 3]  # its line leaves out the third
    text = index_page(tmp_path)
    assert text.count("vs. night-02") == 2  # beside the change, as it is not the one before, and in the commands


def test_a_key_figure_that_is_unknown_is_not_zero(tmp_path):
    write_nights(tmp_path, [1.0, 1.0, [1.0] * 9 + [None]])  # the cell with the highest bandwidth is not in the last
    rows = index_rows(tmp_path)
    [title] = [of.title for of in rows[0].trend.followed]
    assert [row.point(title) and row.point(title).value for row in rows][1:] == [rows[1].point(title).value] * 2
    [alone] = [row for row in index_rows_with_alone(tmp_path) if row.trend is None]
    assert (alone.point(title), alone.since, alone.states) == (None, None, [("complete", "")])


def index_rows_with_alone(folder):
    write_campaign(folder / "alone", [(cell_of("contained", 7), FIVE)], "09")
    return index_rows(folder)


# Comparisons of neighbors.


def test_neighbors_are_compared_by_a_page_or_a_command(tmp_path, monkeypatch, wording):
    monkeypatch.chdir(tmp_path)
    results = Path("my results")
    for name, day, cells in (
        ("a", "01", [SMALL]),
        ("b c", "02", [SMALL, LARGE]),
        ("d", "03", [LARGE]),
        ("e", "04", [SMALL]),
    ):
        write_campaign(results / name, [(cell, [1.0]) for cell in cells], day)
    (results / "compare").mkdir()
    (results / "compare" / "b c-vs-d.html").touch()
    [trend] = trends_of(results).trends
    first, known, page, skipped = neighbors(results, trend)
    assert (first, skipped.base) == (None, "b c")  # d and e have no cell in common
    assert (known.base, known.test, known.page) == ("a", "b c", None)
    wording(known.command)
    assert page.page == "compare/b%20c-vs-d.html"
    written = index_page(results)
    assert written.count('href="compare/b%20c-vs-d.html"') == 2  # in the table, and in the list of comparisons
    assert written.count('<pre class="command">') == 2


def test_the_command_writes_the_page_that_the_index_links(tmp_path):
    for name, day in (("a", "01"), ("b", "02")):
        write_campaign(tmp_path / name, [(SMALL, [1.0, 1.1, 1.2])], day)
    [trend] = trends_of(tmp_path).trends
    program, *words = neighbors(tmp_path, trend)[1].command.partition("workflow/scripts/")[2].split()
    assert warm_start.script(program, *words).returncode == 0
    assert neighbors(tmp_path, trend)[1].page == "compare/a-vs-b.html"


def test_a_name_that_cannot_be_copied_gets_no_command(tmp_path):
    for name, day in (("a\x1b", "01"), ("-b", "02"), ("-c", "03")):
        write_campaign(tmp_path / name, [(SMALL, [1.0])], day)
    [trend] = trends_of(tmp_path).trends
    assert [pair and pair.command is None for pair in neighbors(tmp_path, trend)] == [None, True, False]


# The page as a whole.


def test_500_campaigns_take_seconds_and_no_store_is_read(tmp_path, monkeypatch):
    write_campaign(tmp_path / "c0", [(SMALL, [1.0]), (LARGE, [1.0])])
    for number in range(1, 500):
        shutil.copytree(tmp_path / "c0", tmp_path / f"c{number}")
    opened, open_path = [], Path.open
    monkeypatch.setattr(Path, "open", lambda path, *how, **more: opened.append(path) or open_path(path, *how, **more))
    begin = time.monotonic()
    page = index_page(tmp_path)
    assert time.monotonic() - begin < 30  # 2 s on an idle machine
    assert page.count('<th scope="row"><a') == 0
    assert page.count("<details") == 1  # the commands
    launch_files = [path for path in opened if path.suffix == ".jsonl"]
    [launch] = (tmp_path / "c0" / "launches").iterdir()  # its first line, of the campaigns in the history
    assert len(launch_files) == MOST_CAMPAIGNS
    assert {path.name for path in launch_files} == {launch.name}
    assert "measurements.csv" in {path.name for path in opened}


def test_the_script_writes_the_same_page_again(tmp_path):
    for name, day in (("a", "01"), ("b", "02")):
        write_campaign(tmp_path / name, [(SMALL, [1.0, 1.1, 1.2])], day)
    done = warm_start.script("index_results.py", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / 'index.html'}\n", "")
    page, inode = (tmp_path / "index.html").read_bytes(), (tmp_path / "index.html").stat().st_ino
    os.utime(tmp_path / "a" / "answer.json", (0, 0))
    assert warm_start.script("index_results.py", tmp_path).returncode == 0
    assert (tmp_path / "index.html").read_bytes() == page
    assert (tmp_path / "index.html").stat().st_ino != inode  # replaced, so a reader never sees half a page
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "index.html"]
    assert page.count(b"<script") == 1


def test_the_script_reports_a_missing_folder_without_a_traceback(tmp_path):
    done = warm_start.script("index_results.py", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{tmp_path / 'nowhere'}: ")
    assert not (tmp_path / "nowhere").exists()


# Folders and files that are not Regatta's.


def index_status(*words, cwd):
    done = warm_start.script("index_results.py", *words, cwd=cwd)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def test_a_folder_without_results_gets_no_index(tmp_path):
    for name in ("other", "files/report", "results"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "files" / "report" / "report.html").touch()  # of another program
    (tmp_path / "files" / "report" / "launches").mkdir()
    for words in (["."], ["files"], []):
        assert index_status(*words, cwd=tmp_path) == (2, "")
    assert list(tmp_path.rglob("index.html")) == []


@pytest.mark.parametrize(
    "name", ["campaign.0123456789ab.json", "answer.json", "plan.json plan.txt", "launches/a.jsonl"]
)
def test_one_file_of_a_campaign_makes_a_results_folder(tmp_path, name):
    write_answer(tmp_path / "written")
    for part in name.split():
        path = tmp_path / "results" / "a" / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((tmp_path / "written" / part).read_bytes() if part == "answer.json" else b"{}")
    assert index_status("results", cwd=tmp_path) == (0, "results/index.html\n")
    assert (tmp_path / "results" / "index.html").is_file()


@pytest.mark.parametrize("content", ["<html>mine", "", "<title>Results</title>"])
def test_an_index_that_regatta_did_not_write_stays(tmp_path, content):
    write_answer(tmp_path / "a")
    (tmp_path / "index.html").write_text(content)
    assert index_status(".", cwd=tmp_path) == (2, "")
    assert (tmp_path / "index.html").read_text() == content


def test_a_campaign_in_the_place_of_the_index_is_named(tmp_path):
    write_answer(tmp_path / "index.html")
    done = warm_start.script("index_results.py", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{tmp_path / 'index.html'}: ")
    assert os.listdir(tmp_path) == ["index.html"]
    assert os.listdir(tmp_path / "index.html") == ["answer.json"]
