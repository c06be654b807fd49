"""Findings are data: each is computed from the rows that it names, and the page shows its sentence with these sources."""

import functools
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from comparison_results import cell_of
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    analyse_files,
    cluster_campaign,
    collective_cell,
    edit_records,
    make_campaign,
    train_cell,
    write_laptop,
    write_results,
)
from synthetic_preflight import write_preflight
from synthetic_timeline import write_nights
from synthetic_training import norm_cell, norm_record, run_record
from synthetic_waits import write_waits
from test_training_runs import ALONE, DDP, OWN, T, write_store
from typed import cell_row, cells_table, typed

from regatta.kit.kinds import FAIR, NOTE, RESULT, Kind
from regatta.report.findings import Finding
from regatta.store.csv_files import COLLECTED, MEASUREMENTS, make_table
from regatta.topics import base, buckets, communication, training_runs
from regatta.topics.base import ReportData, Topic, headline_rows, invalid_cells
from regatta.topics.catalog import TABLES, TOPICS, render
from regatta.topics.scaling import scaling_section as scaling
from regatta.topics.scaling.scaling_findings import efficiency_findings

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def write_real(folder):
    shutil.copytree(GOLDEN / "launches", folder / "launches")
    shutil.copy(GOLDEN / "campaign.json", folder / "campaign.0123456789ab.json")
    return folder


def write_cluster(folder):
    campaign = cluster_campaign(repeats=3)
    wanted = [("resnet50", None), (None, "all_reduce")]
    campaign["cells"] = [
        cell
        for cell in campaign["cells"]
        if tuple(cell["spec"]["parameters"].get(name) for name in ("model", "operation")) in wanted
    ]
    write_results(folder, campaign, CLUSTER)
    write_preflight(folder)
    return folder


def write_trainings(folder):
    norms = [norm_cell(name, batch, 128) for name in ("own", "torch") for batch in (32, 64)]
    records = [
        run_record(cell, repeat, T, accuracy=[0.1, 0.2 + 0.01 * repeat])
        for cell in (OWN, DDP, ALONE)
        for repeat in range(3)
    ]
    records += [norm_record(c, r, T, 400 + 30 * i + 7 * r) for i, c in enumerate(norms) for r in range(3)]
    write_store(folder, [OWN, DDP, ALONE, *norms], records)
    return folder


def write_exchange(folder):
    """Two strategies whose exchange was measured, at two batch sizes whose memory was; and two stacks alike but for the name."""
    shapes = [train_cell("resnet18", 1, 2, "ddp", bucket, batch_size=batch) for bucket in (1, 25) for batch in (8, 16)]
    alike = [cell_of(stack, size) for stack in ("first", "second") for size in (4096, 65536)]
    write_results(folder, make_campaign([train_cell("resnet18", 1, 1, "none"), *shapes, *alike]), LAPTOP)
    rng = random.Random(2)
    for record in edit_records(folder):
        if record["spec"]["benchmark"] == "train_step" and record["spec"]["gpus_per_node"] > 1:
            add_parts(record, rng)
    return folder


def add_parts(record, rng):
    shares = {"step": 1.0, "no_sync": rng.uniform(0.7, 0.9), "communication": rng.uniform(0.3, 0.5), "host_wait": 0.02}
    steps = record["samples_ns"]
    record["parts_ns"] = {name: [[int(share * t) for t in rank] for rank in steps] for name, share in shares.items()}
    record["memory"]["saved_bytes"] = 31_000_000 * record["spec"]["parameters"]["batch_size"] + 4096


WRITERS = {
    "laptop": write_laptop,
    "real": write_real,
    "cluster": write_cluster,
    "trainings": write_trainings,
    "exchange": write_exchange,
    "nights": write_nights,
    "slow rank": lambda folder: write_waits(folder, (2, 4), {3: 0.06}),
    "slow host": lambda folder: write_waits(folder, (8, 4), dict.fromkeys((8, 9, 10, 11), 0.08)),
}


