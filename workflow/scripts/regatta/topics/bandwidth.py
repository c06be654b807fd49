"""Bandwidths of a collective, and the peak that the links of the cluster file allow. Definitions: docs/metrics.md."""

import re

import pandas as pd

from regatta.core.statistics import Estimate, interval_values
from regatta.kit.columns import MICROSECONDS, PIPELINED, SYNCHRONIZED, Column, Columns
from regatta.model.frozen import FrozenCampaign
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics.base import MAIN, largest_values, launch_means, primary_means, rows_of_cells

BYTES_PER_GB = 10**9

# Source: NVIDIA/nccl-tests doc/PERFORMANCE.md. n is the number of ranks. A barrier moves no message and has none.
BUS_FACTOR = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv_ring": lambda n: 1.0,
    "send_recv_pair": lambda n: 1.0,
}
VARIANT = re.compile("(?:_(?:prod|max|min|avg|mulsum))?(?:_root[0-9]+)?$")  # of an import: reduction and root
# The same for k nodes of g ranks: the least data that enters or leaves a node, relative to the message.
NODE_FACTOR = {
    "all_reduce": lambda k, g: 2 * (k - 1) / k,
    "all_gather": lambda k, g: (k - 1) / k,
    "reduce_scatter": lambda k, g: (k - 1) / k,
    "all_to_all": lambda k, g: g * (k - 1) / k,
    "gather": lambda k, g: (k - 1) / k,
    "scatter": lambda k, g: (k - 1) / k,
    "broadcast": lambda k, g: 1.0,
    "reduce": lambda k, g: 1.0,
    "send_recv_ring": lambda k, g: 1.0,
    "send_recv_pair": lambda k, g: float(g),
}
TIME = {"shown_as": MICROSECONDS, "table": "latency", "better": "smaller", "interval": "interval"}
CALL_HELP = "t: primary time of a call, mean over launches; pipelined windows, slowest rank"
LATENCY_HELP = "time of a blocking call: mean over launches of `p50_s`, slowest rank"
CALL = Column("time_s", "time per call", **TIME | MAIN, note=PIPELINED, help=CALL_HELP, key="call_us")
LATENCY = Column("latency_s", "latency", **TIME, note=SYNCHRONIZED, help=LATENCY_HELP)
RATE = {"table": "bandwidth", "better": "larger"}
ALGBW = Column("algbw_gb_per_s", "algorithm bandwidth", note="of pipelined calls", help="S / t", **RATE)
BUSBW = Column(
    *("busbw_gb_per_s", "bus bandwidth"),
    **RATE,
    interval="interval",
    note="of pipelined calls",
    help="algbw × factor: all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all (n−1)/n; broadcast, reduce,"
    " send_recv_ring, send_recv_pair 1. Comparable with link bandwidth. Empty for one rank and for a barrier",
    key="busbw",
    is_shown=True,
)
PEAK_SHARE = Column("peak_ratio", "share of peak", shown_as="%", help="`busbw_gb_per_s` / `peak_gb_per_s`", **RATE)
PEAK = Column(
    "peak_gb_per_s", "peak", help="highest bus bandwidth that links of the cluster file allow: see below", **RATE
)
ERROR_HELP = (
    "largest absolute and relative difference of an all_reduce from the float64 sum. Maximum over ranks, launches and"
    " at most 262,144 evenly spaced elements. Inputs are in (0, 1], rounded to the dtype, so there is no cancellation"
)
WINDOW = Column(
    "pipelined_s",
    interval="interval",
    help="time per call of many calls issued back to back, with one wait at the end: mean over launches of"
    " `window_step_s`",
)
COLLECTIVES = Columns(
    *described(
        ("operation", "algorithm", "message_bytes", "dtype"),
        algorithm="all_reduce only: `torch` is the library's; the others are built from sends and receives",
        message_bytes="S: the larger of one rank's input and output, as in nccl-tests. For all_reduce, broadcast,"
        " reduce and both send_recv operations it is one rank's buffer. For all_gather, reduce_scatter and all_to_all"
        " it is the total over ranks; one rank's part is S/n. Empty for a barrier",
    ),
    *(LATENCY, CALL, ALGBW, BUSBW, PEAK_SHARE, PEAK),
    WINDOW,
    *(Column(f"pipelined_{rate.name}", help="the same with `pipelined_s` as t") for rate in (ALGBW, BUSBW)),
    result_column(
        *("algorithm_bytes", "memory"),
        table="latency",
        help="memory that a custom algorithm allocates in addition to the message: largest over ranks and launches."
        " Empty for the library, which does not report it",
    ),
    result_column("max_abs_error", help=ERROR_HELP),
    result_column("max_rel_error", table="latency", help=ERROR_HELP),
)
COSTS = ("algorithm_bytes", "max_abs_error", "max_rel_error")


