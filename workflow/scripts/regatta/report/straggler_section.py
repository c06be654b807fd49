"""The section on stragglers: who is persistently last, drawn for the worst, or that nobody is; and who makes spikes."""

from pathlib import Path

import numpy as np
import pandas as pd

from regatta.report.panels import Section
from regatta.report.spikes import costliest, spike_finding, spike_groups, spike_sentence, spike_table
from regatta.report.straggler_figures import straggler_figures, trace_of, worst_of
from regatta.report.straggler_tables import outcome, rank_tables, told_host, told_rank
from regatta.report.traces import Finding, Trace, file_of, joined, of_rows
from regatta.store.launch_files import read_one_line
from regatta.store.waits import times_that_tell

ALSO_TOLD = 5  # persistent ranks and hosts that are told in words, beside the one that is drawn


def straggler_section(tables: dict[str, pd.DataFrame], waits: pd.DataFrame, times_ns: np.ndarray | None) -> Section:
    """times_ns: of the worst record, (ranks, iterations); None where nobody is persistent or they cannot be read."""
    stragglers, hosts = tables["stragglers"], tables["straggler_hosts"]
    worst = worst_of(stragglers, hosts)
    lead, traces = outcome(stragglers, waits), (Trace(file_of("waits"), what="all rows"),)
    shown = rank_tables(stragglers, hosts)
    if worst is not None:
        late = [(row, told_host) for row in _persistent(hosts)] + [(row, told_rank) for row in _persistent(stragglers)]
        told, traces = [tell(row) for row, tell in late], joined(trace_of(row) for row, _ in late[:ALSO_TOLD])
        lead = " ".join(
            [
                *told[:ALSO_TOLD],
                *([f"{len(told) - ALSO_TOLD} more stand in the tables."] if len(told) > ALSO_TOLD else []),
                "In a collective a rank may also come out first because the algorithm lets it; what it computes longest at is its own.",
            ]
        )
    groups = spike_groups(stragglers)
    lead = " ".join(text for text in (lead, spike_sentence(groups)) if text)
    table, finding = spike_table(groups), spike_finding(groups)
    shown = (*shown, table) if table else shown
    figures = tuple(straggler_figures(worst, waits, times_ns))
    findings, trace = (("straggler-strip", 1),), of_rows("stragglers", costliest(groups))
    told = (Finding(finding, "stragglers", "Stragglers", (trace,)),) if finding else ()
    traces = joined((*traces, of_rows("stragglers", groups)))
    return Section("stragglers", "Stragglers", lead, lead if shown else "", figures, shown, findings, told, traces)


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
