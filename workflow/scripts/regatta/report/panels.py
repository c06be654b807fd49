"""Figures, tables and sections of the report: which cells go into one panel, and shared words of leads."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from regatta.core.benchmarks import all_axes
from regatta.core.names import PLACE, SEPARATOR, CellName, cell_names, value_text
from regatta.core.text import (
    interval_heading,
    is_unknown,
    natural,
    plural,
    ranks_word,
    shape,
)
from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.report.chart import GUIDE, MAX_LAUNCHES, Chart, PlotAxis, size_ticks, styles_of
from regatta.report.draw import draw
from regatta.report.rows import table_rows
from regatta.store.csv_files import cell_columns, quoted

COMMON = ("image_size", "context_length", "dtype", "batch_size")  # named even if they are the same everywhere
MAX_SERIES = 12
MOST_FIGURES = 12  # cards of one grid; of the others, the page lists title and data file


@dataclass(frozen=True)
class Table:
    """Numbers for people. columns: headings with units; rows: texts, the first of each names its row.

    is_words: left-aligned texts that wrap, not right-aligned numbers. sources: names of tables
    (regatta.report.findings.file_of); empty for a figure's table, whose source is the figure's. cells: that of each
    row, or those of each.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_words: bool = False
    sources: tuple[str, ...] = ()
    cells: tuple[str | tuple[str, ...], ...] = ()

    @classmethod
    def of_columns(
        cls, caption: str, columns: Sequence[Column], rows: pd.DataFrame, device: str, sources=(), **words: str
    ) -> "Table":
        """Return a table with a line for each row: of each column that any row has, its value and its interval.

        Sizes have one unit in each column, which fits the largest. words: of headings, besides those of the device.
        """
        known = [column for column in columns if column.name not in rows or rows[column.name].notna().any()]
        known = [one.fitted(rows[one.name].max()) if one.shown_as == "MiB" else one for one in known]
        has_several = sum(bool(column.interval) for column in known) > 1
        shown: dict[str, Callable[[object], str]] = {}
        for column in known:
            shown[column.heading(device, **words)] = column.cell
            if column.interval:
                of = f" of {column.label}" if has_several else ""
                shown[interval_heading(rows[column.interval]) + of] = column.ends
        texts = tuple(tuple(show(row) for show in shown.values()) for row in table_rows(rows))
        cells = tuple(rows["cell"]) if "cell" in rows and rows["cell"].notna().all() else ()
        return cls(caption, tuple(shown), texts, sources=sources, cells=cells)


CELL_NAME = Column("full_name", "cell", TEXT)  # below a title with the subject
FULL_NAME = Column("name", "cell", TEXT, text=lambda row: row.cell_name.full)
LAUNCHES = Column("num_launches", "n", WHOLE, text=lambda row: launches(row))


@dataclass(frozen=True)
class Figure:
    """One figure. source: the table whose rows its chart shows, drawn only where a page shows it.

    shows: key in the data block of the number on its vertical axis (regatta.kit.columns.Column.block_key).
    """

    id: str
    title: str
    chart: Chart
    table: Table
    source: str = ""
    shows: str = ""

    @property
    def svg(self) -> str:
        return draw(self.chart, self.id, self.title)

    @property
    def columns(self) -> list[list[str]]:
        """Return the columns of its marks as texts with a heading, numbers with six significant digits."""
        marks = self.chart.marks
        return [[name, *map(_digits, marks.iloc[:, place])] for place, name in enumerate(marks)]

    @property
    def csv(self) -> str:
        return "".join(f"{','.join(map(quoted, row))}\n" for row in zip(*self.columns, strict=True))