def algorithm_bandwidth(message_bytes: int, elapsed_s: float) -> float:
    """Return S/t in GB/s (10**9). message_bytes: for all_gather, reduce_scatter and all_to_all the sum over ranks."""
    return message_bytes / elapsed_s / BYTES_PER_GB


def bus_bandwidth(operation: str, message_bytes: int, elapsed_s: float, num_ranks: int) -> float | None:
    """Return bus bandwidth in GB/s, comparable with a link's peak at any number of ranks.

    None for one rank, which sends nothing, and for an operation without a known factor.
    """
    operation = VARIANT.sub("", operation)
    if num_ranks < 2 or operation not in BUS_FACTOR:
        return None
    return algorithm_bandwidth(message_bytes, elapsed_s) * BUS_FACTOR[operation](num_ranks)


def peak_bus_bandwidth(operation: str, nodes: int, gpus_per_node: int, links: dict[str, float]) -> float | None:
    """Return the highest bus bandwidth in GB/s that links allow any algorithm without reduction in the network.

    links: GB/s in one direction by `between` (workflow/schemas/cluster.yaml). None if one that the operation needs is
    unknown, and where bus bandwidth is undefined.
    """
    k, g, operation = nodes, gpus_per_node, VARIANT.sub("", operation)
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


def peaks_by_cell(campaign: FrozenCampaign, measurements: pd.DataFrame) -> dict[str, float]:
    """Return the peak bus bandwidth in GB/s of each NCCL cell whose launches ran on a GPU with known links.

    Other backends copy through host memory, whose bandwidth the cluster file does not have.
    """
    if not links_of(campaign):
        return {}
    ok = measurements[measurements["status"] == "ok"]
    gpus = {cell: set(names) for cell, names in ok[["cell", "gpu"]].drop_duplicates().groupby("cell")["gpu"]}
    found = {}
    for cell in campaign.cells_of("collective"):
        entries = [link for link in links_of(campaign) if gpus.get(cell.id) == {link["device"]}]
        links = {link["between"]: link["gb_per_s"] for link in entries}
        peak = peak_bus_bandwidth(cell.parameters["operation"], *cell.shape, links)
        if peak is not None and cell.backend == "nccl":
            found[cell.id] = peak
    return found


def links_of(campaign: FrozenCampaign) -> list[dict]:
    """Return the entries `links` of the cluster file; none in a campaign frozen before the key existed."""
    return campaign.cluster.get("links") or []


def collectives_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each collective cell of the campaign, measured or not."""
    means = {CALL: primary_means(measurements)}
    calls = measurements[(measurements["benchmark"] == "collective") & (measurements["status"] == "ok")]
    means |= {column: launch_means(calls, name) for column, name in ((LATENCY, "p50_s"), (WINDOW, "window_step_s"))}
    rows = rows_of_cells(campaign, "collective", means, largest_values(measurements, COSTS))
    peaks = peaks_by_cell(campaign, measurements)
    for row in rows:
        row |= _bandwidths(row, means[CALL][row["cell"]]) | {"peak_gb_per_s": peaks.get(row["cell"])}
        if row.get("busbw_gb_per_s") and row["peak_gb_per_s"]:
            row["peak_ratio"] = row["busbw_gb_per_s"] / row["peak_gb_per_s"]
        pipelined = _bandwidths(row, means[WINDOW][row["cell"]])
        row |= {f"pipelined_{name}": pipelined.get(name) for name in (ALGBW.name, BUSBW.name)}
    return make_table(rows, COLLECTIVES)


def _bandwidths(row: dict, time: Estimate) -> dict:
    """Return both bandwidths of a call."""
    num_bytes = row["message_bytes"]
    if time.mean is None or num_bytes is None:
        return {}
    found, of_second = {ALGBW.name: algorithm_bandwidth(num_bytes, time.mean)}, (row["operation"], num_bytes, 1)
    if (work := bus_bandwidth(*of_second, row["world_size"])) is not None:
        found |= interval_values(BUSBW.stem, BUSBW.unit, time.rate(work))
    return found
