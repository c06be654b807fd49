"""Run Snakemake and Regatta's scripts in forks of one process that has imported their libraries.

Importing them takes 2 s for Snakemake and 1 s for a script with pandas, longer than most tests run. A fork has a
separate working directory, environment, files and exit status, as a new Python has. Tests of interpreter start and of
signals start a new Python.
"""

import contextlib
import ctypes
import json
import multiprocessing
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver, reduction
from pathlib import Path
from typing import IO

SCRIPTS = Path(__file__).resolve().parents[1] / "workflow" / "scripts"

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["warm_imports"])


def _process(**options):
    """Return a process that will be a fork of the server, which is started with the first."""
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SCRIPTS), str(Path(__file__).parent)])  # only of the server
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH") if path is None else os.environ.update(PYTHONPATH=path)
    return _server.Process(**options)


class _Descriptor:
    """A file descriptor of this process that pickles as its duplicate in the fork."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple:
        return _detach, (reduction.DupFd(self.number),)


def _detach(duplicate) -> int:
    return duplicate.detach()


def _run(words: list[str], cwd: str, environment: dict[bytes, bytes], files: tuple[int, int], prepare) -> None:
    os.chdir(cwd)
    os.environb.clear()
    os.environb.update(environment)
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    if prepare:
        prepare()
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], cwd
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(words[0])
        runpy.run_path(words[0], run_name="__main__")


class Running:
    """A started command, with the part of subprocess.Popen's interface that the tests use."""

    def __init__(self, command: list, cwd, env: dict, stdout: int, stderr: int, prepare: Callable | None) -> None:
        assert command[0] == sys.executable
        words = [os.fspath(word) for word in command[1:]]
        environment = {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
        files = (_Descriptor(stdout), _Descriptor(stderr))
        arguments = (words, os.fspath(cwd or Path.cwd()), environment, files, prepare)
        self.args = command
        self.process = _process(target=_run, args=arguments)
        self.process.start()
        self.pid = self.process.pid

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        self.process.terminate()


def start(command: list, output: Path, cwd=None, env: dict | None = None, prepare: Callable | None = None) -> Running:
    """Start a command as subprocess.Popen does, with its output and errors in one file."""
    with output.open("wb") as file:
        environment = dict(os.environ) if env is None else env
        return Running(command, cwd, environment, file.fileno(), file.fileno(), prepare)


def run(
    command: list,
    cwd: str | os.PathLike | None = None,
    env: dict | None = None,
    stdout: IO | None = None,
    timeout: float = 240,
    check: bool = False,
    text: bool = True,
    prepare: Callable | None = None,
) -> subprocess.CompletedProcess:
    """Run `[sys.executable, script or "-m", ...]` as subprocess.run does, with its output captured.

    stdout: a file for it instead. prepare: called in the fork first, as preexec_fn is; it must pickle.
    """
    (output, write_output), (errors, write_errors) = os.pipe(), os.pipe()
    environment = dict(os.environ) if env is None else env
    running = Running(command, cwd, environment, stdout.fileno() if stdout else write_output, write_errors, prepare)
    os.close(write_output)
    os.close(write_errors)
    with ThreadPoolExecutor(2) as threads:
        reading = [threads.submit(_read_to_end, number) for number in (output, errors)]
        try:
            status = running.wait(timeout)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
    texts = [reader.result().decode() if text else reader.result() for reader in reading]
    done = subprocess.CompletedProcess(command, status, *texts)
    if check:
        done.check_returncode()
    return done


def heed_permissions() -> None:
    """Make root subject to permissions, in this process and the programs that it starts (linux/capability.h)."""
    libc, version, drop = ctypes.CDLL(None, use_errno=True), 0x20080522, 24  # PR_CAPBSET_DROP
    permitted = int(re.search(r"CapPrm:\s(\w+)", Path("/proc/self/status").read_text())[1], 16)
    for number in (1, 2):  # dac_override, dac_read_search
        permitted &= ~(1 << number)
        assert libc.prctl(drop, number, 0, 0, 0) == 0 or os.geteuid() != 0
    low, high = permitted & 0xFFFFFFFF, permitted >> 32
    head, data = (ctypes.c_uint32 * 2)(version, 0), (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    assert libc.capset(head, data) == 0


def _read_to_end(number: int) -> bytes:
    with open(number, "rb") as file:
        return file.read()


def script(name: str, *arguments: object, **options) -> subprocess.CompletedProcess:
    """Run one of workflow/scripts."""
    return run([sys.executable, str(SCRIPTS / name), *map(str, arguments)], **options)


@contextlib.contextmanager
def server(path: Path):
    """Answer at a Unix socket: run the command that a client sends, and return its exit status (quick_report/)."""
    process = _process(target=_serve, args=(str(path),), daemon=True)
    process.start()
    yield
    process.terminate()


def _serve(path: str) -> None:
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        listening.settimeout(5)
        while os.getppid() == parent:
            with contextlib.suppress(TimeoutError):
                client, _ = listening.accept()
                with client:
                    if os.fork() == 0:
                        os._exit(_answer(client))


def _answer(client: socket.socket) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    client.setblocking(True)
    first, files, _, _ = socket.recv_fds(client, 1 << 16, 2)
    with client.makefile("rb") as rest:
        words, cwd, environment = json.loads(first + rest.read())
    variables = {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}
    pid = os.fork()
    if pid == 0:
        os._exit(_status(lambda: _run(words, cwd, variables, tuple(files), None)))
    client.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    return 0


def was_idle(done: subprocess.CompletedProcess) -> bool:
    """Return whether Snakemake had nothing to do but to check that the campaign is complete, by its table of jobs."""
    return re.search(r"^all +1\ntotal +1$", done.stdout + done.stderr, re.MULTILINE) is not None


def _status(function: Callable) -> int:
    """Call a function and return the exit status that Python would end with."""
    try:
        function()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status
