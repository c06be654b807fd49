"""A complete training run on CIFAR-100, epoch by epoch, with its loss and accuracy.

Measured: each epoch (training steps, then the test set) as one iteration, and both parts separately; exactly `epochs`
of them, the first included. Also recorded: train loss, test loss and accuracy, by epoch and by rank.
Why: a faster step is useless if the model learns less. This validates strategies and batch norms.
Not included: reading the data, which are on the device beforehand; checkpoints.

  torchrun --nproc-per-node=2 workflow/scripts/bench/train_run.py --strategy own --norm own_sync --epochs 3
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/train_run.py \\
      --device cuda --backend nccl --strategy ddp --norm torch_sync --data cifar100 --data-folder /data --epochs 16

(srun: export MASTER_ADDR and MASTER_PORT first.) It prints a table; with --json FILE it appends one record.
Method and pitfalls: docs/benchmarks/train_run.md.
"""

from dataclasses import dataclass

import torch

from harness.peers import Ranks
from harness.timing import Workload
from workloads import cifar, cifar_cnn, train_loop, weights

# Increase when the same parameters no longer measure the same. The driver reads it from the source text.
VERSION = 2

DATA = ("synthetic", "cifar100")
STRATEGIES = ("none", "ddp", "own")
MAX_SEED = 2**63 - 1


@dataclass
class Parameters:
    """batch_size: images per rank in one backward pass; accumulation_steps of these make one optimizer step.

    data_folder: directory of the unpacked CIFAR-100; None with synthetic data.
    """

    model: str
    data: str
    data_folder: str | None
    epochs: int
    batch_size: int
    accumulation_steps: int
    strategy: str
    norm: str
    seed: int


def build(parameters: dict, ranks: Ranks) -> Workload:
    """Load data and build model and optimizer. Raises ValueError for invalid parameters."""
    wanted = Parameters(**parameters)
    check_parameters(wanted, ranks)
    train, test, word = cifar.load(wanted.data_folder, wanted.seed)
    num_steps = steps_per_epoch(wanted, ranks, len(train.labels))
    train, test = train.to(ranks.device), test.to(ranks.device)
    torch.manual_seed(wanted.seed)  # the same weights on every rank
    model = cifar_cnn.build_model(wanted.model, wanted.norm).to(ranks.device)
    trainer = train_loop.make_trainer(model, wanted.strategy, wanted.accumulation_steps, ranks)
    plan = train_loop.EpochPlan(wanted.seed, wanted.batch_size, num_steps * wanted.accumulation_steps)
    history = train_loop.History()

    def check() -> dict[str, bool]:
        checks = {"loss_is_finite": None not in history.train_loss + history.test_loss}
        return checks | train_loop.agreement(model, wanted.norm != "batch", ranks)

    def values() -> dict:
        counts = {"steps_per_epoch": num_steps, "train_samples_per_epoch": plan.num_samples * ranks.world_size}
        sizes = {"test_samples": len(test.labels), "data_bytes": train.nbytes + test.nbytes}
        return {"data": word, **counts, **sizes, **history.values()}

    return Workload(
        iterate=lambda: train_loop.run_epoch(trainer, plan, train, test, history, ranks),
        check=check,
        values=values,
        memory=lambda: weights.model_bytes(model, trainer.optimizer) | {"algorithm_bytes": trainer.extra_bytes()},
        parts=history.parts,
        num_iterations=wanted.epochs,
    )


def check_parameters(wanted: Parameters, ranks: Ranks) -> None:
    """Raise ValueError for parameters that cannot be measured or would have no effect."""
    choices = {"model": cifar_cnn.MODELS, "data": DATA, "strategy": STRATEGIES, "norm": cifar_cnn.NORMS}
    for name, allowed in choices.items():
        if getattr(wanted, name) not in allowed:
            raise ValueError(f"{name} = {getattr(wanted, name)!r}: expected one of {', '.join(allowed)}.")
    for name in ("epochs", "batch_size", "accumulation_steps"):
        if getattr(wanted, name) < 1:
            raise ValueError(f"{name} = {getattr(wanted, name)}: must be at least 1.")
    if not 0 <= wanted.seed <= MAX_SEED:
        raise ValueError(f"seed = {wanted.seed}: expected an integer from 0 to 2**63 - 1.")
    if wanted.data == "synthetic" and wanted.data_folder is not None:
        raise ValueError(f"data_folder = {wanted.data_folder!r} has no effect with data synthetic. Remove it.")
    if wanted.data == "cifar100" and wanted.data_folder is None:
        raise ValueError("data cifar100 needs data_folder, where CIFAR-100 was unpacked. Nothing is downloaded.")
    if wanted.strategy == "none" and ranks.world_size > 1:
        raise ValueError(f"strategy none trains on 1 rank, but there are {ranks.world_size}. Use ddp or own.")
    cifar_cnn.check_norm(wanted.norm, ranks)


def steps_per_epoch(wanted: Parameters, ranks: Ranks, num_images: int) -> int:
    """Return the optimizer steps of an epoch, the same on all ranks; an incomplete last step is omitted."""
    step_images = ranks.world_size * wanted.batch_size * wanted.accumulation_steps
    if step_images > num_images:
        needed = f"one step takes {step_images} images (ranks x batch_size x accumulation_steps)"
        raise ValueError(f"{needed}, but there are {num_images}. Lower batch_size or accumulation_steps.")
    return num_images // step_images


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    group.add_argument("--model", choices=cifar_cnn.MODELS, default="cifar_cnn", help="(default: %(default)s)")
    group.add_argument("--data", choices=DATA, default="synthetic", help="(default: %(default)s)")
    group.add_argument("--data-folder", metavar="FOLDER", help="directory of the unpacked CIFAR-100 (cifar100 only)")
    group.add_argument("--epochs", type=int, default=3, metavar="COUNT", help="(default: %(default)s)")
    group.add_argument(
        "--batch-size",
        type=int,
        default=64,
        metavar="SAMPLES",
        help="images per rank per backward pass (default: %(default)s)",
    )
    group.add_argument(
        "--accumulation-steps",
        type=int,
        default=1,
        metavar="COUNT",
        help="backward passes per optimizer step (default: %(default)s)",
    )
    group.add_argument(
        "--strategy", choices=STRATEGIES, default="none", help="own: one all-reduce after backward (default: none)"
    )
    group.add_argument("--norm", choices=cifar_cnn.NORMS, default="batch", help="batch norm (default: %(default)s)")
    group.add_argument("--seed", type=int, default=1, metavar="NUMBER", help="(default: %(default)s)")


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line."""
    return {name: getattr(arguments, name) for name in Parameters.__dataclass_fields__}


if __name__ == "__main__":
    import sys

    from harness import by_hand

    by_hand.main("train_run", sys.modules[__name__])