@pytest.fixture(scope="module")
def analyse_campaign(tmp_path_factory):
    """Return a function that returns a campaign's (results folder, what its report is made of); each is analysed once."""

    @functools.cache
    def analyse_once(name):
        folder = WRITERS[name](tmp_path_factory.mktemp("findings") / "r")
        return folder, analyse_files(folder)

    return analyse_once


@pytest.fixture(scope="module", params=WRITERS)
def analysed(request, analyse_campaign):
    return analyse_campaign(request.param)


def findings_of(data):
    return [(topic, finding) for topic in TOPICS for finding in topic.findings(data)]


def row_of(data, table, cell):
    rows = data.tables[table]
    return next(rows[rows["cell"] == cell].itertuples())


def test_a_finding_names_files_rows_and_cells_that_are_there(analysed):
    _, data = analysed
    found = findings_of(data)
    assert found
    files = {f"tables/{name}.csv": name for name in TABLES} | {f"{name}.csv": name for name in (*COLLECTED, "cells")}
    planned = set(data.measurements["cell"])
    for topic, finding in found:
        assert finding.sources, finding.kind
        assert set(finding.cells) <= planned
        assert topic.stated(finding).text
        for source in finding.sources:
            assert source.rows or source.what
            rows = data.tables[files[source.file]] if source.file in files else None
            if rows is not None and "cell" in rows:
                assert all(any(row.startswith(cell) for cell in planned) for row in source.rows)
            elif rows is not None:
                assert {int(row.removeprefix("row ")) for row in source.rows} <= set(range(1, len(rows) + 1))


def test_sections_of_a_campaign_name_the_tables_that_they_draw(analysed):
    _, data = analysed
    for topic in TOPICS:
        section = topic.section(data) if topic.section else None
        shown = {"warnings", topic.part_of} | ({topic.id} if section else set())
        assert {topic.stated(finding).anchor for finding in topic.findings(data)} <= shown, "a dead link"
        for figure in section.figures if section else ():
            assert figure.source in {*TABLES, *COLLECTED, "cells"} or figure.source.startswith("launches/"), figure.id
        for table in section.tables if section else ():
            assert table.sources, table.caption
            assert set(table.sources) <= {*TABLES, *COLLECTED, "cells", "launches/*.jsonl", "preflight/*.json"}


def test_the_page_shows_each_finding_with_its_sources(tmp_path):
    folder = write_laptop(tmp_path / "r")
    data = analyse(folder)
    page = render(data)
    lists = [part.partition("</ul>")[0] for part in page.split('<ul class="findings">')[1:]]
    shown = [text for part in lists for text in part.split("<li")[1:]]
    # The warnings have the sentences of their findings, with advice.
    found = [finding for topic, finding in findings_of(data) if topic.stated(finding).rank == RESULT]
    assert len(shown) == len(found) > 2
    for text, finding in zip(shown, found, strict=True):
        for source in finding.sources:
            assert f'<a href="{source.anchor}">{source.file}</a>' in text
            assert all(row in text for row in source.rows)
    links = dict(re.findall(r'<a id="csv-([^"]+)" href="([^"]+)">', page))
    assert links.keys() == {*TABLES, *COLLECTED, "cells"}
    assert [links[name] for name in ("cells", "failures")] == ["cells.csv", "tables/failures.csv"]