def _digits(value: object) -> str:
    return "" if is_unknown(value) else f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Section:
    """A part of the report. empty: the sentence if there is nothing to show. lead: its first sentences.

    template: file in workflow/report/ for a section with more than figures and tables; it receives `content`.
    state: text and CSS class for the table of contents, such as ("3 not ok", "bad"). folded: summary and figures of
    another view of the same cells. parts: sections inside it, below its figures. summary: folds a part under this text.
    headline: figure of the first screen, if not the first one.
    """

    id: str
    title: str
    empty: str = ""
    lead: str = ""
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    template: str = ""
    content: dict = field(default_factory=dict)
    state: tuple[str, str] = ("", "")
    folded: tuple[str, tuple[Figure, ...]] = ("", ())
    parts: tuple["Section", ...] = ()
    summary: str = ""
    headline: Figure | None = None

    @property
    def has_content(self) -> bool:
        return bool(self.figures or self.tables or self.template or self.parts or self.summary)


def drawn_and_listed(figures: Sequence[Figure], most: int) -> tuple[list[Figure], list[Figure]]:
    """Return the figures to draw, at most `most`, and the others, both in the given order.

    The first figure of each subject is drawn before the second of any. The subject is the first part of the title.
    """
    seen: Counter[str] = Counter()
    turns = []
    for index, figure in enumerate(figures):
        subject = figure.title.split(SEPARATOR)[0]
        turns.append((seen[subject], index))
        seen[subject] += 1
    chosen = {index for _, index in sorted(turns)[:most]}
    return (
        [figure for index, figure in enumerate(figures) if index in chosen],
        [figure for index, figure in enumerate(figures) if index not in chosen],
    )


