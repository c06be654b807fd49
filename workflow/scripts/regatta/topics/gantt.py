"""The Gantt chart of launches: rows, bars in percent of the time axis, and the axis with its breaks and ticks."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from regatta.core.text import is_unknown, natural, plural, rank_word, ranks_word, shape, three

MAX_ROWS, MAX_BARS = 30, 1500  # of the chart; the rest is summarized, so that the page stays small
MAX_BREAKS, BREAK_PERCENT = 10, 2.0
MAX_TICKS = 5  # of an axis without breaks
MIN_LABEL_PERCENT = 9.0  # distance of two labels of the axis, whose width is about 8 %
LAST_LABEL_PERCENT = 90.0  # a label further right ends at its tick
DAY = 86400
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
NO_HOST = "unknown host"
STATES = {"ok": "all ok", "some": "some failed (hatched share)", "failed": "all failed", "none": "no records"}


@dataclass(frozen=True)
class Run:
    """A part of the axis without a break. Times in seconds, left and width in percent."""

    start_s: float
    end_s: float
    left: float
    width: float

    def position(self, at_s: float) -> float:
        length = self.end_s - self.start_s
        return self.left + (self.width * (at_s - self.start_s) / length if length else 0.0)


@dataclass(frozen=True)
class Axis:
    """The time axis: runs of the campaign, separated by breaks."""

    runs: tuple[Run, ...]

    def span(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return left and width of an interval, in percent of the chart. No interval contains a break."""
        run = next(run for run in reversed(self.runs) if run.start_s <= start_s or run is self.runs[0])
        left = run.position(start_s)
        return left, run.position(end_s) - left

    @property
    def breaks(self) -> list[tuple[float, float, float]]:
        """Return (left, width, seconds) of each break."""
        pairs = itertools.pairwise(self.runs)
        return [(a.left + a.width, b.left - a.left - a.width, b.start_s - a.end_s) for a, b in pairs]

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return (position, label): the time since the first start, and within later runs since their start."""
        length = sum(run.end_s - run.start_s for run in self.runs)
        step = next(step for step in tick_steps() if length / step <= MAX_TICKS - 1)
        found: list[tuple[float, str]] = []
        for run in self.runs:
            since_first = run.start_s - self.runs[0].start_s
            while len(found) > 1 and run.left - found[-1][0] < MIN_LABEL_PERCENT:
                found.pop()  # the start of a run is worth more
            marks = [(run.left, elapsed_text(since_first) if since_first else "0")]
            for count in range(1, int((run.end_s - run.start_s) / step) + 1):
                text = elapsed_text(count * step)
                marks.append((run.position(run.start_s + count * step), f"+{text}" if since_first else text))
            for left, label in marks:
                if not found or left - found[-1][0] >= MIN_LABEL_PERCENT:
                    found.append((left, label))
        return found


def tick_steps() -> Iterator[int]:
    """Yield seconds between ticks, ascending: 1 s to 12 h, then 1, 2, 5, 10, ... days."""
    yield from STEPS
    for power in itertools.count():
        yield from (DAY * 10**power * n for n in (1, 2, 5))


def make_axis(intervals: list[tuple[float, float]]) -> Axis:
    """Return the axis of some intervals. It is broken at gaps longer than all intervals together."""
    blocks = _merged(intervals)
    gaps = sorted((later[0] - earlier[1] for earlier, later in itertools.pairwise(blocks)), reverse=True)
    runs = _merged(blocks, max([sum(end - start for start, end in blocks), *gaps[MAX_BREAKS : MAX_BREAKS + 1]]))
    length, usable = sum(end - start for start, end in runs), 100 - BREAK_PERCENT * (len(runs) - 1)
    placed, left = [], 0.0
    for start, end in runs:
        width = usable * (end - start) / length if length else usable / len(runs)
        placed.append(Run(start, end, left, width))
        left += width + BREAK_PERCENT
    return Axis(tuple(placed))


def _merged(intervals: list[tuple[float, float]], gap: float = 0) -> list[tuple[float, float]]:
    """Return the intervals by start, merged if no more than `gap` lies between them."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1] + gap:
            start, end = found[-1][0], max(found.pop()[1], end)
        found.append((start, end))
    return found


def elapsed_text(seconds: float) -> str:
    """Return an elapsed time for the axis: 30 s, 10 min, 1.5 h, 7 days."""
    for factor, unit in ((DAY, "days"), (3600, "h"), (60, "min")):
        if seconds >= factor:
            number = f"{seconds / factor:.1f}".removesuffix(".0")
            return f"{number} {'day' if unit == 'days' and number == '1' else unit}"
    return f"{three(seconds) if seconds % 1 else int(seconds)} s"


