"""Starting ranks on one machine: their environment, how they end together, and that nothing listens beyond loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from bench_cells import BENCH, all_reduce_cell, clean_environment, train_step_cell

from harness import process as rank_process

START_RANKS = BENCH / "start_ranks.py"
PRINT = "os.write(1, (words + chr(10)).encode())\n"  # at once: ranks share the pipe
READY = "import os, pathlib, time; pathlib.Path(os.environ['FOLDER'], os.environ['RANK']).touch()\n"


@pytest.fixture
def start(tmp_path):
    """A function that starts ranks of a program given as text. What is left of them at the end is killed."""
    started = []

    def start(num_ranks: int, text: str, *arguments: str, options=(), output=None, grace_seconds=5, **environment: str):
        program = tmp_path / "program.py"
        program.write_text(text)
        code = f"import start_ranks; start_ranks.GRACE_SECONDS = {grace_seconds}; start_ranks.main()"
        line = [sys.executable, "-c", code, f"--nproc-per-node={num_ranks}", *options, str(program), *arguments]
        own = clean_environment() | {"PYTHONPATH": str(BENCH), "FOLDER": str(tmp_path)} | environment
        pipe = subprocess.PIPE
        outputs = {"stdout": output or pipe, "stderr": output or pipe}
        process = subprocess.Popen(line, env=own, **outputs, text=True, start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def wait_until_ready(folder, num_ranks: int) -> None:
    deadline = time.monotonic() + 120
    while not all((folder / str(rank)).exists() for rank in range(num_ranks)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_each_rank_is_told_its_place_and_the_same_meeting_point(start):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
    text = f"import json, os, sys\nwords = json.dumps([*(os.environ[n] for n in {names}), *sys.argv[1:]])\n" + PRINT
    process = start(3, text, "--x", "a b")
    lines = sorted(json.loads(line) for line in process.communicate(timeout=120)[0].splitlines())
    assert process.returncode == 0
    port = lines[0][5]
    assert lines == [[str(r), str(r), "3", "3", "127.0.0.1", port, "1", "--x", "a b"] for r in range(3)]


@pytest.mark.parametrize(("num_ranks", "given", "expected"), [(1, {}, "None"), (2, {"OMP_NUM_THREADS": "3"}, "3")])
def test_threads_are_set_only_where_ranks_share_a_machine_and_nobody_has_set_them(start, num_ranks, given, expected):
    process = start(num_ranks, "import os\nwords = str(os.environ.get('OMP_NUM_THREADS'))\n" + PRINT, **given)
    assert set(process.communicate(timeout=120)[0].split()) == {expected}


def test_sockets_of_gloo_and_nccl_are_on_loopback_unless_an_interface_is_named(start):
    text = "import os; print(os.environ['GLOO_SOCKET_IFNAME'], os.environ['NCCL_SOCKET_IFNAME'])"
    assert start(1, text).communicate(timeout=120)[0].split() == ["lo", "lo"]
    assert start(1, text, NCCL_SOCKET_IFNAME="ib0").communicate(timeout=120)[0].split() == ["lo", "ib0"]


def test_rank_0_alone_inherits_the_socket_of_the_store_and_it_listens_on_loopback(start):
    text = (
        "import os, socket\nfd = os.environ.get('STORE_LISTEN_FD')\n"
        "words = f\"{os.environ['RANK']} {fd and socket.socket(fileno=int(fd)).getsockname()[0]}\"\n" + PRINT
    )
    assert sorted(start(2, text).communicate(timeout=120)[0].splitlines()) == ["0 127.0.0.1", "1 None"]


@pytest.mark.parametrize(
    ("fault", "code", "printed"),
    [("sys.exit(3)", 3, 3), ("os.kill(os.getpid(), 9)", 137, -9), ("os._exit(74)", 74, 74)],
)
def test_when_a_rank_fails_the_others_are_ended_and_its_exit_code_is_the_launch_s(start, fault, code, printed, wording):
    text = f"import os, sys, time\nif os.environ['RANK'] == '1': {fault}\ntime.sleep(600)"
    process = start(3, text)
    errors = process.communicate(timeout=120)[1].splitlines()
    assert process.returncode == code
    wording(errors[0], code=printed)
    wording(sorted(errors[1:]))


def test_a_rank_that_fails_while_others_are_still_being_started_is_seen(start, wording):
    process = start(48, "import os, sys, time\nif os.environ['RANK'] == '0': sys.exit(3)\ntime.sleep(600)")
    errors = process.communicate(timeout=120)[1].splitlines()
    assert process.returncode == 3
    wording(errors[0])
    assert len(errors) == 48


def test_a_rank_that_ends_well_does_not_end_the_others(start):
    process = start(2, "import os, time\nif os.environ['RANK'] == '1':\n  time.sleep(0.5)\n  print('late')")
    assert process.communicate(timeout=120)[0] == "late\n"
    assert process.returncode == 0


def test_each_line_begins_with_its_rank_whole_lines_at_a_time_and_nothing_is_lost(start):
    """Both ranks print a line in pieces, to both streams; the last line of each has no end."""
    text = (
        "import os, sys, time\nrank = os.environ['RANK']\n"
        "for number in range(20):\n"
        "    os.write(1, f'{rank} line'.encode()); time.sleep(0.01); os.write(2, f' {number}\\n'.encode())\n"
        "os.write(1, b'\\n'); os.write(1, b'long ' * 500_000)\n"
    )
    process = start(11, text, options=["--label"])
    lines, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    for rank in range(11):
        label = f"{rank:2}: "
        found = [line.removeprefix(label) for line in lines.split("\n") if line.startswith(label)]
        assert found == [*(f"{rank} line {number}" for number in range(20)), "", "long " * 500_000]
    assert len(lines.split("\n")) == 11 * 22 + 1


def test_what_a_labelled_rank_printed_is_before_the_line_about_its_end(start, tmp_path):
    text = "import os, time\nif os.environ['RANK'] == '1': os.write(1, b'why'); os._exit(3)\ntime.sleep(600)"
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = start(2, text, options=["--label"], output=file)
        process.wait(120)
    assert process.returncode == 3
    first, second, *_ = log.read_text().splitlines()
    assert (first, second.endswith("code 3")) == ("1: why", True)


def test_a_process_that_a_labelled_rank_leaves_behind_does_not_delay_the_end(start):
    text = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True); print('done')"
    process = start(2, text, options=["--label"])
    assert sorted(process.communicate(timeout=60)[0].splitlines()) == ["0: done", "1: done"]
    assert process.returncode == 0


def test_a_labelled_output_that_cannot_be_written_is_a_failure_and_no_rank_waits(start):
    with Path("/dev/full").open("wb") as file:
        process = start(2, "print('x' * 3_000_000)", options=["--label"], output=file)
        process.wait(120)
    assert process.returncode == 74


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_launcher_ends_all_ranks(start, tmp_path, number):
    process = start(2, READY + "time.sleep(600)")
    wait_until_ready(tmp_path, 2)
    ranks = psutil.Process(process.pid).children()
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    assert not any(map(is_alive, ranks))


def test_ranks_that_ignore_the_signal_are_killed_after_a_while(start, tmp_path):
    process = start(
        2, "import signal; signal.signal(15, signal.SIG_IGN)\n" + READY + "time.sleep(600)", grace_seconds=1
    )
    wait_until_ready(tmp_path, 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 137


def test_each_rank_has_a_session_of_its_own(start):
    process = start(2, "import os\nwords = f'{os.getpid()} {os.getsid(0)}'\n" + PRINT)
    pairs = [line.split() for line in process.communicate(timeout=120)[0].splitlines()]
    assert len(pairs) == 2
    assert all(pid == session for pid, session in pairs)


def is_alive(process: psutil.Process) -> bool:
    """Say whether a process has not ended. Not every init process of a container collects the exit codes of orphans."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ranks_are_killed_with_their_launcher(start, tmp_path):
    process = start(2, READY + "time.sleep(600)\n")
    wait_until_ready(tmp_path, 2)
    ranks = psutil.Process(process.pid).children()
    process.kill()
    deadline = time.monotonic() + 60
    while any(map(is_alive, ranks)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_signal_for_stacks_does_not_end_the_launcher(start, tmp_path):
    process = start(1, READY + "time.sleep(1)")
    wait_until_ready(tmp_path, 1)
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_program_that_is_not_there_and_no_ranks_are_told(start, tmp_path):
    done = subprocess.run(
        [sys.executable, str(START_RANKS), "--nproc-per-node=2", str(tmp_path / "nofile.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "can't open file" in done.stderr
    done = subprocess.run(
        [sys.executable, str(START_RANKS), "--nproc-per-node=0", "x.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "at least 1" in done.stderr


@dataclass
class Observed:
    """addresses: on which processes listened, or had a UDP socket. launches: of which they were ranks, with their ids."""

    addresses: set[str] = field(default_factory=set)
    launches: dict[tuple, set[int]] = field(default_factory=dict)


def observe(pid: int, is_running: Callable[[], bool]) -> Observed:
    """Observe a process and its descendants until it ends."""
    found = Observed()
    while is_running():
        try:
            members = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for member in members:
            try:
                sockets = member.net_connections("inet")
            except psutil.Error:
                continue
            found.addresses |= {s.laddr.ip for s in sockets if s.status == "LISTEN" or (s.type == 2 and s.laddr)}
            launch = rank_process.launch_of(rank_process.command_line(Path(f"/proc/{member.pid}")))
            if launch is not None:
                found.launches.setdefault(launch, set()).add(member.pid)
        time.sleep(0.1)
    return found


@pytest.mark.torch
def test_ranks_that_train_listen_on_loopback_alone(fork_server, write_request, launch_lines):
    request = write_request([all_reduce_cell(), train_step_cell("lm_tiny", "ddp")])
    command = (BENCH / "run_launch.py", "--request", request)
    launch = fork_server.spawn(2, command, {"GLOO_SOCKET_IFNAME": "lo"})
    assert observe(launch.pid, launch.is_running).addresses == {"127.0.0.1"}
    assert launch.wait(0) == 0
    assert [line["status"] for line in launch_lines() if line["kind"] == "record"] == ["ok", "ok"]


@pytest.mark.torch
def test_real_ranks_listen_on_loopback_alone_and_are_recognised_as_ranks(write_request, launch_lines):
    """start_ranks.py itself is no rank, nor is a rank between its fork and its program."""
    pytest.importorskip("torch")
    request = write_request([all_reduce_cell()])
    line = [sys.executable, str(START_RANKS), "--nproc-per-node=2", str(BENCH / "run_launch.py"), "--request", request]
    process = subprocess.Popen(line, env=clean_environment() | {"GLOO_SOCKET_IFNAME": "lo"})
    found = observe(process.pid, lambda: process.poll() is None)
    assert found.addresses == {"127.0.0.1"}
    [ranks] = found.launches.values()
    assert len(ranks) == 2
    assert process.returncode == 0
    assert [line["status"] for line in launch_lines() if line["kind"] == "record"] == ["ok"]


@pytest.fixture
def ranks_of_another_launch(tmp_path):
    """Two processes that wait, with the command line of ranks."""
    program = tmp_path / "bench" / "run_launch.py"
    program.parent.mkdir()
    program.write_text("print(flush=True)\nimport time\ntime.sleep(600)\n")
    line = [sys.executable, program, "--request", "other"]
    waiting = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(2)]
    for process in waiting:
        process.stdout.readline()
    yield waiting
    for process in waiting:
        process.kill()
        process.communicate()


@pytest.mark.torch
def test_a_launch_counts_the_ranks_of_another_on_its_machine(
    run_ranks, ranks_of_another_launch, write_request, launch_lines
):
    done = run_ranks(2, BENCH / "run_launch.py", "--request", write_request([all_reduce_cell()]))
    assert done.returncode == 0, done.stderr
    [record] = [line for line in launch_lines() if line["kind"] == "record"]
    assert record["status"] == "ok"
    assert record["other_ranks"] >= 2  # more where other tests measure beside this one


def test_only_ranks_of_other_launches_are_counted():
    program = b"/x/bench/run_launch.py"
    own = rank_process.launch_of(b"\0".join([b"python3", b"-u", program, b"--request", b"a", b""]))
    assert own == (program, b"--request", b"a", b"")
    assert rank_process.launch_of(b"\0".join([b"python3", program, b"--request", b"a", b""])) == own
    assert rank_process.launch_of(b"\0".join([b"python3", program, b"--request", b"b", b""])) not in (None, own)
    others = [
        [b"srun", b"--nodes=1", b"python3", program],
        [b"apptainer", b"run", b"/i.sif", b"python3", program],
        [b"python3", b"/x/bench/start_ranks.py", b"--nproc-per-node=2", program],
        [b"python3", b"/x/bench/run_batches.py", b"results/a"],
        [b"python3", b"-m", b"torch.distributed.run", program],
        [b"vim", b"/y/run_launch.py"],
        [b""],
    ]
    assert [rank_process.launch_of(b"\0".join(words)) for words in others] == [None] * len(others)


def test_ranks_are_counted_by_their_command_lines(tmp_path, monkeypatch):
    lines = {"self": "a", "10": "a", "11": "a", "12": "b", "13": "b", "14": "c"}
    for name, request in lines.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cmdline").write_bytes(f"python3\0/x/bench/run_launch.py\0--request\0{request}\0".encode())
    (tmp_path / "15").mkdir()  # has ended meanwhile
    (tmp_path / "meminfo").touch()
    for local_world_size, expected in ((None, 3), ("2", 3), ("1", 4)):  # 4: the same line twice, by hand
        if local_world_size:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", local_world_size)
        assert rank_process.count_other_ranks(tmp_path) == expected
    assert rank_process.count_other_ranks(tmp_path / "none") is None


def test_a_launch_leaves_nothing_in_the_temporary_folder(start, tmp_path):
    """torchrun leaves a folder torchelastic_* there after each launch."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    program = BENCH / "collective.py"
    line = ["--message-bytes", "1024", "--max-seconds", "0.05", "--min-seconds", "0.01", "--max-warmup-seconds", "0.01"]
    text = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    process = start(2, text, *line, TMPDIR=str(folder))
    output = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert list(folder.iterdir()) == []
