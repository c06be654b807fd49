"""What the figures of the report share: names of cells, which of them go into one panel, and words of captions."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pandas as pd

from regatta.core.text import is_unknown, parameter_word, plural, shape, three
from regatta.report.plotting import MAX_SERIES, Panel, Point, Series, draw
from regatta.store.tables import to_csv

WORKLOAD = ["model", "image_size", "context_length", "dtype", "batch_size", "optimizer", "compile", "channels_last"]
COMMON = ["image_size", "context_length", "dtype", "batch_size"]  # said also where they are the same everywhere
SETTINGS = ["gradient_as_bucket_view", "static_graph", "compression"]  # of a strategy
WHERE = ["stack", "backend"]


@dataclass(frozen=True)
class Table:
    """Numbers for people. columns: heading with unit; rows: texts, the first of each names its row.

    is_words: texts to the left and in several lines, instead of numbers to the right. sources: the tables that it is made
    of (regatta.report.findings.file_of); of a figure's table none where they are the figure's.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_words: bool = False
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """One figure of the report. alt: its message with numbers. caption: what it is, how to read it, n. csv: its data.

    image: SVG or PNG. size: width and height in pixels. source: the table whose rows `csv` has.
    """

    id: str
    title: str
    image: bytes
    alt: str
    caption: str
    table: Table
    csv: str
    size: tuple[int, int] = (390, 310)
    source: str = ""

    @property
    def num_rows(self) -> int:
        return self.csv.count("\n") - 1  # none of its tables has a line break in a field


@dataclass(frozen=True)
class Section:
    """A part of the report. empty: the sentence where there is nothing to show. lead: what all of it shares.

    template: of workflow/report/, for a section that is more than figures and tables; it gets `content`.
    state: words for the table of contents and their class, such as ("3 not ok", "bad").
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

    @property
    def has_content(self) -> bool:
        return bool(self.figures or self.tables or self.template)


def name_training(scaling: pd.DataFrame) -> pd.DataFrame:
    """Add `workload`, `series` (all but the shape), `place` (shape, stack) and `name` (series, shape) to the rows.

    Only what differs within the campaign is named, apart from the strategy. `full_name` also has what sets the workload
    apart, for where no title tells it.
    """
    varied = {column: scaling[column].nunique() > 1 for column in [*WHERE, "bucket_cap_mb", *SETTINGS]}

    def series(row) -> str:
        words = [row.strategy]
        if varied["bucket_cap_mb"] and not is_unknown(row.bucket_cap_mb):
            words.append(f"{row.bucket_cap_mb:g} MiB")
        told = [name for name in SETTINGS if varied[name] and not is_unknown(getattr(row, name))]
        return " ".join([*words, *(parameter_word(name, getattr(row, name)) for name in told)])

    told = [column for column in WORKLOAD[1:] if scaling[column].nunique() > 1]

    def workload(row) -> str:
        return ", ".join([row.model, *told_of(row)])

    def told_of(row) -> list[str]:
        own = {column: getattr(row, column) for column in told}
        return [parameter_word(column, value) for column, value in own.items() if not is_unknown(value)]

    return _named(scaling, varied, series, workload, told_of)


def common_words(scaling: pd.DataFrame) -> str:
    """Return what all workloads have in common, which their names therefore leave out."""
    same = [column for column in COMMON if scaling[column].nunique() == 1 and scaling[column].notna().all()]
    return ", ".join(parameter_word(column, scaling[column].iloc[0]) for column in same)


def name_collectives(collectives: pd.DataFrame) -> pd.DataFrame:
    """Add the same columns as `name_training` to the rows of collectives, and `label`: what their lines are called.

    A line is a shape. Where the campaign has several algorithms of an operation, it is an algorithm, and the shape is
    part of the workload. A long name of an algorithm takes two lines.
    """
    varied = {column: collectives[column].nunique() > 1 for column in WHERE}
    with_algorithms = _operations_with_algorithms(collectives)

    def workload(row) -> str:
        words = [row.operation, *([] if is_unknown(row.dtype) else [row.dtype])]
        return ", ".join([*words, shape(row.nodes, row.gpus_per_node)] if row.operation in with_algorithms else words)

    rows = _named(collectives, varied, lambda row: row.operation, workload, lambda row: [])
    places = zip(rows["place"], rows["operation"], rows["algorithm"], strict=True)
    labels = [
        "\n".join([algorithm.replace("_", "_\n"), *place.split("\n")[1:]]) if operation in with_algorithms else place
        for place, operation, algorithm in places
    ]
    return rows.assign(label=labels, is_algorithm=rows["operation"].isin(with_algorithms))


def _operations_with_algorithms(collectives: pd.DataFrame) -> set[str]:
    num = collectives.groupby("operation")["algorithm"].nunique()
    return set(num.index[num > 1])


def _named(
    table: pd.DataFrame, varied: dict[str, bool], series: Callable, workload: Callable, told_of: Callable
) -> pd.DataFrame:
    rows = list(table.itertuples())
    where = [[getattr(row, column) for column in WHERE if varied[column]] for row in rows]
    shapes = [shape(row.nodes, row.gpus_per_node) for row in rows]
    return table.assign(
        workload=[workload(row) for row in rows],
        series=["\n".join([series(row), *words]) for row, words in zip(rows, where, strict=True)],
        place=["\n".join([text, *words]) for text, words in zip(shapes, where, strict=True)],
        name=[", ".join([series(row), *words, text]) for row, words, text in zip(rows, where, shapes, strict=True)],
        full_name=[
            ", ".join([series(row), *told_of(row), *words, text])
            for row, words, text in zip(rows, where, shapes, strict=True)
        ],
    )


def panels(table: pd.DataFrame, label: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (title, rows) for each panel: one per workload, or per workload and stack, with at most six labels."""
    for workload, rows in table.groupby("workload", sort=True):
        parts = [(workload, rows)]
        if rows[label].nunique() > MAX_SERIES:
            parts = [_facet(workload, rows, key, part, label) for key, part in rows.groupby(WHERE, sort=True)]
        for title, part in parts:
            labels = list(dict.fromkeys(part.sort_values(_order(part), kind="stable")[label]))
            num = math.ceil(len(labels) / MAX_SERIES)
            for index in range(num):
                chosen = part[part[label].isin(labels[index * MAX_SERIES :][:MAX_SERIES])]
                yield (title if num == 1 else f"{title} ({index + 1} of {num})"), chosen


