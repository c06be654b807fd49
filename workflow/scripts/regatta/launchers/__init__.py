"""Launchers: how ranks are started and jobs requested, by the `scheduler` of a cluster file.

A new scheduler is a module with a `Launcher` and an entry in LAUNCHERS, here or in a plugin of a site. Command lines
are lists of arguments: no value of a campaign passes through a shell. Text for a shell is for people.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regatta.core.files import ROOT, SCRIPTS, Taken, check_listed
from regatta.core.text import with_values
from regatta.launchers import local, slurm
from regatta.launchers.base import LOOPBACK, Geometry, Launcher, Ranks, free_port, start, stop
from regatta.runtimes import RUNTIMES, runtime_of
from regatta.runtimes.base import SET_BY_RUNTIME, LaunchContext, quote_for_shell
from regatta.runtimes.plugins import ADDITIONS, load_plugin
from regatta.runtimes.prologue_steps import before_by_hand

LAUNCHERS: dict[str, Launcher] = {
    "none": local.LAUNCHER,
    "slurm": slurm.LAUNCHER,
}
check_listed("launchers", "Launcher", LAUNCHERS.values(), "LAUNCHERS of launchers/__init__.py")
ADDITIONS["LAUNCHERS"] = ("launcher", LAUNCHERS, Launcher)

STACK_KEYS = tuple(key for launcher in LAUNCHERS.values() for key in launcher.ranks.stack_keys)  # options of a stack
NOT_INHERITED = ("PYTHON", "REGATTA_")
# snakemake/shell.py of 9.27.1 sets these to the job's threads.
THREADS = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR"))
THREADS += ("VECLIB_MAXIMUM_THREADS",)
RUN_LAUNCH = SCRIPTS / "bench" / "run_launch.py"
PROGRAM = SCRIPTS / "bench" / "program.sh"
MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")  # set for each launch, unless by the stack's env; never inherited
OF_PREFLIGHT = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
# Variables that launches set, besides those of the stack. None: only in some launches, or with another value in each.
SET_BY_LAUNCH = {
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
    **dict.fromkeys(("REGATTA_THREADS_PER_RANK", "REGATTA_MASTER_ADDR", "LC_ALL", *MEETING_POINT, *OF_PREFLIGHT)),
}
# Values of the templates in a line for a shell. That of the first node is in no word, and is replaced when quoted.
BY_HAND = {"first_host": "\0first_host\0", "port": "29500"}
POLL_SECONDS = 0.05
STACK_DUMP_SECONDS = 0.5  # time for hung ranks to write their stacks
STEP_POLL_SECONDS = 2.0
C_LOCALE = {"LC_ALL": "C.UTF-8"}  # of programs: numbers with a decimal point, messages in English
SECONDS_WITHOUT_ANSWER = 60


def launcher_of(cluster: dict) -> Launcher:
    """Return the launcher of a cluster, which one of its plugins may have."""
    name = cluster["scheduler"]
    if name not in LAUNCHERS:
        load_plugins(cluster)
    return LAUNCHERS[name]


def launch_argv(
    geometry: Geometry,
    stack: dict,
    program: list[str],
    *,
    variables: Mapping[str, str] | None = None,
    folders: tuple[Path, ...] = (ROOT,),
    limit_seconds: float | None = None,
    is_python: bool = True,
    error_dir: Path | None = None,
) -> list[str]:
    """Return the command line that starts `program`, a Python file and its arguments, on all ranks.

    variables: the job's, substituted in the stack's binds; None keeps their names. folders: read and written by the
    ranks, bound into an image. limit_seconds: of the launcher. is_python: False if `program` is any command.
    error_dir: of a launch, whose name it has.
    """
    runtime = runtime_of(stack)
    prefix = runtime.prefix(stack, geometry.device, variables, folders)
    python, words = ([*prefix, stack["python"] or runtime.default_python], program)
    if not is_python:
        python, words = [], [*prefix, *program]
    ranks = launcher_of(geometry.cluster).ranks
    stack = _with_runtime_options(ranks, stack, variables=variables, folders=folders, error_dir=error_dir)
    return ranks.argv(geometry, stack, python, words, limit_seconds)


def launch_context(stack: dict, meeting: Mapping[str, str] | None = None, **fields: object) -> LaunchContext:
    """Return the inputs of the stack's runtime for a launch. fields: of LaunchContext, besides env."""
    env = {**SET_BY_LAUNCH, **stack_variables(stack, meeting or {})}
    return LaunchContext(env={key: value for key, value in env.items() if key not in SET_BY_RUNTIME}, **fields)


