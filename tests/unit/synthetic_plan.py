"""A plan of a campaign that has partly run and was edited since: it contains each state of a cell and each reason."""

from pathlib import Path

from campaign_files import plan, small, write_launch

from regatta.plan.plan import Plan, write_frozen

NANO = 1_000_000_000


def campaign(models: list[str], sizes: list[str]) -> dict:
    """Return the small campaign with two stacks, these models and these messages.

    Cells of each stack: on 1 rank none, ddp-1 and ddp-25 of each model; on 2 ranks ddp-1 and ddp-25 of each, and the
    messages. Skipped: none on 2 ranks, the messages on 1 rank.
    """
    data = small(stacks={"host": {"kind": "host"}, "tuned": {"kind": "host", "env": {"OMP_NUM_THREADS": "1"}}})
    data["benchmarks"][1]["parameters"]["message_bytes"] = sizes
    data["benchmarks"][0]["parameters"]["model"] = models
    return data


def status(cell: str, repeat: int) -> str | None:
    """Return what became of a cell in a repeat; None for no record."""
    if "-ddp-1-n01g01" in cell:
        return "failed" if repeat == 1 else "ok"
    if "-ddp-25-" in cell:
        return None if repeat == 2 else "ok"
    if "-4096-" in cell:
        return "node_failure"
    return None if "all_reduce" in cell else "ok"


def partly_finished(folder: Path, *, is_retry: bool = False) -> Plan:
    """Return a plan with a second model, which is new, and two messages: a node failed at one, one was 16 MiB before."""
    first = plan(folder, campaign(["resnet18"], ["4KiB", "16MiB"]))
    write_frozen(first)
    for batch in first.batches:
        for index, launch in enumerate(batch.launches):
            seen = [(cell.id, status(cell.id, launch.repeat)) for cell in launch.cells]
            records = [
                {"cell": cell, "status": s, "cause": None if s == "ok" else f"cause of {s}", "elapsed_ns": 4 * NANO}
                for cell, s in seen
                if s
            ]
            write_launch(first.results, f"{batch.id}-l{index:03d}-a00", launch.repeat, records, stack=launch.stack)
    return plan(folder, campaign(["resnet18", "alexnet"], ["4KiB", "8MiB"]), is_retry=is_retry)
