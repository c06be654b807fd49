"""One training step of an image classifier or a transformer: the time of data-parallel training on this machine.

Measured: zero_grad, forward, loss, backward with gradient synchronization, optimizer step. Then, alternating: the same
step without gradient synchronization, and the synchronization alone; this gives the exposed communication.
Why: its time on one rank relative to many says how a machine and its settings scale.
Not included: reading and decoding images, copying a batch to the device, evaluation, checkpoints. Every step has the
same random batch. Times say nothing about accuracy.

  torchrun --nproc-per-node=2 workflow/scripts/bench/train_step.py --model resnet18 --strategy ddp
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/train_step.py \\
      --device cuda --backend nccl --model resnet50 --image-size 224 --batch-size 32 --strategy ddp

(srun: export MASTER_ADDR and MASTER_PORT first.) It prints a table; with --json FILE it appends one record.
Method and pitfalls: docs/benchmarks/train_step.md.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from algorithms.strategies import STRATEGIES, WITH_BUCKETS, Strategy, apply_strategy
from algorithms.stream_times import traced_step
from harness.peers import Ranks
from harness.timing import Ablation, Workload
from workloads import weights
from workloads.flops import FORWARD_PASSES_OF_A_STEP, ForwardFlops
from workloads.models import build_task, is_language_model

# Increase when the same parameters no longer measure the same. The driver reads it from the source text.
VERSION = 3

# Same values as in pytorch/pytorch, benchmarks/distributed/ddp/benchmark.py.
LEARNING_RATE = 1e-3
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4

DTYPES = ("fp32", "bf16")
OPTIMIZERS = ("sgd", "adamw")
COMPRESSIONS = ("none", "bf16")
DEFAULT_CONTEXT_LENGTH = 128
MAX_HOST_WAITS = 100_000  # samples of which the wait is kept


@dataclass
class Parameters:
    """batch_size: samples per rank and step. bucket_cap_mb: MiB. bf16: autocast, weights in fp32.

    Parameters without effect on the model or with the strategy are None.
    """

    model: str
    image_size: int | None
    context_length: int | None
    batch_size: int
    dtype: str
    strategy: str
    bucket_cap_mb: float | None
    gradient_as_bucket_view: bool | None
    static_graph: bool | None
    compression: str | None
    optimizer: str
    compile: bool
    channels_last: bool | None


def build(parameters: dict, ranks: Ranks) -> Workload:
    """Build model, optimizer and batch on the device. Raises ValueError for invalid parameters."""
    wanted = Parameters(**parameters)
    check_parameters(wanted, ranks)
    task = build_task(wanted, ranks)
    strategy = apply_strategy(task.model, wanted, ranks)
    optimizer = make_optimizer(task.model, wanted.optimizer)
    precision = precision_context(wanted.dtype, ranks.device)
    forward = torch.compile(strategy.forward) if wanted.compile else strategy.forward
    losses = {}
    waits: list[int] = []

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision():
            loss = task.loss_of(forward(task.inputs), task.targets)
        loss.backward()
        strategy.finish()
        optimizer.step()
        losses["last"] = loss.detach()

    def iterate() -> None:
        step()
        losses.setdefault("first", losses["last"])
        if strategy.host_wait_ns is not None:
            waits.append(strategy.host_wait_ns())
            del waits[:-MAX_HOST_WAITS]

    with ForwardFlops() as counted:
        saved_bytes = bytes_saved_by(lambda: task.loss_of(task.model(task.inputs), task.targets), precision)
    flops_per_sample = FORWARD_PASSES_OF_A_STEP * counted.total // wanted.batch_size
    checks = step_checks(task.model, wanted, losses, ranks)
    return Workload(
        iterate=iterate,
        check=checks,
        values=lambda: (
            {"flops_per_sample": flops_per_sample}
            | task.values
            | {f"{name}_loss": weights.finite(losses.get(name)) for name in ("first", "last")}
            | {"num_calls": strategy.num_calls}
        ),
        memory=lambda: (
            weights.model_bytes(task.model, optimizer)
            | {"saved_bytes": saved_bytes, "algorithm_bytes": strategy.algorithm_bytes()}
        ),
        has_windows=True,
        parts=lambda: {"host_wait": waits} if waits else {},
        ablations=ablations(strategy, step) if ranks.world_size > 1 else {},
    )


def ablations(strategy: Strategy, step: Callable[[], None]) -> dict[str, Ablation]:
    """Return the ablations of the step on several ranks: without gradient synchronization, only that, and with events.

    Those that a strategy does not support are omitted. Before the synchronization alone, it runs once untimed, so that
    all ranks are aligned and its buffers exist.
    """
    found = {}
    if strategy.no_sync is not None:

        def step_without_sync() -> None:
            with strategy.no_sync():
                step()

        found["no_sync"] = Ablation(step_without_sync)
    if strategy.reduce_alone is not None:
        found["communication"] = Ablation(strategy.reduce_alone, prepare=strategy.reduce_alone)
    if strategy.streams is not None:
        found["traced_step"] = traced_step(step, strategy.streams)
    return found


def step_checks(model: nn.Module, wanted: Parameters, losses: dict, ranks: Ranks) -> Callable[[], dict[str, bool]]:
    """Return the checks after the last timed step. Sharded weights differ between ranks and are not compared."""

    def check() -> dict[str, bool]:
        checks = {"loss_is_finite": all(math.isfinite(loss.item()) for loss in losses.values())}
        if wanted.strategy not in ("none", "fsdp"):
            checks["weights_agree"] = weights.are_the_same(list(model.parameters()), ranks)
        return checks

    return check


def check_parameters(wanted: Parameters, ranks: Ranks) -> None:
    """Raise ValueError for parameters that cannot be measured or would have no effect."""
    choices = {"dtype": DTYPES, "strategy": STRATEGIES, "optimizer": OPTIMIZERS}
    if wanted.strategy == "ddp":
        choices["compression"] = COMPRESSIONS
    for name, allowed in choices.items():
        if getattr(wanted, name) not in allowed:
            raise ValueError(f"{name} = {getattr(wanted, name)!r}: expected one of {', '.join(allowed)}.")
    size = "context_length" if is_language_model(wanted.model) else "image_size"
    for name in (size, "batch_size"):
        if getattr(wanted, name) is None or getattr(wanted, name) < 1:
            raise ValueError(f"{name} = {getattr(wanted, name)}: must be at least 1.")
    if wanted.strategy == "none" and ranks.world_size > 1:
        raise ValueError(f"strategy none trains on 1 rank, but there are {ranks.world_size}. Use ddp.")
    if wanted.strategy in WITH_BUCKETS and (wanted.bucket_cap_mb is None or wanted.bucket_cap_mb <= 0):
        needed = f"strategy {wanted.strategy} needs a size above 0, in MiB"
        raise ValueError(f"bucket_cap_mb = {wanted.bucket_cap_mb}: {needed}.")
    for name in without_effect(wanted):
        if getattr(wanted, name) is not None:
            what = f"model {wanted.model}" if name in MODEL_SIZES else f"strategy {wanted.strategy}"
            raise ValueError(f"{name} = {getattr(wanted, name)} has no effect with {what}. Remove it.")
    if wanted.compression == "bf16" and not has_bf16_hook():
        needed = f"needs a torch built with CUDA and NCCL, even on CPUs; this is {torch.__version__}"
        raise ValueError(f"compression = 'bf16' {needed}. Leave compression at none, or use such a build.")


def has_bf16_hook() -> bool:
    """Return whether DDP accepts its hook for bf16 (torch/nn/parallel/distributed.py, _check_comm_hook; no XPUs)."""
    return bool(torch.version.cuda or torch.version.hip) and dist.is_nccl_available()


MODEL_SIZES = ("image_size", "context_length", "channels_last")


def without_effect(wanted: Parameters) -> list[str]:
    """Return the parameters without effect on this model or strategy: they are None."""
    names = ["image_size", "channels_last"] if is_language_model(wanted.model) else ["context_length"]
    if wanted.strategy not in WITH_BUCKETS:
        names.append("bucket_cap_mb")
    if wanted.strategy != "ddp":
        names += ["gradient_as_bucket_view", "static_graph", "compression"]
    return names


def make_optimizer(model: nn.Module, name: str) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def bytes_saved_by(forward: Callable[[], torch.Tensor], precision) -> int:
    """Return the bytes that autograd saves for the backward pass of one forward pass, each storage counted once.

    Saved weights are included, although they take no additional memory. Counted, not measured, so the same on every
    device. (A compiled model is counted without compilation.)
    """
    # Count by storage, not address: FSDP frees gathered weights, and the next ones may have the same address.
    storages: dict[int, tuple[torch.UntypedStorage, int]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage, storage.nbytes()
        # A reference to the tensor would create a cycle with its graph, which would never be freed
        # (docs.pytorch.org, saved_tensors_hooks: no reference to the input).
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), precision():
        forward()
    return sum(num_bytes for _, num_bytes in storages.values())


def precision_context(dtype: str, device: torch.device):
    """Return a function that makes the context of the forward pass: autocast to bfloat16, or nothing for fp32."""
    if dtype == "bf16":
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext


def number(text: str) -> float:
    """Return an integral number as int, so that a cell run by hand has the same spec. For argparse."""
    value = float(text)
    return int(value) if value.is_integer() else value


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    yes_no = ("true", "false")
    group.add_argument("--model", default="resnet18", help="torchvision classifier, or lm_tiny, lm_small, ...")
    group.add_argument(
        "--image-size", type=int, metavar="PIXELS", help="image height and width (classifiers only; default: 64)"
    )
    group.add_argument(
        "--context-length", type=int, metavar="TOKENS", help="sequence length (language models only; default: 128)"
    )
    group.add_argument(
        "--batch-size", type=int, default=8, metavar="SAMPLES", help="samples per rank per step (default: %(default)s)"
    )
    group.add_argument("--dtype", choices=DTYPES, default="fp32", help="bf16: autocast (default: %(default)s)")
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="none",
        help="gradient synchronization strategy (default: %(default)s)",
    )
    group.add_argument(
        "--bucket-cap-mb", type=number, metavar="MIB", help="gradient bucket size (ddp and bucketed only; default: 25)"
    )
    group.add_argument(
        "--gradient-as-bucket-view", choices=yes_no, help="gradients are views into buckets (ddp only; default: false)"
    )
    group.add_argument(
        "--static-graph", choices=yes_no, help="the graph is the same in every step (ddp only; default: false)"
    )
    group.add_argument(
        "--compression", choices=COMPRESSIONS, help="bf16: send gradients as bf16 (ddp only; default: none)"
    )
    group.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="(default: %(default)s)")
    group.add_argument("--compile", choices=yes_no, default="false", help="use torch.compile (default: %(default)s)")
    group.add_argument(
        "--channels-last", choices=yes_no, help="channels-last memory format (classifiers only; default: false)"
    )


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line. Those without effect are None, or rejected later if
    they were given."""
    given = {name: getattr(arguments, name) for name in Parameters.__annotations__}
    given |= {name: value == "true" for name, value in given.items() if value in ("true", "false")}
    defaults = {"image_size": 64, "context_length": DEFAULT_CONTEXT_LENGTH, "bucket_cap_mb": 25, "compression": "none"}
    unused = without_effect(Parameters(**given))
    for name, value in given.items():
        if value is None and name not in unused:
            given[name] = defaults.get(name, False)
    return given


if __name__ == "__main__":
    import sys

    from harness import by_hand

    by_hand.main("train_step", sys.modules[__name__])
