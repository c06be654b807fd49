"""Cells over time: a line for each, its time as a ratio of the first, a place on the axis for each campaign."""

from regatta.analysis.history_of_cells import History, by_change
from regatta.analysis.history_text import CHANGED, labels_of
from regatta.analysis.tables import to_csv
from regatta.numbers import UNKNOWN, bracket, duration, is_unknown, ratio_text, spread_head
from regatta.report.figures import Axis, Panel, Point, Series, draw
from regatta.report.panels import Figure, Table

MOST_LINES, MOST_PANELS = 4, 3  # so that long names find room; all cells are in the table


def history_figures(history: History) -> list[Figure]:
    """Return the cells that changed most, MOST_LINES to a figure. A campaign whose environment changed is marked."""
    order = by_change(history)
    chosen = [order[begin : begin + MOST_LINES] for begin in range(0, len(order), MOST_LINES)][:MOST_PANELS]
    return [_figure(history, cells, index) for index, cells in enumerate(chosen)]


def history_table(history: History, cells: list[str] | None = None) -> Table:
    """Return the numbers of some cells or of all, the one that changed most first."""
    labels, rows = labels_of(history), []
    for cell in cells or by_change(history):
        for row in history.table[history.table["cell"] == cell].itertuples():
            date = UNKNOWN if is_unknown(row.date_utc) else row.date_utc[:10]
            spread = bracket(row.time_low_s, row.time_high_s, row.interval, duration)
            rows.append(
                (labels[cell], row.folder, date, duration(row.time_s), spread, str(row.num_launches), ratio_text(row.ratio_to_first))
            )  # fmt: skip
    spread = spread_head(history.table["interval"])
    heads = ("cell", "campaign", "date", "time", spread, "n", "ratio to the first")
    return Table("Median times over campaigns", heads, tuple(rows))


def _figure(history: History, cells: list[str], index: int) -> Figure:
    labels = labels_of(history)
    own = history.table[history.table["cell"].isin(cells)]
    places = range(len(history.campaigns))
    ticks = tuple((place, _tick(history, place)) for place in places)
    x = Axis("", low=-0.3, high=len(places) - 0.7, ticks=ticks)
    series = tuple(Series(labels[cell], _points(history, cell)) for cell in cells)
    panel = Panel(x, Axis("time / time in the first campaign"), series)
    last = own[own["cell"] == cells[0]].iloc[-1]
    alt = (
        f"{labels[cells[0]]} takes {ratio_text(last['ratio_to_first'])} times as long in {last['folder']} as at first."
    )
    changed = [str(place + 1) for place in places if history.has_changed(place)]
    caption = "Each point is one launch, the line joins the medians; below 1 is faster than at first."
    caption += f" {CHANGED}: the environment changed before campaign {', '.join(changed)}." if changed else ""
    title = (
        f"Cells that changed most ({index + 1})"
        if len(history.table["cell"].unique()) > MOST_LINES
        else "Cells over time"
    )
    return Figure(f"history-{index + 1}", title, draw(panel), alt, caption, history_table(history, cells), to_csv(own))


def _tick(history: History, place: int) -> str:
    date = (history.campaigns[place].first_time_utc or "")[2:10]
    return f"{date}\n{place + 1}{f' {CHANGED}' if history.has_changed(place) else ''}"


def _points(history: History, cell: str) -> tuple[Point, ...]:
    own = history.table[history.table["cell"] == cell]
    first = float(own["time_s"].iloc[0])
    return tuple(
        Point(int(row.place), tuple(v / first for v in history.times[cell, int(row.place)]), float(row.ratio_to_first))
        for row in own.itertuples()
    )
