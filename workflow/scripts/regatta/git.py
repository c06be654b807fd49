"""Which commit of Regatta is running."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def git_state() -> dict:
    """Return `{"commit": hash, "is_dirty": bool}`, both None outside a git checkout."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain")
    return {"commit": commit or None, "is_dirty": None if changes is None else bool(changes)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
