"""Locks, results folders, and the files that a script depends on."""

import errno
import fcntl
import functools
import hashlib
import os
import re
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import psutil

from regatta.core.errors import UserError

ROOT = Path(__file__).resolve().parents[4]
SCRIPTS = Path(__file__).resolve().parents[2]
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
CLOCK_SECONDS = 60  # by which the clocks of a host and of a file server may differ
EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB


def address(*parts: str) -> str:
    """Return a relative address of a file; its name may be anything, also no UTF-8."""
    return "/".join(quote(os.fsencode(part)) for part in parts)


# The kernel frees these locks when their holder dies, so that a kill -9 never leaves one behind.


class Taken(UserError):
    """Another process holds the lock."""


def hold_number(path: Path, number: int, taken: str) -> TextIO:
    """Lock one number in a file, such as a job's id, as `hold` locks a whole file."""
    return _locked(path, lambda file: fcntl.lockf(file, EXCLUSIVE, 1, number), taken)


def hold(path: Path, taken: str) -> TextIO:
    """Lock a file and return it; the lock lasts until the file is closed or the process ends.

    taken: the message of the Taken that is raised if another process holds the lock; its process id is added.
    """
    file = _locked(path, lambda file: fcntl.flock(file, EXCLUSIVE), taken)
    try:
        file.truncate(0)
        os.write(file.fileno(), f"{os.getpid()} on {socket.gethostname()}".encode())
    except OSError as error:  # a full disk: the system names no file
        file.close()
        error.filename = str(path)
        raise
    return file


# A name in Linux's abstract namespace of sockets: no file that one user could not open, or a clean-up could remove.
MACHINE = "\0regatta-measures"  # bench/run_batches.py has the same


def hold_machine() -> socket.socket:
    """Lock this machine for all users, and return what holds the lock until it is closed or the process ends.

    Raises Taken. With the variable REGATTA_MACHINE_LOCK, only those with the same value wait for each other (tests).
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(_machine_name())
        held.listen(1)
    except OSError as error:
        held.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise Taken("") from None
    return held


def holder_of_machine() -> tuple[int, int] | None:
    """Return the process and the user that hold this machine, or None if unknown."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            asking.connect(_machine_name())
            found = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", found)
        return pid, user
    except OSError:
        return None


def _machine_name() -> str:
    return (MACHINE + os.environ.get("REGATTA_MACHINE_LOCK", ""))[:100]


def is_held(path: Path) -> bool | None:
    """Return whether the process that last locked a file with `hold` still runs; None if it is on another host.

    The lock itself is not touched: trying to take it could make a process that starts now fail.
    """
    try:
        pid, host = re.fullmatch(r"(\d+) on (.*)", path.read_text(encoding="utf-8", errors="replace")).groups()
        if host != socket.gethostname():
            return None
        # A process that started after the lock was taken has only inherited the number.
        return psutil.Process(int(pid)).create_time() < path.stat().st_mtime + CLOCK_SECONDS
    except psutil.AccessDenied:
        return True
    except (OSError, AttributeError, OverflowError, psutil.Error):
        return False


def _locked(path: Path, lock: Callable[[TextIO], None], taken: str) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        lock(file)
    except OSError as error:
        with file:
            if error.errno in WITHOUT_LOCKS:
                remedy = "Enable them in its mount options (Lustre: flock)."
                raise UserError(f"{path}: the file system has no locks ({error.strerror}). {remedy}") from None
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            file.seek(0)
            holder = file.read().strip()
        raise Taken(f"{taken} (process {holder})" if holder else taken) from None
    return file


# Files that only Regatta writes, of a planned, measured or imported campaign.
OF_RESULTS = ("campaign.[0-9a-f]*.json", "launches/*.jsonl", "batches/*/batch.json", "nodes.jsonl")


def is_results_folder(folder: Path) -> bool:
    """Return whether a folder contains results of a campaign, or its plan."""
    has_plan = all((folder / name).is_file() for name in ("plan.json", "plan.txt"))
    return has_plan or any(next(folder.glob(pattern), None) for pattern in OF_RESULTS)


def check_cache_folder() -> None:
    """Raise UserError if Snakemake's cache cannot be written: Snakemake itself would end with a traceback."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "snakemake"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = None if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    except OSError as error:
        problem = error.strerror
    if problem:
        remedy = "Set XDG_CACHE_HOME to a folder that you can write: export XDG_CACHE_HOME=/path/to/cache"
        raise UserError(f"{folder}: cannot be written ({problem}), but Snakemake needs a cache. {remedy}")


def check_folders(parent: Path, names: Collection[str]) -> None:
    """Raise UserError if one of these exists but is not a folder: Snakemake would end with a traceback."""
    for path in (parent / name for name in names):
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: is not a folder. Rename or move it and run the same command again.")


def check_listed(package: str, kind: str, listed: Collection[object], where: str) -> None:
    """Raise ValueError if a module of regatta.`package` defines a `kind` that is missing in the list `where`."""
    for path in sorted((SCRIPTS / "regatta" / package).rglob("*.py")):
        module = sys.modules.get(".".join(path.relative_to(SCRIPTS).with_suffix("").parts))
        made = rf"^(\w+) = (?:{kind}|\w+_{kind.lower()})\("  # by the class, or by a function such as table_format
        for name in re.findall(made, path.read_text(encoding="utf-8"), re.MULTILINE):
            if not any(getattr(module, name, None) is item for item in listed):
                raise ValueError(f"{path.relative_to(ROOT)}: {name} is not listed in {where}")


def sources(script: str) -> list[str]:
    """Return a script of workflow/scripts, every module of regatta that it imports, directly or not, and all schemas.

    An edit of any of them rebuilds the script's outputs: Snakemake itself tracks only the script. Columns and labels
    derive from the schemas. As inputs, Snakemake would list all of them with each error of the rule, so `digest` is a
    param.
    """
    found = set((SCRIPTS.parent / "schemas").rglob("*.yaml"))
    todo = [SCRIPTS / script]
    while todo:
        path = todo.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        todo += _imported_files(path)
    return sorted(map(str, found))


def digest(paths: Iterable[str]) -> str:
    """Return the SHA-256 of the contents of files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return found.hexdigest()


# Twelve times as fast as ast; Snakemake reads the rules at every start.
_IMPORT = re.compile(r"^\s*from (regatta[.\w]*) import (\([\w,\s]*\)|[\w, ]*)", re.MULTILINE)


@functools.cache
def _imported_files(path: Path) -> list[Path]:
    """Return where the modules that a file imports from regatta may be. Some paths do not exist."""
    found = []
    for package, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        folder = SCRIPTS.joinpath(*package.split("."))
        found += [folder / "__init__.py", folder.with_suffix(".py")]
        found += [folder / f"{name}.py" for name in re.findall(r"\w+", names)]
    return found
