"""The lines of a launch file that the driver writes, because the ranks that should have are dead."""

from regatta.running.causes import Cause
from regatta.store.launch_files import utc_now

FROM_REQUEST = (
    "schema",
    "campaign",
    "batch",
    "launch",
    "generation",
    "repeat",
    "stack",
    "nodes",
    "gpus_per_node",
    "device",
    "argv",
    "git",
)
NOT_MEASURED = (
    "setup_ns",
    "warmup",
    "sampling",
    "samples_ns",
    "slowest_rank_samples_ns",
    "rank_quantiles_ns",
    "windows",
    "parts_ns",
    "checks",
    "values",
    "memory",
    "other_ranks",
)


def launch_line(request: dict) -> dict:
    """The first line of a launch file whose ranks never wrote one: its environment is unknown."""
    known = {key: request[key] for key in FROM_REQUEST}
    order = [cell["id"] for cell in request["cells"]]
    return {"kind": "launch", **known, "time_utc": utc_now(), "order": order, "environment": None}


def record_line(request: dict, cell: str, cause: Cause, elapsed_ns: int | None) -> dict:
    """The record of a cell that killed its ranks. Everything measured is None: unknown is never 0."""
    entry = next(c for c in request["cells"] if c["id"] == cell)
    return {
        "kind": "record",
        "cell": cell,
        "spec": entry["spec"],
        "repeat": request["repeat"],
        "command": entry["command"],
        "writer": "driver",
        "status": cause.status,
        "phase": cause.phase,
        "cause": cause.text,
        "time_utc": utc_now(),
        "elapsed_ns": elapsed_ns,
        **dict.fromkeys(NOT_MEASURED),
    }


def stopped_line(reason: str) -> dict:
    return {"kind": "stopped", "signal": reason, "time_utc": utc_now()}
