"""The timeline: when launches ran on which hosts, and what the time of the allocations was spent on.

A row of the chart is a host; its axis leaves out long gaps. Definitions: docs/metrics.md.
"""

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace

import pandas as pd

from regatta.core.text import is_unknown, natural, plural, rank_time, utc_seconds
from regatta.kit.kinds import LOW, NOTE, RESULT, Kind
from regatta.report.chart import BAD, COLORS, GOOD, GREY, GRID, Chart, PlotAxis, Style
from regatta.report.findings import Finding, of_rows, percent_number
from regatta.report.panels import Figure, Section, Table
from regatta.store.csv_files import plain_rows
from regatta.tables.times import (
    ALLOCATIONS,
    CLOCK_TOLERANCE_S,
    DAY,
    TIMELINE,
    allocations_table,
    elapsed_text,
    hosts_of,
    timeline_table,
)
from regatta.topics.base import ReportData, TableSpec, Topic

MAX_ROWS, MAX_BARS = 64, 13000  # so that the page stays small
MAX_LAUNCHES = 100  # of more, a bar may sum several
MAX_SUMS = 400  # of all rows: bars that each sum several launches
MAX_BREAKS = 10
LEAST_S = 300  # total of all launches; a shorter timeline needs no chart
MAX_TICKS = 5
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


# Parts of the allocated time, as in a sentence.
PARTS = {"measuring": "measuring", "warmup": "warm-up", "other": "setup and checks"}
PARTS |= {"launch_start": "launch startup", "import": "imports", "idle": "idle"}


def section(data: ReportData) -> Section | None:
    """Return the chart of launches by host, and their table."""
    timeline, hours = data.tables["timeline"], allocated_hours(data.tables["allocations"])
    if timeline.empty:
        return None
    repeats = data.measurements.dropna(subset="launch").drop_duplicates("launch").set_index("launch")["repeat"]
    launches = plain_rows(timeline.assign(repeat=timeline["launch"].map(repeats)), (*TIMELINE, "repeat"))
    rows = bars_of(launches, plain_rows(data.tables["allocations"], tuple(ALLOCATIONS)))
    shown = shown_rows(rows) if rows else []
    notes = ["Each bar sums several consecutive launches."] if is_summed(launches) else []
    if len(shown) < len(rows):
        num = len(rows) - len(shown)
        notes.append(f"Not drawn: {num:,} of {plural(len(rows), 'node')}, those with fewer failures.")
    table = Table.of_columns("Launches", TIMELINE.of_table("launches"), timeline, data.device, ("timeline",))
    idle = f"{percent_number(hours['idle'] / hours['total'])} % idle" if hours["total"] else ""
    state, table = idle or plural(len(timeline), "launch", "launches"), replace(table, is_words=True)
    sums: Counter[str] = Counter()
    for part, _, seconds, *_ in (bar for bars in rows.values() for bar in bars if not hours["total"]):
        sums[part] += seconds  # with allocations, the finding on them has the shares
    shares = (f"{percent_number(sums[part] / sums.total())} % {part}" for part in STATES if sums[part])
    lead = " ".join([*([f"Launch time: {spent}."] if (spent := ", ".join(shares)) else []), *notes])
    if not rows or timeline["duration_s"].sum() < LEAST_S:
        return Section(lead, tables=(table,), state=(state, "quiet"))
    chart = chart_of({name: rows[name] for name in shown})
    figure = Figure("gantt", "Timeline of launches", chart, table, "timeline")
    return Section(lead, (figure,), state=(state, "quiet"))


def allocated_hours(allocations: pd.DataFrame) -> dict[str, float]:
    """Return ranks x hours in total and by part of the allocations whose start and end were recorded.

    Shares are computed from these sums.
    """
    known = allocations.dropna(subset="gpu_hours")
    hours = {name: known[f"{name}_s"] for name in ("measuring", "warmup")}
    hours |= {"other": known["cells_s"] - hours["measuring"] - hours["warmup"], "import": known["import_s"].fillna(0.0)}
    hours |= {"launch_start": known["launch_start_s"] - hours["import"]}
    ranks = known["nodes"] * known["gpus_per_node"] / 3600
    found = {"total": known["gpu_hours"], **{part: ranks * of_part for part, of_part in hours.items()}}
    return {part: float(of_part.sum()) for part, of_part in (found | {"idle": known["idle_gpu_hours"]}).items()}


