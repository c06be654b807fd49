"""How long the remaining measurements take: expected, and at most."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regatta.campaign.expansion import MatrixCell
from regatta.campaign.load import Campaign
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import UserError
from regatta.core.text import plural
from regatta.launchers import launcher_of
from regatta.model.frozen import Cell, FrozenCell
from regatta.plan.batches import Batch, Price
from regatta.run.preflight import Preflight
from regatta.store.frozen_files import mismatch
from regatta.store.history import History
from regatta.store.launch_files import read_json

LAUNCH_OVERHEAD_SECONDS = 10.0  # start of Python, torch and the ranks, until a launch of this campaign has been timed
GUESS_SECONDS = 60.0  # a launch of a user's script or program without history: only its deadline bounds it
USER_CODE = ("script", "program")
GUESS = "a guess of 1 min per launch of a script or program without history"
ESTIMATE_FROM = {
    "history": "from history",
    "limits": "from limits, because these cells have no history",
    "history and limits": "from history if available, else from limits",
    "guess": f"by {GUESS}",
    "guess and history": f"from history if available, else by {GUESS}",
    "guess and limits": f"from limits, and by {GUESS}",
    "guess, history and limits": f"from history if available, else from limits, and by {GUESS}",
}


def sources_text(sources: Iterable[str]) -> str | None:
    """Return the sources of an estimate, a key of ESTIMATE_FROM; None without any."""
    *others, last = sorted({*sources}) or [None]
    return f"{', '.join(others)} and {last}" if others else last


def charged_gpus(cluster: dict, device: str, nodes: int, gpus_per_node: int) -> int:
    """Return the GPUs that are charged for an allocation: all of its nodes if jobs are exclusive; processes on CPUs."""
    is_whole = device == "cuda" and cluster["exclusive"] and launcher_of(cluster).submits
    return nodes * max(gpus_per_node, cluster["gpus_per_node"] if is_whole else 0)


@dataclass(frozen=True)
class BatchPrice:
    """What a batch is expected to take. reserved_minutes: for which time is requested, as a guess is no bound.

    estimate_from: the sources of the estimate.
    """

    batch: Batch
    seconds: float
    reserved_minutes: float
    estimate_from: str

    @property
    def minutes(self) -> float:
        return self.seconds / 60

    @property
    def gpu_hours(self) -> float:
        return self.seconds / 3600 * charged_gpus(self.batch.cluster, self.batch.frame["device"], *self.batch.shape)

    @property
    def num_cells(self) -> int:
        return sum(len(launch.cells) for launch in self.batch.launches)

    def to_json(self) -> dict:
        nodes, gpus_per_node = self.batch.shape
        launches = [{"repeat": la.repeat, "stack": la.stack, "num_cells": len(la.cells)} for la in self.batch.launches]
        price = {"batch": self.batch.id, "nodes": nodes, "gpus_per_node": gpus_per_node, "launches": launches}
        return price | {"minutes": self.minutes, "gpu_hours": self.gpu_hours, "estimate_from": self.estimate_from}


@dataclass(frozen=True)
class PreflightPrice:
    """What a preflight is expected to take: a launch of each stack that ends once its ranks have started."""

    preflight: Preflight
    seconds: float

    @property
    def minutes(self) -> float:
        return self.seconds / 60

    @property
    def gpu_hours(self) -> float:
        of = self.preflight
        return self.seconds / 3600 * charged_gpus(of.cluster, of.device, of.nodes, of.gpus_per_node)


@dataclass(frozen=True)
class Prices:
    """The prices of cells and launches.

    expected: for people. reserved: for which time is requested and batches are split; at the deadline where expected is
    a guess. sources: of the expected price of each cell.
    """

    expected: Price
    reserved: Price
    sources: Mapping[str, str]
    has_overhead: bool

    def of_batch(self, batch: Batch) -> BatchPrice:
        sources = {self.sources[cell.id] for launch in batch.launches for cell in launch.cells}
        sources = {"limits" if source == "cell_seconds" else source for source in sources}
        if self.has_overhead:
            sources.add("history")
        elif sources == {"history"}:
            sources.add("limits")
        reserved = self.reserved.seconds(batch.launches) / 60
        return BatchPrice(batch, self.expected.seconds(batch.launches), reserved, sources_text(sources))

    def of_preflight(self, preflight: Preflight) -> PreflightPrice:
        return PreflightPrice(preflight, len(preflight.stacks) * self.expected.launch_overhead_seconds)


def make_prices(campaign: Campaign, cells: Iterable[MatrixCell], history: History, results: Path) -> Prices:
    """Return the prices: the history of a cell, of a user's script or program also that of its entry, or a limit."""
    known = history.cell_seconds()
    overheads = history.launch_overheads_s
    overhead = statistics.median(overheads) if overheads else LAUNCH_OVERHEAD_SECONDS
    sampling = campaign.data["sampling"]
    # The maximum of a cell's warm-up, samples and pipelined windows, together.
    sampled = sampling["max_warmup_seconds"] + (1 + sampling["windows_ratio"]) * sampling["max_seconds"]
    of_entries = _seconds_of_entries(cells, history, results)

    def source(cell: MatrixCell) -> str:
        if cell.id in known or cell.id in of_entries:
            return "history"
        return "guess" if cell.benchmark in USER_CODE else limit_of(cell)

    def reserved(cell: MatrixCell) -> float:
        if cell.id in known:
            return known[cell.id]
        return min(sampled, cell.limit_seconds) if limit_of(cell) == "limits" else cell.limit_seconds

    def expected(cell: MatrixCell) -> float:
        if cell.id not in known and cell.id in of_entries:
            return of_entries[cell.id]
        return min(GUESS_SECONDS, cell.limit_seconds) if source(cell) == "guess" else reserved(cell)

    def most(cell: MatrixCell) -> float:
        return expected(cell) if source(cell) == "guess" else cell.limit_seconds

    sources = {cell.id: source(cell) for cell in cells}
    return Prices(Price(expected, overhead, most), Price(reserved, overhead), sources, bool(overheads))


