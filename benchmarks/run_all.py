"""Run all programs of this folder, and print one table: figure, goal, now, before, met. Called by `make bench`.

python benchmarks/run_all.py                       all programs
python benchmarks/run_all.py planning.py           some
python benchmarks/run_all.py --write               also write rows of these programs into docs/figures.md

--write is refused on a busy machine: load average at the start, or CPU use by other processes, above 0.5 per core.
"""

import argparse
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import COLLECTED, ROOT, Figure, show, show_goal

MAX_LOAD_PER_CORE = 0.5
DOCUMENT = ROOT / "docs" / "figures.md"
BEGIN, END = "<!-- written by make bench -->\n", "<!-- end of what make bench writes -->\n"
HEADINGS = ["figure", "goal", "now", "before", "met", "measured"]
NOT_PROGRAMS = ("common.py", "five_thousand_cells.py", "run_all.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="names of programs in benchmarks; all if omitted")
    parser.add_argument("--write", action="store_true", help="write the table into docs/figures.md")
    options = parser.parse_args()
    every = sorted(path.name for path in Path(__file__).parent.glob("*.py") if path.name not in NOT_PROGRAMS)
    if unknown := [name for name in options.programs if name not in every]:
        parser.error(f"unknown program {unknown[0]!r}. Available: {', '.join(every)}")
    load = os.getloadavg()[0] / os.cpu_count()
    if options.write and load > MAX_LOAD_PER_CORE:
        sys.exit(f"Nothing measured: {busy_message(load)}")
    document = DOCUMENT.read_text()
    begin, busy = time.monotonic(), machine_cpu_seconds()
    figures, failed = run_programs(options.programs or every)
    others = (machine_cpu_seconds() - busy - self_cpu_seconds()) / (time.monotonic() - begin) / os.cpu_count()
    text = (
        f"{machine()}\nLoad at the start {load:.2f} per core; other processes took {max(others, 0):.2f} per core.\n\n"
    )
    rows = previous_rows(document)
    print(f"\n{text}{table(rows_of(figures, rows))}")
    if options.write:
        if others > MAX_LOAD_PER_CORE:
            sys.exit(f"Table not updated: other processes used {others:.2f} per core (limit {MAX_LOAD_PER_CORE}).")
        kept = rows if options.programs else {}
        DOCUMENT.write_text(with_table(document, text + table(kept | rows_of(figures, rows))))
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def busy_message(load: float) -> str:
    """Return why figures are not written."""
    text = f"the load is {load:.2f} per core, above {MAX_LOAD_PER_CORE}."
    return f"{text} Wait until the machine is idle, or omit --write."


def run_programs(names: list[str]) -> tuple[list[Figure], list[str]]:
    """Run programs one after the other; returns their figures, and the names of those that failed."""
    failed = []
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as file:
        for name in names:
            print(f"== {name}", flush=True)
            line = [sys.executable, str(Path(__file__).parent / name)]
            if subprocess.run(line, env=os.environ | {COLLECTED: file.name}).returncode:
                failed.append(name)
        return [Figure(**json.loads(line)) for line in file], failed


def machine_cpu_seconds() -> float:
    """Return for how many seconds the machine's cores have been busy since it started, summed over cores."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def self_cpu_seconds() -> float:
    """Return the processor time of this process and of those that it started and waited for."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def machine() -> str:
    """Return what the figures were measured on."""
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = found[1] if found else platform.machine()
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Python {platform.python_version()}."


def rows_of(figures: list[Figure], previous: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the row of each figure by its name, with the value of the previous table."""
    rows, today = {}, str(datetime.datetime.now(datetime.UTC).date())
    for figure in figures:
        met = {True: "yes", False: "no", None: "unknown"}[figure.is_met]
        before = previous[figure.name][2] if figure.name in previous else ""
        now = show(figure.value, figure.unit)
        rows[figure.name] = [figure.name, show_goal(figure), now, before, met, today]
    return rows


def table(rows: dict[str, list[str]]) -> str:
    """Return the table in Markdown."""
    head = [HEADINGS, ["---"] * len(HEADINGS)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [*head, *rows.values()])


def previous_rows(document: str) -> dict[str, list[str]]:
    """Return the rows of the document's table by the figure's name."""
    _, _, rest = document.partition(BEGIN)
    lines = [line for line in rest.partition(END)[0].splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row for row in rows[2:] if len(row) == len(HEADINGS)}


def with_table(document: str, text: str) -> str:
    """Return the document with another table between its marks."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        sys.exit(f"{DOCUMENT} lacks the lines {BEGIN.strip()} and {END.strip()}, between which the table belongs.")
    return f"{head}{begin}{text}{end}{tail}"


if __name__ == "__main__":
    main()
