"""`plan` shows a campaign on a machine that cannot run it: without GPU, Slurm, images and the site's folders."""

import json

import pytest
from campaign_files import fake_sif, small, write

from regatta.campaign.expansion import expand
from regatta.campaign.load import CLUSTERS, load_campaign
from regatta.core.errors import UserError
from regatta.core.files import ROOT
from regatta.plan.plan import make_plan, plan_json
from regatta.plan.plan_page import plan_text, render

CAMPAIGNS = sorted((CLUSTERS.parent / "campaigns").rglob("*.yaml"))


@pytest.fixture(autouse=True)
def laptop(tmp_path, monkeypatch):
    """A machine with nothing: no GPU, no command of Slurm or a container runtime."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("regatta.campaign.load.GPU_FOLDER", tmp_path / "no-gpus")
    monkeypatch.chdir(ROOT)


def refusal(path, clusters=CLUSTERS) -> str:
    try:
        load_campaign(path, clusters)
    except UserError as error:
        return str(error)
    return ""


def test_there_are_campaigns_of_sites_and_of_one_machine():
    assert {bool(refusal(path)) for path in CAMPAIGNS} == {True, False}


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: str(path.relative_to(CLUSTERS.parent)))
def test_each_campaign_is_planned_anywhere_with_what_a_run_refuses(path, tmp_path):
    plan = make_plan(path, tmp_path / "results", may_lack_files=True)
    saved = json.loads(json.dumps(plan_json(plan)))
    missing = [entry["text"] for entry in saved["missing"]]
    assert "\n".join(missing) == refusal(path)
    assert saved["cells"]
    assert all(text in plan_text(plan) for text in missing)
    assert ("This machine cannot" in render(plan)) == bool(missing)
    if saved["totals"]["todo"]:
        assert saved["stacks"].keys() == plan.campaign.data["stacks"].keys()  # a launch line for each


def test_the_published_lines_are_shown_and_their_ids_are_provisional(tmp_path):
    path = CLUSTERS.parent / "campaigns" / "gh200-slingshot-ddp.yaml"
    plan = make_plan(path, tmp_path, may_lack_files=True)
    text = plan_text(plan)
    assert "--mpi=pmix_v4" in text
    assert "/path/to/sif/pytorch-ngc-hpc-dev.sif" in plan_json(plan)["stacks"]["contained"]
    assert "contained, bind_mounted are provisional" in text


def campaign_with(folder, **stack):
    data = small(stacks={"a": {"kind": "contained", **stack}, "host": {"kind": "host"}})
    cluster = {"scheduler": "slurm", "gpus_per_node": 1, "num_nodes": 1}
    return write(folder, data, cluster)


def test_only_stacks_whose_identity_is_missing_have_provisional_ids(tmp_path):
    image = fake_sif(tmp_path / "a.sif")
    no_bind = campaign_with(tmp_path, image=str(image), binds=["/not/here"])
    shown = load_campaign(no_bind, tmp_path / "clusters", may_lack_files=True)
    assert [(entry.stack, entry.is_in_id) for entry in shown.missing] == [("a", False)]
    assert shown.provisional_stacks == []
    before = [cell.id for cell in expand(shown).cells]

    no_bind = campaign_with(tmp_path, image=str(tmp_path / "b.sif"), binds=["/not/here"])
    shown = load_campaign(no_bind, tmp_path / "clusters", may_lack_files=True)
    assert shown.provisional_stacks == ["a"]
    after = [cell.id for cell in expand(shown).cells]
    assert {x == y for x, y in zip(before, after, strict=True) if "-host-" in x} == {True}
    assert {x == y for x, y in zip(before, after, strict=True) if "-a-" in x} == {False}


@pytest.mark.parametrize(
    "stack", [{"image": None}, {"binds": ["relative"]}, {"binds": ["$1"]}, {"runtime_options": ["--cleanenv"]}]
)
def test_what_is_wrong_on_every_machine_ends_a_plan_too(tmp_path, stack):
    path = campaign_with(tmp_path, **({"image": str(fake_sif(tmp_path / "a.sif"))} | stack))
    with pytest.raises(UserError, match=r"campaign\.yaml:\d+: stacks\.a"):
        load_campaign(path, tmp_path / "clusters", may_lack_files=True)
