"""Cells, frozen campaigns and frozen batches as objects, read by `from_json`. Campaigns are written by `to_json`.

Of a campaign, fields that this version does not know are kept: those of a cell in `other`, those of its spec in `spec`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from regatta.core.benchmarks import Benchmark, custom_benchmarks, load_benchmark
from regatta.core.names import CellName, cell_names
from regatta.core.text import natural

# Fields of a script or program, and of its spec, that follow from the parameters that its user named.
FROM_USER = ("settings", "samples_per_step", "tokens_per_step", "parameters", "arguments")
_PARTS = ("benchmark", "version", "device", "backend", "nodes", "gpus_per_node", "parameters", "sampling")


@dataclass(frozen=True)
class Stack:
    """A stack, as the id of a cell identifies it. settings: all but its name; old stores may lack any of them."""

    name: str
    settings: Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Cell:
    """One point of the matrix. spec: everything that can affect its results, as JSON; id: its slug and hash.

    All other fields are parts of the spec. version: that of the benchmark. sampling: when it ends; None if the cell was
    imported, or is of a program. hosts: the nodes on which a cell of a sweep is measured; empty for other cells.
    """

    id: str
    spec: Mapping[str, object]
    benchmark: str = dataclasses.field(init=False)
    version: int = dataclasses.field(init=False)
    device: str = dataclasses.field(init=False)
    backend: str = dataclasses.field(init=False)
    nodes: int = dataclasses.field(init=False)
    gpus_per_node: int = dataclasses.field(init=False)
    stack: Stack = dataclasses.field(init=False)
    parameters: Mapping[str, object] = dataclasses.field(init=False)
    sampling: Mapping[str, float] | None = dataclasses.field(init=False)
    node_type: str | None = dataclasses.field(init=False)
    hosts: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        optional = {"node_type": self.spec.get("node_type"), "hosts": tuple(self.spec.get("hosts", ()))}
        settings = dict(self.spec["stack"])
        optional["stack"] = Stack(settings.pop("name"), settings)
        vars(self).update({name: self.spec[name] for name in _PARTS}, **optional)

    @property
    def shape(self) -> tuple[int, int]:
        return self.nodes, self.gpus_per_node

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def samples(self) -> int | None:
        """Return the samples of one step on one rank; None if they are unknown, as of some scripts."""
        return self.parameters.get("batch_size", self.parameters.get("samples_per_step"))

    def field(self, name: str) -> object:
        """Return a field by its name in the campaign file, also a parameter of a user's script or program.

        None if the cell has no such field. Program parameters are strings.
        """
        if name in ("stack", "world_size"):
            return self.stack.name if name == "stack" else self.world_size
        return next((of[name] for of in (self.spec, self.parameters, self.user_parameters) if name in of), None)

    @property
    def user_parameters(self) -> Mapping[str, object]:
        """Return the parameters that the user named: of a script, or as strings of a program; otherwise none."""
        return (self.spec.get("script") or self.spec.get("program") or {"parameters": {}})["parameters"]

    @property
    def fields(self) -> dict[str, object]:
        """Return all fields: the stack by its name, which is unique in a campaign, and each parameter as a field.

        Without the executables of a program, which stacks may have in different places.
        """
        found = {name: value for name, value in self.spec.items() if name not in ("parameters", "executables")}
        return {**found, **self.parameters, "stack": self.stack.name}

    def fields_with(self, names: Iterable[str]) -> dict[str, object]:
        """Return all fields. If one of the names is a user's parameter: these as fields, not what follows from them."""
        fields, of_user = self.fields, self.user_parameters
        if of_user.keys().isdisjoint(names):
            return fields
        fields[self.benchmark] = {key: of for key, of in self.spec[self.benchmark].items() if key not in FROM_USER}
        return {**of_user, **{name: value for name, value in fields.items() if name not in FROM_USER}}


@dataclass(frozen=True)
class FrozenCell(Cell):
    """A cell of a frozen campaign.

    command: repeats it by hand. repeats: its launches, if an import has fewer than for others. reason: why a skipped
    cell is not measured.
    """

    command: str | None = None
    limit_seconds: float | None = None
    repeats: int | None = None
    reason: str | None = None
    other: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "FrozenCell":
        return fields_from_json(cls, content)

    def to_json(self) -> dict:
        content = fields_to_json(self)
        return content if self.reason is not None else {"id": self.id, "spec": self.spec, "command": None} | content


