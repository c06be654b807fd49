"""Locks that the kernel frees when their holder dies, so that a kill -9 never leaves one behind."""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TextIO

from regatta.core.errors import UserError

WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class Taken(UserError):
    """Another process holds the lock."""


def hold_number(path: Path, number: int, taken: str) -> TextIO:
    """Lock a number, of the many that one file has a lock for, as `hold` does a file: jobs by their id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except OSError as error:
        file.close()
        if error.errno in WITHOUT_LOCKS:
            raise _without_locks(path, error) from None
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise Taken(taken) from None
    return file


def hold(path: Path, taken: str) -> TextIO:
    """Lock a file and return it; the lock lasts until the file is closed or the process ends.

    taken: the message of the Taken that is raised if another process holds the lock; its process id is added.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            file.close()
            raise _without_locks(path, error) from None
        if not isinstance(error, BlockingIOError):
            raise
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise Taken(f"{taken} (process {holder})" if holder else taken) from None
    try:
        file.truncate(0)
        os.write(file.fileno(), f"{os.getpid()} on {socket.gethostname()}".encode())
    except OSError as error:  # of a full disk the system names no file
        file.close()
        error.filename = str(path)
        raise
    return file


def _without_locks(path: Path, error: OSError) -> UserError:
    return UserError(
        f"{path}: this file system has no locks ({error.strerror}). Mount it with them (Lustre: -o flock)."
    )


# Which commit of Regatta is running.

ROOT = Path(__file__).resolve().parents[4]


def git_state() -> dict:
    """Return `{"commit": hash, "is_dirty": bool}`, both None outside a git checkout.

    Dirty: a tracked file that makes the numbers has been edited.
    """
    commit = _git("rev-parse", "HEAD")
    # Campaign and cluster are kept with the results, so an edit of those is no unknown.
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "workflow", "Snakefile", "requirements")
    return {"commit": commit or None, "is_dirty": None if changes is None else bool(changes)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


# Which files a script is made of, so that an edit of one rebuilds what the script makes (Snakemake sees only the script).

SCRIPTS = Path(__file__).resolve().parents[2]


def check_listed(package: str, kind: str, listed: Collection[object], where: str) -> None:
    """Raise ValueError for a module of regatta.`package` that defines a `kind` which the list `where` does not have."""
    for path in sorted((SCRIPTS / "regatta" / package).rglob("*.py")):
        module = sys.modules.get(".".join(path.relative_to(SCRIPTS).with_suffix("").parts))
        for name in re.findall(rf"^(\w+) = {kind}\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            if not any(getattr(module, name, None) is item for item in listed):
                raise ValueError(f"{path.relative_to(ROOT)}: {name} is not listed in {where}")


def sources(script: str) -> list[str]:
    """Return a script of workflow/scripts and every module of regatta that it imports, directly or not."""
    found: set[Path] = set()
    todo = [SCRIPTS / script]
    while todo:
        path = todo.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        text = path.read_text(encoding="utf-8")
        for package, names in re.findall(r"^\s*from (regatta[.\w]*) import (\([\w,\s]*\)|[\w, ]*)", text, re.MULTILINE):
            folder = SCRIPTS.joinpath(*package.split("."))
            modules = re.findall(r"(\w+)(?: as \w+)?", names)
            todo += [
                folder.with_suffix(".py"),
                folder / "__init__.py",
                *(folder / f"{module}.py" for module in modules),
            ]
    return sorted(map(str, found))
