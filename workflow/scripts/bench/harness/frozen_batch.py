"""A frozen batch, measured without Regatta's driver: what is left of it, launch requests, records of cells that died.

Files and names are those of the driver's supervisor (docs/contracts.md), so that it can resume. Standard library only.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness import launch_file, process
from harness.launch_file import utc_now

SCHEMA = 1
BENCH = Path(__file__).resolve().parents[1]
ALWAYS_RETRIED = ("node_failure", "invalid")  # statuses that are no result of the cell
FROM_REQUEST = "schema campaign batch launch generation repeat stack nodes gpus_per_node device argv git".split()
DRIVER_ONLY = ("image", "wrapper", "prologue")  # keys of a stack that only Regatta's driver can start

# Variables that ranks do not inherit (regatta/launchers): they come from the stack, or are set for each launch. Kept
# here are PYTHON*, which belong to the Python that starts the ranks.
NOT_INHERITED = ("REGATTA_", "SLURM_", "SRUN_", "SBATCH_", "APPTAINER", "SINGULARITY")
KEPT = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME")
REPLACED = ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
REPLACED += tuple(f"{name}_NUM_THREADS" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR"))
REPLACED += ("VECLIB_MAXIMUM_THREADS",)


class Refused(Exception):
    """The folder, or what it asks for, cannot be measured here. The message says why and what to do."""


@dataclass
class Batch:
    """A frozen batch. content: that of batch.json."""

    folder: Path
    content: dict

    @property
    def results(self) -> Path:
        return self.folder.parent.parent

    def remaining(self, index: int) -> list[str]:
        """Return the cells of a planned launch without a record that counts, in the frozen order."""
        done = set()
        for path in sorted((self.results / "launches").glob(f"{self.folder.name}-l{index:03d}-a*.jsonl")):
            lines, _ = read_lines(path)
            records = (line for line in lines if line["kind"] == "record" and lines[0]["kind"] == "launch")
            done |= {line["cell"] for line in records if line["status"] not in ALWAYS_RETRIED}
        return [cell for cell in self.content["launches"][index]["cells"] if cell not in done]

    def write_request(self, index: int, cells: list[str], git: dict) -> tuple[dict, Path]:
        """Write the request of the next attempt at a planned launch, and return it with its path."""
        planned, folder = self.content["launches"][index], self.folder.resolve()
        prefix = f"{folder.name}-l{index:03d}-a"
        launch = f"{prefix}{len(list((folder / 'launches').glob(f'{prefix}*.json'))):02d}"
        path, store_file = folder / "launches" / f"{launch}.json", folder.parents[1] / "launches" / f"{launch}.jsonl"
        error_dir, log = folder / "errors" / launch, folder / "logs" / f"{launch}.log"
        gpus_per_node = planned.get("gpus_per_node", self.content["gpus_per_node"])
        python = self.content["stacks"][planned["stack"]]["python"] or sys.executable
        program = [str(BENCH / "run_launch.py"), "--request", str(path)]
        request = {
            "schema": SCHEMA,
            "campaign": self.content["campaign"],
            "batch": folder.name,
            "launch": launch,
            "generation": self.content.get("generation", 1),
            "time_utc": utc_now(),
            "repeat": planned["repeat"],
            "stack": planned["stack"],
            "nodes": 1,
            "gpus_per_node": gpus_per_node,
            "device": self.content["device"],
            "start_timeout_seconds": self.content["launch_start_seconds"] / 2,
            "store_file": str(store_file),
            "error_dir": str(error_dir),
            "argv": [python, str(BENCH / "start_ranks.py"), f"--nproc-per-node={gpus_per_node}", *program],
            "git": git,
            "cells": [{"id": cell, **self.known_of(cell)} for cell in cells],
        }
        for parent in (path.parent, store_file.parent, error_dir, log.parent):
            parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(request, indent=1) + "\n")
        return request, log

    def known_of(self, cell: str) -> dict:
        return {key: self.content["cells"][cell][key] for key in ("spec", "command")}


def read_campaign(results: Path) -> list[Batch]:
    """Return the batches of a results folder that its plan lists, as frozen. Raises Refused."""
    remedy = "Freeze the campaign with workflow/scripts/freeze.py, and copy all of results/<name> here"
    try:
        names = [entry["batch"] for entry in json.loads((results / "plan.json").read_text())["batches"]]
        folders = [results / "batches" / name for name in names]
        batches = [Batch(folder, json.loads((folder / "batch.json").read_text())) for folder in folders]
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}. {remedy}.") from None
    except (ValueError, KeyError, TypeError):
        raise Refused(f"{results}: plan.json or a batch.json is damaged. {remedy} again.") from None
    for batch in batches:
        try:
            problem = problem_of(batch.content)
        except (KeyError, TypeError, AttributeError):
            problem = f"is damaged. {remedy} again"
        if problem:
            raise Refused(f"{batch.folder / 'batch.json'}: {problem}.")
    check_launches(results)
    return batches


def check_launches(results: Path) -> None:
    """Raise Refused if the launch files cannot be read, or are missing: everything would be measured again."""
    launches, problem = results / "launches", None
    if launches.is_symlink() and not launches.exists():
        problem = "is a dangling symbolic link"
    elif launches.exists() and not launches.is_dir():
        problem = "is not a folder"
    elif not launches.exists() and any(results.glob("batches/*/launches/*.json")):
        problem = "is missing, but launches were requested"
    if problem:
        raise Refused(f"{launches}: {problem}. Mount or restore the folder. Nothing was changed.")


def problem_of(content: dict) -> str | None:
    """Return why a batch needs Regatta's driver, or None."""
    if content["schema"] != SCHEMA:
        return f"has schema {content['schema']}; these programs read schema {SCHEMA}. Copy both from the same checkout"
    if any("program" in cell["spec"] for cell in content["cells"].values()):
        return "has cells of benchmark: program, whose output only the driver reads. Measure them with snakemake"
    if content["cluster"]["scheduler"] != "none":
        return (
            f"cluster {content['cluster']['name']} has a scheduler, which needs Regatta's driver. "
            "Use a cluster with scheduler: none"
        )
    if content["nodes"] != 1:
        return f"needs {content['nodes']} nodes; without Regatta's driver, only one is supported"
    for name, stack in content["stacks"].items():
        if needing := [key for key in DRIVER_ONLY if stack.get(key)]:
            return f"stack {name} has {' and '.join(needing)}, which needs Regatta's driver. Use kind: host"
        if problem := python_problem(stack):
            return f"stack {name}: python = {stack['python']} {problem}"
    return None


