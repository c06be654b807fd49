"""Cost of a campaign beyond its samples: 24 all-reduce cells as a campaign, with ReFrame, and without either.

12 sizes x 2 repeats on 2 ranks. `campaign` is the whole run of Snakemake, with plan, tables and report. `packed` starts
the campaign's two launches directly, one after the other. `reframe` runs 24 tests, each with the torchrun line that a
record names for a run by hand. The three alternate.
"""

import json
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from common import ROOT, Figure, campaign, report, run

ROUNDS = 3
SIZES = [4096 * 2**i for i in range(12)]
SAMPLING = {"min_seconds": 0.05, "max_seconds": 0.1, "min_samples": 20, "max_warmup_seconds": 0.05}
REFRAME = "reframe-hpc==4.10.4"
REFRAME_TESTS = """\
import json

import reframe as rfm
import reframe.utility.sanity as sn

LINES = json.load(open({lines!r}))


@rfm.simple_test
class Cell(rfm.RunOnlyRegressionTest):
    number = parameter(range(len(LINES)))
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = {python!r}

    @run_before("run")
    def set_arguments(self):
        self.executable_opts = LINES[self.number]

    @sanity_function
    def has_result(self):
        return sn.assert_found("samples", self.stdout)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reframe = install_reframe(folder / "reframe")
        seconds: dict[str, list[float]] = {"campaign": [], "packed": [], "reframe": []}
        for turn in range(ROUNDS):
            results = run_campaign(folder / f"round{turn}", seconds["campaign"])
            others = [(run_packed, seconds["packed"])]
            others += [(lambda *given: run_reframe(reframe, *given), seconds["reframe"])] if reframe else []
            for measure, into in others[:: 1 if turn % 2 else -1]:
                measure(results, into)
    for kind, values in seconds.items():
        print(f"{kind}: {', '.join(f'{value:.1f}' for value in values) or 'not measured'} s")
    report(
        Figure("24 small cells: campaign / packed launches", ratio(seconds, "packed"), "", 1.6),
        Figure("24 small cells: campaign / ReFrame", ratio(seconds, "reframe"), "", 1 / 8),
    )


def ratio(seconds: dict[str, list[float]], other: str) -> float | None:
    """Return the median of the ratios of each round; None if the other was not measured."""
    pairs = zip(seconds["campaign"], seconds[other], strict=False)
    return statistics.median([a / b for a, b in pairs]) if seconds[other] else None


def run_campaign(folder: Path, into: list[float]) -> Path:
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": SIZES}}
    folder.mkdir()
    begin = time.monotonic()
    run(folder, campaign("small", [entry], sampling=SAMPLING, repeats=2))
    into.append(time.monotonic() - begin)
    return folder / "results" / "small"


def run_packed(results: Path, into: list[float]) -> None:
    """Start the launches of a finished campaign again, with requests that write elsewhere."""
    elsewhere = results / "packed"
    elsewhere.mkdir()
    begin = time.monotonic()
    for path in sorted(results.glob("batches/*/launches/*.json")):
        request = json.loads(path.read_text())
        copy = elsewhere / path.name
        request |= {"store_file": str(copy.with_suffix(".jsonl")), "error_dir": str(elsewhere)}
        copy.write_text(json.dumps(request))
        line = [str(copy) if word == str(path) else word for word in request["argv"]]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    into.append(time.monotonic() - begin)


def run_reframe(reframe: Path, results: Path, into: list[float]) -> None:
    frozen = json.loads(next(results.glob("campaign.*.json")).read_text())
    lines = [["-m", "torch.distributed.run", *shlex.split(cell["command"])[1:]] for cell in frozen["cells"]]
    lines = [[str(ROOT / word) if (ROOT / word).is_file() else word for word in line] for line in lines]
    folder = results / "reframe"
    folder.mkdir()
    (folder / "lines.json").write_text(json.dumps(lines * frozen["repeats"]))
    text = REFRAME_TESTS.format(lines=str(folder / "lines.json"), python=sys.executable)
    (folder / "cells.py").write_text(text)
    line = [str(reframe), "-c", str(folder / "cells.py"), "-r", "--exec-policy=serial", f"--prefix={folder}"]
    begin = time.monotonic()
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    into.append(time.monotonic() - begin)
    if done.returncode or f"Ran {len(lines) * frozen['repeats']}/" not in done.stdout:
        sys.exit(f"ReFrame failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def install_reframe(folder: Path) -> Path | None:
    """Install ReFrame in a separate environment; returns its program, None if it cannot be installed."""
    venv.create(folder, with_pip=True)
    done = subprocess.run([folder / "bin" / "pip", "install", "-q", REFRAME], capture_output=True, text=True)
    if done.returncode or not shutil.which(folder / "bin" / "reframe"):
        print(f"ReFrame is not measured: {REFRAME} cannot be installed ({done.stderr.strip().splitlines()[-1:]})")
        return None
    return folder / "bin" / "reframe"


if __name__ == "__main__":
    main()
