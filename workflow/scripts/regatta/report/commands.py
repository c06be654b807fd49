"""Commands that a report proposes, as they are pasted in Regatta's folder, and how long they take."""

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from regatta.campaign.program_entries import what_runs
from regatta.campaign.sweep import rounds
from regatta.core.benchmarks import load_benchmark
from regatta.core.text import plural, span_text, utc_seconds
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.store.launch_files import read_json, write_json

RUN_FILE = "run.json"  # in the results folder: campaign file and profile of the latest run
DEFAULTS = {"CONFIG": "config/config.yaml", "PROFILE": "profiles/local"}
Slots = Iterable[tuple[str, int]]


def note_run(results: Path, config: Path, profile: str) -> None:
    """Record the campaign file and profile of a run, unless the previous one had the same."""
    run = {"config": str(config), "profile": profile}
    if read_json(results / RUN_FILE) != run:
        write_json(results / RUN_FILE, run)


def run_variables(results: Path, campaign: FrozenCampaign) -> dict[str, str]:
    """Return the variables of make with which a campaign was run, without defaults. Old stores know only the name."""
    try:
        recorded = read_json(results / RUN_FILE)
        found = {name: str(recorded[name.lower()]) for name in DEFAULTS}
    except (KeyError, TypeError):  # unknown, or damaged
        is_default = campaign.source == Path(DEFAULTS["CONFIG"]).name
        scheduler = campaign.cluster.get("scheduler", "none")
        found = {} if is_default else {"CONFIG": campaign.source}
        found |= {} if scheduler == "none" else {"PROFILE": f"profiles/{scheduler}"}
    return {name: value for name, value in found.items() if value != DEFAULTS[name]}


def command_words(results: Path, campaign: FrozenCampaign) -> dict[str, str]:
    """Return the commands that the texts of findings name."""
    words = {name: _word(name, value) for name, value in run_variables(results, campaign).items()}
    run = " ".join(["make campaign", *words.values()])
    try_read = " ".join(["make try", *(words[name] for name in ("CONFIG",) if name in words)])
    return {"run": run, "retry": f'{run} ARGS="--forcerun measure"', "try_read": try_read}


def _word(name: str, value: str) -> str:
    """Return a variable as a word of a shell's command. make expands a single dollar sign."""
    return f"{name}={shlex.quote(value.replace('$', '$$'))}"


def price_text(campaign: FrozenCampaign, measurements: pd.DataFrame, launches: pd.DataFrame, slots: Slots) -> str:
    """Return `18 launches: about 14 min` of the measurements to make, without queueing; without the time if unknown.

    A cell takes the median of its records, else of those of its benchmark and shape. Launches run one after another,
    except those of a round of a sweep.
    """
    groups = _cells_by_launch(campaign, slots)
    text = plural(sum(map(len, groups)), "launch", "launches")
    known, keys = measurements[measurements["elapsed_s"].notna()], ["benchmark", "nodes", "gpus_per_node"]
    by_cell, by_kind = (known.groupby(key)["elapsed_s"].median().to_dict() for key in ("cell", keys))
    overhead_s = _overhead_s(launches)

    def seconds(cells: list[FrozenCell]) -> float:
        of_cells = [by_cell.get(cell.id) or by_kind.get((cell.benchmark, *cell.shape), math.nan) for cell in cells]
        return overhead_s + sum(of_cells)

    total_s = 0.0
    for by_hosts in groups:
        turns = rounds(by_hosts) if campaign.sweep else [[hosts] for hosts in by_hosts]
        total_s += sum(max(seconds(by_hosts[hosts]) for hosts in turn) for turn in turns)
    return text if math.isnan(total_s) else f"{text}: {span_text(total_s, total_s)}"


def _cells_by_launch(campaign: FrozenCampaign, slots: Slots) -> list[dict[tuple[str, ...], list[FrozenCell]]]:
    """Return the cells of each launch by its hosts; those of a group differ in their hosts alone."""
    found = defaultdict(lambda: defaultdict(list))
    for name, repeat in slots:
        cell = campaign.by_id[name]
        is_alone = campaign.isolation == "process" or load_benchmark(cell.benchmark).is_alone
        run = json.dumps(what_runs(cell.spec), sort_keys=True) if "program" in cell.spec else cell.id
        place = (repeat, cell.stack.name, cell.node_type, cell.shape, run if is_alone else "")
        found[place][cell.hosts].append(cell)
    return list(found.values())


def _overhead_s(launches: pd.DataFrame) -> float:
    """Return the time of a launch outside its cells: the median of those recorded, else 0."""
    rows = launches.dropna(subset=["start_utc", "end_utc", "cells_s"])
    starts, ends = (rows[name].map(utc_seconds).astype(float) for name in ("start_utc", "end_utc"))
    overheads = ends - starts - rows["cells_s"].astype(float)
    return max(0.0, float(overheads.median())) if len(rows) else 0.0
