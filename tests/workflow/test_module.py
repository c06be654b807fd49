"""Regatta as a module of another workflow, whose rules use what the campaign measured."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from campaigns import QUICK_REPORT, ROOT, fake_campaign, lines, record_lines
from copied_tree import NOT_COPIED

import warm_start
from regatta.core.errors import NOTHING_MEASURED

PARENT = """
configfile: "parent.yaml"

module regatta:
    snakefile: "{snakefile}"
    config: config["regatta"]

use rule * from regatta as regatta_*

rule first:
    default_target: True
    input: "rows.txt"

rule count:
    input: rules.regatta_analyse.output.measurements, "results/small/report.html"
    output: "rows.txt"
    {how}
"""
SHELL = 'shell: "grep -c ,ok, {input[0]} > {output}"'
RUN = """run:
        rows = open(input[0]).read().splitlines()[1:]
        open(output[0], "w").write(str(len([row for row in rows if ",ok," in row])))"""


def write(folder: Path, campaign: dict | None = None, how: str = SHELL, text: str = PARENT, **more) -> None:
    config = {"regatta": campaign or fake_campaign(), **more}
    (folder / "parent.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    snakefile = ROOT / "workflow" / "Snakefile"
    (folder / "Snakefile").write_text(text.replace("{snakefile}", str(snakefile)).replace("{how}", how))


def run(folder: Path, *words: str):
    line = [sys.executable, "-m", "snakemake", "--profile", str(ROOT / "profiles" / "local"), *words]
    return warm_start.run(line, cwd=folder, env=os.environ | QUICK_REPORT)


@pytest.mark.parametrize("how", [SHELL, RUN], ids=["shell", "run"])
def test_a_rule_of_another_workflow_follows_a_campaign(tmp_path, how):
    write(tmp_path, how=how)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "rows.txt").read_text().strip() == "14"  # 7 cells, 2 launches
    assert len(record_lines(tmp_path / "results" / "small")) == 14
    before = (tmp_path / "rows.txt").stat().st_mtime_ns
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "rows.txt").stat().st_mtime_ns == before
    assert len(record_lines(tmp_path / "results" / "small")) == 14


def test_names_of_rules_follow_the_module(tmp_path, wording):
    write(tmp_path, fake_campaign(faults={"collective": "raise"}))
    dry = run(tmp_path, "-n")
    assert dry.returncode == 0, dry.stderr
    assert not (tmp_path / "results").exists()
    plan = run(tmp_path, "regatta_plan")
    assert plan.returncode == 0, plan.stderr
    assert (tmp_path / "results" / "small" / "plan.txt").exists()
    assert not record_lines(tmp_path / "results" / "small")
    wording.lines(run(tmp_path, "regatta_plan", "first").stderr, "plan cannot")
    assert run(tmp_path).returncode == 0
    before = record_lines(tmp_path / "results" / "small")
    num_failed = sum(record["status"] != "ok" for record in before)
    assert num_failed > 0
    assert run(tmp_path, "--forcerun", "regatta_measure").returncode == 0
    assert len(record_lines(tmp_path / "results" / "small")) == len(before) + num_failed


def test_rules_keep_their_names_and_the_parent_calls_what_regatta_does_at_the_end(tmp_path):
    text = PARENT.replace(" as regatta_*", "").replace("rules.regatta_analyse", "rules.analyse")
    text += "\nonstart: regatta.onstart()\nonsuccess: regatta.onsuccess()\nonerror: regatta.onerror()\n"
    write(tmp_path, text=text)
    assert run(tmp_path).returncode == 0
    write(tmp_path, fake_campaign(faults={"": "raise"}, name="bad"), text=text)
    done = run(tmp_path, "all")
    assert done.returncode == NOTHING_MEASURED, done.stderr


@pytest.mark.parametrize(
    ("campaign", "old", "new", "key"),
    [
        ({}, "", "", "no config"),
        (fake_campaign(repeat=2), "", "", "repeat"),
        (fake_campaign(), "use rule", "regatta_x = 1\nuse rule", ""),
        (fake_campaign(), '    config: config["regatta"]', '    config: config["regatta"]\n    prefix: "x"', "prefix"),
        (fake_campaign(), '    config: config["regatta"]', "", "no config"),
        (fake_campaign(), '    config: config["regatta"]', '    config: "my.yaml"', "a path"),
        (fake_campaign(cluster="parent.yaml"), "", "", "cluster"),
    ],
)
def test_an_error_in_the_module_is_a_message_and_nothing_runs(tmp_path, campaign, old, new, key, wording):
    write(tmp_path, campaign or {}, text=PARENT.replace(old, new, 1))
    if not campaign:
        (tmp_path / "parent.yaml").write_text("regatta: {}\n")
    done = run(tmp_path, *([] if key else ["-n"]))
    assert done.returncode == (2 if key else 0), done.stderr
    assert not (tmp_path / "results").exists()
    if key:
        wording(done.stderr)


CHANGED = "\nuse rule measure from regatta as regatta_measure with:\n    priority: 5\n\nrule first:"


def test_a_rule_can_be_changed_after_all_have_been_imported(tmp_path):
    text = PARENT.replace("\nrule first:", CHANGED) + "\nonsuccess: regatta.onsuccess()\nonerror: regatta.onerror()\n"
    write(tmp_path, fake_campaign(faults={"": "raise"}), text=text)
    assert run(tmp_path, "regatta_all").returncode == NOTHING_MEASURED
    num_records = len(record_lines(tmp_path / "results" / "small"))
    assert run(tmp_path, "regatta_all", "--forcerun", "regatta_measure").returncode == NOTHING_MEASURED
    assert len(record_lines(tmp_path / "results" / "small")) == 2 * num_records


def test_a_renamed_rule_is_forced_by_its_name_if_it_is_imported_first(tmp_path, wording):
    text = PARENT.replace("use rule * from regatta as", "use rule * from regatta exclude measure as")
    mine = "use rule measure from regatta as mine\n"
    campaign = fake_campaign(faults={"collective": "raise"})
    write(tmp_path, campaign, text=text.replace("\nrule first", mine + "\nrule first"))
    assert run(tmp_path).returncode == 0
    before = len(record_lines(tmp_path / "results" / "small"))
    done = run(tmp_path, "--forcerun", "mine")
    assert done.returncode == 2
    wording.lines(done.stderr, "--forcerun")
    write(tmp_path, campaign, text=text.replace("use rule", mine + "\nuse rule"))
    assert run(tmp_path, "--forcerun", "mine").returncode == 0
    assert len(record_lines(tmp_path / "results" / "small")) > before


def test_two_campaigns_are_two_modules(tmp_path, wording):
    other = PARENT.partition("rule first")[0].replace("regatta", "other").replace('configfile: "parent.yaml"', "")
    text = PARENT.replace("{snakefile}", "SNAKEFILE").replace('"rows.txt"', '"rows.txt", rules.other_all.input', 1)
    text = text.replace("rule first", other + "rule first").replace("SNAKEFILE", "{snakefile}")
    write(tmp_path, text=text, other=fake_campaign(name="other", repeats=1))
    assert run(tmp_path).returncode == 0
    assert [len(record_lines(tmp_path / "results" / name)) for name in ("small", "other")] == [14, 7]
    write(tmp_path, text=text, other=fake_campaign(repeats=1))
    done = run(tmp_path)
    assert done.returncode == 2
    wording.lines(done.stderr, "campaign")


@pytest.mark.parametrize("words", [["--executor", "dryrun"], ["-n"]])
def test_a_dry_run_writes_no_results_however_it_is_requested(tmp_path, words):
    write(tmp_path)
    assert run(tmp_path, *words).returncode == 0
    assert not (tmp_path / "results").exists()


def test_config_values_are_refused_by_regatta_alone_and_reach_the_parent_of_a_module(tmp_path, wording):
    write(tmp_path)
    assert run(tmp_path, "-n", "--config", "of_parent=1").returncode == 0
    snakefile = ("--snakefile", str(ROOT / "workflow" / "Snakefile"))
    done = run(tmp_path, *snakefile, "-n", "--config", "of_parent=1", "--configfile", "parent.yaml")
    assert done.returncode == 2
    wording.lines(done.stderr, "--config")


@pytest.mark.slow
def test_a_module_of_a_repository_has_all_of_its_files(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED, "tests", "docs", "examples"))
    me = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for words in (["init", "--quiet"], ["add", "--all"], [*me, "commit", "--quiet", "--message=all"], ["tag", "v1"]):
        subprocess.run(["git", *words], cwd=tree, check=True)
    cache = tmp_path / "cache" / "snakemake" / "snakemake" / "source-cache" / "snakemake-git-cache" / "github.com"
    subprocess.run(["git", "clone", "--quiet", "--bare", tree, cache / "site" / "regatta"], check=True)
    write(tmp_path, text=PARENT.replace('"{snakefile}"', 'github("site/regatta", path="workflow/Snakefile", tag="v1")'))
    line = [sys.executable, "-m", "snakemake", "--profile", str(ROOT / "profiles" / "local")]
    environment = os.environ | QUICK_REPORT | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    records = record_lines(tmp_path / "results" / "small")
    assert len(records) == 14
    head = subprocess.run(["git", "rev-parse", "v1"], cwd=tree, capture_output=True, text=True, check=True).stdout
    launches = [line for line in lines(tmp_path / "results" / "small") if line["kind"] == "launch"]
    assert {launch["git"]["commit"] for launch in launches} == {head.strip()}


def test_paths_in_a_module_begin_where_snakemake_runs(tmp_path):
    (tmp_path / "site").mkdir()
    cluster = {"schema": 1, "name": "mine", "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0}
    (tmp_path / "site" / "mine.yaml").write_text(yaml.safe_dump(cluster))
    write(tmp_path, fake_campaign(cluster="site/mine.yaml"))
    done = run(tmp_path, "regatta_plan")
    assert done.returncode == 0, done.stderr
    assert "cluster mine" in (tmp_path / "results" / "small" / "plan.txt").read_text()
