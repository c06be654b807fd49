"""What a job requests of Slurm, and whether a site's partitions can give it. Ranks are started by srun (slurm.py)."""

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regatta.core.errors import Problem, nearest
from regatta.launchers import slurm_plugin
from regatta.launchers.base import Geometry, Jobs
from regatta.launchers.slurm_queue import answer, expand, job_id, output

EXCLUDE = re.compile(r"(?:--exclude=|-x)(.+)", re.DOTALL)
REQUIRE = re.compile(r"(?:--nodelist=|--nodefile=|-w|-F)(.+)", re.DOTALL)
MAX_FILE_BYTES = 2**20


def with_avoided(options: list[str], avoid: Iterable[str], num_nodes: int, needed: int) -> list[str]:
    """Return sbatch's options with the nodes to avoid merged into one --exclude: sbatch keeps only the last.

    They are returned unchanged if fewer than `needed` of `num_nodes` nodes would be left, and if only Slurm knows which
    nodes they name. A node that they require (--nodelist) is never excluded: such a job could not start.
    """
    given = [found[1].strip() for option in options if (found := EXCLUDE.fullmatch(option))]
    required = [found[1].strip() for option in options if (found := REQUIRE.fullmatch(option))]
    try:
        excluded = [name for text in given for name in node_names(text)]
        added = set(avoid) - {name for text in required for name in node_names(text)} - set(excluded)
    except (ValueError, OSError):
        return options
    if not added or num_nodes - len(added | set(excluded)) < needed:
        return options
    others = [option for option in options if not EXCLUDE.fullmatch(option)]
    texts = [",".join(node_names(text)) if "/" in text else text for text in given]
    return [*others, f"--exclude={','.join([*texts, *sorted(added)])}"]


def excluded_nodes(cluster: dict) -> list[str]:
    return [name for text in cluster.get("exclude_nodes", []) for name in node_names(text)]


def node_names(text: str) -> list[str]:
    """Return the nodes that an option names: a host list, or the path of a file of host lists if it contains a slash.

    Raises ValueError if the text is not a host list, and OSError if the file cannot be read.
    """
    if "/" not in text:
        return expand(text)
    path = Path(text)
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(f"{path}: not a file of node names")
    lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return expand(",".join(filter(None, lines)))


# The time limit of a job. What a batch costs is planned in plan/batches.py, which asks here only how long it may be.

WALLTIME_FACTOR = 1.5  # times the planned minutes: a failing cell takes no longer, but its launch restarts
WALLTIME_EXTRA_MINUTES = 5


class SlurmJobs(Jobs):
    submit_command = "sbatch"
    resource_keys, refused_resources = slurm_plugin.OF_CLUSTER, slurm_plugin.REFUSED
    resources_in_job = slurm_plugin.IN_JOB
    resource_names, resources = slurm_plugin.NAMES, staticmethod(slurm_plugin.resources)

    def options(
        self,
        geometry: Geometry,
        planned_minutes: float,
        avoid: Sequence[Iterable[str]] = (),
        attempt: int = 1,
        runtime_minutes: int | None = None,
    ) -> list[str]:
        """Return the options of sbatch for one attempt, so that srun can start gpus_per_node ranks on each node.

        A group of nodes is not avoided if the cluster has too few others.
        """
        cluster = geometry.cluster
        minutes = runtime_minutes or self.walltime_minutes(cluster, planned_minutes, attempt)
        keys = ("clusters", "partition", "account", "qos", "constraint", "reservation")
        options = {key: cluster.get(key) for key in keys} | {
            "mem": cluster["memory_mb_per_node"],
            "time": minutes,
            "nodes": geometry.nodes,
            "ntasks-per-node": geometry.gpus_per_node,
            "cpus-per-task": cluster["cpus_per_rank"] or 1,
        }
        others = [option for option in cluster["sbatch"] if not GRES.match(option)]
        if geometry.hosts:  # exactly these, and the job goes on if one fails
            others += [f"--nodelist={','.join(geometry.hosts)}", "--no-kill"]
        if excluded := cluster.get("exclude_nodes"):
            others.append(f"--exclude={','.join(excluded)}")
        for hosts in avoid:
            others = with_avoided(others, hosts, cluster["num_nodes"], geometry.nodes)
        words = [f"--{name}={value}" for name, value in options.items() if value is not None]
        words += gpu_options(geometry)
        has_signal = "SBATCH_SIGNAL" in os.environ or any(map(SIGNAL.match, cluster["sbatch"]))
        words += [f"--signal=B:TERM@{SIGNAL_SECONDS}"] if minutes >= SIGNAL_MIN_MINUTES and not has_signal else []
        return [*words, *(["--exclusive"] if cluster["exclusive"] else []), *others]

    def walltime_minutes(self, cluster: dict, planned_minutes: float, attempt: int) -> int:
        """Return the time limit of a job: more with each attempt, never above the cluster's."""
        minutes = math.ceil(planned_minutes * WALLTIME_FACTOR) + WALLTIME_EXTRA_MINUTES
        return min(cluster["max_walltime_minutes"], minutes * attempt)

    def longest_planned_minutes(self, cluster: dict) -> float:
        """Return how long a batch may be planned so that its time limit is within the cluster's."""
        return max(1.0, (cluster["max_walltime_minutes"] - WALLTIME_EXTRA_MINUTES) / WALLTIME_FACTOR)

    def longest_minutes(self, cluster: dict) -> float:
        """Return the longest time limit of a job. Within an allocation none are submitted."""
        return math.inf if job_id() else cluster["max_walltime_minutes"]

    def most_nodes(self, cluster: dict) -> int:
        """Return the nodes that a job may have: those of the cluster file, or the partition's limit if it is lower."""
        if job_id():
            return cluster["num_nodes"]
        partitions = read_partitions()
        limits = [partitions[name].max_nodes for name in partition_names(cluster, partitions) if name in partitions]
        return int(min([cluster["num_nodes"], *limits]))


