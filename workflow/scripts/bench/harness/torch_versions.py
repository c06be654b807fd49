"""What differs between versions of torch: names that moved, private names, options. Tested versions: docs/figures.md.

Ranks run with torch 2.4 and newer. Each function imports when it is called: a collective needs none of them.
"""

import contextlib
import gc
from collections.abc import Iterator

import torch
import torch.distributed as dist

OLDEST = (2, 4)
FSDP_ON_CPU = (2, 7)
GIL_RELEASED = (2, 8)


def version() -> tuple[int, int]:
    """Return major and minor version of torch."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def fully_shard(device_type: str):
    """Return torch's FSDP2: public since 2.6, on CPUs since FSDP_ON_CPU. Raises ValueError for a device without it."""
    if device_type == "cpu" and version() < FSDP_ON_CPU:
        needed = f"fully_shard needs a GPU before torch {'.'.join(map(str, FSDP_ON_CPU))}; this is {torch.__version__}"
        raise ValueError(f"strategy = 'fsdp': {needed}. Use another strategy, or a newer torch.")
    if version() >= (2, 6):
        from torch.distributed.fsdp import fully_shard
    else:
        from torch.distributed._composable.fsdp import fully_shard
    return fully_shard


def flop_counting() -> tuple[type, dict, object]:
    """Return TorchDispatchMode (private module), the formulas by operator, and that of attention; since 2.1."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry, sdpa_flop_count

    return TorchDispatchMode, flop_registry, sdpa_flop_count


@contextlib.contextmanager
def ending_gloo() -> Iterator[None]:
    """Release the GIL while a gloo group ends within the context.

    Otherwise, before torch 2.8 (GIL_RELEASED), the destructor joins gloo's threads while holding the GIL, in
    destroy_process_group or in a later garbage collection, and about 1 in 1,000 groups deadlocks: a thread needs the
    GIL to release the last reference to a tensor. The destructor of gloo's backend object releases the GIL, so its
    reference has to be the last one.
    """
    if version() >= GIL_RELEASED or dist.get_backend() != "gloo":
        yield
        return
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    yield
    gc.collect()
    del backend


def store_options() -> dict[str, bool]:
    """Return the options with which TCPStore accepts a listening socket: before 2.8 only without libuv
    (pytorch/pytorch#150215)."""
    return {} if version() >= (2, 8) else {"use_libuv": False}
