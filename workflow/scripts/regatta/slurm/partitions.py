"""Whether the partition of a cluster file can hold the jobs of a campaign: most Slurms take a job that can never start."""

import math
import re
from dataclasses import dataclass

from regatta.slurm.queue import answer


@dataclass
class Partition:
    """What sinfo says of a partition, summed over its kinds of nodes. max_minutes: infinite where it has no limit."""

    is_default: bool
    max_minutes: float
    num_nodes: int
    num_cpus: int


def read_partitions() -> dict[str, Partition]:
    """Return the partitions by their names; empty where sinfo does not answer, as on a machine without Slurm."""
    found: dict[str, Partition] = {}
    for line in (answer(["sinfo", "--noheader", "--format=%P|%l|%D|%c"]) or "").splitlines():
        name, limit, nodes, cpus = (line.split("|") + [""] * 4)[:4]
        if not nodes.isdigit():
            continue
        entry = found.setdefault(name.rstrip("*"), Partition(name.endswith("*"), minutes_of(limit), 0, 0))
        entry.num_nodes += int(nodes)
        entry.num_cpus = max(entry.num_cpus, int(re.match(r"\d*", cpus)[0] or 0))  # "64+" where nodes differ
    return found


def minutes_of(limit: str) -> float:
    """Return the minutes of one of Slurm's times: D-HH:MM:SS, HH:MM:SS, MM:SS; `infinite` and `n/a` are no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 1440 + hours * 60 + minutes + seconds / 60


def partition_problems(cluster: dict, shapes: list[tuple[int, int]], partitions: dict[str, Partition]) -> list[str]:
    """Return why jobs of these shapes (nodes, ranks per node) could never start, each with the key to correct.

    A job may name several partitions (a,b) and starts in any of them: then nothing is held against it but their names.
    """
    if not partitions:
        return []
    if cluster["partition"] is None:
        names = [name for name, entry in partitions.items() if entry.is_default]
    else:
        names = cluster["partition"].split(",")
    unknown = [name for name in names if name not in partitions]
    if unknown:
        return [f"partition = '{unknown[0]}' is none of this Slurm. Choose from: {', '.join(partitions)}."]
    if len(names) != 1 or not shapes:
        return []
    name, entry = names[0], partitions[names[0]]
    found = []
    if cluster["max_walltime_minutes"] > entry.max_minutes:
        limit = f"partition {name} ends jobs after {entry.max_minutes:g}"
        text = f"max_walltime_minutes = {cluster['max_walltime_minutes']}, but {limit}. Write at most that."
        found.append(text)
    if (nodes := max(nodes for nodes, _ in shapes)) > entry.num_nodes:
        found.append(f"num_nodes: a shape needs {nodes} nodes, and partition {name} has {entry.num_nodes}.")
    cpus = max(ranks for _, ranks in shapes) * (cluster["cpus_per_rank"] or 1)
    if cpus > entry.num_cpus > 0:
        text = f"{cpus} cores on a node (gpus_per_node x cpus_per_rank), and those of partition {name} have {entry.num_cpus}"
        found.append(f"cpus_per_rank = {cluster['cpus_per_rank']}: a shape needs {text}.")
    return found
