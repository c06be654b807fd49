"""Figures and tables of cells from declarations: a topic says which column is drawn over what, the rest follows.

The values of launches, the horizontal and the vertical axis have one rule for all topics.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Protocol

import pandas as pd

from regatta.core.names import PLACE, CellName
from regatta.core.text import device_words, is_unknown, plural, prefixed, ranks_word, shape, size, thousands
from regatta.kit.columns import CELL_NAME, FULL_NAME, NUM_LAUNCHES, Column, table_rows
from regatta.model.frozen import FrozenCampaign
from regatta.report.chart import GUIDE, LEAST_ZOOMED, MAX_LAUNCHES, SLOW, Chart, PlotAxis, size_ticks, styles_of
from regatta.report.findings import percent_text
from regatta.report.panels import (
    HUE_AXES,
    MAX_SERIES,
    Figure,
    Section,
    Table,
    drawn_and_listed,
    in_order,
    name_rows,
    panels,
)
from regatta.tables.baselines import EFFICIENCY
from regatta.tables.metrics import METRICS, THROUGHPUT
from regatta.tables.primary_times import steps_by_cell, values_by_cell

LOG_RATIO = 16  # values that differ by more are on a logarithmic axis
PREFIXED = {"s": (1, "s"), "gb_per_s": (1e9, "B/s")}  # ticks of a logarithmic axis: by unit, its factor and name
NUMBERS = {name for column in METRICS if column.is_number for name in column.names}
Guides = Callable[[pd.DataFrame], Iterable[tuple[str, "pd.Series | float"]]]


class Data(Protocol):
    """What figures need of the data of a report (`topics.base.ReportData`). places: slow nodes of cells."""

    campaign: FrozenCampaign
    tables: Mapping[str, pd.DataFrame]
    once: dict
    places: Mapping[str, str]


def subject(name: CellName) -> str:
    return name.parts["subject"]


def by_settings(name: CellName) -> tuple[str, ...]:
    """Return the fields of the label of a line in a figure of one subject."""
    return ("shape", *name.series, *name.settings, *PLACE)


@dataclass(frozen=True)
class Plot:
    """Figures of a column of cells, one for each panel.

    id: prefix of the figures' ids. over: column of the horizontal axis; default: the number of ranks or, at a single
    world size, the settings. columns: of the figure's table; default: `column`. line: fields of a label; the first is
    always named, the shape only with `over`. title, most: as in `panels`. guides: takes the rows of a panel, returns
    label and values of each reference, one per row or one for all. context: label of rows with `is_context`. source:
    table of the rows. guided_by: columns that only the guides need.
    """

    id: str
    column: Column
    over: Column | None = None
    columns: tuple[Column, ...] = ()
    line: Callable[[CellName], tuple[str, ...]] = by_settings
    title: Callable[[CellName], str] = subject
    most: int = MAX_SERIES
    guides: Guides = lambda _: ()
    context: str = ""
    source: str = "cells"
    guided_by: tuple[Column, ...] = ()

    @property
    def numbers(self) -> set[str]:
        """Return the names of the numbers that its panels read."""
        read = (self.column, self.over, *self.columns, *self.guided_by)
        return {name for column in filter(None, read) for name in column.names}


def full(_: pd.DataFrame) -> Iterable[tuple[str, float]]:
    """Return the guide of efficiencies (`plots.Plot.guides`)."""
    return [("100 %", 1.0)]


def ideal(rows: pd.DataFrame) -> Iterable[tuple[str, pd.Series]]:
    """Return the guide of throughputs: that of the best baseline on each number of ranks; none without any."""
    others = rows[(rows["cell"] != rows["baseline"]).fillna(True)]
    of_rank = (others[THROUGHPUT.name] / others[EFFICIENCY.name] / others["world_size"]).max()
    return [] if is_unknown(of_rank) else [("ideal", of_rank * rows["world_size"])]


def named(data: Data, rows: pd.DataFrame, over: Column | None = None) -> pd.DataFrame:
    """Return rows of cells with names, without a field that a column has, in the order of the campaign file.

    A stack has the same color and marker in all figures.
    """
    if "cell_name" in rows:
        return rows
    subjects = {cell: data.campaign.cell_names[cell].parts.get("subject") for cell in data.campaign.by_id}
    order = {subject: place for place, subject in enumerate(dict.fromkeys(subjects.values()))}
    rows = rows.assign(subject_place=rows["cell"].map(subjects).map(order))
    places = {name: place for place, name in enumerate(data.campaign.stack_names)}
    rows = rows.assign(stack_place=rows["stack"].map(places)) if len(places) > 1 else rows
    return name_rows(rows, "".join(rows["benchmark"].head(1)), (over.name,) if over else ())


def with_launches(data: Data, rows: pd.DataFrame, column: Column) -> pd.DataFrame:
    """Return rows with `launches`: the values of a column in the ok launches of each cell, as in the file.

    For a formula without `of_launch`, the value computed from the mean time is scaled to the primary time of each
    launch. For all other columns, num_launches counts the launches with a value.
    """
    measurements = data.tables["measurements"]
    if column.of_launch:
        measurements = measurements.assign(value=column.of_launch(measurements.get))
    if column.of_launch or column.source:
        values = values_by_cell(measurements, column.source or "value")
        found = [values.get(cell, []) for cell in rows["cell"]]
        return rows.assign(launches=found, num_launches=list(map(len, found)))
    if "times" not in data.once:
        data.once["times"] = steps_by_cell(measurements)
    times, found = data.once["times"], []
    for cell, value in zip(rows["cell"], rows[column.name].to_numpy(float, na_value=math.nan), strict=True):
        of_cell = [] if math.isnan(value) else times.get(cell, [])
        mean = math.exp(sum(map(math.log, of_cell)) / len(of_cell)) if of_cell else 1.0
        found.append([value * (mean / one if column.better == "larger" else one / mean) for one in of_cell])
    return rows.assign(launches=found)


def figures_of(data: Data, plot: Plot, rows: pd.DataFrame, least: int = 1) -> list[Figure]:
    """Return the figures of a plot, which share their axes. least: minimum number of values per figure."""
    rows = named(data, rows, plot.over)
    rows = rows if plot.column.applies is None else rows[list(map(plot.column.applies, table_rows(rows)))]
    if rows.empty or rows[plot.column.name].isna().all():
        return []
    rows = rows if "launches" in rows else with_launches(data, rows, plot.column)
    others = NUMBERS - plot.numbers  # dividing all columns into hundreds of panels would take seconds
    rows = rows[[name for name in rows if name not in others]].assign(has_failed=rows["cell"].isin(failed_cells(data)))
    rows = rows.assign(slow_node=[data.places.get(cell) for cell in rows["cell"]])
    shown = panels(
        rows, lambda name: [of for of in plot.line(name) if of != "shape" or plot.over], plot.title, plot.most
    )
    shown = [(title, part) for title, part in shown if part[plot.column.name].notna().sum() >= least]
    guides = [list(plot.guides(part)) for _, part in shown]
    others = [end for of in guides for _, values in of for end in _list(values)]
    column, beside = value_axis(plot.column, rows, others, is_of_ranks=not plot.over)
    across = over_axis(plot.over, rows) if plot.over and rows[plot.over.name].notna().any() else None
    columns, figures = [one for one in (plot.over, NUM_LAUNCHES, *(plot.columns or (column,))) if one], []
    for number, ((below_title, part), of_part) in enumerate(zip(shown, guides, strict=True), start=1):
        placed, below = _placed(part, column, plot.over, across)
        chart = partial(_chart, placed, column, (below, beside), of_part, plot.context)
        title = column.title(**device_words(data.campaign.device)) + (f": {below_title}" if below_title else "")
        ends = part.drop_duplicates("cell", keep="last")  # of a curve
        table = Table.of_columns(title, (CELL_NAME if below_title else FULL_NAME, *columns), ends, data.campaign.device)
        figures.append(Figure(f"{plot.id}-{number}", title, chart, table, plot.source, column.block_key))
    return figures


def failed_cells(data: Data) -> set[str]:
    """Return the cells that failed in all launches that have a record."""
    table = data.tables["measurements"][["cell", "status"]]
    known = table[~table["status"].isin(("skipped", "not_measured"))]
    return {*known["cell"]} - {*known.loc[known["status"] == "ok", "cell"]}


def _list(values: "pd.Series | float") -> list[float]:
    return values.dropna().tolist() if isinstance(values, pd.Series) else [values]


def value_axis(
    column: Column, rows: pd.DataFrame, others: Sequence[float], is_of_ranks: bool
) -> tuple[Column, PlotAxis]:
    """Return a column in the unit of its vertical axis, and this axis.

    The axis is logarithmic for rates over ranks, and if values differ by more than LOG_RATIO. Otherwise it begins at 0
    or, if all values are far above 0, at a round number below them. others: values of guides.
    """
    ends = [name for name in column.names[1:] if name in rows]
    values = [*chain(*rows["launches"]), *chain(*(rows[name].dropna() for name in ends))]
    low, high = min(values), max([*values, *others])
    is_rate = is_of_ranks and column.unit.endswith("per_s") and rows["world_size"].nunique() > 1
    device = rows["device"].iloc[0]
    is_log = low > 0 and (is_rate or max(values) > LOG_RATIO * low)
    if not is_log and column.unit in ("s", "bytes"):
        column = column.fitted(high)
    low, high = column.shown(low), column.shown(high)
    step = 10.0 ** (math.floor(math.log10(high)) - 1) if high > 0 else 1.0
    start = step * math.floor(low / step - 0.5) if low > LEAST_ZOOMED * high else 0.0
    axis = PlotAxis(column.heading(device), low=None if low < 0 else start, show=thousands)
    if column.shown_as == "%":
        axis = replace(axis, show=PlotAxis.show, value=percent_text)
    if is_log:
        axis = replace(axis, is_log=True, low=low, high=high)
    if is_log and column.unit in PREFIXED:  # each tick has its unit
        factor, unit = PREFIXED[column.unit]
        show = lambda value: prefixed(factor * value / column.factor, unit)  # noqa: E731
        axis = replace(axis, show=show, drawn=column.title(**device_words(device)))
    return column, axis


def over_axis(over: Column, rows: pd.DataFrame) -> PlotAxis:
    """Return the horizontal axis of a column, with the measured values as ticks."""
    places = sorted(set(rows[over.name].dropna()))
    is_log = bool(places) and places[0] > 0 and places[-1] > LOG_RATIO * places[0]
    show, most = (size, 5) if over.unit == "bytes" else ("{:,g}".format, 6)
    ends = (places[0], places[-1]) if is_log else ()
    return PlotAxis(over.label, is_log, *ends, ticks=size_ticks(places, show, most))


def ranks_axis(rows: pd.DataFrame) -> PlotAxis:
    """Return the axis of world sizes of measured rows; each tick names its shapes too."""
    shapes: dict[int, set] = {}
    for row in table_rows(rows):
        shapes.setdefault(int(row.world_size), set()).add((row.nodes, row.gpus_per_node))
    texts = {n: f"{n}\n" + ", ".join(shape(*pair) for pair in sorted(pairs)) for n, pairs in shapes.items()}
    ranks, ticks = ranks_word(rows["device"].iloc[0]), size_ticks(list(texts), texts.__getitem__)
    return PlotAxis(f"{ranks} (nodes × {ranks} per node)", is_log=True, ticks=ticks)


def _placed(
    rows: pd.DataFrame, column: Column, over: Column | None, across: PlotAxis | None
) -> tuple[pd.DataFrame, PlotAxis]:
    """Return rows with their `place` on the horizontal axis, and this axis.

    At a single world size, places are settings, and the label is the setting that determines the hue.
    """
    if over and rows[over.name].notna().any():
        return rows.assign(place=rows[over.name]), across
    every, is_known = rows, rows[column.name].notna()
    rows = rows[is_known]
    if rows["world_size"].nunique() > 1:
        return every.assign(place=every["world_size"]), ranks_axis(every[every["has_failed"] | is_known])
    names = list(rows["cell_name"])
    varied = [of for of in names[0].parts if len({name.parts.get(of) for name in names}) > 1]
    hue = next((axis for axis in HUE_AXES if axis in varied), "stack")
    texts = ["\n".join(name.parts[of] for of in varied if of != hue and of in name.parts) for name in names]
    places = list(dict.fromkeys(texts))
    labels = [name.parts.get(hue, "") for name in names] if varied else rows["label"]
    rows = rows.assign(place=list(map(places.index, texts)), label=labels)
    return rows.drop(columns="is_context", errors="ignore"), PlotAxis.of_categories("", places)


def _chart(
    rows: pd.DataFrame, column: Column, axes: tuple[PlotAxis, PlotAxis], guides: list[tuple], context: str
) -> Chart:
    """Return the chart of a panel, with a series for each `label`; `is_context`: it is context.

    Values are rows unless there are several ordered places. Of several shapes at one place, the one with the fewest
    nodes is first. A failed cell is a mark without a value, so its line has a gap.
    """
    marks, order = [], list(dict.fromkeys(in_order(rows)["label"]))
    for row in table_rows(rows.sort_values(["place", "nodes"], kind="stable")):
        if (launches := list(map(column.shown, row.launches))) or row.has_failed:
            value, low, high = column.of(row)
            of_row = {"cell": row.cell, "series": row.label, "x": float(row.place), "y": value}
            of_row |= {"low": low, "high": high, "shape": shape(row.nodes, row.gpus_per_node), SLOW: row.slow_node}
            of_row |= {"minimum": min(launches, default=None), "maximum": max(launches, default=None)}
            marks.append(of_row | {"launches": launches})
    found = {mark["series"] for mark in marks if mark["launches"]}
    places = {mark["x"] for mark in marks if mark["launches"]}
    is_rows = axes[0].is_categorical or len(places) == 1
    marks = [mark for mark in marks if mark["launches"] or (mark["series"] in found and not is_rows)]
    marks.sort(key=lambda mark: order.index(mark["series"]))
    has_launches = sum(len(mark["launches"]) for mark in marks) <= MAX_LAUNCHES
    for mark in marks:
        launches = {f"launch {number}": value for number, value in enumerate(mark.pop("launches"), start=1)}
        ends = {name: mark.pop(name) for name in ("minimum", "maximum")}
        mark |= launches if has_launches else ends
    lines = list(_guide_lines(rows, column, guides, is_rows))
    marks += lines
    hues = dict(zip(rows["label"][::-1], rows["hue"][::-1], strict=True))  # that of the first row of each label
    behind = set(rows.loc[rows["is_context"], "label"]) if "is_context" in rows else ()
    styles = styles_of({name: int(hues[name]) for name in order if name in found}, behind)
    styles |= {line["series"]: GUIDE for line in lines}
    heading = "" if axes[0].is_categorical or not is_rows else axes[0].place_text(*places)
    beside = replace(axes[1], low=None, high=None) if is_rows and axes[1].is_log else axes[1]
    frame = pd.DataFrame(marks).astype(dict.fromkeys(("x", "y", "low", "high"), float))
    return Chart(
        "rows" if is_rows else "lines", frame, axes[0], beside, styles=styles, heading=heading, context=context
    )


def _guide_lines(rows: pd.DataFrame, column: Column, guides: list[tuple], is_rows: bool) -> Iterator[dict]:
    """Yield the marks of guides: the highest value at each place or, if all are equal, one line without x."""
    for label, values in guides:
        at = values[rows.index] if isinstance(values, pd.Series) else pd.Series(values, rows.index)
        highest = at[rows["launches"].map(len) > 0].astype(float).groupby(rows["place"]).max().dropna()
        if highest.nunique() == 1:
            yield {"cell": "", "series": label, "x": math.nan, "y": column.shown(highest.iloc[0])}
        elif not is_rows:
            for place, value in highest.items():
                yield {"cell": "", "series": label, "x": float(place), "y": column.shown(value)}


def tables_of(
    data: Data,
    rows: pd.DataFrame,
    columns: Iterable[Column],
    caption: str = "{}",
    title: Callable[[CellName], str] = subject,
) -> tuple[Table, ...]:
    """Return a table of cells for each title. caption: with the title in braces."""
    if rows.empty:
        return ()
    rows = named(data, rows)
    titles = pd.Series(list(map(title, rows["cell_name"])), index=rows.index, dtype=object)
    columns = (CELL_NAME, NUM_LAUNCHES, *columns)
    return tuple(
        Table.of_columns(caption.format(of), columns, part, data.campaign.device, ("cells",))
        for of, part in rows.groupby(titles, sort=True)
    )


def section_of(
    rows: pd.DataFrame,
    column: Column,
    sentences: Iterable[str] = (),
    figures: Iterable[Figure] = (),
    tables: Iterable[Table] = (),
    **more: object,
) -> Section | None:
    """Return a section of figures and tables: sentences of the topic, and how to read the figures.

    rows: all cells, of which those without the column have no mark. None without figures and tables.
    """
    figures, tables = tuple(figures), tuple(tables)
    if not (figures or tables):
        return None
    drawn, _ = drawn_and_listed(figures)
    of_launches = [figure for figure in drawn if {"launch 1", "minimum"} & {*figure.chart.frame}]
    lead = [*sentences, how_to_read(rows, column, of_launches)] if of_launches else sentences
    return Section(" ".join(filter(None, lead)), figures, tables, **more)


def how_to_read(rows: pd.DataFrame, column: Column, figures: Sequence[Figure]) -> str:
    """Return the sentences on points, lines, bands, n and gaps."""
    is_drawn = rows[column.name].notna()
    nums = rows.loc[is_drawn, "num_launches"]
    num = f"{nums.min()}" if nums.min() == nums.max() else f"{nums.min()}\N{EN DASH}{nums.max()}"
    text = f"Faint dots: launches ({num} per cell). Line: mean."
    text += " Band: its interval." if any(figure.chart.has_bands for figure in figures) else ""
    text += " \N{BALLOT X}: failed." if any(figure.chart.frame["y"].isna().any() for figure in figures) else ""
    num_missing = int((~is_drawn).sum())
    return text + (f" Not drawn: {num_missing} of {plural(len(rows), 'cell')}, without a value." if num_missing else "")
