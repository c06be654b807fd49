"""What Snakemake's command line says, for the few places that need it before Snakemake's own settings are there."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regatta.campaign.yaml_file import read_yaml
from regatta.core.errors import UserError, describe_os_error, exit_with_user_error

LOOKING = {
    "plan",
    "--dry-run",
    "--dryrun",
    "--summary",
    "-S",
    "--detailed-summary",
    "-D",
    "--list-rules",
    "--list",
    "-l",
    "--list-changes",
    "--dag",
    "--rulegraph",
    "--filegraph",
    "--d3dag",
    "--lint",
    "--unlock",
    "--report",
    "--cleanup-metadata",
    "--archive",
}


def is_asked_to_retry(arguments: Sequence[str]) -> bool:
    """Whether the command line says `--forcerun measure`."""
    return "measure" in _values(arguments, ("--forcerun", "-R"))


def only_looks(arguments: Sequence[str]) -> bool:
    """Whether nothing is measured: a dry run, a plan, or one of Snakemake's ways to show something."""
    options = {word.partition("=")[0] for word in arguments}
    if "--report-after-run" in options:
        options.discard("--report")
    return not LOOKING.isdisjoint(options) or any(re.fullmatch(r"-[npqF]*n[npqF]*", word) for word in arguments)


def check_configfiles(arguments: Sequence[str]) -> None:
    """Read the files of --configfile, and end with file, line and remedy if one is no YAML or is not there.

    The profiles call this (profiles/*/config.yaml): Snakemake reads these files before any rule, and says of a mistake
    neither file nor line.
    """
    for name in _values(arguments, ("--configfile", "--configfiles")):
        path = Path(name)
        if path.exists() and not (path.is_file() or path.is_dir()):
            exit_with_user_error(
                f"{path}: is a pipe or device, and is read more than once. Write the campaign to a file."
            )
        try:
            read_yaml(path)
        except UserError as error:
            exit_with_user_error(str(error))
        except OSError as error:
            exit_with_user_error(describe_os_error(error))


def _values(arguments: Sequence[str], options: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of an option that takes all words up to the next option, as argparse reads them."""
    for index, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option in options:
            following = itertools.takewhile(lambda w: not w.startswith("-"), arguments[index + 1 :])
            yield from [value] if equals else following
        elif option.startswith("-R") and "-R" in options:
            yield option.removeprefix("-R")
