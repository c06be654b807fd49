"""Bandwidths of a collective, and the peak that the links of the cluster file allow. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.core.statistics import interval_values
from regatta.kit.columns import MICROSECONDS, PIPELINED, SYNCHRONIZED, Column, Columns
from regatta.store.collect import cell_row
from regatta.store.csv_files import WHOLE, described, make_table
from regatta.topics.base import LaunchValues, cells_of, launch_means, with_primary

BYTES_PER_GB = 10**9

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
# The same for k nodes of g ranks: the least data that enters or leaves a node, relative to the message.
NODE_FACTOR = {
    "all_reduce": lambda k, g: 2 * (k - 1) / k,
    "all_gather": lambda k, g: (k - 1) / k,
    "reduce_scatter": lambda k, g: (k - 1) / k,
    "all_to_all": lambda k, g: g * (k - 1) / k,
    "broadcast": lambda k, g: 1.0,
    "reduce": lambda k, g: 1.0,
    "send_recv_ring": lambda k, g: 1.0,
    "send_recv_pair": lambda k, g: float(g),
}
CALL = Column(
    *("time_s", "time per call"),
    shown_as=MICROSECONDS,
    better="smaller",
    interval="interval",
    note=PIPELINED,
    help="time per call in pipelined windows, slowest rank; bus bandwidth derives from it",
    key="call_us",
    is_shown=True,
    is_main=True,
)
LATENCY = Column(
    *("latency_s", "latency"),
    shown_as=MICROSECONDS,
    better="smaller",
    interval="interval",
    note=SYNCHRONIZED,
    help="time of a blocking call, slowest rank",
)
ALGBW = Column("algbw_gb_per_s", "algorithm bandwidth", better="larger", note="of pipelined calls", help="size / time")
BUSBW = Column(
    *("busbw_gb_per_s", "bus bandwidth"),
    better="larger",
    note="of pipelined calls",
    help="size / time × a factor for operation and rank count; comparable with link peaks",
    key="busbw",
    is_shown=True,
)
COLLECTIVES = Columns(
    *described(("operation", "algorithm", "message_bytes", "dtype")),
    *(CALL, LATENCY, ALGBW, BUSBW),
    Column("pipelined_s", interval="interval", help="the time per call in windows; empty without windows"),
    Column("pipelined_algbw_gb_per_s", help="algorithm bandwidth of these calls"),
    Column("pipelined_busbw_gb_per_s", help="bus bandwidth of these calls"),
    Column("algorithm_bytes", type=WHOLE, help="buffers that an algorithm of Regatta allocates"),
    Column("max_abs_error", help="largest absolute difference from the exact result"),
    Column("max_rel_error", help="the same, relative"),
)
CALLS = {"latency": "p50_s", "pipelined": "window_step_s"}
COSTS = ("algorithm_bytes", "max_abs_error", "max_rel_error")


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


def peak_bus_bandwidth(operation: str, nodes: int, gpus_per_node: int, links: dict[str, float]) -> float | None:
    """Return the highest bus bandwidth in GB/s that links allow any algorithm without reduction in the network.

    links: GB/s in one direction by `between` (workflow/schemas/cluster.yaml). None if one that the operation needs is
    unknown, and where bus bandwidth is undefined.
    """
    k, g = nodes, gpus_per_node
    if k * g < 2 or operation not in BUS_FACTOR:
        return None
    known = [links[name] * ways for name, ways in (("gpus", 1), ("gpu_pair", g - 1)) if name in links]
    if (g > 1 and not known) or (k > 1 and "nodes" not in links):
        return None
    of_gpu = min(known) if g > 1 else 0.0
    if k == 1:
        return of_gpu
    # A rank's data passes its links to other GPUs or its share of the NICs; what crosses nodes passes the NICs.
    of_node = links["nodes"]
    return min(of_gpu + of_node / g, of_node * BUS_FACTOR[operation](k * g) / NODE_FACTOR[operation](k, g))


def peaks_by_cell(campaign: dict, measurements: pd.DataFrame) -> dict[str, float]:
    """Return the peak bus bandwidth in GB/s of each NCCL cell whose launches ran on a GPU with known links.

    Other backends copy through host memory, whose bandwidth the cluster file does not have.
    """
    if not links_of(campaign):
        return {}
    ok = measurements[measurements["status"] == "ok"]
    gpus = {cell: set(names) for cell, names in ok[["cell", "gpu"]].drop_duplicates().groupby("cell")["gpu"]}
    found = {}
    for cell in cells_of(campaign, "collective"):
        spec = cell["spec"]
        entries = [link for link in links_of(campaign) if gpus.get(cell["id"]) == {link["device"]}]
        links = {link["between"]: link["gb_per_s"] for link in entries}
        shape = (spec["nodes"], spec["gpus_per_node"])
        peak = peak_bus_bandwidth(spec["parameters"]["operation"], *shape, links)
        if peak is not None and spec["backend"] == "nccl":
            found[cell["id"]] = peak
    return found


def links_of(campaign: dict) -> list[dict]:
    """Return the entries `links` of the cluster file; none in a campaign frozen before the key existed."""
    return campaign["cluster"].get("links") or []


def collectives_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each collective cell of the campaign, measured or not."""
    launches, rows = LaunchValues(measurements, COSTS), []
    means = {"time": launch_means(with_primary(measurements), "primary_s")}  # of all cells: they share a prior
    calls = measurements[(measurements["benchmark"] == "collective") & (measurements["status"] == "ok")]
    means |= {name: launch_means(calls, column) for name, column in CALLS.items()}
    for cell in cells_of(campaign, "collective"):
        found = {name: of_cells[cell["id"]] for name, of_cells in means.items()}
        row = cell_row(cell) | {"num_planned": campaign["repeats"]}
        row |= {"num_launches": found["time"].num, "interval": found["time"].kind}
        for name, mean in found.items():
            row |= interval_values(name, "s", mean)
        for lead, elapsed_s in (("", found["time"].mean), ("pipelined_", found["pipelined"].mean)):
            if elapsed_s is not None and row["message_bytes"] is not None:
                row[f"{lead}algbw_gb_per_s"] = algorithm_bandwidth(row["message_bytes"], elapsed_s)
                bus = bus_bandwidth(row["operation"], row["message_bytes"], elapsed_s, row["world_size"])
                row[f"{lead}busbw_gb_per_s"] = bus
        rows.append(row | {name: launches.largest(cell["id"], name) for name in COSTS})
    return make_table(rows, COLLECTIVES)
