"""Synthetic stores with known times go through files and commands; judgements agree with the functions in every digit.

The arrays are built here from the times that were written, not read from any table.
"""

import json
import math
import random
import runpy
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import (
    analyse_files,
    collective_cell,
    edit_launches,
    make_campaign,
    make_failure,
    make_header,
    make_record,
    train_cell,
    write_lines,
)

from regatta.core import moderation
from regatta.core.verdicts import Compared, judge_all

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


def stacks_store(folder, seed, repeats, slower=1.0):
    """Two stacks of five models, of which b is 0 to 20 % slower. One launch failed, one repeat is missing.

    slower: factor of the first two models.
    """
    cells = {(model, stack): train_cell(model, 1, 2, stack=stack) for model in MODELS for stack in "ab"}
    for (_, stack), cell in cells.items():
        cell["spec"]["stack"]["env"] = {"LIBRARY": stack}
    store = Store(folder, make_campaign(list(cells.values()), repeats=repeats))
    noise = lognormal(seed, len(MODELS), 2, repeats)
    levels = lognormal(seed + 100, repeats) ** 4  # ups and downs of launches: it matters which launch a cell lacks
    for repeat in range(repeats):
        for side, stack in enumerate("ab"):
            if (seed, repeat, stack) == (2, repeats - 1, "b"):
                continue  # never measured
            times = {}
            for i, model in enumerate(MODELS):
                factor = (1 + 0.05 * i * side) * (slower if i < 2 else 1)
                time = 0.1 * (i + 1) * factor * levels[repeat] * noise[i, side, repeat]
                times[cells[model, stack]["id"]] = None if (seed, i, repeat, side) == (3, 1, 0, 1) else time
            store.launch("n01g02-000000000000", repeat, times)
    return store


@pytest.mark.parametrize(("seed", "repeats"), [(1, 3), (2, 4), (3, 6), (4, 2)])
def test_unpaired_campaigns(tmp_path, monkeypatch, seed, repeats):
    """Through compare.py and gate.py. With seed 3 one launch of before failed, so its cell lacks the first repeat."""
    stores = [stacks_store(tmp_path / "before", seed, repeats)]
    stores.append(stacks_store(tmp_path / "after", seed + 10, repeats, slower=2.0))
    for store in stores:
        analyse_files(store.folder)
    output, (before, after) = tmp_path / "compared.csv", stores
    folders = str(before.folder), str(after.folder)
    status = run_script(monkeypatch, "compare", *folders, "--margin", str(MARGIN), "--csv", str(output))
    rows = pd.read_csv(output)
    compared = {}
    for cell, times in after.times.items():
        sides = before.times[cell], times  # equal specs have equal ids
        repeats_of_sides = tuple(tuple(sorted(side)) for side in sides)
        seconds = [[side[r] for r in sorted(side)] for side in sides]
        batches = tuple(f"{cell.split('-')[-2]} {min(side)}" for side in sides)  # launches of one stack
        compared[cell] = Compared(*seconds, False, "train_step", repeats=repeats_of_sides, batches=batches)
    verdicts = dict(zip(compared, judge_all([*compared.values()], MARGIN), strict=True))
    assert sorted(rows["cell"]) == sorted(verdicts)
    for row in rows.to_dict("records"):
        same(row, verdicts[row["cell"]])
    assert status == int(any(verdict.word == "slower" for verdict in verdicts.values()))

    [campaign], gate = after.folder.glob("campaign.*.json"), tmp_path / "gate.junit.xml"
    options = "--campaign", campaign, "--measurements", after.folder / "measurements.csv", "--baseline", before.folder
    options += "--margin", MARGIN, "--out-text", tmp_path / "gate.txt", "--out-junit", gate
    options += ("--allocation-variation", 0)
    run_script(monkeypatch, "gate", *options)
    if repeats >= moderation.MIN_LAUNCHES:
        failures = {
            case.get("name")
            for case in ET.parse(gate).iter("testcase")
            if case.find("failure[@type='regression']") is not None
        }
        slower = {cell for cell, verdict in verdicts.items() if verdict.word == "slower"}
        assert failures == {cell.rpartition("-")[0] for cell in slower}  # without the hash
        assert failures  # the models that take twice as long
        assert status == 1


