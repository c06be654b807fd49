"""Efficiencies in words: what a headline says of one, its grade, and how to read the figure."""

import pandas as pd

from regatta.analysis.scaling import grades_within, is_inconclusive
from regatta.numbers import UNKNOWN, bracket, is_unknown, percent, ratio_text, shape
from regatta.report.largest import launches_text
from regatta.report.panels import Baseline, how_to_read

Threads = dict[tuple[int, int], set[int]]  # threads of a rank by shape (nodes, ranks per node)


def efficiency_caption(rows: pd.DataFrame, base: Baseline, one: str, uneven: str) -> str:
    """Return how to read a figure of efficiencies. one: word for a rank; uneven: as `sharing` returns it."""
    return (
        f"Throughput per {one} as a share of {base}. A point is one launch over the median of the baseline, so the baseline's"
        " own scatter is in the table's spread and not in the points. Linear axis from 0; points above 100 % stay visible,"
        " they often mean a slow baseline. Wrapper × intra-node × inter-node is the efficiency against one"
        f" {one} without DDP. {how_to_read(rows, 'efficiency_ratio', 'efficiency_interval')}"
        + (f" Efficiency here is also the loss of cores {uneven}." if uneven else "")
    )


def sharing(rows: pd.DataFrame) -> str:
    """Return `(2 threads a rank in 1×1, 1 in 1×2: the ranks share the cores)` if that sets the rows and baselines apart."""
    uneven: Threads = {place: nums for row in rows.itertuples() for place, nums in (row.uneven or {}).items()}
    if not uneven:
        return ""
    told = []
    for place, nums in sorted(uneven.items()):
        noun = "" if told else " thread a rank" if nums == {1} else " threads a rank"
        told.append(f"{'/'.join(map(str, sorted(nums)))}{noun} in {shape(*place)}")
    return f"({', '.join(told)}: the ranks share the cores)"


def is_wide(row) -> bool:
    low, high = row.efficiency_low_ratio, row.efficiency_high_ratio
    return not is_unknown(low) and not is_unknown(high) and is_inconclusive(row.efficiency_ratio, low, high)


def grade_word(row) -> str:
    """Return the grade, both words where the spread lies on both sides of a limit, or why there is none.

    Where the ranks had fewer cores than the baseline's, a word would judge the machine's size.
    """
    if not is_unknown(row.baseline) and row.cell == row.baseline:
        return "baseline"
    if is_unknown(row.efficiency_ratio) or row.uneven:
        return UNKNOWN
    if not is_unknown(row.grade):
        return row.grade
    if is_unknown(row.efficiency_low_ratio) or is_unknown(row.efficiency_high_ratio):
        return "one launch"
    if is_wide(row):
        return "inconclusive"
    return " or ".join(grades_within(row.efficiency_low_ratio, row.efficiency_high_ratio))


def efficiency_text(title: str, row, chosen: str, base: Baseline, one: str) -> str:
    """Return what an efficiency says, or that it says nothing. chosen: of how many cells this is the fastest; one: word for a
    rank."""
    num = launches_text(row)
    if row.baseline_launches != row.num_launches:
        num += f", baseline n = {row.baseline_launches}"
    uneven = sharing(pd.DataFrame([row._asdict()]))
    uneven = f" {uneven}" if uneven else ""
    low, high = row.efficiency_low_ratio, row.efficiency_high_ratio
    what = f"the throughput per {one} of {base}"
    if is_wide(row):
        kind = "range" if row.efficiency_interval == "range" else "interval"
        spread = f"{kind} {percent(low)} to {percent(high)} %"
        told = f"median {percent(row.efficiency_ratio)} %, {spread}, {num}"
        return f"{title}: how much {row.name}{chosen} keeps of {what}{uneven} is inconclusive: {told}."
    spread = bracket(low, high, row.efficiency_interval, percent)
    kept = f"{percent(row.efficiency_ratio)} %" + ("" if spread == UNKNOWN else f" {spread}")
    parts = product_text(row)
    return f"{title}: {row.name}{chosen} keeps {kept} of {what}{uneven}, {num}" + (f"; {parts}." if parts else ".")


def product_text(row) -> str:
    """Return `wrapper 0.950 × intra-node 0.949 × inter-node 0.982` with the parts that this cell has.

    Where one is unknown there is no product: `wrapper n/a, intra-node 0.949`. An empty text where all are.
    """
    parts = (
        (row.strategy != "none", "wrapper", row.wrapper_ratio),
        (row.gpus_per_node > 1, "intra-node", row.intra_node_ratio),
        (row.nodes > 1, "inter-node", row.inter_node_ratio),
    )
    own = [(name, ratio) for applies, name, ratio in parts if applies]
    if all(is_unknown(ratio) for _, ratio in own):
        return ""
    between = ", " if any(is_unknown(ratio) for _, ratio in own) else " × "
    return between.join(f"{name} {ratio_text(ratio)}" for name, ratio in own)
