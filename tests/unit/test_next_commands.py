"""Commands of "Next": the variables of the run, quoted for a shell, and the price of what they measure."""

import json
import shlex

import pandas as pd
import pytest
from synthetic import CLUSTER, LAPTOP, analyse, cluster_campaign, make_campaign, train_cell, write_results

from regatta.model.frozen import FrozenCampaign
from regatta.report.commands import RUN_FILE, command_words, price_text
from regatta.topics.summary import next_steps


def campaign_of(cells, **fields):
    return FrozenCampaign.from_json(make_campaign(cells, **fields))


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        ({"config": "config/config.yaml", "profile": "profiles/local"}, ["make", "campaign"]),
        (
            {"config": "my.yaml", "profile": "profiles/slurm"},
            [*"make campaign CONFIG=my.yaml PROFILE=profiles/slurm".split()],
        ),
        ({"config": "a 'b'; rm x.yaml", "profile": "profiles/local"}, ["make", "campaign", "CONFIG=a 'b'; rm x.yaml"]),
        ({"config": "$HOME.yaml", "profile": "profiles/local"}, ["make", "campaign", "CONFIG=$$HOME.yaml"]),
        (None, ["make", "campaign"]),  # a store of before, with the default campaign
        ([], ["make", "campaign"]),
    ],
)
def test_a_command_has_the_file_and_profile_of_the_run(tmp_path, recorded, words):
    if recorded is not None:
        (tmp_path / RUN_FILE).write_text(json.dumps(recorded))
    found = command_words(tmp_path, campaign_of([train_cell("resnet18", 1, 1)], source="config.yaml"))
    assert shlex.split(found["run"]) == words
    assert shlex.split(found["retry"]) == [*words, "ARGS=--forcerun measure"]
    assert shlex.split(found["try_read"]) == ["make", "try", *words[2:3]]


def price(campaign, found, slots) -> tuple[int, str]:
    """Return the number of launches and their time as text; empty if unknown."""
    num, _, time = price_text(campaign, *found, slots).partition(": about ")
    return int(num.split()[0]), time


def tables(elapsed, launches=()):
    """Return measurements (cell, seconds, status unless ok) and launches (span, seconds of cells)."""
    measurements = pd.DataFrame(
        [(cell.id, cell.benchmark, *cell.shape, seconds, *(status or ["ok"])) for cell, seconds, *status in elapsed],
        columns=["cell", "benchmark", "nodes", "gpus_per_node", "elapsed_s", "status"],
    )
    spans = [("2026-01-01T00:00:00Z", f"2026-01-01T00:00:{span:02d}Z", cells_s) for span, cells_s in launches]
    return measurements, pd.DataFrame(spans, columns=["start_utc", "end_utc", "cells_s"])


def test_a_price_is_the_time_of_the_cells_and_of_starting_their_launches():
    """One launch of both cells: 4 s of overhead + 10 s + 20 s (the median of 19, 20 and 30); two launches: 68 s."""
    campaign = campaign_of([train_cell("resnet18", 1, 2), train_cell("resnet50", 1, 2)])
    one, two = campaign.cells
    found = tables([(one, 10.0), (two, 19.0), (two, 20.0), (two, 30.0)], [(40, 36.0)])
    assert price(campaign, found, [(one.id, 3), (two.id, 3)]) == (1, "34 s")
    assert price(campaign, found, [(cell.id, n) for cell in (one, two) for n in (3, 4)]) == (2, "1.1 min")
    isolated = campaign_of([train_cell("resnet18", 1, 2), train_cell("resnet50", 1, 2)], isolation="process")
    assert price(isolated, found, [(one.id, 3), (two.id, 3)]) == (2, "38 s")


def test_a_cell_without_a_record_takes_the_time_of_its_kind_or_the_price_has_no_time():
    campaign = campaign_of([train_cell("resnet18", 1, 2), train_cell("resnet50", 1, 2), train_cell("resnet50", 2, 2)])
    one, two, other_shape = campaign.cells
    found = tables([(one, 10.0)])
    assert price(campaign, found, [(two.id, 0)]) == (1, "10 s")
    assert price(campaign, found, [(two.id, 0), (other_shape.id, 0)]) == (2, "")


def test_a_cell_that_failed_early_takes_the_time_of_valid_records():
    campaign = campaign_of([train_cell("resnet18", 1, 2), train_cell("resnet50", 1, 2)])
    one, two = campaign.cells
    valid = [(one, 10.0)]
    assert price(campaign, tables([*valid, (two, 1.0, "failed")]), [(two.id, 0)]) == (1, "10 s")
    assert price(campaign, tables([*valid, (one, 1.0, "failed"), (one, 1.0, "failed")]), [(one.id, 0)]) == (1, "10 s")
    assert price(campaign, tables([(two, 1.0, "failed")]), [(two.id, 0)]) == (1, "1.0 s")


def test_a_retry_has_the_price_of_all_that_is_not_ok(tmp_path):
    campaign = make_campaign([train_cell("resnet18", 1, 2), train_cell("mobilenet_v3_small", 1, 2)])
    fault = {(campaign["cells"][0]["id"], 0): ("failed", "measure", "boom")}
    fault |= {(cell["id"], 2): "not_measured" for cell in campaign["cells"]}  # no record
    [step] = [
        step for step in next_steps(analyse(write_results(tmp_path / "r", campaign, LAPTOP, fault))) if "retry" in step
    ]
    assert "(2 launches: about " in step


def test_more_repeats_have_the_price_of_the_launches_that_they_add(tmp_path):
    """From 1 to 3 launches of two stacks in each of 6 shapes."""
    data = analyse(write_results(tmp_path / "r", cluster_campaign(repeats=1), CLUSTER))
    shapes = {cell.shape for cell in data.campaign.cells}
    [step] = [step for step in next_steps(data) if "`repeats: 3`" in step]
    assert f"({2 * 2 * len(shapes)} launches: about " in step
