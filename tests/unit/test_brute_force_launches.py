"""Claims on random campaigns with six or more launches, training runs and idle allocations, computed with plain loops.

Nothing here uses the product's statistics: see test_brute_force.py, which has campaigns with fewer launches.
"""

import random

import pytest
from synthetic import make_campaign
from synthetic_training import run_cell
from test_brute_force import (
    case_of,
    compared_pairs,
    efficiencies,
    geometric_mean,
    median,
    random_campaign,
    random_launches,
    times_of,
)
from typed import cell_row

from regatta.topics.scaling.scaling_findings import efficiency_findings

SEEDS = range(12)


def utc(seconds):
    return f"2026-11-{21 + seconds // 86400}T{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"


@pytest.fixture(scope="module", params=SEEDS)
def case(request):
    rng = random.Random(1000 + request.param)
    campaign = random_campaign(rng) | {"repeats": rng.choice([6, 7, 8, 9, 12])}
    return case_of(campaign, *random_launches(rng, campaign))


def test_an_efficiency_has_an_interval_whose_width_decides_whether_it_is_uncertain(case):
    kinds = ("efficiency", "efficiency_uncertain")
    found = {of.cells[0]: of for of in efficiency_findings(case.data) if of.kind in kinds}
    expected = {ratio: (low, high) for _, ratio, low, high in efficiencies(case).values()}
    assert len(found) == len(expected)
    for finding in found.values():
        value = finding.values["efficiency"]
        ratio = min(expected, key=lambda ratio: abs(ratio - value.estimate))
        assert value.estimate == pytest.approx(ratio, rel=1e-6)
        assert value.kind == "single" or (value.low, value.high) == pytest.approx(expected[ratio], rel=1e-6)
        is_wide = value.low is not None and value.high - value.low > 0.2 * value.estimate
        assert finding.kind == ("efficiency_uncertain" if is_wide else "efficiency")


def test_the_verdicts_of_the_comparison(case):
    """By the interval of each ratio and the corrected p of the table, which test_verdicts.py computes again."""
    pairs = compared_pairs(case)
    if not pairs:
        assert "comparison" not in case.lines
        return
    corrected = case.data.tables["comparisons"].set_index("cell")["p_adjusted"].to_dict()
    counts = dict.fromkeys(("slower", "faster", "inconclusive", "equivalent"), 0)
    significant = dict.fromkeys(("slower", "faster"), 0)
    for _, low, high, num, _, cell, _ in pairs:
        p = corrected[cell]
        is_significant = p is not None and p == p and p <= 0.01
        word = "inconclusive"
        if low is not None:
            within = low >= 1 / 1.05 and high <= 1.05 and num >= 3
            word = "equivalent" if within else word
            word = "slower" if is_significant and low > 1.05 else word
            word = "faster" if is_significant and high < 1 / 1.05 else word
            significant["slower"] += is_significant and low > 1
            significant["faster"] += is_significant and high < 1
        counts[word] += 1
    [found] = case.found["compared"]
    assert found.values["by_verdict"] == counts
    assert found.values["num_significant"] == significant
    few = sum(low is None or num < 3 for _, low, _, num, *_ in pairs)
    is_equal = counts["equivalent"] == len(pairs)
    outcomes = {part["outcome"] for part in found.values["parts"]}
    assert (outcomes == {"undecided"}) == (few == len(pairs))
    assert (outcomes == {"equal"}) == (is_equal and found.values["direction"] is None)
    of_parts = sum(part.get("num_beyond", 0) for part in found.values["parts"])
    assert found.words["num_beyond"] + of_parts == counts["slower"] + counts["faster"]
    assert found.words["num_open"] == counts["inconclusive"] - few


def test_the_confidence_of_many_launches(case):
    ranges = {}
    for cell, times in times_of(case, "p50_s").items():
        values = list(times_of(case, "window_step_s").get(cell, times).values())
        if len(values) > 1:
            ranges[cell] = (max(values) - min(values)) / median(values)
    num = sum(ratio > 0.05 for ratio in ranges.values())
    values = case.lines["confidence"].values
    in_blocks = case.lines["comparison"].values["num_in_blocks"] if "comparison" in case.lines else 0
    word = "low" if not ranges or num > 0.5 * len(ranges) else "good" if num <= 0.2 * len(ranges) and not in_blocks else "fair"  # fmt: skip
    assert (values["word"], values["num_varying"]) == (word, num)


def test_the_cost_of_failed_measurements(case):
    """No launch failed as a whole, and no record of a failure has a time: the cost is unknown, not 0."""
    assert case.lines["failed"].values["lost_hours"] is None


# Training runs.


