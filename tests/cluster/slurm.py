"""The test cluster for use in tests. The program `cluster` beside this file describes and creates it."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).resolve().parent / "cluster"
STATE = Path(os.environ.get("REGATTA_TEST_CLUSTER", "/var/tmp/regatta-test-cluster")).resolve()
SUITE = os.environ.get("REGATTA_TEST_CLUSTER_SUITE", "sid")  # the Debian suite that Slurm comes from
UNAVAILABLE = 69  # `cluster` exits so where nodes cannot be made at all, such as without a network the first time


def why_unusable() -> str | None:
    """Return why no cluster can run on this machine, in a few words, or None if nothing is known against it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux"
    tools = ["debootstrap", "flock", "gcc", "ip", "nsenter", "setpriv", "unshare"]
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)} (Debian: apt-get install debootstrap gcc iproute2 util-linux)"
    probe = ["unshare", "--mount", "--net", "--pid", "--fork", "ip", "link", "add", "probe", "type", "bridge"]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"cannot make namespaces and a bridge here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass(frozen=True)
class Cluster:
    """A cluster by its state folder; `environment` has the same path on the nodes, where it can only be read."""

    state: Path = STATE
    environment: Path = Path(sys.prefix)

    @property
    def shared(self) -> Path:
        """The host's path of /shared, the cluster's shared file system."""
        return self.state / "shared"

    @property
    def python(self) -> str:
        return str(self.environment / "bin" / "python3")

    def control(self, *words: object, check: bool = True, timeout: float = 500) -> subprocess.CompletedProcess[str]:
        """Run `cluster WORDS`, such as control("up", "--nodes", 3)."""
        return run([str(PROGRAM), *map(str, words)], timeout, check, env=self._host_environment())

    def up(self, *options: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.control("up", "--env", self.environment, *options, check=check)

    def is_up(self) -> bool:
        return self.control("status", check=False).returncode == 0

    def copy_root(self) -> None:
        """Begin with a copy of the default cluster's root file system. /usr, most of it, is hard links: nothing in it is
        written in place."""
        root = self.state / "root"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        source = STATE / "root"
        rest = [entry for entry in source.iterdir() if entry.name not in ("usr", ".complete")]
        copy = ["cp", "--archive", "--one-file-system"]
        # Not checked: where the default cluster is up, its logs and sockets come and go.
        subprocess.run([*copy, *rest, root], capture_output=True)
        if subprocess.run([*copy, "--link", source / "usr", root], capture_output=True).returncode:
            subprocess.run([*copy, source / "usr", root], check=True)
        shutil.copy2(source / ".complete", root)

    def run(
        self,
        argv: Sequence[object],
        node: str = "login",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
        as_root: bool = False,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, as user bench, with a clean environment plus `env`.

        Raises AssertionError with the output if it fails, or if it is not done after `timeout` seconds: then it and
        what it started are killed.
        """
        return run(self._argv(argv, node, cwd, env, as_root), timeout, check, self._host_environment(), stdin)

    def popen(
        self,
        argv: Sequence[object],
        node: str = "login",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        as_root: bool = False,
        **options: object,
    ) -> subprocess.Popen:
        """Start a command as `run` does, and return its process. If that is killed, the command is killed too.

        To send the command itself another signal, as Ctrl-C does, use send_signal().
        """
        options = {"text": True, "start_new_session": True, "env": self._host_environment(), **options}
        return subprocess.Popen(self._argv(argv, node, cwd, env, as_root), **options)

    def kill_node(self, node: str) -> None:
        """Let all processes of a node vanish at once, slurmd included."""
        self.control("kill-node", node)

    def start_node(self, node: str) -> None:
        """Bring a killed node back, and wait until jobs can run on it."""
        self.control("start-node", node)

    def link(self, node: str, state: str) -> None:
        """Take the network of a node "down", or "up" again."""
        self.control("link", node, state)

    def stop_controller(self) -> None:
        """End slurmctld, which saves its state first. Until it is started again, no command of Slurm is answered."""
        wait = 'pid=$(cat /run/slurmctld.pid); kill "$pid"; while kill -0 "$pid"; do sleep 0.1; done'
        self.run(["sh", "-euc", wait], as_root=True)

    def forget_jobs(self) -> None:
        """Delete the jobs in the state of slurmctld, which does not run: it saves them every 5 s, so a crash loses
        those submitted since."""
        self.run(["sh", "-euc", "rm /var/lib/regatta-cluster/slurmctld/job_state*"], as_root=True)

    def start_controller(self) -> None:
        """Start slurmctld again, and wait until it answers."""
        self.run(["slurmctld"], as_root=True)
        wait_until(lambda: self.run(["squeue"], check=False).returncode == 0, 60, "an answer of slurmctld")

    def submit(self, *options: str, seconds: int = 120) -> str:
        """Submit a job that takes whole nodes and sleeps; returns its id."""
        wrap = ["--exclusive", "--output=/dev/null", "--wrap", f"sleep {seconds}"]
        return self.run(["sbatch", "--parsable", *options, *wrap]).stdout.strip()

    def squeue(self) -> dict[str, str]:
        """Return the state of each job that is not done, by its id: {"1001": "RUNNING"}."""
        listed = self.run(["squeue", "--noheader", "--all", "--format", "%i %T"]).stdout
        return dict(line.split(maxsplit=1) for line in listed.splitlines())

    def node_state(self, node: str) -> str:
        """Return what Slurm thinks of a node, such as "idle", or "down*" with a star if it does not answer."""
        return self.run(
            ["sinfo", "--noheader", "--partition", "main", "--nodes", node, "--format", "%t"]
        ).stdout.strip()

    def is_serving(self) -> bool:
        """Return whether all nodes accept jobs. Those that Slurm took out of service, on a busy machine, are resumed."""
        out = self.run(
            ["sinfo", "--noheader", "--Node", "--partition", "main", "--states=down,drain", "--format", "%N"]
        )
        if nodes := out.stdout.split():
            self.run(["scontrol", "update", f"nodename={','.join(nodes)}", "state=resume"], as_root=True, check=False)
        return not nodes

    def _argv(self, argv, node, cwd, env, as_root) -> list[str]:
        options = [*(["--root"] if as_root else []), *(["--cwd", cwd] if cwd else [])]
        variables = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
        return [str(PROGRAM), "exec", node, *options, "--", *variables, *map(str, argv)]

    def _host_environment(self) -> dict[str, str]:
        return os.environ | {"REGATTA_TEST_CLUSTER": str(self.state)}


def run(
    argv: list[str], timeout: float, check: bool, env: dict[str, str], stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL if stdin is None else pipe,
        stdout=pipe,
        stderr=pipe,
        encoding="utf-8",
        errors="replace",
        env=env,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(stdin, timeout=timeout)
        verdict = f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # reaches into the node: groups know no namespaces
        stdout, stderr = process.communicate()
        verdict = f"not done after {timeout:g} s"
    if verdict.startswith("not done") or (check and process.returncode):
        raise AssertionError(f"{shlex.join(argv)}: {verdict}\n{stdout[-4000:]}\n{stderr[-4000:]}")
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def send_signal(process: subprocess.Popen, number: int) -> None:
    """Send a signal to the command that Cluster.popen started, and not to what stands for it on the host."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: process.poll() is not None or children.read_text().strip(), 60)
    for pid in children.read_text().split():
        os.kill(int(pid), number)


def wait_until(is_true: Callable[[], object], timeout: float, what: str = "") -> None:
    """Ask until it is true; raises AssertionError after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not is_true():
        assert time.monotonic() < end, f"{what or is_true} is not true after {timeout:g} s"
        time.sleep(0.2)


def copy_checkout(cluster: Cluster, name: str) -> str:
    """Copy the project's files, tracked or new, to /shared/NAME, for user bench, and return that path on the nodes."""
    target = cluster.shared / name
    shutil.rmtree(target, ignore_errors=True)
    listing = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for file in subprocess.run(listing, capture_output=True, text=True, check=True).stdout.rstrip("\0").split("\0"):
        if os.path.lexists(CHECKOUT / file):  # and not deleted since the last commit
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / file, target / file, follow_symlinks=False)
    bench = cluster.shared.stat()
    for folder, _, files in os.walk(target):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            os.chown(path, bench.st_uid, bench.st_gid, follow_symlinks=False)
    return f"/shared/{name}"
