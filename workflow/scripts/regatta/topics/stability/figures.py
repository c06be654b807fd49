"""Variation between launches as one strip, and iterations by launch of the most variable cells. See docs/metrics.md."""

from pathlib import Path

import numpy as np
import pandas as pd

from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.report.cell_numbers import RANGE
from regatta.report.panels import Figure, Table
from regatta.report.plotting import DASHES, MARKERS, MAX_POINTS, WIDTH_IN, Entry, new_canvas, set_ticks
from regatta.report.rows import table_rows
from regatta.report.svg import CELL, COLORS, GREY, GRID, MARKS, svg_of
from regatta.store.launch_files import read_one_line
from regatta.store.records import slowest_rank
from regatta.topics.quality import DISAGREEMENT_RATIO, LAUNCH_RANGES

MOST_ROWS = 20  # of the strip's table
MOST_ECDFS = 5
MOST_STEPS = 50  # of one line; of more iterations these quantiles are drawn
ROW_IN, BELOW_IN = 0.45, 0.5  # height of a stack's row, and of the axis below
MARK_PT = 4.5
LEAST_OPACITY = 0.65  # of the last launch's line; dashes distinguish launches too
ECDF_WIDTH_IN, ECDF_HEIGHT_IN = 2.6, 1.9
TICKS = (0, 1, 2, 3, 4, 5, 10, 20, 50, 100, 200, 500, 1000)  # percent


