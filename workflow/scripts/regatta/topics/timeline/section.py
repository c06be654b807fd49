"""The timeline: when launches ran on which hosts, and what the time of the allocations was spent on."""

from regatta.core.text import UNKNOWN, hours_word, long_duration, plural, rank_time, ranks_word, shape, three
from regatta.report.findings import Finding, file_of, of_rows, percent_number
from regatta.report.panels import Section, Table
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, plain_rows
from regatta.topics.timeline.gantt import chart, elapsed_text
from regatta.topics.timeline.tables import ALLOCATIONS, TIMELINE, allocations_table, timeline_table

MAX_IDLE_RATIO = 0.25  # above this share of the allocated time, idle time is a finding
# Parts of the allocated time: what they are called in the sentence and in the heading of the table.
WORDS = {
    "measuring": ("measuring", "Measuring"),
    "warmup": ("warm-up", "Warm-up"),
    "other": ("setup and checks", "Setup, checks"),
    "launch_start": ("launch startup", "Launch startup"),
    "idle": ("idle", "Idle"),
}


def section(data: ReportData) -> Section:
    """Return the chart of launches by host, and the shares of the allocated time, in total and by shape."""
    launches = plain_rows(data.tables["timeline"], tuple(TIMELINE))
    allocations = plain_rows(data.tables["allocations"], tuple(ALLOCATIONS))
    if not launches:
        return Section("timeline", "Timeline", empty="The store has no times of launches.")
    known = known_allocations(allocations)
    hours = allocated_hours(known)
    content = {
        "lead": _lead(launches),
        "gantt": chart(launches, allocations, data.device),
        "shares": shares_text(hours, data.device),
        "unknown": _unknown_text(len(allocations) - len(known), len(allocations)),
        "file": file_of("timeline"),
    }
    tables = (_shares_table(known, data.device),) if hours["total"] else ()
    tables += (_launches_table(launches),)
    state = f"{percent_number(hours['idle'] / hours['total'])} % idle" if hours["total"] else ""
    return Section(
        "timeline",
        "Timeline",
        template="timeline.html.j2",
        content=content,
        tables=tables,
        state=(state or plural(len(launches), "launch", "launches"), "quiet"),
    )


def known_allocations(allocations: list[dict]) -> list[dict]:
    """Return the allocations whose start and end were recorded."""
    return [row for row in allocations if row["gpu_hours"] is not None]


def allocated_hours(allocations: list[dict]) -> dict[str, float]:
    """Return ranks x hours in total and by part, summed over allocations: shares are computed from these sums."""
    found = dict.fromkeys(("total", *WORDS), 0.0)
    for row in allocations:
        hours = row["nodes"] * row["gpus_per_node"] / 3600
        found["total"] += row["gpu_hours"]
        found["measuring"] += hours * row["measuring_s"]
        found["warmup"] += hours * row["warmup_s"]
        found["other"] += hours * (row["cells_s"] - row["measuring_s"] - row["warmup_s"])
        found["launch_start"] += hours * row["launch_start_s"]
        found["idle"] += row["idle_gpu_hours"]
    return found


def shares_text(hours: dict[str, float], device: str) -> str:
    """Return `Allocated 12.4 GPU hours: 71 % measuring, ..., 8 % idle (0.99 GPU hours).`; empty if none is known."""
    if not hours["total"]:
        return ""
    listed = ", ".join(f"{percent_number(hours[part] / hours['total'])} % {WORDS[part][0]}" for part in WORDS)
    return f"Allocated {rank_time(hours['total'], device)}: {listed} ({rank_time(hours['idle'], device)})."


def _shares_table(allocations: list[dict], device: str) -> Table:
    rows = []
    for (nodes, gpus), of in sorted(grouped(allocations, ("nodes", "gpus_per_node")).items()):
        hours = allocated_hours(of)
        shares = (percent_number(hours[part] / hours["total"]) if hours["total"] else "n/a" for part in WORDS)
        rows.append((shape(nodes, gpus), str(len(of)), three(hours["total"]), *shares, three(hours["idle"])))
    heading = hours_word(device)
    shares = (f"{word} (%)" for _, word in WORDS.values())
    columns = ("Shape", "Allocations", heading[0].upper() + heading[1:], *shares, f"Idle {heading}")
    caption = f"Allocated time by shape (nodes \N{MULTIPLICATION SIGN} {ranks_word(device)} per node)"
    return Table(caption, columns, tuple(rows), sources=("allocations",))


