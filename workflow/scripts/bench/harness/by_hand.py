"""Run a benchmark by hand: command line, one cell, a printed table, and the record on request.

It measures the same as a launch (`measure.measure_cell`); only the source of the parameters differs.
"""

import argparse
import os
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import torch

from harness import by_hand_table, measure, peers, placement, process
from harness.failures import Progress
from harness.launch_file import append_text, build_record, open_launch_file, to_json

START_TIMEOUT_SECONDS = 120
SILENT_SECONDS = 10.0  # how much later ranks end that print nothing

# Keys of the cell's `sampling` with type, default and unit, in the order of docs/contracts.md.
SAMPLING_OPTIONS = (
    ("target_precision", float, 0.01, "target relative half-width of the 95 %% CI of the median"),
    ("min_seconds", float, 1.0, "minimum sampling time"),
    ("max_seconds", float, 5.0, "maximum sampling time; the minima take precedence"),
    ("min_samples", int, 10, "minimum number of iterations"),
    ("max_samples", int, 100_000, "maximum number of iterations"),
    ("max_warmup_seconds", float, 5.0, "maximum warm-up time"),
    ("windows_ratio", float, 0.3, "time of the pipelined windows / sampling time"),
)
MAY_BE_ZERO = ("min_seconds", "max_warmup_seconds")


def main(name: str, benchmark: ModuleType) -> None:
    """Parse the command line, measure one cell and print it on rank 0. Exit codes: 2 bad arguments, 1 failed check."""
    rank = 0  # if unknown, each rank prints the error
    try:
        rank, world_size, local_rank = peers.position_from_environment(dict(os.environ))
        arguments = parse(benchmark, is_printing=rank == 0)
        store = peers.connect_store(rank, world_size, 2 * START_TIMEOUT_SECONDS, name="by-hand")
    except ValueError as error:
        stop(str(error), rank)
    place, device = placement.take_place(rank, local_rank, arguments.device)
    places = placement.gather_places(place, world_size, store, START_TIMEOUT_SECONDS)
    if rank == 0:
        placement.send_verdicts(placement_problems(places, world_size), places, world_size, store)
    verdict = placement.receive_verdict(rank, store)
    if verdict.problems:
        stop(f"placement: {'; '.join(verdict.problems)}", rank)
    torch.set_num_threads(verdict.threads_per_rank)
    progress = Progress()
    ranks = peers.Ranks(rank, world_size, local_rank, device, verdict.host_cores)
    try:
        spec = build_spec(name, benchmark, arguments, places)
        outcome = measure.measure(benchmark, spec, ranks, store, "cell", progress)
    except (ValueError, RuntimeError) as error:
        if progress.phase != "setup":
            raise
        if isinstance(error, ValueError):  # all ranks reject the same parameters
            stop(str(error), rank)
        stop(f"rank {rank}: {error}", rank=0)  # it may be the only one
    if rank == 0:
        cell = {"id": None, "spec": spec, "command": repeat_command(world_size, len({place.host for place in places}))}
        record = build_record(cell, None, outcome.status, outcome.phase, outcome.cause, outcome.fields)
        print(by_hand_table.render(record, places, verdict.threads_per_rank), flush=True)
        if arguments.json:
            append_text(open_launch_file(arguments.json), arguments.json, to_json(record) + b"\n")
    placement.await_shutdown(place, places, store)
    if outcome.status != "ok":
        sys.exit(1)
    if hasattr(benchmark, "script_from"):
        process.leave()


