"""The preflight: one short launch per stack, before the batches, that reports what the ranks run on.

Planned here and frozen like a batch; its path has the hash of what it examines. A run repeats a failed preflight and
reuses one that passed.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from regatta.campaign.expansion import content_hash
from regatta.campaign.load import Campaign, for_jobs
from regatta.campaign.stacks import changed_since_planned
from regatta.core.errors import UserError
from regatta.core.files import ROOT, SCRIPTS
from regatta.launchers import Allocation, find_allocation, launch_argv, launcher_of
from regatta.launchers.base import Geometry
from regatta.run.causes import CONNECTING, NETWORK, Cause, find_cause, read_log_tail, read_rank_errors
from regatta.run.preflight_verdict import judge
from regatta.run.prologue import PrologueFailed, run_prologue
from regatta.runtimes import runtime_of
from regatta.store.frozen_files import read_frozen
from regatta.store.jobs import hosts_to_avoid, note_job
from regatta.store.launch_files import write_json, write_text
from regatta.store.nodes import blame_nodes, blamed_nodes

MAX_NODES = 2
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError)
STACK_DUMP_SECONDS = 0.5  # time for hung ranks to write their stacks
STACK_MINUTES = 1  # added to the start timeout of the ranks
PROGRAM = SCRIPTS / "bench" / "preflight.py"


class NodeFailed(UserError):
    """A node failed, so no stack can be judged: Snakemake resubmits the preflight."""


class Abandoned(UserError):
    """The process that requested the preflight died."""


@dataclass(frozen=True)
class Preflight:
    """A planned preflight: `preflight/<id>/request.json` freezes its content; the result is `preflight/<id>.json`."""

    id: str
    content: dict

    @property
    def geometry(self) -> Geometry:
        return _geometry(self.content)

    @property
    def minutes(self) -> float:
        """Planned minutes. The launcher derives a time limit from them, as for a batch (plan/batches.py)."""
        return len(self.content["stacks"]) * (self.content["launch_start_seconds"] / 60 + STACK_MINUTES)


def _geometry(content: dict) -> Geometry:
    return Geometry(content["cluster"], content["nodes"], content["gpus_per_node"], content["device"])


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
    nodes = min(MAX_NODES, max(nodes for nodes, _ in shapes))
    content = {
        "schema": 1,
        "campaign": campaign.name,
        "cluster": for_jobs(campaign.clusters[next(iter(chosen))]),
        "nodes": nodes,
        "gpus_per_node": max(gpus for _, gpus in shapes),
        "device": campaign.data["device"],
        "backends": campaign.data["backend"],
        "launch_start_seconds": campaign.data["limits"]["launch_start_seconds"],
        "stacks": chosen,
        "generation": 1,
    }
    while True:
        found = Preflight(f"preflight-{content_hash(content)}", content)
        path = results / "preflight" / f"{found.id}.json"
        if not path.exists() or has_passed(path):
            return found
        content["generation"] += 1


def failed_stacks(path: Path) -> dict[str, str]:
    """Return the stacks that failed a preflight, each with its problems; empty without a readable result."""
    return {stack: problems for stack, problems in _problems(path).items() if problems is not None}


def has_passed(path: Path) -> bool:
    """Return whether each stack of a result passed. A damaged result did not, and the preflight is repeated."""
    return {*_problems(path).values()} == {None}


def _problems(result: Path) -> dict[str, str | None]:
    """Return the problems of each stack, None if it passed; nothing without a readable result."""
    try:
        found = {s["stack"]: s["verdict"] for s in json.loads(result.read_text(encoding="utf-8"))["stacks"]}
        return {
            stack: None if verdict["ok"] is True else "; ".join(verdict["problems"]) for stack, verdict in found.items()
        }
    except UNREADABLE:
        return {}


def latest_preflight(results: Path) -> list[str]:
    """Return the path of the last preflight of each node type, for a report when nothing is left to measure."""
    files = [path for path in results.glob("preflight/preflight-*.json") if path.is_file()]
    files.sort(key=lambda path: path.stat().st_mtime_ns)
    return sorted({_node_type(path): str(path) for path in files}.values())


def _node_type(result: Path) -> str | None:
    with contextlib.suppress(*UNREADABLE):
        return json.loads((result.with_suffix("") / "request.json").read_text(encoding="utf-8"))["cluster"]["node_type"]
    return None


def run_preflight(folder: Path, parent: int | None = None) -> dict:
    """Run the launches of a frozen preflight, and write and return its result: `<folder>.json`.

    Raises UserError when the process that started this one, `parent`, dies.
    """
    frozen = read_frozen(folder / "request.json")
    allocation, parent = find_allocation(frozen["cluster"]), parent or os.getppid()
    attempt = len(list(folder.glob("*.launch.json")))

    def raise_if_abandoned() -> None:
        if os.getppid() != parent:
            raise Abandoned("the preflight was stopped: the process that requested it died.")

    with allocation.exclusive_use(folder.parents[2], folder.name, raise_if_abandoned):
        stacks = [
            _examine(folder, frozen, allocation, name, f"{name}-{attempt + index:02d}", raise_if_abandoned)
            for index, name in enumerate(frozen["stacks"])
        ]
    _leave_pair(folder, frozen, allocation, stacks)
    kept = ("campaign", "nodes", "gpus_per_node", "device", "backends")
    result = {"schema": 1, **{key: frozen[key] for key in kept}, "stacks": stacks}
    write_json(folder.with_suffix(".json"), result)
    return result


def _leave_pair(folder: Path, frozen: dict, allocation: Allocation, stacks: list[dict]) -> None:
    """Raise NodeFailed if the nodes of the job cannot reach each other: the preflight is repeated once, on others."""
    problems = [problem for entry in stacks for problem in entry["verdict"]["problems"] if NETWORK.search(problem)]
    if problems and frozen["nodes"] > 1 and allocation.job and not hosts_to_avoid(folder):
        hosts = allocation.hosts()
        text = f"{', '.join(hosts)} cannot reach each other: {problems[0]}"
        note_job(folder, "node_failure", allocation.job, hosts, text)
        raise NodeFailed(f"{text} The preflight is repeated once, on other nodes if possible.")


def _examine(
    folder: Path, frozen: dict, allocation: Allocation, name: str, launch: str, check: Callable[[], None]
) -> dict:
    """Launch one stack, wait for it, and evaluate the report of its ranks. check: called while waiting."""
    stack = frozen["stacks"][name]
    out_file, log = folder / f"{launch}.seen.json", folder / f"{launch}.log"
    (folder / "errors" / launch).mkdir(parents=True, exist_ok=True)
    avoid = [*blamed_nodes(results := folder.parents[1]), *allocation.launcher.queue.excluded_nodes(frozen["cluster"])]
    request, cause = None, changed_since_planned(name, stack, frozen["cluster"])
    if cause is None:
        try:
            limit = frozen["launch_start_seconds"]
            geometry = replace(_geometry(frozen), hosts=allocation.step_hosts(frozen["nodes"], avoid))
            prologue = run_prologue(allocation, geometry, stack, folder / f"{launch}.prologue", limit, check)
            request = _write_request(folder.resolve(), frozen, geometry, name, launch)
            cause = _launch(allocation, request, stack, log, limit, prologue, check)
        except (NodeFailed, Abandoned):
            raise
        except PrologueFailed as failed:
            if failed.cause.status == "node_failure":
                raise _node_failed(folder, allocation, failed.cause) from None
            cause = str(failed)
            write_text(log, failed.output)
            blame_nodes(results, failed.cause.hosts, folder.name, allocation.job, cause)
        except UserError as error:
            cause = str(error)
    report = read_frozen(out_file) if out_file.exists() else None
    nccl_text = "".join(path.read_text(errors="replace") for path in sorted(folder.glob(f"{launch}.nccl.*.log")))
    verdict = judge({"name": name, **stack}, report, nccl_text, None if report else cause, str(log))
    if request is None:  # nothing was launched, so there is no log to read
        verdict["problems"] = [cause]
    kept = {key: stack[key] for key in ("kind", "image", "image_id")}
    argv = request and request["argv"]
    return {"stack": name, **kept, "verdict": verdict, "seen": report, "log": str(log), "argv": argv}


def _write_request(folder: Path, frozen: dict, geometry: Geometry, name: str, launch: str) -> dict:
    stack, path = frozen["stacks"][name], folder / f"{launch}.launch.json"
    argv = launch_argv(
        geometry,
        stack,
        [str(PROGRAM), "--request", str(path)],
        variables=os.environ,
        folders=(ROOT, folder.parent.parent),
        limit_seconds=2 * frozen["launch_start_seconds"],
    )
    request = {
        "schema": 1,
        "stack": name,
        "launch": launch,
        **{key: frozen[key] for key in ("nodes", "gpus_per_node", "device", "backends")},
        "start_timeout_seconds": frozen["launch_start_seconds"] / 2,
        "out_file": str(folder / f"{launch}.seen.json"),
        "error_dir": str(folder / "errors" / launch),
        **{key: stack[key] for key in ("image", "image_id")},
        "argv": argv,
    }
    write_json(path, request)
    return request


def _launch(
    allocation: Allocation,
    request: dict,
    stack: dict,
    log: Path,
    limit_seconds: float,
    prologue: dict,
    check: Callable[[], None],
) -> str | None:
    """Run a launch to its end or its deadline. Returns why it did not end well, or None."""
    nccl_log = Path(request["out_file"]).with_name(f"{request['launch']}.nccl.%h.%p.log")
    extra = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH", "NCCL_DEBUG_FILE": str(nccl_log)}
    try:
        process = allocation.start(request["argv"], stack, log, extra, prologue)
    except OSError as error:
        return f"{request['argv'][0]} cannot be started: {error.strerror}"
    try:
        if is_late := allocation.is_late(process, limit_seconds, check):
            allocation.dump_stacks(process)
            time.sleep(STACK_DUMP_SECONDS)
    finally:
        allocation.stop(process)
    if is_late and CONNECTING in read_log_tail(log):
        return f"the ranks timed out connecting to each other ({limit_seconds:g} s, launch_start_seconds)"
    if is_late:
        return f"the ranks did not report within {limit_seconds:g} s (launch_start_seconds); stack traces are in {log}"
    if process.returncode == 0:
        return None
    errors = read_rank_errors(Path(request["error_dir"]))
    cause = find_cause(allocation.launcher, errors, read_log_tail(log), process.returncode, 0)
    if cause.status == "node_failure":
        raise _node_failed(Path(request["out_file"]).parent, allocation, cause)
    return cause.text


def _node_failed(folder: Path, allocation: Allocation, cause: Cause) -> NodeFailed:
    blame_nodes(folder.parents[1], cause.hosts, folder.name, allocation.job, cause.text)
    return NodeFailed(f"a node failed during the preflight: {cause.text}. Run the same command again.")
