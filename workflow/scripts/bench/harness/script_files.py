"""The files of a user's script: whether they are those that were planned, and which modules it loaded besides them.

Standard library only.
"""

import contextlib
import hashlib
import sys
import sysconfig
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
MAX_MODULES = 1000  # in a record


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check(files: dict[str, str]) -> None:
    """Raise ValueError if a file is not the one that was planned. files: SHA-256 by absolute path."""
    for name, digest in files.items():
        if file_hash(Path(name)) != digest:
            raise ValueError(f"{name} was edited after the cells were planned. Run the same command again.")


def loaded(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Return the SHA-256 by path of the modules that were loaded from source files, without installed packages, the
    standard library and `files`. Called in the folder of the script."""
    installed = {Path(path) for name, path in sysconfig.get_paths().items() if name.endswith("lib")}
    installed |= {Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    found = {}
    for module in list(sys.modules.values()):
        with contextlib.suppress(OSError, TypeError, ValueError):
            if module is sys.modules["__main__"] or not getattr(module, "__file__", None):
                continue
            path = folder / module.__file__
            is_known = str(path) in files or any(path.is_relative_to(parent) for parent in (BENCH, *installed))
            if path.suffix == ".py" and not is_known:
                found[str(path)] = file_hash(path)
    return dict(sorted(found.items())[:MAX_MODULES])