def most_variable(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with a known range, the largest first; equal ones in the order of the table."""
    return ranges.dropna(subset="range_ratio").sort_values("range_ratio", ascending=False, kind="stable")


def stack_hues(campaign: dict) -> dict[str, tuple[str, int]]:
    """Return the stack of each cell and the index of its color, by the cell's id."""
    stacks = {cell["id"]: cell["spec"]["stack"]["name"] for cell in campaign["cells"]}
    places = {stack: place for place, stack in enumerate(dict.fromkeys(stacks.values()))}
    return {cell: (stack, places[stack]) for cell, stack in stacks.items()}


def variation_figure(
    rows: pd.DataFrame, stacks: dict[str, tuple[str, int]], names: dict[str, str], device: str
) -> tuple[Figure, ...]:
    """Return the strip with a mark for each of the rows, if there are any. stacks: of `stack_hues`."""
    if rows.empty:
        return ()
    cell = Column("cell", "cell", TEXT, text=lambda row: names[row.cell])
    columns = (cell, Column("num_launches", "launches", WHOLE), *LAUNCH_RANGES.of_table("variation"))
    first = f"; first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    caption = f"Variation between launches, largest first{first}"
    table = Table.of_columns(caption, columns, rows.head(MOST_ROWS), device)
    drawn = rows.head(MAX_POINTS)
    title = "Variation between launches"
    svg = _draw_strip(drawn, stacks, RANGE.heading(device), title)
    shown = sorted({stacks[cell] for cell in drawn["cell"]}, key=lambda stack: stack[1])
    legend = tuple(Entry(stack, COLORS[hue % len(COLORS)], marker=_marker(hue)) for stack, hue in shown)
    return (Figure("variation", title, svg, table, "launch_ranges", legend if len(legend) > 1 else ()),)


def _marker(hue: int) -> str:
    return list(MARKERS)[hue % len(COLORS)]


def _draw_strip(rows: pd.DataFrame, stacks: dict[str, tuple[str, int]], x_label: str, title: str) -> str:
    """Draw a row of marks for each stack. The axis is linear up to the limit and logarithmic above it."""
    order = sorted({stacks[cell][1] for cell in rows["cell"]}, reverse=True)
    limit, largest = RANGE.shown(DISAGREEMENT_RATIO), RANGE.shown(rows["range_ratio"].max())
    high = max(1.15 * largest, 1.3 * limit)
    height_in = BELOW_IN + ROW_IN * len(order)
    with new_canvas(WIDTH_IN, height_in, **{"svg.hashsalt": "variation"}) as canvas:
        axes = canvas.add_axes((0.03, BELOW_IN / height_in, 0.94, 1 - BELOW_IN / height_in - 0.02))
        axes.set_xscale("symlog", linthresh=limit, linscale=1)
        axes.set(xlim=(-0.02 * limit, high), ylim=(-0.5, len(order) - 0.5), yticks=())
        set_ticks(axes.xaxis, [(tick, f"{tick:g}") for tick in TICKS if tick <= high])
        axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
        axes.axvline(limit, color=GREY, dashes=(4, 3), linewidth=1.2)
        axes.set_xlabel(f"{x_label}{', logarithmic above ' + f'{limit:g}' if high > 2 * limit else ''}")
        axes.spines["left"].set_visible(False)
        cells = []
        for place, hue in enumerate(order):
            of_stack = [
                (row.cell, RANGE.shown(row.range_ratio)) for row in table_rows(rows) if stacks[row.cell][1] == hue
            ]
            places_pt = [float(axes.transData.transform((x, place))[0]) for _, x in of_stack]
            style = {"marker": _marker(hue), "markersize": MARK_PT, "linestyle": "none", "alpha": 0.75}
            style |= {"color": COLORS[hue % len(COLORS)], "markeredgewidth": 0}
            [plot] = axes.plot([x for _, x in of_stack], [place + offset for offset in swarm(places_pt)], **style)
            plot.set_gid(f"{MARKS}{place}")
            cells.append([cell for cell, _ in of_stack])
        return svg_of(canvas, f"{title}: {x_label} by cell", cells)


def swarm(places_pt: list[float], size_pt: float = MARK_PT, step: float = 0.16, most: float = 0.42) -> list[float]:
    """Return the offset of each mark from the middle of its row, in rows, so that marks do not overlap.

    Marks in the same `size_pt` of the axis are stacked: 0, step, -step, 2 step, ...; closer if they exceed `most`.
    """
    bins = [int(place // size_pt) for place in places_pt]
    counts = {one: bins.count(one) for one in set(bins)}
    used: dict[int, int] = {}
    offsets = []
    for one in bins:
        index = used[one] = used.get(one, -1) + 1
        closest = min(step, most / max(counts[one] // 2, 1))
        offsets.append(closest * ((index + 1) // 2) * (1 if index % 2 else -1))
    return offsets


def ecdf(times: np.ndarray, most: int = MOST_STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct times in ascending order, and the share of iterations at or below each.

    Of more than `most` iterations: the first one and those at equal steps of the share.
    """
    ordered, num = np.sort(times), len(times)
    ranks = np.ceil(np.arange(1, most + 1) * num / most).astype(int) if num > most else np.arange(1, num + 1)
    values = np.unique(ordered[np.append(ranks - 1, 0)])
    return values, np.searchsorted(ordered, values, side="right") / num


def iteration_times(ok: pd.DataFrame, cell: str, launches: Path) -> dict[int, np.ndarray]:
    """Return the synchronized iterations of the slowest rank in seconds, by repeat, of each launch that has some."""
    found = {}
    for row in ok[ok["cell"] == cell].sort_values("repeat").itertuples():
        record = read_one_line(launches / f"{row.launch}.jsonl", int(row.line))
        try:
            found[int(row.repeat)] = slowest_rank(record, int(row.world_size)) * 1e-9
        except (AttributeError, TypeError, ValueError):  # imported without times, or changed since it was collected
            continue
    return found


def ecdf_figures(
    rows: pd.DataFrame, ok: pd.DataFrame, launches: Path, stacks: dict[str, tuple[str, int]], names: dict[str, str]
) -> tuple[Figure, ...]:
    """Return the figures of the first MOST_ECDFS rows that vary and have iterations. rows: of `most_variable`."""
    cells = rows.loc[rows["range_ratio"] > 0, "cell"].head(MOST_ECDFS)
    times = {cell: found for cell in cells if (found := iteration_times(ok, cell, launches))}
    return tuple(
        _ecdf_figure(f"ecdf-{number}", names[cell], cell, of_launches, stacks[cell][1])
        for number, (cell, of_launches) in enumerate(times.items(), start=1)
    )


def _ecdf_figure(figure_id: str, title: str, cell: str, times: dict[int, np.ndarray], hue: int) -> Figure:
    color, fading = COLORS[hue % len(COLORS)], (1 - LEAST_OPACITY) / max(len(times) - 1, 1)
    styles = [
        Entry(f"launch {repeat + 1}", color, DASHES[place % len(DASHES)], opacity=1 - fading * place)
        for place, repeat in enumerate(times)
    ]
    values = [(repeat + 1, len(of), *np.quantile(of, (0, 0.5, 1))) for repeat, of in times.items()]
    rows = pd.DataFrame(values, columns=[column.name for column in ITERATIONS])
    svg = _draw_ecdf(figure_id, title, cell, list(times.values()), styles)
    # As a landmark, a table needs a unique name.
    table = Table.of_columns(f"Iterations by launch, {title}", ITERATIONS, rows, "")
    return Figure(figure_id, title, svg, table, "launches/*.jsonl", tuple(styles))


ITERATIONS = (
    Column("launch", "launch", WHOLE),
    Column("num_samples", "iterations", WHOLE),
    *(Column(f"{name}_s", name, shown_as="ms") for name in ("min", "p50", "max")),
)
TIME = Column("iteration_s", "time", shown_as="ms")


def _draw_ecdf(figure_id: str, title: str, cell: str, times: list[np.ndarray], styles: list[Entry]) -> str:
    with new_canvas(ECDF_WIDTH_IN, ECDF_HEIGHT_IN, **{"svg.hashsalt": figure_id}) as canvas:
        axes = canvas.add_axes((0.13, 0.25, 0.82, 0.7))
        for of_launch, style in zip(times, styles, strict=True):
            x, share = ecdf(TIME.factor * of_launch)
            line = {"color": style.color, "alpha": style.opacity, "dashes": style.dashes or (None, None)}
            [drawn] = axes.step([x[0], *x], [0, *share], where="post", linewidth=1.6, **line)
            drawn.set_gid(f"{CELL}{cell}")
        axes.set(ylim=(-0.02, 1.04), xlabel=TIME.heading(""))
        set_ticks(axes.yaxis, [(0, "0"), (0.5, "0.5"), (1, "1")])
        axes.locator_params(axis="x", nbins=4)
        axes.grid(visible=True, color=GRID, linewidth=0.8)
        return svg_of(canvas, f"{title}: share of iterations by {TIME.heading('')}")
