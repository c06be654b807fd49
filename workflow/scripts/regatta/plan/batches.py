"""Group the remaining measurements into launches, and launches into batches: one allocation and Snakemake job each."""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from regatta.campaign.expansion import MatrixCell, content_hash, whole
from regatta.campaign.load import Campaign, for_jobs
from regatta.campaign.sweep import rounds
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import UserError
from regatta.core.text import natural
from regatta.launchers import launcher_of
from regatta.launchers.base import Geometry
from regatta.store.history import ALWAYS_RETRIED, RecordSummary, Slot

SCHEMA = 1
MAX_TOGETHER = 64  # launches of a sweep at a time: their sruns share the first node


@dataclass(frozen=True)
class Launch:
    """One set of processes: it measures its cells, once each, in this order.

    together: in a sweep, launches with the same key run at the same time, each on its own nodes.
    """

    repeat: int
    stack: str
    cells: tuple[MatrixCell, ...]
    together: tuple | None = None


@dataclass(frozen=True)
class Batch:
    """Launches that share an allocation. frame: what batch.json freezes, except the cells."""

    id: str
    launches: tuple[Launch, ...]
    frame: dict

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the allocation: that of the launches, unless it is for a sweep or packed."""
        return self.frame["nodes"], self.frame["gpus_per_node"]

    @property
    def hosts(self) -> list[str]:
        """Return the nodes of a sweep's allocation; otherwise none."""
        return _hosts(self.launches)

    @property
    def cluster(self) -> dict:
        return self.launches[0].cells[0].cluster

    @property
    def geometry(self) -> Geometry:
        """Return where its job runs."""
        return Geometry(self.cluster, *self.shape, self.frame["device"], hosts=self.hosts)

    @property
    def content(self) -> dict:
        """Return what batch.json freezes; built on demand, because all of them together are large."""
        return self.frame | {
            "cells": {
                cell.id: {"spec": cell.spec, "command": cell.command, "limit_seconds": cell.limit_seconds}
                for cell in sorted(_distinct_cells(self.launches).values(), key=lambda cell: cell.id)
            }
        }


def _hosts(launches: Iterable[Launch]) -> list[str]:
    return sorted({host for launch in launches for host in launch.cells[0].hosts}, key=natural)


def _distinct_cells(launches: Iterable[Launch]) -> dict[str, MatrixCell]:
    return {cell.id: cell for launch in launches for cell in launch.cells}


@dataclass(frozen=True)
class Price:
    """Durations in seconds. most_seconds: of the cells of a program that runs once; its deadline by default."""

    cell_seconds: Callable[[MatrixCell], float]
    launch_overhead_seconds: float
    most_seconds: Callable[[MatrixCell], float] = lambda cell: cell.limit_seconds

    def seconds(self, launches: Iterable[Launch]) -> float:
        """Return the duration of launches; of those that run at the same time, the longest counts."""
        longest: dict[object, float] = {}
        for index, launch in enumerate(launches):
            cost = self.launch_overhead_seconds + self._seconds_of_cells(launch.cells)
            key = index if launch.together is None else launch.together
            longest[key] = max(cost, longest.get(key, 0.0))
        return sum(longest.values())

    def shares(self, cells: Iterable[MatrixCell]) -> dict[str, float]:
        """Return the duration of each cell in its launch. Cells of one run of a program share that of the run."""
        found = {}
        for group in _by_key(cells, lambda cell: (cell.stack.name, cell.shape, cell.hosts, cell.twin_key)).values():
            factor = self._seconds_of_cells(group) / (sum(map(self.cell_seconds, group)) or 1)
            found |= {cell.id: factor * self.cell_seconds(cell) for cell in group}
        return found

    def _seconds_of_cells(self, cells: tuple[MatrixCell, ...]) -> float:
        """Return the duration of the cells of a launch. Those of a program that runs once share its limit."""
        seconds = [self.cell_seconds(cell) for cell in cells]
        is_shared = len(cells) > 1 and load_benchmark(cells[0].benchmark).is_alone
        return min(sum(seconds), max(self.most_seconds(cells[0]), *seconds)) if is_shared else sum(seconds)


