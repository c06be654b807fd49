"""Find why a launch ended: from the error files of its ranks and its log, of which the report shows an excerpt."""

import re
import signal
from pathlib import Path

from regatta.core.matching import LABEL, LABELLED
from regatta.core.text import one_line
from regatta.launchers import LAUNCHERS
from regatta.launchers.base import Launcher, LogReading, TaskEnd
from regatta.model.launches import Cause
from regatta.store.launch_files import read_json

LOG_TAIL_BYTES = 65_536
EXIT_STORE_UNWRITABLE = 74  # sysexits.h EX_IOERR; bench/ exits with it if a line of the store cannot be written
MAX_CAUSE = 300  # characters
PYTORCH_LOG = r"[WE]\d{4} "
RANK = re.compile(r"\[rank\d+\]: ?")  # with which torch begins each line of an exception
ABSENT = "program not found: "
RANK_HOST = re.compile(r"\b(rank \d+) on (?:host )?[^\s:,;()]+")
ABSENT_LINE = re.compile(rf"^(?:\d+: )?regatta: ({ABSENT}.*)$", re.MULTILINE)  # printed by bench/program.sh
OUTSIDE_LINE = re.compile(r"^(?:\d+: )?regatta: (not in the image: .*)$", re.MULTILINE)  # printed by bench/program.sh


def read_rank_errors(error_dir: Path) -> list[dict]:
    """Return the error files of the ranks, earliest first. Truncated files are skipped: their log line remains."""
    errors = map(read_json, sorted(error_dir.glob("rank-*.json")))
    return sorted(filter(None, errors), key=lambda error: error["time_ns"])


def read_log_tail(log: Path) -> str:
    """Return the last 64 KiB of a launch's log, or an empty text if there is none.

    Labels of ranks are replaced by the prefix that torch uses.
    """
    try:
        with log.open("rb") as file:
            is_labelled = file.readline(200).startswith(LABELLED)
            file.seek(max(0, file.seek(0, 2) - LOG_TAIL_BYTES))
            text = file.read()
    except FileNotFoundError:
        return ""
    lines = map(_with_prefix, text.split(b"\n")) if is_labelled else [text]
    return b"\n".join(line for line in lines if not line.startswith(LABELLED)).decode(errors="replace")


def _with_prefix(line: bytes) -> bytes:
    """Return a labelled line as torch prints it: [rank3]: text. Lines of the launcher and of program.sh have none."""
    if not (found := LABEL.match(line)):
        return line
    text = line[found.end() :]
    return text if text.startswith((b"[rank", b"slurmstepd", b"regatta: ")) else b"[rank%s]: %s" % (found[1], text)


def find_cause(launcher: Launcher, errors: list[dict], log: str, exit_code: int, num_oom_kills: int) -> Cause:
    """Return why a launch ended unexpectedly.

    errors: those of its ranks, earliest first. num_oom_kills: processes that the kernel killed meanwhile. The end of
    one rank makes the others fail with connection errors. So a rank killed by a signal counts first, then the earliest
    error.
    """
    reading = launcher.ranks.read_log(log)
    if reading.node_problem:
        return Cause("node_failure", None, one_line(reading.node_problem, MAX_CAUSE), reading.hosts)
    if absent := ABSENT_LINE.search(log):
        return Cause("failed", "launch", one_line(absent[1], MAX_CAUSE))
    if outside := OUTSIDE_LINE.search(log):
        return Cause("failed", "image", one_line(outside[1], MAX_CAUSE), reading.hosts)
    killed = {rank: -code for rank, code in reading.rank_codes.items() if code < 0 and -code != signal.SIGTERM}
    # When a rank raises, NCCL's watchdogs abort the others: with an error file their SIGABRT is a consequence.
    is_consequence = bool(errors) and set(killed.values()) == {signal.SIGABRT}
    if killed and not is_consequence:
        rank, number = next(iter(killed.items()))
        if number == signal.SIGKILL and num_oom_kills:
            return Cause("out_of_memory", None, f"rank {rank} was killed by the kernel: out of memory")
        return Cause("failed", None, f"rank {rank} was killed by {signal_name(number)}")
    end = reading.first_end
    is_killed = end is not None and (end.exit_code or 0) < 0 and end.exit_code not in (-signal.SIGTERM, -signal.SIGABRT)
    if not errors and reading.left:
        return Cause("failed", None, reading.left)
    if reading.image and not errors and not is_killed:
        where = f"{end.host}: " if end else ""
        return Cause("failed", "image", one_line(f"{where}{reading.image}", MAX_CAUSE), reading.hosts)
    last = last_line(log, launcher, reading)
    if end and (is_killed or not errors):
        return _cause_of_task(end, reading, last, num_oom_kills)
    if errors:
        first = errors[0]
        cause = one_line(f"rank {first['rank']} on {first['host']}: {first['cause']}", MAX_CAUSE)
        outside = frozenset(error["host"] for error in errors if error["phase"] == "image")
        return Cause(first["status"], first["phase"], cause, outside)
    how = f"was killed by {signal_name(-exit_code)}" if exit_code < 0 else f"exited with code {exit_code}"
    return Cause("failed", "launch", one_line(f"the launch {how}; last line of the log: {last}", MAX_CAUSE))


