"""Parsing Snakemake's command line, which the rules need before Snakemake's objects have it."""

import argparse
import os

import pytest
from snakemake import cli

from regatta.workflow import READ_ONLY, check_configfiles, is_read_only, is_retry_requested, parse_command_line


def options_of(arguments: list[str]) -> argparse.Namespace:
    return parse_command_line(["snakemake", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--forcerun", "measure"],
        ["--forcerun", "report", "measure", "-n"],
        ["-R", "measure"],
        ["--forcerun=measure"],
        ["-Rmeasure"],
        ["--profile", "profiles/local", "-R", "measure", "--configfile", "x.yaml"],
    ],
)
def test_a_retry_is_asked_for_by_forcerun_measure(arguments):
    assert is_retry_requested(options_of(arguments))


@pytest.mark.parametrize("arguments", [[], ["measure"], ["--forcerun", "report"], ["--forcerun", "-n", "measure"]])
def test_anything_else_asks_for_no_retry(arguments):
    assert not is_retry_requested(options_of(arguments))


@pytest.mark.parametrize("form", [["--configfile"], ["--configfiles"]])
def test_a_config_file_that_is_no_yaml_ends_with_file_and_line(tmp_path, form, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nstacks: {a: [1\nshapes: 3\n")
    for arguments in ([*form, str(path), "-n"], [f"{form[0]}={path}"]):
        assert refusal(arguments, capsys).startswith(f"{path}:3: ")


def test_a_config_file_that_is_not_there_is_named(tmp_path, capsys):
    assert "absent.yaml" in refusal(["--configfile", str(tmp_path / "absent.yaml")], capsys)


def test_a_pipe_in_place_of_a_config_file_is_refused_and_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    text = refusal(["--configfile", str(tmp_path / "pipe")], capsys)
    assert f"{tmp_path}/pipe: " in text


def refusal(arguments, capsys) -> str:
    """Return what is said of a command line whose campaign cannot be read."""
    with pytest.raises(SystemExit) as end:
        check_configfiles(["snakemake", *arguments])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_a_campaign_from_which_snakemake_would_run_code_is_refused(tmp_path, capsys):
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(f"name: x\n__use_yte__: true\n?open('{tmp_path}/hacked', 'w').close(): 1\n")
    assert "campaign.yaml:2: __use_yte__ " in refusal(["--configfile", str(campaign)], capsys)


def test_a_good_config_file_and_none_at_all_pass(tmp_path):
    (tmp_path / "good.yaml").write_text("name: x\n")
    check_configfiles(["snakemake", "--configfile", str(tmp_path / "good.yaml")])
    check_configfiles(["snakemake", "-n"])


READS = "-n,-np,-nq all,-pFn,--dry-run,--dryrun,plan,plan -R measure,--configfile a.yaml -- plan,--unlock"
READS += ",--report,--report x.html,--report=x.html,-S,-D,-l,--list-changes code,--dag,--rulegraph,--filegraph"
READS += ",--d3dag,--lint,--cleanup-metadata x,--archive x.tar.gz"
RUNS = ",-p,--nolock,gate,--forcerun measure,--forcerun plan,--until plan,--configfile plan"
RUNS += ",--report x.html --report-after-run,--jobname plan.{jobid}"
CASES = [*((words, True) for words in READS.split(",")), *((words, False) for words in RUNS.split(","))]


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_what_is_read_only(words, expected):
    assert is_read_only(options_of(["--profile", "profiles/slurm", *words.split()])) is expected


def test_each_option_that_is_read_only_is_one_of_snakemakes():
    assert set(READ_ONLY) <= vars(cli.get_argument_parser().parse_args([])).keys()


def test_a_job_on_a_node_requests_nothing_by_its_command_line():
    words = ["--mode", "remote", "--target-jobs", "measure:campaign=c,batch=b", "--allowed-rules", "measure"]
    options = options_of([*words, "--force"])
    assert not is_read_only(options)
    assert not is_retry_requested(options)