def chart(launches: list[dict], allocations: list[dict], device: str) -> dict | None:
    """Return the chart for its template, or None without a launch whose times are known.

    launches: rows of timeline.csv, with `repeat`; allocations: of allocations.csv. Rows are hosts, or batches if the
    campaign ran on one host or hosts are unknown.
    """
    launches = [row for row in launches if row["duration_s"] is not None]
    if not launches:
        return None
    allocations = [row for row in allocations if row["allocation_s"] is not None]
    by_host = len({host for row in launches for host in hosts_of(row)} - {NO_HOST}) > 1
    labels = batch_labels(launches, device)
    spans = [(row["start_s"], row["start_s"] + row["allocation_s"]) for row in allocations]
    axis = make_axis([*spans, *((row["start_s"], row["end_s"]) for row in launches)])
    rows: dict[str, list[dict]] = defaultdict(list)
    allocated: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in launches:
        for name in hosts_of(row) if by_host else [labels[row["batch"]]]:
            rows[name].append(row)
    for row, span in zip(allocations, spans, strict=True):
        for name in hosts_of(row) if by_host else [labels.get(row["batch"], "")]:
            allocated[name].append(axis.span(*span))
    shown = shown_rows(rows)
    left_out = {row["launch"]: row for name, of in rows.items() if name not in shown for row in of}
    noun = "host" if by_host else "batch"
    return {
        "noun": noun,
        "rows": [(name, allocated[name], [_bar(row, axis, device) for row in rows[name]]) for name in shown],
        "ticks": [(left, label, left > LAST_LABEL_PERCENT) for left, label in axis.ticks],
        "breaks": [(left, width, elapsed_text(seconds)) for left, width, seconds in axis.breaks],
        "states": {state: STATES[state] for state in STATES if any(state_of(row) == state for row in launches)},
        "has_idle": any(row["idle_s"] for row in allocations),
        "not_shown": _not_shown(len(rows) - len(shown), noun, list(left_out.values())),
    }


def hosts_of(row: dict) -> list[str]:
    return (row["hosts"] or NO_HOST).split(", ")


def batch_labels(launches: list[dict], device: str) -> dict[str, str]:
    """Return the name of each batch: its shape, numbered by start if several batches have it."""
    shapes = {row["batch"]: _place_text(row, device) for row in launches}
    same: dict[str, list[str]] = defaultdict(list)
    for batch, text in shapes.items():
        same[text].append(batch)
    return {
        batch: f"{text}, {same[text].index(batch) + 1}" if len(same[text]) > 1 else text
        for batch, text in shapes.items()
    }


def _place_text(row: dict, device: str) -> str:
    """Return the shape of a launch with the word for its ranks: 1×1 process, 2×4 GPUs."""
    is_one = row["nodes"] * row["gpus_per_node"] == 1
    return f"{shape(row['nodes'], row['gpus_per_node'])} {(rank_word if is_one else ranks_word)(device)}"


def shown_rows(rows: dict[str, list[dict]]) -> list[str]:
    """Return the names of the rows shown, in natural order; those with the most failed measurements are kept."""
    by_need = sorted(rows, key=lambda name: (-sum(row["num_failed"] for row in rows[name]), natural(name)))
    chosen, num_bars = [], 0
    for name in by_need[:MAX_ROWS]:
        num_bars += len(rows[name])
        if chosen and num_bars > MAX_BARS:
            break
        chosen.append(name)
    return sorted(chosen, key=natural)


def state_of(row: dict) -> str:
    """Return whether all, some or none of the records of a launch are ok."""
    if not row["num_failed"]:
        return "ok" if row["num_ok"] else "none"
    return "some" if row["num_ok"] else "failed"


def _bar(row: dict, axis: Axis, device: str) -> dict:
    left, width = axis.span(row["start_s"], row["end_s"])
    number = "" if is_unknown(row["repeat"]) else f", launch {row['repeat'] + 1}"
    where = f"{row['batch']}{number}, stack {row['stack']}, {_place_text(row, device)}"
    counts = f"{row['num_ok']} ok, {row['num_failed']} failed"
    text = f"{where}: {elapsed_text(round(row['duration_s']))}, {counts}"
    failed = 100 * row["num_failed"] / (row["num_ok"] + row["num_failed"]) if state_of(row) == "some" else None
    return {"left": left, "width": width, "state": state_of(row), "text": text, "failed_percent": failed}


def _not_shown(num_rows: int, noun: str, launches: list[dict]) -> str:
    if not num_rows:
        return ""
    num_failed = sum(bool(row["num_failed"]) for row in launches)
    rows = plural(num_rows, f"more {noun}", f"more {'batches' if noun == 'batch' else 'hosts'}")
    return f"Not shown: {rows} with {plural(len(launches), 'launch', 'launches')}, {num_failed} of them with failures."
