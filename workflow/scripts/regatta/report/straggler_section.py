"""The section on stragglers: who is persistently last, drawn for the worst, or that nobody is."""

from pathlib import Path

import numpy as np
import pandas as pd

from regatta.report.panels import Section
from regatta.report.straggler_figures import straggler_figures, worst_of
from regatta.report.straggler_tables import outcome, rank_tables, told_host, told_rank
from regatta.store.launch_files import read_one_line
from regatta.store.waits import times_that_tell

ALSO_TOLD = 5  # persistent ranks and hosts that are told in words, beside the one that is drawn


def straggler_section(tables: dict[str, pd.DataFrame], waits: pd.DataFrame, times_ns: np.ndarray | None) -> Section:
    """times_ns: of the worst record, (ranks, iterations); None where nobody is persistent or they cannot be read."""
    stragglers, hosts = tables["stragglers"], tables["straggler_hosts"]
    worst = worst_of(stragglers, hosts)
    lead = outcome(stragglers, waits)
    shown = rank_tables(stragglers, hosts)
    if worst is not None:
        told = [told_host(row) for row in _persistent(hosts)] + [told_rank(row) for row in _persistent(stragglers)]
        lead = " ".join(
            [
                *told[:ALSO_TOLD],
                *([f"{len(told) - ALSO_TOLD} more stand in the tables."] if len(told) > ALSO_TOLD else []),
                "In a collective a rank may also come out first because the algorithm lets it; what it computes longest at is its own.",
            ]
        )
    figures = tuple(straggler_figures(worst, waits, times_ns))
    findings = (("straggler-strip", 1),)
    return Section("stragglers", "Stragglers", lead, lead if shown else "", figures, shown, findings)


def worst_times(tables: dict[str, pd.DataFrame], launches: Path) -> np.ndarray | None:
    """Return the nanoseconds of the record that is drawn, (ranks, iterations), from its launch file; None without one."""
    worst = worst_of(tables["stragglers"], tables["straggler_hosts"])
    record = None if worst is None else read_one_line(launches / f"{worst.launch}.jsonl", int(worst.line))
    if record is None or record["kind"] != "record":
        return None
    try:
        quantity, times_ns = times_that_tell(record, record["spec"])
    except (KeyError, TypeError, ValueError):  # of a file that changed since it was collected
        return None
    return times_ns if quantity == worst.quantity else None


def _persistent(table: pd.DataFrame) -> list:
    found = table[table["is_persistent"].fillna(False).astype(bool)]
    return sorted(found.itertuples(), key=lambda row: -row.lag_ratio)
