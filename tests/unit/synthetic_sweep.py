"""Write a synthetic results folder of an acceptance sweep: nodes with known slowdowns, in rounds of one launch per node.

By hand: `python tests/unit/synthetic_sweep.py OUT [NODES]` writes OUT/nodes and OUT/pairs.
"""

import itertools
import json
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

from synthetic import (
    CLUSTER,
    collective_cell,
    make_campaign,
    make_failure,
    make_header,
    make_record,
    train_cell,
    write_lines,
)

MORE = {"device": "cuda", "backend": "nccl", "cluster": "site"}
SITE = {"schema": 1, "name": "site", "scheduler": "slurm", "num_nodes": 1000, "gpus_per_node": 4}


def sweep_campaign(names: list[str], over: str = "nodes", repeats: int = 6, messages=(2**20, 2**28)) -> dict:
    """Return a frozen sweep: an all-reduce of each size, and for nodes training of resnet50."""
    num = {"nodes": 1, "pairs": 2}[over]
    cells = []
    for hosts in itertools.combinations(names, num):
        of_hosts = [collective_cell(size, num, 4, **MORE) for size in messages]
        of_hosts += [train_cell("resnet50", 1, 4, **MORE)] if over == "nodes" else []
        for cell in of_hosts:
            cell["spec"]["hosts"] = list(hosts)
            slug, _, digest = cell["id"].rpartition("-")
            cell["id"] = f"{slug}-{'-'.join(hosts)}-{digest}"
        cells += of_hosts
    text = "Which nodes are slow?"
    return make_campaign(
        cells,
        name="acceptance",
        description=text,
        cluster=SITE,
        device="cuda",
        repeats=repeats,
        sweep=over,
        baseline={},
    )


def write_sweep(folder: Path, campaign: dict, slowdowns: dict | None = None, faults: dict | None = None) -> Path:
    """Write a results folder. slowdowns: (nodes, benchmark or "") -> factor of a set of nodes, or of one node in pairs.

    faults: (node, repeat) -> (status, phase, cause) of all its cells.
    """
    rng, slowdowns, faults = random.Random(1), slowdowns or {}, faults or {}
    start = datetime(2026, 11, 21, 3, 1, 5)
    (folder / "launches").mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign, indent=1), encoding="utf-8")
    sets: dict[tuple, list[dict]] = {}
    for cell in campaign["cells"]:
        sets.setdefault(tuple(cell["spec"]["hosts"]), []).append(cell)
    for number, (repeat, (hosts, cells)) in enumerate(itertools.product(range(campaign["repeats"]), sets.items())):
        time_utc = f"{start.isoformat()}Z"
        launch = f"n{len(sets):02d}g04-0123456789ab-l{number:05d}-a00"
        header = make_header(campaign, launch, repeat, cells, time_utc)
        for host, name in zip(header["environment"]["hosts"], hosts, strict=True):
            host["host"] = name
        lines = [header]
        for cell in cells:
            lines.append({"kind": "start", "cell": cell["id"], "time_utc": time_utc})
            fault = next((faults[host, repeat] for host in hosts if (host, repeat) in faults), None)
            benchmark = cell["spec"]["benchmark"]
            keys = [*((host, "") for host in hosts), *((host, benchmark) for host in hosts), (", ".join(hosts), "")]
            factor = 1.0
            for key in dict.fromkeys(keys):
                factor *= slowdowns.get(key, 1.0)
            if fault:
                lines.append(make_failure(cell, repeat, *fault, time_utc))
            else:
                seconds = factor * CLUSTER.seconds(cell["spec"]) * rng.gauss(1, 0.004)
                lines.append(make_record(cell, repeat, seconds, 0.004, rng, time_utc))
        lines.append({"kind": "complete", "time_utc": time_utc, "elapsed_ns": int(41e9)})
        write_lines(folder / "launches" / f"{launch}.jsonl", lines)
        if number % len(sets) == len(sets) - 1:
            start += timedelta(seconds=60)
    return folder


SLOWDOWNS = {("n17", ""): 1.08, ("n5", "train_step"): 1.3, ("n3, n7", ""): 1.5}
FAULTS = {("n9", repeat): ("failed", "measure", "the rank ended with status 1") for repeat in range(6)}


def main(folder: Path, num: int) -> None:
    names = [f"n{index}" for index in range(1, num + 1)]
    write_sweep(folder / "nodes", sweep_campaign(names), SLOWDOWNS, FAULTS)
    write_sweep(folder / "pairs", sweep_campaign(names[:20], "pairs", messages=(2**28,)), SLOWDOWNS, FAULTS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 24)
