"""Latency and bandwidth of collectives: tables/collectives.csv. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.launch_values import LaunchValues
from regatta.analysis.tables import COLLECTIVES, make_table
from regatta.cell_words import natural
from regatta.statistics import over_launches

BYTES_PER_GB = 10**9
COSTS = ("algorithm_bytes", "max_abs_error", "max_rel_error")

# Source: NVIDIA/nccl-tests doc/PERFORMANCE.md. n is the number of ranks. A barrier moves no message and has none.
BUS_FACTOR = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv_ring": lambda n: 1.0,
    "send_recv_pair": lambda n: 1.0,
}


def collectives_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each collective cell of the campaign, measured or not."""
    launches = LaunchValues(measurements, ("p50_s", "window_step_s", *COSTS))
    rows = []
    for cell in campaign["cells"]:
        if cell["spec"]["benchmark"] == "collective":
            row = cell_row(cell)
            numbers = _blocking(row, launches) | _pipelined(row, launches) | _costs(row["cell"], launches)
            rows.append(row | {"num_planned": campaign["repeats"]} | numbers)
    rows.sort(key=lambda row: natural(row["cell"]))
    return make_table(rows, COLLECTIVES)


def algorithm_bandwidth(message_bytes: int, elapsed_s: float) -> float:
    """Return S/t in GB/s (10**9). message_bytes: for all_gather, reduce_scatter and all_to_all the sum over ranks."""
    return message_bytes / elapsed_s / BYTES_PER_GB


def bus_bandwidth(operation: str, message_bytes: int, elapsed_s: float, num_ranks: int) -> float | None:
    """Return bus bandwidth in GB/s, comparable with a link's peak at any number of ranks.

    None for one rank, which sends nothing, and for an operation without a known factor.
    """
    if num_ranks < 2 or operation not in BUS_FACTOR:
        return None
    return algorithm_bandwidth(message_bytes, elapsed_s) * BUS_FACTOR[operation](num_ranks)


def _blocking(cell: dict, launches: LaunchValues) -> dict:
    own = over_launches(launches.of(cell["cell"], "p50_s"))
    row = {"num_launches": own.num, "interval": own.kind}
    row |= {"latency_s": own.median, "latency_low_s": own.low, "latency_high_s": own.high}
    return row | _bandwidths(cell, own.median, "")


def _pipelined(cell: dict, launches: LaunchValues) -> dict:
    own = over_launches(launches.of(cell["cell"], "window_step_s"))
    row = {"pipelined_s": own.median, "pipelined_low_s": own.low, "pipelined_high_s": own.high}
    return row | _bandwidths(cell, own.median, "pipelined_")


def _bandwidths(cell: dict, elapsed_s: float | None, lead: str) -> dict:
    """Return both bandwidths; nothing where there is no time, or no message."""
    if elapsed_s is None or cell["message_bytes"] is None:
        return {}
    bus = bus_bandwidth(cell["operation"], cell["message_bytes"], elapsed_s, cell["world_size"])
    return {
        f"{lead}algbw_gb_per_s": algorithm_bandwidth(cell["message_bytes"], elapsed_s),
        f"{lead}busbw_gb_per_s": bus,
    }


def _costs(cell: str, launches: LaunchValues) -> dict:
    """Return the largest of any launch: what an algorithm allocated, and how far its sums were from the exact ones."""
    return {name: max(launches.of(cell, name), default=None) for name in COSTS}
