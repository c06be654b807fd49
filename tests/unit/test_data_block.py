"""The data block of the report: every cell with the numbers of the tables, by hand."""

import base64
import json
import os
import re
import zlib
from pathlib import Path

import pytest
from synthetic import analyse, collective_cell, make_campaign, make_cell, report_data, train_cell, write_laptop
from synthetic_training import norm_cell, norm_record, run_cell, run_record
from test_training_runs import write_store
from typed import cell_row, make_tables, typed

from regatta.core import benchmarks
from regatta.core.verdicts import verdict_text
from regatta.kit.columns import table_rows
from regatta.kit.kinds import FAIR, LOW, NOTE, Kind
from regatta.report.cell_launches import TIMES, cell_status
from regatta.report.explore import cell_indices, data_block, decoded, encoded
from regatta.report.findings import Finding
from regatta.report.page import load_template
from regatta.store.csv_files import COLLECTED, MEASUREMENTS, columns_in, make_table
from regatta.tables.pairs import RATIO
from regatta.topics.warnings_section import marks, warnings_by_cell

TIME = "2026-11-21T23:00:00Z"
STACKS = ("contained", "bound")
FROZEN = Path(__file__).resolve().parents[1] / "golden" / "data_block.json"
HOSTILE = '"><script>alert(1)</script>'


def data_of(cells_and_launches, skipped=(), **fields):
    """Return what a report is made of. cells_and_launches: (cell, columns of measurements.csv of each launch)."""
    rows = []
    for cell, launches in cells_and_launches:
        for repeat, columns in enumerate(launches):
            row = {"repeat": repeat, "status": "ok", "launch": f"n01g02-0123456789ab-l{repeat:03d}-a00", "line": 7}
            rows.append(cell_row(cell) | row | columns)
    rows += [cell_row(cell) | {"status": "skipped", "repeat": None, "cause": cell["reason"]} for cell in skipped]
    rows.sort(key=lambda row: row["cell"])
    campaign = make_campaign([cell for cell, _ in cells_and_launches], skipped, **fields)
    measurements = make_table(rows, columns_in(typed(campaign), MEASUREMENTS))
    collected = {name: make_table([], columns) for name, columns in COLLECTED.items()}
    collected["measurements"] = measurements
    tables = make_tables(campaign, collected)
    return report_data(campaign, measurements, **tables)


def small():
    """Return a block of two cells on one and two GPUs, a failed one of another stack, a collective and a skipped one."""
    more = {"device": "cuda", "backend": "nccl"}
    one = train_cell("resnet18", 1, 1, "none", batch_size=8, stack="contained", **more)
    two = train_cell("resnet18", 1, 2, "ddp", 25, batch_size=8, stack="contained", **more)
    bad = train_cell("resnet18", 1, 2, "ddp", 25, batch_size=8, stack="bound", **more)
    ring = collective_cell(4096, 1, 2, stack="contained", **more)
    gone = train_cell("resnet18", 1, 2, "none", batch_size=8, stack="contained", **more) | {"reason": "needs 1 rank"}
    launches = [
        (one, [{"window_step_s": s, "p50_s": s} for s in (0.100, 0.102, 0.104)]),
        (two, [{"window_step_s": s, "p50_s": s, "peak_allocated_bytes": 2**30} for s in (0.110, 0.1200004, 0.130)]),
        (
            bad,
            [
                {"status": "timeout", "phase": "measure", "cause": "slow"},
                {"status": "failed", "phase": "setup", "cause": HOSTILE, "line": 9},
                {"window_step_s": 0.2, "p50_s": 0.2},
            ],
        ),
        (ring, [{"p50_s": s} for s in (1e-4, 2e-4, 3e-4)]),
    ]
    return data_of(launches, [gone], device="cuda", versus={"axis": "stack", "reference": None, "margin": None})


@pytest.fixture(scope="module")
def block():
    return data_block(small())


def column(block, key):
    return block["cells"][key]


def test_the_block_is_the_frozen_one(block):
    """Frozen from values by hand: 8 samples in the geometric mean of 110, 120.0004 and 130 ms are 66.8216 a second."""
    if os.environ.get("REGATTA_WRITE_GOLDEN"):
        lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in block.items())
        FROZEN.write_text("{{\n{}\n}}\n".format(",\n".join(lines)), encoding="utf-8")
    assert json.loads(json.dumps(block)) == json.loads(FROZEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (["ok", "ok"], "ok"),
        (["ok", "failed", "timeout"], "partly_failed"),
        (["failed", "timeout"], "failed"),
        (["timeout", "not_measured"], "timeout"),
        (["ok", "not_measured"], "not_measured"),  # nothing failed
        (["ok", "not_started", "node_failure"], "partly_failed"),
        ([], "not_measured"),
    ],
)
def test_a_cell_with_valid_and_failed_launches_is_partly_failed(statuses, status):
    assert cell_status(statuses) == status


