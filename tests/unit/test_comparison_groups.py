"""Cells that change alike over campaigns: planted groups are found, described, and drawn within the axis."""

import random
import re

import pytest
from comparison_results import write_folder
from synthetic import CLUSTER, cluster_campaign

from regatta.compare.campaign_history import changes_of
from regatta.compare.campaigns import compare_campaigns, distinct_names, read_campaign
from regatta.compare.change_groups import all_cells, change_groups, group_figure, group_lines
from regatta.compare.comparison_output import comparison_page, pairs_of
from regatta.tables.pairs import judged_rows
from regatta.topics.comparison.comparison_figures import workloads_figure

TORCH = {"v1": "2.8.0", "v2": "2.9.0"}


def is_large_step(spec):
    return (spec["benchmark"], spec["nodes"]) == ("train_step", 8)


def compared_in(folder, factors, is_changed=is_large_step, launches=6, noise=0.004):
    """Return campaigns against the first. factors: of the times of the changed cells, by campaign."""
    rng, campaigns = random.Random(1), []
    cells = [cell for cell in cluster_campaign()["cells"] if cell["spec"]["stack"]["name"] == "contained"]
    for day, (name, factor) in enumerate(factors.items(), start=1):
        times = []
        for cell in cells:
            time = CLUSTER.seconds(cell["spec"]) * (factor if is_changed(cell["spec"]) else 1)
            times.append((cell, [time * rng.lognormvariate(0, noise) for _ in range(launches)]))
        path = write_folder(folder / name, times, f"{day:02d}", {"torch": TORCH.get(name, "2.9.0")})
        campaigns.append(read_campaign(path))
    return [compare_campaigns(campaigns[0], of, 0.05) for of in campaigns[1:]]


def groups_of(compared):
    return change_groups(compared, judged_rows(pairs_of(compared)))


def names_and_changes(compared):
    campaigns = [compared[0].base, *(of.test for of in compared)]
    return distinct_names(*campaigns), changes_of(campaigns)


def figures_of(compared):
    return [group_figure(of, *names_and_changes(compared), 0) for of in groups_of(compared)]


def lines_of(compared):
    """Return the label and the numbers of each line."""
    judged = judged_rows(pairs_of(compared))
    lines = group_lines(change_groups(compared, judged), judged, *names_and_changes(compared))
    return {label: re.findall(r"(v\d|back|still|[+−±]?\d+\.?\d* %|\d+ of \d+|\d+ (?=cells|others))", lead) for _, label, lead, _ in lines}  # fmt: skip


def test_a_repaired_group_of_five_campaigns_has_its_campaigns_and_its_cells(tmp_path):
    compared = compared_in(tmp_path, {"v1": 1, "v2": 1, "v3": 1.12, "v4": 1, "v5": 1})
    [group] = groups_of(compared)
    cells = {cell.id for cell in compared[0].base.campaign.cells if cell.benchmark == "train_step" and cell.nodes == 8}
    assert group.references == cells
    assert [step.word for step in group.steps] == ["equivalent", "slower", "equivalent", "equivalent"]
    assert [step.ratio for step in group.steps] == pytest.approx([1, 1.12, 1, 1], rel=0.01)
    assert all(step.low < step.ratio < step.high for step in group.steps)
    lines = lines_of(compared)
    assert lines["Changed"][:2] == ["6 ", "v3"]
    assert float(lines["Changed"][2].strip("+ %")) == pytest.approx(12, rel=0.02)
    assert lines["Changed"][3:5] == ["v4", "back"]
    assert lines["Others"][0] == "76 "
    assert float(lines["Others"][1].strip("± %")) < 1.5


def test_a_group_that_stays_slower_is_slower_now(tmp_path):
    lines = lines_of(compared_in(tmp_path, {"v1": 1, "v2": 1.4, "v3": 1.2, "v4": 1.2}))
    assert [word for word in lines["Slower"] if word[0] in "vsb"] == ["v2", "v3", "still", "v4"]


