"""Ranks of other launches on this host, which disturb a measurement. Standard library only."""

import os
from pathlib import Path

NOT_RANKS = ("start_ranks.py",)  # every other file at the top of bench/ is a program that ranks run


def count_other_ranks(proc: Path = Path("/proc")) -> int | None:
    """Return how many ranks of other launches run on this host, or None where `proc` does not show them.

    Ranks of one launch have the same command line; where more than LOCAL_WORLD_SIZE have it, the others are of another
    launch. What runs in another process namespace, or is hidden from this user (mount option hidepid), is not seen.
    """
    try:
        own = launch_of((proc / "self" / "cmdline").read_bytes())
        folders = [path for path in proc.iterdir() if path.name.isdigit()]
    except OSError:
        return None
    found = [launch_of(command_line(folder)) for folder in folders]
    num_like_own = sum(launch is not None and launch == own for launch in found)
    num_own = int(os.environ.get("LOCAL_WORLD_SIZE", num_like_own))
    return sum(launch is not None and launch != own for launch in found) + max(0, num_like_own - num_own)


def command_line(folder: Path) -> bytes:
    """Return the command line of a process of /proc, empty if it has ended."""
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


def launch_of(command_line: bytes) -> tuple[bytes, ...] | None:
    """Return the program of a rank and its arguments, None for any other process: srun, a runtime, start_ranks.py."""
    words = command_line.split(b"\0")[1:]  # the first is the interpreter
    while words and words[0].startswith(b"-"):
        words = words[1:]
    folder, _, name = (words[0] if words else b"").rpartition(b"/")
    is_program = name.endswith(b".py") and name.decode(errors="replace") not in NOT_RANKS
    is_rank = is_program and folder.rpartition(b"/")[2] == b"bench"
    return tuple(words) if is_rank else None