def test_a_partly_failed_cell_is_a_value_of_the_filter_with_its_launches(block):
    facet = block["facets"]["status"]
    assert facet["names"] == ["ok", "partly_failed", "skipped"]
    [place] = [i for i, index in enumerate(column(block, "status")) if facet["names"][index] == "partly_failed"]
    assert (column(block, "num_ok")[place], block["texts"]["num_ok"][place]) == (1, "1/3")
    assert block["order"][0] == place  # before all that are ok
    searched = block["words"][column(block, "search")[place]]
    assert {"timeout", "failed", "slow"} <= set(searched.split())


def test_the_cells_of_the_block_are_those_of_the_campaign(block):
    campaign = small().campaign
    assert cell_indices(campaign) == {cell: index for index, cell in enumerate(column(block, "id"))}


def test_a_parameter_may_be_named_like_another_column(monkeypatch):
    monkeypatch.setattr(benchmarks, "_custom", {})
    axes = {name: {"type": "string"} for name in ("name", "bucket")}
    declared = {"other": {"version": 1, "file": "other.py", "axes": axes, "results": {}}}
    benchmarks.declare(declared)
    cells = [make_cell("other", 1, 2, {"name": name, "bucket": name}) for name in ("a", "b")]
    block = data_block(data_of([(cell, [{"p50_s": 0.1}]) for cell in cells], benchmarks=declared))
    assert [name.split(" · ")[2:] for name in column(block, "name")] == [["name a", "bucket a"], ["name b", "bucket b"]]
    assert block["facets"]["setting_name"]["values"] == ["name a", "name b"]
    assert column(block, "setting_name") == [0, 1]
    assert column(block, "call") == [100, 100]  # ms


def test_a_large_campaign_has_only_the_medians_of_a_launch(monkeypatch):
    assert {"min", "p50", "p95", "max"} <= set(data_block(small())["launches"])
    monkeypatch.setattr("regatta.report.cell_launches.MOST_LAUNCHES_WITH_QUANTILES", 12)
    assert data_block(small())["launches"].keys() & TIMES.keys() == {"p50", "window"}


def test_rows_are_the_lines_of_measurements_csv():
    data = small()
    block = data_block(data)
    lines = ["", "header", *data.measurements["cell"]]
    assert all(lines[row] == cell for cell, row in zip(column(block, "id"), column(block, "row"), strict=True))
    assert all(lines[row - 1] != cell for cell, row in zip(column(block, "id"), column(block, "row"), strict=True))


def compared(steps):
    """Return data of cells of two stacks that differ. steps: seconds of each launch by stack."""
    cells = [train_cell("resnet18", 1, 2, stack=stack) for stack in STACKS]
    cells[1]["spec"]["stack"]["binds"] = ["/a:/b"]
    launches = [
        (cell, [{"p50_s": s, "window_step_s": s} for s in steps[stack]])
        for cell, stack in zip(cells, STACKS, strict=True)
    ]
    return data_of(launches, versus={"axis": "stack", "reference": "contained", "margin": 0.05})


def test_comparisons_are_those_of_the_table():
    data = compared({"contained": (0.100, 0.101, 0.102), "bound": (0.110, 0.111, 0.112)})
    found, [row] = data_block(data)["comparisons"], table_rows(data.tables["comparisons"])
    assert (found["cell"], found["reference"]) == ([1], [0])
    lines = dict(found["lines"][0])
    [ratio] = [label for label in lines if label.endswith("bound / contained")]
    # Launches of one batch are paired: the geometric mean of 0.110 / 0.100, 0.111 / 0.101 and 0.112 / 0.102.
    assert lines[ratio] == f"{RATIO.cell(row)} {RATIO.ends(row)}"
    assert lines[ratio].startswith("1.099 [")
    assert (lines["Verdict"], lines["Launches"], lines["Margin (%)"]) == ("slower", "3", "5.00")
    assert float(lines["P, corrected"]) == pytest.approx(row.p_adjusted, rel=1e-2)


def test_the_drawer_says_slower_where_only_the_margin_is_not_settled():
    """Ten pairs of one batch with ratios 1.045 to 1.063: 1.05 is in the interval, 1 far outside."""
    base = [0.100 + 0.001 * i for i in range(10)]
    data = compared({"contained": base, "bound": [(1.045 + 0.002 * i) * s for i, s in enumerate(base)]})
    [row] = table_rows(data.tables["comparisons"])
    assert (row.verdict, row.p_value < 1e-6) == ("inconclusive", True)
    assert dict(data_block(data)["comparisons"]["lines"][0])["Verdict"] == verdict_text(row)


