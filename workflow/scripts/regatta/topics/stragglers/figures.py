"""The worst straggler drawn: times of all ranks of one record by host, and rank by rank over its iterations."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.core.text import UNKNOWN, duration, is_unknown, plural, shape, three
from regatta.report.panels import Figure, Table
from regatta.report.plotting import COLOURS, GREY, INK, WIDTH_IN, image_of, new_canvas
from regatta.store.launch_files import read_one_line
from regatta.store.tables import to_csv
from regatta.topics.stragglers.spikes import ALL_RANKS, ONE_HOST, ONE_RANK, Spike
from regatta.topics.stragglers.waits import COMPUTE, HOST_WAIT, IN_COLLECTIVE, spikes_of, times_that_tell

WHAT = {
    IN_COLLECTIVE: ("time in the collective", "the last rank to come waits least, so it has the shortest time"),
    COMPUTE: ("a step without exchange", "nobody waits in it, so the slowest rank has the longest time"),
    HOST_WAIT: ("wait for the exchange", "the last rank to come waits least, so it has the shortest time"),
}
UNITS = ((1e-3, 1e6, "\N{MICRO SIGN}s"), (1, 1e3, "ms"), (float("inf"), 1, "s"))
STRIP_IN, MAP_IN = 3.0, 2.9
PIXELS_PER_INCH = 100  # of the page, where WIDTH_IN is 390 pixels
BAND = "#F0F0F0"
MOST_ITERATIONS = 120  # columns of the map; more are medians of neighbours
MOST_NAMED_HOSTS = 8  # whose names find room above their bands


def worst_of(stragglers: pd.DataFrame, hosts: pd.DataFrame):
    """Return the row of the persistent rank that lags most, or for want of one of the host; None where nobody is."""
    for table in (stragglers, hosts):
        found = table[table["is_persistent"].fillna(False).astype(bool)]
        if len(found):
            return max(found.itertuples(), key=lambda row: row.lag_ratio)
    return None


def straggler_figures(worst, words: str, waits: pd.DataFrame, times_ns: np.ndarray | None) -> list[Figure]:
    """Return the strip of one record, and its map where its times could be read. worst: see `worst_of`; words: on it."""
    if worst is None:
        return []
    ranks = waits[(waits["launch"] == worst.launch) & (waits["quantity"] == worst.quantity)].sort_values("rank")
    is_rank = hasattr(worst, "rank")
    late = [worst.rank] if is_rank else ranks.loc[ranks["host"] == worst.host, "rank"].tolist()
    first = ranks.iloc[0]
    place = f"{shape(first['nodes'], first['gpus_per_node'])}, {first['stack']}"
    record = f"{first['cell']}, {first['launch']} line {first['line']}"
    found = [replace(_strip(ranks, late, words, place, record), source="waits")]
    if times_ns is not None:
        found.append(replace(_map(times_ns, ranks, late, place, record), source=f"launches/{first['launch']}.jsonl"))
    return found


def _strip(ranks: pd.DataFrame, late: list[int], told: str, place: str, record: str) -> Figure:
    quantity = ranks["quantity"].iloc[0]
    what, reading = WHAT[quantity]
    factor, unit = _unit(float(ranks["p95_s"].max()))
    columns = ("rank", "host", f"p5 ({unit})", f"p50 ({unit})", f"p95 ({unit})", "last in (%)")
    body = tuple(
        (
            str(row.rank),
            UNKNOWN if is_unknown(row.host) else row.host,
            *(three(factor * getattr(row, name)) for name in ("p5_s", "p50_s", "p95_s")),
            three(100 * row.num_last / row.num_iterations),
        )
        for row in ranks.itertuples()
    )
    caption = (
        f"By rank: dot the median, bar 5 to 95 % of the iterations of one record ({record}), that of the largest lag; diamonds: who is"
        f" persistently last. Bands: hosts. Here {reading}. The axis does not begin at 0. Last in: of all measurements of the launch."
    )
    table = Table(f"{what.capitalize()} by rank, {place}", columns, body)
    size = (round(PIXELS_PER_INCH * WIDTH_IN), round(PIXELS_PER_INCH * STRIP_IN))
    title = f"Stragglers: {what}, {place}"
    return Figure(
        "straggler-strip", title, _draw_strip(ranks, late, what), told, caption, table, to_csv(ranks), size=size
    )


def _draw_strip(ranks: pd.DataFrame, late: list[int], what: str) -> bytes:
    factor, unit = _unit(float(ranks["p95_s"].max()))
    low, middle, high = (factor * ranks[name].to_numpy(dtype=float) for name in ("p5_s", "p50_s", "p95_s"))
    with new_canvas(WIDTH_IN, STRIP_IN) as canvas:
        axes = canvas.add_axes((0.15, 0.17, 0.82, 0.58))
        is_small = len(ranks) > 64
        for rank, (bottom, dot, top) in enumerate(zip(low, middle, high, strict=True)):
            colour, marker = (COLOURS[1], "D") if rank in late else (COLOURS[0], "o")
            axes.plot([rank, rank], [bottom, top], color=colour, linewidth=0.8 if is_small else 1.8, alpha=0.7)
            axes.plot([rank], [dot], marker=marker, markersize=2 if is_small else 5, color=colour, linestyle="none")
        axes.set_xlim(-0.6, len(ranks) - 0.4)
        _bands(axes, _hosts(ranks))
        axes.set_xlabel("rank")
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.locator_params(axis="y", nbins=5)
        axes.grid(visible=True, axis="y", color="#D8D8D8", linewidth=0.8)
        canvas.text(0.02, 0.985, f"{what} ({unit})", va="top")
        return image_of(canvas)


def _hosts(ranks: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Return (host, first rank, last rank) of each run of ranks on one host."""
    runs: list[tuple[str, int, int]] = []
    for rank, host in enumerate(ranks["host"].fillna(UNKNOWN)):
        first = runs.pop()[1] if runs and runs[-1][0] == host else rank
        runs.append((host, first, rank))
    return runs


