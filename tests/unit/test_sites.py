"""docs/sites.md: each cluster file plans the campaign of the page, and the page shows what the plan prints."""

import re

import pytest
import yaml

from regatta.campaign.load import load_campaign
from regatta.core.files import ROOT
from regatta.plan.plan import plan_campaign
from regatta.plan.plan_page import plan_text

HEAD, *SECTIONS = re.split(r"^## ", (ROOT / "docs" / "sites.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
SITES = {section.partition("\n")[0]: section for section in SECTIONS}
NAMES = ["Perlmutter", "Alps", "JUWELS Booster", "LUMI", "ParallelCluster", "University cluster", "PBS"]


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_each_site_of_the_page_lists_what_is_not_verified():
    assert list(SITES) == NAMES
    for section in SITES.values():
        assert re.search(r"^\|\s*not verified\s*\|", section, re.MULTILINE)


def planned(folder, name: str, **shape):
    """Plan the campaign of the page with the cluster file and the stacks of a site, on one node."""
    text, stacks = blocks(SITES[name], "yaml")
    campaign = yaml.safe_load(blocks(HEAD, "yaml")[0])
    cluster = yaml.safe_load(text)["name"]
    (folder / "clusters").mkdir()
    (folder / "clusters" / f"{cluster}.yaml").write_text(text)
    campaign |= {"cluster": cluster, "stacks": yaml.safe_load(stacks), "shapes": [{"nodes": [1], **shape}]}
    (folder / "my.yaml").write_text(yaml.safe_dump(campaign))
    loaded = load_campaign(folder / "my.yaml", folder / "clusters", may_lack_files=True)
    return plan_campaign(loaded, folder / "results")


def cluster_of(name: str) -> dict:
    return yaml.safe_load(blocks(SITES[name], "yaml")[0])


@pytest.mark.parametrize("name", SITES)
def test_each_cluster_file_plans_and_the_page_shows_its_plan(name, tmp_path):
    plan = planned(tmp_path, name, gpus_per_node=[cluster_of(name)["gpus_per_node"]])
    assert [cell.status for cell in plan.cells] == ["todo"]
    text = plan_text(plan).replace(f"{ROOT}/", "")
    for line in blocks(SITES[name], "")[-1].splitlines():
        assert line.removesuffix("...") in text


def test_each_node_type_of_a_cluster_file_plans(tmp_path):
    kinds = [(name, kind, keys) for name in SITES for kind, keys in cluster_of(name).get("node_types", {}).items()]
    assert kinds
    for name, kind, keys in kinds:
        (tmp_path / kind).mkdir()
        plan = planned(tmp_path / kind, name, gpus_per_node=[keys["gpus_per_node"]], node_type=kind)
        assert [(cell.status, cell.cell.node_type) for cell in plan.cells] == [("todo", kind)]
        assert f"--gres=gpu:{keys['gpu_type']}:{keys['gpus_per_node']}" in plan_text(plan)


def test_the_campaign_of_the_page_is_that_of_its_first_site():
    campaign = yaml.safe_load(blocks(HEAD, "yaml")[0])
    cluster, stacks = map(yaml.safe_load, blocks(SITES["Perlmutter"], "yaml"))
    assert (campaign["cluster"], campaign["stacks"]) == (cluster["name"], stacks)
    assert campaign["shapes"] == [{"nodes": [1], "gpus_per_node": [cluster["gpus_per_node"]]}]
