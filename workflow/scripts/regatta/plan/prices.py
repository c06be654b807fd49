"""How long the remaining measurements take: expected, and at most."""

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from regatta.campaign.expansion import MatrixCell
from regatta.campaign.load import Campaign
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import UserError
from regatta.core.text import plural
from regatta.launchers import launcher_of
from regatta.plan.batches import Batch, Price
from regatta.store.history import History

LAUNCH_OVERHEAD_SECONDS = 10.0  # start of Python, torch and the ranks, until a launch of this campaign has been timed


@dataclass(frozen=True)
class BatchPrice:
    """What a batch is expected to take. estimate_from: the source of the estimate."""

    batch: Batch
    seconds: float
    estimate_from: str

    @property
    def minutes(self) -> float:
        return self.seconds / 60

    @property
    def gpu_hours(self) -> float:
        nodes, gpus_per_node = self.batch.shape
        return self.seconds / 3600 * nodes * gpus_per_node

    @property
    def num_cells(self) -> int:
        return sum(len(launch.cells) for launch in self.batch.launches)

    def to_json(self) -> dict:
        nodes, gpus_per_node = self.batch.shape
        launches = [{"repeat": la.repeat, "stack": la.stack, "num_cells": len(la.cells)} for la in self.batch.launches]
        price = {"batch": self.batch.id, "nodes": nodes, "gpus_per_node": gpus_per_node, "launches": launches}
        return price | {"minutes": self.minutes, "gpu_hours": self.gpu_hours, "estimate_from": self.estimate_from}


def make_price(campaign: Campaign, history: History) -> Price:
    """Return the price of cells and launches. A cell that was never measured is priced at its limits."""
    known = history.cell_seconds()
    overheads = history.launch_overheads_s
    overhead = statistics.median(overheads) if overheads else LAUNCH_OVERHEAD_SECONDS
    sampling = campaign.data["sampling"]
    # The maximum of a cell's warm-up, samples and pipelined windows, together.
    sampled = sampling["max_warmup_seconds"] + (1 + sampling["windows_ratio"]) * sampling["max_seconds"]

    def cell_seconds(cell: MatrixCell) -> float:
        if cell.id in known:
            return known[cell.id]
        return min(sampled, cell.limit_seconds) if limit_of(cell) == "limits" else cell.limit_seconds

    return Price(cell_seconds, overhead)


def check_walltime(campaign: Campaign, todo: Iterable[MatrixCell], price: Price) -> None:
    """Raise UserError if a cell takes longer than the longest job: it would time out in every job, without a record."""
    longest = launcher_of(campaign.cluster).jobs.longest_minutes(campaign.cluster)
    needed: dict[str, float] = {}
    for cell in todo:
        name, minutes = cell.benchmark, (price.launch_overhead_seconds + price.cell_seconds(cell)) / 60
        needed[name] = max(minutes, needed.get(name, 0.0))
    problems = [
        f"{campaign.file.path}: a cell of {name} takes {minutes:.1f} min including the start of its launch, but"
        f" max_walltime_minutes = {longest:g} in config/clusters/{campaign.cluster['name']}.yaml. Raise it, or lower"
        f" {'sampling.max_seconds' if load_benchmark(name).is_sampled else 'cell_seconds'}."
        for name, minutes in needed.items()
        if minutes > longest
    ]
    if problems:
        raise UserError("\n".join(problems))


def limit_of(cell: MatrixCell) -> str:
    """Return what bounds a cell: the sampling `limits`, or `cell_seconds` alone."""
    return "limits" if load_benchmark(cell.benchmark).is_sampled else "cell_seconds"


def unknown_lengths(todo: Iterable[MatrixCell], history: History) -> list[str]:
    """Return a note for each benchmark with cells to measure of unknown duration."""
    known = history.cell_seconds()
    unknown = [cell for cell in todo if cell.id not in known and limit_of(cell) == "cell_seconds"]
    numbers = Counter(cell.benchmark for cell in unknown)
    return [
        f"{plural(num, 'cell')} of {name} without a record: no sampling limit applies; the estimate is the"
        " deadline (cell_seconds)"
        for name, num in sorted(numbers.items())
    ]


def at_most_minutes(campaign: Campaign, batches: Iterable[Batch]) -> float:
    """Return the minutes if every cell and every start hit its deadline: each such cell ends its launch, and the rest
    restarts."""
    start = campaign.data["limits"]["launch_start_seconds"]
    deadlines = Price(lambda cell: cell.limit_seconds + start, start)
    return sum(deadlines.seconds(batch.launches) for batch in batches) / 60
