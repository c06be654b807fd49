"""A cell that no job can finish is refused by the plan, not after three jobs that time out."""

import pytest
from campaign_files import SLURM, collectives, load

from regatta.core.errors import UserError
from regatta.plan.plan import plan_campaign

SAMPLING = {"max_seconds": 80, "max_warmup_seconds": 10, "windows_ratio": 0.5}  # 130 s, and 10 s to start


def made(folder, minutes):
    stacks = {"host": {"kind": "host", "python": "/bin/sh"}}
    data = collectives(4, sampling=SAMPLING, limits={"cell_seconds": 600}, stacks=stacks)
    campaign = load(folder, data, SLURM | {"max_walltime_minutes": minutes})
    return plan_campaign(campaign, folder / "results")


@pytest.mark.parametrize("minutes", [1, 2])
def test_a_cell_that_no_job_can_finish_is_refused(tmp_path, monkeypatch, minutes):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UserError) as raised:
        made(tmp_path, minutes)
    for word in ("collective", "2.3 min", f"max_walltime_minutes = {minutes}", "tiny.yaml", "sampling.max_seconds"):
        assert word in str(raised.value)
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # in an allocation no job is submitted
    assert made(tmp_path, minutes).batches


def test_a_cell_that_fits_is_planned(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert made(tmp_path, 3).batches
