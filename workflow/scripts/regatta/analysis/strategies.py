"""How much of the exchange of gradients a step has to wait for: tables/strategies.csv, and what a cell's memory is made of:
tables/memory.csv. Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.launch_values import LaunchValues, known
from regatta.analysis.tables import MEMORY, STRATEGIES, make_table
from regatta.cell_words import natural
from regatta.statistics import over_launches
from regatta.store.records import MEMORY_BYTES

MEDIANS = {
    "step_p50_s": "p50_s",
    "step_mean_s": "mean_s",
    "step_std_s": "std_s",
    **{name: name for name in ("whole_step_s", "no_sync_s", "communication_s", "host_wait_s")},
    **{name: name for name in ("communication_stream_s", "exposed_stream_s")},
}
LARGEST = ("num_calls", "gradient_bytes", "algorithm_bytes")
OWN_PARTS = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "algorithm_bytes")


def strategies_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of several ranks, measured or not. One rank has nothing to exchange."""
    cells = [cell for cell in _trained(campaign) if cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"] > 1]
    launches = LaunchValues(measurements, [*MEDIANS.values(), *LARGEST])
    planned = {"num_planned": campaign["repeats"]}
    return make_table([cell_row(cell) | planned | _exchange(cell["id"], launches) for cell in cells], STRATEGIES)


def memory_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell: the largest of its launches, in bytes on one rank."""
    launches = LaunchValues(measurements, MEMORY_BYTES)
    rows = []
    for cell in _trained(campaign):
        largest = {name: _largest(launches.of(cell["id"], name)) for name in MEMORY_BYTES}
        own = {"num_launches": launches.num_launches(cell["id"]), "part_bytes": _sum_of_parts(largest)}
        rows.append(cell_row(cell) | own | largest)
    return make_table(rows, MEMORY)


def _trained(campaign: dict) -> list[dict]:
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "train_step"]
    return sorted(cells, key=lambda cell: natural(cell["id"]))


def _exchange(cell: str, launches: LaunchValues) -> dict:
    """Return the columns of one cell. What is hidden and exposed is taken within each launch, then over launches."""
    whole, alone = launches.with_gaps(cell, "whole_step_s"), launches.with_gaps(cell, "communication_s")
    exposed = whole - launches.with_gaps(cell, "no_sync_s")
    spread = over_launches(known(exposed).tolist())
    return {
        "num_launches": launches.num_launches(cell),
        "interval": spread.kind,
        **{name: over_launches(launches.of(cell, column)).median for name, column in MEDIANS.items()},
        "exposed_s": spread.median,
        "exposed_low_s": spread.low,
        "exposed_high_s": spread.high,
        "exposed_share_ratio": over_launches(known(exposed / whole).tolist()).median,
        "hidden_ratio": over_launches(known(1 - exposed / alone).tolist()).median,
        **{name: _largest(launches.of(cell, name)) for name in LARGEST},
    }


def _sum_of_parts(largest: dict) -> int | None:
    """Return the sum of the parts that are known, or None where what autograd saves is not among them."""
    return None if largest["saved_bytes"] is None else sum(largest[name] or 0 for name in OWN_PARTS)


def _largest(values: list[float]) -> int | None:
    return int(max(values)) if values else None
