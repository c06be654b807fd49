"""Commands that a report proposes, as they are pasted in the folder of the run, and how long they take."""

import json
import math
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from regatta.campaign.program_entries import what_runs
from regatta.campaign.sweep import rounds
from regatta.core.benchmarks import load_benchmark
from regatta.core.files import SCRIPTS
from regatta.core.text import plural, span_text, utc_seconds
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.store.launch_files import read_json, write_json

RUN_FILE = "run.json"  # in the results folder: campaign file and profile of the latest run, and how else it was started
DEFAULTS = {"CONFIG": "config/config.yaml", "PROFILE": "profiles/local"}
Slots = Iterable[tuple[str, int]]


def note_run(results: Path, run: dict) -> None:
    """Record how a campaign was run, unless the previous run was the same."""
    if read_json(results / RUN_FILE) != run:
        write_json(results / RUN_FILE, run)


def recorded_run(results: Path) -> dict:
    """Return how the latest run was started; empty if unknown or damaged.

    config, profile: campaign file and profile. start, retry: command lines, without make; absent in Regatta's folder.
    """
    try:
        recorded = read_json(results / RUN_FILE)
        found = {name.lower(): str(recorded[name.lower()]) for name in DEFAULTS}
        return found | {name: list(map(str, recorded[name])) for name in ("start", "retry") if recorded.get("start")}
    except (AttributeError, KeyError, TypeError):
        return {}


def run_variables(results: Path, campaign: FrozenCampaign) -> dict[str, str]:
    """Return the variables of make with which a campaign was run, without defaults. Old stores know only the name."""
    if recorded := recorded_run(results):
        found = {name: str(recorded[name.lower()]) for name in DEFAULTS}
    else:  # unknown, or damaged
        is_default = campaign.source == Path(DEFAULTS["CONFIG"]).name
        scheduler = campaign.cluster.get("scheduler", "none")
        found = {} if is_default else {"CONFIG": campaign.source}
        found |= {} if scheduler == "none" else {"PROFILE": f"profiles/{scheduler}"}
    return {name: value for name, value in found.items() if value != DEFAULTS[name]}


def command_words(results: Path, campaign: FrozenCampaign) -> dict[str, str]:
    """Return the commands that the texts of findings name."""
    if "start" in (recorded := recorded_run(results)):
        try_read = [sys.executable, str(SCRIPTS / "try_output.py"), recorded["config"]]
        lines = {"run": recorded["start"], "retry": recorded["retry"], "try_read": try_read}
        return {name: shlex.join(line) for name, line in lines.items()}
    words = {name: _word(name, value) for name, value in run_variables(results, campaign).items()}
    run = " ".join(["make campaign", *words.values()])
    try_read = " ".join(["make try", *(words[name] for name in ("CONFIG",) if name in words)])
    return {"run": run, "retry": f'{run} ARGS="--forcerun measure"', "try_read": try_read}


def _word(name: str, value: str) -> str:
    """Return a variable as a word of a shell's command. make expands a single dollar sign."""
    return f"{name}={shlex.quote(value.replace('$', '$$'))}"


def price_text(campaign: FrozenCampaign, measurements: pd.DataFrame, launches: pd.DataFrame, slots: Slots) -> str:
    """Return `18 launches: about 14 min` of the measurements to make, without queueing; without the time if unknown.

    A cell takes the median of its valid records, else of those of its benchmark and shape, else of failed ones of its
    kind. Launches run one after another, except those of a round of a sweep.
    """
    groups = _cells_by_launch(campaign, slots)
    text = plural(sum(map(len, groups)), "launch", "launches")
    known, keys = measurements[measurements["elapsed_s"].notna()], ["benchmark", "nodes", "gpus_per_node"]
    valid = known[known["status"] == "ok"]
    by_cell, by_kind = (valid.groupby(key)["elapsed_s"].median().to_dict() for key in ("cell", keys))
    by_kind = known.groupby(keys)["elapsed_s"].median().to_dict() | by_kind
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
