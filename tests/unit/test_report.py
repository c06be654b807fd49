import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from drawn import chart, mark
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    collective_cell,
    edit_launches,
    edit_records,
    laptop_campaign,
    laptop_faults,
    lines_of,
    make_campaign,
    make_report,
    train_cell,
    write_laptop,
    write_lines,
    write_results,
)

import warm_start
from regatta.report.explore import decoded
from regatta.report.page import LIMITS, provenance, script_source
from regatta.report.panels import Figure, Section, Table
from regatta.topics import machines
from regatta.topics.base import unreliable_cells
from regatta.topics.catalog import TABLES, render
from regatta.topics.summary import first_figure

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
STYLE = re.compile(r"(left|right): [\d.]+%(; width: [\d.]+%)?|([\w-]+: ?[^:;]+(; ?|$))*")
VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(HTMLParser):
    """The elements of a page, and whether every tag that was opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def visible(text):
    """Return a page without its data block and its script."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def block_of(page):
    """Return the data block of a page."""
    return decoded(re.search(r'<script type="application/json" id="data-block">(.*?)</script>', page)[1])


def facts_of(page):
    return dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", page))


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    return make_report(write_laptop(tmp_path_factory.mktemp("r") / "laptop")).read_text(encoding="utf-8")


def report_of(tmp_path, campaign, machine=LAPTOP, faults=None):
    return make_report(write_results(tmp_path / "r", campaign, machine, faults)).read_text(encoding="utf-8")


def test_the_report_needs_nothing_but_itself(laptop):
    page = Page(laptop)
    assert page.all("script") == [{"type": "application/json", "id": "data-block"}, {}]
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action"):
            target = attributes.get(name, "#")
            is_inside = target.startswith(("#", "data:")) or not re.match(r"[a-z]+:|//", target)
            assert is_inside, (tag, target)
            assert tag == "a" or target.startswith(("#", "data:")), (tag, target)
        assert not any(name.startswith("on") for name in attributes)
        # Bars of the timeline are placed by their numbers; figures are drawn with styles.
        assert STYLE.fullmatch(attributes.get("style", ""))
    assert not re.search(r"@import|url\((?!#)", laptop)


def test_the_policy_allows_the_script_of_the_page_alone(laptop):
    script = re.search(r"<script>(.*?)</script>", laptop, re.DOTALL)[1]
    policy = next(meta["content"] for meta in Page(laptop).all("meta") if "http-equiv" in meta)
    assert dict(directive.split(" ") for directive in policy.split("; ")) == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "connect-src": "data:",
        "script-src": script_source(script),
    }


def test_the_same_results_give_the_same_bytes(tmp_path):
    first = make_report(write_laptop(tmp_path / "a")).read_bytes()
    assert make_report(write_laptop(tmp_path / "b")).read_bytes() == first


def test_every_figure_has_a_short_name_and_its_numbers(laptop):
    figures = laptop.split("<figure ")[1:]
    assert len(figures) >= 6
    for figure in figures:
        for part in ("<details>", "<caption>", '<th scope="col">', '<th scope="row">'):
            assert part in figure
    charts = [element for element in Page(laptop).all("svg") if element.get("class") == "chart"]
    assert {element["role"] for element in charts} == {"img"}
    labels = {element["aria-label"] for element in charts}
    assert len(labels) == len(charts) == len(figures)
    assert all(10 < len(label) < 200 for label in labels)


def test_the_page_has_one_title_its_landmarks_and_no_dead_anchor(laptop):
    page = Page(laptop)
    assert len(page.all("h1")) == 1
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("main")) == len(page.all("header")) == len(page.all("footer")) == len(page.all("nav")) == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {a["href"][1:] for a in page.all("a") if a["href"].startswith("#")}
    assert anchors <= set(ids)


def test_every_planned_measurement_is_in_the_report_with_its_status(laptop):
    text = visible(laptop)
    assert "47 of 51" in text
    assert "9 cells skipped" in text
    campaign = laptop_campaign()
    assert block_of(laptop)["cells"]["id"] == [cell["id"] for cell in [*campaign["cells"], *campaign["skipped"]]]
    causes = {fault[2] for fault in laptop_faults(campaign).values() if fault != "not_measured"}
    assert all(words in unescape(text) for words in causes | {cell["reason"] for cell in campaign["skipped"]})


def test_what_a_failure_says_is_shown_and_never_run(laptop):
    assert len(re.findall("<script", laptop)) == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in laptop


