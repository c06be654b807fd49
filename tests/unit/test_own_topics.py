"""Figures and findings on users' training scripts and programs."""

import re

import pytest
from synthetic import analyse, lines_of, make_campaign, write_results
from synthetic_own import MACHINE, program_cell, script_cell, write_own

from regatta.core.text import three
from regatta.tables.cells import cells_table
from regatta.topics import programs, scripts
from regatta.topics.status_matrix import status_matrix


def by_kind(found) -> dict:
    return {finding.kind: finding for finding in found}


def make(folder, cells: list[dict], repeats: int = 5):
    baseline = {"nodes": 1, "gpus_per_node": 1}
    return analyse(write_results(folder, make_campaign(cells, repeats=repeats, baseline=baseline), MACHINE))


def test_the_summary_has_efficiency_and_value(tmp_path):
    """Two ranks take 25 % longer, so the efficiency is 80 %; 10¹² B in 12.5 s are 80 GB/s."""
    data = analyse(write_own(tmp_path / "own"))
    found = by_kind(scripts.findings(data))["scripts"].values
    assert (found["script"], found["world_size"]) == ("train.py", 2)
    assert found["lowest"].estimate == pytest.approx(0.8, rel=0.01)
    assert found["highest"].estimate == pytest.approx(0.8, rel=0.01)
    assert found["lowest"].estimate < found["highest"].estimate
    program = by_kind(programs.findings(data))["programs"]
    assert program.values["value"].estimate == pytest.approx(80, rel=0.01)
    assert (program.values["unit"], program.cells[0]) == ("GB/s", program_cell(5, 2, stack="old")["id"])


def test_without_a_baseline_the_throughput_counts_and_without_samples_the_step(tmp_path):
    with_samples = make(tmp_path / "a", [script_cell(8, 1), script_cell(16, 1)])
    found = by_kind(scripts.findings(with_samples))["scripts"].values
    assert found["throughput"].estimate == pytest.approx(100 / 0.97, rel=0.01)  # a window of 5 steps takes 4.85
    without = make(tmp_path / "b", [script_cell(8, 1, samples=None), script_cell(16, 1, samples=None)])
    found = by_kind(scripts.findings(without))["scripts"].values
    assert found["step"].estimate == pytest.approx(0.0776, rel=0.01)
    assert "throughput" not in found
    squares = [square.text for square in status_matrix(without).squares]
    assert squares == [f"{three(1000 * time)} ms" for time in without.cells_of("script")["step_s"]]


def test_a_baseline_that_was_not_measured_leaves_the_throughput(tmp_path):
    found = by_kind(scripts.findings(make(tmp_path / "r", [script_cell(8, 2)])))["scripts"].values
    assert found["throughput"].estimate == pytest.approx(160 / 0.97, rel=0.01)  # 2 ranks, 8 samples each in 100 ms
    assert "lowest" not in found


def test_a_baseline_by_a_parameter_of_the_script_counts_samples(tmp_path):
    """A step of 16 samples takes twice as long as one of 8: the throughput per rank is equal."""
    cells = [script_cell(batch, 1) for batch in (8, 16)]
    for cell, batch in zip(cells, (8, 16), strict=True):
        cell["spec"]["script"] = {"path": "/train.py", "arguments": [str(batch)], "parameters": {"batch": batch}}
    campaign = make_campaign(cells, repeats=5, baseline={"batch": 8})
    rows = analyse(write_results(tmp_path / "r", campaign, MACHINE)).cells_of("script").set_index("cell")
    assert set(rows["baseline"]) == {cells[0]["id"]}
    assert rows.loc[cells[1]["id"], "efficiency_ratio"] == pytest.approx(1, rel=0.01)


def test_of_uncertain_efficiencies_the_highest_is_stated_before_the_judgement(tmp_path):
    data = make(tmp_path / "r", [script_cell(batch, gpus) for batch in (8, 16) for gpus in (1, 2)])
    rows = data.cells_of("script")
    for batch, ratio, low, high in ((8, 0.37, 0.29, 0.47), (16, 0.9, 0.5, 1.6)):
        of_batch = (rows["world_size"] == 2) & (rows["samples_per_step"] == batch)
        rows.loc[of_batch, ["efficiency_ratio", "efficiency_low_ratio", "efficiency_high_ratio"]] = (ratio, low, high)
    found = by_kind(scripts.findings(data))["scripts"].values
    assert "lowest" not in found
    assert (found["uncertain"].estimate, found["uncertain"].low, found["uncertain"].high) == (0.9, 0.5, 1.6)
    line = lines_of(data)["scripts"]
    assert re.findall(r"\d+(?= %|\N{EN DASH})", line.lead) == ["90", "95", "50", "160"]
    assert scripts.TOPIC.stated(scripts.findings(data)[0]).mark == "uncertain"


def test_each_script_and_program_has_a_finding_and_figures(tmp_path):
    cells = [script_cell(8, n, script=name) for n in (1, 2, 4) for name in ("a.py", "b.py")]
    cells += [program_cell(5, n, program=name) for n in (1, 2) for name in ("p", "q")]
    data = make(tmp_path / "r", cells)
    assert [(f.kind, f.values["script"]) for f in scripts.findings(data)] == [
        ("scripts", "a.py"),
        ("other_script", "a.py"),
        ("other_script", "b.py"),
    ]
    assert [f.kind for f in programs.findings(data)] == ["programs", "other_program", "other_program"]
    assert [figure.id for figure in scripts.section(data).figures] == [
        *("script-efficiency-1", "script-efficiency-2", "script-throughput-1", "script-throughput-2"),
    ]
    assert len(programs.section(data).figures) == 2