def _seconds_of_entries(cells: Iterable[MatrixCell], history: History, results: Path) -> dict[str, float]:
    """Return for cells of users' scripts and programs without history the median of records of the same entry.

    Those of other builds and versions of the same cell, else of all cells of the script or program.
    """
    batches = results / "batches"
    known, by_id = history.cell_seconds(), {cell.id: cell for cell in cells}
    wanted = [cell for cell in by_id.values() if cell.id not in known and cell.benchmark in USER_CODE]
    if not wanted:
        return {}
    cells_of, found = cache(_cells_of_batch), {}
    for (cell, _), slot in history.slots.items():
        if cell.startswith(USER_CODE) and slot.status == "ok" and slot.elapsed_s is not None:
            measured = by_id.get(cell) or cells_of(batches / slot.launch.rpartition("-l")[0]).get(cell)
            for key in _keys_of_entry(measured) if measured else ():
                found.setdefault(key, []).append(slot.elapsed_s)
    keys = {cell.id: next((key for key in _keys_of_entry(cell) if key in found), None) for cell in wanted}
    return {cell: statistics.median(found[key]) for cell, key in keys.items() if key}


def _keys_of_entry(cell: Cell) -> list[tuple]:
    name = cell.parameters[cell.benchmark]
    settings = tuple(cell.parameters.items())
    return [(cell.benchmark, name, *cell.shape, cell.stack.name, settings), (cell.benchmark, name)]


def _cells_of_batch(folder: Path) -> Mapping[str, Cell]:
    """Return the cells of a batch by their ids; none if they cannot be read."""
    content = read_json(folder / "batch.json")
    cells = {} if mismatch(content, "batch", "cells") else content["cells"]
    return {name: FrozenCell.from_json({"id": name, **cell}) for name, cell in cells.items()}


def check_walltime(campaign: Campaign, todo: Iterable[MatrixCell], price: Price) -> None:
    """Raise UserError if a cell takes longer than the longest job: it would time out in every job, without a record."""
    longest = launcher_of(campaign.cluster).jobs.longest_minutes(campaign.cluster)
    needed: dict[str, float] = {}
    for cell in todo:
        name, minutes = cell.benchmark, (price.launch_overhead_seconds + price.cell_seconds(cell)) / 60
        needed[name] = max(minutes, needed.get(name, 0.0))
    problems = [
        f"{campaign.file.path}: a cell of {name} takes {minutes:.1f} min including the start of its launch, but"
        f" max_walltime_minutes = {longest:g} in {campaign.cluster_file}. Raise it, or lower"
        f" {'sampling.max_seconds' if load_benchmark(name).is_sampled else 'cell_seconds'}."
        for name, minutes in needed.items()
        if minutes > longest
    ]
    if problems:
        raise UserError("\n".join(problems))


def limit_of(cell: MatrixCell) -> str:
    """Return what bounds a cell: the sampling `limits`, or `cell_seconds` alone."""
    return "limits" if load_benchmark(cell.benchmark).is_sampled else "cell_seconds"


def unknown_lengths(todo: Iterable[MatrixCell], prices: Prices) -> list[str]:
    """Return a note for each benchmark with cells to measure of unknown duration."""
    texts = {
        "cell_seconds": "the estimate is the deadline (cell_seconds)",
        "guess": f"the estimate is {GUESS}, the upper bound the deadline (cell_seconds)",
    }
    numbers = Counter((cell.benchmark, prices.sources[cell.id]) for cell in todo)
    return [
        f"{plural(num, 'cell')} of {name} without a record: no sampling limit applies; {texts[source]}"
        for (name, source), num in sorted(numbers.items())
        if source in texts
    ]


def at_most_minutes(campaign: Campaign, batches: Iterable[Batch]) -> float:
    """Return the minutes if every cell and every start hit its deadline: each such cell ends its launch, and the rest
    restarts."""
    start = campaign.data["limits"]["launch_start_seconds"]
    deadlines = Price(lambda cell: cell.limit_seconds + start, start)
    return sum(deadlines.seconds(batch.launches) for batch in batches) / 60
