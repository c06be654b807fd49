"""Tests import Regatta's library as the thin scripts do: `from regatta import ...`, with workflow/scripts on the path.

`make test` runs four files at a time. Those in tests/cluster mostly wait, each on a separate cluster; the others
compute. The two kinds start alternately, so that waiting and computing overlap; long files first, tests/unit last.
"""

import os
import re
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from pprint import pformat

import pytest

ROOT = Path(__file__).resolve().parents[1]

# One batch is measured at a time on a machine: not those of tests that run beside these.
os.environ["REGATTA_MACHINE_LOCK"] = f"-tests-{os.getpid()}"

# `make test ARGS=...` hands its variables down, also to a make that a test starts.
for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "CONFIG", "PROFILE", "VENV"):
    os.environ.pop(name, None)

# A process started by nohup ignores SIGHUP, one in the background of a script SIGINT, and so would those that tests start
# and stop. Programs do not inherit a handler.
for number, handler in ((signal.SIGHUP, lambda *_: None), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

CLUSTER_LONGEST_FIRST = """
stacks salloc_shapes job_drills stack_jobs drills batch_drills node_drills preemption_drills controller_drills
salloc_and_gate start_drills held_back cluster accounting cluster_lifecycle
""".split()
LONGEST_FIRST = {"workflow": 0, "bench": 1, "browser": 2, "unit": 3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    ranks = {f"test_{name}": rank for rank, name in enumerate(CLUSTER_LONGEST_FIRST)}
    waiting = sorted(
        (path for path in files if path.parent.name == "cluster"), key=lambda path: ranks.get(path.stem, 0)
    )
    computing = sorted(
        (path for path in files if path not in waiting), key=lambda path: LONGEST_FIRST[path.parent.name]
    )
    turns = [path for pair in zip_longest(waiting, computing) for path in pair if path is not None]
    items[:] = [item for path in turns for item in files[path]]


class Wording:
    """The messages of one test, as tests/golden/messages/<module>.txt has them; REGATTA_WRITE_GOLDEN=1 writes them.

    A value that the test passes by name is <name> there, and what differs between machines has a name too.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.module, self.name, self.num = request.module, request.node.name, 0
        self.file = ROOT / "tests" / "golden" / "messages" / f"{request.path.stem.removeprefix('test_')}.txt"
        self.known = {"tmp": request.getfixturevalue("tmp_path")} if "tmp_path" in request.fixturenames else {}
        self.known |= {"all-tmp": request.getfixturevalue("tmp_path_factory").getbasetemp(), "python": sys.executable}
        self.known |= {"regatta": ROOT, "process": f"process {os.getpid()}"}

    def __call__(self, message: object, **values: object) -> None:
        """Compare a message, lines, or messages in a structure with the golden file."""
        if isinstance(message, (list, tuple)) and all(isinstance(line, str) for line in message):
            message = "\n".join(message)
        text = message if isinstance(message, str) else pformat(message, width=120, sort_dicts=False)
        for name, value in values.items():
            assert str(value) in text
            text = text.replace(str(value), f"<{name}>")
        for name, value in self.known.items():
            text = text.replace(str(value), f"<{name}>")
        text = re.sub(rf"(\bon |\bhost |\(){re.escape(socket.gethostname())}\b", r"\1<host>", text)
        text = re.sub(r"(?<=<all-tmp>/)([a-z_]+)\d+", r"\1", text)  # numbered in the order of tests
        text = re.sub(r"-[0-9a-f]{12}\b", "-<id>", text)  # of a cell or a batch: of all that it measures
        text = (
            re.sub(r"[ \t\r]+$", "", text, flags=re.M).strip("\n").encode("utf-8", "backslashreplace").decode("utf-8")
        )
        self.num += 1
        key = self.name if self.num == 1 else f"{self.name} {self.num}"
        if os.environ.get("REGATTA_WRITE_GOLDEN"):
            self.write(key, text)
        assert text == self.read().get(key)

    def lines(self, text: str | Iterable[str], key: str, **values: object) -> None:
        """Compare the lines that contain the key; there must be one."""
        found = [line for line in (text.splitlines() if isinstance(text, str) else text) if key in line]
        assert found, text
        self(found, **values)

    @contextmanager
    def raises(self, kind: type[BaseException], **values: object):
        """Expect an exception, and compare its message."""
        with pytest.raises(kind) as caught:
            yield caught
        self(str(caught.value), **values)

    def read(self) -> dict[str, str]:
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        parts = re.split(r"^((?:== .*\n)+)", text, flags=re.M)
        pairs = zip(parts[1::2], parts[2::2], strict=True)
        return {head.removeprefix("== "): part.strip("\n") for heads, part in pairs for head in heads.splitlines()}

    def write(self, key: str, text: str) -> None:
        """Write a message; those of tests that are gone go."""
        messages = self.read() | {key: text}
        heads: dict[str, str] = {}  # cases with the same message share it
        for name in sorted(messages):
            if hasattr(self.module, re.split(r"\W", name)[0]):
                heads[messages[name]] = heads.get(messages[name], "") + f"== {name}\n"
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text("\n".join(f"{names}{text}\n" for text, names in heads.items()), encoding="utf-8")


@pytest.fixture
def wording(request):
    return Wording(request)
