"""An acceptance sweep: every cell is measured on each node, or on each pair of nodes, with their names in its spec."""

import itertools
import math
from collections.abc import Iterable, Sequence

from regatta.campaign.yaml_file import FileError, YamlFile, raise_errors
from regatta.core.errors import nearest
from regatta.core.text import natural, plural
from regatta.launchers import launcher_of

NODES_PER_CELL = {"nodes": 1, "pairs": 2}

MAX_SETS = 1_000_000

Hosts = tuple[str, ...]


def sweep_errors(file: YamlFile, data: dict, cluster: dict) -> list[FileError]:
    """Return errors for keys that a sweep does not allow, and for keys that require one."""
    over = data.get("sweep")
    if over is None:
        alone = data.get("sweep_hosts") is not None
        return [file.error(("sweep_hosts",), "sweep_hosts has no effect without sweep. Remove it.")] if alone else []
    launcher, found = launcher_of(cluster), []
    if not launcher.submits:
        text = f"sweep = '{over}' needs several nodes, and cluster {cluster['name']} is one machine"
        found.append(file.error(("sweep",), f"{text} (scheduler: {launcher.name}). Change cluster, or remove sweep."))
    num = NODES_PER_CELL[over]
    for index, shape in enumerate(data.get("shapes", [])):
        if shape["nodes"] != [num]:
            text = f"shapes[{index}].nodes = {shape['nodes']}, but a cell of sweep: {over} uses {plural(num, 'node')}."
            found.append(file.error(("shapes", index, "nodes"), f"{text} Write [{num}]."))
    try:
        for names in data.get("sweep_hosts") or []:
            launcher.queue.node_names(names)
    except ValueError as error:
        found.append(file.error(("sweep_hosts",), f"sweep_hosts: {error}. Write names, or lists such as n[5-8]."))
    return found


def host_sets(file: YamlFile, data: dict, cluster: dict) -> dict[Hosts, str | None]:
    """Return the nodes of each cell of a sweep, sorted, with the reason why they cannot be measured, or None.

    Without a sweep: one empty entry. Raises UserError if a node is unknown, or if there are too few or too many.
    """
    if data["sweep"] is None:
        return {(): None}
    launcher = launcher_of(cluster)
    known, where = launcher.queue.nodes(cluster), ("sweep_hosts" if data["sweep_hosts"] else "sweep",)
    chosen = [name for names in data["sweep_hosts"] or [] for name in launcher.queue.node_names(names)] or list(known)
    errors = []
    if unknown := [name for name in chosen if known and name not in known]:
        kind = "this allocation, or of this partition with the constraint and gpu_type of the cluster file"
        text = f"sweep_hosts: {unknown[0]} is not a node of {kind}.{nearest(unknown[0], known)}"
        errors.append(file.error(where, text))
    num, excluded = NODES_PER_CELL[data["sweep"]], launcher.queue.excluded_nodes(cluster)
    names = sorted({name for name in chosen if name not in excluded}, key=natural)
    if not known and not chosen:
        text = f"the nodes are unknown: {launcher.title} does not answer. Plan on a login node, or list sweep_hosts."
        errors.append(file.error(where, text))
    elif len(names) < num:
        text = f"sweep: {data['sweep']} has only {plural(len(names), 'node')} and needs {num}. Change sweep_hosts."
        errors.append(file.error(where, text))
    elif (num_sets := math.comb(len(names), num)) > MAX_SETS:
        text = (
            f"{len(names)} nodes form {num_sets:,} pairs; the limit is {MAX_SETS:,}. List fewer nodes in sweep_hosts."
        )
        errors.append(file.error(where, text))
    raise_errors(file, errors)
    sets = itertools.combinations(names, num)
    return {hosts: next((known[host] for host in hosts if known.get(host)), None) for hosts in sets}


def rounds(sets: Iterable[Hosts]) -> list[list[Hosts]]:
    """Group sets of nodes into rounds. The sets of a round are disjoint, so they can be measured at the same time.

    Pairs of n nodes take n - 1 rounds (n if odd), as in a round-robin tournament by the circle method.
    """
    sets = list(sets)
    names = sorted({host for hosts in sets for host in hosts}, key=natural)
    place = {name: index for index, name in enumerate(names)}
    found: dict[int, list[Hosts]] = {}
    for hosts in sets:
        found.setdefault(_round([place[host] for host in hosts], len(names)), []).append(hosts)
    return [found[number] for number in sorted(found)]


def _round(places: Sequence[int], num: int) -> int:
    """Return the round in which the nodes at these places meet. With an odd number, one node pauses in each round."""
    if len(places) == 1:
        return 0
    last = num - 1 if num % 2 == 0 else num  # meets place p in round p
    low, high = sorted(places)
    return low if high == last else (low + high) * ((last + 1) // 2) % last
