"""The figures of collectives: bus bandwidth and latency over message size, with the same axes for every operation."""

from collections.abc import Callable

import pandas as pd

from regatta.numbers import UNKNOWN, bracket, duration, duration_tick, is_unknown, size, three, times
from regatta.report.figures import Axis, Panel, size_ticks
from regatta.report.panels import (
    Figure,
    Table,
    how_to_read,
    in_order,
    launches,
    make_figure,
    make_series,
    name_collectives,
    panels,
)

MICROSECONDS = 1e6


WITHIN_HOST = "within one host: no network link is involved"


def collective_figures(collectives: pd.DataFrame, medians: dict[str, list[float]]) -> list[Figure]:
    """Return bus bandwidth and latency in turn, for each operation. medians: seconds of each launch, by cell."""
    measured = collectives[collectives["latency_s"].notna()]
    if measured.empty:
        return []
    sizes = sorted(set(measured["message_bytes"]))
    x = Axis("message", True, sizes[0], sizes[-1], size_ticks(sizes, size, most=4))
    all_times = [t for cell in measured["cell"] for t in medians[cell]]
    y_time = Axis("time per call", True, min(all_times), max(all_times), show=duration_tick)
    rates = [
        r * t / min(medians[c]) for c, r, t in measured[["cell", "busbw_gb_per_s", "latency_s"]].dropna().to_numpy()
    ]
    y_rate = Axis("bus bandwidth (GB/s)", low=0, high=1.05 * max(rates, default=1))
    figures = []
    for number, (title, rows) in enumerate(_measured_panels(collectives), start=1):
        if rows["busbw_gb_per_s"].notna().any():
            figures.append(_bandwidth(f"bandwidth-{number}", title, rows, medians, x, y_rate))
        figures.append(_latency(f"latency-{number}", title, rows, medians, x, y_time))
    return figures


def _measured_panels(collectives: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    found = panels(name_collectives(collectives), "place")
    return [(title, in_order(rows)) for title, rows in found if rows["latency_s"].notna().any()]


def _bandwidth(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis) -> Figure:
    shown = rows[rows["world_size"] > 1]
    series = make_series(
        shown,
        "place",
        "message_bytes",
        lambda row: [row.busbw_gb_per_s * row.latency_s / t for t in medians.get(row.cell, [])],
        lambda row: row.busbw_gb_per_s,
    )
    best = max(shown[shown["busbw_gb_per_s"].notna()].itertuples(), key=lambda row: row.busbw_gb_per_s)
    spread = _bandwidth_spread(best)
    spread = "" if spread == UNKNOWN else f" {spread}"
    alt = f"{title}: bus bandwidth peaks at {three(best.busbw_gb_per_s)} GB/s{spread}"
    alt += f", with {size(best.message_bytes)} on {_at(best)}, n = {best.num_launches}{_host_words(shown, '; ')}."
    caption = (
        "Bus bandwidth over the message size per rank; logarithmic below, linear from 0 at the side, higher is better. It is algorithm"
        f" bandwidth times a factor that makes it comparable with the peak of a link (see Methods){_host_words(shown, '; ')}."
        f" {how_to_read(shown, 'latency_s')} Times stand under the latency figure."
    )
    columns = ("message", "shape", "n", "algbw (GB/s)", "busbw (GB/s)", "spread of busbw")
    table = _table(f"Bandwidth of {title}", columns, shown, _bandwidth_cells)
    return make_figure(figure_id, f"Bus bandwidth: {title}", Panel(x, y, series), (alt, caption), table, shown)


def _latency(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis) -> Figure:
    series = make_series(
        rows, "place", "message_bytes", lambda row: medians.get(row.cell, []), lambda row: row.latency_s
    )
    measured = rows[rows["latency_s"].notna()]
    least = min(measured.itertuples(), key=lambda row: row.latency_s)
    most = max(measured.itertuples(), key=lambda row: row.latency_s)
    alt = f"{title}: {duration(least.latency_s)} with {size(least.message_bytes)} on {_at(least)}"
    if most.cell == least.cell:
        alt += _host_words(rows, "; ")
    else:
        alt += f", up to {duration(most.latency_s)} with {size(most.message_bytes)} on {_at(most)}{_host_words(rows, '; ')}"
    caption = (
        "Time of one call, slowest rank, over the message size per rank; both axes logarithmic, lower is better."
        f" {how_to_read(rows, 'latency_s')}"
    )
    columns = ("message", "shape", "n", "time (µs)", "spread (µs)")
    table = _table(f"Time of {title}", columns, rows, _time_cells)
    return make_figure(figure_id, f"Latency: {title}", Panel(x, y, series), (f"{alt}.", caption), table, rows)


def _at(row) -> str:
    return row.place.replace("\n", ", ")


def _host_words(rows: pd.DataFrame, lead: str) -> str:
    """Return, with its lead, that processes of one host talk through memory, where they do and no GPU is there."""
    is_within = (rows["device"] == "cpu").all() and (rows["nodes"] == 1).all()
    return f"{lead}{WITHIN_HOST}" if is_within else ""


def _bandwidth_spread(row) -> str:
    """Return the spread of bus bandwidth: what the spread of the time makes of it."""
    if is_unknown(row.busbw_gb_per_s) or is_unknown(row.latency_low_s) or is_unknown(row.latency_high_s):
        return UNKNOWN
    rates = [row.busbw_gb_per_s * row.latency_s / t for t in (row.latency_high_s, row.latency_low_s)]
    return bracket(*rates)


def _bandwidth_cells(row) -> tuple[str, ...]:
    return three(row.algbw_gb_per_s), three(row.busbw_gb_per_s), _bandwidth_spread(row)


def _time_cells(row) -> tuple[str, ...]:
    low, high = (times(value, MICROSECONDS) for value in (row.latency_low_s, row.latency_high_s))
    return three(times(row.latency_s, MICROSECONDS)), bracket(low, high)


def _table(caption: str, columns: tuple[str, ...], rows: pd.DataFrame, cells: Callable) -> Table:
    """Return a table of message, shape, n and what `cells` makes of a row."""
    texts = tuple((size(row.message_bytes), _at(row), launches(row), *cells(row)) for row in rows.itertuples())
    return Table(caption, columns, texts)
