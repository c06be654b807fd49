"""Failures grouped by cause: one broken node often fails many cells with nearly the same message."""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from regatta.core.text import UNKNOWN, natural, plural, rank_time, shape, status_text
from regatta.kit.columns import TEXT, Columns, in_file
from regatta.kit.findings import RESULT, Kind
from regatta.report.findings import PROBLEMS, Advice, Finding, Source, of_runs
from regatta.report.page import STATUSES, shown_status
from regatta.report.panels import Section
from regatta.report.same_hosts import HOST, same_host
from regatta.run.causes import log_excerpt, read_log_tail
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.history import after_now_text
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, plain_rows

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
MOST_NAMED = 3  # damaged places of the store in the warning
MOST_HOSTS = 4  # of launches, if no cause names one; more are counted
PLACE = ("nodes", "gpus_per_node", "stack")


def section(data: ReportData) -> Section:
    """Return the failures grouped by cause, the skipped cells by reason, and the jobs that ended early."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    content = {
        "num_planned": len(planned),
        "most_hosts": MOST_HOSTS,
        "lost": lost_text(lost_time(data.tables["timeline"], data.measurements), data.device),
        "groups": groups_of(data, data.launches.parent),
        "skipped": skipped_groups(data.tables["failures"]),
        "interruptions": interruptions(data.problems),
        "blamed_nodes": [node["text"] for node in data.problems.get("blamed_nodes", [])],
    }
    num_bad = int((planned["status"] != "ok").sum())
    state = (f"{num_bad} not ok", "bad") if num_bad else ("none", "good")
    return Section("failures", "Failures", template="failures.html.j2", content=content, state=state)


@dataclass(frozen=True)
class LostTime:
    """GPU time without a valid record. hours: ranks x hours, None if unknown. num_unknown: entries not in `hours`."""

    num: int
    num_unknown: int
    hours: float | None

    @classmethod
    def of(cls, seconds: pd.Series, num_ranks: pd.Series) -> "LostTime":
        hours = (seconds * num_ranks / 3600).dropna()
        return cls(len(seconds), len(seconds) - len(hours), float(hours.sum()) if len(hours) else None)


def lost_time(timeline: pd.DataFrame, measurements: pd.DataFrame) -> tuple[LostTime, LostTime]:
    """Return the time lost in launches without a valid record, and in failed records of other launches."""
    launches = timeline[(timeline["num_ok"] == 0).fillna(False)]
    is_record = measurements["launch"].notna() & ~measurements["status"].isin(["ok", "skipped", "not_measured"])
    records = measurements[is_record & ~measurements["launch"].isin(launches["launch"])]
    return (
        LostTime.of(launches["duration_s"], launches["nodes"] * launches["gpus_per_node"]),
        LostTime.of(records["elapsed_s"], records["world_size"]),
    )


def lost_text(lost: tuple[LostTime, LostTime], device: str) -> str:
    """Return `Time lost: 1.2 GPU hours in 3 launches without a valid record; ...`; empty if there are none."""
    others = " of other launches" if lost[0].num else ""
    words = ("launch", "launches", " without a valid record"), ("failed measurement", None, others)
    parts = []
    for one, (noun, nouns, which) in zip(lost, words, strict=True):
        if one.num:
            time = UNKNOWN if one.hours is None else rank_time(one.hours, device)
            unknown = f" (time of {one.num_unknown} unknown)" if one.num_unknown else ""
            parts.append(f"{time} in {plural(one.num, noun, nouns)}{which}{unknown}")
    return f"Time lost: {'; '.join(parts)}." if parts else ""


def methods(campaign: dict) -> list[tuple[str, str]]:
    text = (
        "Launches without a valid record: duration × GPUs (processes on CPUs). Other launches: duration of each failed"
        " cell × ranks. Idle time of allocations is not included (see Timeline). n/a if times were not recorded."
    )
    return [("Time lost", text)]


KINDS = (
    Kind(
        *("not_ok", RESULT),
        lead="Incomplete: {num} of {num_planned:planned measurement} have no valid result ({listed}).",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the finding on planned measurements without a valid record."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    bad = planned[planned["status"] != "ok"]
    if bad.empty:
        return []
    values = {"num": len(bad), "num_planned": len(planned), "by_status": dict(bad["status"].value_counts())}
    sources = (of_runs("failures", bad), Source("measurements.csv", what="all rows with a repeat"))
    counts = {"not_started" if status == "skipped" else status: num for status, num in values["by_status"].items()}
    listed = ", ".join(f"{num} {status_text(status)}" for status, num in sorted(counts.items()))
    return [Finding("not_ok", values, sources, tuple(bad["cell"].unique()), words={"listed": listed})]


def warnings(data: ReportData) -> list[Advice]:
    found = (_invalid(data.problems), _after_now(data.problems), _fewer_launches(data.measurements))
    return list(filter(None, found))


def _invalid(problems: dict) -> Advice | None:
    corrupt, num_torn, num_invalid = problems["corrupt"], len(problems["corrupt"]), len(problems["invalid"])
    if num_torn + num_invalid == 0:
        return None
    kinds = [(num_torn, "integrity error"), (num_invalid, "invalid line")]
    listed = " and ".join(plural(num, noun) for num, noun in kinds if num)
    named = f": {'; '.join(corrupt[:MOST_NAMED])}" + (" and others" if num_torn > MOST_NAMED else "") if corrupt else ""
    return Advice(
        f"The store has {listed}{named}.",
        "Methods lists all damage; damaged lines are excluded. A killed job or a full disk truncates the last line of a"
        " file; for other damage, check the disk. The next run repeats the lost measurements.",
        (Source(PROBLEMS, what="corrupt, invalid"),),
        {"num_torn": num_torn, "num_invalid": num_invalid},
    )


def _after_now(problems: dict) -> Advice | None:
    ahead = sorted((launch["time_utc"], launch["launch"]) for launch in problems.get("after_now", []))
    if not ahead:
        return None
    return Advice(
        f"{after_now_text(len(ahead), *ahead[-1])}.",
        "Synchronize the clocks of all machines. The order of records does not depend on clocks: a retry supersedes"
        " older records.",
        (Source(PROBLEMS, what="after_now"),),
        {"num": len(ahead)},
    )


def _fewer_launches(measurements: pd.DataFrame) -> Advice | None:
    planned = measurements[measurements["repeat"].notna()]
    num_ok = (planned["status"] == "ok").groupby(planned["cell"]).sum()
    short = num_ok.index[num_ok < planned.groupby("cell").size()]
    num_short = len(short)
    if num_short == 0:
        return None
    return Advice(
        f"Missing launches: {num_short} of {plural(len(num_ok), 'cell')} have fewer valid launches than planned.",
        "Run the same command again to measure the missing launches. After fixing the cause of a failure, retry with"
        " --forcerun measure.",
        (of_runs("failures", planned[planned["status"] != "ok"]),),
        {"num": num_short, "num_cells": len(num_ok)},
        tuple(short),
    )


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


TABLES = {"failures": TableSpec(FAILURES, lambda _, tables: failures_table(tables["measurements"]))}
TOPIC = Topic(
    *("failures", "Failures", TABLES, section, findings),
    warnings=warnings,
    methods=methods,
    is_of_sweeps=True,
    kinds=KINDS,
)
