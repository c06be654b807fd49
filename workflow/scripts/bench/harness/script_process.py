"""A rank's process as a user's script expects it: one that torchrun has started with the script."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from harness import peers, script_files
from harness.peers import Ranks

# Modules of Regatta that a script must not find in place of modules with the same name.
HIDDEN = ("harness", "algorithms", "workloads", "script")


@contextlib.contextmanager
def standing_in(wanted: dict, ranks: Ranks, ranks_per_node: int) -> Iterator[None]:
    """Make this process look like one that torchrun has started with the script, in the script's folder."""
    os.environ |= rank_variables(ranks, ranks_per_node)
    folder = str(Path(wanted["path"]).parent)
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in HIDDEN}
    before = sys.argv, sys.path, os.getcwd()
    sys.argv = [wanted["path"], *wanted["arguments"]]
    sys.path = [folder, *(path for path in sys.path if Path(path) != script_files.BENCH)]
    os.chdir(folder)
    try:
        yield
    finally:
        sys.argv, sys.path = before[:2]
        os.chdir(before[2])
        sys.modules.update(hidden)


def rank_variables(ranks: Ranks, ranks_per_node: int) -> dict[str, str]:
    """Return the variables of torchrun. With them the script's group uses Regatta's store, as if torchrun hosted it."""
    address, port = peers.meeting_point(dict(os.environ))
    has_store = bool(address and port)
    if not has_store:  # one rank by hand
        with socket.create_server(("127.0.0.1", 0)) as free:
            address, port = "127.0.0.1", free.getsockname()[1]
    node = (ranks.rank - ranks.local_rank) // ranks_per_node
    return {
        "RANK": str(ranks.rank),
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_RANK": str(ranks.local_rank),
        "LOCAL_WORLD_SIZE": str(ranks_per_node),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(ranks.world_size // ranks_per_node),
        "ROLE_RANK": str(ranks.rank),
        "ROLE_WORLD_SIZE": str(ranks.world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": os.environ.get("TORCHELASTIC_RUN_ID", "regatta"),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": str(has_store),
    }