def _with_runtime_options(ranks: Ranks, stack: dict, **fields: object) -> dict:
    """Return a stack with the launcher options of its runtime, and of the others in its campaign."""
    runtime, options = runtime_of(stack), stack.get("options_beside", [])
    if runtime.launcher:
        options = [*options, *runtime.launcher_options(stack, launch_context(stack, **fields))]
    key = ranks.stack_keys[0] if options else None
    return {**stack, key: [*stack[key], *options]} if key else stack


def inherited_environment(launcher: Launcher) -> dict[str, str]:
    """Return the variables of this process that the ranks inherit, and those of the job.

    Not inherited: PYTHON*, set for the driver's interpreter; REGATTA_*, which change results and so must come from the
    stack, which is in a cell's id; variables of schedulers and container runtimes; and the *_NUM_THREADS that
    Snakemake sets for each job.
    """
    tools = [*(tool.ranks for tool in LAUNCHERS.values()), *RUNTIMES.values()]
    dropped = (*NOT_INHERITED, *(prefix for tool in LAUNCHERS.values() for prefix in tool.ranks.variables))
    dropped += tuple(prefix for tool in RUNTIMES.values() for prefix in tool.user_variables)
    kept = {name for tool in tools for name in tool.kept_variables}
    replaced = {*THREADS, *MEETING_POINT, *launcher.ranks.replaced_variables}
    return {
        key: value
        for key, value in os.environ.items()
        if key not in replaced and (key in kept or not key.startswith(dropped))
    }


def launch_environment(
    launcher: Launcher,
    stack: dict,
    extra: Mapping[str, str] | None = None,
    prologue: Mapping[str, str | None] | None = None,
    meeting: Mapping[str, str] | None = None,
    *,
    is_program: bool = False,
) -> dict[str, str]:
    """Return the environment of the ranks: the inherited one, overridden by the prologue's changes (None for a removed
    variable), then by the stack's variables, then by `extra`, except a meeting point.

    Programs do not inherit a locale, which is in no cell's id: they have C's, unless prologue or stack set one.
    meeting: values of the templates in the stack's variables."""
    changed = {key: value for key, value in (prologue or {}).items() if key not in MEETING_POINT}
    inherited = {key: value for key, value in inherited_environment(launcher).items() if key not in changed}
    if is_program:
        inherited = {key: value for key, value in inherited.items() if not is_of_locale(key)}
        set_ones = {*stack["env"], *(key for key, value in changed.items() if value is not None)} - {"LANGUAGE"}
        extra = {**(extra or {}), **({} if any(map(is_of_locale, set_ones)) else C_LOCALE)}
    inherited |= {key: value for key, value in changed.items() if value is not None}
    if changed.get("OMP_NUM_THREADS"):
        inherited.setdefault("REGATTA_THREADS_PER_RANK", changed["OMP_NUM_THREADS"])
    # Packages in the user's home directory are in no cell's id, and Apptainer mounts it into images.
    of_stack = stack_variables(stack, meeting or {})
    extra = {key: value for key, value in (extra or {}).items() if key not in of_stack or key not in MEETING_POINT}
    given = {"PYTHONNOUSERSITE": "1", **of_stack, **extra, "PYTHONUNBUFFERED": "1"}
    runtime = runtime_of(stack)
    names = {name: given[key] for key, name in runtime.variable_names(stack, given).items()}
    return {key: value for key, value in {**inherited, **given, **names}.items() if key not in runtime.withheld}


def is_of_locale(name: str) -> bool:
    return name in ("LANG", "LANGUAGE") or name.startswith("LC_")


def stack_variables(stack: dict, meeting: Mapping[str, str]) -> dict[str, str]:
    """Return a stack's variables, with the values of their templates.

    OMP_NUM_THREADS is also passed as REGATTA_THREADS_PER_RANK: if it is not set, start_ranks.py sets it to 1, as
    torchrun does; a rank cannot distinguish the two. Nor can it tell a stack's MASTER_ADDR from that of an image.
    """
    env = {name: with_values(value, meeting) for name, value in stack["env"].items()}
    twins = {"OMP_NUM_THREADS": "REGATTA_THREADS_PER_RANK", "MASTER_ADDR": "REGATTA_MASTER_ADDR"}
    return {**{twin: env[name] for name, twin in twins.items() if name in env}, **env}