# The signal before the time limit leaves time to end the ranks and to write what was measured.

SIGNAL = re.compile(r"--sig[a-z]*=(?:[A-Za-z]+:)?\w+(?:@(\d+))?")
SIGNAL_SECONDS, SIGNAL_MIN_MINUTES = 60, 15
EARLY_SECONDS = 60 + 15  # Slurm may send it up to 60 s early (sbatch(1)), and the query takes time


def most_seconds_left(cluster: dict) -> int:
    """Return the most time that a job may have left when it gets its signal."""
    given = [found[1] for option in cluster.get("sbatch", ()) if (found := SIGNAL.match(option))]
    return int((given or [None])[-1] or SIGNAL_SECONDS) + EARLY_SECONDS


# GPUs and other generic resources.

GRES = re.compile("--gres=")
GPU_ITEM = re.compile(r"(?:gres[/:])?gpu(?:[:=]|$)")
GPU_TRES = re.compile(r"--gpus-per-[ts]|--tres-p.*\bgres[/:]gpu", re.DOTALL)  # other options of sbatch for GPUs
GPU_OPTIONS = ("-G", "--gpus", "--gpus-per-node", "--gres")


def requests_gpus(geometry: Geometry) -> bool:
    """Return whether Regatta requests GPUs; otherwise, the user's options may."""
    return geometry.device == "cuda" and geometry.cluster["gpu_request"] != "none"


def gpu_options(geometry: Geometry) -> list[str]:
    """Return the options for GPUs and other generic resources: at most one --gres, since Slurm keeps only the last."""
    cluster = geometry.cluster
    gpus = ":".join(filter(None, (cluster.get("gpu_type"), str(geometry.gpus_per_node))))
    is_gres = cluster["gpu_request"] == "gres"
    user_items = [item for option in cluster.get("sbatch", ()) for item in gres_items(option)]
    requested = requests_gpus(geometry)
    items = [*([f"gpu:{gpus}"] if requested and is_gres else []), *cluster.get("gres", ()), *user_items]
    options = [f"--gpus-per-node={gpus}"] if requested and not is_gres else []
    return [*options, *([f"--gres={','.join(items)}"] if items else [])]


def gres_items(option: str) -> list[str]:
    """Return the resources that an option of the user requests."""
    return option[len("--gres=") :].split(",") if GRES.match(option) else []


def gres_problems(cluster: dict) -> list[Problem]:
    """Return the problems of a cluster file that requests GPUs twice, or sets a GPU type that is never requested."""
    if cluster["gpu_request"] == "none":
        text = "has no effect with gpu_request: none. Change gpu_request, or remove gpu_type."
        return [Problem(("gpu_type",), text)] if cluster["gpu_type"] else []
    given = [(("sbatch", index), gres_items(option)) for index, option in enumerate(cluster["sbatch"])]
    given += [(("gres", index), [item]) for index, item in enumerate(cluster["gres"])]
    text = "requests GPUs, which Regatta already does. Remove it; gpu_type requests a type. Or set gpu_request: none."
    found = [Problem(key, text) for key, items in given if any(map(GPU_ITEM.match, items))]
    others = [index for index, option in enumerate(cluster["sbatch"]) if GPU_TRES.match(option)]
    return found + [Problem(("sbatch", index), text) for index in others]


