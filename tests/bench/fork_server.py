"""Run rank-side programs in forks of a process that has imported torch, which takes longer than most of them run.

  python fork_server.py LISTENING_SOCKET_FD LOCK_FILE

A client (forked_programs.py) sends one JSON object per line. It gets {"pid": ...} at once and {"ended": pid, "code": ...}
later. The programs of a client end with its connection; the server ends with its last client.

A fork differs from a new Python process in its imported modules, in /proc/self/cmdline, and in that all ranks share one
hash seed. Tests of these start real processes.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

SEARCH_PATH = sys.path[1:]
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))

import start_ranks  # noqa: E402
from harness import process  # noqa: E402

# What the programs import sooner or later. torch._dynamo: on the first step of an optimizer, for example.
PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torchvision",
)
POLL_SECONDS = 0.01
IDLE_SECONDS = 60  # between two looks at whether there are clients, if nothing happens


def preload() -> None:
    """Import what the programs need, and exempt it from their garbage collections."""
    for name in PRELOADED:
        with contextlib.suppress(
            ImportError
        ):  # torchvision, or numpy behind another module: the program will report it
            importlib.import_module(name)
    threads = Path("/proc/self/task")
    assert not threads.exists() or len(list(threads.iterdir())) == 1, "a fork has no copy of its parent's threads"
    gc.collect()
    gc.freeze()


class Server:
    """Serves until the last client has left."""

    def __init__(self, listener: socket.socket, lock_file: str) -> None:
        self.listener = listener
        self.lock_file = lock_file
        self.unread: dict[socket.socket, bytes] = {}
        self.running: dict[int, socket.socket] = {}  # process id -> who started it

    def serve(self) -> None:
        has_clients = True  # the one that started this server connects next
        while has_clients:
            waiting = POLL_SECONDS if self.running else IDLE_SECONDS
            for readable in select.select([self.listener, *self.unread], [], [], waiting)[0]:
                if readable is self.listener:
                    self.unread[self.listener.accept()[0]] = b""
                else:
                    self.read(readable)
            self.reap()
            has_clients = bool(self.unread) or not self.may_end()

    def may_end(self) -> bool:
        """Say whether nobody is connecting. Clients connect under this lock, which is kept until the process ends."""
        self.lock = open(self.lock_file, "w")  # noqa: SIM115
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        is_wanted = bool(select.select([self.listener], [], [], 0)[0])
        if is_wanted:
            self.lock.close()
        return not is_wanted

    def read(self, client: socket.socket) -> None:
        try:
            received = client.recv(1 << 16)
        except ConnectionError:
            received = b""
        if not received:
            self.dismiss(client)
            return
        *lines, self.unread[client] = (self.unread[client] + received).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                run_to_end(lambda line=line: begin_program(json.loads(line)))
            self.running[pid] = client
            send(client, {"pid": pid})

    def dismiss(self, client: socket.socket) -> None:
        del self.unread[client]
        client.close()
        for pid in [pid for pid, owner in self.running.items() if owner is client]:
            os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        while self.running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            client = self.running.pop(pid)
            if client in self.unread:
                send(client, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def send(client: socket.socket, message: dict) -> None:
    with contextlib.suppress(ConnectionError):  # noticed at the next read
        client.sendall(json.dumps(message).encode() + b"\n")


def begin_program(request: dict) -> None:
    """Run a program in this fork: alone, or as several ranks below start_ranks.py."""
    process.die_with_parent()
    os.setsid()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    redirect(0, os.devnull, os.O_RDONLY)
    redirect(1, request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    redirect(2, request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["num_ranks"] is None:
        run_program(request["command"])
        return
    start_ranks.subprocess = SimpleNamespace(Popen=ForkedRank)
    sys.argv = [start_ranks.__file__, f"--nproc-per-node={request['num_ranks']}", *request["command"]]
    start_ranks.main()


def redirect(descriptor: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


class ForkedRank:
    """Takes the place of subprocess.Popen in start_ranks.py: the program runs in a fork instead of a new Python."""

    def __init__(self, line: list[str], env: dict, pass_fds: tuple, start_new_session: bool, preexec_fn) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        run_to_end(lambda: self.run(line, env, pass_fds, start_new_session, preexec_fn))

    def run(self, line: list[str], env: dict, pass_fds: tuple, start_new_session: bool, preexec_fn) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if start_new_session:
            os.setsid()
        preexec_fn()
        kept = max(pass_fds, default=2)
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(env)
        run_program(line[1:])


def run_program(command: list[str]) -> None:
    """Run a Python file with its arguments, as `python FILE ARGUMENTS` does."""
    sys.argv = command
    sys.path[:] = [str(Path(command[0]).resolve().parent), *SEARCH_PATH]
    runpy.run_path(command[0], run_name="__main__")


def run_to_end(function) -> None:
    """Call the function, and end this process as Python would: with SystemExit's code, or a traceback and 1."""
    code = 1
    try:
        function()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    preload()
    Server(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]).serve()
