"""GPU types and generic resources: what the plan says sbatch and srun request, and which options a user may add."""

import shlex

import pytest
from campaign_files import HOSTILE, SLURM, TEXT, collectives, load, message

from regatta.plan.plan import plan_campaign, plan_json
from regatta.plan.plan_page import job_requests

HOST = {"kind": "host", "python": "/bin/ls"}
GPU_OPTION = ("--gres", "--gpus")
NONE = {"gpu_request": "none"}


def requests(folder, site, device="cuda", **changes) -> dict[str, tuple[list[str], list[str]]]:
    """Return what sbatch and srun request of GPUs and generic resources, by node type, for the shape 1x2."""
    backend = {"cuda": ["nccl"], "cpu": ["gloo"]}[device]
    data = collectives(4096, stacks={"a": HOST}, device=device, backend=backend, **changes)
    plan = plan_campaign(load(folder, data, SLURM | site), folder / "results")
    jobs = {kind.strip(" ()"): text for (*_, kind), text in job_requests(plan).items()}
    steps = {(name.partition("-")[2]): text for name, text in plan_json(plan)["stacks"].items()}

    def of(text):
        return [word for word in shlex.split(text) if word.startswith(GPU_OPTION)]

    return {kind: (of(jobs[kind]), of(steps.get(kind, ""))) for kind in jobs}


@pytest.mark.parametrize(
    ("site", "job", "step"),
    [
        ({"gpu_type": "a100"}, ["--gpus-per-node=a100:2"], ["--gpus-per-node=a100:2"]),
        ({"gpu_type": "a100", "gpu_request": "gres"}, ["--gres=gpu:a100:2"], ["--gres=gpu:a100:2"]),
        (
            {"gpu_type": "1g.5gb", "gpu_request": "gres", "gres": ["nvme:1", "lscratch:100G"]},
            ["--gres=gpu:1g.5gb:2,nvme:1,lscratch:100G"],
            ["--gres=gpu:1g.5gb:2,nvme:1,lscratch:100G"],
        ),
        ({"gres": ["nvme"]}, ["--gpus-per-node=2", "--gres=nvme"], ["--gpus-per-node=2", "--gres=nvme"]),
        # srun inherits what the job has, unless it requests GPUs itself.
        (NONE | {"gres": ["nvme:1"]}, ["--gres=nvme:1"], []),
        (NONE | {"gres": ["gpu:a100:4", "nvme:1"]}, ["--gres=gpu:a100:4,nvme:1"], []),
        (NONE | {"sbatch": ["--gres=gpu:a100:4"]}, ["--gres=gpu:a100:4"], []),
        # sbatch keeps only the last --gres: the user's are merged into one.
        (
            NONE | {"gres": ["nvme:1"], "sbatch": ["--gres=gpu:a100:4", "--switches=1", "--gres=craynetwork:2"]},
            ["--gres=nvme:1,gpu:a100:4,craynetwork:2"],
            [],
        ),
        ({"gpu_request": "gres", "sbatch": ["--gres=nvme:1"]}, ["--gres=gpu:2,nvme:1"], ["--gres=gpu:2,nvme:1"]),
        (NONE | {"sbatch": ["--gpus-per-node=a100:4"]}, ["--gpus-per-node=a100:4"], []),
        (NONE | {"sbatch": ["-G8", "--gpus=8"]}, ["--gpus=8"], []),
        (NONE | {"srun": ["--gpus-per-node=4"]}, [], ["--gpus-per-node=4"]),
        ({"sbatch": ["--tres-per-task=cpu=8"]}, ["--gpus-per-node=2"], ["--gpus-per-node=2"]),
        (NONE | {"sbatch": ["--gpus-per-task=1"]}, ["--gpus-per-task=1"], []),
    ],
)
def test_gpus_of_a_type_and_generic_resources_are_requested(folder, site, job, step):
    assert requests(folder, site) == {"": (job, step)}


def test_a_campaign_on_cpus_requests_no_gpus_of_a_type_but_the_other_resources(folder):
    assert requests(folder, {"gpu_type": "a100", "gres": ["nvme:1"]}, "cpu") == {"": (["--gres=nvme:1"], [])}


