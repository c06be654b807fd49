"""Describe what a time of nccl-tests means: the settings that can change it. Runs with different ones are not pooled.

Texts print some settings in the header; of the others, the command line is read where a log or JSON has it.
"""

import re
from collections.abc import Iterable

from regatta.core.text import plural

AVERAGED = ", averaged over ranks (nccl-tests default); "
PIPELINED = f"mean of back-to-back calls{AVERAGED}not a single blocking call; no range"
BLOCKING = f"mean of blocking calls{AVERAGED}no range"
EVENTS = "single calls timed by device events, slowest process; issued back to back, not blocking"
WAITS = {2: "; without barrier (-z 2)", 3: "; time excludes the barrier (-z 3)"}
# Options that no header prints, their long names, and the value that each has by default.
OPTIONS = {
    "a": ("average", 1),
    "y": ("stream_null", 0),
    "R": ("local_register", 0),
    "x": ("cta_policy", None),
    "D": ("device_implementation", 0),
    "V": ("device_cta_count", None),
    "u": ("unalign", 0),
}
BLOCKS = {"z": ("blocking", 0)}


def option_values(words: Iterable[str], options: dict[str, tuple]) -> dict[str, int]:
    """Return the values of options in a command line that differ from their defaults."""
    text, found = f" {' '.join(words)} ", {}
    for letter, (name, default) in options.items():
        values = re.findall(rf" (?:-{letter} *|--{name}[ =] *)(\d{{1,9}})(?= )", text)
        if values and int(values[-1]) != default:
            found[letter] = int(values[-1])
    return found


def statistic_of(
    blocking: int,
    counts: dict[str, int],
    processes: tuple[int, int] = (1, 1),
    words: Iterable[str] = (),
    statistic: str | None = None,
) -> str:
    """Return the description of the times of a run.

    blocking: value of -z. counts: `graph` (launches of a CUDA graph, 0 without), `aggregated` (calls in a group),
    `iterations` and `warmup`, as far as they are known. processes: threads and GPUs of each. words: command line.
    statistic: if it is not the usual mean.
    """
    text = statistic or ((BLOCKING if blocking else PIPELINED) + WAITS.get(blocking, ""))
    text += "; calls replayed in CUDA graphs" * (counts.get("graph", 0) > 0)
    if (num := counts.get("aggregated", 1)) > 1:
        text += f"; each {num} calls in one group"
    text += "; a single call" * (counts.get("iterations") == 1) + "; no warm-up" * (counts.get("warmup") == 0)
    if processes != (1, 1):
        text += f"; {plural(processes[0], 'thread')} x {plural(processes[1], 'GPU')} per process"
    others = "".join(f" -{letter} {value}" for letter, value in option_values(words, OPTIONS).items())
    return text + (f"; options{others}" if others else "")
