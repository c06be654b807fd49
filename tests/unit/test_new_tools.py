"""A new container runtime or scheduler is one struct in a dict: no other code of the driver changes."""

import dataclasses

from campaign_files import collectives, fake_sif, load

from regatta.campaign.expansion import expand
from regatta.launchers import LAUNCHERS, launch_argv
from regatta.launchers.base import Geometry, Jobs, Launcher
from regatta.launchers.local import LocalChecks, LocalQueue, LocalRanks
from regatta.plan.plan import make_plan, plan_json
from regatta.plan.plan_page import plan_text
from regatta.runtimes import RUNTIMES


def test_a_new_runtime_starts_images(tmp_path, monkeypatch):
    def prefix(stack, device, variables, folders):
        return ["podman", "run", "--rm", stack["image"]]

    monkeypatch.setitem(
        RUNTIMES, "podman", dataclasses.replace(RUNTIMES["apptainer"], prefix=prefix, problems=no_problems)
    )
    image = str(fake_sif(tmp_path / "a.sif"))
    campaign = load(
        tmp_path, collectives(4096, stacks={"a": {"kind": "contained", "runtime": "podman", "image": image}})
    )
    cell = expand(campaign).cells[0]
    assert cell.spec["stack"]["runtime"] == "podman"
    line = launch_argv(Geometry(campaign.cluster, 1, 2, "cpu"), cell.stack_entry, ["x.py"])
    assert line[:5] == ["podman", "run", "--rm", image, "python3"]
    assert cell.command.startswith(f"podman run --rm {image} python3 ")


def no_problems(stack, given, site):
    return []


def test_a_new_scheduler_starts_ranks_and_says_what_jobs_ask_for(tmp_path, monkeypatch):
    class FluxRanks(LocalRanks):
        def argv(self, geometry, stack, python, program, limit_seconds=None):
            return ["flux", "run", f"-N{geometry.nodes}", *python, *program]

    class FluxChecks(LocalChecks):
        cluster_keys = ("partition",)

    class FluxJobs(Jobs):
        def options(self, geometry, planned_minutes, avoid=(), attempt=1):
            return [f"--queue={geometry.cluster['partition']}", f"-N{geometry.nodes}"]

    flux = Launcher("flux", "Flux", FluxRanks(), LocalQueue(), FluxChecks(), FluxJobs(), submits=True)
    monkeypatch.setitem(LAUNCHERS, "flux", flux)
    cluster = {"scheduler": "flux", "partition": "batch", "num_nodes": 2, "gpus_per_node": 2}
    campaign = load(tmp_path, collectives(4096, shapes=[{"nodes": [2], "gpus_per_node": [1]}]), cluster)
    monkeypatch.setattr("regatta.plan.plan.load_campaign", lambda path, may_lack_files: campaign)
    plan = make_plan(tmp_path / "campaign.yaml", tmp_path / "results")
    assert plan_json(plan)["stacks"]["host"].startswith("flux run -N2 ")
    assert "--queue=batch -N2" in plan_text(plan)
