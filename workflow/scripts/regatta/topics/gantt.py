"""The Gantt chart of launches: a row for each host; the time axis leaves out long gaps."""

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from regatta.core.text import is_unknown, natural, one_line, three
from regatta.report.charts import Chart, Marks, set_ticks
from regatta.report.findings import percent_number
from regatta.report.svg import BAD, COLORS, GOOD, GREY, GRID, GROUND, GROUP

WIDTH_IN, AROUND_IN, LETTER_IN = 10.0, 0.6, 0.075
RIGHT, BREAK, MARGIN = 698.0, 6.0, 21.6  # points: right end of the axis; gap between its parts; space above and below
ROW_IN, THIN_IN = {16: 0.22, 32: 0.13}, 0.115  # height of a row, of at most so many rows, and of more
MAX_ROWS, MAX_BARS = 64, 13000  # so that the page stays small
MAX_LAUNCHES = 100  # of more, a bar may sum several
MAX_SUMS = 400  # of all rows: bars that each sum several launches
MAX_BREAKS = 10
LEAST_SHARE, LEAST_FAILED = 0.06, 0.003  # of all runs: width of one, for its label; of failures, so that they are seen
MAX_TICKS = 5
DAY = 86400
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
STEPS += tuple(DAY * days for days in (1, 2, 5, 10, 20, 50, 100))
NO_HOST = "unknown host"
IDLE = "allocated, idle"
STATES = {  # key of a bar -> how it is drawn
    IDLE: {"facecolor": GRID, "edgecolor": GREY, "linewidth": 0.8},
    "launch startup": {"facecolor": GREY, "alpha": 0.5},
    "imports": {"facecolor": COLORS[4], "alpha": 0.6},
    "setup and checks": {"facecolor": COLORS[5], "alpha": 0.6},
    "warm-up": {"facecolor": GOOD, "alpha": 0.4},
    "measuring": {"facecolor": GOOD},
    "failed": {"facecolor": GROUND, "edgecolor": BAD, "hatch": "//////", "linewidth": 0.8},
    "no records": {"facecolor": GROUND, "edgecolor": GREY, "linewidth": 0.8},
}
LAYERS = {IDLE: 0, "failed": 2}  # the others are between: a failure is never covered
SPENT = ("launch startup", "imports", "setup and checks", "warm-up", "measuring")  # parts of a launch, in this order


