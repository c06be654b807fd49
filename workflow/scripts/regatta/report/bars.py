"""Stacked bars: what is left of a whole and the parts that are lost, one bar for each row, with their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from regatta.core.names import SEPARATOR
from regatta.core.text import one_line, with_minus_signs
from regatta.report.charts import Chart, Marks, set_ticks
from regatta.report.findings import percent_number
from regatta.report.lines import LABEL_PAD_PT, TICK_PAD_PT
from regatta.report.svg import CELL, COLORS, GROUND, INK, LEVEL

WIDTH_IN, ROW_IN, AROUND_IN = 5.6, 0.205, 0.95
NUMBER = {False: 0.11, True: 0.09}  # of the width, for each column of numbers, by is_flat
LEFT, LETTER_PT = 0.09, 6.3  # of the width, for names; of a character on a phone
MOST_NAME, MOST_NAMED_ABOVE = 32, 4  # characters of a name beside its bar; groups of one bar with a heading
FILLS = (LEVEL, COLORS[5], COLORS[1], COLORS[4])  # of what is left, and of each part


@dataclass(frozen=True)
class Bar:
    """One row. group: the heading above it and those that follow with the same one. parts: in percent.

    The first part is what is left, the others are lost; None: unknown, or does not apply. A gain is negative and has no
    place in the bar.
    """

    group: str
    label: str
    cell: str
    parts: tuple[float | None, ...]


@dataclass(frozen=True)
class Bars(Chart):
    """Bars from top to bottom, each group below its name. heads: of what is left, and of each part."""

    bars: Sequence[Bar]
    heads: Sequence[str]

    has_rows = True

    @property
    def is_flat(self) -> bool:
        """Return whether the name of each group is on the line of its only bar."""
        return len({bar.group for bar in self.bars}) == len(self.bars) > MOST_NAMED_ABOVE

    def name_of(self, bar: Bar) -> str:
        """Return the label of a bar; without headings its group, with the label if labels differ."""
        differ = len({one.label for one in self.bars}) > 1
        return one_line(bar.group + (SEPARATOR + bar.label) * differ, MOST_NAME) if self.is_flat else bar.label

    @property
    def rows(self) -> list[str | Bar]:
        """Return the names of groups and the bars, from top to bottom; bars alone if each is a group."""
        groups = dict.fromkeys(bar.group for bar in self.bars)
        if self.is_flat:
            return list(self.bars)
        return [row for group in groups for row in (group, *(bar for bar in self.bars if bar.group == group))]

    @property
    def size_in(self) -> tuple[float, float]:
        return WIDTH_IN, AROUND_IN + ROW_IN * len(self.rows)

    def marks(self) -> Marks:
        columns = ("cell", "name", "shape", *(f"{head} (%)" for head in self.heads))
        return Marks(columns, tuple((bar.cell, bar.group, bar.label, *bar.parts) for bar in self.bars))

    def draw_on(self, canvas) -> None:
        height_in, bars = self.size_in[1], {row: bar for row, bar in enumerate(self.rows) if isinstance(bar, Bar)}
        number, names = NUMBER[self.is_flat], {row: self.name_of(bar) for row, bar in bars.items()}
        left = max(LEFT, (9 + LETTER_PT * max(map(len, names.values()))) / (72 * WIDTH_IN))
        width, height = 0.99 - left - number * len(self.heads), 1 - AROUND_IN / height_in
        axes = self.add_plot(canvas, left, 0.45 / height_in, width, height)
        number_pt = number * 72 * canvas.get_figwidth()
        text = {"fontsize": 9, "va": "center", "parse_math": False}
        for row, group in enumerate(self.rows):
            if row not in bars:
                axes.annotate(group, (0, row), (-34, 0), textcoords="offset points", fontweight="bold", **text)
        for row, bar in bars.items():
            begin = 0.0
            for column, (value, fill) in enumerate(zip(bar.parts, FILLS, strict=True)):
                if value is not None and value > 0:
                    [box] = axes.barh(row, value, 0.8, begin, facecolor=fill, edgecolor=GROUND, linewidth=1)
                    box.set_gid(f"{CELL}{bar.cell}")
                    begin += value
                shown = "\N{EN DASH}" if value is None else with_minus_signs(percent_number(value / 100))
                place = ((column + 0.9) * number_pt, 0)
                at = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "ha": "right"}
                axes.annotate(shown, (1, row), place, **at, **text)
        for column, (head, fill) in enumerate(zip(self.heads, FILLS, strict=True)):
            for words, color, above in ((head.replace("-", "-\n"), INK, 5), ("\N{BLACK SQUARE}", fill, 28)):
                at = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right", "va": "bottom"}
                axes.annotate(words, (1, 1), ((column + 0.9) * number_pt, above), color=color, fontsize=8, **at)
        axes.set(xlim=(0, max([100, *(sum(v for v in b.parts if v and v > 0) for b in self.bars)])))
        axes.spines["left"].set_visible(False)
        axes.set(ylim=(len(self.rows) - 0.5, -0.5))
        axes.set_xlabel("share of the ideal throughput (%)", labelpad=LABEL_PAD_PT)
        axes.tick_params(axis="x", pad=TICK_PAD_PT)
        set_ticks(axes.xaxis, [(tick, str(tick)) for tick in range(0, 101, 50 if self.is_flat else 25)])
        set_ticks(axes.yaxis, list(names.items()))
        axes.grid(visible=True, clip_on=False, axis="x")