@pytest.fixture(params=SEEDS)
def runs(request):
    """Return a case with random training runs, and cell -> launch -> epochs of (seconds, accuracy)."""
    rng = random.Random(2000 + request.param)
    cells = [run_cell(strategy, 1, 2, rng.randint(1, 4)) for strategy in ("ddp", "own", "fsdp")[: rng.randint(1, 3)]]
    repeats, rows, epochs, launched = rng.choice([1, 2, 5, 6, 7, 9]), [], [], {}
    for cell in cells:
        for repeat in range(repeats):
            is_ok = rng.random() < 0.85
            record = {"repeat": repeat, "launch": f"a-l{repeat:03d}-a00", "line": 2}
            rows.append(cell_row(cell) | record | {"status": "ok" if is_ok else "failed", "phase": None, "cause": "x"})
            rows[-1] |= {"mean_s": 1.0, "p50_s": 1.0, "total_s": 0.0} if is_ok else {}
            for epoch in range(cell["spec"]["parameters"]["epochs"]) if is_ok else ():
                seconds, accuracy = rng.uniform(1, 3), rng.random()
                launched.setdefault(cell["id"], {}).setdefault(repeat, []).append((seconds, accuracy))
                row = {"cell": cell["id"], **record, "epoch": epoch + 1, "epoch_s": seconds, "train_s": 0.8 * seconds}
                row |= {"test_s": 0.2 * seconds, "train_samples": 100, "train_loss": 1.0, "test_loss": 1.0}
                epochs.append(row | {"accuracy_ratio": accuracy})
                rows[-1] |= {"total_s": rows[-1]["total_s"] + seconds, "accuracy_ratio": accuracy}
    return case_of(make_campaign(cells, repeats=repeats), rows, [], epochs=epochs), cells, launched


def test_the_fastest_training_run_of_each_workload(runs):
    case, cells, launched = runs
    by_epochs = {}  # the number of epochs is part of the workload
    for cell in cells:
        if cell["id"] in launched:
            totals = [sum(seconds for seconds, _ in epochs) for epochs in launched[cell["id"]].values()]
            by_epochs.setdefault(cell["spec"]["parameters"]["epochs"], []).append(
                (geometric_mean(totals), cell["id"], totals)
            )
    assert len(case.found["training"]) == len(by_epochs)
    for finding in case.found["training"]:
        of_workload = by_epochs[finding.values["epochs"]]
        complete = [run for run in of_workload if len(run[2]) == case.data.campaign.repeats] or of_workload
        fastest, cell, totals = min(complete)
        assert finding.cells == (cell,)
        assert finding.values["num_candidates"] == len(complete)
        value, accuracies = finding.values["total"], [epochs[-1][1] for epochs in launched[cell].values()]
        assert value.estimate == pytest.approx(fastest, rel=1e-6)
        assert finding.values["accuracy"].estimate == pytest.approx(sum(accuracies) / len(accuracies), rel=1e-6)
        for shown, of_launches in ((value, totals), (finding.values["accuracy"], accuracies)):
            if len(of_launches) == 2:
                assert (shown.low, shown.high) == pytest.approx((min(of_launches), max(of_launches)), rel=1e-6)
            assert shown.kind == {1: "single", 2: "range"}.get(len(of_launches), "interval")
    if by_epochs:
        first = case.found["training"][0].values["total"].estimate
        assert case.lines["training_runs"].values["total_s"] == first


# Idle time.


@pytest.fixture(params=SEEDS)
def idle(request):
    """Return a case with random jobs, and (ranks, seconds, seconds of its launches) of jobs with a known end."""
    rng = random.Random(3000 + request.param)
    launches, jobs, known, lost = [], [], [], []
    at = 0
    for number in range(rng.randint(1, 5)):
        nodes, gpus, batch = rng.randint(1, 4), rng.choice([1, 2, 4]), f"b{number}"
        for job in range(rng.randint(1, 2)):
            start, busy, ends_known = at, 0, rng.random() < 0.8
            for _ in range(rng.randint(0, 4)):
                at += rng.choice([0, 10, 100])
                seconds, num_ok = rng.randint(5, 90), rng.choice([0, 1, 3])
                cells_s = seconds * rng.choice([0.5, 0.9, 1.0])
                row = {"batch": batch, "launch": f"{batch}-l{len(launches):03d}-a00", "stack": "host", "nodes": nodes}
                row |= {"gpus_per_node": gpus, "hosts": "n1", "start_utc": utc(at), "end_utc": utc(at + seconds)}
                row |= {"end": "complete", "cells_s": cells_s, "warmup_s": 1.0, "measuring_s": 2.0, "num_ok": num_ok}
                launches.append(row | {"num_failed": 1})
                lost += [seconds * nodes * gpus / 3600] if num_ok == 0 else []
                at, busy = at + seconds, busy + seconds
            at += rng.choice([1, 50, 200])
            row = {"batch": batch, "job": str(job), "nodes": nodes, "gpus_per_node": gpus, "start_utc": utc(start)}
            jobs.append(row | {"end_utc": utc(at) if ends_known else None, "end": "finished" if ends_known else None})
            known += [(nodes * gpus, at - start, busy)] if ends_known else []
            at += 60
    return case_of(make_campaign([run_cell()]), [], launches, jobs=jobs), known, lost


def test_idle_and_lost_time(idle):
    case, known, lost = idle
    allocated = sum(ranks * seconds for ranks, seconds, _ in known) / 3600
    unused = sum(ranks * (seconds - busy) for ranks, seconds, busy in known) / 3600
    values = case.lines["failed"].values
    assert values["allocated_hours"] == (pytest.approx(allocated) if known else None)
    assert values["idle_hours"] == (pytest.approx(unused) if known else None)
    assert values["lost_hours"] == (pytest.approx(sum(lost)) if lost else None)
    [finding] = case.found["allocated_time"] or [None]
    assert finding is not None or not known
    assert (finding and finding.values.get("idle_ratio")) == (pytest.approx(unused / allocated) if known else None)
