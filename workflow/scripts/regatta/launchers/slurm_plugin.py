"""What a job requests, as resources of Snakemake: the names are those of snakemake-executor-plugin-slurm."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType

from regatta.launchers.base import Geometry

# Resources that --set-resources and --default-resources may set, and the keys of the cluster file that they stand for.
OF_CLUSTER = MappingProxyType(
    {"slurm_partition": "partition", "slurm_account": "account", "qos": "qos", "constraint": "constraint"}
)
# Resources that would start other ranks than planned, as patterns, and what decides them.
REFUSED = MappingProxyType(
    {
        r"nodes|tasks\w*|ntasks\w*|mpi": "shapes of the campaign",
        r"\w*gpus?(?:_\w+)?|gres": "shapes of the campaign and gpu_request of the cluster file",
        r"mem(?:_\w+)?": "memory_mb_per_node of the cluster file",
        r"cpus_per_\w+": "cpus_per_rank of the cluster file",
        r"slurm_extra|options|longest|most_jobs": "sbatch, max_walltime_minutes and max_jobs of the cluster file",
    }
)
OF_OPTIONS = {
    "--mem": ("mem_mb", int),
    "--cpus-per-task": ("cpus_per_task", int),
    "--gres": ("gres", str),
    "--clusters": ("clusters", str),
}
IN_JOB = MappingProxyType({"mpi": "srun"})  # without it, the plugin would start the rule with srun, within one step
OWN = "--signal=B:TERM@"  # of Regatta's executor, whose script passes the signal on; that of others would die of it
NAMES = (
    "own_options",
    *("mpi", "tasks", "tasks_per_node", "tasks_per_gpu", "gpu", "mem_mb_per_cpu", "slurm_extra"),
    *(name for name, _ in OF_OPTIONS.values()),
)
ELSEWHERE = ("--time", "--nodes", "--ntasks-per-node", *(f"--{key}" for key in OF_CLUSTER.values()))


def resources(geometry: Geometry, options: list[str]) -> dict[str, object]:
    """Return sbatch's options of a job as resources; slurm_extra has those without a resource. own_options: only for
    Regatta's executor.

    mpi: the rule's own srun starts the ranks. The plugin requires 2 tasks then, on each node or in all. mem_mb: 0 is
    no option, and so the partition's default.
    """
    ranks = geometry.gpus_per_node
    found: dict[str, object] = {**IN_JOB, "tasks_per_gpu": 0, "mem_mb": 0}
    found |= {"tasks_per_node": ranks} if ranks > 1 else {"tasks": max(2, geometry.nodes)}
    others, own = [], []
    for option in options:
        name, _, value = option.partition("=")
        if option.startswith(OWN):
            own.append(option)
        elif name in OF_OPTIONS:
            resource, kind = OF_OPTIONS[name]
            found[resource] = kind(value)
        elif name not in ELSEWHERE:
            others.append(option)
    found |= {"options": shlex.join(option for option in options if option not in own)}
    return found | {"own_options": shlex.join(own), "slurm_extra": shlex.join(others)}


def options_of(resources: Mapping) -> list[str]:
    """Return sbatch's options of a job of any rule: those of Regatta's rules, else those for the usual resources."""
    if resources.get("options") is not None:
        return shlex.split(f"{resources['options']} {resources.get('own_options', '')}")
    names = OF_CLUSTER | {"runtime": "time", "nodes": "nodes", "tasks": "ntasks", "mem_mb": "mem", "gres": "gres"}
    values = {option: resources.get(name) for name, option in names.items()}
    values |= {"cpus-per-task": resources.get("cpus_per_task") or resources.get("_cores")}
    found = [f"--{option}={value}" for option, value in values.items() if value]
    return found + shlex.split(str(resources.get("slurm_extra") or ""))
