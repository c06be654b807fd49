"""Results of 164 cells on two stacks with failures, for the size of the report."""

from pathlib import Path

from synthetic import CLUSTER, cluster_campaign, write_results


def write_stacks(folder: Path) -> Path:
    """Write a results folder: ResNet-101 fails on one stack at the largest shape, and one launch times out."""
    campaign = cluster_campaign(repeats=6)
    failing = [cell["id"] for cell in campaign["cells"] if _fails(cell["spec"])]
    cause = "rank {} on n3: RuntimeError: NCCL error: unhandled system error"
    faults = {
        (cell, repeat): ("failed", "measure", cause.format(3 * repeat)) for cell in failing for repeat in range(6)
    }
    faults[(campaign["cells"][40]["id"], 1)] = ("timeout", "measure", "no record after 60 s")
    return write_results(folder, campaign, CLUSTER, faults)


def _fails(spec: dict) -> bool:
    return (spec["parameters"].get("model"), spec["stack"]["name"], spec["nodes"]) == ("resnet101", "bound", 8)
