"""What a campaign is expected to cost: from the store's history, or from the campaign's limits where it has none."""

import statistics
from collections import Counter
from collections.abc import Iterable

from regatta.campaign.load import Campaign
from regatta.campaign.matrix import Cell
from regatta.core.benchmarks import load_benchmark
from regatta.plan.batches import Batch, Price
from regatta.store.history import History

LAUNCH_OVERHEAD_SECONDS = 10.0  # start of Python, torch and the ranks, until a launch of this campaign has been timed
WINDOWS_FACTOR = 1.3  # a train_step cell adds at most 30 % for its pipelined windows


def make_price(campaign: Campaign, history: History) -> Price:
    """Return the price of cells and launches. What was never measured costs what it may take by its limits."""
    known = history.cell_seconds()
    overheads = history.launch_overheads_s
    overhead = statistics.median(overheads) if overheads else LAUNCH_OVERHEAD_SECONDS
    sampling = campaign.data["sampling"]
    sampled = sampling["max_warmup_seconds"] + WINDOWS_FACTOR * sampling["max_seconds"]

    def cell_seconds(cell: Cell) -> float:
        if cell.id in known:
            return known[cell.id]
        return min(sampled, cell.limit_seconds) if limit_of(cell) == "limits" else cell.limit_seconds

    return Price(cell_seconds, overhead)


def limit_of(cell: Cell) -> str:
    """Return what bounds a cell that was never measured: the sampling `limits`, or `cell_seconds` alone."""
    return "limits" if load_benchmark(cell.spec["benchmark"]).is_sampled else "cell_seconds"


def unknown_lengths(todo: Iterable[Cell], history: History) -> list[str]:
    """Return a note for each benchmark with cells to measure of which nothing tells how long they take."""
    known = history.cell_seconds()
    bounded_late = [cell for cell in todo if cell.id not in known and limit_of(cell) == "cell_seconds"]
    numbers = Counter(cell.spec["benchmark"] for cell in bounded_late)
    return [
        f"{num} of {name} without a record: how long one takes is unknown before its first run, since no sampling limit"
        " ends it; it is priced at its deadline, cell_seconds"
        for name, num in sorted(numbers.items())
    ]


def at_most_minutes(campaign: Campaign, batches: Iterable[Batch]) -> float:
    """Return the minutes if every cell and every start took until its deadline: each cell that does ends its launch,
    so that the rest starts anew."""
    start = campaign.data["limits"]["launch_start_seconds"]
    deadlines = Price(lambda cell: cell.limit_seconds + start, start)
    return sum(deadlines.seconds(batch.launches) for batch in batches) / 60
