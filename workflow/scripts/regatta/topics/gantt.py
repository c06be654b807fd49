"""The Gantt chart of launches: a row for each host; the time axis leaves out long gaps."""

import itertools
import math
from collections import Counter, defaultdict

import pandas as pd

from regatta.core.text import is_unknown, natural, three
from regatta.report.chart import BAD, COLORS, GOOD, GREY, GRID, Chart, PlotAxis, Style
from regatta.report.findings import percent_number

MAX_ROWS, MAX_BARS = 64, 13000  # so that the page stays small
MAX_LAUNCHES = 100  # of more, a bar may sum several
MAX_SUMS = 400  # of all rows: bars that each sum several launches
MAX_BREAKS = 10
MAX_TICKS = 5
DAY = 86400
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
STEPS += tuple(DAY * days for days in (1, 2, 5, 10, 20, 50, 100))
NO_HOST = "unknown host"
IDLE = "allocated, idle"
STATES = {  # in the order of a legend, the lowest first
    IDLE: Style(GRID),
    "launch startup": Style(GREY, opacity=0.5),
    "imports": Style(COLORS[4], opacity=0.6),
    "setup and checks": Style(COLORS[5], opacity=0.6),
    "warm-up": Style(GOOD, opacity=0.4),
    "measuring": Style(GOOD),
    "failed": Style(BAD, hatch="//////"),
    "no records": Style(GREY, hatch=".."),
}
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


def chart_of(rows: dict[str, list[tuple]]) -> Chart:
    """Return the chart of the bars of each host, of `bars_of`."""
    runs = runs_of([(bar[1], bar[1] + bar[2]) for bars in rows.values() for bar in bars])
    marks = [
        {"cell": "", "y": host, "state": state, "start": at, "end": at + seconds, "launch": text, "batch": batch}
        | {"run": _run_at(runs, at)}
        for host, bars in rows.items()
        for state, at, seconds, text, batch in bars
    ]
    time = PlotAxis("time (s)", ticks=tuple(tick for ticks in ticks_of(runs) for tick in ticks))
    return Chart("hosts", pd.DataFrame(marks), time, PlotAxis("host"), ("start", "end"), "state", styles=STATES)