def runs_of(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return start and end of the parts of the axis. It is broken at gaps longer than all intervals together."""
    blocks = _merged(intervals)
    gaps = sorted((later[0] - earlier[1] for earlier, later in itertools.pairwise(blocks)), reverse=True)
    return _merged(blocks, max([sum(end - start for start, end in blocks), *gaps[MAX_BREAKS : MAX_BREAKS + 1]]))


def _merged(intervals: list[tuple[float, float]], gap: float = 0) -> list[tuple[float, float]]:
    """Return the intervals by start, merged if no more than `gap` lies between them."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1] + gap:
            start, end = found[-1][0], max(found.pop()[1], end)
        found.append((start, end))
    return found


def ticks_of(runs: list[tuple[float, float]]) -> list[list[tuple[float, str]]]:
    """Return (place, label) of the ticks of each run: at its start the time since the first, then since its start."""
    length = sum(end - start for start, end in runs)
    step = next((step for step in STEPS if length / step <= MAX_TICKS - 1), STEPS[-1])
    first, found = runs[0][0], []
    for start, end in runs:
        plus = "+" if start > first else ""
        found.append([(start, elapsed_text(start - first))])
        found[-1] += [(start + n, f"{plus}{elapsed_text(n)}") for n in range(step, int(end - start) + 1, step)]
    return found


def elapsed_text(seconds: float) -> str:
    """Return an elapsed time for the axis: 30 s, 10 min, 1.5 h, 7 days."""
    for factor, unit in ((DAY, "days"), (3600, "h"), (60, "min")):
        if seconds >= factor:
            number = f"{seconds / factor:.1f}".removesuffix(".0")
            return f"{number} {'day' if unit == 'days' and number == '1' else unit}"
    return f"{three(seconds) if seconds % 1 else int(seconds)} s"


def bars_of(launches: list[dict], allocations: list[dict]) -> dict[str, list[tuple]]:
    """Return (state, start, seconds, text, batch) of the bars of each host.

    launches: rows of timeline.csv, with `repeat`; allocations: of allocations.csv. Those without times have no bar. The
    share of measurements that failed is a separate bar; the rest is one for each part of the launch's time, summed over
    its cells, and over consecutive launches of a batch if there are more than MAX_LAUNCHES.
    """
    rows, on_host = defaultdict(list), defaultdict(list)
    for row in launches:
        for name in (hosts_of([row]) or {NO_HOST}) if row["duration_s"] is not None else ():
            on_host[name].append(row)
    most = MAX_SUMS // min(len(on_host) or 1, MAX_ROWS) if is_summed(launches) else math.inf
    runs = runs_of([(row["start_s"], row["end_s"]) for of_host in on_host.values() for row in of_host])
    for name, of_host in on_host.items():
        size, together = max(math.ceil(len(of_host) / most), 1), defaultdict(list)
        for row in of_host:
            together[row["batch"], _run_at(runs, row["start_s"])].append(row)
        for of_batch in together.values():
            for first in range(0, len(of_batch), size):
                rows[name] += _bars_of(of_batch[first : first + size])
    for row in allocations:
        for name in hosts_of([row]) & rows.keys() if row["allocation_s"] is not None else ():
            rows[name].insert(0, (IDLE, row["start_s"], row["allocation_s"], "", row["batch"]))
    return {name: bars for name, bars in rows.items() if bars}  # a launch of less than a second has none


def is_summed(launches: list[dict]) -> bool:
    """Return whether a bar may sum several launches."""
    return len(launches) > MAX_LAUNCHES


def _run_at(runs: list[tuple[float, float]], at: float) -> int:
    """Return the index of the run in which a time lies."""
    return max((index for index, (start, _) in enumerate(runs) if start <= at), default=0)


def _bars_of(launches: list[dict]) -> list[tuple]:
    """Return the bars of launches that are drawn as one, with the sums of their parts in turn."""
    sums: Counter[str] = Counter()
    for row in launches:
        sums.update(_parts_of(row))
    at, text, found = launches[0]["start_s"], _text(launches), []
    for state in (*SPENT, "no records", "failed"):
        if sums[state] > 0:
            found.append((state, at, sums[state], text, launches[0]["batch"]))
            at += sums[state]
    return found


def _parts_of(row: dict) -> dict[str, float]:
    """Return the seconds of a launch by state."""
    num = row["num_ok"] + row["num_failed"]
    failed_s = (row["cells_s"] or row["duration_s"]) * row["num_failed"] / max(num, 1)
    rest_s, import_s = row["duration_s"] - failed_s, row["import_s"] or 0.0
    startup_s, warmup_s, measuring_s = row["overhead_s"] - import_s, row["warmup_s"], row["measuring_s"]
    setup_s = max(row["cells_s"] - failed_s - warmup_s - measuring_s, 0.0)
    parts = dict(zip(SPENT, (startup_s, import_s, setup_s, warmup_s, measuring_s), strict=True))
    parts = {state: part * rest_s / (sum(parts.values()) or 1) for state, part in parts.items()}
    return (parts if num else {"no records": rest_s}) | {"failed": failed_s}


def _text(launches: list[dict]) -> str:
    """Return what a pointer on a launch shows, or on several that are drawn as one."""
    first, known = launches[0], any(row["import_s"] is not None for row in launches)
    number = "" if is_unknown(first["repeat"]) else f", launch {first['repeat'] + 1}"
    number = number if len(launches) == 1 else f", {len(launches):,} launches"
    stacks = ", ".join(dict.fromkeys(row["stack"] for row in launches))
    total, startup, imports, measuring = (
        elapsed_text(round(sum(row[f"{part}_s"] or 0 for row in launches)))
        for part in ("duration", "overhead", "import", "measuring")
    )
    counts = [
        f"{total} ({startup} startup{f' with {imports} imports' if known else ''}, {measuring} measuring)",
        f"{sum(row['num_ok'] for row in launches):,} ok",
        f"{sum(row['num_failed'] for row in launches):,} failed",
    ]
    return f"{first['batch']}{number}, stack {stacks}: {', '.join(counts)}"


def shares_of(bars: list[tuple]) -> dict[str, float]:
    """Return the shares of the time of some bars by state, without those that have none.

    Idle time is known if the allocations are.
    """
    sums: Counter[str] = Counter()
    for state, _, seconds, *_ in bars:
        sums[state] += seconds
    allocated = sums.pop(IDLE, 0.0)
    total = max(allocated, sums.total())
    parts = {state: sums[state] for state in STATES if sums[state] > 0}
    parts |= {"idle": total - sums.total()} if allocated else {}
    return {state: part / total for state, part in parts.items()} if total else {}


def shares_text(shares: dict[str, float]) -> str:
    """Return the shares in words: `62 % measuring, 38 % idle`."""
    return ", ".join(f"{percent_number(share)} % {state}" for state, share in shares.items())


def hosts_of(rows: list[dict]) -> set[str]:
    return {host for row in rows for host in (row["hosts"] or "").split(", ") if host}


def shown_rows(rows: dict[str, list[tuple]]) -> list[str]:
    """Return the names of the rows shown, in natural order; those with the most failed launches are kept."""
    by_need = sorted(rows, key=lambda name: (-sum(state == "failed" for state, *_ in rows[name]), natural(name)))
    totals = itertools.accumulate(len(rows[name]) for name in by_need)
    num = sum(total <= MAX_BARS for total in totals)
    return sorted(by_need[: max(1, min(MAX_ROWS, num))], key=natural)


@dataclass(frozen=True)
class Gantt(Chart):
    """The bars of each host, of `bars_of`, from top to bottom."""

    rows: dict[str, list[tuple]]

    has_rows = True

    @property
    def size_in(self) -> tuple[float, float]:
        return WIDTH_IN, AROUND_IN + self.row_points / 72 * len(self.rows)

    @property
    def row_points(self) -> float:
        """Return the height of a row in points."""
        return 72 * next((height for most, height in ROW_IN.items() if len(self.rows) <= most), THIN_IN)

    def marks(self) -> Marks:
        columns = ("cell", "host", "state", "start (s)", "duration (s)", "launch", "batch")
        return Marks(columns, tuple(("", host, *bar) for host, bars in self.rows.items() for bar in bars))

    @cached_property
    def names(self) -> list[str]:
        return [one_line(name, 24) for name in self.rows]

    @property
    def left(self) -> float:
        return 7.2 + 72 * LETTER_IN * max(map(len, self.names))

    @cached_property
    def runs(self) -> list[tuple[float, float]]:
        found = runs_of([(bar[1], bar[1] + bar[2]) for bars in self.rows.values() for bar in bars])
        return [(start, end if end > start else start + 1) for start, end in found]

    @cached_property
    def _runs_in_points(self) -> list[tuple[float, float]]:
        """Return left end and width of each run in points of the drawing."""
        total = sum(end - start for start, end in self.runs)
        shares = [max((end - start) / total, LEAST_SHARE) for start, end in self.runs]
        width = (RIGHT - self.left - BREAK * (len(shares) - 1)) / sum(shares)
        lefts = itertools.accumulate((share * width + BREAK for share in shares[:-1]), initial=self.left)
        return [(left, share * width) for left, share in zip(lefts, shares, strict=True)]

    def place(self, at: float) -> float:
        """Return the place of a time in points of the drawing."""
        run = max((index for index, (start, _) in enumerate(self.runs) if start <= at), default=0)
        (start, end), (left, width) = self.runs[run], self._runs_in_points[run]
        return left + width * (at - start) / (end - start)

    def draw_on(self, canvas) -> None:
        from matplotlib.patches import Patch, PathPatch
        from matplotlib.path import Path

        height_in = self.size_in[1]
        place = {"left": self.left / 72 / WIDTH_IN, "right": RIGHT / 72 / WIDTH_IN}
        place |= {"bottom": MARGIN / 72 / height_in, "top": 1 - MARGIN / 72 / height_in}
        axes = canvas.subplots(gridspec_kw=place)
        axes.set(xlim=(self.left, RIGHT), ylim=(len(self.rows) - 0.5, -0.5))
        set_ticks(axes.yaxis, list(enumerate(self.names)))
        axes.tick_params(axis="y", labelsize=9 if self.row_points > 10 else 7)
        self._draw_ticks(axes)
        least = LEAST_FAILED * (RIGHT - self.left)
        rows_of = defaultdict(list)  # a launch has the same bars on all of its hosts: one element with all classes
        for y, bars in enumerate(self.rows.values()):
            for bar in bars:
                rows_of[bar].append(y)
        for bar, rows in sorted(rows_of.items(), key=lambda item: LAYERS.get(item[0][0], 1)):
            state, at, seconds, text, _ = bar
            low, high = self.place(at), self.place(at + seconds)
            width = high - low if state in SPENT else max(high - low, least)
            ends = [(low, -0.4), (low + width, -0.4), (low + width, 0.4), (low, 0.4), (low, -0.4)]
            corners = [(x, y + above) for y in rows for x, above in ends]
            codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(rows)
            style = {"edgecolor": "none", "clip_on": False} | STATES[state]
            axes.add_artist(PathPatch(Path(corners, codes), gid=f"{GROUP}bars:{text}", **style))
        used = {state for bars in self.rows.values() for state, *_ in bars}
        handles = [Patch(label=state, **style) for state, style in STATES.items() if state in used]
        canvas.legend(handles=handles, ncols=len(handles), loc="outside upper left", fontsize=9, frameon=False)

    def _draw_ticks(self, axes) -> None:
        """Draw the ticks of the whole axis. Gaps of the axis are open, and the time after them has a line."""
        from matplotlib.ticker import FixedLocator, NullFormatter

        axes.xaxis.set_major_locator(FixedLocator([]))
        axes.xaxis.set_major_formatter(NullFormatter())
        bottom, line = len(self.rows) - 0.5, {"clip_on": False}
        for number, ticks in enumerate(ticks_of(self.runs)):
            for at, label in ticks:
                x, where = self.place(at), {"textcoords": "offset points", "ha": "center", "va": "top"}
                axes.plot([x, x], [-0.5, bottom], color=GRID, linewidth=0.8, zorder=0.5, **line)
                axes.annotate(label, (x, bottom), (0, -4), fontsize=9, **where)
            if number:
                x = self.place(ticks[0][0])
                axes.plot([x - BREAK, x], [bottom, bottom], color=GROUND, linewidth=2, zorder=3, **line)
                axes.plot([x, x], [-0.5, bottom], color=GREY, linewidth=0.8, zorder=0.6, **line)
