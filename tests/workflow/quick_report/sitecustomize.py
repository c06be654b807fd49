"""Replace analyse.py and report.py: collect.py and empty tables, and a page that is the text of the report's inputs.

Both take seconds, and tests of the workflow check which files are made, when and from what. PYTHONPATH names this folder.
collect.py, freeze.py and gate.py run in forks of a process that has imported pandas (warm_start.server).
"""

import os
import sys
from pathlib import Path


def option(name: str) -> Path:
    words = [part for word in sys.orig_argv for part in word.split("=", 1)]
    return Path(words[words.index(name) + 1])


def table_names() -> list[str]:
    if is_of_checkout:
        return os.environ["QUICK_REPORT_TABLES"].split(",")  # importing regatta.topics costs most of a second
    sys.path.insert(0, str(script.parent))
    from regatta.topics.catalog import TABLES

    return list(TABLES)


def write_tables() -> None:
    option("--out-dir").mkdir(parents=True, exist_ok=True)
    for name in table_names():
        (option("--out-dir") / f"{name}.csv").write_text("")
    option("--out-dir").with_name("cells.csv").write_text("")


def write_page() -> None:
    measurements = option("--measurements")
    sources = [option("--campaign"), measurements, measurements.with_name("problems.json")]
    option("--out").write_text("".join(path.read_text() for path in sources))
    option("--out").with_name("answer.json").write_text('{"lines": [{"lead": "Scaling", "text": "not computed"}]}')


def run_in_fork(words: list[str]) -> int:
    """Have warm_start.server run a command with this process's folder, environment and output."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["WARM_START_SOCKET"])
        message = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(server, [message[:1]], [1, 2])
        server.sendall(message[1:])
        server.shutdown(socket.SHUT_WR)
        return int(server.recv(8) or 1)


script = Path(sys.orig_argv[1]) if len(sys.orig_argv) > 1 else Path()
is_of_checkout = Path(__file__).resolve().parents[3] in script.resolve().parents  # a copy has other modules
has_server = "WARM_START_SOCKET" in os.environ and is_of_checkout
if script.name == "analyse.py":
    write_tables()
    of_collect = {"--out": "--measurements"} | {
        name: name for name in ("--campaign", "--launches", "--problems", "--log")
    }
    line = [str(script.with_name("collect.py"))]
    line += [word for name, source in of_collect.items() for word in (name, str(option(source)))]
    if not has_server:
        os.execv(sys.executable, [sys.executable, *line])
    os._exit(run_in_fork(line))
if script.name == "report.py":
    write_page()
    os._exit(0)
if script.name in ("freeze.py", "gate.py") and has_server:
    os._exit(run_in_fork(sys.orig_argv[1:]))