def make_batches(
    campaign: Campaign,
    todo: Iterable[tuple[MatrixCell, int]],
    price: Price,
    results: Path,
    preflights: Mapping[str | None, str] | None = None,
    slots: Mapping[Slot, RecordSummary] | None = None,
) -> list[Batch]:
    """Group the (cell, repeat) pairs left to measure into batches, none longer than `max_batch_minutes` if possible.

    preflights: by node type, the id of the one that decides which stacks may be started. slots: the latest records of
    the store, which those of a batch must supersede.
    """
    places: dict[tuple[tuple[int, int], str, int, int], dict[int, list[MatrixCell]]] = {}
    is_packed, todo = campaign.data["pack"], list(todo)
    jobs = _jobs_of_sweep({cell.hosts: cell.cluster for cell, _ in todo} if campaign.data["sweep"] else {})
    for cell, repeat in todo:
        allocation = repeat * campaign.data["allocations"] // campaign.data["repeats"]
        place = ((0, 0) if is_packed else cell.shape, cell.node_type or "", jobs.get(cell.hosts, 0), allocation)
        places.setdefault(place, {}).setdefault(repeat, []).append(cell)
    known = preflights or {}
    return [
        _freeze(campaign, launches, results, known.get(kind or None), slots or {})
        for shape, kind, *rest in sorted(places)
        for launches in _split(campaign, places[shape, kind, *rest], price)
    ]


