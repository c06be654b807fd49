"""Which cells of one campaign are compared: those that differ in the axis alone that the campaign declares `versus`."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from regatta.campaign.matrix import canonical_json, field_value
from regatta.campaign.versus import complete_versus


@dataclass(frozen=True)
class CellPair:
    """Two cells of a frozen campaign."""

    reference: dict
    other: dict


def versus_of(campaign: dict) -> dict:
    """Return axis, reference and margin of a frozen campaign, also of one frozen before there was such a key."""
    return complete_versus(campaign.get("versus", "stack"))


def cell_pairs(campaign: dict) -> list[CellPair]:
    """Return each pair of reference and other, in the order of the campaign's cells.

    A parameter that is null in one of them has no effect there, so it need not be equal (bucket size of strategy none).
    """
    versus = versus_of(campaign)
    axis, wanted = versus["axis"], versus["reference"]
    cells = [cell for cell in campaign["cells"] if field_value(cell["spec"], axis) is not None]
    values = list(dict.fromkeys(_value(cell, axis) for cell in cells))
    found = []
    for group in _groups(cells, axis):
        first = (
            canonical_json(wanted) if wanted is not None else min((_value(c, axis) for c in group), key=values.index)
        )
        references = [cell for cell in group if _value(cell, axis) == first]
        others = [cell for cell in group if _value(cell, axis) != first]
        found += [CellPair(a, b) for b in others for a in references if _is_alike(_flat(a, axis), _flat(b, axis))]
    place = {cell["id"]: index for index, cell in enumerate(cells)}
    return sorted(found, key=lambda pair: (place[pair.other["id"]], place[pair.reference["id"]]))


def alike_stacks(campaign: dict) -> list[CellPair]:
    """Return the pairs of cells whose stacks differ in nothing but their name: they measure the same (A/A).

    Each is paired with the first of its kind, or with that of the reference where the campaign compares stacks.
    """
    versus = versus_of(campaign)
    first = versus["reference"] if versus["axis"] == "stack" else None
    groups = defaultdict(list)
    for cell in campaign["cells"]:
        stack = {name: value for name, value in cell["spec"]["stack"].items() if name != "name"}
        groups[canonical_json(cell["spec"] | {"stack": stack})].append(cell)
    found = []
    for group in groups.values():
        reference = next((cell for cell in group if cell["spec"]["stack"]["name"] == first), group[0])
        found += [CellPair(reference, cell) for cell in group if cell is not reference]
    return found


def _value(cell: dict, axis: str) -> str:
    """Return a cell's value of the axis as one text, in which 1 and 1.0 are equal, 1 and true are not."""
    return canonical_json(field_value(cell["spec"], axis))


def _groups(cells: list[dict], axis: str) -> Iterator[list[dict]]:
    """Yield the cells that agree in all fields which no cell of their benchmark has null. Partners lie in one group."""
    by_benchmark = defaultdict(list)
    for cell in cells:
        by_benchmark[cell["spec"]["benchmark"]].append((cell, _flat(cell, axis)))
    for members in by_benchmark.values():
        known = [name for name in members[0][1] if all(flat.get(name) is not None for _, flat in members)]
        groups = defaultdict(list)
        for cell, flat in members:
            groups[canonical_json([flat[name] for name in known])].append(cell)
        yield from groups.values()


def _flat(cell: dict, axis: str) -> dict:
    """Return all fields of a cell but the axis. Of the stack its name: in one campaign no two are called alike."""
    spec = cell["spec"]
    fields = {name: value for name, value in spec.items() if name not in ("parameters", "stack")}
    fields |= spec["parameters"] | {"stack": spec["stack"]["name"]}
    return {name: value for name, value in fields.items() if name != axis}


def _is_alike(a: dict, b: dict) -> bool:
    return all(a.get(name) == b.get(name) or a.get(name) is None or b.get(name) is None for name in a.keys() | b.keys())
