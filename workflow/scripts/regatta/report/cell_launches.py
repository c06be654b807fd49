"""The launches of each cell in the data block: status, cause, times, hosts, and the command line that ran.

Of a failed launch, also how other measurements ended on its hosts: a broken host fails many cells.
"""

import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from regatta.core.files import address
from regatta.core.text import is_unknown, three, time_scale
from regatta.kit.columns import table_rows
from regatta.launchers import LAUNCHERS
from regatta.report.page import PARTLY_FAILED, STATUSES, count_failed, marked_status, shown_status
from regatta.tables.times import hosts_by_launch

MOST_LAUNCHES_WITH_QUANTILES = 30_000  # about 1.5 MB of data; beyond, a launch has only its medians
DIGITS = 4  # of a launch's times
MOST_EMPTY = 4  # share of a strip's axis beyond the boxes, relative to theirs
TIMES = {"window": "pipelined"} | {
    name: name for name in ("min", "p50", "p75", "p90", "p95", "p99", "max")
}  # to labels
OF_CELLS = ("ok", PARTLY_FAILED, *STATUSES[1:])  # the statuses of a cell, in the order of the filter
WORST_FIRST = (*STATUSES[1:-3], PARTLY_FAILED, *STATUSES[-3:], "ok")
OF_CELL = (
    *("status", "time_unit", "times", "decimals", "low", "high"),
    *("first_launch", "num_planned", "num_ok", "row", "reason", "search"),
)
TEXTS = ("launch", "status", "cause", "file", "place", "log", "others")  # of a launch, besides its times


class Texts:
    """Distinct texts in the order of their first use. A column of texts is a list of their indices."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}

    def index(self, text: object) -> int | None:
        return None if is_unknown(text) else self._indices.setdefault(str(text), len(self._indices))

    @property
    def all(self) -> list[str]:
        return list(self._indices)


def add_launches(
    columns: dict, places: Mapping[str, int], tables: Mapping, words: Texts, files: Texts
) -> tuple[dict, list[list[tuple[str, str]]]]:
    """Return the launches of all cells in order, and the sets of times that cells have.

    Add status, counts and reason of each cell to `columns`.

    A time is in units of the last decimal of its cell, and stored as the difference from the one before.
    """
    measurements, failures = tables["measurements"], tables["failures"]
    logs, hosts = dict(zip(failures["launch"], failures["log"], strict=True)), hosts_by_launch(tables["launches"])
    others = other_results(measurements, hosts)
    times = {name: "window_step_s" if name == "window" else f"{name}_s" for name in TIMES}
    if len(measurements) > MOST_LAUNCHES_WITH_QUANTILES:
        times = {name: times[name] for name in ("window", "p50")}
    rows_of: list[list] = [[] for _ in places]
    for place, row in enumerate(table_rows(measurements.assign(shown=shown_status(measurements)))):
        if row.cell in places:
            rows_of[places[row.cell]].append((place, row))
    values = {name: measurements[column].to_numpy(dtype=object).tolist() for name, column in times.items()}
    of_places = [dict(zip(values, of_row, strict=True)) for of_row in zip(*values.values(), strict=True)]
    cells, found, sets = [], [], Texts()
    for rows in rows_of:
        statuses = [row.shown for _, row in rows]
        planned = [(place, row) for place, row in rows if not is_unknown(row.repeat)]
        medians = [row.p50_s for _, row in planned if not is_unknown(row.p50_s)]
        factor, unit = time_scale(medians[0]) if medians else (1, "s")
        seconds = [of_places[place] for place, _ in planned]
        least = min(medians, default=0) * factor
        decimals = DIGITS - 1 - min(int(math.log10(least)), DIGITS - 1) if least > 1 else DIGITS - 1
        low, high = (_steps(end, factor, decimals) for end in axis_of(seconds))
        known = (name for name in times if not all(is_unknown(launch[name]) for launch in seconds))
        cell = {"times": sets.index(" ".join(known))}
        cell |= {"first_launch": len(found), "decimals": decimals, "low": low, "high": high}
        cell |= {"status": cell_status(statuses), "time_unit": unit}
        cell |= {"num_planned": len(planned), "num_ok": statuses.count("ok")}
        cell["row"] = rows[0][0] + 2 if rows else None  # line 1 of the file has the headings
        cell["reason"] = next((words.index(row.cause) for _, row in rows if is_unknown(row.repeat)), None)
        searched = [
            text
            for _, row in rows
            for text in (row.cause, hosts.get(row.launch), *([] if row.shown == "ok" else [row.shown]))
            if not is_unknown(text)
        ]
        cell["search"] = words.index(" ".join(dict.fromkeys(searched)))
        cells.append(cell)
        for (place, row), of_launch in zip(planned, seconds, strict=True):
            launch = {"launch": int(row.repeat) + 1, "cause": words.index(row.cause), "file": files.index(row.launch)}
            launch["status"] = words.index(marked_status(row.shown, None if is_unknown(row.phase) else row.phase))
            launch["place"] = words.index(_place(row.line, hosts.get(row.launch)))
            log = None if row.shown == "ok" else logs.get(row.launch)
            launch["log"] = None if is_unknown(log) else words.index(address(*log.split("/")))
            text = f"Hosts: {hosts[row.launch]}. {others[place].text}" if place in others else None
            launch["others"] = words.index(text)
            steps = {name: _steps(time, factor, decimals) for name, time in of_launch.items()}
            found.append(launch | differences(steps))
    columns |= {name: [cell[name] for cell in cells] for name in OF_CELL}
    listed = [[(name, TIMES[name]) for name in known.split()] for known in sets.all]
    return {name: [launch[name] for launch in found] for name in (*TEXTS, *times)}, listed


def cell_status(statuses: list[str]) -> str:
    """Return the worst status of a cell's launches; partly failed if some of them are ok and others failed."""
    is_partly = "ok" in statuses and count_failed(Counter(statuses)) > 0
    return PARTLY_FAILED if is_partly else min(statuses, key=WORST_FIRST.index, default="not_measured")


