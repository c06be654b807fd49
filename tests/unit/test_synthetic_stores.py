"""Synthetic stores with known times go through files and commands; judgements agree with the functions in every digit.

The arrays are built here from the times that were written, not read from any table.
"""

import json
import math
import random
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import analyse, make_campaign, make_failure, make_header, make_record, train_cell, write_lines
from synthetic_sweep import sweep_campaign

from regatta.core import moderation
from regatta.core.best_settings import best_settings
from regatta.core.verdicts import Compared, judge_all
from regatta.store.frozen_files import read_frozen

MARGIN = 0.05
DIGITS = 1e-8  # relative: tables have nine digits
TIME = "2026-11-21T03:01:05Z"
MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v3_small")
STEPS = 5  # of a window


class Store:
    """A results folder. times: cell -> repeat -> seconds of a pipelined step. Single steps take half as long."""

    def __init__(self, folder, campaign):
        self.folder, self.campaign, self.times = folder, campaign, {}
        self.numbers = {}
        (folder / "launches").mkdir(parents=True)
        (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")

    def launch(self, batch, repeat, seconds):
        """Write a launch. seconds: cell id -> seconds of a step; None: it failed."""
        number = self.numbers[batch] = self.numbers.get(batch, -1) + 1
        cells = [cell for cell in self.campaign["cells"] if cell["id"] in seconds]
        name = f"{batch}-l{number:03d}-a00"
        lines = [make_header(self.campaign, name, repeat, cells, TIME)]
        for cell in cells:
            lines.append({"kind": "start", "cell": cell["id"], "time_utc": TIME})
            time = seconds[cell["id"]]
            if time is None:
                lines.append(make_failure(cell, repeat, "failed", "measure", "it failed", TIME))
                continue
            ns, ranks = round(time * 1e9), cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"]

            record = make_record(cell, repeat, time, 0.01, random.Random(1), TIME)
            record |= {"samples_ns": [[ns // 2] * 12] * ranks}
            record["windows"] = {"steps_per_window": STEPS, "elapsed_ns": [[STEPS * ns] * 4] * ranks}
            record["sampling"] |= {"num_iterations": 12}
            lines.append(record)
            self.times.setdefault(cell["id"], {})[repeat] = ns / 1e9
        lines.append({"kind": "complete", "time_utc": TIME, "elapsed_ns": 1})
        write_lines(self.folder / "launches" / f"{name}.jsonl", lines)

    def table(self, name):
        analyse(self.folder)
        return pd.read_csv(self.folder / "tables" / f"{name}.csv")


def batch_of(number):
    return f"n01g02-{number:012x}"


def lognormal(seed, *shape):
    return np.exp(0.02 * np.random.default_rng(seed).standard_normal(shape))


def same(row, verdict, low="time_low_ratio", high="time_high_ratio"):
    """Assert that a row of a comparison has the numbers of a verdict."""
    ratio = verdict.ratio
    numbers = (row["time_ratio"], row[low], row[high], row["p_value"], row["p_adjusted"], row["launches_needed"])
    expected = (ratio.mean, ratio.low, ratio.high, verdict.p_value, verdict.p_adjusted, verdict.launches_needed)
    for number, wanted in zip(numbers, expected, strict=True):
        assert (math.isnan(number) and wanted is None) or number == pytest.approx(wanted, rel=DIGITS), (row, verdict)
    assert (row["verdict"], row["test"]) == (verdict.word, verdict.test)


def stacks_store(folder, seed, repeats, allocations=1):
    """Two stacks of five models; the second is 0 to 20 % slower. One launch failed, one repeat is missing."""
    cells = {(model, stack): train_cell(model, 1, 2, stack=stack) for model in MODELS for stack in ("a", "b")}
    for (_, stack), cell in cells.items():
        cell["spec"]["stack"]["env"] = {"LIBRARY": stack}  # else they are an A/A
    more = {"allocations": allocations} if allocations > 1 else {}
    store = Store(folder, make_campaign(list(cells.values()), repeats=repeats, **more))
    noise, levels = lognormal(seed, len(MODELS), 2, repeats), lognormal(seed + 100, repeats)
    for repeat in range(repeats):
        batch = batch_of(repeat * allocations // repeats)
        for side, stack in enumerate("ab"):
            if (seed, repeat, stack) == (2, repeats - 1, "b"):
                continue  # never measured
            times = {}
            for i, model in enumerate(MODELS):
                time = 0.1 * (i + 1) * (1 + 0.05 * i * side) * levels[repeat] * noise[i, side, repeat]
                times[cells[model, stack]["id"]] = None if (seed, i, repeat, side) == (3, 1, 0, 1) else time
            store.launch(batch, repeat, times)
    return store, cells


@pytest.mark.parametrize(("seed", "repeats"), [(1, 3), (2, 4), (3, 5), (4, 2)])
def test_paired_stacks(tmp_path, seed, repeats):
    store, _ = stacks_store(tmp_path / "c", seed, repeats)
    rows = store.table("comparisons")
    compared = []
    for row in rows.to_dict("records"):
        base, test = store.times[row["reference"]], store.times[row["cell"]]
        shared = sorted(base.keys() & test.keys())
        pair = [base[r] for r in shared], [test[r] for r in shared]
        compared.append(Compared(*pair, True, "train_step"))
    assert set(rows["is_paired"]) == {True}
    for row, verdict in zip(rows.to_dict("records"), judge_all(compared, MARGIN), strict=True):
        same(row, verdict)


@pytest.mark.parametrize(("seed", "repeats", "allocations"), [(1, 4, 2), (2, 6, 3), (5, 6, 2), (6, 4, 4)])
def test_allocations_are_the_units(tmp_path, seed, repeats, allocations):
    store, _ = stacks_store(tmp_path / "c", seed, repeats, allocations)
    rows = store.table("comparisons")
    compared = []
    for row in rows.to_dict("records"):
        base, test = store.times[row["reference"]], store.times[row["cell"]]
        shared = sorted(base.keys() & test.keys())
        names = tuple(str(repeat * allocations // repeats) for repeat in shared)
        pair = [base[r] for r in shared], [test[r] for r in shared]
        compared.append(Compared(*pair, True, "train_step", (names, names)))
    for row, verdict in zip(rows.to_dict("records"), judge_all(compared, MARGIN), strict=True):
        assert verdict.test.endswith("of allocations")
        same(row, verdict)


@pytest.mark.parametrize(("seed", "repeats"), [(1, 3), (2, 4), (3, 6), (4, 2)])
def test_unpaired_campaigns(tmp_path, monkeypatch, capsys, seed, repeats):
    stores = [stacks_store(tmp_path / name, seed + 10 * i, repeats)[0] for i, name in enumerate(("before", "after"))]
    for store in stores:
        analyse(store.folder)
    scripts = str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "compare.py")
    output = tmp_path / "compared.csv"
    words = [str(stores[0].folder), str(stores[1].folder), "--margin", str(MARGIN), "--csv", str(output)]
    monkeypatch.setattr(sys, "argv", [scripts, *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(scripts, run_name="__main__")
    rows = pd.read_csv(output)
    compared = [
        Compared(
            list(stores[0].times[row.reference].values()), list(stores[1].times[row.cell].values()), False, "train_step"
        )
        for row in rows.itertuples()
    ]
    verdicts = judge_all(compared, MARGIN)
    for row, verdict in zip(rows.to_dict("records"), verdicts, strict=True):
        same(row, verdict)
    assert ended.value.code == int(any(verdict.word == "slower" for verdict in verdicts))


@pytest.mark.parametrize(("seed", "repeats"), [(1, 2), (2, 3), (3, 5), (4, 6)])
def test_settings(tmp_path, seed, repeats):
    sizes = (1, 25, 100)
    cells = {(model, size): train_cell(model, 1, 2, bucket=size) for model in MODELS for size in sizes}
    store = Store(tmp_path / "c", make_campaign(list(cells.values()), repeats=repeats))
    noise, levels = lognormal(seed, len(MODELS), len(sizes), repeats), lognormal(seed + 100, repeats)
    costs = np.array([0, 0.03, 0.2])
    for repeat in range(repeats):
        times = {
            cells[model, size]["id"]: 0.1 * (i + 1) * (1 + costs[j]) * levels[repeat] * noise[i, j, repeat]
            for i, model in enumerate(MODELS)
            for j, size in enumerate(sizes)
        }
        store.launch(batch_of(0), repeat, times)
    rows = store.table("settings").set_index("cell")
    logs = np.log([[[store.times[cells[m, s]["id"]][r] for r in range(repeats)] for s in sizes] for m in MODELS])
    best = best_settings(logs, np.full(len(MODELS), "train_step"))
    adjusted = moderation.adjust_for_number(best.p_value)
    for i, model in enumerate(MODELS):
        for j, size in enumerate(sizes):
            row = rows.loc[cells[model, size]["id"]]
            wanted = [np.expm1(part[i, j]) for part in (best.cost, best.low, best.high)]
            assert [row.cost_ratio, row.cost_low_ratio, row.cost_high_ratio] == pytest.approx(wanted, rel=DIGITS)
            assert (row.may_be_best, row.num_settings) == (best.may_be_best[i, j], len(sizes))
            assert row.p_adjusted == pytest.approx(adjusted[i], rel=DIGITS)
    means = moderation.mean_intervals(logs.reshape(-1, repeats), np.full(logs.shape[0] * len(sizes), "train_step"))
    steps = pd.read_csv(store.folder / "tables" / "scaling.csv").set_index("cell")
    order = [cells[model, size]["id"] for model in MODELS for size in sizes]
    assert steps.loc[order, "step_s"].to_numpy() == pytest.approx(np.exp(means.shift), rel=DIGITS)
    if repeats >= moderation.MIN_LAUNCHES:
        high = np.exp(means.shift + means.half_width)
        assert steps.loc[order, "step_high_s"].to_numpy() == pytest.approx(high, rel=DIGITS)


@pytest.mark.parametrize(("seed", "repeats", "num_nodes"), [(1, 3, 5), (2, 4, 8), (3, 6, 6), (4, 2, 5)])
def test_sweeps(tmp_path, seed, repeats, num_nodes):
    names = [f"n{i}" for i in range(1, num_nodes + 1)]
    campaign = sweep_campaign(names, "nodes", repeats, messages=(1024,))
    [*cells] = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "collective"]
    campaign = campaign | {"cells": cells}
    store = Store(tmp_path / "c", campaign)
    noise, levels = lognormal(seed, len(cells), repeats), lognormal(seed + 100, repeats)
    for repeat in range(repeats):
        for i, cell in enumerate(cells):
            time = 1e-4 * levels[repeat] * noise[i, repeat] * (1.2 if i == 1 else 1)
            store.launch(f"n{num_nodes:02d}g01-{0:012x}", repeat, {cell["id"]: time})
    rows = store.table("sweep_nodes").set_index("hosts")
    logs = np.log([[store.times[cell["id"]][r] for r in range(repeats)] for cell in cells])
    gaps = logs - moderation.median_of_others(logs)
    found = moderation.paired_contrasts(gaps, logs, np.full(len(cells), "collective"))
    adjusted = moderation.adjust_for_number(found.p_value)
    for i, cell in enumerate(cells):
        row = rows.loc[cell["spec"]["hosts"][0]]
        assert row.time_ratio == pytest.approx(np.exp(found.shift[i]), rel=DIGITS)
        if repeats >= moderation.MIN_LAUNCHES:
            assert row.time_high_ratio == pytest.approx(np.exp(found.shift[i] + found.half_width[i]), rel=DIGITS)
            assert row.p_adjusted == pytest.approx(adjusted[i], rel=DIGITS)
    assert read_frozen(next(store.folder.glob("campaign.*.json")))["repeats"] == repeats