def _facet(workload: str, rows: pd.DataFrame, key: tuple, part: pd.DataFrame, label: str) -> tuple[str, pd.DataFrame]:
    """Return a panel of one stack and backend. They move from its labels to its title."""
    words = [value for column, value in zip(WHERE, key, strict=True) if rows[column].nunique() > 1]

    def without(text: str, between: str) -> str:
        first, *others = text.split(between)
        return between.join([first, *(word for word in others if word not in words)])

    texts = {
        column: [without(text, "\n" if column == label else ", ") for text in part[column]]
        for column in (label, "name", "full_name")
    }
    return ", ".join([workload, *words]), part.assign(**texts)


def _order(rows: pd.DataFrame) -> list[str]:
    """Return the columns that put cells in a natural order: shape first, then size."""
    wanted = ["strategy", "nodes", "gpus_per_node", *WHERE, "gradient_as_bucket_view", "bucket_cap_mb"]
    wanted += ["algorithm", "message_bytes"]
    return [column for column in wanted if column in rows]


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(_order(rows), kind="stable", na_position="first")


def baseline_first(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in order, those that are a baseline before the others."""
    rows = in_order(rows)
    is_baseline = (rows["cell"] == rows["baseline"]).fillna(False)
    return pd.concat([rows[is_baseline], rows[~is_baseline]])


def make_series(rows: pd.DataFrame, label: str, x: str, values: Callable, reported: Callable) -> tuple[Series, ...]:
    """Return a series for each label. values: row -> one value per launch, in the unit of the axis.

    reported: row -> the value of the table, in the same unit. It is no median of `values` where these are rates.
    Where several shapes have the same x, the line goes through the one with the fewest nodes; the others are hollow.
    """
    series = []
    for name in dict.fromkeys(in_order(rows)[label]):
        points, seen = [], set()
        for row in rows[rows[label] == name].sort_values([x, "nodes"], kind="stable").itertuples():
            own = tuple(float(value) for value in values(row))
            if own:
                place = float(getattr(row, x))
                points.append(Point(place, own, float(reported(row)), place not in seen))
                seen.add(place)
        if points:
            series.append(Series(name, tuple(points)))
    return tuple(series)


def launches(row) -> str:
    return f"{row.num_launches}/{row.num_planned}"


def how_to_read(rows: pd.DataFrame, drawn: str, interval: str = "interval") -> str:
    """Return the sentences on points, lines, n and gaps.

    drawn: the column that is unknown where nothing is drawn. interval: the column that says what the spread is.
    """
    is_drawn = rows[drawn].notna()
    nums = sorted(set(rows.loc[is_drawn, "num_launches"]))
    num = f"n = {nums[0]}" if len(nums) == 1 else f"n = {nums[0]} to {nums[-1]}"
    kinds = set(rows.loc[is_drawn, interval])
    spread = {"range": "(a to b) is the range over launches", "interval": "[a, b] is the 95 % interval over launches"}
    told = ", ".join(text for kind, text in spread.items() if kind in kinds)
    text = f"Each point is one launch ({num} per cell), the line joins the values of the table"
    text += f"; in the table {told}." if told else "."
    num_missing = int((~is_drawn).sum())
    if num_missing:
        why = (
            "a valid record"
            if drawn == "step_s"
            else "a value (no valid record, or no baseline of it)"
            if "ratio" in drawn
            else "a value"
        )
        text += f" Not drawn: {plural(num_missing, 'cell')} of {len(rows)} without {why}."
    return text


@dataclass(frozen=True)
class Baseline:
    """What is said of a baseline, its name and absolute value, such as `the baseline none, 1×1 (71.3 samples/s)`; of whom."""

    text: str
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return self.text


def baseline_of(rows: pd.DataFrame, scaling: pd.DataFrame) -> Baseline:
    """Return the baseline of the rows, or all of them where they have several."""
    is_baseline = [
        table["cell"].isin(set(rows["baseline"].dropna())) & table["step_s"].notna() for table in (rows, scaling)
    ]
    found = rows[is_baseline[0]] if is_baseline[0].any() else scaling[is_baseline[1]]
    names, rates = sorted(set(found["full_name"])), sorted(found["throughput_samples_per_s"])
    text = f"the baseline {names[0]} ({three(rates[0])} samples/s)"
    if len(names) > 1:
        text = f"its own baseline ({', '.join(names)}; {three(rates[0])} to {three(rates[-1])} samples/s)"
    return Baseline(text, tuple(found["cell"]))


def make_figure(
    figure_id: str, title: str, panel: Panel, words: tuple[str, str], table: Table, rows, source: str
) -> Figure:
    """Draw a panel and put its words and numbers beside it. words: alt and caption. rows: of the table `source`."""
    return Figure(figure_id, title, draw(panel), *words, table, to_csv(rows), source=source)
