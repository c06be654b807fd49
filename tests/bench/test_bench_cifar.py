"""CIFAR-100 files in both versions, every kind of damage to them, the synthetic set, and the transforms."""

import contextlib
import io
import pickle
import pickletools
import re

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

import numpy
import torch

from workloads import cifar, cifar_batches, cifar_pickle

pytestmark = pytest.mark.torch

SMALL = {"train": 300, "test": 100}


@pytest.fixture(autouse=True)
def small_set(monkeypatch):
    """Files of 300 and 100 images count as complete."""
    monkeypatch.setattr(cifar, "NUM_IMAGES", SMALL)


def make_arrays(split: str) -> tuple:
    """Return (data (N, 3072) uint8, fine labels): every class equally often."""
    generator = numpy.random.default_rng(len(split))
    data = generator.integers(0, 256, (SMALL[split], cifar.IMAGE_BYTES), dtype=numpy.uint8)
    return data, [int(label) for label in generator.permutation(SMALL[split]) % 100]


def write_python(folder, protocol: int = 4, **changes: object) -> None:
    (folder / "cifar-100-python").mkdir(parents=True)
    for split in cifar.SPLITS:
        data, labels = make_arrays(split)
        entries = {"data": data, "fine_labels": labels, "coarse_labels": labels, "batch_label": "made up"} | changes
        (folder / "cifar-100-python" / split).write_bytes(pickle.dumps(entries, protocol=protocol))


def write_binary(folder) -> None:
    (folder / "cifar-100-binary").mkdir(parents=True)
    for split in cifar.SPLITS:
        data, labels = make_arrays(split)
        fine = numpy.array(labels, dtype=numpy.uint8)[:, None]
        records = numpy.concatenate([fine // 5, fine, data], axis=1)
        (folder / "cifar-100-binary" / f"{split}.bin").write_bytes(records.tobytes())


def assert_is_what_was_written(folder) -> None:
    train, test, word = cifar.load(str(folder), seed=1)
    assert word == "cifar100"
    for images, split in ((train, "train"), (test, "test")):
        data, labels = make_arrays(split)
        assert images.pixels_NCHW.dtype == torch.uint8
        assert torch.equal(images.pixels_NCHW, torch.from_numpy(data).view(-1, 3, 32, 32))
        assert images.labels.tolist() == labels


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_files_that_numpy_pickled_are_read_without_numpy(tmp_path, protocol):
    write_python(tmp_path, protocol)
    assert_is_what_was_written(tmp_path)
    assert_is_what_was_written(tmp_path / "cifar-100-python")


def as_python_2(data: bytes, num_rows: int, labels: list[int]) -> bytes:
    """Write what Python 2's cPickle wrote into CIFAR's own files: keys and array bytes as STRING opcodes of bytes.

    Written by hand after pickletools' description of protocol 2 and numpy 1's __reduce__; the real file was not at hand.
    """

    def text(value: bytes) -> bytes:
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + len(value).to_bytes(4, "little") + value

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    element = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    element += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    shape = number(num_rows) + number(cifar.IMAGE_BYTES) + b"\x86"
    array += b"(" + number(1) + shape + element + b"\x89" + text(data) + b"tb"
    entries = text(b"fine_labels") + b"](" + b"".join(map(number, labels)) + b"e" + text(b"data") + array
    return b"\x80\x02}(" + entries + b"u."


def test_files_of_python_2_are_read(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()
    for split in cifar.SPLITS:
        data, labels = make_arrays(split)
        content = as_python_2(data.tobytes(), len(data), labels)
        pickletools.dis(content, out=io.StringIO())  # it is a valid pickle
        assert numpy.array_equal(pickle.loads(content, encoding="bytes")[b"data"], data)
        (tmp_path / "cifar-100-python" / split).write_bytes(content)
    assert_is_what_was_written(tmp_path)


def test_binary_files_are_read(tmp_path):
    write_binary(tmp_path)
    assert_is_what_was_written(tmp_path)
    assert_is_what_was_written(tmp_path / "cifar-100-binary")


class Bomb:
    def __reduce__(self):
        return eval, ("1/0",)


@pytest.mark.parametrize(
    "changes",
    [
        {"fine_labels": Bomb()},
        {"data": None},
        {"fine_labels": list(range(100))},
        {"fine_labels": [100] * 300},
        {"fine_labels": [True] * 300},
        {"fine_labels": [7] * 300},
        {"data": numpy.zeros((300, 3072), numpy.int64)},
        {"data": numpy.zeros((300, 3072), numpy.uint8, "F")},
        {"data": numpy.zeros((300, 3071), numpy.uint8)},
        {"data": numpy.array([[None]])},
        {"data": numpy.zeros((100, 3072), numpy.uint8), "fine_labels": list(range(100))},
    ],
)
def test_a_wrong_python_file_is_refused_with_its_name_and_what_to_do(tmp_path, changes, wording):
    write_python(tmp_path, **changes)
    with wording.raises(ValueError):
        cifar.load(str(tmp_path), seed=1)


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_cut_python_file_is_refused(tmp_path, share, protocol, wording):
    write_python(tmp_path, protocol)
    path = tmp_path / "cifar-100-python" / "train"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ValueError, match="CIFAR-100") as refusal:
        cifar.load(str(tmp_path), seed=1)
    wording(re.sub("Error: .*[.] Download", "Error: <of pickle>. Download", str(refusal.value)))


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_flipped_bits_of_a_pickle_are_read_or_refused(tmp_path):
    """Never another exception than ValueError."""
    data, labels = make_arrays("test")
    content = bytearray(pickle.dumps({"data": data[:1], "fine_labels": labels}, protocol=2))
    head = list(range(400)) + list(range(len(content) - 300, len(content)))
    path = tmp_path / "file"
    for position in head:
        for bit in (position % 8, (position + 3) % 8):
            broken = bytearray(content)
            broken[position] ^= 1 << bit
            path.write_bytes(broken)
            with contextlib.suppress(ValueError):
                cifar_pickle.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "922199 bytes found, a multiple of 3074 expected"),
        (lambda content: b"", "0 bytes found"),
        (lambda content: content[: 200 * 3074], "200 images found, 300 expected"),
        (lambda content: b"\x00\xff" + content[2:], "label 255 found, 0 to 99 expected"),
        (
            lambda content: b"\x00\x01" + content[2:3074] + b"\x00\x01" + content[3076:],
            "images per class found, 3 expected",
        ),
    ],
)
def test_a_wrong_binary_file_is_refused(tmp_path, change, message):
    write_binary(tmp_path)
    path = tmp_path / "cifar-100-binary" / "train.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        cifar.load(str(tmp_path), seed=1)


def test_a_folder_without_the_data_is_refused(tmp_path, wording):
    with wording.raises(ValueError):
        cifar.load(str(tmp_path / "absent"), seed=1)
    with wording.raises(ValueError):
        cifar.load(str(tmp_path), seed=1)
    (tmp_path / "cifar-100-python.tar.gz").touch()
    with pytest.raises(ValueError, match=r"it contains cifar-100-python.tar.gz"):
        cifar.load(str(tmp_path), seed=1)
    write_binary(tmp_path)
    (tmp_path / "cifar-100-binary" / "test.bin").unlink()
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
