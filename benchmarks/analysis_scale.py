"""Cost of tables and report over the number of records: from scratch, and after one more batch of five launches.

Goals for 25,000 records: 30 s and 1 GB from scratch, 8 s after one more batch, 15 s for compare.py of two such
campaigns. With --large also 250,000 records (1.6 GB on disk; goals: 6 min, 4 GB). The campaign is that of
five_thousand_cells.py, with 5 launches of each cell, or 50.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from common import SCRIPTS, Cost, Figure, print_head, report, timed
from five_thousand_cells import MACHINE, campaign

from regatta.store.checksums import is_intact  # isort: skip
from synthetic import write_results  # isort: skip

FROZEN = "campaign.0123456789ab.json"


def main() -> None:
    print_head("records", "state", "step", "wall time (s)", "CPU time (s)", "largest process (MB)")
    with tempfile.TemporaryDirectory() as name:
        folder = write_results(Path(name) / "all", campaign(), MACHINE)
        again, whole = measure(folder)
        report_whole("24,820", whole, seconds=30, megabytes=1_000)
        again_s = sum(cost.seconds for cost in again)
        report(
            Figure("24,820 records, tables and report, after one more batch", again_s, "s", 8),
            Figure("24,820 records, report alone", again[1].seconds, "s", 10),
        )
        share = verify_s(folder) / whole[0].seconds
        report(Figure("24,820 records, checksums / tables from scratch", 100 * share, "%", 5))
        shutil.copytree(folder, Path(name) / "same")
        pair = [folder, Path(name) / "same", "--html", f"{name}/x.html"]
        compared = show("24,820", "two campaigns", "compare", "compare.py", *pair)
        report(Figure("compare.py, two campaigns of 24,820 records", compared.seconds, "s", 15))
        if "--large" in sys.argv:
            folder = write_results(Path(name) / "large", campaign() | {"repeats": 50}, MACHINE)
            report_whole("248,200", measure(folder)[1], seconds=360, megabytes=4_000)


def report_whole(records: str, whole: list[Cost], seconds: float, megabytes: float) -> None:
    """Report the sum of both steps against its goals."""
    name = f"{records} records, tables and report"
    report(
        Figure(f"{name}, from scratch", sum(cost.seconds for cost in whole), "s", seconds),
        Figure(f"{name}, memory", max(cost.peak_mb for cost in whole), "MB", megabytes),
    )


def measure(folder: Path) -> tuple[list[Cost], list[Cost]]:
    """Return the costs of tables and of the report after one more batch, and from scratch."""
    files = sorted((folder / "launches").iterdir())
    last_batch = files[-1].name.rsplit("-", 2)[0]
    aside = Path(tempfile.mkdtemp(dir=folder.parent))
    for file in (file for file in files if file.name.startswith(last_batch)):
        file.rename(aside / file.name)
    write_all(folder, "from scratch, without the last batch")
    for file in list(aside.iterdir()):
        file.rename(folder / "launches" / file.name)
    again = write_all(folder, "after one more batch")
    shutil.rmtree(folder / "cache")
    return again, write_all(folder, "from scratch")


def verify_s(folder: Path) -> float:
    """Return the seconds to read and verify all launch files once; the least of three."""
    seconds = []
    for _ in range(3):
        begin = time.monotonic()
        for path in (folder / "launches").iterdir():
            assert is_intact(path.stem, path.read_bytes()), path
        seconds.append(time.monotonic() - begin)
    return min(seconds)


def write_all(folder: Path, state: str) -> list[Cost]:
    """Write tables, then the report. Returns the cost of each."""
    frozen, launches = ["--campaign", folder / FROZEN], ["--launches", folder / "launches"]
    tables = [*frozen, *launches, "--measurements", folder / "measurements.csv"]
    num = sum(file.read_bytes().count(b'{"kind":"record"') for file in (folder / "launches").iterdir())
    written = ["--tables", folder / "tables", "--out", folder / "report.html"]
    return [
        show(f"{num:,}", state, "collect and analyse", "analyse.py", *tables, "--out-dir", folder / "tables"),
        show(f"{num:,}", state, "report", "report.py", *tables, *written),
    ]


def show(num: str, state: str, step: str, script: str, *arguments: object) -> Cost:
    """Run a script, print its cost, and return it."""
    cost = timed([sys.executable, SCRIPTS / script, *arguments], passes=(0, 1))  # 1: compare.py found slower cells
    print(f"| {num} | {state} | {step} | {cost.seconds:.1f} | {cost.cpu_s:.1f} | {cost.peak_mb:.0f} |", flush=True)
    return cost


if __name__ == "__main__":
    main()
