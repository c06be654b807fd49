"""Params and logs of the rules.

Rules have neither conda: nor container:, so Snakemake's linter reports each of them. The Snakefile imports the driver
to plan, so Snakemake's environment already contains the driver's packages, and rules run in it (PYTHON). An environment
per rule would be a second set of versions besides requirements/*.lock. A container around measure would also hide srun;
stacks start their images within srun. For conda: workflow/envs/.
"""

import errno
import os
from pathlib import Path

from regatta.core.errors import describe_os_error, exit_with_user_error


def make_log_folder():
    """Make the folder of the rules' logs. Snakemake would exit with status 1 if it cannot write the folder, and with a
    traceback if it cannot remove a log or a table of an earlier run."""
    try:
        Path(RESULTS, "logs").mkdir(parents=True, exist_ok=True)
        written = ["logs"] if SESSION.targets == {"plan"} else ["logs", "tables"]
        for folder in (f"{RESULTS}/{name}" for name in written):
            if os.path.exists(folder) and not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
    except OSError as error:
        exit_with_user_error(describe_os_error(error))


def untracked(value):
    """Return a param that never causes a file to be rebuilt.

    Snakemake compares params with those of the last run, except functions of `input`. Another environment or checkout
    gives the same results.
    """

    def param(wildcards, input):
        return value

    return param


def program(name):
    """Return the start of a command line: Regatta's Python and a script of workflow/scripts/."""
    return untracked([PYTHON, str(SCRIPTS / name)])
