"""What of a campaign failed, gathered by cause: one broken node often fails many cells, in nearly the same words."""

import re
from collections import Counter
from pathlib import Path

import pandas as pd

from regatta.core.text import UNKNOWN, natural, plural
from regatta.launchers import LAUNCHERS
from regatta.store.records import one_line
from regatta.store.tables import FAILURES, make_table

# Everything that was planned and is not ok, and everything that was skipped: tables/failures.csv.

LAUNCH_NAME = re.compile(r"(?P<batch>.+)-l\d+-a\d+")  # <batch>-l<number>-a<attempt>; the log lies with its batch


def failures_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each planned cell and repeat that is not ok, then one for each skipped cell."""
    rows = measurements[measurements["status"] != "ok"].astype(object)
    rows = rows.where(rows.notna(), None).to_dict("records")
    rows.sort(key=lambda row: (row["status"] == "skipped", natural(row["cell"]), row["repeat"] or 0))
    return make_table([row | {"log": log_path(row["launch"])} for row in rows], FAILURES)


def log_path(launch: str | None) -> str | None:
    """Return where the output of a launch is, relative to the results folder."""
    match = LAUNCH_NAME.fullmatch(launch or "")
    return f"batches/{match['batch']}/logs/{launch}.log" if match else None


STATUSES = ("ok", "failed", "timeout", "out_of_memory", "placement", "node_failure", "not_measured", "not_started", "skipped")  # fmt: skip
WHERE_FROM = re.compile(r"^rank \d+ on (host )?[^\s:]+: ")  # whose words a cause begins with
# Ignore hostnames when grouping causes: behind a rank, in the launcher's words, of a node that failed.
BEFORE_HOST = [r"\brank \d+ on (?:host )?", r"\ba node failed \(", *(tool.host_words for tool in LAUNCHERS.values())]
HOST = re.compile(rf"(?P<before>{'|'.join(BEFORE_HOST)})(?P<host>[^\s:,;()]+)")
NUMBER = re.compile(r"\d+(\.\d+)?")  # sizes, ports, ranks and times differ where the cause is one
TAIL_LINES, TAIL_BYTES = 10, 4096


def told_status(rows: pd.DataFrame) -> pd.Series:
    """Return the status of each row as it is told: a planned repeat that was skipped is not_started. What is left as
    skipped are cells that were never planned to run, which have no repeat."""
    is_repeat = (rows["status"] == "skipped") & rows["repeat"].notna()
    return rows["status"].mask(is_repeat.fillna(False), "not_started")


def failure_groups(failures: pd.DataFrame, folder: Path | None = None) -> list[dict]:
    """Return what is not ok, grouped by status, phase and cause, the numbers and the hosts in it apart.

    folder: the results folder, for the last lines of a log of each group; None: without.
    """
    failures = failures.assign(status=told_status(failures))
    bad = failures[failures["status"] != "skipped"]
    keys = bad[["status", "phase", "cause"]].fillna("")
    keys["cause"] = keys["cause"].map(lambda cause: NUMBER.sub("0", _without_host(cause)))
    groups = []
    for (status, phase, _), rows in bad.groupby([keys["status"], keys["phase"], keys["cause"]], sort=True):
        items = rows.astype(object).where(rows.notna(), None).to_dict("records")
        for item in items:
            match = WHERE_FROM.match(item["cause"] or "")
            item["where"] = match[0].removesuffix(": ") if match else None
        causes = Counter(WHERE_FROM.sub("", item["cause"] or "") or UNKNOWN for item in items)
        cause = min(causes, key=lambda text: (-causes[text], text))
        group = {"status": status, "phase": phase or None, "cause": cause, "shared": _shared(items), "items": items}
        groups.append(group | {"tail": _tail([item["log"] for item in items], folder)})
    return sorted(groups, key=lambda group: (STATUSES.index(group["status"]), -len(group["items"]), group["cause"]))


def skipped_groups(failures: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return (reason, cells) of the cells that were never planned to run."""
    skipped = failures[told_status(failures) == "skipped"]
    return [(reason, sorted(rows["cell"], key=natural)) for reason, rows in skipped.groupby("cause", sort=True)]


def _without_host(cause: str) -> str:
    return HOST.sub(r"\g<before>-", WHERE_FROM.sub("", cause))


def _shared(items: list[dict]) -> str:
    """Return of how many wordings the cause of a group is one, and on which hosts it was: `all on n5`. Empty if there is
    nothing to say."""
    wordings = Counter(_without_host(item["cause"] or "") for item in items)
    hosts = Counter(match["host"] for item in items if (match := HOST.search(item["cause"] or "")))
    told = []
    if len(wordings) > 1:
        is_even = len(set(wordings.values())) == 1
        told.append(f"{'One' if is_even else 'The commonest'} of {len(wordings)} wordings that differ in their numbers")
    if len(items) > 1 and hosts:
        is_one = list(hosts.values()) == [len(items)]
        names = ", ".join(f"{host} ({plural(hosts[host], 'measurement')})" for host in sorted(hosts, key=natural))
        told.append(f"all on {next(iter(hosts))}" if is_one else f"on {names}")
    return "; ".join(told)


def _tail(logs: list[str | None], folder: Path | None) -> tuple[str, list[str]] | None:
    """Return (log, its last lines) of the first log that is there."""
    for log in dict.fromkeys(log for log in logs if log and folder):
        try:
            with (folder / log).open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
        except OSError:
            continue
        lines = [one_line(line, 200) for line in lines if line.strip()]
        if lines:
            return log, lines
    return None
