"""The preflight: one short launch per stack, before the batches, that reports what the ranks run on.

Planned here and frozen like a batch; its path has the hash of what it examines. A run repeats a failed preflight and
reuses one that passed.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from regatta.campaign.expansion import content_hash
from regatta.campaign.load import Campaign, for_jobs
from regatta.campaign.stacks import changed_since_planned
from regatta.core.errors import UserError
from regatta.core.files import ROOT, SCRIPTS
from regatta.launchers import Allocation, find_allocation, launch_argv, launch_context, launcher_of
from regatta.launchers.base import Geometry
from regatta.model.frozen import fields_from_json, fields_to_json
from regatta.run.causes import CONNECTING, NETWORK, Cause, find_cause, read_log_tail, read_rank_errors, signal_name
from regatta.run.preflight_verdict import judge
from regatta.run.prologue import PrologueFailed, run_prologue
from regatta.runtimes import runtime_of
from regatta.store.frozen_files import SCHEMA, read_frozen
from regatta.store.jobs import hosts_to_avoid, note_job
from regatta.store.launch_files import read_json, write_json, write_text
from regatta.store.nodes import blame_nodes, blamed_nodes

MAX_NODES = 2
UNREADABLE = (KeyError, TypeError)
STACK_MINUTES = 1  # added to the start timeout of the ranks
PROGRAM = SCRIPTS / "bench" / "preflight.py"


class NodeFailed(UserError):
    """A node failed, so no stack can be judged: Snakemake resubmits the preflight."""


class Abandoned(UserError):
    """The process that requested the preflight died."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """A planned preflight, as `preflight/<id>/request.json` freezes it; the result is `preflight/<id>.json`."""

    schema: int = SCHEMA
    campaign: str
    cluster: dict
    nodes: int
    gpus_per_node: int
    device: str
    backends: list[str]
    launch_start_seconds: float
    stacks: dict[str, dict]
    generation: int = 1

    @cached_property
    def id(self) -> str:
        """The name of its folder, with the hash of its content."""
        return f"preflight-{content_hash(fields_to_json(self))}"

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.cluster, self.nodes, self.gpus_per_node, self.device)

    @property
    def minutes(self) -> float:
        """Planned minutes. The launcher derives a time limit from them, as for a batch (plan/batches.py)."""
        return len(self.stacks) * (self.launch_start_seconds / 60 + STACK_MINUTES)


def plan_preflight(
    campaign: Campaign, shapes: list[tuple[int, int]], stacks: set[str], results: Path
) -> Preflight | None:
    """Return the preflight for the remaining work on one node type, or None if none is needed: on one machine
    without containers and prologues, each launch file contains the same information."""
    chosen = {name: stack for name, stack in campaign.data["stacks"].items() if name in stacks}
    has_image = any(runtime_of(stack).has_image for stack in chosen.values())
    has_prologue = any("prologue" in stack for stack in chosen.values())
    if not chosen or not (has_image or has_prologue or launcher_of(campaign.cluster).submits):
        return None
    found = Preflight(
        campaign=campaign.name,
        cluster=for_jobs(campaign.clusters[next(iter(chosen))]),
        nodes=min(MAX_NODES, max(nodes for nodes, _ in shapes)),
        gpus_per_node=max(gpus for _, gpus in shapes),
        device=campaign.data["device"],
        backends=campaign.data["backend"],
        launch_start_seconds=campaign.data["limits"]["launch_start_seconds"],
        stacks=chosen,
    )
    while (path := results / "preflight" / f"{found.id}.json").exists() and not has_passed(path):
        found = replace(found, generation=found.generation + 1)
    return found


def failed_stacks(path: Path) -> dict[str, str]:
    """Return the stacks that failed a preflight, each with its problems; empty without a readable result."""
    return {stack: problems for stack, problems in _problems(path).items() if problems is not None}


def has_passed(path: Path) -> bool:
    """Return whether each stack of a result passed. A damaged result did not, and the preflight is repeated."""
    return {*_problems(path).values()} == {None}


def _problems(result: Path) -> dict[str, str | None]:
    """Return the problems of each stack, None if it passed; nothing without a readable result."""
    try:
        found = {entry["stack"]: entry["verdict"] for entry in read_json(result)["stacks"]}
        return {name: None if of["ok"] is True else "; ".join(of["problems"]) for name, of in found.items()}
    except UNREADABLE:
        return {}


def latest_preflight(results: Path) -> list[str]:
    """Return the path of the last preflight of each node type, for a report when nothing is left to measure."""
    files = [path for path in results.glob("preflight/preflight-*.json") if path.is_file()]
    files.sort(key=lambda path: path.stat().st_mtime_ns)
    return sorted({_node_type(path): str(path) for path in files}.values())


def _node_type(result: Path) -> str | None:
    with contextlib.suppress(*UNREADABLE):
        return read_json(result.with_suffix("") / "request.json")["cluster"]["node_type"]
    return None


def run_preflight(folder: Path, parent: int | None = None) -> dict:
    """Run the launches of a frozen preflight, and write and return its result: `<folder>.json`.

    Raises UserError when the process that started this one, `parent`, dies.
    """
    frozen, parent = fields_from_json(Preflight, read_frozen(folder / "request.json")), parent or os.getppid()
    run = PreflightRun(folder, frozen, find_allocation(frozen.cluster), parent)
    attempt = len(list(folder.glob("*.launch.json")))
    with run.noting_signal(), run.allocation.exclusive_use(folder.parents[2], folder.name, run.raise_if_abandoned):
        stacks = [run.examine(name, f"{name}-{attempt + index:02d}") for index, name in enumerate(frozen.stacks)]
    run.leave_pair(stacks)
    kept = ("campaign", "nodes", "gpus_per_node", "device", "backends")
    result = {"schema": SCHEMA, **{name: getattr(frozen, name) for name in kept}, "stacks": stacks}
    write_json(folder.with_suffix(".json"), result)
    return result


@dataclass(frozen=True)
class PreflightRun:
    """A preflight that runs. parent: the process that started this one."""

    folder: Path
    frozen: Preflight
    allocation: Allocation
    parent: int

    @contextlib.contextmanager
    def noting_signal(self) -> Iterator[None]:
        """Record that a signal ended the preflight of a job, with the job's state."""
        try:
            yield
        except SystemExit as end:
            if self.allocation.job and isinstance(end.code, int) and end.code > 128:
                state = self.allocation.state_after_signal(self.frozen.cluster)
                cause = signal_name(end.code - 128) + (f": {state}" if state not in (None, "RUNNING") else "")
                with contextlib.suppress(OSError):
                    note_job(self.folder, "stopped", self.allocation.job, [], cause, 0)
            raise

    def raise_if_abandoned(self) -> None:
        if os.getppid() != self.parent:
            raise Abandoned("the preflight was stopped: the process that requested it died.")

    def leave_pair(self, stacks: list[dict]) -> None:
        """Raise NodeFailed if the job's nodes cannot reach each other: the preflight is repeated once, on others."""
        problems = [problem for entry in stacks for problem in entry["verdict"]["problems"] if NETWORK.search(problem)]
        if problems and self.frozen.nodes > 1 and self.allocation.job and not hosts_to_avoid(self.folder):
            hosts = self.allocation.hosts()
            text = f"{', '.join(hosts)} cannot reach each other: {problems[0]}"
            note_job(self.folder, "node_failure", self.allocation.job, hosts, text)
            raise NodeFailed(f"{text} The preflight is repeated once, on other nodes if possible.")

    def examine(self, name: str, launch: str) -> dict:
        """Launch one stack, wait for it, and evaluate the report of its ranks."""
        stack, frozen, allocation = self.frozen.stacks[name], self.frozen, self.allocation
        out_file, log = self.folder / f"{launch}.seen.json", self.folder / f"{launch}.log"
        (self.folder / "errors" / launch).mkdir(parents=True, exist_ok=True)
        avoid = [*blamed_nodes(self.folder.parents[1]), *allocation.launcher.queue.excluded_nodes(frozen.cluster)]
        argv, cause = None, changed_since_planned(name, stack, frozen.cluster)
        if cause is None:
            try:
                limit, place = frozen.launch_start_seconds, self.folder / f"{launch}.prologue"
                geometry = replace(frozen.geometry, hosts=allocation.step_hosts(frozen.nodes, avoid))
                prologue = run_prologue(allocation, geometry, stack, place, limit, self.raise_if_abandoned)
                meeting = allocation.meeting(stack, geometry.hosts, is_program=False)
                argv = self._write_request(geometry, name, launch, meeting)
                cause = self._launch(argv, stack, launch, log, prologue, meeting)
            except (NodeFailed, Abandoned):
                raise
            except PrologueFailed as failed:
                if failed.cause.status == "node_failure":
                    raise self._node_failed(failed.cause) from None
                cause = str(failed)
                write_text(log, failed.output)
                blame_nodes(self.folder.parents[1], failed.cause.hosts, self.folder.name, allocation.job, cause)
            except UserError as error:
                cause = str(error)
        report = read_frozen(out_file) if out_file.exists() else None
        nccl_logs = sorted(self.folder.glob(f"{launch}.nccl.*.log"))
        nccl_text = "".join(path.read_text(errors="replace") for path in nccl_logs)
        verdict = judge({"name": name, **stack}, report, nccl_text, None if report else cause, str(log))
        if argv is None:  # nothing was launched, so there is no log to read
            verdict["problems"] = [cause]
        kept = {key: stack[key] for key in ("kind", "image", "image_id")}
        return {"stack": name, **kept, "verdict": verdict, "seen": report, "log": str(log), "argv": argv}

    def _write_request(self, geometry: Geometry, name: str, launch: str, meeting: dict | None) -> list[str]:
        """Write the request of a launch, and return the command line that starts its ranks."""
        folder, frozen, stack = self.folder.resolve(), self.frozen, self.frozen.stacks[name]
        path, seconds = folder / f"{launch}.launch.json", frozen.launch_start_seconds
        words, folders = [str(PROGRAM), "--request", str(path)], (ROOT, folder.parent.parent)
        errors, options = folder / "errors" / launch, {"variables": os.environ, "folders": folders}
        argv = launch_argv(geometry, stack, words, **options, limit_seconds=2 * seconds, error_dir=errors)
        context = launch_context(stack, meeting, **options, error_dir=errors)
        context = replace(context, env={**context.env, **self._variables(launch)})
        runtime_of(stack).write_files(stack, context)
        request = {
            "schema": SCHEMA,
            "stack": name,
            "launch": launch,
            **{key: getattr(frozen, key) for key in ("nodes", "gpus_per_node", "device", "backends")},
            "start_timeout_seconds": seconds / 2,
            "out_file": str(folder / f"{launch}.seen.json"),
            "error_dir": str(errors),
            "image_mount": runtime_of(stack).image_mount(stack, launch),
            **{key: stack[key] for key in ("image", "image_id")},
            "argv": argv,
        }
        write_json(path, request)
        return argv

    def _variables(self, launch: str) -> dict[str, str]:
        nccl_log = self.folder.resolve() / f"{launch}.nccl.%h.%p.log"
        return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH", "NCCL_DEBUG_FILE": str(nccl_log)}

    def _launch(
        self, argv: list[str], stack: dict, launch: str, log: Path, prologue: dict, meeting: dict | None
    ) -> str | None:
        """Run a launch to its end or its deadline. Returns why it did not end well, or None."""
        allocation, limit_seconds = self.allocation, self.frozen.launch_start_seconds
        try:
            process = allocation.start(argv, stack, log, self._variables(launch), prologue, meeting)
        except OSError as error:
            return f"{argv[0]} cannot be started: {error.strerror}"
        try:
            if is_late := allocation.is_late(process, limit_seconds, self.raise_if_abandoned):
                allocation.dump_stacks(process)
        finally:
            allocation.stop(process)
        text, limit = read_log_tail(log), f"{limit_seconds:g} s"
        if is_late and CONNECTING in text:
            return f"the ranks timed out connecting to each other ({limit}, launch_start_seconds)"
        if is_late:
            return f"the ranks did not report within {limit} (launch_start_seconds); stack traces are in {log}"
        if process.returncode == 0:
            return None
        errors = read_rank_errors(self.folder / "errors" / launch)
        cause = find_cause(allocation.launcher, errors, text, process.returncode, 0)
        if cause.status == "node_failure":
            raise self._node_failed(cause)
        return cause.text

    def _node_failed(self, cause: Cause) -> NodeFailed:
        blame_nodes(self.folder.parents[1], cause.hosts, self.folder.name, self.allocation.job, cause.text)
        return NodeFailed(f"a node failed during the preflight: {cause.text}. Run the same command again.")
