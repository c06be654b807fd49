"""What train_step trains: a model of one of two families, with a batch and a loss.

Classifiers of torchvision by their names, on random images; transformer language models (transformer.py) as lm_<size>,
on random tokens. Every rank has another batch, so that an exchange of gradients that does nothing leaves ranks with
different weights.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch
from torch import nn

from harness.free_memory import refuse_what_does_not_fit
from harness.peers import Ranks
from workloads import transformer
from workloads.torchvision_models import NUM_CLASSES, build_model, loss_function

LM = "lm_"
SEED = 20_240_501


@dataclass
class Task:
    """loss_of(outputs, targets) is a scalar. values: what the record should say of the model and the batch."""

    model: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    loss_of: Callable[[object, torch.Tensor], torch.Tensor]
    values: dict[str, int] = field(default_factory=dict)


def build_task(wanted, ranks: Ranks) -> Task:
    """Return model and batch on the device. Raises ValueError for a model that exists in no family, and for one that does
    not fit into the memory there is."""
    torch.manual_seed(SEED)  # the same weights on every rank, whatever the strategy sends
    generator = torch.Generator().manual_seed(SEED + 1 + ranks.rank)
    task = (
        language_model(wanted, ranks, generator) if is_language_model(wanted.model) else classifier(wanted, generator)
    )
    task.model = task.model.to(ranks.device).train()
    task.inputs, task.targets = task.inputs.to(ranks.device), task.targets.to(ranks.device)
    if wanted.channels_last:
        task.model = task.model.to(memory_format=torch.channels_last)
        task.inputs = task.inputs.to(memory_format=torch.channels_last)
    task.values |= {"num_parameters": sum(weights.numel() for weights in task.model.parameters())}
    return task


def is_language_model(name: str) -> bool:
    return name.startswith(LM)


def classifier(wanted, generator: torch.Generator) -> Task:
    size = (wanted.batch_size, 3, wanted.image_size, wanted.image_size)
    return Task(
        build_model(wanted.model, wanted.image_size),
        torch.randn(size, generator=generator),
        torch.randint(NUM_CLASSES, (wanted.batch_size,), generator=generator),
        loss_function(wanted.model),
    )


def language_model(wanted, ranks: Ranks, generator: torch.Generator) -> Task:
    """Tokens are random, and the target is the next one. Names of sizes have changed between years, so the record holds
    the dimensions."""
    dimensions = transformer.dimensions_of(wanted.model.removeprefix(LM), wanted.context_length)
    needed_bytes = training_bytes(wanted, transformer.num_parameters(dimensions), ranks)
    what = f"{wanted.model} with weights, gradients and optimizer state"
    refuse_what_does_not_fit(what, needed_bytes, ranks, "Choose a smaller model, or take fewer ranks per host.")
    model = transformer.Transformer(dimensions)
    shape = (wanted.batch_size, wanted.context_length + 1)
    tokens = torch.randint(dimensions.vocab_size, shape, generator=generator)
    flops_per_token = transformer.flops_per_token(dimensions, wanted.context_length)
    values = asdict(dimensions) | {
        "tokens_per_sample": wanted.context_length,
        "flops_per_token": flops_per_token,
        "flops_per_sample": flops_per_token * wanted.context_length,
    }
    return Task(model, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), next_token_loss, values)


def next_token_loss(logits_BTV: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def training_bytes(wanted, num_parameters: int, ranks: Ranks) -> int:
    """Return the bytes of weights, gradients and the optimizer's state on one rank. (What autograd saves comes on top: a
    model that passes may still run out of memory, and is recorded so.)

    Sharded, each rank holds a part of them; but before that all of the weights.
    """
    weights_bytes = num_parameters * torch.float32.itemsize
    num_copies = 4 if wanted.optimizer == "adamw" else 3
    if wanted.strategy == "fsdp":
        return max(weights_bytes, num_copies * weights_bytes // ranks.world_size)
    return num_copies * weights_bytes