# The cores of a step.

NUM_CORES = re.compile(r"-c|--cpus-per-[tg]")  # options that decide how many cores a task gets, also abbreviated


def with_cores(geometry: Geometry, options: list[str]) -> list[str]:
    """Return a stack's options with the cores of all ranks of a node for fewer processes, unless they set the number.

    They have the cluster's options, then the cores of one rank, then the stack's (stack_options).
    """
    num, index = geometry.cluster.get("cpus_per_rank"), len(geometry.cluster.get("srun", ()))
    is_of_rank = geometry.num_local_ranks == geometry.gpus_per_node
    if is_of_rank or not num or options[index : index + 1] != cores_option(num):
        return options
    before, after = options[:index], options[index + 1 :]
    if any(map(NUM_CORES.match, [*before, *after])):
        return [*before, *after]
    return [*before, *cores_option(max(1, geometry.gpus_per_node * num // geometry.num_local_ranks)), *after]


def cores_option(num: int | None) -> list[str]:
    return [f"--cpus-per-task={num}"] if num else []


# The nodes of a sweep.

UNUSABLE = ("down", "drain", "fail", "unknown", "error", "future", "inval", "blocked")  # first letters of states


def read_nodes(cluster: dict) -> dict[str, str | None]:
    """Return the nodes of this job, or those of the cluster's partitions with its constraint and type of GPUs, each
    with the reason why it cannot be used, or None. Empty if sinfo does not answer."""
    if job_id():
        return dict.fromkeys(expand(os.environ.get("SLURM_JOB_NODELIST", "")))
    names = ",".join(partition_names(cluster, read_partitions()))
    lines = answer(["sinfo", "--noheader", "--Node", f"--partition={names}", "--format=%N|%T|%f|%G|%E"]) or ""
    found: dict[str, str | None] = {}
    for name, state, features, gres, reason in (
        line.split("|", 4) for line in lines.splitlines() if line.count("|") > 3
    ):
        if not _has(features.split(","), cluster["constraint"]) or not _has_type(gres, cluster["gpu_type"]):
            continue
        is_unusable = state.startswith(UNUSABLE) or state.endswith("*")  # *: it does not respond
        why = f" ({reason.strip()})" if reason.strip() not in ("", "none") else ""
        found[name] = f"node {name} is {state}{why}" if is_unusable else None
    return found


def _has(features: list[str], constraint: str | None) -> bool:
    """Return whether a node has a constraint such as a100, a&b or a|b. True for other expressions: Slurm decides."""
    if constraint is None or re.search(r"[^\w.&|-]|&.*\||\|.*&", constraint):
        return True
    return (any if "|" in constraint else all)(name in features for name in re.split("[&|]", constraint))


def _has_type(gres: str, gpu_type: str | None) -> bool:
    """Return whether a node has GPUs of a type, from resources such as gpu:a100:4(S:0-1),nvme:1; True if untyped."""
    types = re.findall(r"\bgpu:([^:,()]+):", gres)
    return gpu_type is None or gpu_type in types or (not types and "gpu" in gres)


# Can the partition run the jobs of a campaign? By default Slurm accepts a job that can never start.


@dataclass
class Partition:
    """A partition as sinfo lists it, summed over its kinds of nodes. Limits are infinite if there are none."""

    is_default: bool
    max_minutes: float
    num_nodes: int
    num_cpus: int
    max_nodes: float = math.inf  # of one job


def read_partitions() -> dict[str, Partition]:
    """Return the partitions by their names; empty if sinfo does not answer, as on a machine without Slurm."""
    found: dict[str, Partition] = {}
    for line in (answer(["sinfo", "--noheader", "--format=%P|%l|%D|%c|%s"]) or "").splitlines():
        name, limit, nodes, cpus, size = (line.split("|") + [""] * 5)[:5]
        if not nodes.isdigit():
            continue
        at_most = re.fullmatch(r"(?:\d+-)?(\d+)", size)  # 1-4, 1 or 1-infinite
        max_nodes = int(at_most[1]) if at_most else math.inf
        limits = (minutes_of(limit), 0, 0, max_nodes)
        entry = found.setdefault(name.rstrip("*"), Partition(name.endswith("*"), *limits))
        entry.num_nodes += int(nodes)
        entry.num_cpus = max(entry.num_cpus, int(re.match(r"\d*", cpus)[0] or 0))  # "64+" if nodes differ
    return found


def partition_names(cluster: dict, partitions: dict[str, Partition]) -> list[str]:
    """Return the partitions in which jobs may start: of the cluster file, of sbatch's variable, or the default."""
    given = cluster["partition"] or os.environ.get("SBATCH_PARTITION")
    return given.split(",") if given else [name for name, entry in partitions.items() if entry.is_default]


def minutes_of(limit: str) -> float:
    """Return the minutes of one of Slurm's times: D-HH:MM:SS, HH:MM:SS, MM:SS; `infinite` and `n/a` are no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 1440 + hours * 60 + minutes + seconds / 60


def site_problems(cluster: dict, shapes: list[tuple[int, int]], stacks: dict[str, dict]) -> list[str]:
    """Return why jobs could never start (within an allocation none are submitted), and which stacks srun rejects."""
    kind = f"node_types.{cluster['node_type']}: " if "node_type" in cluster else ""
    found = [] if job_id() else [kind + text for text in partition_problems(cluster, shapes, read_partitions())]
    found += [] if job_id() else unknown_nodes(cluster)
    return found + mpi_problems(stacks)


def mpi_problems(stacks: dict[str, dict]) -> list[str]:
    """Return the stacks whose --mpi type srun does not support. One query; none if no stack has the option."""
    asked = {name: [o[6:] for o in stack["srun"] if o.startswith("--mpi=")][-1:] for name, stack in stacks.items()}
    known = mpi_types(output(["srun", "--mpi=list"])) if any(asked.values()) else set()
    return [
        f"stack {name}: srun does not support --mpi={value}. Choose from: {', '.join(sorted(known))}."
        for name, values in asked.items()
        for value in values
        if known and value not in known
    ]


def mpi_types(text: str) -> set[str]:
    """Return the types in the output of srun --mpi=list: one in a line, or several after a colon."""
    lines = (line.removeprefix("srun:").rpartition(":")[2] for line in text.splitlines())
    words = (re.fullmatch(r"\s*\w+(?:\s*,\s*\w+)*\s*", line) for line in lines)
    found = {word for line in words if line for word in re.findall(r"\w+", line[0])}
    return found if "none" in found else set()


def unknown_nodes(cluster: dict) -> list[str]:
    """Return the excluded nodes that Slurm does not know: it would reject every job."""
    if not (excluded := excluded_nodes(cluster)):
        return []
    known = (answer(["sinfo", "--noheader", "--all", "--Node", "--format=%N"]) or "").split()
    unknown = [name for name in excluded if known and name not in known]
    return [f"exclude_nodes: {name} is not a node of this cluster.{nearest(name, known)}" for name in unknown[:1]]


def partition_problems(cluster: dict, shapes: list[tuple[int, int]], partitions: dict[str, Partition]) -> list[str]:
    """Return why jobs of these shapes (nodes, ranks per node) could never start, each with the key to correct.

    A job may name several partitions (a,b) and starts in any of them: then only their names are checked.
    """
    if not partitions:
        return []
    names = partition_names(cluster, partitions)
    if not names:
        return [f"partition = null, but this site has no default partition. Choose from: {', '.join(partitions)}."]
    if unknown := [name for name in names if name not in partitions]:
        return [f"partition = '{unknown[0]}' does not exist. Choose from: {', '.join(partitions)}."]
    if len(names) != 1 or not shapes:
        return []
    name, entry = names[0], partitions[names[0]]
    found = []
    if cluster["max_walltime_minutes"] > entry.max_minutes:
        limit = f"partition {name} limits jobs to {entry.max_minutes:g} min"
        found.append(f"max_walltime_minutes = {cluster['max_walltime_minutes']}, but {limit}. Reduce it.")
    if (nodes := max(nodes for nodes, _ in shapes)) > entry.num_nodes:
        found.append(f"num_nodes: a shape needs {nodes} nodes, but partition {name} has {entry.num_nodes}.")
    elif nodes > entry.max_nodes:
        found.append(f"num_nodes: a shape needs {nodes} nodes, but partition {name} limits jobs to {entry.max_nodes}.")
    cpus = max(ranks for _, ranks in shapes) * (cluster["cpus_per_rank"] or 1)
    if cpus > entry.num_cpus > 0:
        needed = f"{cpus} cores on a node (gpus_per_node x cpus_per_rank)"
        text = f"a shape needs {needed}, but nodes of partition {name} have {entry.num_cpus}."
        found.append(f"cpus_per_rank = {cluster['cpus_per_rank']}: {text}")
    return found
