"""What a batch asks Slurm for, in the words of Snakemake's Slurm executor (2.8).

The executor leaves a job's own srun alone only where `mpi` is set, and then wants two tasks at least: a batch of one rank
asks for two tasks on its node and uses one. What the ranks really get, srun says (launch.py).
"""

import math
import shlex
from collections.abc import Iterable

from regatta.slurm.exclusion import with_avoided

WALLTIME_FACTOR = 1.5  # of the planned minutes: a cell that fails is measured no longer, but its launch starts again
WALLTIME_EXTRA_MINUTES = 5


def site_resources(cluster: dict) -> dict[str, str | int]:
    """Return the resources that are the same for all jobs of a cluster; only those that its file sets."""
    words = {
        "slurm_partition": cluster["partition"],
        "slurm_account": cluster["account"],
        "qos": cluster["qos"],
        "constraint": cluster["constraint"],
    }
    # 0 keeps Snakemake's own default of some MB away; all of the memory is asked for in the environment (common.smk).
    return {key: value for key, value in words.items() if value is not None} | {
        "mem_mb": cluster["memory_mb_per_node"] or 0
    }


def shape_resources(cluster: dict, nodes: int, gpus_per_node: int, device: str) -> dict[str, int | str]:
    """Return nodes, tasks and cores of a batch, so that srun can start gpus_per_node ranks on each node."""
    cpus = cluster["cpus_per_rank"] or 1
    found: dict[str, int | str] = {"nodes": nodes, "tasks": 0, "tasks_per_node": 0, "cpus_per_task": cpus}
    found |= {"gres": "", "tasks_per_gpu": 0}
    if gpus_per_node > 1:
        found["tasks_per_node"] = gpus_per_node
    elif nodes > 1:
        found["tasks"] = nodes
    else:
        found |= {"tasks": 2, "cpus_per_task": math.ceil(cpus / 2)}
    if device == "cuda" and cluster["gpu_request"] == "gres":
        found["gres"] = f"gpu:{gpus_per_node}"
    return found


def walltime_minutes(cluster: dict, planned_minutes: float, attempt: int) -> int:
    """Return the time limit of a job: more with each attempt, never above the cluster's."""
    minutes = math.ceil(planned_minutes * WALLTIME_FACTOR) + WALLTIME_EXTRA_MINUTES
    return min(cluster["max_walltime_minutes"], minutes * attempt)


def longest_planned_minutes(cluster: dict) -> float:
    """Return how long a batch may be planned so that its time limit is within the cluster's; no bound without Slurm."""
    if cluster["scheduler"] == "none":
        return math.inf
    return max(1.0, (cluster["max_walltime_minutes"] - WALLTIME_EXTRA_MINUTES) / WALLTIME_FACTOR)


def sbatch_words(cluster: dict, nodes: int, gpus_per_node: int, device: str, planned_minutes: float) -> str:
    """Return what a job is asked for at its first attempt, as sbatch's options: for people. The executor adds its own."""
    shape = shape_resources(cluster, nodes, gpus_per_node, device)
    told = {
        "--partition": cluster["partition"],
        "--account": cluster["account"],
        "--qos": cluster["qos"],
        "--constraint": cluster["constraint"],
        "--reservation": cluster["reservation"],
        "--mem": cluster["memory_mb_per_node"],
        "--time": walltime_minutes(cluster, planned_minutes, 1),
        "--nodes": nodes,
        "--ntasks": shape["tasks"] or None,
        "--ntasks-per-node": shape["tasks_per_node"] or None,
        "--cpus-per-task": shape["cpus_per_task"],
        "--gres": shape["gres"] or None,
    }
    words = [shlex.quote(f"{name}={value}") for name, value in told.items() if value is not None]
    return " ".join([*words, sbatch_options(cluster, nodes, gpus_per_node, device)]).rstrip()


def sbatch_options(cluster: dict, nodes: int, gpus_per_node: int, device: str, avoid: Iterable[str] = ()) -> str:
    """Return the options for which the executor has no resource, quoted for the shell that it hands them to.

    avoid: nodes on which launches of this batch could not start; left in where the cluster has too few others.
    """
    options = ["--exclusive"] if cluster["exclusive"] else []
    if device == "cuda" and cluster["gpu_request"] == "gpus-per-node":
        options.append(f"--gpus-per-node={gpus_per_node}")
    return shlex.join([*options, *with_avoided(cluster["sbatch"], avoid, cluster["num_nodes"], nodes)])
