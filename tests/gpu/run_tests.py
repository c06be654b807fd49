"""Run the tests marked `gpu` without pytest, which GPU nodes may lack. Needs Python, torch and torchvision.

  python3 tests/gpu/run_tests.py                               all tests marked gpu
  python3 tests/gpu/run_tests.py --name test_a --name test_b   these, marked or not
  python3 tests/gpu/run_tests.py --json FILE --minutes 2       outcomes as JSON, rewritten after each test

It has what those tests use of pytest: marks, fixtures, parametrize, skip, raises. A test that runs longer than
--test-seconds fails. Exit codes: 0 if none failed, else 1. Standard library only.
"""

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "bench"


class Skipped(Exception):
    pass


class Slow(Exception):
    pass


def skip(reason: str = "", **_options: object) -> None:
    raise Skipped(reason)


def importorskip(name: str, **_options: object) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Skipped(f"no module {name}") from None


class Mark:
    """`pytest.mark.NAME`, also with arguments. As a decorator it adds itself to the function's marks."""

    def __init__(self, name: str, arguments: tuple = (), options: dict | None = None) -> None:
        self.name, self.arguments, self.options = name, arguments, options or {}

    def __call__(self, *arguments, **options):
        if len(arguments) == 1 and inspect.isfunction(arguments[0]) and not options:
            arguments[0].marks = [self, *getattr(arguments[0], "marks", [])]
            return arguments[0]
        return Mark(self.name, arguments, options)


class Marks:
    def __getattr__(self, name: str) -> Mark:
        return Mark(name)


def fixture(function=None, *, scope: str = "function", **_options: object):
    def mark(made):
        made.scope = scope
        return made

    return mark if function is None else mark(function)


class Raises:
    """`pytest.raises`, as a context. value: the exception."""

    def __init__(self, kinds, match: str = "") -> None:
        self.kinds, self.match, self.value = kinds, match, None

    def __enter__(self) -> "Raises":
        return self

    def __exit__(self, kind, value, _traceback) -> bool:
        if kind is not None and not issubclass(kind, self.kinds):
            return False
        self.value = value
        if value is None or not re.search(self.match, str(value)):
            raise AssertionError(f"expected {self.kinds} with {self.match!r}, found {value!r}")
        return True


def run_ranks(num_ranks: int, *command: object, **environment: str) -> subprocess.CompletedProcess:
    """Run ranks of a program in real processes: a fork, as the tests have it otherwise, cannot use a GPU if its parent
    has."""
    from bench_cells import BENCH, clean_environment

    line = [sys.executable, str(BENCH / "start_ranks.py"), f"--nproc-per-node={num_ranks}", *map(str, command)]
    return subprocess.run(line, capture_output=True, text=True, env=clean_environment() | environment)


def stand_in() -> types.ModuleType:
    """Return a module that stands in for pytest."""
    module = types.ModuleType("pytest")
    names = {"mark": Marks(), "fixture": fixture, "skip": skip, "importorskip": importorskip, "raises": Raises}
    names |= {"param": lambda *values, **options: values[0] if len(values) == 1 else values}
    # Test files name them in signatures, and use them in tests that do not run here.
    names |= {"approx": lambda value, **options: value, "Item": object, "MonkeyPatch": object}
    module.__dict__.update(names)
    return module


class Runner:
    """Runs tests of one file with their fixtures. Those of scope module and session are made once per file."""

    def __init__(self, module: types.ModuleType, conftest: types.ModuleType, folder: Path) -> None:
        self.module, self.conftest, self.folder = module, conftest, folder
        self.kept: dict[str, object] = {}
        self.closing = contextlib.ExitStack()

    def run(self, test, arguments: dict) -> None:
        with contextlib.ExitStack() as closing:
            made = dict(arguments)
            for name in inspect.signature(test).parameters:
                self.value_of(name, made, closing)
            test(**{name: made[name] for name in inspect.signature(test).parameters})

    def value_of(self, name: str, made: dict, closing: contextlib.ExitStack) -> object:
        if name in made or name in self.kept:
            made.setdefault(name, self.kept.get(name))
        elif name == "tmp_path":
            made[name] = Path(tempfile.mkdtemp(dir=self.folder))
        elif name == "tmp_path_factory":
            made[name] = types.SimpleNamespace(
                mktemp=lambda prefix: Path(tempfile.mkdtemp(prefix=prefix, dir=self.folder)),
                getbasetemp=lambda: self.folder,
            )
        elif name == "run_ranks":
            made[name] = run_ranks
        else:
            function = getattr(self.module, name, None) or getattr(self.conftest, name)
            is_kept = getattr(function, "scope", "function") != "function"
            needed = {part: self.value_of(part, made, closing) for part in inspect.signature(function).parameters}
            value = function(**needed)
            if inspect.isgenerator(value):
                generator, value = value, next(value)
                (self.closing if is_kept else closing).callback(lambda: next(generator, None))
            made[name] = value
            if is_kept:
                self.kept[name] = value
        return made[name]


