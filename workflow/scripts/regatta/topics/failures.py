"""Failures grouped by cause: one broken node often fails many cells with nearly the same message."""

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from regatta.campaign.program_entries import OUTPUT, is_unread, writes_output
from regatta.core.names import PLACE as IN_NAMES
from regatta.core.names import SEPARATOR, CellName
from regatta.core.patterns import LEAST_AFFECTED, Pattern, axes_of, find_pattern, launches_text
from regatta.core.text import UNKNOWN, is_unknown, natural, one_line, plural, rank_time, shape, status_text
from regatta.kit.columns import TEXT, Columns, in_file
from regatta.kit.kinds import NOTE, RESULT, SUMMARY, Kind
from regatta.report.cell_launches import HOST, same_host
from regatta.report.findings import PROBLEMS, Finding, Source, file_of, of_runs
from regatta.report.page import NO_RECORD, STATUSES, shown_status
from regatta.report.panels import Section
from regatta.run.causes import ABSENT, log_excerpt, read_log_tail, without_host
from regatta.store.csv_files import MEASUREMENTS, grouped, make_table, plain_rows
from regatta.store.history import ALWAYS_RETRIED
from regatta.tables.places import workload_of
from regatta.tables.times import hosts_by_launch
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report
from regatta.topics.failing_hosts import Run, failing_hosts
from regatta.topics.slow_places import LAUNCHES
from regatta.topics.timeline import allocated_hours

_LOG = in_file(TEXT, "log of the launch, relative to the results folder", "log")
FAILURES = Columns(*MEASUREMENTS.named("cell", "repeat", "status", "phase", "cause", "launch", "command"), *_LOG)
BATCH = r"^(.+)-l\d+-a\d+$"  # in the name of a launch: <batch>-l<number>-a<attempt>
FROM_RANK = (
    r"(?s)^(?:(?P<where>rank \d+ on (?:host )?[^\s:]+): )?(?P<said>.*)$"  # a cause, with the rank that reports it
)
RANK = r"\b(?:rank|task) (\d+)"  # that a cause names
NUMBER = re.compile(r"\d+(\.\d+)?")  # sizes, ports, ranks and times vary for one cause
PLACE = ("nodes", "gpus_per_node", "stack")
MOST_OF_CAUSE = 60  # characters, in the summary


def failures_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each planned cell and repeat that is not ok, then one for each skipped cell."""
    bad = measurements[measurements["status"] != "ok"]
    bad = bad.assign(log=[log_path(launch) for launch in bad["launch"]])
    rows = plain_rows(bad, tuple(bad))
    rows.sort(key=lambda row: (row["status"] == "skipped", natural(row["cell"]), row["repeat"] or 0))
    return make_table(rows, FAILURES)


def log_path(launch: str | None) -> str | None:
    """Return where the output of a launch is, relative to the results folder."""
    match = None if is_unknown(launch) else re.match(BATCH, launch)
    return f"batches/{match[1]}/logs/{launch}.log" if match else None


def section(data: ReportData) -> Section:
    """Return the failures grouped by cause, and the skipped cells by reason."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    content = {
        "num_planned": len(planned),
        "groups": groups_of(data, data.launches.parent),
        "skipped": skipped_groups(data.tables["failures"]),
    }
    num_bad = int((planned["status"] != "ok").sum())
    state = (f"{num_bad} not ok", "bad") if num_bad else ("none", "good")
    return Section(template="failures.html.j2", content=content, state=state)


def lost_hours(timeline: pd.DataFrame, measurements: pd.DataFrame) -> pd.Series:
    """Return ranks x hours, or unknown, of launches without a valid record and of failed records of others."""
    launches = timeline[(timeline["num_ok"] == 0).fillna(False)]
    is_record = measurements["launch"].notna() & ~measurements["status"].isin(["ok", "skipped", "not_measured"])
    records = measurements[is_record & ~measurements["launch"].isin(launches["launch"])]
    in_launches = launches["duration_s"] * launches["nodes"] * launches["gpus_per_node"]
    return pd.concat([in_launches, records["elapsed_s"] * records["world_size"]]) / 3600