def _place(line: int | None, hosts: str | None) -> str | None:
    """Return where a record is and was made, as it follows the name of its file."""
    return None if is_unknown(line) else f" line {int(line)}" + (f" on {hosts}" if hosts else "")


def _steps(seconds: float | None, factor: float, decimals: int) -> int | None:
    """Return a time with four significant figures, in steps of the last of its cell's decimals."""
    known = None if is_unknown(seconds) else float(three(seconds * factor, DIGITS).replace(",", ""))
    return None if known is None else round(known * 10**decimals)


def differences(times: dict[str, int | None]) -> dict[str, int | None]:
    """Return each known time of a launch as its difference from the previous one, which halves the data."""
    known = {name: time for name, time in times.items() if time is not None}
    before = dict(zip(known, [0, *known.values()], strict=False))
    return {name: None if time is None else time - before[name] for name, time in times.items()}


def axis_of(launches: list[dict[str, float | None]]) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of an axis for the strips of a cell's launches; None if no median is known.

    It ends at the largest known quantile if maxima are far beyond: with them on it, nothing else could be read.
    launches: times by name.
    """
    times = [
        {name: time for name, time in launch.items() if not is_unknown(time) and name != "window"}
        for launch in launches
        if not is_unknown(launch.get("p50"))
    ]
    if not times:
        return None, None
    low, high = (end(end(launch.values()) for launch in times) for end in (min, max))
    boxes = max(max(time for name, time in launch.items() if name != "max") for launch in times)
    is_far = boxes > low and high - low > MOST_EMPTY * (boxes - low)
    return low, boxes if is_far else high


def launch_files(files: list[str], headers: list[dict]) -> dict[str, list]:
    """Return names, addresses and command lines of launch files; None if a command line was not recorded."""
    lines = {header.get("launch"): header.get("argv") for header in headers}
    return {
        "names": files,
        "addresses": [address("launches", f"{file}.jsonl") for file in files],
        "argv": [command_line(lines[file]) if lines.get(file) else None for file in files],
    }


def command_line(argv: list) -> str:
    """Return a command with its arguments quoted for a shell."""
    return printable(shlex.join(map(str, argv)))


def printable(text: str, limit: int = 20_000) -> str:
    """Return a text without control characters and lone surrogates; a longer one is cut, with a note."""
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    return shown if len(text) <= limit else f"{shown} [cut: the first {limit:,} of {len(text):,} characters]"


# Where a cause names a host: after a rank, in messages of the launcher, of a failed node.
BEFORE_HOST = [
    r"\brank \d+ on (?:host )?",
    r"\ba node failed \(",
    *(tool.ranks.host_words for tool in LAUNCHERS.values()),
]
HOST = re.compile(rf"(?P<before>{'|'.join(BEFORE_HOST)})(?P<host>[^\s:,;()]+)")


@dataclass(frozen=True)
class OtherResults:
    """Other measurements with a record: on all hosts of a launch, or on its host that the cause names.

    stranger: the host that the cause names, if the launch did not run there.
    """

    num_ok: int
    num: int
    host: str | None = None
    stranger: str | None = None

    @property
    def text(self) -> str:
        where = self.host or "the same hosts"
        counted = f"{self.num_ok:,} of {self.num:,} other measurements ok" if self.num else "no other measurement"
        lead = f"The cause names {self.stranger}, which is not a host of this launch. " if self.stranger else ""
        return f"{lead}On {where}: {counted}."


def other_results(measurements: pd.DataFrame, hosts: Mapping[str, str]) -> dict[int, OtherResults]:
    """Return the other results for each row that is not ok, by its place in measurements.csv, if hosts are known.

    hosts: of `hosts_by_launch`. Repeats that were not started are no evidence about their hosts.
    """
    num, num_ok, bad = Counter(), Counter(), {}  # by the hosts of a launch as text, and by ("", host)
    for place, row in enumerate(table_rows(measurements)):
        if row.status == "skipped" or row.launch not in hosts:
            continue
        for key in (hosts[row.launch], *(("", host) for host in hosts[row.launch].split(", "))):
            num[key] += 1
            num_ok[key] += row.status == "ok"
        if row.status != "ok":
            bad[place] = row
    found = {}
    for place, row in bad.items():
        match = None if is_unknown(row.cause) else HOST.search(row.cause)
        named = same_host(match["host"], hosts[row.launch].split(", ")) if match else None
        key = hosts[row.launch] if named is None else ("", named)
        found[place] = OtherResults(num_ok[key], num[key] - 1, named, match["host"] if match and not named else None)
    return found


def same_host(name: str, hosts: list[str]) -> str | None:
    """Return the host of this name, also if only one of both has a domain."""
    return next((host for host in hosts if name in (host, host.split(".")[0]) or host == name.split(".")[0]), None)
