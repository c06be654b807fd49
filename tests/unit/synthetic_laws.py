"""A campaign of two stacks that scale by Amdahl's law and by the USL, so that both have predictions."""

from pathlib import Path

from planted import plant
from synthetic import CLUSTER, cluster_campaign

LAWS = {"contained": (0.02, 0.0), "bound": (0.03, 0.0006)}  # sigma and kappa


def law_seconds(spec: dict, *_) -> float:
    parameters, num = spec["parameters"], spec["nodes"] * spec["gpus_per_node"]
    if spec["benchmark"] != "train_step":
        return CLUSTER.seconds(spec)
    sigma, kappa = LAWS[spec["stack"]["name"]]
    grown = 1 + sigma * (num - 1) + kappa * num * (num - 1)
    return CLUSTER.step_s[parameters["model"]] * (grown + 0.02 * (parameters["bucket_cap_mb"] == 1))


def write_lawful(folder: Path) -> Path:
    return plant(folder, cluster_campaign(3), law_seconds, noise=0.006)