# Errors of ranks that cannot reach each other: of torch's store, gloo and NCCL.
NETWORK = re.compile(
    r"DistNetworkError|connectFullMesh|[Tt]imed out (?:waiting|connecting)|while trying to connect|Connection refused|"
    r"Connection timed out|No route to host|Network is unreachable|ncclRemoteError|ncclSystemError|network error"
)
CONNECTING = "in begin_group"  # in the stack of a rank that waits for its peers


def blame_network(cause: Cause, log: str, hosts: list[str]) -> Cause:
    """Return the cause of a launch without results: a node failure if its nodes cannot reach each other.

    hosts: the nodes of the launch. A node failure is not a result of the cell; the batch continues on other nodes.
    """
    is_waiting = cause.status == "timeout" and CONNECTING in log
    is_refused = cause.status == "failed" and cause.phase in ("init", "launch") and NETWORK.search(cause.text)
    if len(hosts) < 2 or not (is_waiting or is_refused):
        return cause
    text = one_line(f"{', '.join(hosts)} cannot reach each other: {cause.text}", MAX_CAUSE)
    return Cause("node_failure", cause.phase, text, frozenset(hosts))


def _cause_of_task(end: TaskEnd, reading: LogReading, last: str, num_oom_kills: int) -> Cause:
    """Return why a launch died, from the first rank that failed by the launcher's log, and the nodes that it names."""
    where, code = f"rank {end.rank} on {end.host}", end.exit_code
    if end.text.startswith("Out Of Memory") or (code == -signal.SIGKILL and num_oom_kills):
        return Cause("out_of_memory", None, f"{where} was killed by the kernel: out of memory", reading.hosts)
    if code is not None and code < 0:
        return Cause("failed", None, f"{where} was killed by {signal_name(-code)}", reading.hosts)
    return Cause(
        "failed", "launch", one_line(f"{where}: {end.text}; last line of the log: {last}", MAX_CAUSE), reading.hosts
    )


def store_write_error(launcher: Launcher, log: str) -> str | None:
    """Return what rank 0 printed when it could not write the store, or None if that is not why the launch ended."""
    if EXIT_STORE_UNWRITABLE not in launcher.ranks.read_log(log).exit_codes:
        return None
    found = re.search(r"^regatta: (cannot write .*)$", log, re.MULTILINE)
    return found[1] if found else "rank 0 cannot write the launch file."


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_line(log: str, launcher: Launcher, reading: LogReading) -> str:
    """Return the last meaningful line of the ranks: an error of a rank that failed, if there is one."""
    foreign = re.compile(f"(?:{RANK.pattern})?(?:{PYTORCH_LOG}|{launcher.ranks.log_lines})")
    lines = [line.strip() for line in log.splitlines() if re.search(r"\w", line) and not foreign.match(line)]
    errors = [line for line in lines if re.match(r"(\[rank\d+\]: )?(\w+\.)*\w*(Error|Exception|Interrupt)\b", line)]
    failed = {rank for rank, code in reading.rank_codes.items() if code > 0}
    failed |= {reading.first_end.rank} if reading.first_end else set()
    words = tuple(f"[rank{rank}]:" for rank in failed)
    of_errors, of_lines = ([line for line in found if line.startswith(words)] for found in (errors, lines))
    return (of_errors or errors or of_lines or lines or ["(empty)"])[-1]