def run_script(monkeypatch, name, *options):
    """Run a script in this process as its command line does. Returns its exit status."""
    path = str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [path, *map(str, options)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(path, run_name="__main__")
    return ended.value.code


JUDGEMENTS = {
    "comparisons": ("time_ratio", "time_low_ratio", "time_high_ratio", "p_adjusted", "verdict", "launches_needed"),
    "settings": ("cost_ratio", "cost_low_ratio", "cost_high_ratio", "may_be_best", "p_adjusted"),
    "cells": ("efficiency_ratio", "efficiency_low_ratio", "efficiency_high_ratio", "grade"),
}


def judged_store(folder, order=list, name=str, edit=list):
    """Return the judgements on a store by what cells measure. order: of the cells. name: of an id. edit: of lines."""
    cells = [train_cell(m, 1, 2, bucket=b, stack=s) for m in MODELS for b in (1, 25, 100) for s in "ab"]
    cells += [train_cell(m, 1, 1, "none", stack=s) for m in MODELS for s in "ab"]
    cells += [collective_cell(2**k, 1, 2, stack=s) for k in range(10, 20) for s in "ab"]
    for cell in cells:
        cell["spec"]["stack"]["env"] = {"LIBRARY": cell["spec"]["stack"]["name"]}
    noise, keys = 1 + np.log(lognormal(1, 3, len(cells))), {cell["id"]: cell["id"] for cell in cells}
    seconds = [dict(zip(keys, 0.1 * row * np.linspace(1, 2, len(cells)), strict=True)) for row in noise]
    for cell in cells:
        cell["id"] = name(cell["id"])
    keys = {cell["id"]: key for cell, key in zip(cells, keys, strict=True)}
    store = Store(folder, make_campaign(order(cells)))
    for repeat, times in enumerate(seconds):
        for stack in "ab":
            for ranks in (1, 2):
                specs = ((cell["id"], cell["spec"]) for cell in cells)
                chosen = [
                    cell for cell, spec in specs if (spec["stack"]["name"], spec["gpus_per_node"]) == (stack, ranks)
                ]
                store.launch(f"n01g0{ranks}-{0:012x}", repeat, {cell: times[keys[cell]] for cell in chosen})
    for lines in edit_launches(folder):
        lines[:] = edit(lines)
    analyse_files(folder)
    files = {table: folder / ("" if table == "cells" else "tables") / f"{table}.csv" for table in JUDGEMENTS}
    tables = {table: pd.read_csv(file) for table, file in files.items()}
    return {
        (table, keys[row["cell"]], column): row[column]
        for table, columns in JUDGEMENTS.items()
        for row in tables[table].to_dict("records")
        for column in columns
    }


def edited(change):
    """Return a function that changes records."""
    return lambda lines: [line | change(line) if line["kind"] == "record" else line for line in lines]


def with_other_samples(record):
    """Blocking calls and synchronized steps: windows are judged."""
    draw = random.Random(record["cell"])
    return {"samples_ns": [[draw.randrange(10**6, 10**9) for _ in of_rank] for of_rank in record["samples_ns"]]}


def in_half_units(record):
    windows = record["windows"]
    return {"windows": windows | {"elapsed_ns": [[2 * ns for ns in of_rank] for of_rank in windows["elapsed_ns"]]}}


def in_reverse(lines):
    first, *cells, last = lines
    pairs = [cells[at : at + 2] for at in range(0, len(cells), 2)]
    return [first, *(line for pair in reversed(pairs) for line in pair), last]


def at_other_times(lines):
    hour = random.Random(lines[0]["launch"]).randrange(24)
    return [line | {"time_utc": f"2026-12-24T{hour:02d}:00:00Z"} for line in lines]


@pytest.mark.parametrize(
    "change",
    [
        {"edit": edited(with_other_samples)},
        {"edit": edited(in_half_units)},
        {"edit": in_reverse},
        {"edit": at_other_times},
        {"order": lambda cells: sorted(cells, key=lambda cell: (cell["spec"]["stack"]["name"], cell["id"][::-1]))},
        {"name": lambda cell: f"{cell[::-1]}-{cell[-4:]}"},
    ],
    ids=("samples", "units", "lines", "times", "order", "names"),
)
def test_what_is_not_judged_changes_no_judgement(tmp_path, change):
    expected, found = judged_store(tmp_path / "c"), judged_store(tmp_path / "d", **change)
    assert found.keys() == expected.keys()
    assert len(set(expected.values())) > 100
    for key, value in expected.items():
        assert found[key] == value or found[key] == pytest.approx(value, rel=1e-6, nan_ok=True), key
