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
NAMES = ["Perlmutter", "Alps", "JUWELS Booster", "LUMI", "ParallelCluster", "PBS"]


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_page_has_the_sites_and_says_that_none_was_used():
    assert list(SITES) == NAMES
    for section in SITES.values():
        assert re.search(r"^\|\s*not verified\s*\|", section, re.MULTILINE)


@pytest.mark.parametrize("name", SITES)
def test_each_cluster_file_plans_and_the_page_shows_its_plan(name, tmp_path):
    cluster, stacks = map(yaml.safe_load, blocks(SITES[name], "yaml"))
    campaign = yaml.safe_load(blocks(HEAD, "yaml")[0])
    shape = {"nodes": [1], "gpus_per_node": [cluster["gpus_per_node"]]}
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / f"{cluster['name']}.yaml").write_text(blocks(SITES[name], "yaml")[0])
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(campaign | {"cluster": cluster["name"], "stacks": stacks, "shapes": [shape]}))
    plan = plan_campaign(load_campaign(path, tmp_path / "clusters", may_lack_files=True), tmp_path / "results")
    assert [planned.status for planned in plan.cells] == ["todo"]
    text = plan_text(plan).replace(f"{ROOT}/", "")
    shown = blocks(SITES[name], "")[-1]
    for line in shown.splitlines():
        assert line.removesuffix("...") in text


def test_the_campaign_of_the_page_is_that_of_its_first_site(tmp_path):
    campaign = yaml.safe_load(blocks(HEAD, "yaml")[0])
    cluster, stacks = map(yaml.safe_load, blocks(SITES["Perlmutter"], "yaml"))
    assert (campaign["cluster"], campaign["stacks"]) == (cluster["name"], stacks)
    assert campaign["shapes"] == [{"nodes": [1], "gpus_per_node": [cluster["gpus_per_node"]]}]