def _launches_table(launches: list[dict]) -> Table:
    """Return the launches in the order of their start: what a bar shows to a pointer."""
    rows = [
        (
            UNKNOWN if row["start_s"] is None else elapsed_text(round(row["start_s"])),
            row["batch"],
            row["stack"],
            shape(row["nodes"], row["gpus_per_node"]),
            row["hosts"] or UNKNOWN,
            UNKNOWN if row["duration_s"] is None else elapsed_text(round(row["duration_s"])),
            *(UNKNOWN if row[num] is None else str(row[num]) for num in ("num_ok", "num_failed")),
        )
        for row in launches
    ]
    columns = ("Start", "Batch", "Stack", "Shape", "Hosts", "Duration", "Ok", "Not ok")
    return Table("Launches", columns, tuple(rows), is_words=True, sources=("timeline",))


def _lead(launches: list[dict]) -> str:
    hosts = {host for row in launches for host in (row["hosts"] or "").split(", ") if host}
    counted = plural(len(launches), "launch", "launches") + (f" on {plural(len(hosts), 'host')}" if hosts else "")
    known = [row for row in launches if row["duration_s"] is not None]
    if not known:
        return f"{counted}, without recorded times."
    first, last = min(row["start_utc"] for row in known), max(row["end_utc"] or row["start_utc"] for row in known)
    elapsed = long_duration(max(row["end_s"] for row in known) / 3600)
    unknown = (
        f" Times not recorded: {plural(len(launches) - len(known), 'launch', 'launches')}."
        if len(known) < len(launches)
        else ""
    )
    return f"{counted}, from {first} to {last} ({elapsed}).{unknown}"


def _unknown_text(num_unknown: int, num: int) -> str:
    if not num_unknown:
        return ""
    if num_unknown == num:
        return "Start and end of allocations were not recorded: idle time unknown."
    which = f"{num_unknown} of {plural(num, 'allocation')}"
    return f"Start or end of {which} not recorded: excluded from these shares, idle time unknown."


def findings(data: ReportData) -> list[Finding]:
    """Return the finding on idle allocations, if they are idle for more than MAX_IDLE_RATIO of their time."""
    table = data.tables["allocations"]
    known = table[table["gpu_hours"].notna()]
    hours = allocated_hours(plain_rows(known, tuple(ALLOCATIONS)))
    if not hours["total"] or hours["idle"] / hours["total"] <= MAX_IDLE_RATIO:
        return []
    by_idle = known.sort_values("idle_gpu_hours", ascending=False, kind="stable")
    values = {"idle_hours": hours["idle"], "allocated_hours": hours["total"], "num": len(known), "device": data.device}
    values["idle_ratio"] = hours["idle"] / hours["total"]
    return [Finding("idle_allocations", values, (of_rows("allocations", by_idle),))]


def sentence(finding: Finding) -> str:
    values = finding.values
    idle, allocated = (rank_time(values[name], values["device"]) for name in ("idle_hours", "allocated_hours"))
    return (
        f"Allocations idle for {percent_number(values['idle_ratio'])} % of their time: {idle} of {allocated} in"
        f" {plural(values['num'], 'allocation')}."
    )


def methods(_campaign: dict) -> list[tuple[str, str]]:
    text = (
        "An allocation lasts from the first to the last action of the supervisor in a job; waiting in the queue is not"
        " included. Measuring: samples and windows. Setup, checks: the rest of the cells. Launch startup: launches"
        " outside their cells. Idle: the allocation outside its launches. GPU hours: ranks of the shape, times hours."
        " Shares are computed from sums."
    )
    return [("Allocated time", text)]


TABLES = {
    "timeline": TableSpec(TIMELINE, lambda _, tables: timeline_table(tables["launches"], tables["jobs"])),
    "allocations": TableSpec(ALLOCATIONS, lambda _, tables: allocations_table(tables["launches"], tables["jobs"])),
}
TOPIC = Topic("timeline", "Timeline", TABLES, section, findings, sentence, methods=methods)
