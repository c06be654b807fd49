"""Parsing Snakemake's command line, which the rules need before Snakemake's objects have it."""

import argparse

import pytest
from snakemake import cli

from regatta.command_line import READ_ONLY, is_read_only, is_retry_requested, parse_command_line


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
