"""The images of a rank in an epoch, their order, and their crops, flips and normalization, on the device.

All random draws of an epoch are made at once, by image, so that they do not depend on the batch size; on the CPU, so
that they are the same for every device. Shape letters: N images, C channels, H height, W width.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from workloads.cifar import Images

# Mean and standard deviation of CIFAR-100's training images by channel, of values 0 to 1, as in the published run
# (mryab/efficient-dl-systems, week 3, ddp_cifar100.py).
MEAN = (0.5071, 0.4867, 0.4408)
STD = (0.2675, 0.2565, 0.2761)

PADDING = 4  # pixels on each side before the crop to the original size: He et al. 2015, section 4.2


@dataclass
class Draws:
    """One rank's epoch, a row for each image (N,). order: indices of images; top, left: of the crop, 0 to 8."""

    order: torch.Tensor
    top: torch.Tensor
    left: torch.Tensor
    is_flipped: torch.Tensor

    def to(self, device: torch.device) -> "Draws":
        return Draws(*(drawn.to(device) for drawn in (self.order, self.top, self.left, self.is_flipped)))


def seed_for(*parts: object) -> int:
    """Return a seed that differs if any part does: sums of seed, epoch and rank would collide."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")


def draw_epoch(seed: int, epoch: int, rank: int, world_size: int, num_images: int, num_used: int) -> Draws:
    """Draw a rank's epoch: its `num_used` images, disjoint from other ranks', and a crop and a flip for each."""
    shuffled = torch.randperm(num_images, generator=torch.Generator().manual_seed(seed_for(seed, "order", epoch)))
    generator = torch.Generator().manual_seed(seed_for(seed, "transforms", epoch, rank))
    top, left = torch.randint(2 * PADDING + 1, (2, num_used), generator=generator)
    is_flipped = torch.rand(num_used, generator=generator) < 0.5
    return Draws(shuffled[rank::world_size][:num_used], top, left, is_flipped)


def batches(images: Images, draws: Draws, batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (images as float (N, C, H, W), labels (N,)). The number of draws is a multiple of batch_size."""
    for begin in range(0, len(draws.order), batch_size):
        part = slice(begin, begin + batch_size)
        chosen = draws.order[part]
        crops_NCHW = crop_and_flip(
            images.pixels_NCHW[chosen], draws.top[part], draws.left[part], draws.is_flipped[part]
        )
        yield normalize(crops_NCHW), images.labels[chosen]


def crop_and_flip(
    pixels_NCHW: torch.Tensor, top: torch.Tensor, left: torch.Tensor, is_flipped: torch.Tensor
) -> torch.Tensor:
    """Return each image padded with black, cropped at (top, left) to its original size, and perhaps flipped."""
    num_images, _, height, width = pixels_NCHW.shape
    padded_NCHW = torch.nn.functional.pad(pixels_NCHW, [PADDING] * 4)
    rows = top[:, None] + torch.arange(height, device=top.device)  # (N, H)
    columns = torch.arange(width, device=left.device).expand(num_images, -1)  # (N, W)
    columns = left[:, None] + torch.where(is_flipped[:, None], columns.flip(1), columns)
    image = torch.arange(num_images, device=top.device)
    cut_NHWC = padded_NCHW.permute(0, 2, 3, 1)[image[:, None, None], rows[:, :, None], columns[:, None, :]]
    return cut_NHWC.permute(0, 3, 1, 2).contiguous()


def normalize(pixels_NCHW: torch.Tensor) -> torch.Tensor:
    """Return float32 values with mean 0 and deviation 1 over CIFAR-100's training images."""
    mean, std = (torch.tensor(values, device=pixels_NCHW.device).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (pixels_NCHW.float() / 255 - mean) / std
