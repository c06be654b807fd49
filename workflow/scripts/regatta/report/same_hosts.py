"""How other measurements ended on the hosts of a failed launch: a broken host fails many cells."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from regatta.core.text import is_unknown
from regatta.launchers import LAUNCHERS
from regatta.report.rows import table_rows

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


def hosts_by_launch(launches: pd.DataFrame) -> dict[str, str]:
    """Return the hosts of each launch as launches.csv lists them, where they were recorded."""
    known = launches.dropna(subset=["hosts"])
    return dict(zip(known["launch"], known["hosts"], strict=True))


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
