"""Node types: which keys of the cluster file apply to a stack, and which stacks are measured in which shapes.

A shape that names a node type is measured on those nodes only, by the stacks of that type and by those without a type.
A stack without a type has a copy for each type that shapes name: the copy of `host` for `h100` is `host-h100`. No stack
of a file has such a name, because theirs have no dash.
"""

from regatta.campaign.yaml_file import FileError, YamlFile
from regatta.core.errors import UserError, nearest
from regatta.core.schemas import Where, place

Shape = tuple[int, int]  # nodes, GPUs per node


def clusters_of_stacks(
    file: YamlFile, data: dict, cluster: dict, stacks: dict[str, dict]
) -> tuple[dict[str, dict], list[FileError]]:
    """Return the cluster of each stack, with the keys of its node type, for stacks and their copies; and errors.

    data: the valid keys of the campaign. cluster: the cluster file's.
    """
    default, shapes = data.get("node_type"), data.get("shapes", [])
    named = {shape.get("node_type"): ("shapes", i, "node_type") for i, shape in enumerate(shapes)} or {None: ()}
    of_shapes = {kind or default: where if kind else ("node_type",) for kind, where in named.items()}
    found: dict[str, dict] = {}
    errors: dict[FileError, None] = {}
    for name, stack in stacks.items():
        of_stack = {stack["node_type"]: ("stacks", name, "node_type")} if stack["node_type"] else of_shapes
        for kind, where in of_stack.items():
            copy = name if kind in (stack["node_type"], default) else f"{name}-{kind}"
            try:
                found[copy] = of_node_type(file, cluster, kind, where)
            except UserError as error:
                errors[FileError(where, str(error))] = None
    for name, measured in shapes_of_stacks(shapes, found).items():
        if shapes and not measured:
            kind = found[name]["node_type"]
            text = f"stacks.{name}.node_type = '{kind}', but every shape names another node type."
            remedy = f"Add a shape with node_type: {kind}, or remove the stack."
            errors[file.error(("stacks", name, "node_type"), f"{text} {remedy}")] = None
    return found, [*errors, *_memory_errors(file, found)]


def original(stack: str) -> str:
    """Return the name in the file of a stack or of a copy."""
    return stack.partition("-")[0]


def shapes_of_stacks(shapes: list[dict], clusters: dict[str, dict]) -> dict[str, list[Shape]]:
    """Return the shapes in which each stack is measured, in the order of the file. clusters: by stack.

    A shape without a node type applies to all stacks but the copies.
    """
    found: dict[str, list[Shape]] = {}
    for name, cluster in clusters.items():
        of_stack = [
            (nodes, gpus)
            for shape in shapes
            if (shape["node_type"] == cluster.get("node_type") if shape.get("node_type") else name == original(name))
            for nodes in shape["nodes"]
            for gpus in shape["gpus_per_node"]
        ]
        found[name] = list(dict.fromkeys(of_stack))
    return found


def of_node_type(campaign: YamlFile, cluster: dict, name: str | None, where: Where) -> dict:
    """Return a cluster with the keys of one of its node types, and its name as `node_type`; unchanged for None."""
    types = cluster["node_types"]
    if name is not None and name not in types:
        found = f"{campaign.at(where)}: {place(where)} = '{name}' is not in node_types of cluster {cluster['name']}."
        known = f"Choose from: {', '.join(types)}." if types else "The file defines none; add it, or remove the key."
        raise UserError(f"{found}{nearest(name, types)} {known}")
    chosen = {} if name is None else {**types[name], "node_type": name}
    return {key: value for key, value in cluster.items() if key != "node_types"} | chosen


def _memory_errors(file: YamlFile, clusters: dict[str, dict]) -> list[FileError]:
    """Return an error if some node types request all memory and others do not: one variable of sbatch applies to
    all jobs."""
    all_memory = {name for name, cluster in clusters.items() if cluster["memory_mb_per_node"] == 0}
    if not all_memory or all_memory == clusters.keys():
        return []
    names = ", ".join(name for name in clusters if name not in all_memory)
    text = f"memory_mb_per_node is 0 for stack {min(all_memory)}, but not for {names}. Use 0 for all or none."
    return [file.error(("stacks", original(min(all_memory))), text)]