def test_hostile_words_stay_words(tmp_path):
    evil = '"><img src=x onerror=alert(1)>{{ 7*7 }}'
    cells = [train_cell("resnet18", 1, 1, "none"), train_cell("resnet18", 1, 2)]
    for cell in cells:
        cell["command"] = evil
    fields = {"name": evil, "description": evil, "text": evil, "source": evil}
    campaign = make_campaign(cells, [train_cell("resnet18", 1, 2, "none") | {"reason": evil}], **fields)
    campaign["cluster"]["name"] = evil
    page = report_of(tmp_path, campaign, faults={(cells[1]["id"], 0): ("failed", "init", evil)})
    assert "onerror=alert(1)>" not in page
    assert "<img src=x" not in page
    assert "49" not in re.findall(r"<h1[^>]*>(.*?)</h1>", page)[0]
    Page(page)


def test_a_cpu_campaign_says_what_a_gpu_is(laptop, tmp_path):
    words = 'CPU run: one "GPU" is one process'
    assert words in laptop
    cuda = make_campaign([train_cell("resnet50", 1, 1, "none", device="cuda")], device="cuda")
    assert words not in report_of(tmp_path, cuda, CLUSTER)


def test_a_campaign_in_which_everything_failed_still_has_a_report(tmp_path):
    campaign = laptop_campaign()
    slots = [(cell["id"], repeat) for cell in campaign["cells"] for repeat in range(3)]
    faults = dict.fromkeys(slots, ("failed", "launch", "torch cannot be imported"))
    data = analyse(write_results(tmp_path / "r", campaign, LAPTOP, faults))
    failed = lines_of(data)["failed"].values
    assert (failed["num_failed"], failed["num_of_cause"]) == (51, 51)
    assert re.findall('<figure id="([^"]*)"', render(data)) == []


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [collective_cell(4096, 1, 2)],
        [collective_cell(4096, 1, 1)],
        [train_cell("resnet18", 1, 2)],
        [train_cell("resnet18", 1, 1, "none")],
        [train_cell("resnet18", 1, 1, "ddp", 1), train_cell("resnet18", 1, 1, "ddp", 25)],
    ],
)
def test_a_small_campaign_still_has_a_report(tmp_path, cells):
    page = report_of(tmp_path, make_campaign(cells))
    assert ("<figure" in page) == bool(cells)
    Page(page)


def test_a_store_that_is_empty_still_has_a_report(tmp_path):
    folder = write_results(tmp_path / "r", laptop_campaign(), LAPTOP)
    for path in (folder / "launches").iterdir():
        path.unlink()
    page = make_report(folder).read_text(encoding="utf-8")
    assert "0 of 51" in page


def test_mixed_versions_dirty_trees_and_crowded_hosts_are_warned_of(tmp_path):
    folder = write_results(tmp_path / "r", laptop_campaign(), LAPTOP)
    for index, (header, *_) in enumerate(edit_launches(folder)):
        header["environment"] |= {"torch": f"2.{index % 2}", "threads_per_rank": 2}
        header["git"]["is_dirty"] = index == 0
    text = visible(make_report(folder).read_text(encoding="utf-8"))
    assert "3f2a1c0d9e8b (dirty)" in text
    data = analyse(folder)
    found = {finding.kind: finding for finding in machines.findings(data)}
    [mixed] = found["mixed_versions"].words["mixed"]
    assert re.findall(r"(2\.\d) in 3", mixed) == ["2.0", "2.1"]
    assert set(found["mixed_versions"].cells) == set(data.ok["cell"])
    assert found["uncommitted"].values == {"num": 1, "num_launches": 6}
    assert found["oversubscribed"].values == {"num_ranks": 2, "threads": 2, "num_cores": 2}


def test_measurements_beside_other_ranks_are_warned_of_with_their_number(tmp_path):
    folder = write_results(tmp_path / "r", laptop_campaign(), LAPTOP)
    cells = []
    for record in edit_records(folder):
        record["other_ranks"] = [4, 2, 0][min(len(cells), 2)]
        cells.append(record["cell"])
    data = analyse(folder)
    shared = next(finding for finding in machines.findings(data) if finding.kind == "shared_hosts")
    assert shared.values == {"num": 2, "num_ok": len(data.ok), "most_other_ranks": 4}
    assert set(shared.cells) == set(cells[:2]) <= unreliable_cells(data)
    confidence = lines_of(data)["confidence"].values
    assert (confidence["word"], confidence["num_unreliable"]) == ("low", len(unreliable_cells(data)))
    assert {"shared_hosts", "damaged_store"} & {reason["kind"] for reason in confidence["reasons"][:2]}


