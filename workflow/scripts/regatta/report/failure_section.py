"""What of a campaign failed, gathered by cause: one broken node often fails many cells, in nearly the same words."""

import re
from collections import Counter
from pathlib import Path

import pandas as pd

from regatta.cell_words import natural
from regatta.numbers import UNKNOWN
from regatta.store.records import one_line

STATUSES = ("ok", "failed", "timeout", "out_of_memory", "placement", "node_failure", "not_measured", "skipped")
WHERE_FROM = re.compile(r"rank \d+ on (host )?[^\s:]+: ")  # whose words a cause begins with
NUMBER = re.compile(r"\d+(\.\d+)?")  # sizes, ports, ranks and times differ where the cause is one
TAIL_LINES, TAIL_BYTES = 10, 4096


def failure_groups(failures: pd.DataFrame, folder: Path | None = None) -> list[dict]:
    """Return what is not ok, grouped by status, phase and cause, the numbers in it apart.

    folder: the results folder, for the last lines of a log of each group; None: without.
    """
    bad = failures[failures["status"] != "skipped"]
    keys = bad[["status", "phase", "cause"]].fillna("")
    keys["cause"] = keys["cause"].map(lambda cause: NUMBER.sub("0", WHERE_FROM.sub("", cause)))
    groups = []
    for (status, phase, _), rows in bad.groupby([keys["status"], keys["phase"], keys["cause"]], sort=True):
        items = rows.astype(object).where(rows.notna(), None).to_dict("records")
        for item in items:
            match = WHERE_FROM.match(item["cause"] or "")
            item["where"] = match[0].removesuffix(": ") if match else None
        causes = Counter(WHERE_FROM.sub("", item["cause"] or "") or UNKNOWN for item in items)
        cause = min(causes, key=lambda text: (-causes[text], text))
        group = {"status": status, "phase": phase or None, "cause": cause, "num_causes": len(causes), "items": items}
        groups.append(group | {"tail": _tail([item["log"] for item in items], folder)})
    return sorted(groups, key=lambda group: (STATUSES.index(group["status"]), -len(group["items"]), group["cause"]))


def skipped_groups(failures: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return (reason, cells) of the cells that were never planned to run."""
    skipped = failures[failures["status"] == "skipped"]
    return [(reason, sorted(rows["cell"], key=natural)) for reason, rows in skipped.groupby("cause", sort=True)]


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
