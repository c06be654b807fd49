"""The record of one cell, as rank 0 writes it (docs/contracts.md, Record)."""

from launch_file import utc_now

# What a cell that was not measured leaves open.
MEASURED_FIELDS = (
    "elapsed_ns",
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


def build_record(
    cell: dict, repeat: int | None, status: str, phase: str | None, cause: str | None, measured: dict
) -> dict:
    """Return the record. `cell` is a cell of the launch request; `measured` holds what is known of MEASURED_FIELDS."""
    return {
        "kind": "record",
        "cell": cell["id"],
        "spec": cell["spec"],
        "repeat": repeat,
        "command": cell["command"],
        "writer": "rank",
        "status": status,
        "phase": phase,
        "cause": cause,
        "time_utc": utc_now(),
        **{name: measured.get(name) for name in MEASURED_FIELDS},
    }
