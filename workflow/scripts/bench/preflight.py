"""The preflight: what the ranks of a stack really run on, and whether its backends work, before anything is measured.

Every rank takes its place and proves it as in a launch, then reduces 1 MiB with each backend, checks the sum, and tells
which libraries it has loaded and whether from the image or from the host. Nothing is timed for its own sake: the times
written here hold all of a backend's start and are no measurement. Which transport NCCL chose it says itself, in the log
that the driver asks for with NCCL_DEBUG.

  python3 workflow/scripts/bench/start_ranks.py --nproc-per-node=2 workflow/scripts/bench/preflight.py --request FILE
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/preflight.py --request FILE

Rank 0 writes the request's `out_file`, whole or not at all. Exit codes: 0 also where ranks are misplaced, which the
file says; 1 where a backend does not work (then the file says so too, where rank 0 could still write it) and after any
other exception, which is described in `<error_dir>/rank-<rank>.json`. Request and file: docs/contracts.md.
"""

import argparse
import json
import os
import time
from pathlib import Path

from harness import failures, process, records

NUM_ELEMENTS = 1 << 18  # of fp32: 1 MiB, enough that NCCL makes its connections
WRITTEN = "written"


def main() -> None:
    parser = argparse.ArgumentParser(description="Look at what a stack's ranks run on. Started once per rank.")
    parser.add_argument("--request", type=Path, required=True, help="preflight request, a JSON file")
    request = json.loads(parser.parse_args().request.read_text())
    process.die_with_parent()
    process.print_stacks_on_signal()
    progress = failures.Progress()
    try:
        run(request, progress)
    except Exception as error:  # the one broad except: whatever it is, the driver has to learn of it
        failures.report_and_exit(Path(request["error_dir"]), progress, error)


def run(request: dict, progress: failures.Progress) -> None:
    """Prove the placement, try the backends, and report. A rank whose backend failed raises once its report is kept."""
    from harness import placement

    proof = placement.prove(request, progress)
    report, error = look(request, proof, progress)
    proof.store.set(f"report/{report['rank']}", json.dumps(report))
    wait_seconds = request["start_timeout_seconds"]
    if proof.ranks.rank == 0:
        keys = [f"report/{place.rank}" for place in proof.places]
        present = placement.wait_for_keys(proof.store, keys, wait_seconds)
        write_out(request, proof, [json.loads(proof.store.get(key)) for key in present])
        proof.store.set(WRITTEN, "1")
        if error is None and len(present) < len(keys):
            error = RuntimeError(f"{len(present)} of {len(keys)} ranks reported within {wait_seconds:g} s.")
    placement.wait_for_keys(proof.store, [WRITTEN], wait_seconds)
    placement.say_farewell(proof.place, proof.places, proof.store)
    if error is not None:
        raise error


def look(request: dict, proof, progress: failures.Progress) -> tuple[dict, Exception | None]:
    """Try each backend on this rank. Returns the rank's report, and what a backend failed with.

    Libraries are listed while a group stands: NCCL closes its plug-in with the last of its communicators. After an
    exception the group is left as it is, for ending it may never return, and no further backend is tried.
    """
    import torch

    from harness import environment, libraries, peers

    loaded = {library["path"]: library for library in libraries.loaded_with_origin()}
    tried, error = [], None
    for backend in [] if proof.verdict.problems else request["backends"]:
        progress.phase = "init"
        begin = time.perf_counter_ns()
        try:
            reduce_once(backend, proof)
        except (
            AssertionError,
            RuntimeError,
            ValueError,
        ) as raised:  # what torch.distributed raises, and a sum that is wrong
            error = raised
        loaded |= {library["path"]: library for library in libraries.loaded_with_origin()}
        cause = None if error is None else failures.cause_of(error)
        tried.append({"backend": backend, "cause": cause, "elapsed_ns": time.perf_counter_ns() - begin})
        if error is not None:
            break
        peers.end_group()
    place = proof.place
    report = {
        "rank": place.rank, "host": place.host, "device": place.device,
        "torch": torch.__version__,
        "driver": environment.driver_version() if request["device"] == "cuda" else None,
        "libraries": [loaded[path] for path in sorted(loaded)],
        "backends": tried,
    }  # fmt: skip
    return report, error


def reduce_once(backend: str, proof) -> None:
    """Make a group of all ranks, add up their numbers, and check the sum. Raises RuntimeError if it is wrong.

    The NCCL path is not yet run on a GPU.
    """
    import torch
    import torch.distributed as dist

    from harness import peers

    ranks = proof.ranks
    peers.begin_group(ranks, backend, proof.store, f"preflight/{backend}")
    numbers = torch.full((NUM_ELEMENTS,), ranks.rank + 1, dtype=torch.float32, device=peers.exchange_device(ranks))
    dist.all_reduce(numbers)
    ranks.synchronize()
    expected = ranks.world_size * (ranks.world_size + 1) // 2  # exact in fp32 for up to 5,792 ranks
    num_wrong = int((numbers != expected).sum())
    if num_wrong:
        raise RuntimeError(f"all_reduce with {backend} gave {num_wrong} wrong sums of {NUM_ELEMENTS}.")


def write_out(request: dict, proof, reports: list[dict]) -> None:
    """Write what all ranks reported, on rank 0, so that a reader sees all of it or nothing."""
    from harness import environment, libraries

    own = [library["path"] for library in reports[0]["libraries"]]
    described = environment.describe(proof.places, proof.ranks.device, proof.verdict.threads_per_rank)
    missing = sorted({place.rank for place in proof.places} - {report["rank"] for report in reports})
    content = {
        "schema": 1,
        "stack": request["stack"],
        "launch": request["launch"],
        "time_utc": records.utc_now(),
        "placement_problems": proof.verdict.problems,
        "environment": described | {"libraries": libraries.that_matter(own)},
        "backends": [merge(backend, reports, missing) for backend in tried_backends(reports)],
        "ranks": [{key: value for key, value in report.items() if key != "backends"} for report in reports],
    }
    path = Path(request["out_file"])
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def tried_backends(reports: list[dict]) -> list[str]:
    """Return the backends that any rank tried, in their order."""
    return list(dict.fromkeys(tried["backend"] for report in reports for tried in report["backends"]))


def merge(backend: str, reports: list[dict], missing: list[int]) -> dict:
    """Return what became of a backend over all ranks: the first cause, and the time of the slowest rank."""
    causes, elapsed_ns = [], []
    for report in reports:
        own = next((tried for tried in report["backends"] if tried["backend"] == backend), None)
        elapsed_ns += [own["elapsed_ns"]] if own else []
        cause = own["cause"] if own else "not tried, for an earlier backend failed"
        causes += [f"rank {report['rank']} on host {report['host']}: {cause}"] if cause else []
    causes += [f"rank {rank} sent no report" for rank in missing]
    return {
        "backend": backend,
        "ok": not causes,
        "cause": causes[0] if causes else None,
        "elapsed_ns": max(elapsed_ns, default=None),
    }


if __name__ == "__main__":
    main()
