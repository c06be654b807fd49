"""Latency and bandwidth of collectives: tables/collectives.csv. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.tables import COLLECTIVES, make_table
from regatta.cell_words import natural
from regatta.statistics import over_launches

BYTES_PER_GB = 10**9

# Source: NVIDIA/nccl-tests doc/PERFORMANCE.md. n is the number of ranks.
BUS_FACTOR = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}
TOTAL_OVER_RANKS = ("all_gather", "reduce_scatter", "all_to_all")  # their S is the sum over ranks


def collectives_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each collective cell of the campaign, measured or not."""
    ok = measurements[(measurements["status"] == "ok") & measurements["p50_s"].notna()]
    medians = {cell: group["p50_s"].tolist() for cell, group in ok.groupby("cell")}
    rows = []
    for cell in campaign["cells"]:
        if cell["spec"]["benchmark"] == "collective":
            rows.append(cell_row(cell) | _speed(cell_row(cell), campaign["repeats"], medians.get(cell["id"], [])))
    rows.sort(key=lambda row: natural(row["cell"]))
    return make_table(rows, COLLECTIVES)


def algorithm_bandwidth(operation: str, message_bytes: int, elapsed_s: float, num_ranks: int) -> float:
    """Return S/t in GB/s (10**9). message_bytes: the buffer of one rank."""
    total = message_bytes * num_ranks if operation in TOTAL_OVER_RANKS else message_bytes
    return total / elapsed_s / BYTES_PER_GB


def bus_bandwidth(operation: str, message_bytes: int, elapsed_s: float, num_ranks: int) -> float | None:
    """Return bus bandwidth in GB/s, comparable with a link's peak at any number of ranks.

    None for one rank, which sends nothing, and for an operation without a known factor.
    """
    if num_ranks < 2 or operation not in BUS_FACTOR:
        return None
    return algorithm_bandwidth(operation, message_bytes, elapsed_s, num_ranks) * BUS_FACTOR[operation](num_ranks)


def _speed(cell: dict, repeats: int, medians: list[float]) -> dict:
    own = over_launches(medians)
    row = {
        "num_planned": repeats,
        "num_launches": own.num,
        "interval": own.kind,
        "latency_s": own.median,
        "latency_low_s": own.low,
        "latency_high_s": own.high,
    }
    if own.median is not None:
        what = (cell["operation"], cell["message_bytes"], own.median, cell["world_size"])
        row |= {"algbw_gb_per_s": algorithm_bandwidth(*what), "busbw_gb_per_s": bus_bandwidth(*what)}
    return row