def test_a_launch_without_an_environment_costs_nothing(tmp_path):
    folder = write_results(tmp_path / "r", laptop_campaign(), LAPTOP)
    for header, *_ in edit_launches(folder):
        header.update(environment=None, git=None)
    data = analyse(folder)
    assert len(provenance(data.facts, data.headers)["launches"]) == 6
    Page(render(data))


def test_an_environment_that_breaks_its_schema_is_listed_and_costs_no_number(tmp_path):
    folder = write_results(tmp_path / "r", laptop_campaign(), LAPTOP)
    for header, *_ in edit_launches(folder):
        header["environment"]["hosts"] = "many"
    text = visible(make_report(folder).read_text(encoding="utf-8"))
    assert "51 of 51" in text
    assert "6 invalid lines" in text


def rows_of(page, caption):
    """Return the cells of each row of a table by its first one."""
    table = re.search(rf"<caption>{caption}\b.*?</table>", page, re.DOTALL)[0]
    rows = (re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in table.split("<tr")[1:])
    return {name: cells for name, *cells in rows}


def test_the_page_says_on_what_and_when_it_ran(laptop):
    assert rows_of(laptop, "Software")["torch"] == ["2.12.1"]
    hosts = rows_of(laptop, "Hosts")
    of_host = dict(zip(hosts["host"], hosts["node000"], strict=True))
    assert of_host == {"CPU": "Invented CPU", "cores per host": "2", "memory": "23.3 GiB"}
    facts = facts_of(laptop)
    assert (facts["First record"], facts["Last record"]) == ("2026-11-21T03:01:05Z", "2026-11-21T03:06:05Z")


def test_a_launch_without_a_record_in_this_report_is_counted_and_lends_it_nothing(tmp_path):
    folder = write_results(tmp_path / "r", laptop_campaign(), LAPTOP)
    first = sorted((folder / "launches").iterdir())[0]
    header = json.loads(first.read_text().partition("\n")[0])
    header |= {"launch": f"{first.stem[:-2]}01", "time_utc": "2026-12-24T00:00:00Z", "argv": ["stopped"]}
    header["git"] = {"commit": "f" * 40, "is_dirty": True}
    header["environment"]["torch"] = "1.0"
    stopped = {"kind": "stopped", "signal": "SIGINT", "time_utc": "2026-12-24T00:00:09Z"}
    write_lines(folder / "launches" / f"{header['launch']}.jsonl", [header, stopped])
    page = make_report(folder).read_text(encoding="utf-8")
    text = visible(page)
    assert "2026-12-24" not in re.sub(r'<section id="timeline".*?</section>', "", text, flags=re.DOTALL)  # it took time
    assert "fffffff" not in text
    assert "uncommitted" not in text
    assert "different versions" not in text
    assert "of 6 launches" in text
    assert "1 launch file" in text


def test_one_error_of_several_ranks_is_one_failure(tmp_path):
    campaign = make_campaign([train_cell("resnet18", 1, 2)])
    cell = campaign["cells"][0]["id"]
    causes = [f"rank {rank} on node{rank}: RuntimeError: no" for rank in range(3)]
    faults = {(cell, repeat): ("failed", "setup", cause) for repeat, cause in enumerate(causes)}
    page = visible(report_of(tmp_path, campaign, faults=faults))
    assert re.findall(r'<span class="cause">([^<]*)</span>', page) == ["RuntimeError: no"]
    for repeat in range(3):
        assert f"<li>launch {repeat + 1}, rank {repeat} on node{repeat}: <a" in page


def test_the_log_of_a_failure_is_a_link_beside_the_report(laptop):
    assert re.search(r'href="batches/n01g02-[0-9a-f]{12}/logs/n01g02-[0-9a-f]{12}-l000-a00\.log"', laptop)


def test_cells_that_differ_in_what_no_id_names_have_different_names(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "none", batch_size=b) for b in (8, 16)]
    skipped = [train_cell("resnet18", 1, 2, "none", batch_size=b) | {"reason": "no"} for b in (8, 16)]
    faults = {(cells[0]["id"], 0): ("failed", "init", "no")}
    names = block_of(report_of(tmp_path, make_campaign(cells, skipped), faults=faults))["cells"]["name"]
    assert [name.rpartition(" ")[2] for name in names] == ["8", "16", "8", "16"]
    assert len(set(names)) == 4


