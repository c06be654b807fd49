"""The launches of each cell in the data block: status, cause, times, hosts, and the command line that ran."""

import shlex
from collections.abc import Mapping

import pandas as pd

from regatta.report.block_values import Texts, column_values, printable, rounded
from regatta.report.page import STATUSES, marked_status, shown_status
from regatta.report.same_hosts import hosts_by_launch, other_results

MOST_LAUNCHES_WITH_QUANTILES = 30_000  # about 1.5 MB of data; beyond, a launch has only its medians
DIGITS = 4  # of a launch's times, as the drawer shows them
QUANTILES = ("min", "p50", "p75", "p90", "p95", "p99", "max")
WORST_FIRST = (*(status for status in STATUSES if status != "ok"), "ok")


def add_launches(columns: dict, places: Mapping[str, int], tables: Mapping, texts: Mapping[str, Texts]) -> dict:
    """Return the launches of all cells in order, and add the status, counts and reason of each cell to `columns`."""
    measurements, failures = tables["measurements"], tables["failures"]
    logs = dict(zip(failures["launch"].dropna(), failures["log"][failures["launch"].notna()], strict=True))
    quantiles = QUANTILES if len(measurements) <= MOST_LAUNCHES_WITH_QUANTILES else ("p50",)
    times = {f"{name}_ms": f"{name}_s" for name in quantiles} | {"window_ms": "window_step_s"}
    names = ("cell", "repeat", "phase", "cause", "launch", "line", *times.values())
    table = {name: column_values(measurements, name) for name in names} | {"status": list(shown_status(measurements))}
    rows_of: list[list[int]] = [[] for _ in places]
    for row, cell in enumerate(table["cell"]):
        if cell in places:
            rows_of[places[cell]].append(row)
    planned = [[row for row in rows if table["repeat"][row] is not None] for rows in rows_of]
    status = [[table["status"][row] for row in rows] for rows in rows_of]
    columns["status"] = [min(found, key=WORST_FIRST.index, default="not_measured") for found in status]
    columns["num_planned"] = [len(rows) for rows in planned]
    columns["num_ok"] = [found.count("ok") for found in status]
    columns["row"] = [rows[0] + 2 if rows else None for rows in rows_of]  # line 1 of the file has the headings
    reasons = [next((table["cause"][row] for row in rows if table["repeat"][row] is None), None) for rows in rows_of]
    columns["reason"] = [texts["causes"].index(reason) for reason in reasons]
    in_order = [row for rows in planned for row in rows]
    others = other_results(measurements, tables["launches"])
    found = {
        "repeat": [int(table["repeat"][row]) for row in in_order],
        "status": [
            texts["statuses"].index(marked_status(table["status"][row], table["phase"][row])) for row in in_order
        ],
        "cause": [texts["causes"].index(table["cause"][row]) for row in in_order],
        "file": [texts["files"].index(table["launch"][row]) for row in in_order],
        "line": [table["line"][row] for row in in_order],
        "log": [
            None if table["status"][row] == "ok" else texts["logs"].index(logs.get(table["launch"][row]))
            for row in in_order
        ],
        "others": [texts["words"].index(others[row].text) if row in others else None for row in in_order],
    }
    for name, column in times.items():
        found[name] = [rounded(table[column][row], 1e3, DIGITS) for row in in_order]
    return found


def launch_files(files: list[str], headers: list[dict], launches: pd.DataFrame) -> dict[str, list]:
    """Return hosts and command line of each launch file; None if they were not recorded."""
    hosts = hosts_by_launch(launches)
    lines = {header.get("launch"): header.get("argv") for header in headers}
    return {
        "hosts": [hosts.get(file) for file in files],
        "argv": [command_line(lines[file]) if lines.get(file) else None for file in files],
    }


def command_line(argv: list) -> str:
    """Return a command with its arguments quoted for a shell."""
    return printable(shlex.join(map(str, argv)))
