"""Seeded damage of stores: planning, collecting, analysing and reporting go on, or name the damaged file."""

import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from synthetic import LAPTOP, analyse_files, collective_cell, make_campaign, report_data, train_cell, write_results
from synthetic_preflight import write_preflight
from typed import collect

from regatta.core.errors import UserError
from regatta.model.frozen import fields_to_json
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.frozen_files import read_frozen
from regatta.store.history import read_history, summarize
from regatta.store.launch_files import read_launch_file
from regatta.topics.catalog import render
from regatta.topics.preflight_section import TOPIC

NUM_STORES, NUM_PREFLIGHTS = (150, 150) if "REGATTA_THOROUGH" in os.environ else (60, 80)
SEED, MOST_SECONDS = 20261123, 30
ANALYSE_EVERY, RENDER_EVERY = 3, 15  # of the stores; all are planned and collected
VALUES = [
    None, True, -1, 0, 1, 2**53, 2**63, 2**64, 10**400, float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e-320,
    "", "a", "\x00", "\ud800", "<script>", "=1+1", "9" * 400, [], [[]], {}, {"a": 1}, [None], [1] * 3, "n1\nn2",
    "2026-99-99T00:00:00Z", "9999-12-31T23:59:59Z",
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Write a store with and without manifests: six launches of three cells on one and two ranks."""
    folder = tmp_path_factory.mktemp("fuzz") / "laptop"
    cells = [collective_cell(4096, 1, 2), train_cell("resnet18", 1, 1, "none", None), train_cell("resnet18", 1, 2)]
    write_results(folder, make_campaign(cells), LAPTOP)
    for index, path in enumerate(sorted((folder / "launches").glob("*.jsonl"))):
        if index % 2:
            manifest = folder / "batches" / f"n01g02-{index:012d}" / "manifest.json"
            manifest.parent.mkdir(parents=True)
            launches = [fields_to_json(summarize(read_launch_file(path)))]
            content = {"schema": 1, "batch": manifest.parent.name, "counts": {}, "launches": launches}
            manifest.write_text(json.dumps(content))
    return folder


def places(value: object, where: tuple = ()) -> list[tuple]:
    """Return the place of each value inside, of lists only the first three."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return [place for key, child in inside for place in ((*where, key), *places(child, (*where, key)))]


def damage(path: Path, rng: random.Random) -> None:
    """Cut a file, overwrite bytes, or replace or remove a few values."""
    content = path.read_bytes()
    kind = rng.random()
    if kind < 0.1:
        path.write_bytes(content[: rng.randrange(len(content))])
    elif kind < 0.2:
        changed = bytearray(content)
        for _ in range(5):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(bytes(changed))
    else:
        lines = content.decode().strip("\n").split("\n")
        for _ in range(rng.choice((1, 2, 4))):
            number = rng.randrange(len(lines))
            value = owner = json.loads(lines[number])
            *way, last = rng.choice(places(value))
            for step in way:
                owner = owner[step]
            if isinstance(owner, dict) and rng.random() < 0.15:
                del owner[last]
            else:
                owner[last] = rng.choice(VALUES)
            lines[number] = json.dumps(value)
        path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("part", range(2))
def test_damaged_stores_are_planned_analysed_and_reported(store, tmp_path, part):
    def too_long(*_: object) -> None:
        raise TimeoutError(f"more than {MOST_SECONDS} s")

    campaign = read_frozen(next(store.glob("campaign.*.json")))
    before, wrong = signal.signal(signal.SIGALRM, too_long), []
    for number in range(part, NUM_STORES, 2):
        rng, folder = random.Random(SEED + number), tmp_path / "laptop"
        shutil.copytree(store, folder)
        files = sorted(path for path in folder.rglob("*") if path.suffix == ".jsonl" or path.name == "manifest.json")
        for path in rng.sample(files, 2):
            damage(path, rng)
        signal.alarm(MOST_SECONDS)
        try:
            history = read_history(folder)
            assert all(seconds < 1e12 for seconds in (*history.cell_seconds().values(), *history.launch_overheads_s))
            collect(campaign, folder / "launches")
            if number % ANALYSE_EVERY == 0:
                data = analyse_files(folder)
            if number % RENDER_EVERY == 0:
                render(data)
        except UserError as error:
            if str(folder) not in str(error):
                wrong.append((number, str(error)))
        except Exception as error:
            wrong.append((number, repr(error)))
        finally:
            signal.alarm(0)
        shutil.rmtree(folder)
    signal.signal(signal.SIGALRM, before)
    assert wrong == []


def test_damaged_preflights_are_reported_or_refused_by_name(tmp_path):
    """The report goes on without a preflight that cannot be read, and shows what is left of one that can."""
    campaign, empty = make_campaign([train_cell("resnet50", 2, 4)]), make_table([], MEASUREMENTS)
    wrong, num_shown = [], 0
    for number in range(NUM_PREFLIGHTS):
        path = write_preflight(tmp_path)
        damage(path, random.Random(SEED + number))
        try:
            data = report_data(campaign, empty, preflight=read_frozen(path))
            _ = TOPIC.section(data), TOPIC.findings(data)
            num_shown += 1
        except UserError as error:
            if str(path) not in str(error):
                wrong.append((number, str(error)))
        except Exception as error:
            wrong.append((number, repr(error)))
    assert wrong == []
    assert num_shown > 10
