"""Overhead of an allocation on the test cluster (tests/cluster), and an A/A comparison of stacks in it.

24 small cells on 2 nodes x 2 ranks: 12 all_reduce sizes on two identical stacks with different names, 6 launches each,
in one job, stacks alternating (A B, B A, ...). A cell takes 1 s. Printed: sbatch and srun calls; seconds from the job's
start to the first sample, and between cells; the share of the allocation spent measuring; the time of the same
measurements with one job each, of which a few run; and the ratio of the two stacks, which should be 1.
"""

import json
import re
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pandas
from common import Figure, mean_interval, report

from regatta.core.text import utc_seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))
from drills import Site, campaign, make_site
from slurm import Cluster, why_unusable

REPEATS = 6
NUM_SINGLE_JOBS = 5
MARGIN = 0.1  # of the ratio of two stacks that are called equivalent
SIZES = [1024 * 2**k for k in range(12)]
SAMPLING = {"min_seconds": 0.8, "max_seconds": 0.8, "max_warmup_seconds": 0.2}


def main() -> None:
    if reason := why_unusable():
        print(f"not measured: {reason}")
        return
    cluster = Cluster()
    was_up = cluster.is_up()
    cluster.up()
    try:
        measure(cluster)
    finally:
        if not was_up:
            cluster.control("down")


def measure(cluster: Cluster) -> None:
    site = make_site(cluster, "overhead")
    host = {"kind": "host", "python": cluster.python}
    benchmarks = [
        {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": SIZES}},
    ]
    data = campaign({"a": host, "b": host}, benchmarks=benchmarks, repeats=REPEATS, sampling=SAMPLING)
    site.write(data, max_walltime_minutes=60)
    start = time.monotonic()
    said = site.snakemake(timeout=1500).stderr
    campaign_s = time.monotonic() - start
    jobs = re.findall(r": Slurm job (\d+)", said)
    begin, end = job_times(cluster, jobs[-1])
    lines = site.lines()
    headers = [line for line in lines if line["kind"] == "launch"]
    print(f"sbatch calls: {len(jobs)} (one preflight, {len(jobs) - 1} batch); srun calls: {len(headers)} launches")
    share = print_overhead(lines, begin, end)
    print_ratios(site.results / "measurements.csv")
    single_s = statistics.median(time_single_jobs(site))
    num_records = len(site.records())
    print(
        f"one job per measurement: {single_s:.1f} s each, {single_s * num_records:.0f} s; campaign {campaign_s:.0f} s"
    )
    report(
        Figure("test cluster: campaign / one job per cell", campaign_s / (single_s * num_records), "", 0.1),
        Figure("test cluster: share of the allocation in warm-up and iterations", share, "", 0.85, is_minimum=True),
    )


def time_single_jobs(site: Site) -> list[float]:
    """Return the seconds of jobs that measure one cell each, with the line that its record names for a run by hand."""
    frozen = json.loads(next(site.results.glob("campaign.*.json")).read_text())
    found = []
    for cell in frozen["cells"][:NUM_SINGLE_JOBS]:
        begin = time.monotonic()
        options = ["--wait", "--nodes=2", "--exclusive", "--output=single.out", "--wrap", cell["command"]]
        site.cluster.run(["sbatch", *options], cwd=site.folder, timeout=300)
        found.append(time.monotonic() - begin)
    return found


def job_times(cluster: Cluster, job: str) -> tuple[int, int]:
    """Return a job's start and end in seconds since 1970, as Slurm has them: whole seconds."""
    text = cluster.run(["scontrol", "--oneliner", "show", "job", job]).stdout
    found = [re.search(rf"\b{key}=(\S+)", text)[1] for key in ("StartTime", "EndTime")]
    return tuple(utc_seconds(f"{value}Z") for value in found)


def print_overhead(lines: list[dict], begin: float, end: float) -> float:
    """Print where the time of an allocation went; returns the share that was warm-up and samples."""
    records = [line for line in lines if line["kind"] == "record"]
    first = min(records, key=lambda record: (utc_seconds(record["time_utc"]), record["file"]))
    to_first = utc_seconds(first["time_utc"]) - first["sampling"]["elapsed_ns"] / 1e9 - begin
    measuring = sum(record["sampling"]["elapsed_ns"] + record["warmup"]["elapsed_ns"] for record in records) / 1e9
    between = [(r["elapsed_ns"] - r["sampling"]["elapsed_ns"] - r["warmup"]["elapsed_ns"]) / 1e9 for r in records]
    ready = [line["environment"]["seconds_to_ready"] for line in lines if line["kind"] == "launch"]
    num_ok = sum(record["status"] == "ok" for record in records)
    print(f"{num_ok} of {len(records)} measurements ok; allocation {end - begin:.0f} s")
    print(
        f"job start to first sample: {to_first:.0f} s (two starts of Snakemake, the supervisor, srun, Python and torch)"
    )
    print(f"start of a launch, from exec to ready: median {statistics.median(ready):.1f} s of {len(ready)}")
    print(f"within a launch, a cell's time beside warm-up and samples: median {statistics.median(between):.3f} s")
    return measuring / (end - begin)


def print_ratios(measurements: Path) -> None:
    """Print for each size the ratio b/a of each pair of launches, and over all sizes its interval."""
    rows = pandas.read_csv(measurements).query("status == 'ok'")
    times = rows.pivot(index="message_bytes", columns=["stack", "repeat"], values="p50_s")
    ratios = times["b"] / times["a"]
    print(ratios.agg(["median", "min", "max"], axis="columns").round(3).to_string())
    pairs = np.exp(np.log(ratios).mean())  # one for each repeat
    mean, low, high = mean_interval(pairs)
    word = "equivalent" if low > 1 - MARGIN and high < 1 + MARGIN else "inconclusive" if low < 1 < high else "different"
    print(
        f"A/A over all sizes: geometric mean {mean:.3f}, 95 % interval over {len(pairs)} pairs"
        f" [{low:.3f}, {high:.3f}]: {word} (margin {MARGIN:.0%})"
    )
    if word == "different":
        sys.exit("The same stack under two names came out different: no comparison of stacks can be trusted here.")


if __name__ == "__main__":
    main()