@dataclass(frozen=True, kw_only=True)
class FrozenCampaign:
    """A frozen campaign: docs/contracts.md. repeats: launches of each cell. imported: the files, None if measured.

    benchmarks: declarations of those outside Regatta's tree, by name. references: of the gate, None if there are none.
    """

    schema: int | None = None
    name: str
    description: str | None
    source: str
    text: str
    cluster: Mapping[str, object]
    device: str
    repeats: int
    seed: int | None = None
    isolation: str | None = None
    baseline: Mapping[str, object]
    versus: Mapping[str, object] | None = None
    sweep: str | None = None
    allocations: int | None = None
    cells: tuple[FrozenCell, ...]
    skipped: tuple[FrozenCell, ...]
    imported: list[dict] | None = None
    benchmarks: Mapping[str, dict] | None = None
    references: list[dict] | None = None
    other: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "FrozenCampaign":
        """Return the campaign of a file that meets its schema (store/frozen_files.py)."""
        lists = {name: tuple(map(FrozenCell.from_json, content[name])) for name in ("cells", "skipped")}
        return fields_from_json(cls, {**content, **lists})

    def to_json(self) -> dict:
        content = fields_to_json(self)
        return content | {name: [cell.to_json() for cell in content[name]] for name in ("cells", "skipped")}

    @cached_property
    def custom_benchmarks(self) -> dict[str, Benchmark]:
        """The benchmarks outside Regatta's tree by name."""
        return custom_benchmarks(self.benchmarks or {})

    @cached_property
    def benchmarks_of_cells(self) -> list[Benchmark]:
        """The benchmarks of all cells, in their order."""
        names = dict.fromkeys(cell.benchmark for cell in self.all_cells)
        return [self.custom_benchmarks.get(name) or load_benchmark(name) for name in names]

    @property
    def all_cells(self) -> tuple[FrozenCell, ...]:
        """Return the cells to measure, then the skipped ones."""
        return self.cells + self.skipped

    @cached_property
    def by_id(self) -> dict[str, FrozenCell]:
        """The cells to measure by their ids."""
        return {cell.id: cell for cell in self.cells}

    @cached_property
    def cell_names(self) -> dict[str, CellName]:
        """The name of each cell by its id, including skipped ones."""
        return names_by_id(self.all_cells)

    @cached_property
    def stack_names(self) -> list[str]:
        """The stacks of the cells to measure, in the order of the campaign file."""
        return list(dict.fromkeys(cell.stack.name for cell in self.cells))

    @property
    def slots(self) -> list[tuple[str, int]]:
        """Return cell id and repeat of all launches of the cells to measure."""
        return [(cell.id, repeat) for cell in self.cells for repeat in range(self.repeats_of(cell))]

    def cells_of(self, benchmark: str) -> list[FrozenCell]:
        """Return the cells of one benchmark to measure, sorted by their ids with sizes as numbers."""
        return sorted((cell for cell in self.cells if cell.benchmark == benchmark), key=lambda cell: natural(cell.id))

    def repeats_of(self, cell: FrozenCell) -> int:
        """Return the launches of a cell."""
        return cell.repeats or self.repeats


@dataclass(frozen=True)
class FrozenLaunch:
    """A planned launch of a frozen batch, and its shape. hosts: its nodes in a sweep, otherwise none.

    together: launches of a sweep with the same number run at the same time, each on its own nodes.
    """

    repeat: int
    stack: str
    cells: list[str]
    nodes: int
    gpus_per_node: int
    hosts: tuple[str, ...] | list[str] = ()
    together: int | None = None


@dataclass(frozen=True)
class FrozenBatch:
    """A frozen batch, batch.json: docs/contracts.md. cells: by id. preflight: the one that its stacks must pass."""

    campaign: str
    nodes: int
    gpus_per_node: int
    device: str
    cluster: Mapping[str, object]
    launch_start_seconds: float
    stacks: Mapping[str, dict]
    cells: Mapping[str, FrozenCell]
    launches: tuple[FrozenLaunch, ...]
    preflight: str | None = None
    generation: int = 1

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "FrozenBatch":
        """Return the batch of a file that meets its schema (store/frozen_files.py)."""
        shape = {name: content[name] for name in ("nodes", "gpus_per_node")}  # of launches that have no other
        cells = {name: FrozenCell.from_json({"id": name, **cell}) for name, cell in content["cells"].items()}
        launches = tuple(fields_from_json(FrozenLaunch, shape | launch) for launch in content["launches"])
        return fields_from_json(cls, {**content, "cells": cells, "launches": launches})


def names_by_id(cells: Iterable[Cell]) -> dict[str, CellName]:
    """Return the name of each cell among the others by its id."""
    cells = list(cells)
    of_sweep = [{"hosts": ", ".join(cell.hosts)} if cell.hosts else {} for cell in cells]
    names = cell_names([cell.fields | hosts for cell, hosts in zip(cells, of_sweep, strict=True)])
    return {cell.id: name for cell, name in zip(cells, names, strict=True)}


def fields_from_json(kind: type, content: Mapping[str, object]) -> object:
    """Return an object with the fields of its class; unknown keys go to `other`, if they are written again."""
    known = _fields(kind)
    own = {name: value for name, value in content.items() if name in known}
    if "other" in kind.__dataclass_fields__:
        own["other"] = {name: value for name, value in content.items() if name not in known}
    return kind(**own)


def fields_to_json(value: object) -> dict:
    """Return the fields of an object in their order, without optional ones that are None, then the unknown ones."""
    own = ((name, getattr(value, name), is_needed) for name, is_needed in _fields(type(value)).items())
    return {name: of for name, of, is_needed in own if is_needed or of is not None} | getattr(value, "other", {})


@cache
def _fields(kind: type) -> dict[str, bool]:
    """Return the fields that are also in JSON, and whether it always has them."""
    return {
        of.name: of.default is dataclasses.MISSING for of in dataclasses.fields(kind) if of.init and of.name != "other"
    }
