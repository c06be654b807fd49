"""The launches of each cell in the data block: status, cause, times, hosts, and the command line that ran."""

import shlex
from collections.abc import Mapping

import pandas as pd

from regatta.core.text import is_unknown, three, time_scale
from regatta.report.block_values import Texts, printable
from regatta.report.page import STATUSES, marked_status, shown_status
from regatta.report.rows import table_rows
from regatta.report.same_hosts import hosts_by_launch, other_results

MOST_LAUNCHES_WITH_QUANTILES = 30_000  # about 1.5 MB of data; beyond, a launch has only its medians
DIGITS = 4  # of a launch's times
TIMES = {"window": "pipelined"} | {
    name: name for name in ("min", "p50", "p75", "p90", "p95", "p99", "max")
}  # to labels
WORST_FIRST = (*(status for status in STATUSES if status != "ok"), "ok")
TEXTS = ("launch", "status", "cause", "file", "line", "log", "others")


def add_launches(columns: dict, places: Mapping[str, int], tables: Mapping, words: Texts, files: Texts) -> dict:
    """Return the launches of all cells in order, and add the status, counts and reason of each cell to `columns`."""
    measurements, failures = tables["measurements"], tables["failures"]
    logs, others = (
        dict(zip(failures["launch"], failures["log"], strict=True)),
        other_results(measurements, tables["launches"]),
    )
    is_large = len(measurements) > MOST_LAUNCHES_WITH_QUANTILES
    times = {name: "window_step_s" if name == "window" else f"{name}_s" for name in TIMES}
    times = {name: column for name, column in times.items() if not is_large or name in ("window", "p50")}
    rows_of: list[list] = [[] for _ in places]
    statuses = list(shown_status(measurements))
    for number, row in enumerate(table_rows(measurements)):
        if row.cell in places:
            rows_of[places[row.cell]].append((number, row))
    found: dict[str, list] = {name: [] for name in (*TEXTS, *times)}
    columns |= {name: [] for name in ("status", "num_planned", "num_ok", "row", "reason", "time_unit")}
    for rows in rows_of:
        planned = [(number, row) for number, row in rows if not is_unknown(row.repeat)]
        medians = [row.p50_s for _, row in planned if not is_unknown(row.p50_s)]
        factor, unit = time_scale(medians[0]) if medians else (1, "s")
        here = [statuses[number] for number, _ in rows]
        columns["status"].append(min(here, key=WORST_FIRST.index, default="not_measured"))
        columns["num_planned"].append(len(planned))
        columns["num_ok"].append(here.count("ok"))
        columns["row"].append(rows[0][0] + 2 if rows else None)  # line 1 of the file has the headings
        reasons = [row.cause for _, row in rows if is_unknown(row.repeat)]
        columns["reason"].append(words.index(reasons[0]) if reasons else None)
        columns["time_unit"].append(unit)
        for number, row in planned:
            status, other = statuses[number], others.get(number)
            texts = (marked_status(status, None if is_unknown(row.phase) else row.phase), row.cause)
            found["launch"].append(int(row.repeat) + 1)
            for name, text in zip(("status", "cause"), texts, strict=True):
                found[name].append(words.index(text))
            found["file"].append(files.index(row.launch))
            found["line"].append(None if is_unknown(row.line) else int(row.line))
            found["log"].append(None if status == "ok" else words.index(logs.get(row.launch)))
            found["others"].append(words.index(other and other.text))
            for name, column in times.items():
                found[name].append(_time(getattr(row, column), factor))
    return found


def _time(seconds: float | None, factor: float) -> str | None:
    """Return a time as text that a script can also read as a number."""
    return None if is_unknown(seconds) else three(seconds * factor, DIGITS).replace(",", "")


def launch_files(files: list[str], headers: list[dict], launches: pd.DataFrame) -> dict[str, list]:
    """Return names, hosts and command lines of launch files; None if they were not recorded."""
    hosts = hosts_by_launch(launches)
    lines = {header.get("launch"): header.get("argv") for header in headers}
    return {
        "names": files,
        "hosts": [hosts.get(file) for file in files],
        "argv": [command_line(lines[file]) if lines.get(file) else None for file in files],
    }


def command_line(argv: list) -> str:
    """Return a command with its arguments quoted for a shell."""
    return printable(shlex.join(map(str, argv)))
