"""Small models for test_bench_own_strategies, each with one feature that gradient synchronization can get wrong.

Most are in float64, so that a different order of summation cannot hide an error. Batches are tensors of (samples, ...).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from workloads import transformer


@dataclass
class Family:
    """loss(model, batch, rank): the mean over samples. differs_by_rank: what a sample contributes depends on its rank.

    has_unused: DistributedDataParallel must look for unused parameters. is_large: it takes long, so not every size of
    bucket is tried on it.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], torch.Tensor]
    loss: Callable[[nn.Module, torch.Tensor, int], torch.Tensor]
    differs_by_rank: bool = False
    has_unused: bool = False
    is_large: bool = False

    def build(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return self.make()


def vectors(num_samples: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(num_samples, 8, dtype=torch.float64, generator=generator)


def images(num_samples: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(num_samples, 3, 32, 32, dtype=torch.float64, generator=generator)


def tokens(num_samples: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(50, (num_samples, 9), generator=generator)


def mean_square(model: nn.Module, batch: torch.Tensor, rank: int) -> torch.Tensor:
    return model(batch).square().mean()


def next_token_loss(model: nn.Module, batch: torch.Tensor, rank: int) -> torch.Tensor:
    logits_BTV = model(batch[:, :-1])
    return functional.cross_entropy(logits_BTV.flatten(0, 1), batch[:, 1:].flatten())


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 5))


def shufflenet() -> nn.Module:
    """torchvision's ShuffleNet with fewer blocks: two branches in each, and many weights, but few bytes.

    In evaluation mode: batch norm then uses its stored statistics, and a joined batch gives the same gradients.
    """
    import torchvision

    return torchvision.models.ShuffleNetV2([2, 2, 2], [8, 16, 32, 64, 64], num_classes=10).double().eval()


def resnext() -> nn.Module:
    """Two blocks of torchvision's ResNet, their middle convolutions in groups; in evaluation mode."""
    from torchvision.models import resnet

    shortcut = nn.Sequential(resnet.conv1x1(16, 32, stride=2), nn.BatchNorm2d(32))
    blocks = [resnet.Bottleneck(16, 8, stride=2, downsample=shortcut, groups=4), resnet.Bottleneck(32, 8, groups=4)]
    stem, head = nn.Conv2d(3, 16, 3, stride=4), [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(stem, *blocks, *head).eval()


def tiny_language_model() -> nn.Module:
    return transformer.Transformer(transformer.dimensions_of("tiny", 8))


def small_transformer() -> nn.Module:
    dimensions = transformer.Dimensions(d_model=16, d_ff=48, num_layers=2, num_heads=2, vocab_size=50, context_length=8)
    return transformer.Transformer(dimensions).double()


class Tied(nn.Module):
    """The output layer is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.hidden = nn.Linear(16, 16)
        self.output = nn.Linear(16, 50, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.output(torch.tanh(self.hidden(self.embedding(batch))))


def frozen() -> nn.Module:
    model = layers().double()
    for weights in (*model[0].parameters(), model[2].bias):
        weights.requires_grad_(False)
    return model


class Unused(nn.Module):
    """A layer that nothing uses, registered last, so that backward expects it first; and an empty parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.used = layers()
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.unused = nn.Linear(30, 30)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.used(batch)


class Branches(nn.Module):
    """Two branches, of which a rank uses one: even ranks the first, odd ranks the second."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 8)
        self.branches = nn.ModuleList([layers(), layers()])
        self.tail = nn.Linear(5, 3)

    def forward(self, batch: torch.Tensor, branch: int) -> torch.Tensor:
        return self.tail(self.branches[branch](self.head(batch)))


def branch_loss(model: nn.Module, batch: torch.Tensor, rank: int) -> torch.Tensor:
    return model(batch, rank % 2).square().mean()


class MixedDtypes(nn.Module):
    """float64 and float32 by turns: neighbours cannot share a bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, dtype=(torch.float64, torch.float32)[i % 2]) for i in range(6))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            batch = torch.tanh(layer(batch.to(layer.weight.dtype)))
        return batch


def channels_last() -> nn.Module:
    """Weights with strides of their own, which gradients in a bucket have to share."""
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=4), nn.Flatten())
    return model.double().to(memory_format=torch.channels_last)


FAMILIES = {
    "plain": Family(layers, lambda *given: vectors(*given).float(), mean_square),
    "shufflenet": Family(shufflenet, images, mean_square),
    "resnext": Family(resnext, lambda *given: images(*given).float(), mean_square),
    "lm_tiny": Family(tiny_language_model, tokens, next_token_loss, is_large=True),
    "transformer": Family(small_transformer, tokens, next_token_loss),
    "tied": Family(lambda: Tied().double(), tokens, next_token_loss),
    "frozen": Family(frozen, vectors, mean_square),
    "unused": Family(lambda: Unused().double(), vectors, mean_square, has_unused=True),
    "branches": Family(lambda: Branches().double(), vectors, branch_loss, differs_by_rank=True, has_unused=True),
    "mixed_dtypes": Family(MixedDtypes, vectors, mean_square),
    "channels_last": Family(channels_last, images, mean_square),
}