def test_each_node_type_has_its_gpus_and_options_and_account(folder):
    types = {
        "new": {"gpu_type": "h100", "gres": [], "account": "new", "qos": "fast", "srun": ["--cpu-bind=none"]},
        "old": {"gpu_request": "none", "account": None, "constraint": "v100", "srun": ["--gres=gpu:v100:2"]},
    }
    site = {"gpu_request": "gres", "gpu_type": "a100", "gres": ["nvme:1"], "account": "all", "qos": "slow"}
    site |= {"srun": ["--cpu-bind=cores"], "node_types": types}
    shapes = [{"nodes": [1], "gpus_per_node": [2], "node_type": kind} for kind in types]
    shapes.append({"nodes": [1], "gpus_per_node": [2]})
    assert requests(folder, site, shapes=shapes) == {
        "": (["--gres=gpu:a100:2,nvme:1"], ["--gres=gpu:a100:2,nvme:1"]),
        "new": (["--gres=gpu:h100:2"], ["--gres=gpu:h100:2"]),
        "old": (["--gres=nvme:1"], ["--gres=gpu:v100:2"]),
    }
    data = collectives(4096, stacks={"a": HOST}, shapes=shapes)
    plan = plan_campaign(load(folder, data, SLURM | site), folder / "results")
    words = {kind.strip(" ()"): shlex.split(text) for (*_, kind), text in job_requests(plan).items()}
    named = {kind: {o for o in options if o.startswith(("--account", "--qos"))} for kind, options in words.items()}
    assert named == {
        "": {"--account=all", "--qos=slow"},
        "new": {"--account=new", "--qos=fast"},
        "old": {"--qos=slow"},
    }
    assert "--constraint=v100" in words["old"]
    srun = {name: stack["srun"] for name, stack in plan.campaign.data["stacks"].items()}
    assert srun == {"a": ["--cpu-bind=cores"], "a-new": ["--cpu-bind=none"], "a-old": ["--gres=gpu:v100:2"]}


@pytest.mark.parametrize(
    "site",
    [
        {"sbatch": ["--gres=gpu:a100:4"]},
        {"sbatch": ["--gres=nvme:1,gpu:4"], "gpu_request": "gres"},
        {"sbatch": ["--gres=gres/gpu:4"]},
        {"sbatch": ["-G4"]},
        {"sbatch": ["--gpus-per-node=4"], "gpu_request": "gres"},
        {"sbatch": ["--gpus-per-task=1"]},
        {"sbatch": ["--gpus-per-socket=2"], "gpu_request": "gres"},
        {"sbatch": ["--tres-per-node=gres/gpu:4"]},
        {"sbatch": ["--tres-per-task=cpu=8,gres/gpu:a100=1"]},
        {"sbatch": ["--tres-per-n=nvme:1,gres:gpu:4"]},
        {"srun": ["--gres=nvme:1"]},
        {"gres": ["gpu:a100:4"]},
        {"gres": ["nvme:1,scratch:2"]},
        {"gpu_type": "a100", "gpu_request": "none"},
        {"gpu_type": "a100:4"},
        {"node_types": {"h100": {"gpu_request": "gres"}}, "gpu_request": "none", "sbatch": ["--gres=gpu:4"]},
        {"node_types": {"h100": {"srun": ["--pty", "-n4"]}}},
        {"node_types": {"h100": {"gres": ["gpu:8"]}}},
        {"node_types": {"h100": {"gpu_type": "h100", "gpu_request": "none"}}},
    ],
)
def test_what_regatta_requests_itself_is_refused(folder, site, wording):
    said = message(folder, TEXT, SLURM | site)
    assert said.startswith("clusters/tiny.yaml:")
    wording(said)


def test_a_node_type_without_gpus_needs_no_other_type_of_gpu(folder):
    site = {"gpu_type": "a100", "node_types": {"cpu": NONE | {"gpus_per_node": 0}}}
    assert load(folder, collectives(4096, stacks={"a": HOST}), SLURM | site).cluster["gpu_type"] == "a100"


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_types_and_resources_are_refused(folder, value):
    text = TEXT.replace("{kind: host}", "{kind: host, python: /bin/ls}")
    assert "gpu_type = " in message(folder, text, SLURM | {"gpu_type": value})
    assert "gres[0] = " in message(folder, text, SLURM | {"gres": [value]})


def test_without_the_keys_jobs_are_what_they_were(folder):
    data = collectives(4096, stacks={"a": HOST})
    plans = [
        plan_campaign(load(folder, data, SLURM | site), folder / "results")
        for site in ({}, {"gpu_type": None, "gres": []}, {"gpu_type": "a100"})
    ]
    cells = [[planned.cell.id for planned in plan.cells] for plan in plans]
    assert cells[0] == cells[1] == cells[2]
    batches = [[batch.id for batch in plan.batches] for plan in plans]
    assert batches[0] == batches[1]
    assert batches[0] != batches[2]
