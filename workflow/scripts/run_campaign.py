"""Run Snakemake on a campaign and print the path of its report, even if the run failed. Called by `make campaign`.

python workflow/scripts/run_campaign.py config/my.yaml --profile profiles/local

All words after the campaign file are passed to Snakemake, and the campaign file as its --configfile.
Exit status, also of Snakemake called without this script:
  0  every planned measurement has a record, and at least one is ok; a cell that failed is a record
  1  unexpected error, or the gate failed
  2  error in the campaign, the cluster file or the command line, or another run has locked the campaign
  3  some planned measurements have no record: the run was stopped, a stack excluded, or a batch not finished
  4  nothing measured: no planned cell has an ok record
  5  the gate is undecided: nothing failed, but the launches are too few or too noisy to pass every cell
`plan` exits with 0 or 2. make prints these as "Error 3" and exits with 2: call this script if the status matters.
"""

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

from regatta.campaign.load import load_campaign
from regatta.core.errors import USER_ERROR, UserError, drop_lost_output, run_script
from regatta.core.files import check_cache_folder
from regatta.launchers.base import end_with

TERMINAL_MS = 1000  # how often the foreground group of the terminal is read
# Options with which Snakemake runs nothing; not imported from regatta.workflow, which loads Snakemake.
READ_ONLY = ("-n", "--dry", "--unlock", "--list", "--summary", "--detailed-summary", "--lint", "--dag", "--rulegraph")
# python -m snakemake, which would end if it cannot print its first line.
SNAKEMAKE = """import runpy, sys
sys.path[:1] = sys.argv.pop(1), sys.argv.pop(1)
from regatta.core.errors import drop_lost_output
drop_lost_output()
runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
"""
ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ROOT / "config" / "config.yaml"


def with_configfile(campaign: str, arguments: list[str]) -> list[str]:
    """Return Snakemake's arguments; the default campaign needs none. Raises UserError if they name another campaign."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", action="extend", default=[], dest="given")
    given = parser.parse_known_args(arguments)[0].given
    # Not Path.resolve, which raises an error at a loop of links; load_campaign reports that.
    if others := [name for name in given if os.path.realpath(name) != os.path.realpath(campaign)]:
        raise UserError(f"--configfile {others[0]} differs from the campaign {campaign}. Specify one of them.")
    is_default = os.path.realpath(campaign) == os.path.realpath(DEFAULT)
    return arguments if given or is_default else [f"--configfile={campaign}", *arguments]


def from_anywhere(arguments: list[str]) -> list[str]:
    """Return Snakemake's arguments in a folder other than Regatta's: with its Snakefile and its profile."""
    if os.path.realpath(".") == str(ROOT):
        return arguments
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--snakefile", "-s")
    parser.add_argument("--profile", action="append", default=[])
    known, others = parser.parse_known_args(arguments)
    is_ours = [not os.path.exists(profile) and (ROOT / profile).is_dir() for profile in known.profile]
    profiles = [str(ROOT / profile) if ours else profile for profile, ours in zip(known.profile, is_ours, strict=True)]
    given = [word for profile in profiles for word in ("--profile", profile)]
    return ["--snakefile", known.snakefile or str(ROOT / "Snakefile"), *given, *others]


def run_snakemake(arguments: list[str]) -> int:
    """Run Snakemake and return its exit status. Signals to this process are forwarded, including its death."""
    scripts, end_with_driver = Path(__file__).resolve().parent, end_with(os.getpid())
    # sigwait misses none of them. With handlers, one that arrives just before waitpid would wait for Snakemake to end.
    awaited = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)

    def end_with_this_process() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        end_with_driver()

    line = [sys.executable, "-c", SNAKEMAKE, str(scripts), str(scripts.with_name("plugins")), *arguments]
    snakemake = subprocess.Popen(line, preexec_fn=end_with_this_process)
    # Ctrl-C reaches Snakemake from the terminal; this process only waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=hang_up_with_terminal, daemon=True).start()
    while (status := snakemake.poll()) is None:
        if (number := signal.sigwait(awaited)) != signal.SIGCHLD:
            snakemake.send_signal(number)
    return status if status >= 0 else 128 - status  # exit status of a shell after a signal


def hang_up_with_terminal() -> None:
    """Send SIGHUP to this process if its terminal closes while it is in the foreground.

    The kernel sends SIGHUP to the session leader, and to the other processes when that one ends. If it is make (ssh -t
    HOST make campaign), it waits for its command and does not forward the signal.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:  # there is none
        return
    poll, is_foreground = select.poll(), False
    poll.register(terminal, 0)
    while not poll.poll(TERMINAL_MS):
        with contextlib.suppress(OSError):
            is_foreground = os.tcgetpgrp(terminal) == os.getpgrp()
    if is_foreground:
        os.kill(os.getpid(), signal.SIGHUP)  # Snakemake ignores it under nohup


def main() -> None:
    if len(sys.argv) < 2:
        raise UserError(__doc__)
    if sys.argv[1] in ("-h", "--help"):
        print(__doc__, end="")
        return
    drop_lost_output()  # what is measured does not depend on who reads the output
    is_plan = "plan" in sys.argv[2:]
    is_read_only = is_plan or any(word.startswith(READ_ONLY) for word in sys.argv[2:])
    arguments = from_anywhere(with_configfile(sys.argv[1], sys.argv[2:]))
    check_cache_folder()
    name = load_campaign(Path(sys.argv[1]), may_lack_files=is_plan).name
    report = Path("results") / name / "report.html"
    before = report.stat().st_mtime_ns if report.is_file() else None
    status = run_snakemake(arguments)
    is_new = report.is_file() and (status == 0 or report.stat().st_mtime_ns != before)
    if is_new and not is_read_only and status != USER_ERROR:  # else the report is of the run that holds the lock
        print(f"Report: {report}", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    run_script(main)
