"""CIFAR-100 from a folder, or a small synthetic set of the same shapes that can be learned.

Nothing is downloaded: nodes of a cluster often cannot, and 1,000 ranks should not. torchvision reads the Python version
of https://www.cs.toronto.edu/~kriz/cifar.html, after comparing the MD5 sums of its files, so no other pickle is ever
loaded. Shape letters: N images, C channels, H height, W width.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from workloads.models import import_torchvision

NUM_CLASSES = 100
SHAPE_CHW = (3, 32, 32)

# Synthetic images, 20 and 5 per class: an epoch of the small CNN takes about 3 s on one core.
NUM_SYNTHETIC = {"train": 2_000, "test": 500}
SYNTHETIC_CONTRAST = 45.0  # standard deviation of a class's pattern, in steps of 0 to 255
SYNTHETIC_NOISE = 30.0  # standard deviation per pixel


@dataclass
class Images:
    """One split. pixels_NCHW: uint8. labels: int64 (N,), 0 to 99."""

    pixels_NCHW: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> "Images":
        return Images(self.pixels_NCHW.to(device), self.labels.to(device))

    @property
    def nbytes(self) -> int:
        return self.pixels_NCHW.nbytes + self.labels.nbytes


def load(folder: str | None, seed: int) -> tuple[Images, Images, str]:
    """Return (train, test, "cifar100") from a folder, or without one (train, test, "synthetic") made from the seed.

    Raises ValueError for a folder that is incomplete or corrupt.
    """
    if folder is None:
        return *make_synthetic(seed), "synthetic"
    return *read_folder(Path(folder)), "cifar100"


def read_folder(folder: Path) -> tuple[Images, Images]:
    """Return (train, test) from cifar-100-python, or from the folder that contains it."""
    dataset = import_torchvision("torchvision.datasets").CIFAR100
    if not folder.is_dir():
        raise ValueError(f"data_folder = {str(folder)!r} is not a folder on this rank. In a container, bind it.")
    unpacked = folder / dataset.base_folder
    in_folder = type("CIFAR100", (dataset,), {"base_folder": "."})
    try:
        splits = [in_folder(unpacked if unpacked.is_dir() else folder, train=is_train) for is_train in (True, False)]
    except RuntimeError as error:
        files = f"train, test and meta of {dataset.base_folder}, or one of them was changed"
        remedy = "Download it again from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there."
        raise ValueError(f"data_folder = {str(folder)!r} does not contain {files}. {remedy}") from error
    return tuple(
        Images(torch.from_numpy(split.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(split.targets))
        for split in splits
    )


def make_synthetic(seed: int) -> tuple[Images, Images]:
    """Return (train, test): each class is a smooth random pattern, each image its class's pattern with noise.

    For a seed the same on every machine, rank and device. All classes are equally frequent.
    """
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(NUM_CLASSES, 3, 4, 4, generator=generator) * SYNTHETIC_CONTRAST
    patterns_NCHW = coarse.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
    return tuple(draw_images(patterns_NCHW, NUM_SYNTHETIC[split], generator) for split in NUM_SYNTHETIC)


def draw_images(patterns_NCHW: torch.Tensor, num_images: int, generator: torch.Generator) -> Images:
    labels = torch.arange(num_images) % NUM_CLASSES
    noise_NCHW = torch.randn(num_images, *SHAPE_CHW, generator=generator) * SYNTHETIC_NOISE
    pixels_NCHW = (128 + patterns_NCHW[labels] + noise_NCHW).round().clamp(0, 255).to(torch.uint8)
    return Images(pixels_NCHW, labels)