@dataclass(frozen=True)
class Allocation:
    """The place where launches of one launcher start: a job of its scheduler, or this machine, whose `job` is None."""

    launcher: Launcher = LAUNCHERS["none"]
    job: str | None = None

    def start(
        self,
        argv: list[str],
        stack: dict,
        log: Path,
        extra: dict[str, str] | None = None,
        prologue: Mapping[str, str | None] | None = None,
        meeting: Mapping[str, str] | None = None,
        *,
        is_program: bool = False,
    ) -> subprocess.Popen:
        """Start a launch, output to `log`. meeting: values of its templates. Raises OSError if the program cannot be
        run."""
        extra = {**self.launcher.ranks.meeting_point(meeting), **(extra or {})}
        environment = launch_environment(self.launcher, stack, extra, prologue, meeting, is_program=is_program)
        return start(argv, environment, log)

    def meeting(self, stack: dict, hosts: Sequence[str], is_program: bool) -> dict[str, str] | None:
        """Return the values of the templates of a launch: its first node, and a port that nothing holds. None if
        neither a program nor the stack can have one. hosts: of the launch, unless it is alone."""
        used = (f"{{{name}}}" in value for name in BY_HAND for value in stack["env"].values())
        if not is_program and not any(used):
            return None
        first = next((host for host in self.hosts() if not hosts or host in hosts), LOOPBACK)
        port = stack["env"].get("MASTER_PORT", "")
        return {"first_host": first, "port": port if port.isdecimal() else str(free_port())}

    def is_late(self, process: subprocess.Popen, limit_seconds: float, check: Callable[[], None]) -> bool:
        """Wait for a launch, and return whether it is still running at its limit. check: called while waiting."""
        deadline = time.monotonic() + limit_seconds
        while process.poll() is None and time.monotonic() < deadline:
            check()
            time.sleep(POLL_SECONDS)
        return process.poll() is None

    def dump_stacks(self, process: subprocess.Popen, hosts: Sequence[str] = ()) -> None:
        """Have every rank write its Python stacks to the log, and wait. hosts: of the launch, unless it is alone."""
        self.launcher.ranks.dump_stacks(self.job, process, hosts)
        time.sleep(STACK_DUMP_SECONDS)

    def stop(self, process: subprocess.Popen, hosts: Sequence[str] = ()) -> None:
        """End a launch, and return when its processes are gone, on all nodes. hosts: as in dump_stacks."""
        stop(process)
        self.launcher.ranks.end(self.job, process, hosts)

    def hosts(self) -> list[str]:
        """Return the nodes of the job, or nothing on one machine."""
        return self.launcher.queue.hosts(self.job)

    def step_hosts(self, num_nodes: int, avoid: Sequence[str] = ()) -> list[str]:
        """Return the nodes that a step of `num_nodes` is pinned to, those in `avoid` only if the job has no others.

        Nothing if a step gets all nodes of the job.
        """
        hosts = self.hosts()
        if len(hosts) <= num_nodes:
            return []
        chosen = sorted(hosts, key=lambda host: host in avoid)[:num_nodes]
        return [host for host in hosts if host in chosen]

    def state(self) -> str | None:
        """Return the job's state; None on one machine, or if unknown to the scheduler."""
        return self.launcher.queue.state(self.job)

    def state_after_signal(self, cluster: dict) -> str | None:
        """Return the job's state after a signal: TIMEOUT if its time limit is near; None as for `state`."""
        return self.launcher.queue.state_after_signal(self.job, cluster)

    def state_of(self, job: str | None) -> str | None:
        """Return the state of an earlier job; None if there was none, or if unknown to the scheduler."""
        return self.launcher.queue.state(job) if self.job and job and job != self.job else None

    @contextlib.contextmanager
    def exclusive_use(self, folder: Path, name: str, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Wait until nothing else is measured on this machine or in this job, and keep the lock within the context.

        folder: that of all results. name: the waiting task, for people. check: called while waiting; raises to give up.
        """
        lock, is_waiting = None, False
        while lock is None:
            try:
                lock = self.launcher.queue.lock(self.job, folder)
            except Taken:
                if not is_waiting:
                    where = f"in {self.launcher.title} job {self.job}" if self.job else "on this machine"
                    text = f"another batch is being measured {where}{self.launcher.queue.holder()}"
                    print(f"{name}: waiting: {text}", file=sys.stderr, flush=True)
                is_waiting = True
                check()
                time.sleep(POLL_SECONDS)
        with lock:
            self._wait_for_foreign_steps(name, check)
            yield

    def _wait_for_foreign_steps(self, name: str, check: Callable[[], None]) -> None:
        """Wait for ranks of Regatta without a lock, such as those of a supervisor that was killed.

        If the scheduler does not answer, continue after SECONDS_WITHOUT_ANSWER.
        """
        is_waiting = False
        deadline = time.monotonic() + SECONDS_WITHOUT_ANSWER
        while (steps := self.launcher.queue.foreign_steps(self.job)) != []:
            if steps is None and time.monotonic() > deadline:
                return
            if steps and not is_waiting:
                found = f"{self.launcher.title} job {self.job} has running steps of Regatta ({', '.join(steps)})"
                remedy = f"To end them: {self.launcher.queue.end_foreign} {' '.join(steps)}"
                print(f"{name}: waiting: {found}. {remedy}", file=sys.stderr, flush=True)
                is_waiting = True
            check()
            time.sleep(STEP_POLL_SECONDS)


def load_plugins(cluster: dict) -> None:
    """Load the plugins of a cluster file that was read before."""
    for path in cluster.get("plugins", ()):
        load_plugin(Path(path))


def find_allocation(cluster: dict) -> Allocation:
    """Load the plugins of a cluster, and return where its ranks are started.

    Raises UserError outside of a job if ranks need one.
    """
    load_plugins(cluster)
    launcher = launcher_of(cluster)
    launcher.queue.use_cluster(cluster)
    return Allocation(launcher, launcher.queue.find_job(cluster))


def command_by_hand(spec: dict, stack: dict, cluster: dict) -> str:
    """Return the shell command that repeats one cell by hand.

    It starts in the project's folder; on a cluster, within an allocation of the cell's shape.
    """
    program = [f"workflow/scripts/bench/{spec['benchmark']}.py"]
    script, values = spec.get("script", {}), {"device": spec["device"], "backend": spec["backend"]}
    if "module" in spec:
        program = ["workflow/scripts/bench/from_file.py", spec["module"]["path"]]
        values |= {"parameters": json.dumps(spec["parameters"]), **spec["sampling"]}
    else:
        values |= {**spec["parameters"], **spec["sampling"]}
    if script:
        values |= {"script": script["path"], **(script["steps"] or {})}
        values |= {"ddp": json.dumps(script["ddp"])} if "ddp" in script else {}
        program += ["--exposed"] if "exposed" in script else []
    for name, value in values.items():
        if value is not None:
            program += [f"--{name.replace('_', '-')}", str(value).lower() if isinstance(value, bool) else str(value)]
    program += [f"--argument={word}" for word in script.get("arguments", [])]
    shape = (spec["nodes"], spec["gpus_per_node"])
    geometry = Geometry(cluster, *shape, spec["device"], hosts=spec.get("hosts", ()))
    whole, ranks = _with_folder(stack), launcher_of(cluster).ranks
    prefix = runtime_of(stack).prefix(whole, spec["device"], None, ())
    return _line_by_hand(ranks, stack, *ranks.by_hand(geometry, _with_runtime_options(ranks, whole), prefix, program))


def program_by_hand(geometry: Geometry, stack: dict, words: list[str]) -> str:
    """Return the shell command that starts a user's program by hand, in a folder with its files."""
    launcher, whole = launcher_of(geometry.cluster), _with_folder(stack)
    if launcher.submits:  # program.sh makes the environment of the ranks
        line = launch_argv(geometry, whole, program_words("-", ".", geometry, words), is_python=False)
        needed = launcher.ranks.meeting_point(BY_HAND)
        return _line_by_hand(launcher.ranks, stack, [f"{name}={value}" for name, value in needed.items()], line)
    if geometry.starts:
        prefix = runtime_of(stack).prefix(whole, geometry.device, None, ())
        return _line_by_hand(launcher.ranks, stack, [], [*prefix, *words])
    return _line_by_hand(launcher.ranks, stack, [], launch_argv(geometry, whole, words, folders=(), is_python=False))


def program_words(
    started: str,
    folder: str,
    geometry: Geometry,
    words: list[str],
    hosts: Sequence[str] = (),
    image_mount: str | None = None,
) -> list[str]:
    """Return the words that start one process of a user's program.

    started: folder of program.sh's notes, or `-`. hosts: those of the shape, if the scheduler names them. image_mount:
    mount point that exists only in its image.
    """
    starts = "x".join(map(str, geometry.starts)) if geometry.starts else "-"
    if geometry.starts and hosts:
        starts += f":{','.join(hosts)}"
    return ["sh", str(PROGRAM), started, folder, starts, image_mount or "-", *words]


def _with_folder(stack: dict) -> dict:
    """Return a stack that binds the working folder."""
    return {**stack, "binds": [*stack["binds"], "$PWD"]}


def _line_by_hand(ranks: Ranks, stack: dict, needed: list[str], line: list[str]) -> str:
    """Return a command line as text for a shell, with the variables of a stack and those that are needed."""
    runtime, given = runtime_of(stack), stack_variables(stack, BY_HAND)
    names = runtime.variable_names(stack, given)
    needed = [word for word in needed if word.partition("=")[0] not in given]
    words = [*(f"{names.get(key, key)}={value}" for key, value in given.items()), *needed]
    line = " ".join(
        [*(["env"] if words else []), *map(shlex.quote, words), *quote_for_shell(line, runtime.bind_option)]
    )
    first, whole_word = ranks.first_host_by_hand, shlex.quote(BY_HAND["first_host"])
    return before_by_hand(stack) + line.replace(whole_word, first).replace(BY_HAND["first_host"], f"'{first}'")