def name_rows(rows: pd.DataFrame, benchmark: str, without: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return rows in the order of figures and tables, with the names of cells, `cell_name`, and their texts:

    `workload`, `name` (within the workload) and `full_name` (within the subject). without: fields named elsewhere.
    """
    known = {*cell_columns(), "version"}
    fields = [name for name in rows if name in known and rows[name].notna().any()]
    values = zip(*(rows[name].to_numpy(dtype=object) for name in fields), strict=True)
    cells = [dict(zip(fields, of_cell, strict=True)) for of_cell in values]
    names = [name.without(*without) for name in cell_names(cells, benchmark)]
    return in_order(_with_texts(rows, names))


def full_names(rows: pd.DataFrame, benchmark: str = "") -> list[str]:
    """Return the name of each row of a table. benchmark: that of a table without this column."""
    return [name.full for name in cell_names(rows.to_dict("records"), benchmark)]


def _with_texts(rows: pd.DataFrame, names: list[CellName]) -> pd.DataFrame:
    return rows.assign(
        cell_name=names,
        workload=[name.workload for name in names],
        name=[name.within for name in names],
        full_name=[name.within_subject for name in names],
        hue=rows["hue"] if "hue" in rows else hues(rows),
    )


HUE_AXES = ("stack", "strategy", "algorithm", "implementation", "norm", "backend")


def hues(rows: pd.DataFrame) -> list[int]:
    """Return the color of each row: by stack, or with one stack by the first setting without an order that varies.

    Settings with an order, such as nodes or bucket size, have shades of one color. Stacks have the campaign's order if
    rows have a `stack_place`, also those that are alone in a table.
    """
    if "stack_place" in rows:
        return rows["stack_place"].tolist()
    for axis in HUE_AXES:
        if axis in rows and rows[axis].nunique() > 1:
            order = {value: index for index, value in enumerate(sorted(rows[axis].dropna().unique()))}
            return [order.get(value, 0) for value in rows[axis]]
    return [0] * len(rows)


def series_fields(name: CellName) -> tuple[str, ...]:
    return (*name.series, *PLACE)


def on_one_shape(name: CellName) -> str:
    """Return the title of a panel of one workload on one shape."""
    return name.say("subject", "shape", *name.settings, *PLACE, always=("subject", "shape"))


def common_words(scaling: pd.DataFrame) -> str:
    """Return the settings that all workloads share, which their names leave out."""
    same = [column for column in COMMON if scaling[column].nunique() == 1 and scaling[column].notna().all()]
    return ", ".join(value_text(all_axes()[column], scaling[column].iloc[0]) for column in same)


def panels(
    rows: pd.DataFrame,
    line: Callable[[CellName], tuple[str, ...]] = series_fields,
    title: Callable[[CellName], str] = lambda name: name.workload,
    splits: tuple[str, ...] = PLACE,
    most: int = MAX_SERIES,
    context: str = "",
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (title, rows) for each panel, with a column `label` of its lines. rows: of `name_rows`, in order.

    Panels are in the order of their models or operations in the campaign file.

    line: the fields of a label, the first always named. Where labels do not fit, rows are divided by one field of
    `splits` after the other, which moves from labels to the title; then into parts of `most` labels. context: a field
    of which the figure shows one value in the legend, so that labels which differ in it alone count once.
    """
    titles = pd.Series([title(name) for name in rows["cell_name"]], index=rows.index, dtype=object)
    places = rows["subject_place"] if "subject_place" in rows else rows["cell_name"].map(lambda _: 0)
    found = ((places[part.index].min(), natural(text), text, part) for text, part in rows.groupby(titles, sort=False))
    for *_, text, part in sorted(found, key=lambda of: of[:2]):
        yield from _panels(text, part, line, splits, most, context)


def _panels(
    title: str, rows: pd.DataFrame, line: Callable, splits: tuple[str, ...], most: int, context: str
) -> Iterator[tuple[str, pd.DataFrame]]:
    rows = rows.assign(label=[name.label(*line(name)) for name in rows["cell_name"]])
    labels = list(dict.fromkeys(rows["label"]))
    if len({name.without(context).label(*line(name)) for name in rows["cell_name"]}) > most:
        for field in splits:
            texts = pd.Series([name.parts.get(field, "") for name in rows["cell_name"]], index=rows.index)
            if texts.nunique() > 1:
                for text, part in rows.groupby(texts, sort=False):
                    renamed = _with_texts(part, [name.without(field) for name in part["cell_name"]])
                    text = SEPARATOR.join(filter(None, (title, text)))
                    yield from _panels(text, renamed, line, splits, most, context)
                return
        num = math.ceil(len(labels) / most)
    else:
        num, most = 1, len(labels)
    for index in range(num):
        part = rows[rows["label"].isin(labels[index * most :][:most])]
        yield (title if num == 1 else f"{title} ({index + 1} of {num})"), part


ORDER = (
    *("strategy", "nodes", "gpus_per_node", "stack", "backend", "gradient_as_bucket_view", "bucket_cap_mb"),
    *("algorithm", "message_bytes"),
)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    if "settings" in rows:
        rows = rows.sort_values("settings", key=lambda texts: texts.fillna("").map(natural), kind="stable")
    columns = [column for column in ORDER if column in rows]
    columns = ["stack_place" if name == "stack" and "stack_place" in rows else name for name in columns]
    return rows.sort_values(columns, kind="stable", na_position="first")


Launches = Callable[[object], Iterable[float]]  # row -> the value of its column in each launch, as in the file


def chart_of(
    rows: pd.DataFrame,
    over: str,
    column: Column,
    values: Launches,
    axes: tuple[PlotAxis, PlotAxis],
    guides: Sequence[tuple[str, Sequence[tuple[float | None, float]]]] = (),
    context: str = "",
) -> Chart:
    """Return the chart of a column over another one, with a series for each `label`; `is_context`: it is context.

    Without several places in an order, values are rows. Of several shapes at one place, that with the fewest nodes is
    first. guides: (label, places) of what is drawn in gray; without x, a line across. context: label of the context.
    """
    marks, order = [], list(dict.fromkeys(in_order(rows)["label"]))
    for row in table_rows(rows.sort_values([over, "nodes"], kind="stable")):
        launches = list(map(column.shown, values(row)))
        if launches:
            value, low, high = column.of(row)
            of_row = {"cell": row.cell, "series": row.label, "x": float(getattr(row, over)), "y": value}
            of_row |= {"low": low, "high": high, "shape": shape(row.nodes, row.gpus_per_node)}
            marks.append(of_row | {"minimum": min(launches), "maximum": max(launches), "launches": launches})
    marks.sort(key=lambda mark: order.index(mark["series"]))
    has_launches = sum(len(mark["launches"]) for mark in marks) <= MAX_LAUNCHES
    for mark in marks:
        launches = {f"launch {number}": value for number, value in enumerate(mark.pop("launches"), start=1)}
        ends = {name: mark.pop(name) for name in ("minimum", "maximum")}
        mark |= launches if has_launches else ends
    found, places = {mark["series"] for mark in marks}, {mark["x"] for mark in marks}
    is_rows = axes[0].is_categorical or len(places) == 1
    for label, line in guides:
        here = [place for place in line if place[0] in places or place[0] is None] or line
        marks += [{"cell": "", "series": label, "x": x, "y": y} for x, y in (here[:1] if is_rows else line)]
    hues = dict(zip(rows["label"][::-1], rows["hue"][::-1], strict=True))  # that of the first row of each label
    behind = set(rows.loc[rows["is_context"], "label"]) if "is_context" in rows else ()
    styles = styles_of({name: int(hues[name]) for name in order if name in found}, behind)
    styles |= {label: GUIDE for label, _ in guides}
    heading = "" if axes[0].is_categorical or not is_rows else axes[0].place_text(*places)
    frame = pd.DataFrame(marks).astype(dict.fromkeys(("x", "y", "low", "high"), float))
    form = "rows" if is_rows else "lines"
    return Chart(form, frame, *axes, styles=styles, heading=heading, context=context)


def by_cell(values: Mapping[str, Iterable[float]]) -> Launches:
    """Return the launches of a column whose values are known by cell."""
    return lambda row: values.get(row.cell, ())


def rates(column: Column, times: Mapping[str, Iterable[float]], time: str) -> Launches:
    """Return the launches of a rate: its value, of the mean time, scaled to the time of each. time: its column."""

    def of_launches(row: object) -> list[float]:
        value = getattr(row, column.name)
        return [] if is_unknown(value) else [value * getattr(row, time) / one for one in times.get(row.cell, ())]

    return of_launches


def launches(row) -> str:
    return f"{row.num_launches}/{row.num_planned}"


def how_to_read(rows: pd.DataFrame, drawn: str, mark: str = "line", figures: Sequence[Figure] = ()) -> str:
    """Return the sentences on points, lines, bands, n and gaps.

    drawn: the column that is unknown where nothing is drawn. figures: those that may have bands.
    """
    is_drawn = rows[drawn].notna()
    nums = rows.loc[is_drawn, "num_launches"]
    num = f"{nums.min()}" if nums.min() == nums.max() else f"{nums.min()}\N{EN DASH}{nums.max()}"
    text = f"Points: individual launches ({num} per cell). {mark.capitalize()}: mean over launches."
    text += " Band: its interval." if any(figure.chart.has_bands for figure in figures) else ""
    num_missing = int((~is_drawn).sum())
    return text + (f" Not drawn: {num_missing} of {plural(len(rows), 'cell')}, without a value." if num_missing else "")


def figure_of_cells(
    figure_id: str,
    title: str,
    rows: pd.DataFrame,
    over: str,
    column: Column,
    values: Launches,
    axes: tuple[PlotAxis, PlotAxis],
    columns: Iterable[Column],
    source: str,
    **of_chart: object,
) -> Figure:
    """Return a figure of a column of cells over another one, with a table of these columns. rows: as in `chart_of`.

    source: the table of the rows.
    """
    chart = chart_of(rows, over, column, values, axes, **of_chart)
    table = Table.of_columns(title, columns, rows, rows["device"].iloc[0])
    return Figure(figure_id, title, chart, table, source, column.block_key)


def ranks_axis(rows: pd.DataFrame) -> PlotAxis:
    """Return the axis of world sizes of measured rows; each tick names its shapes too."""
    shapes: dict[int, set] = {}
    for row in table_rows(rows):
        shapes.setdefault(int(row.world_size), set()).add((row.nodes, row.gpus_per_node))
    texts = {n: f"{n}\n" + ", ".join(shape(*pair) for pair in sorted(pairs)) for n, pairs in shapes.items()}
    ranks, ticks = ranks_word(rows["device"].iloc[0]), size_ticks(list(texts), texts.__getitem__)
    return PlotAxis(f"{ranks} (nodes × {ranks} per node)", is_log=True, ticks=ticks)
