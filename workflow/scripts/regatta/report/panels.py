"""Figures, tables and sections of the report: which cells go into one panel, and shared words of leads."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from regatta.core.benchmarks import all_axes
from regatta.core.names import PLACE, SEPARATOR, CellName, cell_names, value_text
from regatta.core.text import interval_heading, is_unknown, natural
from regatta.kit.columns import Column, table_rows
from regatta.report.chart import Chart
from regatta.report.draw import draw
from regatta.store.csv_files import cell_columns, quoted

COMMON = ("image_size", "context_length", "dtype", "batch_size")  # named even if they are the same everywhere
MAX_SERIES = 12
MOST_FIGURES = 8  # cards of one grid; of the others, the page lists title and data file


@dataclass(frozen=True)
class Table:
    """Numbers for people. columns: headings with units; rows: texts, the first of each names its row.

    is_words: left-aligned texts that wrap, not right-aligned numbers. sources: names of tables
    (regatta.report.findings.file_of); empty for a figure's table, whose source is the figure's. cells: that of each
    row, or those of each.
    """

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    is_words: bool = False
    sources: tuple[str, ...] = ()
    cells: tuple[str | tuple[str, ...], ...] = ()

    @classmethod
    def of_columns(
        cls, caption: str, columns: Sequence[Column], rows: pd.DataFrame, device: str, sources=(), **words: str
    ) -> "Table":
        """Return a table with a line for each row: value and interval of each column that any row has.

        A column of sizes has one unit, which suits the largest. words: for headings, besides those of the device.
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
        cells = tuple(rows["cell"]) if "cell" in rows and rows["cell"].notna().all() else ()
        return cls(caption, tuple(shown), _Texts(tuple(shown.values()), rows), sources=sources, cells=cells)


@dataclass(frozen=True)
class _Texts(Sequence):
    """The rows of a table as texts, each made when it is read: of thousands, a page lists the first."""

    shows: tuple[Callable[[object], str], ...]
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, place: int | slice) -> tuple:
        if not isinstance(place, slice):
            return self[place : place + 1 or None][0]
        return tuple(tuple(show(row) for show in self.shows) for row in table_rows(self.frame.iloc[place]))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return self[:] == tuple(other)


@dataclass(frozen=True)
class Figure:
    """One figure, made and drawn only where a page shows it. drawing: its chart, or a function that makes it.

    source: the table whose rows its chart shows.
    shows: key in the data block of the number on its vertical axis (regatta.kit.columns.Column.block_key).
    """

    id: str
    title: str
    drawing: Chart | Callable[[], Chart]
    table: Table
    source: str = ""
    shows: str = ""

    @cached_property
    def chart(self) -> Chart:
        return self.drawing if isinstance(self.drawing, Chart) else self.drawing()

    @property
    def svg(self) -> str:
        return draw(self.chart, self.id, self.title)

    @property
    def is_wide(self) -> bool:
        """Whether it has the width of the page, where it scrolls if need be."""
        return self.chart.form == "hosts"

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
    """A part of the report: findings, then figures, then tables. lead: its first sentences. id, title: if not those of
    its topic.

    template: file in workflow/report/ of matrices or failures, above the figures; it receives `content`. state: text
    and CSS class for the table of contents, such as ("3 not ok", "bad"); what is "good" takes one line. parts: sections
    inside it, below the others. is_folded: whether a part is folded under its title. headlines: figures for the first
    screen, the best first.
    """

    lead: str = ""
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    template: str = ""
    content: dict = field(default_factory=dict)
    state: tuple[str, str] = ("", "")
    parts: tuple["Section", ...] = ()
    is_folded: bool = False
    headlines: tuple[Figure, ...] = ()
    id: str = ""
    title: str = ""


def folded(anchor: str, title: str, figures: Sequence[Figure]) -> tuple[Section, ...]:
    """Return a folded part with further figures; none without any."""
    return (Section(figures=tuple(figures), is_folded=True, id=anchor, title=title),) if figures else ()


def drawn_and_listed(figures: Sequence[Figure], most: int = MOST_FIGURES) -> tuple[list[Figure], list[Figure]]:
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
    """Return the color of each row: by stack or, with one stack, by the first unordered setting that varies.

    Ordered settings, such as nodes or bucket size, have shades of one color. If rows have a `stack_place`, stacks have
    the campaign's order, even if a table contains only one.
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


def workload(name: CellName) -> str:
    return name.workload


def on_one_shape(name: CellName) -> str:
    """Return the title of a panel of one workload on one shape."""
    return name.say("subject", "shape", *name.settings, *PLACE, always=("subject", "shape"))


def common_words(scaling: pd.DataFrame) -> str:
    """Return the settings that all workloads share, which their names leave out."""
    same = [column for column in COMMON if scaling[column].nunique() == 1 and scaling[column].notna().all()]
    return ", ".join(value_text(all_axes()[column], scaling[column].iloc[0]) for column in same)


def panels(
    rows: pd.DataFrame,
    line: Callable[[CellName], Sequence[str]],
    title: Callable[[CellName], str],
    most: int = MAX_SERIES,
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (title, rows) for each panel, with a column `label` of its lines. rows: of `name_rows`, in order.

    line: the fields of a label; the first is always named. More than `most` labels are divided by a field of PLACE or
    by the shape, which moves from the labels to the title, then into parts of `most`. Context labels count as one.
    Panels are in the order of `subject_place`, that of the campaign file, then of their titles.
    """
    titles = pd.Series([title(name) for name in rows["cell_name"]], index=rows.index, dtype=object)
    places = rows["subject_place"].groupby(titles).min().to_dict() if "subject_place" in rows else {}
    found = rows.groupby(titles, sort=False)
    for text, part in sorted(found, key=lambda item: (places.get(item[0], 0), natural(item[0]))):
        yield from _panels(text, part, line, most)


def _panels(title: str, rows: pd.DataFrame, line: Callable, most: int) -> Iterator[tuple[str, pd.DataFrame]]:
    rows = rows.assign(label=[name.label(*line(name)) for name in rows["cell_name"]])
    labels = list(dict.fromkeys(rows["label"]))
    is_context = set(rows.loc[rows["is_context"], "label"]) if "is_context" in rows else set()
    if len(labels) - max(len(is_context) - 1, 0) > most:
        for field in (*PLACE, "shape"):
            texts = pd.Series([name.parts.get(field, "") for name in rows["cell_name"]], index=rows.index)
            if field in line(rows["cell_name"].iloc[0]) and 1 < texts.nunique() < len(labels):
                for text, part in rows.groupby(texts, sort=False):
                    renamed = _with_texts(part, [name.without(field) for name in part["cell_name"]])
                    yield from _panels(SEPARATOR.join(filter(None, (title, text))), renamed, line, most)
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