def test_each_measurement_names_its_launch_file_line_and_command(laptop):
    block, campaign = block_of(laptop), laptop_campaign()
    assert block["cells"]["command"] == [cell["command"] for cell in [*campaign["cells"], *campaign["skipped"]]]
    files = [block["files"]["names"][index] for index in block["launches"]["file"] if index is not None]
    assert len(files) == 50  # one of 51 was not measured
    assert all(re.fullmatch(r"n01g0[12]-[0-9a-f]{12}-l00\d-a00", file) for file in files)
    places = [block["words"][index] for index in block["launches"]["place"] if index is not None]
    assert len(places) == 50
    assert all(int(re.match(r" line (\d+)", place)[1]) > 1 for place in places)


def test_the_campaign_file_is_there_verbatim(laptop):
    assert "schema: 1" in laptop
    assert "baseline: {strategy: none" in laptop


def test_the_command_lines_run_without_snakemake_and_leave_no_draft(tmp_path):
    folder = write_laptop(tmp_path / "a folder")
    campaign = next(folder.glob("campaign.*.json"))
    out = folder / "out"
    steps = [
        ["collect.py", "--launches", folder / "launches", "--out", out / "measurements.csv"],
        ["analyse.py", "--measurements", out / "measurements.csv", "--out-dir", out / "tables"],
        ["report.py", "--measurements", out / "measurements.csv", "--tables", out / "tables",
         "--launches", folder / "launches", "--out", out / "report.html"],
    ]  # fmt: skip
    for script, *arguments in steps:
        warm_start.script(script, "--campaign", campaign, *arguments, check=True)
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    tables = [f"tables/{name}.csv" for name in sorted(TABLES)]
    names = "answer.json cells.csv epochs.csv jobs.csv launches.csv measurements.csv problems.json ranks.csv report.html".split()
    assert found == [*names, *tables, "waits.csv"]


def test_jobs_that_ended_before_their_batch_are_listed_with_their_cause(tmp_path):
    cell = train_cell("resnet18", 2, 2)
    folder = write_results(tmp_path / "jobs", make_campaign([cell]), LAPTOP)
    batch = folder / "batches" / "n02g02-0123456789ab"
    batch.mkdir(parents=True)
    launch = {"repeat": 0, "stack": "host", "cells": [cell["id"]]}
    (batch / "batch.json").write_text(json.dumps({"launches": [launch]}))
    jobs = [
        {"kind": "stopped", "job": "7", "hosts": [], "cause": "SIGTERM: PREEMPTED"},
        {"kind": "no_start", "job": "8", "hosts": ["n2"], "cause": "rank 2 on n2: <no> torch"},
        {"kind": "stopped", "job": None, "hosts": [], "cause": "SIGINT"},
    ]
    (batch / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    text = make_report(folder).read_text(encoding="utf-8")
    items = [item for item in text.split("<") if "n02g02-0123456789ab" in item and "nterrupted" in item]
    assert [[word in item for word in ("PREEMPTED", "rank 2 on n2", "SIGINT")] for item in items] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    assert "<no>" not in text


def test_the_head_has_the_cell_time_with_its_parts(tmp_path):
    cell = train_cell("resnet50", 2, 4, device="cuda", backend="nccl", stack="contained")
    cell["spec"]["stack"] |= {"kind": "contained", "image_id": "3f2a1c0d-9e8b-4d48-a3b8-03255132c4ec"}
    text = report_of(tmp_path, make_campaign([cell], repeats=2, device="cuda"), CLUSTER)
    # Each of the 2 launches has a record of 2.6 s on 8 ranks: 2 x 2.6 x 8 / 3600.
    facts = facts_of(text)
    assert facts["Cell time"].startswith("42 GPU seconds")
    assert re.findall(r"% (sampling|warm-up|setup)", facts["Cell time"]) == ["sampling", "warm-up", "setup"]
    assert rows_of(text, "Software")["image id"] == ["3f2a1c0d-9e8b-4d48-a3b8-03255132c4ec"]


def test_tables_are_folded_and_short_ones_are_printed(laptop):
    folds = re.findall(r"<details( class=.printed.)?><summary>[^<]* \((\d+) rows?\)", laptop)
    assert {bool(is_printed) for is_printed, _ in folds} == {True, False}
    assert max(int(num) for is_printed, num in folds if is_printed) <= LIMITS["most_rows_printed"]


def test_the_figure_of_the_first_screen_is_that_of_the_first_section_that_has_one():
    def figure(name: str) -> Figure:
        return Figure(name, name, chart(mark("a", 1, 1)), Table("", (), ()))

    scaling = Section(headlines=(figure("efficiency-1"),))
    communication = Section(headlines=(figure("bandwidth-1"), figure("bandwidth-2")))
    for sections, title in (([communication], "bandwidth-1"), ([scaling, communication], "efficiency-1")):
        found = first_figure(sections, None)
        assert found.title == title
    assert first_figure([], None) is None
