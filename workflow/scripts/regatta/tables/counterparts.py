"""Which cells are compared: by an axis, a stack or a baseline, and of two campaigns those that measure the same."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from regatta.campaign.expansion import canonical_json
from regatta.campaign.versus import complete_versus
from regatta.model.frozen import Cell, FrozenCampaign, FrozenCell

Pair = tuple[str | None, str | None]  # ids of a cell and of the one that it is compared with
ONE_RANK = {"nodes": 1, "gpus_per_node": 1}
NO_DDP = ONE_RANK | {"strategy": "none"}
WEAK, STRONG = "weak", "strong"


@dataclass(frozen=True)
class CellPair:
    """Two cells that measure the same but for one axis."""

    reference: FrozenCell
    other: FrozenCell
    axis: str

    @property
    def ids(self) -> frozenset[str]:
        return frozenset((self.reference.id, self.other.id))


def versus_of(campaign: FrozenCampaign) -> dict:
    """Return axis, reference and margin of a frozen campaign, also of one frozen before the key existed."""
    return complete_versus(campaign.versus or "stack")


def cell_pairs(campaign: FrozenCampaign) -> list[CellPair]:
    """Return the pairs of cells that differ only in the axis `versus` of the campaign, in its order of cells.

    A parameter that is null in one of them has no effect there, so it need not be equal (bucket size of strategy none).
    """
    versus = versus_of(campaign)
    axis, wanted = versus["axis"], versus["reference"]
    cells = [cell for cell in campaign.cells if cell.field(axis) is not None]
    value = {cell.id: canonical_json(cell.field(axis)) for cell in cells}  # 1 and 1.0 are equal, 1 and true are not
    order = {text: place for place, text in enumerate(dict.fromkeys(value.values()))}
    fields = {cell.id: {name: of for name, of in cell.fields_with([axis]).items() if name != axis} for cell in cells}
    known: dict[str, set[str]] = {}  # by benchmark, the fields that are null in none of its cells
    for cell in cells:
        names = {name for name, of in fields[cell.id].items() if of is not None}
        known[cell.benchmark] = known.get(cell.benchmark, names) & names
    groups = defaultdict(list)
    shared = [[fields[cell.id][name] for name in sorted(known[cell.benchmark])] for cell in cells]
    keys = [canonical_json([cell.benchmark, *of]) for cell, of in zip(cells, shared, strict=True)]
    for cell, key in zip(cells, keys, strict=True):
        groups[key].append(cell)
    found = []
    for other, key in zip(cells, keys, strict=True):
        group = groups[key]
        first = min((value[cell.id] for cell in group), key=order.get) if wanted is None else canonical_json(wanted)
        if value[other.id] != first:
            references = (cell for cell in group if value[cell.id] == first)
            alike = (cell for cell in references if _is_alike(fields[cell.id], fields[other.id]))
            found += [CellPair(reference, other, axis) for reference in alike]
    return found


def _is_alike(a: dict, b: dict) -> bool:
    return all(a.get(name) == b.get(name) or a.get(name) is None or b.get(name) is None for name in a.keys() | b.keys())


def alike_stacks(campaign: FrozenCampaign) -> list[CellPair]:
    """Return the pairs of cells whose stacks differ only in their names: they measure the same (A/A).

    Each is paired with the first of its kind, or with that of the reference if the campaign compares stacks.
    """
    versus = versus_of(campaign)
    first = versus["reference"] if versus["axis"] == "stack" else None
    groups = defaultdict(list)
    for cell in campaign.cells:
        groups[canonical_json(cell.spec | {"stack": cell.stack.settings})].append(cell)
    found = []
    for group in groups.values():
        reference = next((cell for cell in group if cell.stack.name == first), group[0])
        found += [CellPair(reference, cell, "stack") for cell in group if cell is not reference]
    return found


def matched_fields(cell: Cell) -> dict[str, object]:
    """Return what cells of campaigns are matched by, with each parameter as a field."""
    names = ("stack", "nodes", "gpus_per_node", "backend", "device")
    return {"benchmark": cell.benchmark, **cell.parameters, **{name: cell.field(name) for name in names}}


def match_key(cell: Cell) -> str:
    """Return a text that identifies what a cell measures. Its id does not: an upgraded image changes it."""
    return canonical_json(matched_fields(cell) | ({"hosts": cell.hosts} if cell.hosts else {}))


# Baselines.


class BaselineLookup:
    """Find the cell that a cell is compared with: the same but for some changes, such as one rank and no DDP.

    A parameter that is null in the found cell has no effect there, so it need not be equal. names: fields that may be
    changed, if they are parameters that the user named.
    """

    def __init__(self, cells: Iterable[Cell], names: Iterable[str] = ()) -> None:
        self.cells, self.names = {cell.id: cell for cell in cells}, names
        self._ids: dict[tuple, list[str]] = {}  # by the names and values of what is not null
        for cell in self.cells.values():
            known = {name: value for name, value in self._flat(cell).items() if value is not None}
            self._ids.setdefault((tuple(known), *known.values()), []).append(cell.id)
        self._names = {names for names, *_ in self._ids}

    def find(self, cell: Cell, changes: dict) -> str | None:
        """Return the one cell that equals `cell` but for `changes` (to shape or parameters), or None."""
        wanted, changed = self._flat(cell) | changes, {name for name, value in changes.items() if value is not None}
        keys = [(names, *map(wanted.get, names)) for names in self._names if changed <= set(names)]
        matches = [found for key in keys for found in self._ids.get(key, ())]
        return matches[0] if len(matches) == 1 else None

    def parts(self, cell: Cell) -> dict[str, Pair]:
        """Return, for each part of the loss, the pair of cells to compare: with and without that part.

        Parts that need a second GPU or node are omitted for shapes without one.
        """
        places = (NO_DDP, ONE_RANK, {"nodes": 1}, {})
        unwrapped, one_gpu, one_node, all_nodes = (self.find(cell, changes) for changes in places)
        found = {"ddp_ratio": (one_gpu, unwrapped)} if cell.parameters["strategy"] != "none" else {}
        found |= {"intra_node_ratio": (one_node, one_gpu)} if cell.gpus_per_node > 1 else {}
        return found | ({"inter_node_ratio": (all_nodes, one_node)} if cell.nodes > 1 else {})

    def _flat(self, cell: Cell) -> dict:
        fields = cell.fields_with(self.names).items()
        return {name: str(value) if isinstance(value, dict | list) else value for name, value in fields}


def baselines_of(cell: Cell) -> list[tuple[str, str, dict]]:
    """Return (weak or strong, name, changes) for each baseline of a cell; none for one rank."""
    n, strategy = cell.world_size, cell.parameters["strategy"]
    if n == 1:
        return []
    one_rank = [(f"{strategy}, 1 rank", ONE_RANK)]
    if strategy != "none":
        one_rank.insert(0, ("none, 1 rank", NO_DDP))
    one_node = [(f"{strategy}, 1 node", {"nodes": 1})] if cell.nodes > 1 else []
    same_work = {"batch_size": cell.parameters["batch_size"] * n}
    strong = [(STRONG, name, changes | same_work) for name, changes in one_rank]
    return [(WEAK, *baseline) for baseline in one_rank + one_node] + strong
