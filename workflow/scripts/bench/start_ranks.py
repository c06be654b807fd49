"""Start the ranks of a launch on this machine, one process each, and end them together.

  python3 workflow/scripts/bench/start_ranks.py --nproc-per-node=2 workflow/scripts/bench/run_launch.py --request FILE

It replaces torchrun, whose agent imports torch before the ranks do (about 2 s per launch) and whose rendezvous listens
on all interfaces and unpickles what it receives. Here the ranks' store listens on loopback only. Ranks of a program
that is not Regatta's (--no-python) get a free port, on which they listen themselves.

When a rank fails, or this program gets a signal to end, the ranks get SIGTERM, then SIGKILL. If this program is killed,
the kernel kills them. Exit codes: 0 if all ranks exited with 0, else that of the first that did not, with 128 + n for
signal n. Standard library only.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys

from harness import process
from harness.rank_output import RankOutput

LOOPBACK = "127.0.0.1"
# Without these, gloo and NCCL listen on the interface of the host's name, or on the first available.
SOCKET_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
EXIT_UNWRITABLE = 74  # sysexits.h EX_IOERR
GRACE_SECONDS = 3  # between SIGTERM and SIGKILL; the supervisor waits 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc-per-node", type=int, required=True, help="number of ranks")
    parser.add_argument("--no-python", action="store_true", help="the program is no Python file")
    parser.add_argument("--label", action="store_true", help="begin each line of a rank with its number")
    parser.add_argument("program", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    options = parser.parse_args()
    if options.nproc_per_node < 1:
        parser.error(f"--nproc-per-node = {options.nproc_per_node}: must be at least 1")
    line = [*([] if options.no_python else [sys.executable]), options.program, *options.arguments]
    address, port = os.environ.get("MASTER_ADDR") or LOOPBACK, os.environ.get("MASTER_PORT")
    running: dict[int, int] = {}  # process id -> rank
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # meant for the ranks, which print their stacks
    signal.signal(signal.SIGALRM, lambda number, frame: send(running, signal.SIGKILL))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, frame: stop(running))
    output = RankOutput(options.nproc_per_node) if options.label else None
    if options.no_python:
        place = address, int(port or process.free_port())
        ranks = start(running, options.nproc_per_node, line, place, output)
    else:  # rank 0 inherits the store's socket, which keeps its port
        with listen(address, int(port or 0), options.nproc_per_node + 16) as listener:
            place = address, listener.getsockname()[1]
            ranks = start(running, options.nproc_per_node, line, place, output, listener.fileno())
    code = wait(running, output)
    del ranks
    sys.exit(code)


def listen(address: str, port: int, backlog: int) -> socket.socket:
    try:
        return socket.create_server((address, port), backlog=backlog)
    except OSError as error:
        sys.exit(f"start_ranks: cannot listen on MASTER_ADDR {address}, MASTER_PORT {port}: {error.strerror}")


def start(
    running: dict[int, int],
    num_ranks: int,
    line: list[str],
    place: tuple[str, int],
    output: RankOutput | None,
    listener: int | None = None,
) -> list[subprocess.Popen]:
    """Start all ranks, and add them to `running`. place: where they meet. listener: file descriptor for rank 0.

    Each rank has a separate session, as under torchrun: Linux divides cores between sessions (sched_autogroup), and
    with both ranks in one session an all-reduce of 1 MiB on two cores takes 1.5 times as long.

    Keep the returned objects until all ranks have ended: subprocess reaps those that are garbage-collected.
    """
    ranks = []
    launcher = os.getpid()

    def end_with_launcher() -> None:  # runs between fork and exec; this program has one thread, so that is safe
        process.die_with_parent()
        if os.getppid() != launcher:
            os._exit(1)

    for rank in range(num_ranks):
        environment = rank_environment(rank, num_ranks, *place)
        inherited = (listener,) if rank == 0 and listener is not None else ()
        if inherited:
            environment["STORE_LISTEN_FD"] = str(listener)
        options = {"pass_fds": inherited, "start_new_session": True, "preexec_fn": end_with_launcher}
        with output.pipe(rank) if output else contextlib.nullcontext() as pipe:
            options |= {"stdout": pipe, "stderr": pipe} if output else {}
            ranks.append(subprocess.Popen(line, env=environment, **options))
        running[ranks[-1].pid] = rank
    return ranks


def rank_environment(rank: int, num_ranks: int, address: str, port: int) -> dict[str, str]:
    """Return the environment of one rank, with the variables of torchrun."""
    numbers = {"RANK": rank, "WORLD_SIZE": num_ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": num_ranks}
    numbers["MASTER_PORT"] = port
    environment = {**os.environ, **{name: str(value) for name, value in numbers.items()}, "MASTER_ADDR": address}
    for name in SOCKET_INTERFACES:
        environment.setdefault(name, "lo")
    if num_ranks > 1:  # torchrun does the same; ranks set their number of threads later
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def wait(running: dict[int, int], output: RankOutput | None) -> int:
    """Wait for all ranks, report each that failed, and return the exit code of the launch."""
    first_failure = 0
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG if output else 0)
        if not pid:
            output.copy()
            continue
        code = os.waitstatus_to_exitcode(status)
        rank = running.pop(pid, None)
        if rank is not None:
            with contextlib.suppress(ProcessLookupError):  # what the rank has started, such as workers that read data
                os.killpg(pid, signal.SIGKILL)
            if output:
                output.finish(rank)
        if rank is None or code == 0:
            continue
        print(f"start_ranks: rank {rank} exited with code {code}", file=sys.stderr, flush=True)
        if not first_failure:
            first_failure = code
            stop(running)
    if output and output.error:
        with contextlib.suppress(OSError):
            print(f"start_ranks: cannot write the output: {output.error.strerror}", file=sys.stderr, flush=True)
        first_failure = first_failure or EXIT_UNWRITABLE
    return first_failure if first_failure >= 0 else 128 - first_failure


def stop(running: dict[int, int]) -> None:
    """End the ranks with SIGTERM (SIGINT would print a traceback per rank), and kill them GRACE_SECONDS later."""
    send(running, signal.SIGTERM)
    signal.alarm(GRACE_SECONDS)


def send(running: dict[int, int], number: int) -> None:
    for pid in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    main()
