"""Every statement of the report names its rows, and its numbers stand there: for campaigns with every section."""

import json
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
    cluster_campaign,
    collective_cell,
    make_campaign,
    make_report,
    train_cell,
    write_laptop,
    write_results,
)
from synthetic_preflight import write_preflight
from synthetic_training import norm_cell, norm_record, run_record
from synthetic_waits import write_waits
from test_training_runs import ALONE, DDP, OWN, T, write_store
from tracing import Tables, known_of, numbers, texts_of, untraced

from regatta.report.page import content
from regatta.report.sources import row_names
from regatta.store.collect import cell_row
from regatta.store.tables import COLLECTED, MEASUREMENTS, TABLES, make_table
from regatta.topics.precision import launch_ranges_table
from regatta.topics.scaling.heatmap import heatmap_figures

# Figures whose data are no rows of a table: the map has the samples of one record of the store, and names its line; residuals
# are what the formula of the model's row leaves of the cells' rows, which the checker works out again.
COMPUTED = ("straggler-map", "residuals")
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
    for path in sorted((folder / "launches").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            if (
                line["kind"] == "record"
                and line["spec"]["benchmark"] == "train_step"
                and line["spec"]["gpus_per_node"] > 1
            ):
                add_parts(line, rng)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
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
    "slow rank": lambda folder: write_waits(folder, (2, 4), {3: 0.06}),
    "slow host": lambda folder: write_waits(folder, (8, 4), dict.fromkeys((8, 9, 10, 11), 0.05)),
}


@pytest.fixture(scope="module", params=WRITERS)
def report(request, tmp_path_factory):
    """Return (name of the campaign, its tables, what its report shows)."""
    folder = WRITERS[request.param](tmp_path_factory.mktemp("traces") / "r")
    results = analyse(folder)
    return request.param, Tables(folder), content(results, folder)


def statements(shown):
    """Return (anchor, sentence, traces) of all findings, warnings, figures and leads that have rows."""
    figures = [figure for section in shown["sections"] for figure in section.figures]
    found = [
        (finding.anchor, finding.text, finding.traces) for finding in shown["findings"] if finding.anchor != "preflight"
    ]
    found += [("warnings", warning.found, warning.traces) for warning in shown["warnings"]]
    found += [(figure.id, figure.alt, figure.traces) for figure in figures]
    found += [(s.id, s.lead, s.traces) for s in shown["sections"] if s.has_content and s.id == "stragglers"]
    # What stands in no table at all: the first lines of launch files, problems.json, the campaign, samples of one record.
    return [s for s in found if any(trace.rows and trace.file.endswith(".csv") for trace in s[2])]


def test_every_row_of_a_figure_is_a_row_of_the_table_that_it_names(report):
    _, tables, shown = report
    for figure in (figure for section in shown["sections"] for figure in section.figures):
        if figure.id.startswith(COMPUTED):
            continue
        heading, rows = tables.lines(figure.source)
        own_heading, *own = figure.csv.splitlines()
        assert own_heading.split(",") == heading
        assert own
        assert figure.num_rows == len(own)
        assert {tuple(line.split(",")) for line in own} <= set(rows), figure.id


def test_every_table_of_a_section_names_its_sources(report):
    _, _, shown = report
    known = {*TABLES, *COLLECTED, "launches/*.jsonl"}
    for section in shown["sections"]:
        for table in section.tables:
            assert table.sources, table.caption
            assert set(table.sources) <= known


def test_every_statement_names_rows_that_are_there_and_have_its_numbers(report):
    _, tables, shown = report
    found = statements(shown)
    assert found
    for anchor, sentence, traces in found:
        assert untraced(sentence, known_of(anchor, traces, tables)) == [], sentence


def test_every_finding_and_warning_names_a_file(report):
    _, _, shown = report
    for told in (*shown["findings"], *shown["warnings"]):
        assert told.traces
        assert all(trace.rows or trace.what for trace in told.traces)


def with_other_digits(number):
    """Return a number nine times, its last figure another each time."""
    return [f"{number[:-1]}{digit}" for digit in "0123456789" if digit != number[-1]]


def test_a_number_that_is_off_in_its_last_figure_is_found_out(report):
    """Of nine wrong ones a few may pass: a row has other numbers in the same unit, such as the ends of a spread."""
    _, tables, shown = report
    passed = []
    for anchor, sentence, traces in statements(shown):
        known = known_of(anchor, traces, tables)
        for number, unit in numbers(sentence):
            if unit:
                wrong = [sentence.replace(number, other) for other in with_other_digits(number)]
                passed.append(sum(untraced(other, known) == [] for other in wrong))
                assert passed[-1] <= 5, (number, unit, sentence)
    assert passed
    assert sum(passed) < 0.15 * 9 * len(passed)


