"""The models of train_step, each with a batch and a loss.

Untrained classifiers of torchvision by their names, on random images; transformer language models (transformer.py) as
lm_<size>, on random tokens. Every rank has a different batch, so that without gradient synchronization weights differ.
"""

import difflib
import importlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch
from torch import nn

from harness.free_memory import require_memory
from harness.peers import Ranks
from workloads import transformer

LM = "lm_"
SEED = 20_240_501
NUM_CLASSES = 1000

# Weight of each auxiliary classifier's loss: Szegedy et al. 2014, section 5 (googlenet), and torchvision's
# references/classification/train.py for inception_v3.
AUXILIARY_LOSS_WEIGHT = {"googlenet": 0.3, "inception_v3": 0.4}

# Both take tens of seconds to draw their initial weights from a truncated normal distribution, which does not affect
# the speed of a step.
SLOW_TO_INITIALIZE = ("googlenet", "inception_v3")

# Families for one image size, with the argument that sets it.
IMAGE_SIZE_ARGUMENT = {"vit": "image_size", "maxvit": "input_size"}


@dataclass
class Task:
    """loss_of(outputs, targets) is a scalar. values: facts on the model and the batch, for the record."""

    model: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    loss_of: Callable[[object, torch.Tensor], torch.Tensor]
    values: dict[str, int] = field(default_factory=dict)


def build_task(wanted, ranks: Ranks) -> Task:
    """Return model and batch on the device. Raises ValueError for an unknown model, and for one that does not fit into
    memory."""
    torch.manual_seed(SEED)  # the same weights on every rank
    generator = torch.Generator().manual_seed(SEED + 1 + ranks.rank)
    build = language_model if is_language_model(wanted.model) else classifier
    task = build(wanted, ranks, generator)
    task.model = task.model.to(ranks.device).train()
    task.inputs, task.targets = task.inputs.to(ranks.device), task.targets.to(ranks.device)
    if wanted.channels_last:
        task.model = task.model.to(memory_format=torch.channels_last)
        task.inputs = task.inputs.to(memory_format=torch.channels_last)
    task.values |= {"num_parameters": sum(weights.numel() for weights in task.model.parameters())}
    return task


def is_language_model(name: str) -> bool:
    return name.startswith(LM)


def classifier(wanted, _ranks: Ranks, generator: torch.Generator) -> Task:
    size = (wanted.batch_size, 3, wanted.image_size, wanted.image_size)
    return Task(
        build_model(wanted.model, wanted.image_size),
        torch.randn(size, generator=generator),
        torch.randint(NUM_CLASSES, (wanted.batch_size,), generator=generator),
        loss_function(wanted.model),
    )


def language_model(wanted, ranks: Ranks, generator: torch.Generator) -> Task:
    """Return a language model with random tokens; the target is the next one. The record contains the dimensions,
    because names of sizes have changed between years."""
    dimensions = transformer.dimensions_of(wanted.model.removeprefix(LM), wanted.context_length)
    needed_bytes = training_bytes(wanted, transformer.num_parameters(dimensions), ranks)
    what = f"{wanted.model} with weights, gradients and optimizer state"
    require_memory(what, needed_bytes, ranks, "Choose a smaller model, or use fewer ranks per host.")
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
    """Return the bytes of weights, gradients and optimizer state on one rank, without what autograd saves.

    Sharded, each rank has a part of them; but before that all of the weights.
    """
    weights_bytes = num_parameters * torch.float32.itemsize
    num_copies = 4 if wanted.optimizer == "adamw" else 3
    if wanted.strategy == "fsdp":
        return max(weights_bytes, num_copies * weights_bytes // ranks.world_size)
    return num_copies * weights_bytes


def build_model(name: str, image_size: int) -> nn.Module:
    """Return the classifier `name` with random weights and 1000 classes, on the CPU.

    Raises ValueError if torchvision has no classifier of that name, RuntimeError if torchvision itself does not work.
    """
    models = import_torchvision()
    known = models.list_models(module=models)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
        raise ValueError(f"model {name!r} is not a torchvision classifier. Did you mean {nearest[0]!r}?")
    arguments = {}
    if name in SLOW_TO_INITIALIZE:
        arguments["init_weights"] = False
    family = name.split("_")[0]
    if family in IMAGE_SIZE_ARGUMENT:
        arguments[IMAGE_SIZE_ARGUMENT[family]] = image_size if family == "vit" else (image_size, image_size)
    return models.get_model(name, weights=None, num_classes=NUM_CLASSES, **arguments)


def import_torchvision(name: str = "torchvision.models"):
    """Import a module of torchvision on demand: a collective runs in an image without torchvision."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        remedy = f"Install the version for torch {torch.__version__}, from the same index."
        raise RuntimeError(f"torchvision is not installed in this environment. {remedy}") from error
    except (RuntimeError, OSError, ImportError) as error:
        # Builds for different CUDA versions fail with "operator torchvision::nms does not exist" (pytorch/vision#8671).
        remedy = "Install both from the same index, for the same CUDA version."
        raise RuntimeError(f"torchvision does not match torch {torch.__version__}: {error}. {remedy}") from error
    return module


def loss_function(name: str) -> Callable[[object, torch.Tensor], torch.Tensor]:
    """Return cross-entropy of (outputs, labels), plus that of auxiliary outputs with their weight."""
    criterion = nn.CrossEntropyLoss()
    weight = AUXILIARY_LOSS_WEIGHT.get(name, 0.0)

    def loss_of(outputs, labels: torch.Tensor) -> torch.Tensor:
        if isinstance(outputs, torch.Tensor):
            return criterion(outputs, labels)
        main, *auxiliary = outputs
        return criterion(main, labels) + weight * sum(criterion(output, labels) for output in auxiliary)

    return loss_of
