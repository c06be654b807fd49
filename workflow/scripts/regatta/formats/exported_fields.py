"""What Regatta adds to the files of other programs that it writes, so that an import finds the same cells again."""

from regatta.formats.base import Node, parameters_of


def cell_fields(spec: dict) -> dict:
    """Return what identifies a cell beside its parameters."""
    return {
        "stack": spec["stack"]["name"],
        "version": spec["version"],
        "nodes": spec["nodes"],
        "gpus_per_node": spec["gpus_per_node"],
    }


def other_parameters(spec: dict, named: tuple[str, ...]) -> dict:
    """Return the parameters of a cell but those that the form has a name for."""
    return {name: value for name, value in spec["parameters"].items() if name not in named}


def stated_shape(entry: Node, num_ranks: int) -> tuple[int, int] | None:
    """Return (nodes, GPUs per node) of an entry, None where it does not say them."""
    if not (is_there(entry, "nodes") and is_there(entry, "gpus_per_node")):
        return None
    shape = entry.key("nodes").whole(), entry.key("gpus_per_node").whole()
    if shape[0] * shape[1] != num_ranks:
        raise entry.key("nodes").refuse(f"nodes x gpus_per_node = {num_ranks} ranks")
    return shape


def is_there(node: Node, key: str) -> bool:
    return node.has(key) and node.key(key).value is not None


def read_parameters(entry: Node, benchmark: str, **named: object) -> dict:
    """Return all parameters of a cell: `named`, those that the entry's `parameters` has, the rest at their defaults."""
    known = parameters_of(benchmark, **named)
    for name, node in entry.key("parameters").members() if is_there(entry, "parameters") else []:
        if name in known and name not in named:
            if isinstance(node.value, dict | list):
                raise node.refuse("a word, a number or null")
            known[name] = node.whole(0) if isinstance(node.value, float) and node.value.is_integer() else node.value
    return known


def read_cell_fields(entry: Node) -> dict:
    """Return the fields of a reading that identify its cell, None where the entry does not say them."""
    return {
        "stack": entry.key("stack").text() if is_there(entry, "stack") else None,
        "version": entry.key("version").whole() if is_there(entry, "version") else None,
    }
