"""Launches, and nodes over their launches, that were slow in most of their cells: tables/slow_launches.csv.

A launch is not repeated. Over its cells, its times are compared with those of the cell's other launches, and those of
a node with launches elsewhere. Definitions: docs/metrics.md.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES, adjust_for_number
from regatta.core.statistics import fast_median
from regatta.core.text import natural
from regatta.kit.columns import FLAG, REAL, TEXT, WHOLE, Columns, in_file
from regatta.store.csv_files import MEASUREMENTS, grouped, make_table, plain_rows
from regatta.tables.pairs import MARGIN
from regatta.tables.primary_times import with_primary

SLOW_FACTOR = 1.35  # slow without a test: 4 standard deviations of 8 %; chance: benchmarks/slow_launch_errors.py
MIN_CELLS = 3  # slow ones
MIN_OTHERS = 2  # other launches of a cell; with one, it is unknown which of the two is slow
MIN_LAUNCHES_OF_NODE = 2  # with one, the launch is reported
LOADS = ("other_processes_ratio", "steal_ratio", "throttled_ratio")
SHAPE_AND_STACK = ("nodes", "gpus_per_node", "stack")
_SLOW = (
    "slower in more than half of the cells and in at least three, with a median ratio that differs significantly from"
    " the others, or is above 1.35"
)
_RATIOS = "time / median of the cell's other launches: median over cells; smallest and largest of the slow cells"
SLOW_LAUNCHES = Columns(
    *in_file(TEXT, "the launch; empty for a node", "launch"),
    *in_file(WHOLE, "its repeat", "repeat"),
    *in_file(TEXT, "the node; empty for a launch", "host"),
    *MEASUREMENTS.named(*SHAPE_AND_STACK),
    *in_file(WHOLE, "cells compared, and those in which it was slower by more than 5 %", "num_cells", "num_slow"),
    *in_file(REAL, _RATIOS, "median_ratio", "low_ratio", "high_ratio"),
    *in_file(REAL, "p of its median against those of the other launches, corrected; empty for a node", "p_adjusted"),
    *in_file(FLAG, _SLOW, "is_slow"),
    *in_file(REAL, "medians of these loads over the slow cells, over all if none is slow", *LOADS),
)


def slow_launches_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each launch with comparable cells, then one for each node with such cells."""
    by_launch: dict[str, list[dict]] = defaultdict(list)
    by_host: dict[str, list[dict]] = defaultdict(list)
    used = ("cell", "launch", "repeat", "hosts", *SHAPE_AND_STACK, "loaded_host", "primary_s", *LOADS)
    for rows in grouped(plain_rows(with_primary(measurements), used), ("cell",)).values():
        _compare(rows, [(row["launch"],) for row in rows], by_launch)
        if len({row["hosts"] for row in rows}) > 1:  # else no launch was elsewhere
            _compare(rows, [row["hosts"].split(", ") if row["hosts"] else () for row in rows], by_host)
    found = []
    for compared in by_launch.values():
        first = compared[0]["rows"][0]
        found.append({name: first[name] for name in ("launch", "repeat", *SHAPE_AND_STACK)} | _row(compared))
    found.sort(key=lambda row: (row["repeat"], natural(row["launch"])))
    p_values = np.full(len(found), np.nan)
    places = [tuple(row[name] for name in SHAPE_AND_STACK) for row in found]
    for place in set(places):
        at = [index for index, of in enumerate(places) if of == place]
        if len(at) >= MIN_LAUNCHES:
            p_values[at] = p_of_each(np.log([found[index]["median_ratio"] for index in at]))
    for row, p_adjusted in zip(found, adjust_for_number(p_values).tolist(), strict=True):
        row["p_adjusted"] = p_adjusted
    for host, compared in sorted(by_host.items(), key=lambda item: natural(item[0])):
        if len({row["launch"] for one in compared for row in one["rows"]}) >= MIN_LAUNCHES_OF_NODE:
            found.append({"host": host} | _row(compared, host))
    return make_table([row | {"is_slow": _is_slow(row)} for row in found], SLOW_LAUNCHES)


def _compare(rows: list[dict], places: list[Iterable[str]], found: dict[str, list[dict]]) -> None:
    """Add for each launch or host with MIN_OTHERS launches elsewhere its rows of one cell, and the ratio to the others.

    rows: ok ones of the cell. places: those of each row.
    """
    order, here_of = sorted(range(len(rows)), key=lambda index: rows[index]["primary_s"]), defaultdict(list)
    seconds, known = [rows[index]["primary_s"] for index in order], {}
    for rank, index in enumerate(order):
        for place in places[index]:
            here_of[place].append(rank)
    for place, ranks in here_of.items():
        if len(rows) - len(ranks) >= MIN_OTHERS:
            if (key := tuple(ranks)) not in known:  # hosts of one launch share their rows
                ratio = fast_median([seconds[rank] for rank in ranks]) / _median_without(seconds, ranks)
                known[key] = {"rows": [rows[order[rank]] for rank in ranks], "ratio": ratio}
            found[place].append(known[key])


def _median_without(ordered: list[float], ranks: list[int]) -> float:
    """Return the median of ascending values without those at some ascending places: a cell may have 20,000 launches."""
    num, ends = len(ordered) - len(ranks), []
    for place in ((num - 1) // 2, num // 2):
        for rank in ranks:
            place += rank <= place
        ends.append(ordered[place])
    return sum(ends) / 2


def _row(compared: list[dict], host: str | None = None) -> dict:
    """Return the columns of a launch or host. Loads are medians over its slow cells, or over all if none is slow.

    Loads of a host are from records in which it was the most loaded one.
    """
    slow = [one for one in compared if one["ratio"] > 1 + MARGIN]
    used = [row for one in slow or compared for row in one["rows"] if host in (None, row["loaded_host"])]
    loads = {name: [row[name] for row in used if row[name] is not None] for name in LOADS}
    return {
        "num_cells": len(compared),
        "num_slow": len(slow),
        "median_ratio": fast_median([one["ratio"] for one in compared]),
        "low_ratio": min((one["ratio"] for one in slow), default=None),
        "high_ratio": max((one["ratio"] for one in slow), default=None),
        **{name: fast_median(values) if values else None for name, values in loads.items()},
    }


def p_of_each(values: np.ndarray) -> np.ndarray:
    """Return the two-sided p of each of (..., 3 or more) values against the others: t test of its distance."""
    from scipy.special import stdtr

    num, apart = values.shape[-1], values - values.mean(-1, keepdims=True)
    squares = (apart**2).sum(-1, keepdims=True) - num / (num - 1) * apart**2  # of the others
    scale = np.sqrt(np.maximum(squares, 0) / (num - 2) * (num - 1) / num) + np.finfo(float).tiny
    return 2 * stdtr(num - 2, -np.abs(apart) / scale)


def _is_slow(row: dict) -> bool:
    is_unlike = row.get("p_adjusted", 1) <= FALSE_DISCOVERIES or row["median_ratio"] > SLOW_FACTOR
    return is_unlike and row["num_slow"] >= MIN_CELLS and 2 * row["num_slow"] > row["num_cells"]
