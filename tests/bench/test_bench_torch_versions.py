"""Versions of torch: what differs between them is in one module, and older ones are asked for no more than they have."""

import gc
import re
import weakref

import pytest
from bench_cells import BENCH

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from harness import peers, torch_versions

pytestmark = pytest.mark.torch

# Names that moved, that are private, or that are newer than the oldest torch.
MOVED = re.compile(
    r"torch\.distributed\.(_composable|fsdp)|torch\.utils\._|torch\.utils\.flop_counter|group_peer=|use_libuv"
)


def test_what_differs_between_versions_is_named_in_one_module():
    found = {path.name for path in BENCH.rglob("*.py") if MOVED.search(path.read_text())}
    assert found == {"torch_versions.py"}


@pytest.mark.parametrize(
    ("version", "options"),
    [((2, 4), {"use_libuv": False}), ((2, 7), {"use_libuv": False}), ((2, 8), {}), ((2, 15), {})],
)
def test_a_listening_socket_excludes_libuv_before_torch_2_8(monkeypatch, version, options):
    monkeypatch.setattr(torch_versions, "version", lambda: version)
    assert torch_versions.store_options() == options


@pytest.mark.parametrize("text", ["2.4.1+cu121", "2.15.0a0+git1234", "2.11.0"])
def test_versions_are_read_from_torch(monkeypatch, text):
    monkeypatch.setattr(torch, "__version__", text)
    assert torch_versions.version() == (2, int(text.split(".")[1]))


def test_fsdp_on_a_cpu_is_refused_where_torch_lacks_it(monkeypatch):
    monkeypatch.setattr(torch_versions, "version", lambda: torch_versions.OLDEST)
    with pytest.raises(ValueError, match="strategy = 'fsdp': fully_shard needs a GPU before torch"):
        torch_versions.fully_shard("cpu")
    assert callable(torch_versions.fully_shard("cuda"))


def test_tensors_of_the_last_collectives_outlive_the_group():
    """Else a thread of gloo may be the last to release one, while the end of the group waits for that thread."""
    ranks = peers.Ranks(0, 1, 0, torch.device("cpu"))
    tensors = []

    def all_reduce(tensor, op):
        tensors.append(weakref.ref(tensor))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", all_reduce)
        patch.setattr(dist, "get_backend", lambda: "gloo")
        for number in range(20):
            assert peers.largest_over_ranks([number], ranks) == [number]
    peers.end_group()
    gc.collect()
    assert [tensor() is not None for tensor in tensors] == [False] * 4 + [True] * 16