def python_problem(stack: dict) -> str | None:
    """Return what is wrong with the Python that a stack names, or None. The content of a script is in the ids."""
    if stack["python"] and not os.access(stack["python"], os.X_OK):
        return "is not an executable file here. Correct the campaign"
    digest = stack.get("scripts", {}).get("python")
    if digest and hashlib.sha256(Path(stack["python"]).read_bytes()).hexdigest() != digest:
        return "has changed since planning. Freeze the campaign again"
    return None


def rank_environment(stack: dict) -> dict[str, str]:
    """Return the variables of a stack's ranks: those of this process that may be inherited, then the stack's."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in REPLACED and (name in KEPT or not name.startswith(NOT_INHERITED))
    }
    meeting = {"{first_host}": "127.0.0.1", "{port}": str(process.free_port())}
    template = re.compile("|".join(map(re.escape, meeting)))
    env = {name: template.sub(lambda found: meeting[found[0]], value) for name, value in stack["env"].items()}
    twins = {"OMP_NUM_THREADS": "REGATTA_THREADS_PER_RANK", "MASTER_ADDR": "REGATTA_MASTER_ADDR"}
    fixed = {twin: env[name] for name, twin in twins.items() if name in env}
    return {**inherited, "PYTHONNOUSERSITE": "1", **fixed, **env, "PYTHONUNBUFFERED": "1"}


def read_lines(path: Path, offset: int = 0) -> tuple[list[dict], int]:
    """Return the undamaged lines of a launch file from an offset, also while it is written, and the offset of the next.

    Raises Refused if it cannot be read. A file that does not exist has no lines.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return [], offset
    except OSError as error:
        raise Refused(f"{path}: cannot be read ({error.strerror})") from None
    *texts, rest = content.split(b"\n")
    has_checksums = launch_file.KEY in content
    found = [parsed(text) for text in texts if not (has_checksums and launch_file.is_damaged(path, text))]
    return [line for line in found if line is not None], offset + len(content) - len(rest)


