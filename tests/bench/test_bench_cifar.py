"""CIFAR-100 files, every kind of damage to them, the synthetic set, and the transforms."""

import hashlib
import pickle

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import numpy
import torch
from torchvision import datasets

from workloads import cifar, cifar_batches

pytestmark = pytest.mark.torch

NUM_IMAGES = {"train": 300, "test": 100}


def make_arrays(split: str) -> tuple:
    """Return (data (N, 3072) uint8, fine labels): every class equally often."""
    generator = numpy.random.default_rng(len(split))
    data = generator.integers(0, 256, (NUM_IMAGES[split], 3 * 32 * 32), dtype=numpy.uint8)
    return data, [int(label) for label in generator.permutation(NUM_IMAGES[split]) % 100]


@pytest.fixture
def unpacked(tmp_path, monkeypatch):
    """A folder with cifar-100-python of 300 and 100 images, whose MD5 sums count as those of the original files."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    contents = {"meta": {"fine_label_names": [f"class {number}" for number in range(100)]}}
    for split in NUM_IMAGES:
        data, labels = make_arrays(split)
        contents[split] = {"data": data, "fine_labels": labels, "coarse_labels": labels}
    sums = {}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
        sums[name] = hashlib.md5((folder / name).read_bytes(), usedforsecurity=False).hexdigest()
    for split in NUM_IMAGES:
        monkeypatch.setattr(datasets.CIFAR100, f"{split}_list", [[split, sums[split]]])
    monkeypatch.setattr(datasets.CIFAR100, "meta", datasets.CIFAR100.meta | {"md5": sums["meta"]})
    return folder


@pytest.mark.parametrize("given", ["cifar-100-python", ".", "renamed"])
def test_images_and_labels_are_those_of_the_files(unpacked, tmp_path, given):
    if given == "renamed":
        unpacked.rename(tmp_path / given)
    train, test, word = cifar.load(str(tmp_path / given), seed=1)
    assert word == "cifar100"
    for images, split in ((train, "train"), (test, "test")):
        data, labels = make_arrays(split)
        assert images.pixels_NCHW.dtype == torch.uint8
        assert torch.equal(images.pixels_NCHW, torch.from_numpy(data).view(-1, 3, 32, 32))
        assert images.labels.tolist() == labels


class Marker:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_changed_file_is_refused_and_never_loaded(unpacked, tmp_path, wording):
    (unpacked / "test").write_bytes(pickle.dumps({"data": Marker(tmp_path / "loaded"), "fine_labels": []}))
    with wording.raises(ValueError):
        cifar.load(str(tmp_path), seed=1)
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("name", ["train", "test", "meta"])
@pytest.mark.parametrize("change", ["cut", "missing"])
def test_an_incomplete_folder_is_refused(unpacked, tmp_path, name, change):
    content = (unpacked / name).read_bytes()
    (unpacked / name).unlink()
    if change == "cut":
        (unpacked / name).write_bytes(content[:-1])
    with pytest.raises(ValueError, match="data_folder = "):
        cifar.load(str(tmp_path), seed=1)


def test_a_folder_without_the_data_is_refused(tmp_path, wording):
    with wording.raises(ValueError):
        cifar.load(str(tmp_path / "absent"), seed=1)
    with wording.raises(ValueError):
        cifar.load(str(tmp_path), seed=1)


def test_the_made_up_set_follows_from_its_seed_and_has_every_class():
    train, test, word = cifar.load(None, seed=3)
    again, _, _ = cifar.load(None, seed=3)
    other, _, _ = cifar.load(None, seed=4)
    assert word == "synthetic"
    assert train.pixels_NCHW.shape == (cifar.NUM_SYNTHETIC["train"], 3, 32, 32)
    assert train.pixels_NCHW.dtype == torch.uint8
    assert torch.equal(train.pixels_NCHW, again.pixels_NCHW)
    assert not torch.equal(train.pixels_NCHW, other.pixels_NCHW)
    for images, split in ((train, "train"), (test, "test")):
        assert images.labels.bincount().tolist() == [cifar.NUM_SYNTHETIC[split] // 100] * 100


def test_the_nearest_mean_of_the_training_images_tells_the_made_up_classes_apart():
    train, test, _ = cifar.load(None, seed=1)
    means = torch.stack([train.pixels_NCHW[train.labels == label].float().mean(0) for label in range(100)])
    distances = torch.cdist(test.pixels_NCHW.float().flatten(1), means.flatten(1))
    assert (distances.argmin(1) == test.labels).float().mean() > 0.99


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_shards_of_an_epoch_are_disjoint_and_change_with_epoch_and_seed(world_size):
    num_used = 10 // world_size

    def orders(seed: int, epoch: int) -> list[list[int]]:
        draws = [cifar_batches.draw_epoch(seed, epoch, rank, world_size, 10, num_used) for rank in range(world_size)]
        return [drawn.order.tolist() for drawn in draws]

    found = orders(1, 0)
    flat = [index for order in found for index in order]
    assert [len(order) for order in found] == [num_used] * world_size
    assert len(set(flat)) == len(flat)
    assert set(flat) <= set(range(10))
    assert found == orders(1, 0)
    assert found != orders(1, 1)
    assert found != orders(2, 0)


def test_draws_do_not_depend_on_the_size_of_a_batch():
    train, _, _ = cifar.load(None, seed=1)
    draws = cifar_batches.draw_epoch(1, 0, 0, 1, len(train.labels), 12)
    small, large = ([*cifar_batches.batches(train, draws, size)] for size in (3, 12))
    assert len(small) == 4
    assert torch.equal(torch.cat([images for images, _ in small]), large[0][0])
    assert torch.equal(torch.cat([labels for _, labels in small]), large[0][1])


def test_ranks_draw_other_crops():
    first, second = (cifar_batches.draw_epoch(1, 0, rank, 2, 100, 50) for rank in range(2))
    assert not torch.equal(first.top, second.top)
    assert {*first.top.tolist(), *second.left.tolist()} == set(range(9))


def test_crop_and_flip_are_those_of_slicing_each_image():
    generator = torch.Generator().manual_seed(1)
    pixels_NCHW = torch.randint(256, (20, 3, 32, 32), generator=generator, dtype=torch.uint8)
    draws = cifar_batches.draw_epoch(1, 0, 0, 1, 20, 20)
    found = cifar_batches.crop_and_flip(pixels_NCHW, draws.top, draws.left, draws.is_flipped)
    assert draws.is_flipped.any()
    assert not draws.is_flipped.all()
    for image, top, left, is_flipped, cut in zip(
        pixels_NCHW, draws.top, draws.left, draws.is_flipped, found, strict=True
    ):
        expected = torch.nn.functional.pad(image, [4] * 4)[:, top : top + 32, left : left + 32]
        assert torch.equal(cut, expected.flip(2) if is_flipped else expected)


def test_normalised_pixels_have_the_published_mean_and_deviation():
    pixels_NCHW = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    found = cifar_batches.normalize(pixels_NCHW)
    assert torch.allclose(found[0].flatten(), torch.tensor([-0.5071 / 0.2675, -0.4867 / 0.2565, -0.4408 / 0.2761]))
    assert torch.allclose(found[1].flatten(), torch.tensor([0.4929 / 0.2675, 0.5133 / 0.2565, 0.5592 / 0.2761]))
