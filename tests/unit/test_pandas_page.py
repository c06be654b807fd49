"""docs/pandas.md: each of its plots is drawn as the page says, from the files of a synthetic campaign."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from test_frozen_tables import CAMPAIGNS, run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pandas.md").read_text(encoding="utf-8")
START, *PLOTS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "cluster"
    CAMPAIGNS["cluster"](folder)
    (campaign,) = folder.glob("campaign.*.json")
    measurements = folder / "measurements.csv"
    store = ("--launches", folder / "launches", "--measurements", measurements)
    run("analyse", "--campaign", campaign, *store, "--out-dir", folder / "tables")
    return folder


@pytest.fixture
def drawn(folder):
    """A function that runs the start of the page and one plot, and returns its axes and cells.csv."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    def draw(number: int) -> tuple:
        exec(START.replace("results/laptop", str(folder)) + PLOTS[number], {})
        return pyplot.gca(), pd.read_csv(folder / "cells.csv")

    yield draw
    pyplot.close("all")


def test_the_page_has_three_plots_of_five_lines():
    assert [len(plot.splitlines()) for plot in PLOTS] == [5, 5, 5]


def test_the_plot_of_scaling_has_the_throughput_of_each_cell_with_its_interval(drawn):
    axes, cells = drawn(0)
    steps = cells[cells["benchmark"] == "train_step"]
    assert len(axes.containers) == 2 * 2 * 4 == len(axes.get_legend_handles_labels()[1])  # models, stacks, strategies
    points = [tuple(point) for drawn in axes.containers for point in drawn.lines[0].get_xydata()]
    assert sorted(points) == sorted(zip(steps["world_size"], steps["throughput_samples_per_s"], strict=True))
    assert all(list(line.lines[0].get_xdata()) == sorted(line.lines[0].get_xdata()) for line in axes.containers)
    ends = np.concatenate([bar[:, 1] for line in axes.containers for bar in line.lines[2][0].get_segments()])
    known = np.concatenate([steps["throughput_low_samples_per_s"], steps["throughput_high_samples_per_s"]])
    assert sorted(ends) == pytest.approx(sorted(known))


def test_the_plot_of_bandwidth_has_each_cell_of_all_reduce(drawn):
    axes, cells = drawn(1)
    calls = cells[cells["operation"] == "all_reduce"].sort_values(["stack", "message_bytes"])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [line.get_label() for line in axes.lines] == ["(1, 4, 'bound')", "(1, 4, 'contained')"]
    points = np.concatenate([line.get_xydata() for line in axes.lines])
    assert points.tolist() == calls[["message_bytes", "busbw_gb_per_s"]].to_numpy(float).tolist()
    bands = {value for band in axes.collections for value in band.get_paths()[0].vertices[:, 1]}
    assert {*calls["busbw_low_gb_per_s"], *calls["busbw_high_gb_per_s"]} <= bands


def test_the_plot_of_launches_has_each_launch_relative_to_the_mean_of_its_cell(drawn):
    axes, cells = drawn(2)
    steps = cells[cells["benchmark"] == "train_step"]
    points = np.concatenate([dots.get_offsets().filled(np.nan) for dots in axes.collections])
    points = points[~np.isnan(points[:, 1])]
    assert len(points) == steps["num_launches"].sum() == 3 * len(steps)
    assert set(points[:, 0]) == {0, 1, 2}
    assert np.log1p(points[:, 1] / 100).sum() == pytest.approx(0, abs=1e-6)  # means are geometric
