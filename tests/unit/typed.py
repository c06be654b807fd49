"""Functions that take frozen campaigns and cells as objects, for tests that write these as JSON (`make_campaign`)."""

import functools

from regatta.compare import gate
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.model.launches import LaunchHeader
from regatta.store import collect as store
from regatta.topics import bandwidth, catalog, gradient_communication, memory, percentiles, sync_batchnorm
from regatta.topics.comparison import comparison_tables as comparison
from regatta.topics.scaling import scaling_section as section
from regatta.topics.scaling import scaling_tables as scaling
from regatta.topics.sweep import sweep_tables as sweep


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


alike_stacks = _takes_json(comparison.alike_stacks)
batch_norms_table = _takes_json(sync_batchnorm.batch_norms_table)
baselines_of = _takes_json(scaling.baselines_of)
cell_pairs = _takes_json(comparison.cell_pairs)
cell_row = _takes_json(store.cell_row)
collect = _takes_json(catalog.collect)
collectives_table = _takes_json(bandwidth.collectives_table)
comparisons_table = _takes_json(comparison.comparisons_table)
efficiencies_table = _takes_json(scaling.efficiencies_table)
judge = _takes_json(gate.judge)
make_tables = _takes_json(catalog.make_tables)
margins_of = _takes_json(comparison.margins_of)
memory_table = _takes_json(memory.memory_table)
peaks_by_cell = _takes_json(bandwidth.peaks_by_cell)
peaks_text = _takes_json(section.peaks_text)
percentiles_table = _takes_json(percentiles.percentiles_table)
scaling_table = _takes_json(scaling.scaling_table)
strategies_table = _takes_json(gradient_communication.strategies_table)
sweep_nodes_table = _takes_json(sweep.sweep_nodes_table)
sweep_pairs_table = _takes_json(sweep.sweep_pairs_table)
topics_of = _takes_json(catalog.topics_of)
versus_of = _takes_json(comparison.versus_of)