def _jobs_of_sweep(clusters: dict[tuple[str, ...], dict]) -> dict[tuple[str, ...], int]:
    """Return the number of the job of each set of nodes: one job for all, if it may have as many nodes.

    Otherwise each round has jobs of equal size, which use all their nodes all the time. clusters: of each set.
    """
    if not clusters:
        return {}
    sets, num_per_set = list(clusters), len(next(iter(clusters)))
    of_types = {cluster.get("node_type"): cluster for cluster in clusters.values()}.values()
    most_nodes = min(
        MAX_TOGETHER * num_per_set, *(launcher_of(cluster).jobs.most_nodes(cluster) for cluster in of_types)
    )
    most_nodes = max(num_per_set, most_nodes)
    if len({host for hosts in sets for host in hosts}) <= most_nodes:
        return dict.fromkeys(sets, 0)
    found: dict[tuple[str, ...], int] = {}
    for of_round in rounds(sets):
        num_jobs = math.ceil(len(of_round) / (most_nodes // num_per_set))
        first = max(found.values(), default=-1) + 1
        found |= {hosts: first + place * num_jobs // len(of_round) for place, hosts in enumerate(of_round)}
    return found


def _split(campaign: Campaign, repeats: dict[int, list[MatrixCell]], price: Price) -> list[list[Launch]]:
    """Split by repeats first, which keeps compared cells in one allocation; then by cells."""
    longest = launcher_of(campaign.cluster).jobs.longest_planned_minutes(campaign.cluster)
    max_seconds = min(campaign.data["limits"]["max_batch_minutes"], longest) * 60
    parts: list[list[Launch]] = []
    left_seconds = 0.0
    for repeat, cells in sorted(repeats.items()):
        launches = _launches(campaign, repeat, cells)
        cost = price.seconds(launches)
        if parts and cost <= left_seconds:
            parts[-1] += launches
            left_seconds -= cost
        elif cost <= max_seconds:
            parts.append(launches)
            left_seconds = max_seconds - cost
        elif campaign.data["sweep"]:
            parts += _split_rounds(campaign, launches, price, max_seconds)
            left_seconds = 0.0
        else:
            parts += [_launches(campaign, repeat, part) for part in _split_cells(campaign, cells, price, max_seconds)]
            left_seconds = 0.0
    return parts


def _split_cells(
    campaign: Campaign, cells: list[MatrixCell], price: Price, max_seconds: float
) -> list[list[MatrixCell]]:
    """Split the cells of one repeat so that each part fits; a cell stays with its twins in the other stacks."""
    twins = _by_key(sorted(cells, key=lambda cell: cell.id)).values()
    is_isolated = _is_alone(campaign, cells)
    num_shapes = len({cell.shape for cell in cells})
    launches_cost = price.launch_overhead_seconds * len(campaign.data["stacks"]) * num_shapes

    def cost(group: tuple[MatrixCell, ...]) -> float:
        by_stack = [Launch(0, stack, cells) for stack, cells in _by_key(group, lambda cell: cell.stack.name).items()]
        return price.seconds(by_stack) if is_isolated else sum(map(price.cell_seconds, group))

    return _packed(twins, cost, max_seconds - (0 if is_isolated else launches_cost))


def _packed(groups: Iterable[Iterable], cost: Callable[[Iterable], float], max_seconds: float) -> list[list]:
    """Join groups in their order, each whole, to parts that fit; a part of one group may be longer."""
    parts: list[list] = []
    left_seconds = 0.0
    for group in groups:
        seconds = cost(group)
        if not parts or seconds > left_seconds:
            parts.append([])
            left_seconds = max_seconds
        parts[-1] += group
        left_seconds -= seconds
    return parts


def _split_rounds(campaign: Campaign, launches: list[Launch], price: Price, max_seconds: float) -> list[list[Launch]]:
    """Split the launches of a sweep so that each part fits; those that run at the same time stay together."""
    rounds_of_sweep = [list(group) for _, group in itertools.groupby(launches, key=lambda launch: launch.together)]
    longest = max(map(price.seconds, rounds_of_sweep))
    if longest > max_seconds:
        text = f"a launch of the sweep takes {longest / 60:.0f} min, and a batch at most {max_seconds / 60:.0f}"
        remedy = "Use fewer cells, lower sampling.max_seconds, or raise limits.max_batch_minutes."
        raise UserError(f"{campaign.file.path}: {text}. {remedy}")
    return _packed(rounds_of_sweep, price.seconds, max_seconds)


def _launches(campaign: Campaign, repeat: int, cells: list[MatrixCell]) -> list[Launch]:
    """Return the launches of one repeat, by shape: smallest first in even repeats, largest first in odd ones."""
    stacks, shapes = list(campaign.data["stacks"]), sorted({cell.shape for cell in cells})
    if repeat % 2:
        stacks.reverse()
        shapes.reverse()
    order = _sweep_launches if campaign.data["sweep"] else _launches_of_shape
    return [
        launch
        for shape in shapes
        for launch in order(campaign, repeat, [cell for cell in cells if cell.shape == shape], stacks)
    ]


def _sweep_launches(campaign: Campaign, repeat: int, cells: list[MatrixCell], stacks: list[str]) -> list[Launch]:
    """Return the launches of one repeat of a sweep in rounds; all nodes of a round measure its cells in one order."""
    is_single = _is_alone(campaign, cells)
    by_place: dict[tuple[str, tuple[str, ...]], list[MatrixCell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.twin_key):
        by_place.setdefault((cell.stack.name, cell.hosts), []).append(cell)
    found = []
    for stack in stacks:
        for number, sets in enumerate(rounds(hosts for name, hosts in by_place if name == stack)):
            shuffled = [_in_random_order(campaign, repeat, by_place[stack, hosts], stack) for hosts in sets]
            launches = [[*_by_key(chosen).values()] if is_single else [tuple(chosen)] for chosen in shuffled]
            for turn in range(max(map(len, launches))):
                key = (repeat, *cells[0].shape, stack, number, turn)
                found += [Launch(repeat, stack, of_hosts[turn], key) for of_hosts in launches if turn < len(of_hosts)]
    return found


def _launches_of_shape(campaign: Campaign, repeat: int, cells: list[MatrixCell], stacks: list[str]) -> list[Launch]:
    """Return the launches of one repeat: stacks in turn (A B, then B A), cells shuffled by the campaign's seed."""
    by_stack = {stack: _shuffled(campaign, repeat, cells, stack) for stack in stacks}
    shared = {stack: tuple(c for c in chosen if not _is_alone(campaign, [c])) for stack, chosen in by_stack.items()}
    alone = {stack: [c for c in chosen if _is_alone(campaign, [c])] for stack, chosen in by_stack.items()}
    singles = [Launch(repeat, stack, group) for stack, chosen in alone.items() for group in _by_key(chosen).values()]
    rank = {key: index for index, key in enumerate(dict.fromkeys(launch.cells[0].twin_key for launch in singles))}
    singles.sort(key=lambda launch: rank[launch.cells[0].twin_key])
    return [Launch(repeat, stack, chosen) for stack, chosen in shared.items() if chosen] + singles


def _by_key(
    cells: Iterable[MatrixCell], key: Callable[[MatrixCell], object] = lambda cell: cell.twin_key
) -> dict[object, tuple[MatrixCell, ...]]:
    """Return cells in groups. Of one stack and shape, cells with one twin key are measured by one launch."""
    groups: dict[object, list[MatrixCell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return {of: tuple(group) for of, group in groups.items()}


def _is_alone(campaign: Campaign, cells: list[MatrixCell]) -> bool:
    """Return whether each of these cells has a separate launch, since one of them must."""
    return campaign.data["isolation"] == "process" or any(load_benchmark(c.benchmark).is_alone for c in cells)


def _shuffled(campaign: Campaign, repeat: int, cells: list[MatrixCell], stack: str) -> list[MatrixCell]:
    chosen = sorted((cell for cell in cells if cell.stack.name == stack), key=lambda cell: cell.id)
    return _in_random_order(campaign, repeat, chosen, stack)


def _in_random_order(campaign: Campaign, repeat: int, cells: list[MatrixCell], stack: str) -> list[MatrixCell]:
    if cells:
        random.Random(f"{campaign.data['seed']}/{cells[0].shape}/{stack}/{repeat}").shuffle(cells)
    return cells


def _freeze(
    campaign: Campaign,
    launches: list[Launch],
    results: Path,
    preflight: str | None,
    slots: Mapping[Slot, RecordSummary],
) -> Batch:
    """Return the batch of launches with its id.

    Its generation is the lowest under which no batch was finished, and whose records supersede those of the store
    (regatta.store.history).
    """
    cells = _distinct_cells(launches)
    shapes = {launch.cells[0].shape for launch in launches}
    nodes, gpus_per_node = (max(sizes) for sizes in zip(*shapes, strict=True))
    nodes = len(_hosts(launches)) or nodes
    keys = ((cell.id, launch.repeat) for launch in launches for cell in launch.cells)
    before = [slots[key] for key in keys if key in slots]
    frame = {
        "schema": SCHEMA,
        "campaign": campaign.name,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "device": campaign.data["device"],
        "cluster": for_jobs(launches[0].cells[0].cluster),
        "preflight": preflight,
        "launch_start_seconds": campaign.data["limits"]["launch_start_seconds"],
        "stacks": {cell.stack.name: cell.stack_entry for cell in cells.values()},
        "cells": None,
        "launches": _frozen_launches(launches, (nodes, gpus_per_node)),
        "generation": max((slot.generation for slot in before), default=0) or 1,
    }
    # A cell's id is the hash of its spec, so ids and limits stand for the cells in the batch's id.
    limits = {cell.id: whole(cell.limit_seconds) for cell in cells.values()}
    while True:
        batch_id = f"n{nodes:02d}g{gpus_per_node:02d}-{content_hash(frame | {'cells': limits})}"
        if _comes_next(results, batch_id, frame["generation"], before):
            return Batch(batch_id, tuple(launches), frame)
        frame["generation"] += 1


def _frozen_launches(launches: list[Launch], shape: tuple[int, int]) -> list[dict]:
    """Return the launches as batch.json has them, with their shape if the batch has another, and a sweep's nodes."""
    groups, found = {}, []
    for launch in launches:
        cell = launch.cells[0]
        entry = {"repeat": launch.repeat, "stack": launch.stack, "cells": [cell.id for cell in launch.cells]}
        if cell.shape != shape:
            entry |= dict(zip(("nodes", "gpus_per_node"), cell.shape, strict=True))
        if cell.hosts:
            entry |= {"hosts": list(cell.hosts), "together": groups.setdefault(launch.together, len(groups))}
        found.append(entry)
    return found


def _comes_next(results: Path, batch_id: str, generation: int, before: list[RecordSummary]) -> bool:
    """Return whether a batch is unfinished and its next records supersede earlier ones, also from other attempts."""
    return not (results / "batches" / batch_id / "manifest.json").exists() and all(
        slot.generation < generation
        or (slot.generation == generation and slot.status in ALWAYS_RETRIED and slot.launch.startswith(f"{batch_id}-l"))
        for slot in before
    )
