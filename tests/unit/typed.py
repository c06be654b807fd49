"""Functions that take frozen campaigns and cells as objects, for tests that write these as JSON (`make_campaign`)."""

import functools
from pathlib import Path

from regatta.compare import gate
from regatta.compare.campaigns import CampaignResults
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.model.launches import LaunchHeader
from regatta.store import collect as store
from regatta.store import csv_files
from regatta.tables import baselines, cells, counterparts, pairs, places
from regatta.topics import catalog
from regatta.topics.scaling import scaling_section as section


def typed(value):
    """Return a frozen campaign or a cell, or each of a tuple, as an object; anything else unchanged."""
    if isinstance(value, tuple):
        return tuple(map(typed, value))
    if isinstance(value, dict) and "cells" in value:
        return FrozenCampaign.from_json(value)
    return FrozenCell.from_json(value) if isinstance(value, dict) and "spec" in value else value


def header(environment: object) -> LaunchHeader:
    """Return the first line of a launch with an environment as JSON."""
    return LaunchHeader.from_json({"repeat": 0, "stack": "host", "time_utc": "", "environment": environment})


def _takes_json(function):
    """Return the same function for campaigns and cells as JSON or as objects."""

    @functools.wraps(function)
    def called(*values, **more):
        return function(*map(typed, values), **more)

    return called


alike_stacks = _takes_json(counterparts.alike_stacks)
baselines_of = _takes_json(counterparts.baselines_of)
cell_pairs = _takes_json(counterparts.cell_pairs)
cell_row = _takes_json(csv_files.cell_row)
collect = _takes_json(store.read_store)
comparisons_table = _takes_json(pairs.comparisons_table)
launches_in = _takes_json(pairs.launches_in)
make_tables = _takes_json(catalog.make_tables)
margins_of = _takes_json(pairs.margins_of)
read_collected = _takes_json(store.read_collected)
peaks_text = _takes_json(section.peaks_text)
sweep_nodes_table = _takes_json(places.sweep_nodes_table)
sweep_pairs_table = _takes_json(places.sweep_pairs_table)
topics_of = _takes_json(catalog.topics_of)
versus_of = _takes_json(counterparts.versus_of)


def judge(campaign, measurements, before=None, *more):
    """Judge a campaign, given as JSON with its measurements like the baseline campaign."""
    sides = (
        CampaignResults(Path(), typed(of), table, []) for of, table in filter(None, (before, (campaign, measurements)))
    )
    base, results = sides if before else (None, *sides)
    return gate.judge(results, base, *more)


def _cells_of(benchmark: str):
    """Return a function of campaign and measurements: the rows of cells.csv of one benchmark."""
    return lambda campaign, measurements: cells.rows_of(cells_table(campaign, measurements), benchmark)


cells_table = _takes_json(cells.cells_table)
step_cells, call_cells, norm_cells = map(_cells_of, ("train_step", "collective", "sync_batchnorm"))


def efficiencies_table(campaign, measurements):
    return baselines.efficiencies_table(typed(campaign), measurements, cells_table(campaign, measurements))
