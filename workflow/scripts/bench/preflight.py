"""The preflight: what the ranks of a stack run on, and whether its backends work, before anything is measured.

Every rank verifies its placement as in a launch, reduces 1 MiB with each backend, checks the sum, and reports which
libraries it has loaded, from the image or the host. The times include the start of a backend and are no measurement.
NCCL logs its transport; the driver requests that with NCCL_DEBUG.

  python3 workflow/scripts/bench/start_ranks.py --nproc-per-node=2 workflow/scripts/bench/preflight.py --request FILE
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/preflight.py --request FILE

Rank 0 writes the request's `out_file` atomically. Exit codes: 0 even if ranks are misplaced, as the file reports;
1 if a backend does not work (also in the file, if rank 0 could write it) and after any other exception, described in
`<error_dir>/rank-<rank>.json`. Request and file: docs/contracts.md.
"""

import json
import os
import socket
import time
from pathlib import Path

from harness import failures, launch_file

NUM_ELEMENTS = 1 << 18  # fp32 elements: 1 MiB, enough for NCCL to establish its connections
WRITTEN = "written"


def main() -> None:
    failures.run_request("Report what a stack's ranks run on.", run)


def run(request: dict, progress: failures.Progress) -> None:
    """Verify rank placement, try the backends, and report. A rank whose backend failed raises after its report."""
    from harness import placement

    placed = placement.verify(request, progress)
    report, error = try_backends(request, placed, progress)
    placed.store.set(f"report/{report['rank']}", json.dumps(report))
    wait_seconds = request["start_timeout_seconds"]
    if placed.ranks.rank == 0:
        keys = [f"report/{place.rank}" for place in placed.places]
        present = placement.wait_for_keys(placed.store, keys, wait_seconds)
        write_out(request, placed, [json.loads(placed.store.get(key)) for key in present])
        placed.store.set(WRITTEN, "1")
        if error is None and len(present) < len(keys):
            error = RuntimeError(f"{len(present)} of {len(keys)} ranks reported within {wait_seconds:g} s.")
    placement.wait_for_keys(placed.store, [WRITTEN], wait_seconds)
    placement.await_shutdown(placed.place, placed.places, placed.store)
    if error is not None:
        raise error


def try_backends(request: dict, placed, progress: failures.Progress) -> tuple[dict, Exception | None]:
    """Try each backend on this rank. Returns the rank's report, and the exception of a backend.

    Libraries are listed while a group exists: NCCL closes its plugin with its last communicator. After an exception
    the group is not ended, because that may never return, and no further backend is tried.
    """
    import torch

    from harness import environment, libraries, peers

    loaded = {library["path"]: library for library in libraries.loaded_with_origin()}
    tried, error = [], None
    for backend in [] if placed.verdict.problems else request["backends"]:
        progress.phase = "init"
        begin = time.perf_counter_ns()
        try:
            if backend == "gloo" and request["nodes"] > 1:
                check_addresses(placed, request["start_timeout_seconds"])
            reduce_once(backend, placed)
        except (AssertionError, RuntimeError, ValueError) as raised:  # raised by torch.distributed, or for a wrong sum
            error = raised
        loaded |= {library["path"]: library for library in libraries.loaded_with_origin()}
        cause = None if error is None else failures.cause_of(error)
        tried.append({"backend": backend, "cause": cause, "elapsed_ns": time.perf_counter_ns() - begin})
        if error is not None:
            break
        peers.end_group()
    place = placed.place
    report = {
        "rank": place.rank,
        "host": place.host,
        "device": place.device,
        "torch": torch.__version__,
        "driver": environment.driver_version() if request["device"] == "cuda" else None,
        "libraries": [loaded[path] for path in sorted(loaded)],
        "backends": tried,
    }
    return report, error


def check_addresses(placed, wait_seconds: float) -> None:
    """Raise RuntimeError on all ranks if gloo would listen on loopback on any host: they would wait for the timeout."""
    from harness import peers, placement

    place, store = placed.place, placed.store
    problem = peers.loopback_problem(socket.gethostname(), os.environ.get("GLOO_SOCKET_IFNAME"))
    store.set(f"address/{place.rank}", problem or "")
    keys = [f"address/{other.rank}" for other in placed.places]
    for key in placement.wait_for_keys(store, keys, wait_seconds):
        if found := store.get(key).decode():
            raise RuntimeError(found)


def reduce_once(backend: str, placed) -> None:
    """Make a group of all ranks, sum their numbers, and check the sum. Raises RuntimeError if it is wrong."""
    import torch
    import torch.distributed as dist

    from harness import peers

    ranks = placed.ranks
    peers.begin_group(ranks, backend, placed.store, f"preflight/{backend}")
    numbers = torch.full((NUM_ELEMENTS,), ranks.rank + 1, dtype=torch.float32, device=peers.group_device(ranks))
    dist.all_reduce(numbers)
    ranks.synchronize()
    expected = ranks.world_size * (ranks.world_size + 1) // 2  # exact in fp32 for up to 5,792 ranks
    num_wrong = int((numbers != expected).sum())
    if num_wrong:
        raise RuntimeError(f"all_reduce with {backend} returned {num_wrong} wrong values out of {NUM_ELEMENTS}.")


def write_out(request: dict, placed, reports: list[dict]) -> None:
    """Write the reports of all ranks, on rank 0, atomically."""
    from harness import environment, libraries

    paths = [library["path"] for library in reports[0]["libraries"]]
    described = environment.describe(placed.places, placed.ranks.device, placed.verdict.threads_per_rank)
    missing = sorted({place.rank for place in placed.places} - {report["rank"] for report in reports})
    backends = dict.fromkeys(tried["backend"] for report in reports for tried in report["backends"])
    content = {
        "schema": 1,
        "stack": request["stack"],
        "launch": request["launch"],
        "time_utc": launch_file.utc_now(),
        "placement_problems": placed.verdict.problems,
        "environment": described | {"libraries": libraries.relevant(paths)},
        "backends": [merge(backend, reports, missing) for backend in backends],
        "ranks": [{key: value for key, value in report.items() if key != "backends"} for report in reports],
    }
    path = Path(request["out_file"])
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def merge(backend: str, reports: list[dict], missing: list[int]) -> dict:
    """Return the result of a backend over all ranks: the first cause, and the time of the slowest rank."""
    causes, elapsed_ns = [], []
    for report in reports:
        found = next((tried for tried in report["backends"] if tried["backend"] == backend), None)
        elapsed_ns += [found["elapsed_ns"]] if found else []
        cause = found["cause"] if found else "not tried, because an earlier backend failed"
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
