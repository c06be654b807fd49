"""Start rank-side programs in forks of fork_server.py. All workers of a test run share one server, started on first use."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_cells import clean_environment

SERVER = Path(__file__).with_name("fork_server.py")
TIMEOUT_SECONDS = 240


class ForkServer:
    """A connection to the server whose socket is in `folder`. interpreter: the command line of its Python."""

    def __init__(self, folder: Path, interpreter: tuple[str, ...] = (sys.executable,)) -> None:
        self.folder = folder
        self.ended: dict[int, int] = {}  # process id -> exit code
        self.unread = b""
        self.process: subprocess.Popen | None = None  # the server, if it was started here
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.connection = self.connect(interpreter)

    def connect(self, interpreter: tuple[str, ...]) -> socket.socket:
        path = str(self.folder / "socket")
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            Path(path).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                self.start(interpreter, listener)
            connection.connect(path)
        return connection

    def start(self, interpreter: tuple[str, ...], listener: socket.socket) -> None:
        """Start the server. It outlives this process while other workers use it."""
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        threads["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a fork cannot use a GPU if its parent has asked CUDA for one
        threads["OMP_WAIT_POLICY"] = "PASSIVE"  # other tests run beside: a thread that waits leaves its core to them
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [*interpreter, SERVER, str(listener.fileno()), self.folder / "lock"],
                env=clean_environment() | threads,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )

    def answer(self, timeout_seconds: float = TIMEOUT_SECONDS) -> dict:
        """Return the next message of the server, or raise TimeoutError."""
        while b"\n" not in self.unread:
            self.connection.settimeout(max(timeout_seconds, 0.001))
            received = self.connection.recv(1 << 16)
            assert received, f"fork_server.py has ended: {(self.folder / 'log').read_text()}"
            self.unread += received
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """Disconnect, and wait for the server to end unless another worker uses it."""
        self.connection.close()
        if self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)

    def spawn(self, num_ranks: int | None, command: tuple, environment: dict[str, str]) -> "ForkedProgram":
        """Start a program with its arguments; num_ranks: below start_ranks.py, or None for one process alone."""
        outputs = tempfile.mkdtemp(dir=self.folder)
        request = {
            "num_ranks": num_ranks,
            "command": [str(word) for word in command],
            "environment": clean_environment() | environment,
            "folder": os.getcwd(),
            "stdout": f"{outputs}/stdout",
            "stderr": f"{outputs}/stderr",
        }
        self.connection.settimeout(TIMEOUT_SECONDS)
        self.connection.sendall(json.dumps(request).encode() + b"\n")
        while "pid" not in (answer := self.answer()):
            self.ended[answer["ended"]] = answer["code"]
        self.ended.pop(answer["pid"], None)  # of an earlier program with this process id
        return ForkedProgram(self, answer["pid"], Path(outputs))

    def wait(self, pid: int, timeout_seconds: float) -> int:
        """Return the exit code of a program, or raise TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        while pid not in self.ended:
            answer = self.answer(deadline - time.monotonic())
            self.ended[answer["ended"]] = answer["code"]
        return self.ended[pid]

    def run(self, num_ranks: int | None, *command: object, **environment: str) -> subprocess.CompletedProcess:
        """Run a program to its end and return the completed process, output as text."""
        program = self.spawn(num_ranks, command, environment)
        try:
            code = self.wait(program.pid, TIMEOUT_SECONDS)
        except BaseException:
            program.send_signal(signal.SIGTERM)
            raise
        return subprocess.CompletedProcess(command, code, program.stdout(), program.stderr())


class ForkedProgram:
    """A program that runs, or has run, in a fork."""

    def __init__(self, server: ForkServer, pid: int, outputs: Path) -> None:
        self.server, self.pid, self.outputs = server, pid, outputs

    def stdout(self) -> str:
        return (self.outputs / "stdout").read_text()

    def stderr(self) -> str:
        return (self.outputs / "stderr").read_text()

    def is_running(self) -> bool:
        with contextlib.suppress(TimeoutError):
            self.wait(0)
        return self.pid not in self.server.ended

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def wait(self, timeout_seconds: float) -> int:
        return self.server.wait(self.pid, timeout_seconds)
