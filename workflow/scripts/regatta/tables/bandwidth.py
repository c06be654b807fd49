"""Bandwidths of a collective, and the peak that the links of the cluster file allow. Definitions: docs/metrics.md."""

import re

import numpy as np

from regatta.campaign.program_entries import size_of
from regatta.core.text import UNKNOWN, is_unknown, size
from regatta.kit.columns import WHOLE, Column
from regatta.model.frozen import FrozenCampaign
from regatta.tables.estimates import Estimates, numbers, reduced

BYTES_PER_GB = 10**9

# Source: NVIDIA/nccl-tests doc/PERFORMANCE.md. n is the number of ranks. A barrier moves no message and has none.
BUS_FACTOR = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), lambda n: (n - 1) / n),
    **dict.fromkeys(("broadcast", "reduce", "send_recv_ring", "send_recv_pair"), lambda n: 1.0),
}
OF_EACH_RANK = ("all_to_all", "send_recv_pair")  # in which each rank of a node has messages for other nodes
VARIANT = re.compile("(?:_(?:prod|max|min|avg|mulsum))?(?:_root[0-9]+)?$")  # of an import: reduction and root


def bus_factor(operation: str, num_ranks: int) -> float | None:
    """Return bus bandwidth over algorithm bandwidth: it is comparable with a link's peak at any number of ranks.

    None for one rank, which sends nothing, and for an operation without a known factor.
    """
    factor = BUS_FACTOR.get(VARIANT.sub("", operation))
    return factor(num_ranks) if factor and num_ranks > 1 else None


def has_bus_bandwidth(row) -> bool:
    """Return whether the bus bandwidth of a cell is defined; the output of a program decides that."""
    is_collective = row.benchmark == "collective"
    return not is_collective or bus_factor(row.operation, row.nodes * row.gpus_per_node) is not None


def peak_bus_bandwidth(operation: str, nodes: int, gpus_per_node: int, links: dict[str, float]) -> float | None:
    """Return the upper bound of bus bandwidth in GB/s for algorithms without reduction in the network.

    links: GB/s in one direction by `between` (workflow/schemas/cluster.yaml). None if a required link is
    unknown, or bus bandwidth is undefined.
    """
    k, g, operation = nodes, gpus_per_node, VARIANT.sub("", operation)
    if (factor := bus_factor(operation, k * g)) is None:
        return None
    known = [links[name] * ways for name, ways in (("gpus", 1), ("gpu_pair", g - 1)) if name in links]
    if (g > 1 and not known) or (k > 1 and "nodes" not in links):
        return None
    of_gpu = min(known) if g > 1 else 0.0
    if k == 1:
        return of_gpu
    # A rank's data passes its links to other GPUs or its share of the NICs; what crosses nodes passes the NICs.
    of_node, share = links["nodes"], BUS_FACTOR[operation](k) * (g if operation in OF_EACH_RANK else 1)
    return min(of_gpu + of_node / g, of_node * factor / share)  # share: least data in or out of a node / message


def links_of(campaign: FrozenCampaign) -> list[dict]:
    """Return the entries `links` of the cluster file; none in a campaign frozen before the key existed."""
    return campaign.cluster.get("links") or []


# Formulas of metrics. values: `tables.cells.CellValues`.


def peaks_of_links(values) -> list[float | None]:
    """Return the peak bus bandwidth in GB/s of each NCCL cell whose launches ran on a GPU with known links.

    Other backends copy through host memory, whose bandwidth the cluster file does not have.
    """
    found, links = [], links_of(values.campaign)
    for cell, gpu in zip(values.cells, values.agreed("gpu"), strict=True):
        of_gpu = {link["between"]: link["gb_per_s"] for link in links if link["device"] == gpu}
        is_known = cell.benchmark == "collective" and cell.backend == "nccl"
        found.append(peak_bus_bandwidth(cell.parameters["operation"], *cell.shape, of_gpu) if is_known else None)
    return found


def algorithm_bandwidths(values, times: Estimates) -> Estimates:
    """Return S/t of collectives in GB/s. times: of calls."""
    return times.rate(values.parameter("message_bytes") / BYTES_PER_GB).where(values.is_of("collective"))


def bus_bandwidths(values, times: Estimates) -> Estimates:
    """Return bus bandwidths in GB/s of collectives, and of programs whose output states the operation."""
    factors, num_bytes = reduced(values.of_launches("bus_factor"), np.max).tolist(), []
    for place, cell in enumerate(values.cells):
        size = cell.parameters.get("message_bytes") if cell.benchmark == "collective" else None
        if size is not None:
            factors[place] = bus_factor(cell.parameters["operation"], cell.world_size)
        elif cell.benchmark == "program":
            size = size_of(cell.spec)
        num_bytes.append(size)
    work = numbers(factors) * numbers(num_bytes) / BYTES_PER_GB
    return times.rate(work)


OF_CALL = {"table": "bandwidth", "better": "larger", "benchmarks": ("collective",)}
OF_BUS = OF_CALL | {"applies": has_bus_bandwidth}
ALGBW = Column(
    *("algbw_gb_per_s", "algorithm bandwidth"),
    **OF_CALL,
    applies=lambda row: not is_unknown(row.message_bytes),
    note="of pipelined calls",
    help="S / t",
    formula=lambda values: algorithm_bandwidths(values, values["time_s"]).mean,
)
BUSBW = Column(
    *("busbw_gb_per_s", "bus bandwidth"),
    **OF_BUS | {"benchmarks": ("collective", "program")},
    interval="interval",
    note="of pipelined calls",
    help="algbw × factor: all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all (n−1)/n; broadcast, reduce,"
    " send_recv_ring, send_recv_pair 1. Comparable with link bandwidth. Empty for one rank and for a barrier. For a"
    " program: size / time × `bus_factor`, if `read` names a format that states the operation",
    key="busbw",
    is_shown=True,
    formula=lambda values: bus_bandwidths(values, values.primary),
)
PEAK = Column(
    *("peak_gb_per_s", "peak"),
    **OF_BUS,
    help="upper bound of the bus bandwidth, from `links` in the cluster file",
    formula=peaks_of_links,
)
PEAK_SHARE = Column(
    *("peak_ratio", "share of peak"),
    **OF_BUS,
    shown_as="%",
    help="`busbw_gb_per_s` / `peak_gb_per_s`",
    formula=lambda values: values["busbw_gb_per_s"].mean / numbers(values["peak_gb_per_s"]),
)
MESSAGE = Column(
    *("message_bytes", "message size", WHOLE),
    text=lambda row: UNKNOWN if is_unknown(row.message_bytes) else size(int(row.message_bytes)),
)
PIPELINED_RATES = tuple(
    Column(
        f"pipelined_{rate.name}",
        help="bandwidth computed from `pipelined_s`",
        benchmarks=("collective",),
        applies=rate.applies,
        formula=formula,
    )
    for rate, formula in (
        (ALGBW, lambda values: algorithm_bandwidths(values, values["pipelined_s"]).mean),
        (BUSBW, lambda values: bus_bandwidths(values, values["pipelined_s"]).mean),
    )
)
