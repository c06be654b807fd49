"""Cost of tables and report over the number of records: from scratch, and after one more batch of five launches.

Goals for 25,000 records: 30 s and 1 GB from scratch, 8 s after one more batch, 15 s for compare.py of two such
campaigns. With --large also 250,000 records (1.6 GB on disk; goals: 6 min, 4 GB). The results are those of
five_thousand_cells.py: a tenth of its cells, all with 5 launches each, and all with 50.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, Figure, report
from five_thousand_cells import MACHINE, campaign

from regatta.store.checksums import is_intact  # isort: skip
from synthetic import write_lines, write_results  # isort: skip

FROZEN = "campaign.0123456789ab.json"


def main() -> None:
    print("| records | state | step | wall time (s) | CPU time (s) | largest process (MB) |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        all_cells = Path(name) / "all"
        write_results(all_cells, campaign(), MACHINE)
        tenth = campaign()
        tenth["cells"] = tenth["cells"][::10]
        measure(write_results(Path(name) / "tenth", tenth, MACHINE))
        steps = measure(all_cells)
        goals(steps, "24,820", seconds=30, megabytes=1_000, again_s=8, report_s=10)
        share = verify_s(all_cells) / steps["from scratch"][0][0]
        report(Figure("24,820 records, checksums / tables from scratch", 100 * share, "%", 5))
        shutil.copytree(all_cells, Path(name) / "same")
        pair = [all_cells, Path(name) / "same", "--html", f"{name}/x.html"]
        compare_s, _ = show("24,820", "two campaigns", "compare", "compare.py", *pair)
        report(Figure("compare.py, two campaigns of 24,820 records", compare_s, "s", 15))
        if "--large" in sys.argv:
            large = measure(with_more_launches(all_cells, Path(name) / "large"))
            goals(large, "248,200", seconds=360, megabytes=4_000)


def goals(
    steps: dict[str, list[tuple[float, float]]],
    records: str,
    seconds: float,
    megabytes: float,
    again_s: float | None = None,
    report_s: float | None = None,
) -> None:
    """Report the sum of both steps against its goals, and one more batch and the report alone. steps: of `measure`."""
    whole, again = steps["from scratch"], steps["after one more batch"]
    name = f"{records} records, tables and report"
    report(
        Figure(f"{name}, from scratch", sum(taken for taken, _ in whole), "s", seconds),
        Figure(f"{name}, memory", max(peak for _, peak in whole), "MB", megabytes),
    )
    if again_s and report_s:
        report(
            Figure(f"{name}, after one more batch", sum(taken for taken, _ in again), "s", again_s),
            Figure(f"{records} records, report alone", again[1][0], "s", report_s),
        )


def measure(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Print the cost of tables and report, without and with the last batch. Returns seconds and megabytes."""
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
    return {"after one more batch": again, "from scratch": write_all(folder, "from scratch")}


def verify_s(folder: Path) -> float:
    """Return the seconds to read and verify all launch files once; the least of three."""
    seconds = []
    for _ in range(3):
        begin = time.monotonic()
        for path in (folder / "launches").iterdir():
            assert is_intact(path.stem, path.read_bytes()), path
        seconds.append(time.monotonic() - begin)
    return min(seconds)


def write_all(folder: Path, state: str) -> list[tuple[float, float]]:
    """Write tables, then the report. Returns the seconds and megabytes of each."""
    frozen, launches = ["--campaign", folder / FROZEN], ["--launches", folder / "launches"]
    tables = [*frozen, *launches, "--measurements", folder / "measurements.csv"]
    num = sum(file.read_bytes().count(b'{"kind":"record"') for file in (folder / "launches").iterdir())
    written = ["--tables", folder / "tables", "--out", folder / "report.html"]
    return [
        show(f"{num:,}", state, "collect and analyse", "analyse.py", *tables, "--out-dir", folder / "tables"),
        show(f"{num:,}", state, "report", "report.py", *tables, *written),
    ]


def with_more_launches(folder: Path, target: Path) -> Path:
    """Write a campaign with ten times as many launches of each cell: copies with other repeats."""
    (target / "launches").mkdir(parents=True)
    text = (folder / FROZEN).read_text(encoding="utf-8")
    (target / FROZEN).write_text(text.replace('"repeats": 5', '"repeats": 50'), encoding="utf-8")
    for file in (folder / "launches").iterdir():
        batch, launch, attempt = file.name.rsplit("-", 2)
        content, first = file.read_bytes(), int(launch[1:])
        for repeat in range(first, 50, 5):
            path = target / "launches" / f"{batch}-l{repeat:03d}-{attempt}"
            more = content.replace(b'"repeat":%d,' % first, b'"repeat":%d,' % repeat)
            header, *lines = map(json.loads, more.splitlines())
            write_lines(path, [header | {"launch": path.stem}, *lines])
    return target


def show(num: str, state: str, step: str, script: str, *arguments: object) -> tuple[float, float]:
    """Run a script, print its times and its peak memory, and return its seconds and megabytes."""
    begin = time.monotonic()
    line = [sys.executable, str(ROOT / "workflow" / "scripts" / script), *map(str, arguments)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: compare.py found slower cells
        sys.exit(f"{script} failed")
    seconds, cpu_s = time.monotonic() - begin, usage.ru_utime + usage.ru_stime
    peak_mb = usage.ru_maxrss * 1024 / 1e6
    print(f"| {num} | {state} | {step} | {seconds:.1f} | {cpu_s:.1f} | {peak_mb:.0f} |", flush=True)
    return seconds, peak_mb


if __name__ == "__main__":
    main()