def _bands(axes, runs: list[tuple[str, int, int]]) -> None:
    """Shade every second host, and name hosts above: as many as find room."""
    every = -(-len(runs) // MOST_NAMED_HOSTS)
    for index, (host, first, last) in enumerate(runs):
        if index % 2:
            axes.axvspan(first - 0.5, last + 0.5, color=BAND, zorder=0, linewidth=0)
        if index % every == 0:
            axes.annotate(
                host if len(host) <= 10 else f"\N{HORIZONTAL ELLIPSIS}{host[-9:]}", ((first + last) / 2, 1.02),
                xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=8, color=INK,
                rotation=30 if len(runs) > 4 else 0,
            )  # fmt: skip


def _map(times_ns: np.ndarray, ranks: pd.DataFrame, late: list[int], place: str, record: str) -> Figure:
    """Return the map of iterations and ranks: how much later or earlier than the median rank each one was."""
    what, _ = WHAT[ranks["quantity"].iloc[0]]
    per_column = -(-times_ns.shape[1] // MOST_ITERATIONS)
    apart = (times_ns - np.median(times_ns, axis=0)) * 1e-9
    starts = np.arange(0, apart.shape[1], per_column)
    columns = np.stack([np.median(apart[:, s : s + per_column], axis=1) for s in starts], axis=1)
    factor, unit = _unit(float(np.quantile(np.abs(columns), 0.99)))
    half = len(starts) // 2
    body = tuple(
        (
            str(rank),
            *(three(factor * float(np.median(part[rank]))) for part in (columns[:, : max(half, 1)], columns[:, half:])),
        )
        for rank in range(len(columns))
    )
    median_s = float(np.median(columns[late]))
    who = f"Rank {late[0]}" if len(late) == 1 else f"Ranks {late[0]} to {late[-1]}"
    alt = (
        f"{who} over {times_ns.shape[1]} iterations of {record}: {what} is at the median {duration(abs(median_s))}"
        f" {'longer' if median_s > 0 else 'shorter'} than that of the median rank."
    )
    caption = (
        f"Time of each rank minus the median over ranks of the same iteration, in {unit}; diamonds as beside. A column is"
        f" {'one iteration' if per_column == 1 else f'the median of {per_column} iterations'}. What all ranks have in common is not in it."
    )
    spikes, told = _spikes(ranks, times_ns)
    caption += told
    csv = (
        pd.DataFrame(columns, columns=[f"from_iteration_{start}_s" for start in starts])
        .rename_axis("rank")
        .reset_index()
    )
    table = Table(
        f"Time minus the median rank's, {place}", ("rank", f"first half ({unit})", f"second half ({unit})"), body
    )
    size = (round(PIXELS_PER_INCH * WIDTH_IN), round(PIXELS_PER_INCH * MAP_IN))
    image = _draw_map(factor * columns, late, unit, times_ns.shape[1], spikes)
    return Figure(
        "straggler-map", f"Stragglers over iterations: {place}", image, alt, caption, table, to_csv(csv), size=size
    )


def _spikes(ranks: pd.DataFrame, times_ns: np.ndarray) -> tuple[list[int], str]:
    """Return the iterations of the drawn record that are spikes, and its words on them. Of waits, which are parts of
    iterations, there are none here."""
    quantity, hosts = ranks["quantity"].iloc[0], [None if is_unknown(host) else host for host in ranks["host"]]
    spikes = None if quantity == HOST_WAIT else spikes_of(quantity, times_ns, None, hosts)
    if spikes is None:
        return [], ""
    marked = " Triangles: outliers." if spikes else ""
    told = f"{marked} This record has {outliers_text(spikes, times_ns.shape[1], hosts)}."
    return [spike.iteration for spike in spikes], told


def _draw_map(columns: np.ndarray, late: list[int], unit: str, num_iterations: int, spikes: list[int]) -> bytes:
    reach = float(np.quantile(np.abs(columns), 0.99)) or 1.0
    with new_canvas(WIDTH_IN, MAP_IN) as canvas:
        axes = canvas.add_axes((0.12, 0.18, 0.66, 0.7))
        extent = (0, num_iterations, len(columns) - 0.5, -0.5)
        image = axes.imshow(
            columns, aspect="auto", cmap="PuOr", vmin=-reach, vmax=reach, interpolation="nearest", extent=extent
        )
        axes.set_xlabel("iteration")
        axes.locator_params(axis="y", nbins=8, integer=True)
        axes.locator_params(axis="x", nbins=5, integer=True)
        axes.plot(
            [1.03] * len(late),
            late,
            linestyle="none",
            marker="D",
            markersize=5,
            color=INK,
            clip_on=False,
            transform=axes.get_yaxis_transform(),
        )
        axes.plot(
            [iteration + 0.5 for iteration in spikes],
            [1.03] * len(spikes),
            linestyle="none",
            marker="v",
            markersize=4,
            color=INK,
            clip_on=False,
            transform=axes.get_xaxis_transform(),
        )
        bar = canvas.colorbar(image, cax=canvas.add_axes((0.84, 0.18, 0.035, 0.7)))
        bar.outline.set_edgecolor(GREY)
        canvas.text(0.02, 0.985, "rank", va="top")
        canvas.text(0.98, 0.985, f"apart ({unit})", va="top", ha="right")
        return image_of(canvas)


def _unit(largest_s: float) -> tuple[float, str]:
    return next((factor, unit) for limit, factor, unit in UNITS if largest_s < limit)


def worst_times(worst, launches: Path) -> np.ndarray | None:
    """Return the nanoseconds of the record that is drawn, (ranks, iterations), from its launch file; None without one."""
    record = read_one_line(launches / f"{worst.launch}.jsonl", int(worst.line))
    if record is None or record["kind"] != "record":
        return None
    try:
        quantity, times_ns = times_that_tell(record, record["spec"])
    except (KeyError, TypeError, ValueError):  # of a file that changed since it was collected
        return None
    return times_ns if quantity == worst.quantity else None


def outliers_text(spikes: Sequence[Spike], num_iterations: int, hosts: Sequence[str | None]) -> str:
    """Return one record's outliers in words: `3 outliers in 60 iterations: 1 of all ranks, 2 of rank 1 on host n2`."""
    if not spikes:
        return f"no outliers in {plural(num_iterations, 'iteration')}"
    parts = []
    for (kind, who), num in sorted(Counter((s.kind, s.who) for s in spikes).items(), key=_order):
        on = f" on host {hosts[who]}" if kind == ONE_RANK and not is_unknown(hosts[who]) else ""
        names = {ALL_RANKS: "of all ranks", ONE_HOST: f"of host {who}", ONE_RANK: f"of rank {who}{on}"}
        parts.append(f"{num} {names.get(kind, 'of unknown cause')}")
    return f"{plural(len(spikes), 'outlier')} in {plural(num_iterations, 'iteration')}: {', '.join(parts)}"


def _order(counted: tuple[tuple, int]) -> tuple:
    (kind, who), num = counted
    return [ALL_RANKS, ONE_HOST, ONE_RANK, None].index(kind), -num, str(who)
