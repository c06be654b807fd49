"""Run the prologue of a stack once on each node, and return the variables that it has changed."""

from collections.abc import Callable, Iterable
from pathlib import Path

from regatta.core.errors import UserError
from regatta.core.text import one_line, plural
from regatta.launchers import Allocation, inherited_environment
from regatta.launchers.base import Geometry, start
from regatta.run.causes import Cause, read_log_tail
from regatta.runtimes.prologue_steps import changes, failures, forget_environments, script
from regatta.store.launch_files import write_text


class PrologueFailed(UserError):
    """A prologue failed, so its stack cannot start. cause.hosts: nodes at fault; output: that of one node."""

    def __init__(self, text: str, status: str = "failed", hosts: Iterable[str] = (), output: str = ""):
        super().__init__(text)
        self.cause = Cause(status, "launch", text, frozenset(hosts))
        self.output = output


def run_prologue(
    allocation: Allocation,
    geometry: Geometry,
    stack: dict,
    folder: Path,
    limit_seconds: float,
    check: Callable[[], None],
) -> dict[str, str | None]:
    """Run the steps of a stack, if it has any. Returns the changed variables; None for one that was removed.

    folder: for the script and its output on each node. check: called while waiting; raises to abort. Raises
    PrologueFailed.
    """
    if "prologue" not in stack:
        return {}
    for old in folder.glob("*"):  # left by a job that was stopped
        old.unlink()
    try:
        _run(allocation, geometry, stack["prologue"], folder, limit_seconds, check)
        return changes(folder)
    except ValueError as error:
        remedy = "All ranks get the same environment. Set it in env, or remove it from the sourced file."
        raise PrologueFailed(f"the prologue differs between nodes: {error}. {remedy}") from None
    finally:
        forget_environments(folder)


def _run(
    allocation: Allocation,
    geometry: Geometry,
    steps: list[dict],
    folder: Path,
    limit_seconds: float,
    check: Callable[[], None],
) -> None:
    path = folder.resolve() / "prologue.sh"
    write_text(path, script(steps))
    launcher, log = allocation.launcher, folder / "prologue.out"
    argv = [*launcher.ranks.once_per_node(geometry, limit_seconds), "bash", str(path), str(path.parent)]
    try:
        process = start(argv, inherited_environment(launcher), log)
    except OSError as error:
        raise PrologueFailed(f"the prologue did not run: {argv[0]} cannot be started: {error.strerror}") from None
    try:
        is_late = allocation.is_late(process, limit_seconds, check)
    finally:
        allocation.stop(process)
    reading = launcher.ranks.read_log(text := read_log_tail(log))
    if reading.node_problem:
        raise PrologueFailed(one_line(reading.node_problem, 300), "node_failure", reading.hosts)
    if is_late:
        why = f"the prologue did not finish within {limit_seconds:g} s (launch_start_seconds)"
        raise PrologueFailed(why, output=text)
    if failed := failures(folder):
        host, why = next(iter(failed.items()))
        more = f" and {plural(len(failed) - 1, 'other node')}" if len(failed) > 1 else ""
        # If it fails everywhere, no node is at fault.
        hosts = failed if len(failed) < geometry.nodes else ()
        output = read_log_tail(folder / f"{host}.log")
        raise PrologueFailed(f"the prologue failed on {host}{more}: {why}", "failed", hosts, output)
    if len(list(folder.glob("*.after"))) < geometry.nodes or process.returncode:
        last = one_line((text.splitlines() or ["(no output)"])[-1], 300)
        raise PrologueFailed(f"the prologue did not run on all nodes: {last}", output=text)