KINDS = (
    Kind(
        *("allocated_time", RESULT),
        lead=(
            "Allocated {allocated}: {shares} ({idle}).",
            "Start and end of allocations were not recorded: idle time unknown.",
        ),
        parts=("Start or end of {num_excluded} of {num:allocation} not recorded: excluded, idle time unknown.",),
        term="Allocated time",
        help="An allocation lasts from the first to the last action of the supervisor in a job, excluding queue time."
        " Measuring: iterations and windows. Setup, checks: the rest of the cells. Imports: process start to the end of"
        " imports, slowest rank; launch startup if not recorded. Launch startup: other time of launches. Idle:"
        " allocated time outside launches. GPU hours: ranks of the shape × hours. In the chart, the parts of a launch"
        " are summed over its cells.",
    ),
    Kind(
        *("clock_step", NOTE),
        lead="Clock stepped: {way} by {size} during a job ({num:job} affected).",
        advice="Hours are correct; timestamps of launches in these jobs are not. Synchronize all clocks (chrony).",
    ),
    Kind(
        *("overlapping_launches", LOW),
        lead="Overlapping launches: {num} of {num_launches:launch/launches} overlapped with another on the same host.",
        parts=("Example: {first} and {second} on {host}.",),
        advice="Their times are not comparable. Use exclusive allocations, and one Regatta run at a time.",
        next_step="run one campaign at a time, on whole nodes: `exclusive: true`",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return what allocations were spent on, and what makes these times doubtful."""
    return [*_allocated(data), *_clock_steps(data), *_overlapping(data)]


def _allocated(data: ReportData) -> list[Finding]:
    table, hours = data.tables["allocations"], allocated_hours(data.tables["allocations"])
    if table.empty:
        return []
    table = table.sort_values("idle_gpu_hours", ascending=False, kind="stable")
    values, words = {"num": len(table)}, {}
    if hours["total"]:
        values |= {"num_excluded": int(table["gpu_hours"].isna().sum()), "idle_hours": hours["idle"]}
        values |= {"allocated_hours": hours["total"], "idle_ratio": hours["idle"] / hours["total"]}
        parts = {part: label for part, label in PARTS.items() if part != "import" or hours[part]}
        shares = [f"{percent_number(hours[part] / hours['total'])} % {label}" for part, label in parts.items()]
        words = {name: rank_time(values[f"{name}_hours"], data.device) for name in ("idle", "allocated")}
        words["shares"] = ", ".join(shares)
    return [Finding("allocated_time", values, (of_rows("allocations", table),), words=words)]


def _clock_steps(data: ReportData) -> list[Finding]:
    """Return the finding that the clock was stepped during jobs, with the largest step first."""
    rows = data.tables["allocations"].dropna(subset="clock_step_s")
    if rows.empty:
        return []
    rows = rows.sort_values("clock_step_s", key=abs, ascending=False, kind="stable")
    step_s = float(rows["clock_step_s"].iloc[0])
    words = {"size": elapsed_text(round(abs(step_s))), "way": "forward" if step_s > 0 else "back"}
    values = {"step_s": step_s, "num": len(rows)}
    return [Finding("clock_step", values, (of_rows("allocations", rows),), (), words=words)]


def _overlapping(data: ReportData) -> list[Finding]:
    """Return the finding that launches ran on a host at the same time."""
    pairs, rows = overlaps(data.tables["timeline"]), data.tables["timeline"]
    if not pairs:
        return []
    names = {name for first, second, _ in pairs for name in (first, second)}
    values = {"num": len(names), "num_launches": len(rows), "num_hosts": len({host for *_, host in pairs})}
    words = dict(zip(("first", "second", "host"), pairs[0], strict=True))
    source, ok = of_rows("timeline", rows[rows["launch"].isin(names)]), data.ok
    cells = tuple(ok.loc[ok["launch"].isin(names), "cell"].unique())
    return [Finding("overlapping_launches", values, (source,), cells, words=words)]


def overlaps(timeline: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return (launch, later launch, host) of launches that overlap by more than the clock tolerance.

    Each launch is compared only with the latest-ending earlier launch on its host, so three concurrent launches yield
    two pairs.
    """
    latest: dict[str, tuple[float, str]] = {}  # of a host: end and name of the launch that ended last
    found = []
    for row in plain_rows(timeline.sort_values("start_s", kind="stable"), tuple(TIMELINE)):
        start, end = utc_seconds(row["start_utc"]), utc_seconds(row["end_utc"])
        if start is None or end is None or not row["hosts"]:
            continue
        for host in row["hosts"].split(", "):
            last_end, name = latest.get(host, (-math.inf, ""))
            if start + CLOCK_TOLERANCE_S < min(last_end, end):
                found.append((name, row["launch"], host))
            latest[host] = max((last_end, name), (end, row["launch"]))
    return found


TABLES = {
    "timeline": TableSpec.of(TIMELINE, timeline_table, "launches", "jobs"),
    "allocations": TableSpec.of(ALLOCATIONS, allocations_table, "launches", "jobs"),
}
TOPIC = Topic(*("timeline", "Timeline", TABLES, section, findings), is_of_sweeps=True, is_judge=True, kinds=KINDS)
