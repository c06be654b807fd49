"""The Gantt chart of launches: a row for each host; the time axis leaves out long gaps."""

import itertools
from collections import defaultdict
from dataclasses import dataclass

from regatta.core.text import is_unknown, natural, one_line, three
from regatta.report.charts import Chart, Marks, set_ticks
from regatta.report.svg import BAD, COLORS, GOOD, GREY, GRID, GROUND, TITLE

WIDTH_IN, ROW_IN, AROUND_IN, LETTER_IN = 10.0, 0.22, 0.6, 0.075
MAX_ROWS, MAX_BARS = 30, 1000  # so that the page stays small
MAX_LAUNCHES = 100  # of more, bars do not show what their time was spent on
MAX_BREAKS = 10
LEAST_SHARE, LEAST_FAILED = 0.06, 0.003  # of all runs: width of one, for its label; of failures, so that they are seen
MAX_TICKS = 5
DAY = 86400
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
STEPS += tuple(DAY * days for days in (1, 2, 5, 10, 20, 50, 100))
NO_HOST = "unknown host"
STATES = {  # key of a bar -> how it is drawn
    "allocated, idle": {"facecolor": GRID, "edgecolor": GREY, "linewidth": 0.8},
    "launch startup": {"facecolor": GREY, "alpha": 0.5},
    "setup and checks": {"facecolor": COLORS[5], "alpha": 0.6},
    "warm-up": {"facecolor": GOOD, "alpha": 0.4},
    "measuring": {"facecolor": GOOD},
    "ok": {"facecolor": GOOD, "edgecolor": GROUND, "linewidth": 0.4},
    "failed": {"facecolor": GROUND, "edgecolor": BAD, "hatch": "//////", "linewidth": 0.8},
    "no records": {"facecolor": GROUND, "edgecolor": GREY, "linewidth": 0.8},
}
SPENT = ("launch startup", "setup and checks", "warm-up", "measuring")  # parts of a launch, in this order


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
    """Return (state, start, seconds, text) of the bars of each host.

    launches: rows of timeline.csv, with `repeat`; allocations: of allocations.csv. Those without times have no bar. The
    share of measurements that failed is a separate bar; the rest is one for each part of the launch's time, summed over
    its cells, or `ok` with more than MAX_LAUNCHES.
    """
    rows, has_parts = defaultdict(list), len(launches) <= MAX_LAUNCHES
    for row in launches:
        if row["duration_s"] is None:
            continue
        num, at, text = row["num_ok"] + row["num_failed"], row["start_s"], _text(row)
        failed_s = ((has_parts and row["cells_s"]) or row["duration_s"]) * row["num_failed"] / max(num, 1)
        rest_s, parts = row["duration_s"] - failed_s, {"ok": 1.0}
        if has_parts:
            startup_s, warmup_s, measuring_s = row["overhead_s"], row["warmup_s"], row["measuring_s"]
            setup_s = max(row["cells_s"] - failed_s - warmup_s - measuring_s, 0.0)
            parts = dict(zip(SPENT, (startup_s, setup_s, warmup_s, measuring_s), strict=True))
        parts = {state: part * rest_s / (sum(parts.values()) or 1) for state, part in parts.items()}
        parts = (parts if num else {"no records": rest_s}) | {"failed": failed_s}
        for state, seconds in parts.items():
            if seconds > 0:
                for name in hosts_of([row]) or {NO_HOST}:
                    rows[name].append((state, at, seconds, text))
                at += seconds
    for row in allocations:
        for name in hosts_of([row]) & rows.keys() if row["allocation_s"] is not None else ():
            rows[name].insert(0, ("allocated, idle", row["start_s"], row["allocation_s"], ""))
    return rows


def _text(row: dict) -> str:
    """Return what a pointer on a launch shows."""
    number = "" if is_unknown(row["repeat"]) else f", launch {row['repeat'] + 1}"
    total, startup, measuring = (
        elapsed_text(round(row[f"{part}_s"])) for part in ("duration", "overhead", "measuring")
    )
    counts = [
        f"{total} ({startup} startup, {measuring} measuring)",
        f"{row['num_ok']} ok",
        f"{row['num_failed']} failed",
    ]
    return f"{row['batch']}{number}, stack {row['stack']}: {', '.join(counts)}"


def hosts_of(rows: list[dict]) -> set[str]:
    return {host for row in rows for host in (row["hosts"] or "").split(", ") if host}


def shown_rows(rows: dict[str, list[tuple]]) -> list[str]:
    """Return the names of the rows shown, in natural order; those with the most failed launches are kept."""
    by_need = sorted(rows, key=lambda name: (-sum(state == "failed" for state, *_ in rows[name]), natural(name)))
    return sorted(by_need[: max(1, min(MAX_ROWS, MAX_BARS // max(map(len, rows.values()))))], key=natural)


@dataclass(frozen=True)
class Gantt(Chart):
    """The bars of each host, of `bars_of`, from top to bottom."""

    rows: dict[str, list[tuple]]

    @property
    def size_in(self) -> tuple[float, float]:
        return WIDTH_IN, AROUND_IN + ROW_IN * len(self.rows)

    def marks(self) -> Marks:
        columns = ("cell", "host", "state", "start (s)", "duration (s)", "launch")
        return Marks(columns, tuple(("", host, *bar) for host, bars in self.rows.items() for bar in bars))

    def draw_on(self, canvas) -> None:
        from matplotlib.patches import Patch, Rectangle

        rows, height_in = self.rows, self.size_in[1]
        runs = runs_of([(start, start + seconds) for bars in rows.values() for _, start, seconds, _ in bars])
        total = sum(end - start for start, end in runs) or 1
        names = [one_line(name, 24) for name in rows]
        place = {"left": (0.1 + LETTER_IN * max(map(len, names))) / WIDTH_IN, "right": 0.98, "wspace": 0.04}
        place |= {"bottom": 0.3 / height_in, "top": 1 - 0.3 / height_in}
        place["width_ratios"] = [max((end - start) / total, LEAST_SHARE) for start, end in runs]
        grid = canvas.subplots(1, len(runs), squeeze=False, sharey=True, gridspec_kw=place)
        for axes, (start, end), ticks in zip(grid[0], runs, ticks_of(runs), strict=True):
            axes.set(xlim=(start, end if end > start else start + 1), ylim=(len(rows) - 0.5, -0.5))
            set_ticks(axes.xaxis, ticks)
            set_ticks(axes.yaxis, list(enumerate(names)))
            axes.grid(visible=True, axis="x")
            for y, bars in enumerate(rows.values()):
                for state, at, seconds, text in sorted(bars, key=lambda bar: bar[0] == "failed"):  # never covered
                    if start <= at <= end:
                        width = seconds if state in SPENT else max(seconds, LEAST_FAILED * total)
                        gid = f"{TITLE}{text}" if text else None
                        axes.add_artist(Rectangle((at, y - 0.4), width, 0.8, gid=gid, clip_on=False, **STATES[state]))
        used = {state for bars in rows.values() for state, *_ in bars}
        handles = [Patch(label=state, **style) for state, style in STATES.items() if state in used]
        canvas.legend(handles=handles, ncols=len(handles), loc="outside upper left", fontsize=9, frameon=False)