def kernel_oom_kills() -> int:
    """Return how many processes the kernel has killed for memory since boot, 0 if unknown."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


# The lines of a log that explain a failure: a rank's traceback, not what its launcher prints after it.

MAX_LINES, MAX_CHARACTERS = 30, 200
BEGIN = "Traceback (most recent call last):"
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
SUMMARY = "ChildFailedError"  # with which torchrun ends, after its ranks


def log_excerpt(log: str, cause: str) -> list[str]:
    """Return the traceback that ends with the error of the cause, else the last one, else the last lines of the ranks.

    Lines of the launcher are returned only if there are no others.
    """
    lines = log.splitlines()
    if any(SUMMARY in line for line in lines):
        lines = _without_summary(lines)
    found = tracebacks(lines)
    of_cause = [block for block in found if error_of(block) and error_of(block) in cause]
    of_launcher = re.compile("|".join((PYTORCH_LOG, *(launcher.ranks.log_lines for launcher in LAUNCHERS.values()))))
    of_ranks = [line for line in lines if line.strip() and not of_launcher.match(line)]
    chosen = of_cause[0] if of_cause else found[-1] if found else of_ranks or [line for line in lines if line.strip()]
    return [_clean(line) for line in chosen[-MAX_LINES:]]


def tracebacks(lines: list[str]) -> list[list[str]]:
    """Return the tracebacks of Python in a log, each to its error. Chained ones count as one.

    Ranks write at the same time: their lines are separated by the prefix that torch gives them.
    """
    found: list[list[str]] = []
    unfinished: dict[str, list[str]] = {}  # by prefix
    finished: dict[str, list[str]] = {}  # may be continued by a chained one
    for line in lines:
        prefix = match[0].strip() if (match := RANK.match(line)) else ""
        body = RANK.sub("", line, count=1) if prefix else line
        if body.startswith(BEGIN):
            block = finished.get(prefix)
            if block is None or not block[-1].removeprefix(prefix).lstrip().startswith(CHAINED):
                block = []
                found.append(block)
            block.append(line)
            unfinished[prefix] = block
        elif prefix in unfinished and body.strip():
            unfinished[prefix].append(line)
            if not body[0].isspace():
                finished[prefix] = unfinished.pop(prefix)
        elif prefix in finished and body.startswith(CHAINED):
            finished[prefix].append(line)
    return found


def error_of(block: list[str]) -> str:
    """Return the error that ends a traceback, in the form used by causes: `RuntimeError: ...`, without its module."""
    return re.sub(r"^(\w+\.)+", "", one_line(RANK.sub("", block[-1], count=1)))[:MAX_CHARACTERS]


def without_host(cause: str) -> str:
    """Return a cause without the host of the rank that reports it, which says nothing about the host."""
    return re.sub(r"\b(\w+: error: )[^\s:,;()]+: (?=task)", r"\1", RANK_HOST.sub(r"\1", cause))


def _without_summary(lines: list[str]) -> list[str]:
    """Return the lines before torchrun's traceback, which ends with its summary."""
    end = next(number for number, line in enumerate(lines) if SUMMARY in line)
    begins = [number for number, line in enumerate(lines[:end]) if line.startswith(BEGIN)]
    return lines[: begins[-1] if begins else end]


def _clean(line: str) -> str:
    """Return a line with its prefix and indentation, without control characters."""
    prefix = match[0].strip() + " " if (match := RANK.match(line)) else ""
    body = RANK.sub("", line, count=1).expandtabs(4)
    indentation = min(len(body) - len(body.lstrip(" ")), MAX_CHARACTERS // 2)
    return prefix + " " * indentation + one_line(body, MAX_CHARACTERS)
