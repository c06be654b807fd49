"""The worst straggler drawn: times of all ranks of one record by host, and rank by rank over its iterations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.core.text import UNKNOWN, is_unknown, plural, shape
from regatta.kit.columns import Column
from regatta.report.panels import Figure, Table
from regatta.report.plotting import WIDTH_IN, new_canvas
from regatta.report.svg import COLORS, GREY, GRID, INK, svg_of
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
STRIP_IN, MAP_IN = 3.0, 2.9
MOST_ITERATIONS = 120  # columns of the map; more are medians of neighbors
MOST_NAMED_HOSTS = 8  # whose names fit above their bands


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
            quantiles = np.quantile(times_ns, QUANTILES, axis=1) * 1e-9
            ranks = ranks.assign(**dict(zip(("p5_s", "p50_s", "p95_s"), quantiles, strict=True)))
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
    quantity = Column("time_s", what).fitted(float(ranks["p95_s"].max()))
    rows = ranks.assign(last_ratio=ranks["num_last"] / ranks["num_iterations"])
    shown = [replace(one, shown_as=quantity.shown_as) if one.unit else one for one in WAITS.of_table("strip")]
    caption = f"{what.capitalize()} by rank, {record}; {reading}"
    table = Table.of_columns(caption, (*shown, LAST), rows, ranks["device"].iloc[0])
    title = f"{'Stragglers: ' if late else ''}{what}, {place}"
    title = f"{title[0].upper()}{title[1:]}"
    svg = _draw_strip(figure_id, ranks, late, quantity.factor, quantity.heading(""), title)
    return Figure(figure_id, title, svg, table, "waits")


def _draw_strip(figure_id: str, ranks: pd.DataFrame, late: list[int], factor: float, y_label: str, title: str) -> str:
    is_small = len(ranks) > 64
    numbers, is_late = np.arange(len(ranks)), np.isin(np.arange(len(ranks)), late)
    low, middle, high = (factor * ranks[name].to_numpy(dtype=float) for name in ("p5_s", "p50_s", "p95_s"))
    with new_canvas(WIDTH_IN, STRIP_IN, **{"svg.hashsalt": figure_id}) as canvas:
        axes = canvas.add_axes((0.15, 0.17, 0.82, 0.58))
        for chosen, color, marker in ((~is_late, COLORS[0], "o"), (is_late, COLORS[1], "D")):
            x, width = numbers[chosen], 0.8 if is_small else 1.8
            axes.vlines(x, low[chosen], high[chosen], color=color, linewidth=width, alpha=0.7)
            axes.plot(x, middle[chosen], marker=marker, markersize=2 if is_small else 5, color=color, linestyle="none")
        axes.set_xlim(-0.6, len(ranks) - 0.4)
        _bands(axes, ranks["host"].fillna(UNKNOWN).astype(object).reset_index(drop=True))
        axes.set_xlabel("rank")
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.locator_params(axis="y", nbins=5)
        axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
        canvas.text(0.02, 0.985, y_label, va="top")
        return svg_of(canvas, f"{title}: {y_label} by rank")


def _bands(axes, hosts: pd.Series) -> None:
    """Shade every second host, and name as many hosts above as fit. hosts: by rank."""
    runs = [ranks for _, ranks in hosts.groupby((hosts != hosts.shift()).cumsum())]
    every = -(-len(runs) // MOST_NAMED_HOSTS)
    for index, ranks in enumerate(runs):
        host, first, last = ranks.iloc[0], ranks.index[0], ranks.index[-1]
        if index % 2:
            axes.axvspan(first - 0.5, last + 0.5, color=GRID, alpha=0.4, zorder=0, linewidth=0)
        if index % every == 0:
            text = host if len(host) <= 10 else f"\N{HORIZONTAL ELLIPSIS}{host[-9:]}"
            style = {"ha": "center", "va": "bottom", "fontsize": 8, "rotation": 30 if len(runs) > 4 else 0}
            axes.text((first + last) / 2, 1.02, text, transform=axes.get_xaxis_transform(), **style)


def _map(times_ns: np.ndarray, ranks: pd.DataFrame, late: list[int], place: str, record: str) -> Figure:
    """Return the map of iterations and ranks: the difference of each from the median rank."""
    quantity, num_iterations = ranks["quantity"].iloc[0], times_ns.shape[1]
    per_column = -(-num_iterations // MOST_ITERATIONS)
    apart = (times_ns - np.median(times_ns, axis=0)) * 1e-9
    starts = np.arange(0, num_iterations, per_column)
    columns = np.stack([np.median(apart[:, s : s + per_column], axis=1) for s in starts], axis=1)
    largest, half = float(np.quantile(np.abs(columns), 0.99)), len(starts) // 2
    names = ("difference", "first half", "second half")
    difference, *halves = (Column(f"{name}_s", name).fitted(largest) for name in names)
    parts = zip(halves, (columns[:, : max(half, 1)], columns[:, half:]), strict=True)
    rows = pd.DataFrame({"rank": ranks["rank"].to_numpy()} | {one.name: np.median(part, axis=1) for one, part in parts})
    hosts = [None if is_unknown(host) else host for host in ranks["host"]]
    outliers = outliers_of(quantity, times_ns, None, hosts)  # None of waits, which are parts of iterations
    found = "" if outliers is None else f"; {plural(len(outliers), 'outlier')} in {num_iterations:,} iterations"
    caption, device = f"Time relative to the median rank of the iteration, {record}{found}", ranks["device"].iloc[0]
    table = Table.of_columns(caption, (*WAITS.of_table("strip")[:1], *halves), rows, device)
    marks = [outlier.iteration for outlier in outliers or ()]
    title, source = f"Stragglers over iterations: {place}", f"launches/{ranks['launch'].iloc[0]}.jsonl"
    svg = _draw_map(difference.factor * columns, late, difference.heading(device), num_iterations, marks, title)
    return Figure("straggler-map", title, svg, table, source)


def _draw_map(
    columns: np.ndarray, late: list[int], difference: str, num_iterations: int, outliers: list[int], title: str
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
