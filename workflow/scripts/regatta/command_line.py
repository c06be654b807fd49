"""Snakemake's command line, as far as the rules need it: Snakemake itself applies it only after it has read them."""

import argparse
from collections.abc import Sequence

from snakemake.cli import get_argument_parser

# Options with which Snakemake only shows something, as its parser names them; --report is another case.
READ_ONLY = (
    "dryrun summary detailed_summary list_rules list_target_rules list_changes list_input_changes "
    "list_params_changes list_untracked dag rulegraph filegraph d3dag lint print_compilation containerize "
    "export_cwl list_conda_envs unlock cleanup_metadata archive"
).split()


def parse_command_line(argv: Sequence[str]) -> argparse.Namespace:
    """Return the targets and options of `sys.argv`, without those of profiles, as Snakemake parses them.

    Snakemake sets `workflow.dag_settings` and the executor only after it has read the rules, which need the plan.
    """
    return get_argument_parser().parse_known_args(argv[1:])[0]


def is_retry_requested(options: argparse.Namespace, measure: str = "measure") -> bool:
    """Return whether the command line contains `--forcerun measure`."""
    return measure in options.forcerun


def is_read_only(options: argparse.Namespace, plan: str = "plan") -> bool:
    """Return whether nothing is measured: a dry run, a plan, or an option by which Snakemake only shows something."""
    shows_report = options.report and not options.report_after_run
    shows = shows_report or options.executor == "dryrun"
    return bool(plan in options.targets or shows or any(getattr(options, name) for name in READ_ONLY))
