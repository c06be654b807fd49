"""A slow node is one mark everywhere: the loss that it causes, the figures, the matrix, the lines that rest on its cells."""

import math

import pandas as pd
import pytest
from planted import Said, plant
from synthetic import CLUSTER, analyse, cluster_campaign

from regatta.report.chart import HOLLOW, SLOW
from regatta.tables.places import ratios_without
from regatta.topics.catalog import drawn_figures, render
from regatta.topics.scaling.scaling_findings import loss_bars
from regatta.topics.scaling.scaling_section import headline, panel_rows
from regatta.topics.status_matrix import status_matrix
from regatta.topics.warnings_section import marks

TRUTH = 0.823  # efficiency on 8x4 GPUs of the synthetic cluster


def campaign():
    cells = [cell for cell in cluster_campaign()["cells"] if cell["spec"]["stack"]["name"] == "contained"]
    shapes = [cell for cell in cells if (cell["spec"]["nodes"], cell["spec"]["gpus_per_node"]) != (1, 2)]
    return cluster_campaign() | {"cells": [one for one in shapes if "resnet101" not in one["id"]]}


def said(folder, slow) -> Said:
    def seconds(spec, *_):
        return CLUSTER.seconds(spec | {"stack": {"name": "same"}})

    return Said(analyse(plant(folder, campaign(), seconds, slow=slow)))


@pytest.fixture(scope="module")
def with_n05(tmp_path_factory) -> Said:
    return said(tmp_path_factory.mktemp("slow") / "r", {"n05": 1.2})


def test_the_loss_by_a_slow_node_is_no_loss_between_nodes(with_n05):
    values, bars = with_n05.lines["scaling"], {bar.label: bar.parts for bar in loss_bars(with_n05.data)}
    assert values["slow_node"] == "n05"
    assert values["without_slow_node_ratio"] == pytest.approx(TRUTH, abs=0.015)
    assert set(values["largest_losses"].values()) == {"slow_node_ratio"}
    *_, between, by_node = bars["8×4"]
    assert by_node == pytest.approx(100 * (TRUTH - TRUTH / 1.2), abs=1.5)
    assert between == pytest.approx(8.5, abs=1.5)
    assert sum(filter(None, bars["8×4"])) == pytest.approx(100)
    assert {bars[shape][-1] for shape in bars if shape != "8×4"} == {None}


def test_the_first_figure_has_the_efficiency_without_a_slow_node(with_n05):
    [figure] = headline(with_n05.data, panel_rows(with_n05.data, with_n05.data.cells_of("train_step")))
    guide = figure.chart.of("without n05")
    assert guide["x"].tolist() == [16, 32]
    assert guide["y"].iloc[-1] == pytest.approx(100 * TRUTH, abs=1.5)


def test_cells_on_a_slow_node_have_one_mark_and_no_warning(with_n05):
    data = with_n05.data
    on_it = {cell.id for cell in data.campaign.cells if cell.nodes == 8}
    assert set(data.places) == on_it
    [text] = set(data.places.values())
    assert text.startswith("n05 (20 % ")
    assert marks(data, with_n05.warnings) == {}
    assert status_matrix(data).included(data.places) == {"8×4": f"includes {text}"}
    figures = {figure.id: figure for figure in drawn_figures(data)}
    for name in ("headline", "efficiency-1", "bandwidth-1"):
        frame = figures[name].chart.frame
        assert set(frame.loc[frame[SLOW].notna(), "cell"]) == on_it.intersection(frame["cell"])
        assert HOLLOW in figures[name].svg


def test_lines_on_cells_of_a_slow_node_name_it_and_have_no_alarm(with_n05):
    for name in ("scaling", "communication"):
        assert "confidence" not in with_n05.lines[name]
    [reason] = with_n05.lines["confidence"]["reasons"]
    assert reason["kind"] == "straggler_host"
    assert with_n05.lines["confidence"]["straggler"]["slower_ratio"] == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("slow", [{}, {"n01": 1.2}])
def test_nothing_is_stated_without_a_slow_node_or_if_baselines_ran_on_it(tmp_path, slow):
    found = said(tmp_path / "r", slow)
    assert "slow_node" not in found.lines["scaling"]
    assert {bar.parts[-1] for bar in loss_bars(found.data)} == {None}
    assert (HOLLOW in render(found.data)) == bool(slow)


def test_of_two_slow_nodes_the_gain_is_that_without_the_slowest(tmp_path):
    found = said(tmp_path / "r", {"n05": 1.2, "n06": 1.4})
    assert found.lines["scaling"]["slow_node"] == "n06"
    assert found.lines["scaling"]["without_slow_node_ratio"] == pytest.approx(TRUTH / 1.2, abs=0.015)
    [text] = set(found.data.places.values())
    assert text.startswith("n06 (40 % ")
    assert ", n05 (" in text


def rows_of(*launches):
    """Return measurements of one cell: of each launch its hosts, last host, and lag; a step takes 1 s."""
    rows = [dict(zip(("hosts", "last_host", "last_host_lag_s"), of, strict=True)) for of in launches]
    common = {"cell": "c", "benchmark": "train_step", "status": "ok", "p50_s": 1.0, "window_step_s": 1.0}
    return pd.DataFrame([common | row | {"repeat": n, "launch": f"b-l{n}-a00"} for n, row in enumerate(rows)])


def test_a_step_without_a_node_waits_for_the_slowest_of_the_others():
    lags = rows_of(("a, b", "b", 0.2), ("a, b", "b", 0.0), ("a, b", "a", 0.5), ("a, c", "c", 0.1))
    assert ratios_without(lags, "b") == {"c": pytest.approx(0.8**-0.25)}  # in launches 3 and 4 it costs nothing
    assert ratios_without(lags, "d") == {}


def test_a_node_whose_computation_was_not_timed_has_no_ratio():
    assert ratios_without(rows_of(("a, b", "b", 0.2), ("a, b", None, math.nan)), "b") == {"c": None}
    assert ratios_without(rows_of(("a, b", "b", 1.5)), "b") == {"c": None}  # more than the step
