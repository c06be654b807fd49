"""Synthetic results of a gate's two campaigns: each test sets the times of its launches."""

from pathlib import Path

from synthetic import collective_cell, make_campaign
from typed import cell_row, judge

from regatta.compare.gate_files import gate_text
from regatta.store.csv_files import MEASUREMENTS, make_table

CELL = collective_cell(4096, 1, 2)
TIMES = [1.0, 1.01, 1.02]
CLUSTER = {"schema": 1, "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0}


def results_of(times, skipped=(), **fields):
    """Return (frozen campaign, measurements). times: a cell -> p50_s of each launch, or a status that is not ok."""
    table = []
    for cell, launches in times:
        for repeat, value in enumerate(launches):
            is_ok = not isinstance(value, str)
            row = {"repeat": repeat, "status": "ok" if is_ok else value, "p50_s": value if is_ok else None}
            row |= {"elapsed_s": 2.5, "launch": f"n01g02-0-l{repeat:03d}-a00", "cause": None if is_ok else "it broke"}
            table.append(cell_row(cell) | row)
    planned = [cell for cell, _ in times]
    repeats = max((len(launches) for _, launches in times), default=1)
    campaign = make_campaign(planned, [cell | {"reason": "not of interest"} for cell in skipped], **fields)
    table += [cell_row(cell) | {"status": "skipped", "cause": "not of interest"} for cell in skipped]
    return campaign | {"repeats": repeats}, make_table(table, MEASUREMENTS)


def gate_of(now, before=None, margin=0.05, **fields):
    """Judge one cell's launches against those of before, or several cells' as lists of (cell, launches)."""
    now = now if isinstance(now[0], tuple) else [(CELL, now)]
    if before is not None:
        before = before if before and isinstance(before[0], tuple) else [(CELL, before)]
        before = results_of(before, name="old")
    return judge(*results_of(now, **fields), before, margin)


def text_of(gate):
    return gate_text(gate, Path("results/laptop"))
