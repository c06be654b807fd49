"""Cost of the report of a campaign with 5,000 cells and 5 launches each: collect, analyse, report, and the browser.

Goals: analyse and report together under 60 s and 2 GB, the page under 3 MB, shown in 3 s. The results are synthetic
(tests/unit/synthetic.py), up to 32 ranks and 60 iterations per record.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT

sys.path[:0] = [str(ROOT / "tests" / "unit"), str(ROOT / "tests" / "browser"), str(ROOT / "workflow" / "scripts")]

from chromium import Chromium  # noqa: E402
from synthetic import Machine, collective_cell, make_campaign, train_cell, write_results  # noqa: E402

SHAPES = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (8, 4))
MODELS = {f"model_{number:02d}": 0.01 * (number + 1) for number in range(12)}
BUCKETS = (1, 2, 4, 8, 16, 25, 32, 64, 128, 256)
PAUSE_S = 15  # between two launches
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv_ring")
MACHINE = Machine(MODELS, dict.fromkeys(MODELS, 100e6), 0.975, 9e-6, 95e9, 0.004, {"bound": 1.021})


def campaign() -> dict:
    cells = []
    for stack in ("contained", "bound"):
        more = {"stack": stack, "device": "cuda", "backend": "nccl", "cluster": "gh200"}
        for model in MODELS:
            cells.append(train_cell(model, 1, 1, "none", **more))
            cells += [train_cell(model, *shape, "ddp", bucket, **more) for shape in SHAPES for bucket in BUCKETS]
        for operation in OPERATIONS:
            for dtype in ("fp32", "bf16"):
                for shape in SHAPES[1:]:
                    cells += [collective_cell(8 * 2**i, *shape, operation, dtype=dtype, **more) for i in range(25)]
    cluster = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
    text = "Twelve models and seven collectives on up to 32 GPUs, with libraries of the image and of the host."
    return make_campaign(cells, name="five-thousand", description=text, cluster=cluster, device="cuda", repeats=5)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "five-thousand"
        frozen = campaign()
        write_results(folder, frozen, MACHINE, pause_s=PAUSE_S)
        store_mb = sum(path.stat().st_size for path in folder.glob("launches/*")) / 1e6
        print(f"{len(frozen['cells'])} cells, {frozen['repeats']} launches each, {store_mb:.0f} MB of launch files")
        options = ["--campaign", str(folder / "campaign.0123456789ab.json")]
        page = folder / "report.html"
        launches = ["--launches", str(folder / "launches")]
        measurements = ["--measurements", str(folder / "measurements.csv")]
        written = ["--out", str(folder / "measurements.csv"), "--problems", str(folder / "problems.json")]
        tables = str(folder / "tables")
        show("collect", "collect.py", *options, *launches, *written)
        show("analyse", "analyse.py", *options, *measurements, "--out-dir", tables)
        show("report", "report.py", *options, *measurements, "--tables", tables, *launches, "--out", str(page))
        print(f"report.html: {page.stat().st_size / 1e6:.1f} MB (goal: under 3 MB)")
        show_in_browser(page)


def show(title: str, script: str, *arguments: str) -> None:
    """Run a script and print its wall time and peak resident memory."""
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, str(ROOT / "workflow" / "scripts" / script), *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{script} failed")
    print(f"{title}: {time.monotonic() - begin:.1f} s, peak {usage.ru_maxrss * 1024 / 1e6:.0f} MB", flush=True)


def show_in_browser(page: Path) -> None:
    program = shutil.which("chromium")
    if program is None:
        print("browser: chromium is not installed")
        return
    with Chromium(program) as browser:
        begin = time.monotonic()
        browser.open(page, 1280)
        browser.evaluate("new Promise(shown => requestAnimationFrame(() => requestAnimationFrame(shown)))")
        print(f"browser: shown after {time.monotonic() - begin:.1f} s (goal: 3 s)")


if __name__ == "__main__":
    main()
