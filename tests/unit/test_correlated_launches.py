"""Intervals are widened where successive launches are correlated, and the page says so; chance in a batch is not it.

Each shape is a batch of 8 cells, all of which follow one pattern: launches are a batch's, not a campaign's.
"""

import math

import pytest
from planted import Said, plant
from synthetic import analyse, collective_cell, make_campaign

UP, DOWN, VEE = (-1, 0, 1), (1, 0, -1), (1, -2, 1)
GPU = {"device": "cuda", "backend": "nccl", "cluster": "gh200"}


def said(folder, patterns, stacks=("contained",), amplitude=0.02) -> Said:
    """Return what is said on one batch for each pattern of three launches; the second stack has the opposite one."""
    cluster = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
    cells = [
        collective_cell(1024 * 2**size, nodes, 4, stack=stack, **GPU)
        for nodes in range(1, len(patterns) + 1)
        for size in range(8)
        for stack in stacks
    ]
    for cell in cells:
        cell["spec"]["stack"]["env"] = {"STACK": cell["spec"]["stack"]["name"]}  # else they are A/A

    def seconds(spec, repeat, _):
        sign = 1 if spec["stack"]["name"] == stacks[0] else -1
        return 1e-3 * math.exp(sign * amplitude * patterns[spec["nodes"] - 1][repeat])

    campaign = make_campaign(cells, cluster=cluster, device="cuda", repeats=3)
    return Said(analyse(plant(folder / "r", campaign, seconds, noise=1e-6)))


@pytest.mark.parametrize(
    ("patterns", "correlation"),
    [
        # 4 of 6 batches rise or fall, as a third of all orders do: by chance in 10 % of campaigns; 6 of 6 in 0.1 %.
        ((UP, UP, DOWN, DOWN, VEE, VEE), None),
        ((UP, UP, UP, DOWN, DOWN, DOWN), 0.15),
    ],
)
def test_intervals_are_widened_only_if_batches_agree_and_the_page_says_so(tmp_path, patterns, correlation):
    found = said(tmp_path, patterns, ("contained", "bound"))
    values = found.lines["comparison"]
    factor = correlation and math.sqrt((1 + 2 * s_of(correlation)) / (1 - s_of(correlation)))
    assert (values["num"], values["num_widened"]) == (48, 48 if correlation else 0)
    assert (values.get("launch_correlation"), values.get("widening_ratio")) == pytest.approx((correlation, factor))
    rows = found.data.tables["comparisons"]
    assert rows["launch_correlation"].isna().all() if correlation is None else set(rows["launch_correlation"]) == {0.15}
    [verdicts] = [one for one in found.data.findings if one.kind == "verdicts"]
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    for text in ("are widened by a factor of up to 1.17", "(0.15): the intervals of 48 of 48 pairs"):
        assert ((text in verdicts.text), (text in page)) == (correlation is not None,) * 2


def s_of(rho: float) -> float:
    """Return S of docs/metrics.md for 3 launches: 2 S / (n - 1) = S."""
    return (1 - 1 / 3) * rho + (1 - 2 / 3) * rho**2


@pytest.mark.parametrize(
    ("patterns", "widened"),
    [((UP, UP, DOWN, DOWN, VEE, VEE), []), ((UP, UP, UP, DOWN, DOWN, DOWN), [(48, 48, 0.15)])],
)
def test_widened_intervals_of_times_are_a_note(tmp_path, patterns, widened):
    found = [one for one in said(tmp_path, patterns).warnings if one.kind == "correlated_launches"]
    assert [(one.values["num"], one.values["num_cells"], one.values["correlation"]) for one in found] == widened
    assert {one.rank for one in found} <= {"note"}