def test_a_rejected_fit_belongs_to_the_cells_of_its_curve():
    cells = [train_cell("resnet18", 1, 1, "none"), *(train_cell("resnet18", 1, n, bucket=1) for n in (2, 4))]
    block = data_block(data_of([(cell, [{"p50_s": 0.1, "window_step_s": 0.1}]) for cell in cells]))
    curve = column(block, "curve")
    assert (curve[0], curve[1]) == (None, curve[2])
    assert "4" in dict(block["curves"][curve[1]])["Fitted model"]


def test_training_runs_and_batch_norms_have_their_times(tmp_path):
    run, norm = run_cell("none", gpus=1), norm_cell("torch", 8, 64)
    records = [run_record(run, repeat, TIME) for repeat in range(3)]
    records += [norm_record(norm, repeat, TIME, 400 + 100 * repeat) for repeat in range(2)]
    write_store(tmp_path, [run, norm], records)
    block = data_block(analyse(tmp_path))
    assert column(block, "total_s") == [3, None]
    assert column(block, "call") == [None, 447.214]
    assert block["ends"]["call"] == [None, "(400 to 500)"]
    assert column(block, "accuracy_percent") == [10, None]
    assert column(block, "peak_allocated_mib") == [162.219, 0.00634766]  # 170,099,200 B and 6,656 B
    assert "median_ms" not in block["cells"]


def test_the_same_results_give_the_same_text_and_it_decodes_to_the_block(block):
    text = encoded(block)
    assert text == encoded(data_block(small()))
    assert decoded(text) == json.loads(json.dumps(block))
    assert json.loads(zlib.decompress(base64.b64decode(text), wbits=31)) == decoded(text)


def test_a_campaign_without_a_cell_has_an_empty_block():
    block = data_block(data_of([]))
    assert block["cells"]["id"] == []
    assert block["order"] == []


def test_a_template_turns_cells_into_indices():
    template = load_template("macros.html.j2").environment.from_string(
        "{{ 'b' | cell_index }}|{{ cells | cell_index }}"
    )
    indices = {"a": 0, "b": 7, "c": 2}
    assert template.render(cell_indices=indices, cells=["c", "gone", "a", "c"]) == "7|2 0"
    assert template.render(cells=["a"]) == "|"
    drawing = load_template("macros.html.j2").environment.from_string("{{ svg | cell_marks }}")
    marks = ('data-cell="a"', 'data-cell="gone"', 'data-line="a b"', 'data-line="a gone"')
    drawn = drawing.render(svg="".join(f"<g {mark}/>" for mark in marks), cell_indices=indices)
    assert re.findall("<g ?(.*?)/>", drawn) == ['data-cell="0"', "", 'data-line="0 7"', ""]


def test_the_page_of_a_laptop_marks_rows_and_failures_with_their_cells(tmp_path):
    from regatta.topics.catalog import render

    data = analyse(write_laptop(tmp_path / "laptop"))
    page, indices = render(data), cell_indices(data.campaign)
    failed = next(cell for cell in indices if "mobilenet_v3_small-ddp-1-n01g02" in cell)
    assert f'<li data-cell="{indices[failed]}">' in page
    assert page.count(f'<tr data-cell="{indices[failed]}">') >= 2  # the static table, and a table of a section


def test_a_cell_has_the_subjects_of_the_warnings_on_it():
    data = small()
    first, second, *_ = (cell.id for cell in data.campaign.cells)
    all_cells = tuple(cell.id for cell in data.campaign.cells)
    said = (
        ("Outliers: 3 of 23.", NOTE, (first, second)),
        ("Shared hosts: 12.", LOW, (second,)),
        ("Few launches.", FAIR, all_cells),
    )
    warned = [Finding("k", {}, (), cells, declared=Kind("k", rank, text)) for text, rank, cells in said]
    block = data_block(data, warnings_by_cell(warned), marks(data, warned))
    words, indices = block["words"], block["cells"]["warning"]
    assert [words[index].split("; ") for index in indices[:2]] == [
        ["Outliers", "Few launches."],
        ["⚠ Outliers", "Shared hosts", "Few launches."],
    ]
    num_skipped = len(data.campaign.skipped)
    assert {words[index] for index in indices[2 : len(indices) - num_skipped]} == {"Few launches."}
    # A note marks no cell, nor does what concerns more than a fifth of them.
    assert words[block["cells"]["invalid"][1]] == "Shared hosts"
    assert [index is None for index in block["cells"]["invalid"]] == [place != 1 for place in range(len(indices))]
