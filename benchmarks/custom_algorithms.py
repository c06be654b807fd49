"""Custom gradient synchronization and all-reduce relative to torch's on this machine: gloo, one thread per rank.

In a launch, all ways of a case alternate: a block of iterations each, round after round, every second round in reverse
order, so that other load affects all equally. A block's time is the median of its iterations, each that of its slowest
rank. A round gives the ratio of each way's block to torch's; a launch gives the median over its rounds; printed are the
median and the range over launches. torch's is there twice: the deviation of the second from 1 is the noise. Goals: at
most 1.05 times the time of DDP for `bucketed` with buckets of the same size, and at most 1.25 times that of torch for
the best custom all-reduce of 16 MiB.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common import SCRIPTS, Figure, report

from regatta.core.text import size
from regatta.formats.base import parameters_of

LAUNCHES = 3
ROUNDS, BLOCK = 12, 2
AGAIN = " again"
MODELS = {"resnet18": {"batch_size": 8, "image_size": 64}, "lm_tiny": {"batch_size": 4, "context_length": 64}}
STRATEGIES = {25: ("ddp", f"ddp{AGAIN}", "bucketed", "naive", "flat", "overlap"), 1: ("ddp", f"ddp{AGAIN}", "bucketed")}
ALGORITHMS = ("torch", f"torch{AGAIN}", "ring", "butterfly", "halving_doubling")
SIZES = (64 * 2**10, 2**20, 16 * 2**20)
OF_RANKS = {2: "train_step", 4: "collective"}  # benchmark, by number of ranks


def main(num_launches: int) -> None:
    medians = {}
    for num_ranks in OF_RANKS:
        launches = [launch(num_ranks) for _ in range(num_launches)]
        for case, ways in launches[0].items():
            for way in ways:
                seconds, ratios = zip(*(of[case][way] for of in launches), strict=True)
                medians.setdefault(case, {})[way] = ratio = statistics.median(ratios)
                ends = f"{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
                print(f"{case:<20} {way:<18} {1e3 * statistics.median(seconds):>8.2f} ms  {ends}", flush=True)
    worst = max(ways["bucketed"] for ways in medians.values() if "bucketed" in ways)
    best = min(medians[size(SIZES[-1])][way] for way in ALGORITHMS[2:])
    report(
        Figure("step with bucketed / DDP, worst case", worst, "", 1.05),
        Figure("best custom all-reduce of 16 MiB / torch's", best, "", 1.25),
    )


def launch(num_ranks: int) -> dict[str, dict[str, list[float]]]:
    """Start ranks once; return what rank 0 writes."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "ranks.json"
        starter = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run([*starter, __file__, str(path)], env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the ranks failed:\n{done.stdout}{done.stderr}")
        return json.loads(path.read_text())


def cases(benchmark: str) -> Iterator[tuple[str, dict[str, dict]]]:
    """Yield the name of each case, and the parameters of each way, torch's first."""
    if benchmark == "collective":
        for message_bytes in SIZES:
            given = {"operation": "all_reduce", "message_bytes": message_bytes}
            yield size(message_bytes), {way: {"algorithm": way.removesuffix(AGAIN)} | given for way in ALGORITHMS}
        return
    for (model, batch), (cap, ways) in itertools.product(MODELS.items(), STRATEGIES.items()):
        given = {"model": model, "bucket_cap_mb": cap} | batch
        yield f"{model}, {cap} MiB", {way: {"strategy": way.removesuffix(AGAIN)} | given for way in ways}


def run_rank(path: Path) -> None:
    """Measure all cases. Rank 0 writes seconds and ratio of each way of a case."""
    sys.path.insert(0, str(SCRIPTS / "bench"))
    import torch
    import torch.distributed as dist

    import collective
    import train_step
    from harness.peers import Ranks

    dist.init_process_group("gloo")
    ranks, found = Ranks(dist.get_rank(), dist.get_world_size(), dist.get_rank(), torch.device("cpu")), {}
    benchmark = OF_RANKS[ranks.world_size]
    build = {"collective": collective, "train_step": train_step}[benchmark].build
    for case, ways in cases(benchmark):
        workloads = {way: build(parameters_of(benchmark, **given), ranks) for way, given in ways.items()}
        found[case] = alternate(workloads, ranks)
    if ranks.rank == 0:
        path.write_text(json.dumps(found))
    dist.destroy_process_group()


def alternate(workloads: dict, ranks) -> dict[str, tuple[float, float]]:
    """Return the median seconds of a block of each way, and of its ratio to the first."""
    from harness import peers, timing

    blocks = {way: [] for way in workloads}
    for number in range(1 + ROUNDS):
        for way in workloads if number % 2 else reversed(workloads):
            peers.barrier(ranks)
            times_ns = timing.time_block(workloads[way].iterate, workloads[way].before_iteration, BLOCK, ranks)
            blocks[way].append(statistics.median(peers.largest_over_ranks(times_ns, ranks)) / 1e9)
    blocks = {way: times[1:] for way, times in blocks.items()}  # DDP rebuilds its buckets after the first step
    first = blocks[next(iter(blocks))]
    ratios = {way: [a / b for a, b in zip(times, first, strict=True)] for way, times in blocks.items()}
    return {way: (statistics.median(times), statistics.median(ratios[way])) for way, times in blocks.items()}


if __name__ == "__main__":
    if "RANK" in os.environ:
        run_rank(Path(sys.argv[1]))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--launches", type=int, default=LAUNCHES, metavar="COUNT", help="(default: %(default)s)")
        main(parser.parse_args().launches)