def cases(test) -> list[tuple[str, dict]]:
    """Return the name and the arguments of each case of a test."""
    parametrized = [mark for mark in getattr(test, "marks", []) if mark.name == "parametrize"]
    rows = []
    for mark in parametrized:
        names, values = mark.arguments[:2]
        names = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
        rows.append([dict(zip(names, value if len(names) > 1 else (value,), strict=True)) for value in values])
    found = []
    for combination in itertools.product(*rows):
        arguments = {name: value for row in combination for name, value in row.items()}
        words = "-".join(str(value) for value in arguments.values())
        found.append((f"{test.__name__}[{words}]" if words else test.__name__, arguments))
    return found


def marks_of(module: types.ModuleType, test) -> list[Mark]:
    of_module = getattr(module, "pytestmark", [])
    return [*(of_module if isinstance(of_module, list) else [of_module]), *getattr(test, "marks", [])]


def selected(module: types.ModuleType, names: list[str]) -> list:
    tests = [value for name, value in vars(module).items() if name.startswith("test_") and inspect.isfunction(value)]
    if names:
        return [test for test in tests if test.__name__ in names]
    return [test for test in tests if any(mark.name == "gpu" for mark in marks_of(module, test))]


def run_case(runner: Runner, test, arguments: dict, seconds: int) -> tuple[str, str]:
    """Run one case; return passed, failed or skipped, and why."""

    def give_up(number: int, frame: object) -> None:
        raise Slow(f"longer than {seconds} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        for mark in marks_of(runner.module, test):
            if mark.name == "skipif" and mark.arguments[0]:
                return "skipped", mark.options["reason"]
        runner.run(test, arguments)
    except Skipped as reason:
        return "skipped", str(reason)
    except Exception:  # broad: every failure of a test is reported, and the next one runs
        return "failed", traceback.format_exc()
    finally:
        signal.alarm(0)
    return "passed", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", action="append", default=[], help="a test, marked gpu or not")
    parser.add_argument("--json", type=Path, help="write outcomes to this file")
    parser.add_argument("--minutes", type=float, default=60, help="start no test after this time")
    parser.add_argument("--test-seconds", type=int, default=120, help="limit of one test (default: %(default)s)")
    options = parser.parse_args()
    sys.modules["pytest"] = stand_in()
    sys.path[:0] = [str(TESTS)]
    sys.dont_write_bytecode = True
    folder = Path(tempfile.mkdtemp(prefix="gpu-tests-"))
    os.environ.setdefault("TMPDIR", str(folder))
    try:
        outcomes = run_all(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    num_failed = sum(outcome["outcome"] == "failed" for outcome in outcomes)
    print(f"{len(outcomes)} tests, {num_failed} failed")
    sys.exit(1 if num_failed else 0)


def run_all(options: argparse.Namespace, folder: Path) -> list[dict]:
    conftest = importlib.import_module("conftest")
    end = time.monotonic() + 60 * options.minutes
    outcomes: list[dict] = []
    for path in sorted(TESTS.glob("test_*.py")):
        text = path.read_text()
        if not (any(name in text for name in options.name) if options.name else "mark.gpu" in text):
            continue
        try:
            module = importlib.import_module(path.stem)
        except Exception:  # broad, as above
            outcomes.append({"test": path.name, "outcome": "failed", "seconds": 0, "reason": traceback.format_exc()})
            write(options, outcomes)
            continue
        runner = Runner(module, conftest, Path(tempfile.mkdtemp(dir=folder)))
        with runner.closing:
            for test in selected(module, options.name):
                for name, arguments in cases(test):
                    begin = time.monotonic()
                    outcome, reason = "not run", "out of time"
                    if begin < end:
                        outcome, reason = run_case(runner, test, arguments, options.test_seconds)
                    seconds = round(time.monotonic() - begin, 1)
                    outcomes.append({"test": f"{path.name}::{name}", "outcome": outcome, "seconds": seconds})
                    outcomes[-1]["reason"] = reason
                    print(f"{outcome:8} {seconds:6.1f} s  {path.name}::{name}", flush=True)
                    if outcome == "failed":
                        print(reason, flush=True)
                    write(options, outcomes)
    return outcomes


def write(options: argparse.Namespace, outcomes: list[dict]) -> None:
    """Write the outcomes so far to the file of the command line."""
    if options.json:
        options.json.write_text(json.dumps(outcomes, indent=1) + "\n")


if __name__ == "__main__":
    main()
