"""Build the command line that starts the ranks of a launch, and the line that repeats one cell by hand.

Lines are lists of arguments: no value of a campaign ever passes through a shell. `shlex.join` is for people to read.
"""

import os
import shlex
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
NOT_INHERITED = ("PYTHON", "REGATTA_")
# snakemake/shell.py of 9.27.1 sets these to the job's threads.
THREADS = (
    "OMP_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
RUN_LAUNCH = SCRIPTS / "bench" / "run_launch.py"


def launch_argv(stack: dict, gpus_per_node: int, request: Path) -> list[str]:
    """Return the line that starts all ranks of a launch on this machine.

    stack: an entry of the campaign's stacks. request: the launch request that every rank reads.
    """
    return [*_torchrun(stack, gpus_per_node), str(RUN_LAUNCH), "--request", str(request)]


def launch_environment(stack: dict) -> dict[str, str]:
    """Return the environment of the ranks: this process's, with the stack's variables over it.

    PYTHON* variables are left out: they belong to the driver's interpreter and would disturb the rank's; REGATTA_* too:
    they change the number, so they must come from the stack, which a cell's id knows. So are the
    *_NUM_THREADS that Snakemake sets for each job: how many threads a rank has is between the stack and the ranks.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith(NOT_INHERITED) and key not in THREADS}
    return {**own, **stack_variables(stack), "PYTHONUNBUFFERED": "1"}


def stack_variables(stack: dict) -> dict[str, str]:
    """Return a stack's variables. OMP_NUM_THREADS is given under the ranks' own name too: torchrun sets it to 1 by
    itself, so a rank cannot tell whether it was meant."""
    env = stack["env"]
    fixed = {"REGATTA_THREADS_PER_RANK": env["OMP_NUM_THREADS"]} if "OMP_NUM_THREADS" in env else {}
    return {**fixed, **env}


def command_by_hand(spec: dict) -> str:
    """Return the shell line that repeats one cell by hand, from the project's folder, quoted where it must be."""
    stack = spec["stack"]
    program = f"workflow/scripts/bench/{spec['benchmark']}.py"
    python = [stack["python"], "-m", "torch.distributed.run"] if stack["python"] else ["torchrun"]
    variables = ["env", *(f"{key}={value}" for key, value in stack_variables(stack).items())] if stack["env"] else []
    line = [*variables, *python, "--standalone", f"--nproc-per-node={spec['gpus_per_node']}", program]
    values = {"device": spec["device"], "backend": spec["backend"], **spec["parameters"], **spec["sampling"]}
    for name, value in values.items():
        if value is not None:
            line += [f"--{name.replace('_', '-')}", str(value).lower() if isinstance(value, bool) else str(value)]
    return shlex.join(line)


def _torchrun(stack: dict, gpus_per_node: int) -> list[str]:
    # `python -m torch.distributed.run` is torchrun, without a search on PATH. --standalone picks a free port.
    python = stack["python"] or sys.executable
    return [python, "-m", "torch.distributed.run", "--standalone", "--nnodes=1", f"--nproc-per-node={gpus_per_node}"]
