"""What train_step trains: a model of one of two families, with a batch and a loss.

Classifiers of torchvision by their names, on random images; transformer language models (transformer.py) as lm_<size>,
on random tokens. Every rank has another batch, so that an exchange of gradients that does nothing leaves ranks with
different weights.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch
from torch import nn

import transformer
from peers import Ranks
from torchvision_models import NUM_CLASSES, build_model, loss_function

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
    refuse_what_does_not_fit(wanted.model, transformer.num_parameters(dimensions), ranks)
    model = transformer.Transformer(dimensions)
    shape = (wanted.batch_size, wanted.context_length + 1)
    tokens = torch.randint(dimensions.vocab_size, shape, generator=generator)
    values = asdict(dimensions) | {
        "tokens_per_sample": wanted.context_length,
        "flops_per_token": transformer.flops_per_token(dimensions, wanted.context_length),
    }
    return Task(model, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), next_token_loss, values)


def next_token_loss(logits_BTV: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def refuse_what_does_not_fit(name: str, num_parameters: int, ranks: Ranks) -> None:
    """Raise ValueError if weights, gradients and momentum alone are more than the memory that is free. (What autograd saves
    comes on top: a model that passes may still run out of memory, and is recorded so.)"""
    needed = 3 * num_parameters * torch.float32.itemsize
    free = free_bytes(ranks)
    if free is not None and needed > free:
        raise ValueError(
            f"{name} needs {needed / 1e9:.3g} GB on each rank for weights, gradients and momentum; {free / 1e9:.3g} GB are"
            " free. Choose a smaller model, or fewer ranks on a host."
        )


def free_bytes(ranks: Ranks) -> int | None:
    """Return the free memory for this rank: of its GPU, or of the host by the ranks on it. None where nobody can tell."""
    if ranks.device.type == "cuda":
        return torch.cuda.mem_get_info(ranks.device)[0]
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