def parsed(text: bytes) -> dict | None:
    """Return a line of a launch file, None if it lacks what readers need."""
    try:
        line = json.loads(text)
        needed = {"launch": ("launch",), "start": ("cell",), "record": ("cell", "status")}.get(line["kind"], ())
        return line if all(isinstance(line[key], str) for key in needed) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def append_lines(request: dict, lines: Iterable[dict]) -> None:
    """Append lines to a launch file whose ranks have ended; first the launch's own, if no rank wrote it."""
    path = Path(request["store_file"])
    writer = launch_file.Writer(path)
    if not any(line["kind"] == "launch" for line in read_lines(path)[0]):
        known = {key: request[key] for key in FROM_REQUEST}
        order = [cell["id"] for cell in request["cells"]]
        writer.append({"kind": "launch", **known, "time_utc": utc_now(), "order": order, "environment": None})
    for line in lines:
        writer.append(line)
    os.close(writer.descriptor)


def record_of_death(request: dict, cell: str, status: str, phase: str | None, cause: str, elapsed_ns: int) -> dict:
    """Return the record of a cell that killed its ranks, as the driver writes it."""
    entry = next(entry for entry in request["cells"] if entry["id"] == cell)
    measured = {"elapsed_ns": elapsed_ns}
    return launch_file.build_record(entry, request["repeat"], status, phase, cause, measured) | {"writer": "driver"}


def cause_of_death(request: dict, exit_code: int, log: Path) -> tuple[str, str | None, str]:
    """Return status, phase and cause of a launch that ended early: of the rank that failed first, if one says why."""
    errors = []
    for path in Path(request["error_dir"]).glob("rank-*.json"):
        try:
            errors.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    if errors:
        first = min(errors, key=lambda error: error["time_ns"])
        return first["status"], first["phase"], f"rank {first['rank']} on {first['host']}: {first['cause']}"
    return "failed", None, f"the launch exited with code {exit_code}; last line of the log: {last_line(log)}"


def last_line(log: Path) -> str:
    """Return the last line of a launch's log that its ranks wrote, else of their starter."""
    lines = [line.strip()[:300] for line in log.read_text(errors="replace").splitlines() if line.strip()]
    of_ranks = [line for line in lines if not line.startswith("start_ranks: ")]
    return (of_ranks or lines or ["(empty)"])[-1]


def store_problem(log: Path) -> str | None:
    """Return what rank 0 printed when it could not write the launch file, or None."""
    text = log.read_text(errors="replace")
    if f"start_ranks: rank 0 exited with code {launch_file.EXIT_CANNOT_WRITE}\n" not in text:
        return None
    found = re.search(r"^regatta: (cannot write .*)$", text, re.MULTILINE)
    return found[1] if found else "rank 0 cannot write the launch file."


def git_state() -> dict:
    """Return commit and whether tracked files were edited; both None if this is no git checkout, or git is missing."""
    found = []
    for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no", "--", str(BENCH)]):
        try:
            line = ["git", "-C", str(BENCH), *arguments]
            found.append(subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip())
        except (OSError, subprocess.CalledProcessError):
            found.append(None)
    commit, changes = found
    return {"commit": commit or None, "is_dirty": None if changes is None else bool(changes)}