def test_numbers_of_other_rows_do_not_pass(report):
    _, tables, shown = report
    for anchor, sentence, traces in statements(shown):
        if any(unit for _, unit in numbers(sentence)) and anchor not in ("warnings", "failures"):
            nothing = tuple(replace(trace, rows=()) for trace in traces)
            assert untraced(sentence, known_of("none of these", nothing, tables)), sentence


def test_the_name_of_a_row_is_that_of_one_row(report):
    _, tables, _ = report
    for name, rows in tables.by_name.items():
        frame = tables.frames[name]
        planned = frame[frame["repeat"].notna()] if "repeat" in frame else frame  # a cell that is skipped has no repeat
        assert len(set(row_names(name, planned))) == len(planned), name
        assert set(row_names(name, planned)) <= set(rows)


def test_the_page_shows_the_rows_below_each_finding(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr("regatta.report.page.content", lambda *results: seen.setdefault("shown", content(*results)))
    page = make_report(write_laptop(tmp_path / "r")).read_text(encoding="utf-8")
    page = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    findings = page.partition('id="findings"')[2].partition("</ul>")[0].split("<li>")[1:]
    shown = seen["shown"]["findings"]
    assert len(findings) == len(shown) > 3
    for html, finding in zip(findings, shown, strict=True):
        for trace in finding.traces:
            assert f'<a href="{trace.anchor}">{trace.file}</a>' in html
            assert all(row in html for row in trace.rows)
            folded = f"<summary>{trace.file}: {len(trace.rows)} rows</summary>"
            assert (folded in html) == (len(trace.rows) > 2)
    for name in (*TABLES, *COLLECTED):
        assert page.count(f'<a id="csv-{name}" download=') == 1
    assert re.search(r"\(\d+ rows of tables/scaling.csv\)", page)
    assert '<span class="source">(<a href="#csv-percentiles">tables/percentiles.csv</a>)</span></caption>' in page


def test_the_best_bucket_of_a_crowded_map_is_its_row_of_the_table(tmp_path):
    models = [(model, batch) for model in ("resnet50", "resnet101") for batch in (8, 16)]
    cells = [train_cell(model, 1, 1, "none", batch_size=batch) for model, batch in models]
    shapes = [
        (gpus, 2**i) for gpus in (1, 2) for i in range(11)
    ]  # 44 rows, of which a map of 40 shows the best buckets
    cells += [train_cell(m, 1, gpus, "ddp", b, batch_size=batch) for m, batch in models for gpus, b in shapes]
    folder = write_results(tmp_path / "r", make_campaign(cells, repeats=1), CLUSTER)
    analyse(folder)
    tables = Tables(folder)
    crowded = heatmap_figures(tables.frames["scaling"], tables.frames["measurements"])
    assert [len(figure.table.rows) for figure in crowded] == [4]
    assert {tuple(line.split(",")) for f in crowded for line in f.csv.splitlines()[1:]} <= set(
        tables.lines("scaling")[1]
    )


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
    table = launch_ranges_table(make_table(rows, MEASUREMENTS)).set_index("cell")
    step, small, large = (table.loc[cell["id"]] for cell in cells)
    assert (step["num_launches"], step["median_s"], step["min_s"], step["max_s"]) == (3, 0.11, 0.10, 0.12)
    assert step["range_ratio"] == pytest.approx(0.181818, rel=1e-5)
    assert small["range_ratio"] == pytest.approx(0.666667, rel=1e-5)
    assert large["num_launches"] == 1
    assert table["range_ratio"].isna().sum() == 1


def test_numbers_are_found_with_the_unit_beside_them_and_not_in_names():
    sentence = (
        "resnet18, 1×2: ddp 25 MiB takes 380 [370, 390] µs, 27.7 % (27.3 to 27.9), 1.02 to 1.50 ms (n = 3) on node001."
    )
    assert numbers(sentence) == [
        ("25", "MiB"), ("380", "µs"), ("370", "µs"), ("390", "µs"), ("27.7", "%"), ("27.3", "%"), ("27.9", "%"),
        ("1.02", "ms"), ("1.50", "ms"), ("3", ""),
    ]  # fmt: skip
    assert texts_of("step_s", 0.0123) >= {("12.3", "ms"), ("0.0123", "s")}
    assert ("12.3", "s") not in texts_of("step_s", 0.0123)