def test_one_value_is_no_figure_and_one_shape_shows_throughput(tmp_path):
    data = make(tmp_path / "r", [script_cell(8, 1, script="a.py"), script_cell(9, 1, script="b.py")])
    assert scripts.section(data).figures == ()
    squares = status_matrix(data).squares
    rates = data.cells_of("script")["throughput_samples_per_s"]
    assert [square.text for square in squares] == [f"{three(rate)}" for rate in rates]
    assert [square.level for square in squares] == [None, None]


def test_sizes_of_one_launch_are_drawn_over_the_message_size(tmp_path):
    cells = [program_cell(5, n) for n in (1, 2) for _ in range(3)]
    for cell, size in zip(cells, ["8", "1KiB", "1 MiB"] * 2, strict=True):
        text = cell["spec"]["parameters"]["settings"] + f", size {size}"
        cell["spec"]["parameters"] |= {"settings": text, "reported_quantity": "time (s)"}
        cell["spec"]["program"] |= {"read": "osu", "parameters": {"n": "5", "size": size}}
        cell["id"] += size.replace(" ", "")
    data = make(tmp_path / "r", cells)
    (figure,) = programs.section(data).figures
    assert [*figure.chart.styles] == ["1×1", "1×2"]
    assert "by message size" in figure.svg
    assert len(figure.table.cells) == 6
    # The output of two ranks names an all-gather: the factor is 1/2, and a call of 1 MiB takes 12.5 s.
    factors = data.measurements["world_size"].map({1: None, 2: 0.5}).astype("Float64")
    data.tables["cells"] = cells_table(data.campaign, data.measurements.assign(bus_factor=factors))
    data.once.clear()
    rows = data.cells_of("program").set_index(["world_size", "settings"])
    assert rows.loc[2, "busbw_gb_per_s"]["n 5, size 1 MiB"] == pytest.approx(2**20 / 1e9 / 12.5 / 2, rel=0.01)
    assert rows.loc[1, "busbw_gb_per_s"].isna().all()
    section = programs.section(data)
    (_, figure) = section.figures
    assert (figure.title.partition(":")[0], len(figure.table.cells)) == ("Bus bandwidth", 3)
    assert "Bus bandwidth (GB/s)" in section.tables[0].columns


def test_one_shape_is_drawn_by_setting_and_several_over_ranks(tmp_path):
    data = make(tmp_path / "one", [program_cell(n, 1, stack=stack) for n in (5, 6) for stack in ("old", "new")])
    (figure,) = programs.section(data).figures
    assert {cell.id for cell in data.campaign.cells} == set(figure.table.cells)
    rows = figure.chart.marks.sort_values("x", kind="stable")[["x", "series"]]
    assert rows.to_numpy().tolist() == [["n 5", "old"], ["n 5", "new"], ["n 6", "old"], ["n 6", "new"]]
    several = make(tmp_path / "several", [program_cell(5, n) for n in (1, 2)])
    (figure,) = programs.section(several).figures
    assert [*figure.chart.styles] == ["n 5"]


def test_a_time_is_better_if_it_is_smaller(tmp_path):
    read = {"elapsed": {"match": r"t: (\S+)", "unit": "ms", "better": "smaller"}}
    data = make(tmp_path / "r", [program_cell(5, 1, read=read), program_cell(6, 1, read=read, stack="new")])
    found = by_kind(programs.findings(data))["programs"].values
    assert found["value"].estimate == pytest.approx(10_000, rel=0.01)
    (square, _) = status_matrix(data).squares
    assert square.text == "10.0 s"


def test_quantities_of_a_program_are_named_also_with_braces_and_parentheses(tmp_path):
    names = ("x (warm)", "x (cold)", "{y} {rank}")
    reads = [{name: {"match": r"t: (\S+)", "unit": "ms", "better": "smaller"}} for name in names]
    data = make(tmp_path / "r", [program_cell(n, 1, read=read) for read in reads for n in (5, 6)])
    titles = [figure.title for figure in programs.section(data).figures]
    assert titles == ["X (cold): program sum", "X (warm): program sum", "{y} {rank}: program sum"]
    assert [found.values["quantity"] for found in programs.findings(data)[1:]] == sorted(names)
    (one, _) = programs.findings(make(tmp_path / "one", [program_cell(n, 1, read=reads[0]) for n in (5, 6)]))
    assert one.values["quantity"] is None


@pytest.mark.parametrize(("phase", "is_unread"), [("measure", True), (None, False)])
def test_an_output_that_was_not_read_needs_no_measurement(tmp_path, phase, is_unread):
    """Another pattern reads the kept output; only a program at fault is measured again."""
    cells = [program_cell(5, n) for n in (1, 2)]
    cells[1]["spec"]["program"]["command"].append("{output}")
    folder, fault = tmp_path / "results", ("failed", phase, "read.rate: no line matches; pattern 'x'")
    campaign = make_campaign(cells, name="own", repeats=2)
    write_results(folder, campaign, MACHINE, {(cells[1]["id"], repeat): fault for repeat in range(2)})
    data = analyse(folder)
    found = by_kind(of for of in data.findings if of.kind in ("failed", "missing_launches"))
    values = found["failed"].values
    assert ("program" in values, found["missing_launches"].values["num_unread"]) == (is_unread, 2 * is_unread)
    if is_unread:
        batch = values["output"].split("/")[3]
        assert values["output"] == f"results/own/batches/{batch}/outputs/{values['output'].split('/')[5]}/output"
        assert values["program"] == "sum"
    advice = {name: found["missing_launches"].advice.find(name) for name in ("`read`", "--forcerun")}
    assert (0 < advice["`read`"] < advice["--forcerun"]) == is_unread
    steps = [of.next_step for of in found.values()]
    assert ["make try BENCHMARK=sum" in step for step in steps if step] == [is_unread]
