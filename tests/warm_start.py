"""Run Snakemake and Regatta's scripts in forks of one process that has imported their libraries.

Importing them takes 2 s for Snakemake and 1 s for a script with pandas, longer than most tests run for. A fork has its
own working directory, environment, files and exit status, as a new Python has. Tests of interpreter start and of signals
start a new Python.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from multiprocessing import reduction
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1] / "workflow" / "scripts"
LIBRARIES = ["pytest", "snakemake.cli", "pandas", "jsonschema", "jinja2", "matplotlib.pyplot", "scipy.stats"]

_modules = [path.relative_to(SCRIPTS).with_suffix("").parts for path in sorted(SCRIPTS.glob("regatta/**/*.py"))]
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(LIBRARIES + [".".join(parts) for parts in _modules])  # skips what cannot be imported


class _Descriptor:
    """A file descriptor of this process that pickles as its duplicate in the fork."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple:
        return _detach, (reduction.DupFd(self.number),)


def _detach(duplicate) -> int:
    return duplicate.detach()


def _run(words: list[str], cwd: str, environment: dict[bytes, bytes], stdout: int, stderr: int) -> None:
    os.chdir(cwd)
    os.environb.clear()
    os.environb.update(environment)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], cwd
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(words[0])
        runpy.run_path(words[0], run_name="__main__")


def run(
    command: list, cwd=None, env: dict | None = None, timeout: float = 240, check: bool = False, text: bool = True
) -> subprocess.CompletedProcess:
    """Run `[sys.executable, script or "-m", ...]` as subprocess.run does, with its output captured."""
    assert command[0] == sys.executable
    words = [os.fspath(word) for word in command[1:]]
    environment = {os.fsencode(key): os.fsencode(value) for key, value in (os.environ if env is None else env).items()}
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        files = _Descriptor(stdout.fileno()), _Descriptor(stderr.fileno())
        process = _server.Process(target=_run, args=(words, os.fspath(cwd or Path.cwd()), environment, *files))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout)
        for file in (stdout, stderr):
            file.seek(0)
        output, errors = stdout.read(), stderr.read()
    if text:
        output, errors = output.decode(), errors.decode()
    done = subprocess.CompletedProcess(command, process.exitcode, output, errors)
    if check:
        done.check_returncode()
    return done


def script(name: str, *arguments: object, **options) -> subprocess.CompletedProcess:
    """Run one of workflow/scripts."""
    return run([sys.executable, str(SCRIPTS / name), *map(str, arguments)], **options)
