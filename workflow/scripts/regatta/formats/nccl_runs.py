"""Runs of nccl-tests in one log: where each begins, how it crashed, and copies of the program that ran alone."""

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

from regatta.core.text import one_line
from regatta.formats.base import refusal
from regatta.formats.text_tables import LineMatches, starts_of_runs
from regatta.model.launches import Cause

# What the program, MPI or Slurm prints about a run that crashes, the most informative first.
DEATHS = tuple(
    map(
        re.compile,
        (
            r": Test (?:NCCL|RCCL|CUDA|HIP) failure ",
            r": Test timeout ",
            r"\bDUE TO (?:TIME LIMIT|NODE FAILURE|PREEMPTION)\b",
            r"(?i:oom[-_ ]kill|\bout of memory\b)",
            r"\b(?:Segmentation fault|Bus error|core dumped|terminate called|exited on signal|Caught signal)\b",
            r"\bSignal: \w",
            r"\bCANCELLED AT\b",
            r"(?:^|\s)[a-z]+: error: ",
            r"\bMPI_A(?:BORT|bort)\b",
            r"^(?:mpirun|mpiexec|prterun)\b.* (?:noticed|detected) |^Primary job +terminated ",
            r"\.\. \S+ pid \d+: Test failure ",
            r"^Invalid number of GPUs: ",
            r"(?:^|\s)(?:Killed|Terminated|Aborted)\b",
        ),
    )
)
STATUSES = {
    "out_of_memory": r"out of memory|oom[-_ ]kill|OOM Killed",
    "timeout": r"TIME LIMIT|Test timeout",
    "node_failure": r"NODE FAILURE",
}
NO_WORD = "the run ended without its last lines, and without an error message"
MAX_CAUSE = 300  # characters
DTYPES = "bfloat16|double|float|half|u?int(?:8|32|64)|(?:f8|fp8_)e[45]m[32]|fp8"
REDOPS = "mulsum|none|prod|sum|max|min|avg"
# A row in progress, which is printed before its times; then an error of another process may follow without a break.
BEGUN = re.compile(
    rf"\s*(?P<size>\d{{1,15}})\s+\d{{1,15}}\s+(?P<type>{DTYPES})(?:\s+(?P<redop>{REDOPS}))?(?P<root>[ \d-]{{8}})?"
    r"(?:(?:\s+[\d.]+(?:e[-+]?\d\d)?){3}\s+(?:N/A|\d(?:e[-+]\d\d)?))?"
)
STACK_TRACE = re.compile(r"_perf\S*[(\[]|NCCL INFO")


@dataclass(frozen=True)
class Crash:
    """The end of a run that has no last lines. row: what the row in progress states, by column."""

    line: int
    cause: Cause
    row: dict[str, str | None]


def numbers(found: dict[str, LineMatches], *names: str) -> list[int]:
    """Return the lines of these names, in order."""
    return sorted(number for name in names for number, _ in found[name])


def starts_of_nccl_runs(found: dict[str, LineMatches], lines: list[str]) -> list[int]:
    """Return the first line of each run, from 0.

    Lines behind a complete run belong to the next one. Those behind a crashed run are its errors, up to the line that
    names the next program.
    """
    if not found["head"]:
        return starts_of_runs(numbers(found, "columns"), numbers(found, "row", "wrong", "mean", "ended"))
    places = dict.fromkeys(("device", "columns", "row"), "table") | {"head": "head"}
    places |= dict.fromkeys(("wrong", "mean", "ended"), "end") | dict.fromkeys(("version", "started", "named"), "begin")
    starts, end, begin = [], 0, 0
    for number, place in sorted((number, place) for name, place in places.items() for number, _ in found[name]):
        if place == "head":
            starts.append((end or (begin or number) - 1) if starts else 0)
            end = begin = 0
        elif place == "end":
            end, begin = number, 0
        elif place == "table":
            begin = 0
        elif not STACK_TRACE.search(lines[number - 1]) and not cause_of([lines[number - 1]]):
            begin = begin or number
    # A program that was begun after the last table is an incomplete run.
    return starts + [number - 1 for number in numbers(found, "started") if number > found["head"][-1][0]]


def refuse_copies(found: dict[str, LineMatches], starts: list[int], name: str) -> None:
    """Raise UserError if several processes ran the program alone, and their lines are mixed."""
    ranks = Counter(int(match["rank"]) for _, match in found["device"])
    firsts = [number for number, match in found["device"] if int(match["rank"]) == 0]
    once = [firsts, *(numbers(found, kind) for kind in ("columns", "wrong", "mean"))]
    mixed = (Counter(bisect_right(starts, number - 1) for number in of_kind) for of_kind in once)
    if len(firsts) < 2 or max((num for of_run in mixed for num in of_run.values()), default=0) < 2:
        return
    each = "1 GPU" if len(ranks) == 1 else f"{len(ranks)} GPUs"
    program = f" of {found['started'][0][1][1]}" if found["started"] else ""
    copies = f"{len(firsts)} copies{program} ran alone, each with {each}, and their lines are mixed"
    want = f"a run of {sum(ranks.values())} ranks: build nccl-tests with MPI=1, and start it with mpirun or srun --mpi"
    raise refusal(name, firsts[1], copies, want)


def cause_of(lines: list[str]) -> tuple[int, str] | None:
    """Return line (from 0) and text of the most informative message about a crash."""
    found = ((n, line) for death in DEATHS for n, line in enumerate(lines) if death.search(line))
    return next(((n, line.strip()) for n, line in found if "NCCL INFO" not in line), None)


def crash_of(lines: list[str], after: int, is_last: bool) -> Crash | None:
    """Return the end of a run without its last lines. after: its last complete line of header or table.

    is_last: the file ends with it, so that it may be truncated: without a message, that is no crash.
    """
    rest = [*lines[after:]]
    begun = next(((n, match) for n, line in enumerate(rest) if (match := BEGUN.match(line))), None)
    row = begun[1].groupdict() if begun else {}
    if begun:  # a message may follow it without a break
        rest[begun[0]] = rest[begun[0]][begun[1].end() :]
    found = cause_of(rest)
    if found is None and is_last:
        return None
    index, text = found or (begun[0] if begun else 0, NO_WORD)
    status = next((name for name, form in STATUSES.items() if re.search(form, text, re.IGNORECASE)), "failed")
    return Crash(after + 1 + index, Cause(status, None, one_line(text, MAX_CAUSE)), row)


def processes_note(num_ranks: int) -> list[str]:
    """Return a note on a run of one GPU, in which nothing is communicated."""
    if num_ranks > 1:
        return []
    text = "one GPU, so nothing is communicated. If there should be more, build nccl-tests with MPI=1, and start it"
    return [f"{text} with mpirun or srun --mpi"]
