"""Failures grouped by cause: one broken node often fails many cells with nearly the same message."""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from regatta.core.names import PLACE as IN_NAMES
from regatta.core.names import SEPARATOR, CellName
from regatta.core.text import UNKNOWN, natural, rank_time, shape, status_text
from regatta.kit.columns import TEXT, Column, Columns, in_file
from regatta.kit.findings import NOTE, SUMMARY, Kind, Value
from regatta.report.findings import Finding, Source, file_of, of_runs
from regatta.report.page import STATUSES, shown_status
from regatta.report.panels import Section
from regatta.report.same_hosts import HOST, same_host
from regatta.run.causes import log_excerpt, read_log_tail
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, plain_rows
from regatta.topics.matrix import NO_RECORD
from regatta.topics.timeline import allocated_hours

_LOG = in_file(TEXT, "log of the launch, relative to the results folder", "log")
FAILURES = Columns(*MEASUREMENTS.named("cell", "repeat", "status", "phase", "cause", "launch", "command"), *_LOG)
LAUNCH_NAME = re.compile(r"(?P<batch>.+)-l\d+-a\d+")  # <batch>-l<number>-a<attempt>


def failures_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each planned cell and repeat that is not ok, then one for each skipped cell."""
    rows = plain_rows(measurements[measurements["status"] != "ok"], tuple(measurements))
    rows.sort(key=lambda row: (row["status"] == "skipped", natural(row["cell"]), row["repeat"] or 0))
    return make_table([row | {"log": log_path(row["launch"])} for row in rows], FAILURES)


def log_path(launch: str | None) -> str | None:
    """Return where the output of a launch is, relative to the results folder."""
    match = LAUNCH_NAME.fullmatch(launch or "")
    return f"batches/{match['batch']}/logs/{launch}.log" if match else None


WHERE_FROM = re.compile(r"^rank \d+ on (host )?[^\s:]+: ")  # the rank that reports a cause
NUMBER = re.compile(r"\d+(\.\d+)?")  # sizes, ports, ranks and times vary for one cause
MOST_HOSTS = 4  # of launches, if no cause names one; more are counted
PLACE = ("nodes", "gpus_per_node", "stack")
LEAST_IDLE_RATIO = 0.01  # of the allocated time; less is not shown
SHARE = Column("share_ratio", shown_as="%", figures=2)


def section(data: ReportData) -> Section:
    """Return the failures grouped by cause, the skipped cells by reason, and the jobs that ended early."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    content = {
        "num_planned": len(planned),
        "most_hosts": MOST_HOSTS,
        "groups": groups_of(data, data.launches.parent),
        "skipped": skipped_groups(data.tables["failures"]),
        "interruptions": interruptions(data.problems),
        "blamed_nodes": [node["text"] for node in data.problems.get("blamed_nodes", [])],
    }
    num_bad = int((planned["status"] != "ok").sum())
    state = (f"{num_bad} not ok", "bad") if num_bad else ("none", "good")
    return Section("failures", "Failures", template="failures.html.j2", content=content, state=state)


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
            "Failed: 0 of {num_planned:measurement}",
            "No measurement was planned",
        ),
        parts=(
            ("{statuses}", "most common: {most} {what}", "{what}"),
            "{missing}",
            ("{lost} lost to failures, besides {num_lost_unknown} of unknown length", "{lost} lost to failures"),
            "{idle} idle ({idle_ratio:number} of the allocated time, measuring {measuring_ratio:number})",
        ),
        next_step=(
            "retry {num_failed:failure} without the failing node: `exclude_nodes: [{host}]`, `--forcerun measure`",
            "retry {num_failed:failure}: `snakemake --forcerun measure`",
        ),
        term="Time lost",
        help="Launches without a valid record: duration × GPUs (processes on CPUs). Other launches: duration of each"
        " failed cell × ranks, if it was recorded. Idle time of allocations is not included.",
    ),
    Kind(
        *("missing_launches", NOTE),
        lead="Incomplete cells: {num} of {num_cells:cell} have fewer valid launches than planned.",
        advice="Run `snakemake` to measure what is missing; add `--forcerun measure` to retry failures.",
        next_step="measure what is missing: `snakemake`",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the line of the summary, and the finding on cells without all their valid records."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    bad, found = planned[planned["status"] != "ok"], [_summary(data, planned)]
    if cells := tuple(bad["cell"].unique()):
        values = {"num": len(cells), "num_cells": int(planned["cell"].nunique())}
        values |= {"num_failed": found[0].values["num_failed"]}
        found.append(Finding("missing_launches", values, (of_runs("failures", bad),), cells, "warnings"))
    return found


def _summary(data: ReportData, planned: pd.DataFrame) -> Finding:
    """Return how many measurements failed, what those with the most common cause share, and what they cost."""
    statuses = Counter(shown_status(planned))
    missing = {status: num for status, num in statuses.items() if status in NO_RECORD}
    failed = {status: num for status, num in statuses.most_common() if status not in ("ok", *missing)}
    values = {"num_planned": len(planned), "num_failed": sum(failed.values())}
    values["num_not_measured"] = sum(missing.values())
    allocations = data.tables["allocations"].dropna(subset="gpu_hours")
    hours = allocated_hours(plain_rows(allocations, tuple(allocations)))
    lost_by = lost_hours(data.tables["timeline"], data.measurements)
    values["lost_hours"] = lost = float(lost_by.sum()) if lost_by.count() else None
    values["num_lost_unknown"] = int(lost_by.isna().sum())
    values |= {f"{name}_hours": hours[name] if hours["total"] else None for name in ("idle", "measuring")}
    values["allocated_hours"] = hours["total"] or None
    words = {"missing": [f"{num} {status_text(status)}" for status, num in missing.items()]}
    is_idle = hours["total"] and hours["idle"] / hours["total"] >= LEAST_IDLE_RATIO
    longer = max(lost or 0, hours["idle"] if is_idle else 0)
    words["lost"] = "" if lost is None else rank_time(lost, data.device, longer)
    if is_idle:
        words |= {"idle": rank_time(hours["idle"], data.device, longer)}
        words |= {f"{name}_ratio": Value(SHARE, hours[name] / hours["total"]) for name in ("idle", "measuring")}
    if failed:
        groups = [group for group in groups_of(data) if group["status"] not in NO_RECORD]
        most = max(groups, key=lambda group: len(group["items"]))
        num = len(most["items"])
        values |= {"num_of_cause": num, "cause": most["cause"], "status": most["status"]}
        hosts = [f"on {host}" for host, of_host in most["hosts"] if len(most["hosts"]) == 1 and of_host == num]
        values["host"] = most["hosts"][0][0] if hosts else None
        shared = shared_text([item["cell"] for item in most["items"]], data.cell_names)
        words["what"] = ", ".join(filter(None, (status_text(most["status"], most["phase"]), shared, *hosts)))
        words["most"] = num if num < values["num_failed"] else None
        if num == 1 < values["num_failed"]:  # no cause is more common than the others
            words["statuses"] = ", ".join(f"{num} {status_text(status)}" for status, num in failed.items())
    return Finding("failed", values, (Source(file_of("failures"), what="all rows"),), words=words)


def shared_text(cells: list[str], names: dict[str, CellName]) -> str:
    """Return what some cells share among those fields that vary in the campaign: `resnet152 · 8×4 · bound`."""
    found = [names[cell] for cell in dict.fromkeys(cells) if cell in names]
    fields = ("subject", "shape", *IN_NAMES, *found[0].varied) if found else ()
    same = [field for field in fields if len({name.parts.get(field) for name in found}) == 1]
    varied = {field for field in same if len({name.parts.get(field) for name in names.values()}) > 1}
    return SEPARATOR.join(text for field, text in found[0].parts.items() if field in varied) if found else ""


ENDS = {"no_start": "no rank started", "node_failure": "a node failed", "stopped": "stopped"}


def interruptions(problems: dict) -> list[str]:
    """Return a line for each job that ended before its batch was finished."""
    lines = []
    for job in problems.get("interrupted", []):
        name = f"{job['batch']}, job {job['job']}" if job["job"] else job["batch"]
        on_hosts = f" ({', '.join(job['hosts'])})" if job["hosts"] else ""
        lines.append(f"{name}: {ENDS.get(job['kind'], job['kind'])}{on_hosts}: {job['cause']}")
    return lines


def groups_of(data: ReportData, folder: Path | None = None) -> list[dict]:
    """Return the groups of failures of a campaign. folder: the results folder, for excerpts of logs."""
    places = data.measurements[["cell", "repeat", *PLACE]]
    failures = data.tables["failures"].merge(places, on=["cell", "repeat"], how="left")
    subjects = {cell: name.parts["subject"] for cell, name in data.cell_names.items()}
    failures = failures.assign(subject=failures["cell"].map(subjects))
    launches = data.tables["launches"]
    hosts = dict(zip(launches["launch"], launches["hosts"].fillna("").str.split(", "), strict=True))
    return failure_groups(failures, folder, hosts)


def failure_groups(
    failures: pd.DataFrame, folder: Path | None = None, hosts: Mapping[str, list[str]] | None = None
) -> list[dict]:
    """Return what is not ok, grouped by status, phase and cause, ignoring numbers and hosts in the cause.

    failures: rows of failures.csv with the columns of PLACE and `subject`, a model or operation. folder: the results
    folder, for an excerpt of a log of each group, or None. hosts: those of each launch, if known.
    """
    failures = failures.assign(status=shown_status(failures))
    bad = failures[failures["status"] != "skipped"]
    keys = bad[["status", "phase", "cause"]].fillna("")
    keys["cause"] = keys["cause"].map(lambda cause: NUMBER.sub("0", _without_host(cause)))
    groups = []
    for (status, phase, _), rows in bad.groupby([keys["status"], keys["phase"], keys["cause"]], sort=True):
        items = plain_rows(rows, tuple(rows))
        for item in items:
            match = WHERE_FROM.match(item["cause"] or "")
            item["where"] = match[0].removesuffix(": ") if match else None
        causes = Counter(WHERE_FROM.sub("", item["cause"] or "") or UNKNOWN for item in items)
        cause = min(causes, key=lambda text: (-causes[text], text))
        group = {"status": status, "phase": phase or None, "cause": cause, "items": items, "cells": _cells(items)}
        group |= {"messages": _messages(items), "excerpt": _excerpt(items, folder)} | _places(items, hosts or {})
        groups.append(group)
    return sorted(groups, key=lambda group: (STATUSES.index(group["status"]), -len(group["items"]), group["cause"]))


def skipped_groups(failures: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return (reason, cells) of the skipped cells."""
    skipped = failures[shown_status(failures) == "skipped"]
    return [(reason, sorted(rows["cell"], key=natural)) for reason, rows in skipped.groupby("cause", sort=True)]


def _without_host(cause: str) -> str:
    """Return a cause without its rank and host, for grouping."""
    return HOST.sub(r"\g<before>-", WHERE_FROM.sub("", cause))


def _messages(items: list[dict]) -> str:
    """Return how many messages a group has, and which one is shown; empty if there is one."""
    messages = Counter(_without_host(item["cause"] or "") for item in items)
    if len(messages) == 1:
        return ""
    which = "one" if len(set(messages.values())) == 1 else "most frequent"
    return f"{len(messages)} messages, identical except for numbers ({which} shown)"


def _places(items: list[dict], hosts: Mapping[str, list[str]]) -> dict:
    """Return where a group failed: workloads, shapes, stacks, and (host, number of causes that name it).

    launch_hosts: those of its launches if no cause names a host; any of them may have failed. strangers: hosts that a
    cause names although the launch did not run there.
    """
    shapes = {shape(item["nodes"], item["gpus_per_node"]) for item in items if item["nodes"] is not None}
    named, strangers = Counter(), set()
    for item in items:
        if match := HOST.search(item["cause"] or ""):
            named[match["host"]] += 1
            listed = [host for host in hosts.get(item["launch"], ()) if host]
            if listed and same_host(match["host"], listed) is None:
                strangers.add(match["host"])
    of_launches = {host for item in items for host in hosts.get(item["launch"], ()) if host}
    return {
        "subjects": sorted({item["subject"] for item in items if item.get("subject")}, key=natural),
        "shapes": sorted(shapes, key=natural),
        "stacks": sorted({item["stack"] for item in items if item["stack"] is not None}, key=natural),
        "hosts": [(host, named[host]) for host in sorted(named, key=natural)],
        "launch_hosts": [] if named else sorted(of_launches, key=natural),
        "strangers": sorted(strangers, key=natural),
    }


def _cells(items: list[dict]) -> list[dict]:
    """Return each cell of a group with its command and its failed repeats."""
    groups = grouped(items, ("cell",))
    return [{"cell": cell, "command": runs[0]["command"], "runs": runs} for (cell,), runs in groups.items()]


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
