"""The lines of a launch file that the driver writes: for ranks that died, and for programs that write none."""

from regatta.run.causes import Cause
from regatta.store.launch_files import utc_now

# Fields of lines that are copied from the launch request, and those that are null if nothing was measured.
FROM_REQUEST = "schema campaign batch launch generation repeat stack nodes gpus_per_node device argv git".split()
NOT_MEASURED = (
    "setup_ns warmup sampling samples_ns slowest_rank_samples_ns rank_quantiles_ns windows parts_ns checks "
    "values memory other_ranks"
).split()


def first_line(request: dict, environment: dict | None) -> dict:
    """Return the first line of a launch file. environment: None if it is unknown."""
    known = {key: request[key] for key in FROM_REQUEST}
    order = [cell["id"] for cell in request["cells"]]
    return {"kind": "launch", **known, "time_utc": utc_now(), "order": order, "environment": environment}


def record_line(request: dict, cell: str, cause: Cause, elapsed_ns: int | None) -> dict:
    """Return a record of the driver, as of a cell that killed its ranks.

    Everything measured is None: unknown is never 0.
    """
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
        "host_load": cause.host_load,
    }
