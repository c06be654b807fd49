"""Whether a choice depends on the cell: one cell that chance puts in the other direction does not make it so."""

import math

import pytest
from planted import Said, plant
from synthetic import analyse, collective_cell, make_campaign

GPU = {"device": "cuda", "backend": "nccl", "cluster": "gh200"}
ORDERS = [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)]


def said(folder, others) -> Said:
    """Return what is said on 24 cells of two stacks: 12 are 10 % slower on the second, the last ones as in `others`."""
    cluster = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
    sizes = [1024 * 2**size for size in range(24)]
    cells = [collective_cell(size, 2, 4, stack=stack, **GPU) for size in sizes for stack in ("contained", "bound")]
    for cell in cells:
        cell["spec"]["stack"]["env"] = {"STACK": cell["spec"]["stack"]["name"]}  # else they are A/A
    shifts = [0.1 if place % 2 else 0.0 for place in range(24)]  # slower ones have no pattern of sizes
    for place, shift in zip((6, 14), others, strict=False):
        shifts[place] = shift

    def seconds(spec, repeat, _):
        place = sizes.index(spec["parameters"]["message_bytes"])
        noise = 0.01 * (ORDERS[place % 6][repeat] - 1)  # a standard deviation of 1 % between pairs
        is_bound = spec["stack"]["name"] == "bound"
        return 1e-3 * math.exp((shifts[place] + noise) * is_bound)

    campaign = make_campaign(cells, cluster=cluster, device="cuda", repeats=3)
    return Said(analyse(plant(folder / "r", campaign, seconds, noise=1e-6)), False)


@pytest.mark.parametrize(
    ("others", "outcome", "choice"),
    [
        ((-0.024,), "uncertain", "uncertain"),  # p 0.0016, of 12 cells that are not slower: in 2 % of campaigns
        ((-0.024, -0.024), "both_ways", "depends on the cell"),
        ((-0.060,), "both_ways", "depends on the cell"),
    ],
)
def test_a_choice_depends_on_the_cell_only_beyond_chance(tmp_path, others, outcome, choice):
    found = said(tmp_path, others)
    values = found.lines["comparison"]
    assert values["num_significant"] == {"slower": 12, "faster": len(others)}
    assert [part["outcome"] for part in values["parts"]] == [outcome]
    [line] = [line for line in found.answer["lines"] if line["id"] == "comparison"]
    assert choice in str(line)