def test_launches_lie_as_far_apart_as_their_times():
    cells = [train_cell("resnet18", 1, 1, "none"), collective_cell(4096, 1, 2), collective_cell(65536, 1, 2)]
    windows = [{"window_step_s": s, "p50_s": 9.0} for s in (0.10, 0.12, 0.11)]  # (0.12 - 0.10) / 0.11
    launches = [windows, [{"p50_s": 2e-4}, {"p50_s": 1e-4}], [{"p50_s": 3e-4}]]  # (2 - 1) / 1.5, and one alone
    rows = [
        cell_row(cell) | {"repeat": repeat, "status": "ok"} | columns
        for cell, own in zip(cells, launches, strict=True)
        for repeat, columns in enumerate(own)
    ]
    rows.append(cell_row(cells[2]) | {"repeat": 1, "status": "failed", "p50_s": 1.0})
    table = cells_table(make_campaign(cells, repeats=3), make_table(rows, MEASUREMENTS)).set_index("cell")
    step, small, large = (table.loc[cell["id"]] for cell in cells)
    assert (step["num_launches"], step["median_s"], step["min_s"], step["max_s"]) == (3, 0.11, 0.10, 0.12)
    assert step["range_ratio"] == pytest.approx(0.181818, rel=1e-5)
    assert small["range_ratio"] == pytest.approx(0.666667, rel=1e-5)
    assert large["num_launches"] == 1
    assert table["range_ratio"].isna().to_dict() == {cell["id"]: cell is cells[2] for cell in cells}


def judged(data, cells, kind="invalid", is_judge=True):
    """Return data with one more topic, whose finding is on these cells."""
    kinds = (Kind("invalid", FAIR, "Invalid."), Kind("odd", NOTE, "Odd."))
    warns = Topic("judge", "Judge", findings=lambda _: [Finding(kind, {}, (), cells)], kinds=kinds, is_judge=is_judge)
    return replace(data, topics=(*data.topics, warns))


@pytest.mark.parametrize(
    ("judge", "left"),
    [
        ({"cells": ("c0", "c1")}, ["c2", "c3"]),
        ({"cells": ("c0", "c1", "c4")}, ["c0", "c1", "c2", "c3"]),  # on more than a fifth
        ({"cells": ("c0",), "kind": "odd"}, ["c0", "c1", "c2", "c3"]),  # a note
        ({"cells": ("c0",), "is_judge": False}, ["c0", "c1", "c2", "c3"]),
    ],
)
def test_headlines_leave_out_cells_that_few_warnings_invalidate(judge, left):
    campaign = make_campaign([collective_cell(4**i, 1, 2) | {"id": f"c{i}"} for i in range(10)])
    data = judged(ReportData(typed(campaign), {}, [], {}, Path()), **judge)
    assert headline_rows(data, ["c0", "c1", "c2", "c3"], lambda cell: (cell,)) == left
    assert ("c0" in invalid_cells(data)) == ("c0" not in left)
    assert headline_rows(data, ["c0", "c1"], lambda cell: (cell,)) == ["c0", "c1"]  # nothing else is there
    assert headline_rows(data, [("c0", "c2"), ("c2", "c3")], lambda pair: pair)[-1] == ("c2", "c3")


@pytest.mark.parametrize(
    ("name", "topic", "line"),
    [
        ("laptop", scaling, "scaling"),
        ("laptop", buckets, "bucket"),
        ("laptop", communication, "communication"),
        ("trainings", training_runs, "training_runs"),
    ],
)
def test_lines_of_the_summary_rest_on_valid_cells_or_say_that_there_are_none(
    analyse_campaign, monkeypatch, name, topic, line
):
    monkeypatch.setattr(base, "MOST_EXCLUDED_RATIO", 1)

    def cells_of(data):
        [finding] = [one for one in topic.TOPIC.findings(data) if one.kind == line]
        return finding.cells, "unreliable" in finding.values

    data = analyse_campaign(name)[1]
    invalid, was_unreliable = cells_of(data)
    chosen, is_unreliable = cells_of(judged(data, invalid[:1]))
    assert not was_unreliable
    assert (invalid[0] in chosen) == is_unreliable
    assert chosen


def test_a_finding_names_the_model_even_if_it_is_the_only_one(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "none"), train_cell("resnet18", 1, 2, "ddp", 25)]
    data = analyse(write_results(tmp_path / "r", make_campaign(cells), LAPTOP))
    [finding] = [finding for finding in efficiency_findings(data) if finding.kind == "efficiency"]
    assert finding.values["name"].startswith("ResNet-18")