KINDS = (
    Kind(
        *("failed", SUMMARY),
        lead=(
            "Failed: {num_failed} of {num_planned:measurement}",
            "Missing: {num_not_measured} of {num_planned:measurement}, none failed",
            "Failed: 0 of {num_planned:measurement}",
            "No measurement was planned",
        ),
        parts=(
            ("{statuses}", "most common: {most} {what}", "{what}"),
            "others: {others}",
            "{missing}",
            ("{lost} lost to failures, and {num_lost_unknown:failure} of unknown duration", "{lost} lost to failures"),
            "{loaded}",
        ),
        next_step=(
            "run the programs of {imported:failure} again, and import their output",
            "read {num_of_cause:output} again: edit `read` or `check`, `{try_read} BENCHMARK={program} FILE={output}`,"
            " then `{run}`; or fix the program, then `{retry}`",
            "install {absent} or correct its `command`; then `{retry}`",
            "retry {num_failed:failure} after repairing {repaired}: `{retry}`",
            "retry {num_failed:failure} on other nodes: `exclude_nodes: [{exclude}]`, `{retry}`",
            "retry {num_failed:failure}: `{retry}`",
        ),
        place=6,
        term="Time lost",
        help="Launches without a valid record: duration × ranks. Other launches: recorded duration of each failed cell"
        " × ranks. Idle time is not included.",
    ),
    Kind(
        *("missing_launches", NOTE),
        lead="Incomplete cells: {num} of {num_cells:cell} have fewer valid launches than planned.",
        advice=(
            "Run the programs of {imported:failure} again, and import their output.",
            "Edit `read` or `check` if they did not fit the output of a program ({num_unread:measurement}), and run"
            " `{run}`: it reads the kept output. Run `{retry}` to retry failures.",
            "Run `{run}` for {num_missing:missing measurement}; retry failures: `{retry}`.",
            "Run `{retry}` to retry failures.",
        ),
        next_step="run {num_missing:missing measurement}: `{run}`",
    ),
    Kind(
        *("interrupted", RESULT),
        lead="Interrupted job: {batch}, {end}. Its measurements are valid. The next job continues the batch.",
        parts=("Job {job}.", "Hosts: {hosts}.", "{cause}"),
    ),
    Kind("avoided_node", RESULT, "Avoided node: {text}. Readmit it with clear_nodes.py."),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the line of the summary, and the findings on incomplete cells, interrupted jobs and avoided nodes."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    bad, found = planned[planned["status"] != "ok"], [_summary(data, planned)]
    if cells := tuple(bad["cell"].unique()):
        values = {"num": len(cells), "num_cells": int(planned["cell"].nunique())}
        values |= {"num_missing": int(bad["status"].isin(["not_measured", *ALWAYS_RETRIED]).sum())}
        values["num_unread"] = sum(map(is_unread, plain_rows(bad, ("benchmark", "status", "phase"))))
        words = {"imported": len(bad) if data.campaign.imported else None}
        found.append(Finding("missing_launches", values, (of_runs("failures", bad),), cells, words=words))
    for job in data.problems.get("interrupted", []):
        words = {"end": status_text(job["kind"])}
        found.append(Finding("interrupted", job, (Source(PROBLEMS, what="interrupted"),), words=words))
    nodes = data.problems.get("blamed_nodes", [])
    return found + [Finding("avoided_node", node, (Source(PROBLEMS, what="blamed_nodes"),)) for node in nodes]


def _summary(data: ReportData, planned: pd.DataFrame) -> Finding:
    """Return how many measurements failed, what those with the most common cause share, and what they cost."""
    failed = Counter(shown_status(planned))
    del failed["ok"]
    missing = {status: failed.pop(status) for status in NO_RECORD if status in failed}
    hours = allocated_hours(data.tables["allocations"])
    lost_by = lost_hours(data.tables["timeline"], data.measurements)
    lost = float(lost_by.sum()) if lost_by.count() else None
    values = {"num_planned": len(planned), "num_failed": failed.total(), "num_not_measured": sum(missing.values())}
    values |= {"lost_hours": lost, "num_lost_unknown": int(lost_by.isna().sum())}
    values |= {f"{name}_hours": hours[name] if hours["total"] else None for name in ("idle", "measuring")}
    values["allocated_hours"] = hours["total"] or None
    words = {"missing": [f"{num} {status_text(status)}" for status, num in missing.items()] if failed else []}
    words["mark"] = "failed" if failed else "complete" if len(planned) and not missing else "missing"
    words["lost"] = rank_time(lost, data.device) if failed and lost is not None else ""
    if failed:
        words["imported"] = failed.total() if data.campaign.imported else None
        groups = [group for group in groups_of(data) if group["status"] not in NO_RECORD]
        most = max(groups, key=lambda group: len(group["items"]))
        num, hosts = len(most["items"]), dict(most["hosts"])
        used = {host for of in data.tables["launches"]["hosts"].dropna() for host in of.split(", ")}
        is_there = max(hosts.values(), default=0) == num or sum(hosts.values()) == num
        there = ", ".join(hosts) if is_there and len(hosts) < len(used) else None  # no other hosts without a choice
        host = there if len(hosts) == 1 else None
        values |= {"num_of_cause": num, "cause": most["cause"], "status": most["status"], "host": host}
        words["repaired" if data.campaign.sweep else "exclude"] = there
        words["absent"] = (most["cause"] or "").partition(ABSENT)[2].replace("`", "'")  # which would begin a command
        values |= _unread(data, most["items"][0])
        pattern = _pattern_of(data, planned, most["items"], set(hosts))
        values["pattern"] = pattern and pattern.values
        shared = _shared(data, planned, most["items"])
        if pattern:
            inside, outside = pattern.counts_text("measurement")
            shared = f"{pattern.text(data.device)} ({inside}, {outside} elsewhere)"
            there = None if there in [condition.value for condition in pattern.conditions] else there
        parts = (status_text(most["status"], most["phase"]), shared, there and f"on {there}")
        what = ", ".join(filter(None, parts)) + (f": {one_line(most['cause'], MOST_OF_CAUSE)}" if most["cause"] else "")
        words |= {"what": what, "most": num if num < failed.total() else None}
        others = Counter(failed) - Counter({most["status"]: num})
        values["others"] = dict(others.most_common())
        words["others"] = ", ".join(f"{num} {status_text(status)}" for status, num in others.most_common())
        if num == 1 < failed.total():  # no cause is more common than the others
            words |= {
                "statuses": ", ".join(f"{num} {status_text(of)}" for of, num in failed.most_common()),
                "others": "",
            }
    for late in (of for of in data.findings_of(LAUNCHES) if of.kind == "loaded_timeouts"):
        values["loaded_timeouts"] = late.numbers
        words["loaded"] = late.text.removesuffix(".")
    return Finding("failed", values, (Source(file_of("failures"), what="all rows"),), words=words)


def _unread(data: ReportData, failure: dict) -> dict[str, str]:
    """Return the program whose output was not read, and the path of that output; empty after other failures."""
    spec, log = next((cell.spec for cell in data.campaign.cells if cell.id == failure["cell"]), {}), failure["log"]
    if not log or not is_unread(failure | {"benchmark": spec.get("benchmark")}):
        return {}
    output = log.replace("/logs/", "/outputs/").removesuffix(".log") + f"/{OUTPUT}" if writes_output(spec) else log
    return {"program": spec["parameters"]["program"], "output": f"results/{data.campaign.name}/{output}"}


def _pattern_of(data: ReportData, planned: pd.DataFrame, items: list[dict], failing: set[str]) -> Pattern | None:
    """Return where some failures are among all measurements that were made, by their cells and failing hosts."""
    axes = {cell.id: axes_of(data.cell_names[cell.id], cell.fields) for cell in data.campaign.cells}
    made = planned[~planned["status"].isin(NO_RECORD) & planned["cell"].isin(axes)]
    made = plain_rows(made, ("cell", "repeat", "hosts"))
    hosts = [failing.intersection((row["hosts"] or "").split(", ")) for row in made]
    rows = [axes[row["cell"]] | {f"host {host}": host for host in of} for row, of in zip(made, hosts, strict=True)]
    failed = {(item["cell"], item["repeat"]) for item in items}
    return find_pattern(rows, [(row["cell"], row["repeat"]) in failed for row in made])


def _shared(data: ReportData, planned: pd.DataFrame, items: list[dict]) -> str:
    """Return what the cells of some failures share, in which launches they are, and how many are inside and outside.

    Launches are named if all of these inside failed. Counts are of measurements that were made.
    """
    text, fields = shared_text([item["cell"] for item in items], data.cell_names)
    if len(items) < LEAST_AFFECTED or not text:
        return text
    failed = {(item["cell"], item["repeat"]) for item in items}
    made = plain_rows(planned[~planned["status"].isin(NO_RECORD)], ("cell", "repeat"))
    names = {cell: data.cell_names.get(cell) for cell in {row["cell"] for row in made}}
    inside = [
        (row["cell"], row["repeat"])
        for row in made
        if (name := names[row["cell"]]) and all(name.parts.get(field) == value for field, value in fields.items())
    ]
    repeats = sorted({repeat for _, repeat in failed})
    of_repeats = [one for one in inside if one[1] in repeats]
    if len(of_repeats) == len(failed) < len(inside):
        text, inside = f"{text}{SEPARATOR}{launches_text([repeat + 1 for repeat in repeats])}", of_repeats
    num = len(failed.intersection(inside))
    return f"{text} ({num:,} of {plural(len(inside), 'measurement')}, none of {len(made) - len(inside):,} elsewhere)"


def shared_text(cells: list[str], names: dict[str, CellName]) -> tuple[str, dict[str, str]]:
    """Return what some cells share among those fields that vary in the campaign: `resnet152 · 8×4 · bound`.

    Also by field.
    """
    found = [names[cell] for cell in dict.fromkeys(cells) if cell in names]
    fields = ("subject", "shape", *IN_NAMES, *found[0].varied) if found else ()
    same = [field for field in fields if len({name.parts.get(field) for name in found}) == 1]
    varied = {field for field in same if len({name.parts.get(field) for name in names.values()}) > 1}
    shared = {field: text for field, text in found[0].parts.items() if field in varied} if found else {}
    return SEPARATOR.join(shared.values()), shared


def groups_of(data: ReportData, folder: Path | None = None) -> list[dict]:
    """Return the groups of failures of a campaign. folder: the results folder, for excerpts of logs."""
    places = data.measurements[["cell", "repeat", *PLACE]]
    failures = data.tables["failures"].merge(places, on=["cell", "repeat"], how="left")
    subjects = {cell: name.parts["subject"] for cell, name in data.cell_names.items()}
    hosts = hosts_by_launch(data.tables["launches"])
    failures = failures.assign(subject=failures["cell"].map(subjects), hosts=failures["launch"].map(hosts))
    groups = failure_groups(failures, folder)
    for group in groups:
        if group["status"] != "node_failure":  # else the scheduler names the node, not a rank
            group["hosts"] = list(_hosts_of(data, group["items"]).items())
        if not group["hosts"]:
            group["cause"] = without_host(group["cause"])
    return groups


@once_per_report
def failing_hosts_of(data: ReportData) -> set[str]:
    """Return the hosts to which any failure is due, as far as it is known."""
    return {host for group in groups_of(data) for host, _ in group["hosts"]}


def _hosts_of(data: ReportData, items: list[dict]) -> dict[str, int]:
    """Return the hosts on which some failures with one cause are significantly more frequent, with their number."""
    workloads, ok = _ok_runs(data)
    runs = []
    for item in items:
        hosts = (item["hosts"] or "").split(", ")
        named, rank = item["host"] and same_host(item["host"], hosts), re.search(RANK, item["cause"] or "")
        place = None if named is None else int(rank[1]) // (item["gpus_per_node"] or 1) if rank else hosts.index(named)
        runs.append(Run(workloads.get(item["cell"], ""), tuple(filter(None, hosts)), True, named, place))
    return failing_hosts(runs + [run for workload in {run.workload for run in runs} for run in ok[workload]])


@once_per_report
def _ok_runs(data: ReportData) -> tuple[dict[str, str], dict[str, list[Run]]]:
    """Return the workload of each cell, and the ok measurements of each workload."""
    workloads = {cell.id: workload_of(cell) if cell.hosts else cell.id for cell in data.campaign.cells}
    found = defaultdict(list)
    for row in plain_rows(data.ok.dropna(subset=["hosts"]), ("cell", "hosts")):
        workload = workloads.get(row["cell"], "")
        found[workload].append(Run(workload, tuple(row["hosts"].split(", ")), False))
    return workloads, found


def failure_groups(failures: pd.DataFrame, folder: Path | None = None) -> list[dict]:
    """Return what is not ok, grouped by status, phase and cause, ignoring numbers and hosts in the cause.

    failures: rows of failures.csv with the columns of PLACE, `subject` (model or operation), and `hosts` of the launch.
    folder: the results folder, for an excerpt of a log of each group, or None. hosts of a group: those that causes
    name, with the number of causes. launch_hosts: all on which it ran.
    """
    failures = failures.assign(status=shown_status(failures))
    bad = failures[failures["status"] != "skipped"]
    causes = bad["cause"].astype("string").fillna("")
    bad = bad.join(causes.str.extract(FROM_RANK)).assign(host=causes.str.extract(HOST)["host"])
    bad["message"] = bad["said"].str.replace(HOST, r"\g<before>-", regex=True)
    keys = [bad["status"], bad["phase"].fillna(""), bad["message"].str.replace(NUMBER, "0", regex=True)]
    groups = []
    for (status, phase, _), rows in bad.groupby(keys, sort=True):
        items, named = plain_rows(rows, tuple(rows)), rows["host"].value_counts()
        of_launches = ", ".join(rows["hosts"].dropna()).split(", ")
        shapes = {shape(item["nodes"], item["gpus_per_node"]) for item in items if item["nodes"] is not None}
        group = {"status": status, "phase": phase or None, "cause": rows["said"].mode()[0] or UNKNOWN, "items": items}
        group |= {"num_messages": rows["message"].nunique(), "excerpt": _excerpt(items, folder)}
        group |= {"cells": grouped(items, ("cell",)), "shapes": sorted(shapes, key=natural)}
        group |= {"subjects": _distinct(rows["subject"]), "stacks": _distinct(rows["stack"])}
        group |= {"hosts": [(host, int(named[host])) for host in _distinct(rows["host"])]}
        groups.append(group | {"launch_hosts": _distinct(of_launches)})
    return sorted(groups, key=lambda group: (STATUSES.index(group["status"]), -len(group["items"]), group["cause"]))


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted({text for text in texts if not is_unknown(text)} - {""}, key=natural)


def skipped_groups(failures: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return (reason, cells) of the skipped cells."""
    skipped = failures[shown_status(failures) == "skipped"]
    return [(reason, _distinct(rows["cell"])) for reason, rows in skipped.groupby("cause", sort=True)]


def _excerpt(items: list[dict], folder: Path | None) -> tuple[str, list[str]] | None:
    """Return (log, lines that explain the failure) of the first item whose log exists and is not empty."""
    for item in items if folder else ():
        if item["log"]:
            with contextlib.suppress(OSError):
                if lines := log_excerpt(read_log_tail(folder / item["log"]), item["cause"] or ""):
                    return item["log"], lines
    return None


TABLES = {"failures": TableSpec.of(FAILURES, failures_table, "measurements")}
TOPIC = Topic(*("failures", "Failures", TABLES, section, findings), is_of_sweeps=True, kinds=KINDS)
