"""CIFAR-100 from a folder, or a small synthetic set of the same shapes that can be learned.

Nothing is downloaded: nodes of a cluster often cannot, and 1,000 ranks should not. Both versions from
https://www.cs.toronto.edu/~kriz/cifar.html are supported: Python (cifar-100-python/train, test) and binary
(cifar-100-binary/train.bin, test.bin). Shape letters: N images, C channels, H height, W width.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from workloads import cifar_pickle

NUM_CLASSES = 100
SHAPE_CHW = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
RECORD_BYTES = 2 + IMAGE_BYTES  # binary version: coarse label, fine label, image
SPLITS = ("train", "test")
NUM_IMAGES = {"train": 50_000, "test": 10_000}
VERSIONS = {"cifar-100-python": "", "cifar-100-binary": ".bin"}  # folder: suffix of its files

# Synthetic images, 20 and 5 per class: an epoch of the small CNN takes about 3 s on one core.
NUM_SYNTHETIC = {"train": 2_000, "test": 500}
SYNTHETIC_CONTRAST = 45.0  # standard deviation of a class's pattern, in steps of 0 to 255
SYNTHETIC_NOISE = 30.0  # standard deviation per pixel

REMEDY = "Download it again from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there."


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
    train, test = (read_split(path, split) for path, split in zip(find_files(Path(folder)), SPLITS, strict=True))
    return train, test, "cifar100"


def find_files(folder: Path) -> list[Path]:
    """Return the files of train and test, in `folder` itself or in the sub-folder that unpacking makes."""
    if not folder.is_dir():
        raise ValueError(f"data_folder = {str(folder)!r} is not a folder on this rank. In a container, bind it.")
    for name, suffix in VERSIONS.items():
        for parent in (folder / name, folder):
            paths = [parent / f"{split}{suffix}" for split in SPLITS]
            missing = [path for path in paths if not path.is_file()]
            if not missing:
                return paths
            if len(missing) == 1:
                raise ValueError(f"{missing[0]} is missing, but the other file exists. {REMEDY}")
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
    expected = f"neither {' nor '.join(VERSIONS)} with train and test"
    raise ValueError(f"data_folder = {str(folder)!r} contains {expected}; it contains {found}. {REMEDY}")


def read_split(path: Path, split: str) -> Images:
    """Return the images of one file. Raises ValueError with the file, the problem and a remedy."""
    try:
        images = read_binary(path) if path.suffix == ".bin" else read_python(path)
        check(images, split)
    except ValueError as error:
        raise ValueError(f"{path} is not a CIFAR-100 file: {error}. {REMEDY}") from error
    return images


def read_binary(path: Path) -> Images:
    data = bytearray(path.read_bytes())
    if not data or len(data) % RECORD_BYTES:
        raise ValueError(f"{len(data)} bytes found, a multiple of {RECORD_BYTES} expected")
    records = torch.frombuffer(data, dtype=torch.uint8).view(-1, RECORD_BYTES)
    return Images(records[:, 2:].reshape(-1, *SHAPE_CHW), records[:, 1].long())


def read_python(path: Path) -> Images:
    found = cifar_pickle.load(path)
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__} found, a dictionary expected")
    # Keys are bytes in the original file, and strings in rewritten ones.
    entries = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in found.items()}
    data, labels = entries.get("data"), entries.get("fine_labels")
    if not isinstance(data, cifar_pickle.ByteArray) or not isinstance(labels, list):
        names = ", ".join(sorted(map(str, entries))) or "nothing"
        raise ValueError(f"{names} found, an array data and a list fine_labels expected")
    if not all(type(label) is int and 0 <= label < NUM_CLASSES for label in labels):
        raise ValueError(f"fine_labels other than integers from 0 to {NUM_CLASSES - 1}")
    if data.shape != (len(labels), IMAGE_BYTES) or len(data.data) != len(labels) * IMAGE_BYTES:
        found = f"data of shape {data.shape} with {len(data.data)} bytes for {len(labels)} labels"
        raise ValueError(f"{found}, {IMAGE_BYTES} bytes per label expected")
    return Images(data.tensor().view(-1, *SHAPE_CHW), torch.tensor(labels))


def check(images: Images, split: str) -> None:
    """Raise ValueError if images or labels are missing, or are not those of CIFAR-100."""
    if len(images.labels) != NUM_IMAGES[split]:
        raise ValueError(f"{len(images.labels)} images found, {NUM_IMAGES[split]} expected")
    if images.labels.max() >= NUM_CLASSES:
        raise ValueError(f"label {images.labels.max()} found, 0 to {NUM_CLASSES - 1} expected")
    counts = images.labels.bincount(minlength=NUM_CLASSES)
    if counts.min() != counts.max():
        expected = NUM_IMAGES[split] // NUM_CLASSES
        raise ValueError(f"{counts.min()} to {counts.max()} images per class found, {expected} expected")


def make_synthetic(seed: int) -> tuple[Images, Images]:
    """Return (train, test): each class is a smooth random pattern, each image its class's pattern with noise.

    For a seed the same on every machine, rank and device. All classes are equally frequent.
    """
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(NUM_CLASSES, 3, 4, 4, generator=generator) * SYNTHETIC_CONTRAST
    patterns_NCHW = coarse.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
    return tuple(draw_images(patterns_NCHW, NUM_SYNTHETIC[split], generator) for split in SPLITS)


def draw_images(patterns_NCHW: torch.Tensor, num_images: int, generator: torch.Generator) -> Images:
    labels = torch.arange(num_images) % NUM_CLASSES
    noise_NCHW = torch.randn(num_images, *SHAPE_CHW, generator=generator) * SYNTHETIC_NOISE
    pixels_NCHW = (128 + patterns_NCHW[labels] + noise_NCHW).round().clamp(0, 255).to(torch.uint8)
    return Images(pixels_NCHW, labels)
