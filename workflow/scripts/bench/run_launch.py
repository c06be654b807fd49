"""Measure the cells of a launch request, in order, in one set of processes.

Every rank runs this file; rank 0 writes the launch file. Starting Python, torch and a container takes longer than most
cells, so a launch measures many, each in a separate process group. Memory is released between them.

  python3 workflow/scripts/bench/start_ranks.py --nproc-per-node=2 workflow/scripts/bench/run_launch.py --request FILE
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/run_launch.py --request FILE

Exit codes: 0 when the launch file is complete, even if cells failed a check; 1 after an exception, described in
`<error_dir>/rank-<rank>.json`; 74 if the launch file cannot be written. Request and files: docs/contracts.md.
"""

import importlib
import time
from pathlib import Path

from harness import failures, launch_file, process
from harness.launch_file import build_record


def main() -> None:
    failures.run_request("Measure the cells of a launch request.", run)


def run(request: dict, progress: failures.Progress) -> None:
    """Verify rank placement, then measure the cells."""
    import torch

    from harness import peers, placement

    begin, num_threads = time.perf_counter_ns(), torch.get_num_threads()
    placed = placement.verify(request, progress)
    ranks, problems = placed.ranks, placed.verdict.problems
    is_script = any(cell["spec"]["benchmark"] == "script" for cell in request["cells"])
    if is_script:  # a script gets what its launcher gives: threads, and no earlier communicator
        torch.set_num_threads(num_threads)
        placed.verdict.threads_per_rank = num_threads
    try:
        if not problems and not is_script:
            load_communication_libraries(request, ranks, placed.store, progress)
    finally:
        write = line_writer(request, ranks)
        write(first_line(request, placed.places, ranks, placed.verdict.threads_per_rank))
    peers.end_group()
    if problems:
        refuse_cells(request, problems, write)
    else:
        measure_cells(request, ranks, placed.store, progress, write)
    write({"kind": "complete", "time_utc": launch_file.utc_now(), "elapsed_ns": time.perf_counter_ns() - begin})
    placement.await_shutdown(placed.place, placed.places, placed.store)
    if is_script:
        process.leave()


def line_writer(request: dict, ranks):
    """Return a function that appends a line to the launch file on rank 0, and does nothing elsewhere."""
    if ranks.rank != 0:
        return lambda line: None
    return launch_file.Writer(Path(request["store_file"])).append


def first_line(request: dict, places: list, ranks, threads_per_rank: int) -> dict | None:
    """Return the launch line; None on ranks that do not write."""
    if ranks.rank != 0:
        return None
    from harness import environment

    copied = ("schema", "campaign", "batch", "launch", "repeat", "stack", "nodes", "gpus_per_node", "device")
    return {
        "kind": "launch",
        **{name: request[name] for name in copied},
        **({"generation": request["generation"]} if "generation" in request else {}),
        "time_utc": launch_file.utc_now(),
        "argv": request["argv"],
        "order": [cell["id"] for cell in request["cells"]],
        "git": request["git"],
        "environment": environment.describe(places, ranks.device, threads_per_rank),
    }


def load_communication_libraries(request: dict, ranks, store, progress: failures.Progress) -> None:
    """On GPUs, gather one number, so that NCCL has loaded its network plugin before the loaded libraries are listed.

    NCCL opens libfabric and its plugin with its first communicator and closes them with its last
    (src/plugin/net.cc, ncclNetPluginUnload): so the group exists until they are listed. gloo is a part of torch and
    loads nothing.
    """
    if ranks.device.type != "cuda" or not request["cells"]:
        return
    from harness import peers

    progress.phase = "init"
    peers.begin_group(ranks, request["cells"][0]["spec"]["backend"], store, "probe")
    num_ranks = sum(row[0] for row in peers.gather_rows([1], ranks))
    if num_ranks != ranks.world_size:
        raise RuntimeError(f"a gather over {ranks.world_size} ranks returned {num_ranks}: the backend does not work.")


def refuse_cells(request: dict, problems: list[str], write) -> None:
    """Record every cell as misplaced; nothing is timed."""
    cause = "; ".join(problems) + ". Check the launcher's node and task counts."
    for cell in request["cells"]:
        write({"kind": "start", "cell": cell["id"], "time_utc": launch_file.utc_now()})
        write(build_record(cell, request["repeat"], "placement", "placement", cause, {}))


def measure_cells(request: dict, ranks, store, progress: failures.Progress, write) -> None:
    """Measure the cells in order. A failed check is a record; an exception ends the launch.

    No rank begins a cell before rank 0 has written its start: a rank that fails at once would end the launch before any
    cell had started, and all of its cells would be taken for failed.
    """
    from harness import measure, peers

    process.release_memory()
    for position, cell in enumerate(request["cells"]):
        progress.cell, progress.phase = cell["id"], "init"
        write({"kind": "start", "cell": cell["id"], "time_utc": launch_file.utc_now()})
        if ranks.rank == 0:
            store.set(f"start/{position}", "")
        else:
            store.wait([f"start/{position}"], peers.PEER_TIMEOUT)
        module, problem = find_benchmark(cell["spec"])
        if problem:
            record = build_record(cell, request["repeat"], "failed", "setup", problem, {})
        else:
            outcome = measure.measure(module, cell["spec"], ranks, store, f"cell/{position}", progress)
            record = build_record(cell, request["repeat"], outcome.status, outcome.phase, outcome.cause, outcome.fields)
        write(record)
    progress.cell, progress.phase = None, "launch"


def find_benchmark(spec: dict) -> tuple[object, str | None]:
    """Return (module, None), or (None, what is wrong) if this checkout cannot measure the cell.

    A benchmark is the module of its name, or of a file outside Regatta's tree. It imports torch, after failures can be
    reported.
    """
    name = spec["benchmark"]
    if "module" in spec:
        from harness import benchmark_file

        return benchmark_file.load(spec["module"]), None
    remedy = "The ranks' copy of workflow/scripts/bench differs from the driver's; bring both to the same commit."
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None, f"benchmark {name!r} is unknown to the ranks: workflow/scripts/bench has no {name}.py. {remedy}"
    parts = ("VERSION", "measure_cell" if hasattr(module, "measure_cell") else "build")
    if lacking := [part for part in parts if not hasattr(module, part)]:
        return None, f"benchmark {name!r}: {name}.py has no {' and no '.join(lacking)}. {remedy}"
    if spec["version"] != module.VERSION:
        return None, f"benchmark {name}: version {module.VERSION} found, {spec['version']} expected. {remedy}"
    return module, None


if __name__ == "__main__":
    main()
