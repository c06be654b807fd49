"""The worst straggler drawn: times of all ranks of one record by host, and rank by rank over its iterations."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.core.text import UNKNOWN, plural, shape
from regatta.kit.columns import Column
from regatta.report.panels import Figure, Table
from regatta.report.plotting import WIDTH_IN, Axis, Entry, new_canvas
from regatta.report.strips import Strip, draw_strip
from regatta.report.svg import COLORS, GREY, INK, svg_of
from regatta.store.csv_files import WAITS
from regatta.store.launch_files import read_one_line
from regatta.topics.stragglers.tables import LAST
from regatta.topics.stragglers.waits import (
    COMPUTE,
    HOST_WAIT,
    IN_COLLECTIVE,
    QUANTILES,
    outliers_of,
    waiting_times,
)

# The timed quantity, and how a straggler shows in it.
WHAT = {
    IN_COLLECTIVE: ("time in the collective", "the straggler waits least"),
    COMPUTE: ("step without synchronization", "the straggler computes longest"),
    HOST_WAIT: ("wait for synchronization", "the straggler waits least"),
}
OTHER, SLOW = Entry("other", COLORS[0], marker="o"), Entry("straggler", COLORS[1], marker="D")
MAP_IN = 2.9
MOST_ITERATIONS = 120  # columns of the map; more are medians of neighbors


def worst_of(stragglers: pd.DataFrame, hosts: pd.DataFrame):
    """Return the row of the persistent rank with the largest lag, falling back to the host; None without either.

    It has a record with quantiles by rank.
    """
    for table in (stragglers, hosts):
        found = table[table["is_persistent"].fillna(False).astype(bool) & table["line"].notna()]
        if len(found):
            return max(found.itertuples(), key=lambda row: row.lag_ratio)
    return None


def rank_figures(
    worst, waits: pd.DataFrame, ok: pd.DataFrame, launches: Path, names: dict[str, str]
) -> tuple[Figure, ...]:
    """Return the strip and map of the worst straggler's record; without one, the strip of the first on most ranks.

    worst: see `worst_of`. ok: of measurements.csv. names: those of cells. Empty if no launch file has such a record.
    """
    if worst is None:
        is_wanted = ok["launch"].isin(waits.loc[waits["world_size"] == waits["world_size"].max(), "launch"])
    else:
        is_wanted = (ok["launch"] == worst.launch) & (ok["line"] == worst.line)
    for record in ok[is_wanted].sort_values(["repeat", "launch", "line"], kind="stable").itertuples():
        quantity, times_ns = _rank_times(record.launch, record.line, launches)
        ranks = waits[(waits["launch"] == record.launch) & (waits["quantity"] == quantity)].sort_values("rank")
        ranks = ranks[ranks["world_size"] == record.world_size]
        if times_ns is not None and len(ranks) == len(times_ns):
            quantiles = np.quantile(times_ns, list(QUANTILES.values()), axis=1) * 1e-9
            ranks = ranks.assign(**dict(zip(QUANTILES, quantiles, strict=True)))
            place = f"{shape(record.nodes, record.gpus_per_node)}, {record.stack}"
            name = f"{names[record.cell]}, launch {record.repeat + 1}"
            if worst is None:
                return (_strip("rank-times", ranks, [], place, name),)
            late = [worst.rank] if hasattr(worst, "rank") else ranks.loc[ranks["host"] == worst.host, "rank"].tolist()
            strip = _strip("straggler-strip", ranks, late, place, name)
            return strip, _map(times_ns, ranks, late, place, name)
    return ()


def _rank_times(launch: str, line: int, launches: Path) -> tuple[str, np.ndarray | None]:
    """Return the quantity of a record and its nanoseconds, (ranks, iterations), or None."""
    record = read_one_line(launches / f"{launch}.jsonl", int(line))
    if record is None or record["kind"] != "record":
        return "", None
    try:
        return waiting_times(record, record["spec"])
    except (KeyError, TypeError, ValueError):  # the file changed since it was collected
        return "", None


def _strip(figure_id: str, ranks: pd.DataFrame, late: list[int], place: str, record: str) -> Figure:
    what, reading = WHAT[ranks["quantity"].iloc[0]]
    time = Column("time_s", what).fitted(float(ranks["p95_s"].max()))
    rows = ranks.assign(last_ratio=ranks["num_last"] / ranks["num_iterations"])
    shown = [replace(one, shown_as=time.shown_as) if one.unit else one for one in WAITS.of_table("strip")]
    caption = f"{what.capitalize()} by rank, {record}; {reading}"
    table = Table.of_columns(caption, (*shown, LAST), rows, ranks["device"].iloc[0])
    hosts = ranks["host"].fillna(UNKNOWN).tolist()
    title = f"{'Stragglers: ' if late else ''}{what}, {place}"
    title = f"{title[0].upper()}{title[1:]}"
    strip = Strip(
        "rank",
        Axis(time.heading("")),
        (time.factor * ranks[["p50_s", "p5_s", "p95_s"]].to_numpy(float)).tolist(),
        [SLOW if rank in late else OTHER for rank in range(len(ranks))],
        groups=[(host, len(list(run))) for host, run in groupby(hosts)],
    )
    return Figure(figure_id, title, draw_strip(strip, figure_id, title), table, "waits")


def _map(times_ns: np.ndarray, ranks: pd.DataFrame, late: list[int], place: str, record: str) -> Figure:
    """Return the map of iterations and ranks: the difference of each from the median rank."""
    device, num_iterations = ranks["device"].iloc[0], times_ns.shape[1]
    per_column = -(-num_iterations // MOST_ITERATIONS)
    apart = (times_ns - np.median(times_ns, axis=0)) * 1e-9
    starts = np.arange(0, num_iterations, per_column)
    columns = np.stack([np.median(apart[:, s : s + per_column], axis=1) for s in starts], axis=1)
    largest, half = float(np.quantile(np.abs(columns), 0.99)), len(starts) // 2
    difference, *halves = (
        Column(f"{name}_s", name).fitted(largest) for name in ("difference", "first half", "second half")
    )
    parts = zip(halves, (columns[:, :half], columns[:, half:]), strict=True)
    rows = pd.DataFrame({"rank": ranks["rank"].to_numpy()} | {one.name: np.median(part, axis=1) for one, part in parts})
    outliers = outliers_of(ranks["quantity"].iloc[0], times_ns, None)  # None of waits, which are parts of iterations
    found = "" if outliers is None else f"; {plural(len(outliers), 'outlier')} in {num_iterations:,} iterations"
    caption = f"Time relative to the median rank of the iteration, {record}{found}"
    table = Table.of_columns(caption, (*WAITS.of_table("strip")[:1], *halves), rows, device)
    title, source = f"Stragglers over iterations: {place}", f"launches/{ranks['launch'].iloc[0]}.jsonl"
    svg = _draw_map(
        difference.factor * columns, late, difference.heading(device), num_iterations, outliers or {}, title
    )
    return Figure("straggler-map", title, svg, table, source)


def _draw_map(
    columns: np.ndarray, late: list[int], difference: str, num_iterations: int, outliers: Iterable[int], title: str
) -> str:
    reach = float(np.quantile(np.abs(columns), 0.99)) or 1.0
    with new_canvas(WIDTH_IN, MAP_IN, **{"svg.hashsalt": "straggler-map"}) as canvas:
        axes = canvas.add_axes((0.12, 0.18, 0.66, 0.7))
        extent = (0, num_iterations, len(columns) - 0.5, -0.5)
        image = axes.imshow(
            columns, aspect="auto", cmap="PuOr", vmin=-reach, vmax=reach, interpolation="nearest", extent=extent
        )
        axes.set_xlabel("iteration")
        axes.locator_params(axis="y", nbins=8, integer=True)
        axes.locator_params(axis="x", nbins=5, integer=True)
        beside = {"linestyle": "none", "color": INK, "clip_on": False}
        axes.plot([1.03] * len(late), late, marker="D", markersize=5, transform=axes.get_yaxis_transform(), **beside)
        places = [iteration + 0.5 for iteration in outliers]
        above = axes.get_xaxis_transform()
        axes.plot(places, [1.03] * len(places), marker="v", markersize=4, transform=above, **beside)
        bar = canvas.colorbar(image, cax=canvas.add_axes((0.84, 0.18, 0.035, 0.7)))
        bar.outline.set_edgecolor(GREY)
        canvas.text(0.02, 0.985, "rank", va="top")
        canvas.text(0.98, 0.985, difference, va="top", ha="right")
        return svg_of(canvas, f"{title}: {difference} from the median rank by rank and iteration")
