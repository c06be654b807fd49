"""Launch files in which one rank, or the ranks of one host, enter collectives late and compute longer than the others.

By hand: `python tests/unit/synthetic_waits.py OUT` writes OUT/slow-rank and OUT/slow-host, with their reports.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
from synthetic import collective_cell, make_campaign, make_header, make_record, make_report, train_cell, write_lines

CALL_NS, STEP_NS = 200_000, 40_000_000


def late_times(rng: np.random.Generator, num_ranks: int, num: int, scatter_ns: float, late_ns: dict[int, float]):
    """Return nanoseconds (ranks, iterations) at which ranks come: exponential scatter, and `late_ns` more for some."""
    arrivals = rng.exponential(scatter_ns, (num_ranks, num))
    for rank, more in late_ns.items():
        arrivals[rank] += more
    return arrivals


def inside(arrivals) -> list[list[int]]:
    """Return the time inside a call that all leave CALL_NS after the last has come."""
    return (CALL_NS + arrivals.max(axis=0) - arrivals).astype(int).tolist()


def write_waits(folder: Path, shape: tuple[int, int], late: dict[int, float], repeats: int = 6, seed: int = 1) -> Path:
    """Write a results folder: two collectives and a training step on `shape`, ranks `late` by that share of each."""
    more = {"stack": "contained", "device": "cuda", "backend": "nccl", "cluster": "gh200"}
    cells = [collective_cell(size, *shape, **more) for size in (4096, 1 << 20)]
    cells.append(train_cell("resnet50", *shape, "ddp", 25, **more))
    cluster = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
    campaign = make_campaign(cells, name="waits", cluster=cluster, device="cuda", repeats=repeats)
    (folder / "launches").mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    rng, scatter = random.Random(seed), np.random.default_rng(seed)
    for repeat in range(repeats):
        launch, time_utc = f"n{shape[0]:02d}g{shape[1]:02d}-0123456789ab-l{repeat:03d}-a00", f"2026-11-21T03:0{repeat % 10}:05Z"  # fmt: skip
        lines = [make_header(campaign, launch, repeat, cells, time_utc)]
        for cell in cells:
            record = make_record(cell, repeat, STEP_NS * 1e-9, 0.01, rng, time_utc)
            is_step = cell["spec"]["benchmark"] == "train_step"
            whole, num = (STEP_NS, 20) if is_step else (CALL_NS, 60)
            late_ns = {rank: share * whole for rank, share in late.items()}
            arrivals = late_times(scatter, shape[0] * shape[1], num, 0.01 * whole, late_ns)
            if is_step:
                record["parts_ns"] = {"no_sync": (STEP_NS + arrivals).astype(int).tolist()}
            else:
                record["samples_ns"] = inside(arrivals)
                record["sampling"]["num_iterations"] = num
            lines.append(record)
        lines.append({"kind": "complete", "time_utc": time_utc, "elapsed_ns": int(41e9)})
        write_lines(folder / "launches" / f"{launch}.jsonl", lines)
    return folder


if __name__ == "__main__":
    out = Path(sys.argv[1])
    print(make_report(write_waits(out / "slow-rank", (2, 4), {3: 0.06})))
    print(make_report(write_waits(out / "slow-host", (8, 4), dict.fromkeys((8, 9, 10, 11), 0.08))))
    print(make_report(write_waits(out / "nobody", (2, 4), {})))
    print(make_report(write_waits(out / "too-few", (1, 2), {1: 0.2}, repeats=2)))