def parse(benchmark: ModuleType, is_printing: bool) -> argparse.Namespace:
    """Return the parsed command line. Only one rank prints an error; all exit with code 2."""
    parser = argparse.ArgumentParser(
        description=benchmark.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    if not is_printing:
        parser.error = lambda message: stop(message, rank=1)
        parser.print_help = lambda file=None: None
    benchmark.add_arguments(parser.add_argument_group("parameters"))
    device = parser.add_argument_group("device")
    device.add_argument(
        "--device", type=pytorch_name, choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)"
    )
    device.add_argument("--backend", type=pytorch_name, help="gloo, nccl, ... (default: gloo on cpu, nccl on cuda)")
    sampling = parser.add_argument_group("sampling")
    for key, kind, default, meaning in SAMPLING_OPTIONS:
        word, text = key.split("_")[-1].upper(), f"{meaning} (default: %(default)s)"
        sampling.add_argument(option(key), type=kind, default=default, metavar=word, help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the record to this file, as one line of JSON")
    arguments = parser.parse_args()
    arguments.backend = arguments.backend or ("nccl" if arguments.device == "cuda" else "gloo")
    if arguments.backend == "nccl" and arguments.device != "cuda":
        parser.error("--backend nccl needs --device cuda")
    for key, *_ in SAMPLING_OPTIONS:
        value = getattr(arguments, key)
        if not value > 0 and not (value == 0 and key in MAY_BE_ZERO):  # NaN fails both
            parser.error(f"{option(key)} = {value}: must be a number above 0")
    return arguments


def pytorch_name(text: str) -> str:
    """Return the text. Raises ArgumentTypeError for ROCm names: PyTorch uses cuda and nccl for AMD GPUs too."""
    if name := {"rocm": "cuda", "hip": "cuda", "rccl": "nccl"}.get(text.lower()):
        raise argparse.ArgumentTypeError(f"{text}: write {name}; PyTorch uses this name for AMD GPUs too")
    return text


def option(key: str) -> str:
    return "--" + key.replace("_", "-")


def placement_problems(places: list[placement.Place], world_size: int) -> list[str]:
    """Return what is wrong with the places; the number of hosts is not known in advance."""
    problems = placement.device_problems(places)
    if len(places) != world_size:
        problems.append(f"{len(places)} of {world_size} ranks answered within {START_TIMEOUT_SECONDS} s")
    return problems


def build_spec(name: str, benchmark: ModuleType, arguments: argparse.Namespace, places: list[placement.Place]) -> dict:
    """Return the cell's spec (docs/contracts.md, Cell); cluster and stack are unknown here, so null.

    Only rank 0 knows the places, and only rank 0 writes the record.
    """
    ranks_by_host = Counter(place.host for place in places)
    return {
        "benchmark": name,
        "version": benchmark.VERSION,
        "cluster": None,
        "device": arguments.device,
        "backend": arguments.backend,
        "nodes": len(ranks_by_host) or None,
        "gpus_per_node": max(ranks_by_host.values(), default=None),
        "stack": None,
        "parameters": benchmark.parameters_from(arguments),
        "sampling": {key: getattr(arguments, key) for key, *_ in SAMPLING_OPTIONS},
        **({"script": benchmark.script_from(arguments)} if hasattr(benchmark, "script_from") else {}),
    }


def repeat_command(world_size: int, num_hosts: int) -> str:
    """Return the command that repeats this run; without the flags of srun, which ranks do not know."""
    program = shlex.join(sys.argv)
    if "STORE_LISTEN_FD" in os.environ:
        starter = shlex.quote(str(Path(sys.argv[0]).with_name("start_ranks.py")))
        return f"python {starter} --nproc-per-node={world_size} {program}"
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return f"python {program}"
    num_nodes = f"--nnodes={num_hosts} " if num_hosts > 1 else "--standalone "
    return f"torchrun {num_nodes}--nproc-per-node={world_size // num_hosts} {program}"


def stop(message: str, rank: int) -> None:
    """End all ranks with one line from rank 0. The others end later: launchers kill all ranks when one fails."""
    if rank == 0:
        print(f"{Path(sys.argv[0]).name}: error: {message}", file=sys.stderr, flush=True)
    else:
        time.sleep(SILENT_SECONDS)
    sys.stdout.flush()
    os._exit(2)  # a normal exit may wait for a group that other ranks are making
