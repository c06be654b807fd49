"""A user without a writable home directory is told what to set, and a run with that leaves nothing elsewhere."""

import os
from pathlib import Path

from campaigns import fake_campaign, write_campaign

import warm_start
from regatta.core.errors import UserError
from regatta.core.files import check_cache_folder

ROOT = Path(__file__).resolve().parents[2]


def test_a_campaign_without_a_writable_home_ends_with_one_line_that_names_the_remedy(tmp_path, wording):
    path = write_campaign(tmp_path, fake_campaign())
    environment = {key: value for key, value in os.environ.items() if key != "XDG_CACHE_HOME"} | {"HOME": "/proc/none"}
    words = (path, "--profile", "profiles/local", "-n")
    done = warm_start.script("run_campaign.py", *words, cwd=ROOT, env=environment)
    *_, line = done.stderr.strip().splitlines()
    assert "Traceback" not in done.stderr
    wording(line)
    assert "XDG_CACHE_HOME" in line
    assert done.returncode == 2


def test_the_folder_that_a_user_sets_is_used(tmp_path, monkeypatch, wording):
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    check_cache_folder()
    assert (tmp_path / "cache" / "snakemake").is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with wording.raises(UserError):
        check_cache_folder()
