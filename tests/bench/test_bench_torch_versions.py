"""Versions of torch: what differs between them is in one module, and older ones are asked for no more than they have."""

import re

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


def test_fsdp_on_a_cpu_is_refused_where_torch_lacks_it(monkeypatch, wording):
    monkeypatch.setattr(torch_versions, "version", lambda: torch_versions.OLDEST)
    with wording.raises(ValueError, torch=torch.__version__):
        torch_versions.fully_shard("cpu")
    assert callable(torch_versions.fully_shard("cuda"))


@pytest.mark.parametrize(("version", "num_collections"), [((2, 4), 1), ((2, 15), 0)])
def test_a_group_of_gloo_ends_by_its_own_object_where_torch_would_keep_the_lock(monkeypatch, version, num_collections):
    """Else a thread of gloo that releases a tensor, and the end of the group, wait for each other."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(torch_versions, "version", lambda: version)
    collections = []
    ranks, store = peers.Ranks(0, 1, 0, torch.device("cpu")), dist.HashStore()
    peers.begin_group(ranks, "gloo", store, "a")
    monkeypatch.setattr(torch_versions.gc, "collect", lambda: collections.append(dist.is_initialized()))
    peers.end_group()
    assert not dist.is_initialized()
    assert collections == [False] * num_collections
