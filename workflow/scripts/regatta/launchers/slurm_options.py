"""Check options of sbatch and srun in cluster and campaign files: which a user may add, and which Regatta sets."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from regatta.core.errors import Problem
from regatta.launchers import slurm_resources as resources
from regatta.runtimes import RUNTIMES
from regatta.runtimes.base import is_below

SCRIPT_OPTIONS = ("--task-prolog", "--task-epilog", "--prolog", "--epilog")
RUN_BY_SRUN = ("--prolog", "--epilog")  # srun looks for a plain name in its folder; tasks look on the nodes' PATH
JOB_OPTIONS = {
    "partition": "-p --partition",
    "account": "-A --account",
    "qos": "-q --qos",
    "constraint": "-C --constraint",
    "reservation": "--reservation",
    "exclusive": "--exclusive",
    "clusters": "-M --clusters",
}
# Options that Regatta passes.
SRUN_BY_REGATTA = (
    "-N --nodes -n --ntasks --ntasks-per-node -G --gpus --gpus-per-node --gres -t --time --jobid -o --output -e "
    "--error -K --kill-on-bad-exit --export -D --chdir -J --job-name -W --wait --overlap"
).split()
STARTS_NO_RANK = "starts no rank. Remove it."
NODES_OF_JOB = "may contradict the nodes of the job. Set this in the cluster file: "
# Options that break a launch, each with the reason and what to use instead.
SRUN_REFUSED = {
    **dict.fromkeys(("--help", "-h", "--usage", "--version", "-V", "--test-only"), STARTS_NO_RANK),
    "--mpi=list": STARTS_NO_RANK,
    **dict.fromkeys(("--exclude", "-x"), f"{NODES_OF_JOB}exclude_nodes: [NODES]."),
    **dict.fromkeys(("--nodelist", "-w", "--nodefile", "-F"), f"{NODES_OF_JOB}sbatch: [--nodelist=NODES]."),
    **dict.fromkeys(("--uid", "--gid"), "would start the ranks as another user. Remove it."),
    "--multi-prog": "would start other programs instead of Regatta's ranks. Remove it; to wrap the ranks, use wrapper.",
    "--pty": "needs a terminal, and would start rank 0 only. Remove it.",
    **dict.fromkeys(("--no-kill", "-k"), "would leave ranks waiting for a failed node. Remove it."),
    **{
        option: f"applies to the job, not to a launch. Set {key} in the cluster file."
        for key in ("partition", "account", "qos", "reservation", "clusters")
        for option in JOB_OPTIONS[key].split()
    },
}
IMAGE_VARIABLE = re.compile("PYXIS_CONTAINER_|SLURM_UENV|SBATCH_UENV|UENV_MOUNT_LIST|UENV_VIEW")
IMAGE_IN_NO_ID = "would start an image that is in no cell id. Remove it"
IMAGE_OPTIONS = dict.fromkeys(("--container", "--container-id"), f"{IMAGE_IN_NO_ID}.")
for _name, _runtime in RUNTIMES.items():
    IMAGE_OPTIONS |= dict.fromkeys(_runtime.plugin_options, f"{IMAGE_IN_NO_ID}, and add a stack with runtime: {_name}.")
SBATCH_BY_REGATTA = (
    "-N --nodes -n --ntasks --ntasks-per-node -c --cpus-per-task -t --time -p --partition -A --account -q --qos "
    "-C --constraint --reservation --exclusive --mem --mem-per-cpu -G --gpus --gpus-per-node --gres -J "
    "--job-name -o --output -e --error --export --parsable --wrap -D --chdir -k --no-kill -M "
    "--clusters --ntasks-per-gpu --cpus-per-gpu --requeue --no-requeue -a --array"
).split()
SBATCH_REFUSED = {
    **dict.fromkeys(("--help", "-h", "--usage", "--version", "-V", "--test-only"), "submits no job. Remove it."),
    **dict.fromkeys(("--wait", "-W"), "would hold up Regatta until the job ends. Remove it."),
    **IMAGE_OPTIONS,
}
WHOLE = ("--gres", "--exclude", "--nodelist", "--nodefile")  # options of the user that Regatta reads

# Keys of the cluster file, or of the campaign, from which options of Regatta follow.
KEYS_OF_OPTIONS = {
    option: key
    for key, options in {
        "`shapes` of the campaign": "-N --nodes -n --ntasks --ntasks-per-node",
        "`cpus_per_rank`": "-c --cpus-per-task",
        "`gpu_request`": "-G --gpus --gpus-per-node --ntasks-per-gpu --cpus-per-gpu",
        "`gres`": "--gres",
        "`memory_mb_per_node`": "--mem --mem-per-cpu",
        "`max_walltime_minutes`": "-t --time",
        "`env`": "--export",
        **{f"`{key}`": options for key, options in JOB_OPTIONS.items()},
    }.items()
    for option in options.split()
}


def option_problems(
    key: str, options: list[str], taken: list[str], refused: Mapping[str, str] = MappingProxyType({})
) -> list[Problem]:
    """Return a problem for each option that Regatta also passes, since a duplicate would start other ranks than
    planned, and for each refused one, with the reason. Slurm also takes an abbreviation (getopt_long(3))."""
    found = []
    for index, option in enumerate(options):
        given, separator, value = re.fullmatch(r"([^= ]*)([= ]?)(.*)", option, re.DOTALL).groups()
        name = _whole_name(given, [*taken, *refused, *WHOLE])
        if name in ("-", "--"):
            found.append(Problem((key, index), "is not an option. Remove it."))
        elif name in taken or (option[:2] in taken and not option.startswith("--")):
            source = KEYS_OF_OPTIONS.get(name) or KEYS_OF_OPTIONS.get(option[:2])
            text = f"is set by Regatta, from {source}. Change that key" if source else "is set by Regatta"
            found.append(Problem((key, index), f"{text}, and remove the option." if source else f"{text}. Remove it."))
        elif reason := refused.get(option) or refused.get(name if name.startswith("--") else option[:2]):
            found.append(Problem((key, index), reason))
        elif (name.startswith("--") and separator == " ") or name != given:
            found.append(Problem((key, index), f"must be written as {name}={value.strip()}."))
    return found


def _whole_name(name: str, known: list[str]) -> str:
    """Return the long option that a name abbreviates, or the name."""
    is_long = name.startswith("--") and len(name) > 2 and name not in known
    return next((option for option in known if is_long and option.startswith(name) and "=" not in option), name)


def _by_regatta(options: list[str], cluster: dict) -> list[str]:
    """Return options without those for GPUs if Regatta requests none."""
    permitted = resources.GPU_OPTIONS if cluster["gpu_request"] == "none" else ()
    return [option for option in options if option not in permitted]


def srun_problems(owner: dict, cluster: dict) -> list[Problem]:
    """Return what is wrong with the `srun` of a stack or a cluster, such as a script that cannot be hashed."""
    refused = SRUN_REFUSED | IMAGE_OPTIONS
    found = option_problems("srun", owner["srun"], _by_regatta(SRUN_BY_REGATTA, cluster), refused)
    variables = [name for name in owner["env"] if IMAGE_VARIABLE.match(name)]
    found += [Problem(("env", name), f"{IMAGE_IN_NO_ID}.", has_value=False) for name in variables]
    for index, option in enumerate(owner["srun"]):
        path = Path(script_option(option)[1])
        is_readable = os.path.isfile(path) and os.access(path, os.R_OK)
        if "/" in str(path) and not is_below(path, cluster["node_folders"]) and not is_readable:
            remedy = "Write its absolute path, or add its folder to node_folders if only compute nodes have it."
            text = f"names a file that cannot be read here. {remedy}"
            found.append(Problem(("srun", index), text, is_missing=True, is_in_id=True))
    return found


def script_option(option: str) -> tuple[str, str]:
    """Return the full name and the value of an option that names a script, also abbreviated; else two empty strings."""
    name, _, value = option.partition("=")
    whole = [known for known in SCRIPT_OPTIONS if known.startswith(name) and len(name) > 2]
    return (whole[0], value) if whole else ("", "")


def cluster_problems(cluster: dict) -> list[Problem]:
    """Return the problems of the file's top-level keys, and those that only a node type has."""
    found, kinds = _problems(cluster), cluster["node_types"]
    if any("gpu_request" in kind for kind in kinds.values()):
        found = [problem for problem in found if problem.key != ("gpu_type",)]
    for name, kind in kinds.items():
        for problem in _problems(cluster | kind):
            if problem.key[0] in kind:
                found.append(problem._replace(key=("node_types", name, *problem.key)))
            elif problem not in found and problem.key != ("gpu_type",):
                found.append(problem._replace(text=f"(node_types.{name}) {problem.text}"))
    return found


def _problems(cluster: dict) -> list[Problem]:
    by_regatta = [option for option in SBATCH_BY_REGATTA if option != "--gres"]  # all are merged into one
    found = option_problems("sbatch", cluster["sbatch"], _by_regatta(by_regatta, cluster), SBATCH_REFUSED)
    found += resources.gres_problems(cluster)
    if cluster["exclude_nodes"]:
        text = "duplicates exclude_nodes. Move the nodes there."
        given = [index for index, option in enumerate(cluster["sbatch"]) if resources.EXCLUDE.fullmatch(option)]
        found += [Problem(("sbatch", index), text) for index in given]
    for index, names in enumerate(cluster["exclude_nodes"]):
        try:
            resources.node_names(names)
        except ValueError:
            text = "is not a host list. Write a name, or a list such as n[5-8]."
            found.append(Problem(("exclude_nodes", index), text))
    return found + srun_problems(cluster, cluster)
