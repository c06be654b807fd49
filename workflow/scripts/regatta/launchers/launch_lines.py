"""Build the command line that starts the ranks of a launch, and the line that repeats one cell by hand.

Lines are lists of arguments: no value of a campaign ever passes through a shell. Text for a shell is only for people.
"""

import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regatta.campaign.stacks import expand
from regatta.launchers.slurm_queue import STEP_NAME

SCRIPTS = Path(__file__).resolve().parents[2]
ROOT = SCRIPTS.parents[1]
NOT_INHERITED = ("PYTHON", "REGATTA_")
# Binds, variables and options that a user's shell gives to every image: no cell's id knows them. A stack's env may set them.
OF_THE_RUNTIME = ("APPTAINER", "SINGULARITY")
WHERE_THE_RUNTIME_WORKS = tuple(f"{r}_{name}" for r in OF_THE_RUNTIME for name in ("CACHEDIR", "TMPDIR", "CONFIGDIR"))
# Of a job's variables srun takes options. Those that only say which job it is stay.
OF_SLURM = ("SLURM_", "SRUN_", "SBATCH_")
JOB_IDENTITY = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME")
# snakemake/shell.py of 9.27.1 sets these to the job's threads.
THREADS = (
    "OMP_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# The runtime has a shell evaluate what it puts into an image: these characters mean nothing to one.
PLAIN_VALUE = re.compile(r"[\w@%+=:,./^ -]*", re.ASCII)
SET_BY_RUNTIME = ("PATH", "LD_LIBRARY_PATH")
RUN_LAUNCH = SCRIPTS / "bench" / "run_launch.py"
START_RANKS = SCRIPTS / "bench" / "start_ranks.py"
# Where the ranks meet is never for the user's shell or a stack to say.
MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")
# On one machine start_ranks.py sets these to loopback, unless the stack says otherwise.
SOCKET_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
# Once one rank has ended, the others have as long as it may take to say farewell; then srun ends them.
SECONDS_AFTER_FIRST_EXIT = 60
PORT_BY_HAND = "MASTER_PORT=29500"


@dataclass(frozen=True)
class Geometry:
    """Where ranks are started: on which cluster, on how many nodes, how many on each, and what they compute on."""

    cluster: dict
    nodes: int
    gpus_per_node: int
    device: str

    @property
    def uses_slurm(self) -> bool:
        return self.cluster["scheduler"] == "slurm"


def launch_argv(
    geometry: Geometry,
    stack: dict,
    program: list[str],
    *,
    variables: Mapping[str, str] | None = None,
    folders: tuple[Path, ...] = (ROOT,),
    limit_seconds: float | None = None,
    hosts: Sequence[str] = (),
    start_ranks: str = str(START_RANKS),
) -> list[str]:
    """Return the line that starts `program`, a Python file and its arguments, on all ranks.

    variables: of the job, put into the stack's binds; None leaves their names. folders: what the ranks read and write,
    bound into an image. limit_seconds: of a Slurm step, which ends it should the supervisor be gone. hosts: the nodes of
    the step, where the job has more. start_ranks: the program that starts them without Slurm.
    """
    container = _in_container(stack, geometry.device, variables, folders)
    if geometry.uses_slurm:
        return [*_srun(geometry, stack, limit_seconds, hosts), *container, _python(stack), *program]
    return [*container, _python(stack), start_ranks, f"--nproc-per-node={geometry.gpus_per_node}", *program]


def launch_environment(stack: dict, extra: Mapping[str, str] | None = None, *, uses_slurm: bool) -> dict[str, str]:
    """Return the environment of the ranks: this process's, with the stack's variables over it.

    PYTHON* variables are left out: they belong to the driver's interpreter and would disturb the rank's; REGATTA_* too:
    they change the number, so they must come from the stack, which a cell's id knows. So are binds and variables of
    containers (OF_THE_RUNTIME), and the
    *_NUM_THREADS that Snakemake sets for each job: how many threads a rank has is between the stack and the ranks.
    extra: set over the stack's variables, such as the port where ranks that srun starts meet.
    """
    own = {
        key: value
        for key, value in os.environ.items()
        if (key in WHERE_THE_RUNTIME_WORKS or not key.startswith((*NOT_INHERITED, *OF_THE_RUNTIME)))
        and key not in THREADS
        and (key in JOB_IDENTITY or not key.startswith(OF_SLURM))
        and key not in MEETING_POINT
        and (uses_slurm or key not in SOCKET_INTERFACES)
    }
    if "REGATTA_SLURM_CONF" in os.environ:  # the Slurm executor takes SLURM_CONF away from the job
        own.setdefault("SLURM_CONF", os.environ["REGATTA_SLURM_CONF"])
    # Packages of the user's home are in no cell's id, and Apptainer mounts the home into images.
    of_stack = {key: value for key, value in stack_variables(stack).items() if key not in MEETING_POINT}
    given = {"PYTHONNOUSERSITE": "1", **of_stack, **(extra or {}), "PYTHONUNBUFFERED": "1"}
    return {**own, **given, **{name: given[key] for key, name in _names_over_image(stack, given).items()}}


def stack_variables(stack: dict) -> dict[str, str]:
    """Return a stack's variables. OMP_NUM_THREADS is given under the ranks' own name too: where it is
    not set, start_ranks.py sets it to 1, as torchrun does, so a rank cannot see which of the two set it."""
    env = stack["env"]
    fixed = {"REGATTA_THREADS_PER_RANK": env["OMP_NUM_THREADS"]} if "OMP_NUM_THREADS" in env else {}
    return {**fixed, **env}


def _names_over_image(stack: dict, variables: dict[str, str]) -> dict[str, str]:
    """Return for variables the names by which the runtime sets them in an image although the image sets them, too.

    Without such a name the image's value wins, and nobody says so. A value with characters of a shell's has none: it
    arrives as it is, where the image does not set that variable.
    """
    if stack["kind"] == "host":
        return {}
    return {
        key: f"{stack['runtime'].upper()}ENV_{key}"
        for key, value in variables.items()
        if PLAIN_VALUE.fullmatch(value)
        and key not in SET_BY_RUNTIME
        and not key.startswith(("APPTAINER", "SINGULARITY"))  # those are for the runtime itself
    }


def command_by_hand(spec: dict, stack: dict) -> str:
    """Return the shell line that repeats one cell by hand, from the project's folder (on Slurm: within an allocation of
    the cell's shape), quoted where it must be."""
    program = [f"workflow/scripts/bench/{spec['benchmark']}.py"]
    values = {"device": spec["device"], "backend": spec["backend"], **spec["parameters"], **spec["sampling"]}
    for name, value in values.items():
        if value is not None:
            program += [f"--{name.replace('_', '-')}", str(value).lower() if isinstance(value, bool) else str(value)]
    uses_slurm = "srun" in spec["stack"]
    cluster = {"scheduler": "slurm" if uses_slurm else "none", "gpu_request": stack["gpu_request"]}
    geometry = Geometry(cluster, spec["nodes"], spec["gpus_per_node"], spec["device"])
    if not uses_slurm and stack["kind"] == "host" and stack["python"] is None:
        line = ["torchrun", "--standalone", f"--nproc-per-node={spec['gpus_per_node']}", *program]
    else:
        own = {"python": stack["python"] or "python3", "binds": [*stack["binds"], "$PWD"]}
        starter = str(START_RANKS.relative_to(ROOT))
        line = launch_argv(geometry, {**stack, **own}, program, folders=(), start_ranks=starter)
    given = stack_variables(stack)
    names = _names_over_image(stack, given)
    variables = [f"{names.get(key, key)}={value}" for key, value in given.items()]
    words = [*map(shlex.quote, variables), *([PORT_BY_HAND] if uses_slurm else [])]
    return " ".join([*(["env"] if words else []), *words, *_shell_line(line)])


def _python(stack: dict) -> str:
    return stack["python"] or (sys.executable if stack["kind"] == "host" else "python3")


def _srun(geometry: Geometry, stack: dict, limit_seconds: float | None, hosts: Sequence[str]) -> list[str]:
    """Return srun with one task per rank. All options are passed explicitly: the Slurm executor unsets their variables."""
    nodes, gpus = geometry.nodes, geometry.gpus_per_node
    line = ["srun", f"--nodes={nodes}", f"--ntasks={nodes * gpus}", f"--ntasks-per-node={gpus}"]
    if geometry.device == "cuda":
        request = geometry.cluster["gpu_request"]
        line += {"gpus-per-node": [f"--gpus-per-node={gpus}"], "gres": [f"--gres=gpu:{gpus}"], "none": []}[request]
    if hosts:
        line.append(f"--nodelist={','.join(hosts)}")
    line += [f"--job-name={STEP_NAME}", "--kill-on-bad-exit=1", f"--wait={SECONDS_AFTER_FIRST_EXIT}", "--export=ALL"]
    if limit_seconds is not None:
        line.append(f"--time={math.ceil(limit_seconds / 60)}")
    return [*line, *stack["srun"]]


def _in_container(
    stack: dict, device: str, variables: Mapping[str, str] | None, folders: tuple[Path, ...]
) -> list[str]:
    """Return what stands before Python: nothing on the host; else the runtime, its binds, the image, the wrapper."""
    if stack["kind"] == "host":
        return []
    binds = stack["binds"]
    if variables is not None:
        values = {name: _bind_word(value) for name, value in variables.items()}
        binds = [expand(bind, values) for bind in binds]
    unique = dict.fromkeys(folders)
    outer = [folder for folder in unique if not any(folder != f and folder.is_relative_to(f) for f in unique)]
    for path in dict.fromkeys([Path(stack["wrapper"]), Path(stack["wrapper"]).resolve()] if stack["wrapper"] else []):
        if not any(path.is_relative_to(folder) for folder in outer):
            outer.append(path)  # also what a link points at
    line = [stack["runtime"], "run", *(["--nv"] if device == "cuda" else []), *stack["runtime_options"]]
    for bind in [*binds, *(_bind_word(str(path)) for path in outer)]:
        line += ["--bind", bind]
    return [*line, stack["image"], *([stack["wrapper"]] if stack["wrapper"] else [])]


def _bind_word(path: str) -> str:
    """Apptainer takes comma and colon for its own, unless a backslash is before them; it leaves other backslashes alone."""
    return re.sub("([,:])", r"\\\1", path)


def _shell_line(line: list[str]) -> list[str]:
    """Quote each word for a shell. The shell puts in the variables of binds, and of nothing else."""
    return [
        _bind_for_shell(word) if before == "--bind" else shlex.quote(word)
        for before, word in zip(["", *line], line, strict=False)
    ]


def _bind_for_shell(bind: str) -> str:
    first, *parts = re.split(r"(\$\$|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})", bind, flags=re.ASCII)
    if not parts:
        return shlex.quote(bind)
    text = _in_double_quotes(first)
    for variable, rest in zip(parts[::2], parts[1::2], strict=True):
        text += (r"\$" if variable == "$$" else variable) + _in_double_quotes(rest)
    return f'"{text}"'


def _in_double_quotes(text: str) -> str:
    return re.sub(r'([$"\\`])', r"\\\1", text)
