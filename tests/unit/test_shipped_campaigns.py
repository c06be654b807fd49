"""The campaigns and clusters in config/: each is valid, and skips only what its machine cannot run."""

import json
import sys
from collections import Counter

import pytest

from regatta.campaign.expansion import content_hash, expand
from regatta.campaign.load import CLUSTERS, load_campaign
from regatta.campaign.yaml_file import read_yaml, schema_errors
from regatta.core.files import ROOT
from regatta.core.schemas import load_schema


def test_the_shipped_campaign_and_clusters_are_valid():
    loaded = load_campaign(CLUSTERS.parent / "config.yaml")
    assert loaded.name == "laptop"
    for path in sorted(CLUSTERS.glob("*.yaml")):
        file = read_yaml(path)
        assert schema_errors(file, file.data, load_schema("cluster")) == []
    campaigns = CLUSTERS.parent / "campaigns"
    for path in sorted(campaigns.rglob("*.yaml")):  # they name paths of their clusters
        file = read_yaml(path)
        assert schema_errors(file, file.data, load_schema("campaign")) == []
        assert file.data["name"] == "-".join(path.relative_to(campaigns).with_suffix("").parts)
        assert (CLUSTERS / f"{file.data['cluster']}.yaml").exists()


CPU_CAMPAIGNS = {"allreduce-algorithms": 24, "gloo-vs-nccl": 6}  # and their cells


@pytest.mark.parametrize(("name", "num_cells"), CPU_CAMPAIGNS.items())
def test_a_campaign_for_cpus_skips_nothing_and_takes_about_a_minute(name, num_cells):
    campaign = load_campaign(CLUSTERS.parent / "campaigns" / "cpu" / f"{name}.yaml")
    found = expand(campaign)
    assert (len(found.cells), found.skipped, found.notes) == (num_cells, [], [])
    sampling = campaign.data["sampling"]
    seconds = sampling["max_warmup_seconds"] + sampling["max_seconds"] * (1 + sampling["windows_ratio"])
    assert num_cells * campaign.data["repeats"] * seconds < 30


@pytest.mark.parametrize(
    ("name", "num_cells"),
    [("resnet-ddp-dgx", 10), ("ddp-strategies", 11), ("sync-batchnorm", 8), ("cifar100-training", 3)],
)
def test_campaigns_of_training_for_cpus_skip_only_what_one_rank_or_several_cannot_do(name, num_cells):
    found = expand(load_campaign(CLUSTERS.parent / "campaigns" / "cpu" / f"{name}.yaml"))
    assert (len(found.cells), found.notes) == (num_cells, [])
    allowed = ("strategy none runs on 1 rank", "excluded: a single rank has nothing to synchronize")
    assert all(reason.startswith(allowed) for _, reason in found.skipped)


def test_the_campaign_of_a_whole_suite_skips_on_one_rank_what_needs_two():
    found = expand(load_campaign(CLUSTERS.parent / "campaigns" / "cpu" / "collectives.yaml"))
    # 25 collectives on two ranks; without wrapper one rank, with DDP one and two, each with two batches.
    assert (len(found.cells), found.notes) == (31, [])
    reasons = Counter(reason for _, reason in found.skipped)
    assert reasons == {
        "a collective needs at least 2 ranks; this shape has 1": 25,
        "strategy none runs on 1 rank; this shape has 2": 2,
    }


def test_the_campaign_of_all_collectives_says_why_it_leaves_cells_out(tmp_path):
    text = (CLUSTERS.parent / "campaigns" / "collectives.yaml").read_text()
    (tmp_path / "collectives.yaml").write_text(text.replace("/shared/envs/torch/bin/python3", sys.executable))
    found = expand(load_campaign(tmp_path / "collectives.yaml"))
    reasons = {reason for _, reason in found.skipped}
    assert "gloo does not support all_to_all on GPU tensors" in reasons
    assert (
        "message_bytes 8 is not a multiple of 4 x 4 bytes: all_gather splits it into 4 equal parts of fp32" in reasons
    )
    assert found.notes == []
    of_nccl = [cell.spec["parameters"] for cell in found.cells if cell.spec["backend"] == "nccl"]
    assert len({parameters["operation"] for parameters in of_nccl if "operation" in parameters}) == 9
    assert {parameters["batch_size"] for parameters in of_nccl if "model" in parameters} == {16, 32, 64, 128}


def test_cells_of_shipped_campaigns_keep_their_ids(monkeypatch, wording):
    """A digest of all specs of each campaign, without the hashes of programs; results of earlier versions stay valid.

    It may change with a benchmark's version, an example or a campaign: then the changelog says what is measured again.
    """
    monkeypatch.chdir(ROOT)
    digests = []
    for path in [CLUSTERS.parent / "config.yaml", *sorted((CLUSTERS.parent / "campaigns").rglob("*.yaml"))]:
        found = expand(load_campaign(path, may_lack_files=True))
        specs = [cell.spec for cell in [*found.cells, *(cell for cell, _ in found.skipped)]]
        specs = [{key: value for key, value in spec.items() if key not in ("executables", "starter")} for spec in specs]
        hashes = [content_hash(json.loads(json.dumps(spec).replace(str(ROOT), "ROOT"))) for spec in specs]
        digests.append(f"{path.relative_to(CLUSTERS.parent)}: {content_hash(sorted(hashes))}")
    wording(digests)
