"""Which commit of Regatta is running."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


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