@pytest.mark.parametrize("is_all", [True, False])
def test_two_campaigns_have_their_group_and_their_only_difference(tmp_path, is_all):
    compared = compared_in(tmp_path, {"v1": 1, "v2": 1.12}, lambda spec: is_all or is_large_step(spec))
    judged = judged_rows(pairs_of(compared))
    (_, label, lead, _), *others = group_lines(change_groups(compared, judged), judged, *names_and_changes(compared))
    assert (label, len(others)) == ("Slower", 0 if is_all else 1)
    num = 82 if is_all else 6
    assert re.findall(r"\d[\d.]*(?!×)\b", lead.replace("8×4", "")) == ["2.8.0", "2.9.0", "12", f"{num}", f"{num}"]
    assert "slower" in lead


def test_single_cells_that_change_are_counted_with_those_that_still_do(tmp_path):
    def is_one(spec):
        return spec["parameters"].get("message_bytes") == 4096 and spec["nodes"] == 8

    compared = compared_in(tmp_path, {"v1": 1, "v2": 1.3, "v3": 1}, is_one)
    assert groups_of(compared) == []
    judged = judged_rows(pairs_of(compared))
    [counts] = group_lines([], judged, *names_and_changes(compared))
    assert [step.word for step in all_cells(judged).steps] == ["2 slower", "equivalent"]
    assert re.findall(r"(\d+) (?:cells|slower|in v3)", counts[2]) == ["82", "2", "0"]


def test_one_launch_is_not_judged(tmp_path):
    compared = compared_in(tmp_path, {"v1": 1, "v2": 1.3, "v3": 1}, launches=1)
    assert groups_of(compared) == []
    assert "inconclusive" in comparison_page(compared, tmp_path / "page.html")
    judged = judged_rows(pairs_of(compared))
    [(_, _, lead, _)] = group_lines([], judged, *names_and_changes(compared))
    assert re.findall(r"(\d+) (\w+)", lead) == [("82", "cells"), ("82", "inconclusive"), ("82", "in")]


@pytest.mark.parametrize("factor", [1.12, 1.6])
def test_the_axis_of_a_figure_has_all_values_at_their_place(tmp_path, factor):
    """A change of 60 % is five times as far from 0 as one of 12 %, and neither is cut off."""
    compared = compared_in(tmp_path, {"v1": 1, "v2": factor, "v3": 1})
    figures = figures_of(compared)
    figures.append(workloads_figure(judged_rows(compared[0].comparisons)))
    for figure in figures:
        chart = figure.chart
        assert not chart.y.is_log
        assert chart.y.low < min(chart.values) < max(chart.values) < chart.y.high
        assert chart.frame["y"].max() == pytest.approx(100 * (factor - 1), rel=0.05)
        assert max(chart.frame["high"].dropna()) < chart.y.high


def test_the_first_figure_has_a_row_for_each_workload_and_shape_that_changed_the_largest_first(tmp_path):
    [found] = compared_in(tmp_path, {"v1": 1, "v2": 1.12})
    rows = [row[:2] for row in workloads_figure(judged_rows(found.comparisons)).table.rows]
    slower = [label for label, verdict in rows if verdict == "slower"]
    assert sorted(slower) == [" · ".join((model, "8×4", "3 pairs")) for model in ("ResNet-101", "ResNet-50")]
    assert [verdict for _, verdict in rows] == ["slower"] * 2 + ["equivalent"] * 4
    nums = [int(re.search(r"(\d+) pairs", label)[1]) for label, _ in rows]
    assert sum(nums) == 82


def test_what_changed_in_the_environment_stands_on_the_axis(tmp_path):
    compared = compared_in(tmp_path, {"v1": 1, "v2": 1.12, "v3": 1})
    [figure] = figures_of(compared)
    changed, other = [text for _, text in figure.chart.x.ticks]
    assert re.findall(r"v\d|\d\.\d\.\d", changed) == ["v2", "2.8.0", "2.9.0"]
    assert other == "v3"


def test_the_page_of_several_campaigns_has_a_figure_for_each_group(tmp_path):
    compared = compared_in(tmp_path, {"v1": 1, "v2": 1.12, "v3": 1})
    page = comparison_page(compared, tmp_path / "page.html")
    assert re.findall('<figure id="([^"]*)"', page) == ["group-0"]
    assert 'href="#group-0"' in page
    assert len(re.findall("<svg", page)) == 1
