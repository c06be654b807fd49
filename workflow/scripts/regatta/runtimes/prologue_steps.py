"""The prologue of a stack: files to source and modules to load before its ranks start, on the host.

A step is {"source": path, "sha256": its hash, None if it cannot be read here} or {"module": name}. bash runs the steps
once per node; the variables that they change reach the ranks.
"""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from regatta.core.errors import Problem
from regatta.core.text import one_line
from regatta.runtimes.base import file_hash, is_below

# Scripts that define `module`, which non-interactive bash may lack: Lmod, then Environment Modules.
DEFINE_MODULE = """\
type module >/dev/null 2>&1 || for init in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash" /etc/profile.d/lmod.sh \\
    /etc/profile.d/z00_lmod.sh "${MODULESHOME:-/usr/share/modules}/init/bash" /etc/profile.d/modules.sh; do
  [ -r "$init" ] && . "$init" && type module >/dev/null 2>&1 && break
done
"""
# The files of a node: .log (output), .step (the last step started), .status (exit status), .before and .after (the
# environment, which may contain secrets: readable by the user only, and deleted at the end).
SCRIPT = """\
regatta_files=$1/${SLURMD_NODENAME:-$(uname -n)}
set --
exec >"$regatta_files.log" 2>&1
trap 'echo "$?" >"$regatta_files.status"' EXIT
(umask 077; env -0 >"$regatta_files.before")
{steps}(umask 077; env -0 >"$regatta_files.after")
"""
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Internal variables of bash and of module systems, which may differ between nodes; and those that select an image.
NOT_PASSED = re.compile(
    r"_|SHLVL|PWD|OLDPWD|(_ModuleTable|__?LMOD|LMOD_|__MODULES_|MODULES_)\w*"
    r"|(PYXIS_CONTAINER|SLURM_UENV|UENV_MOUNT|UENV_VIEW|EDF_PATH)\w*"
)
MAX_LINES = 3  # of a failed prologue's output in its message


def prologue_problems(steps: list[dict], node_folders: list[str]) -> list[Problem]:
    """Return a problem for each sourced file that cannot be read here, unless only compute nodes have it."""
    return [
        Problem(
            ("prologue", index, "source"),
            "cannot be read here. Correct the path, or add the folder to node_folders if only compute nodes have it.",
            is_missing=True,
            is_in_id=True,
        )
        for index, step in enumerate(steps)
        if "source" in step and not is_below(path := Path(step["source"]), node_folders) and not _is_readable(path)
    ]


def hashed(steps: Iterable[dict], node_folders: list[str]) -> list[dict]:
    """Return steps with the hash of each sourced file; None for one that only compute nodes have or that is missing."""
    found = []
    for step in steps:
        if "source" in step:
            path = Path(step["source"])
            is_known = _is_readable(path) and not is_below(path, node_folders)
            step = {"source": step["source"], "sha256": file_hash(path) if is_known else None}
        found.append(step)
    return found


def edited_file(stack: dict) -> str | None:
    """Return a sourced file whose content is not what was planned, or None. Raises OSError if it cannot be read."""
    steps = [step for step in stack.get("prologue", []) if step.get("sha256")]
    return next((step["source"] for step in steps if file_hash(Path(step["source"])) != step["sha256"]), None)


def _is_readable(path: Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK)


def command_of(step: dict) -> str:
    """Return a step as a command of bash."""
    return shlex.join(["source", step["source"]] if "source" in step else ["module", "load", step["module"]])


def before_by_hand(stack: dict) -> str:
    """Return the prologue as the beginning of a command line."""
    return "".join(f"{command_of(step)} && " for step in stack.get("prologue", []))


def script(steps: list[dict]) -> str:
    """Return the script that runs the steps and saves the environment before and after. Its argument is a folder."""
    lines = "".join(_script_lines(step) for step in steps)
    return SCRIPT.replace("{steps}", (DEFINE_MODULE if any("module" in step for step in steps) else "") + lines)


def _script_lines(step: dict) -> str:
    command = command_of(step)
    # Not `command || exit`, under which bash ignores a file's set -e.
    after = "case $? in 0) ;; *) exit ;; esac\nset +e\n"
    return f'echo {shlex.quote(command)} >"$regatta_files.step"\n{command}\n{after}'


def failures(folder: Path) -> dict[str, str]:
    """Return why the prologue failed, by node: the step, its exit status, and the last lines of its output."""
    found = {}
    for log in sorted(folder.glob("*.log")):
        step, status = (_text(log.with_suffix(end)) for end in (".step", ".status"))
        if status not in ("", "0") or not log.with_suffix(".after").exists():
            how = f"exit status {status}" if status else "did not finish"
            output = re.sub(r"^\S*/prologue\.sh: line \d+: ", "", _text(log), flags=re.MULTILINE)
            lines = [line for line in output.splitlines() if line.strip()][-MAX_LINES:]
            found[log.stem] = one_line(f"{step or 'before its first step'}: {how}: {' | '.join(lines)}", 500)
    return found


def forget_environments(folder: Path) -> None:
    for path in (*folder.glob("*.before"), *folder.glob("*.after")):
        path.unlink()


def changes(folder: Path) -> dict[str, str | None]:
    """Return the variables that the prologue has changed; None for one that it has removed.

    Raises ValueError with a variable that differs between nodes.
    """
    by_node = {log.stem: _changes_of(log) for log in sorted(folder.glob("*.log"))}
    (first, found), *others = by_node.items()
    for node, other in others:
        for name in sorted(found.keys() | other.keys()):
            if name not in found or name not in other or found[name] != other[name]:
                values = " and ".join(
                    f"{of.get(name, 'unchanged')!r} on {at}" for at, of in ((first, found), (node, other))
                )
                raise ValueError(f"{name} is {one_line(values, 300)}")
    return found


def _changes_of(log: Path) -> dict[str, str | None]:
    before, after = (_variables(log.with_suffix(end)) for end in (".before", ".after"))
    names = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    return {name: after.get(name) for name in names if not NOT_PASSED.fullmatch(name)}


def _variables(path: Path) -> dict[str, str]:
    """Return what `env -0` has written, without bash's functions."""
    pairs = (entry.partition("=") for entry in path.read_bytes().decode(errors="surrogateescape").split("\0"))
    return {name: value for name, mark, value in pairs if mark and NAME.fullmatch(name)}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
