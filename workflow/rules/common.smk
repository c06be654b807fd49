"""Load the campaign and plan it, once, before the graph is built. Names in capitals are used by the rules."""

import re
import signal
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(workflow.basedir) / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS))

from regatta.command_line import is_asked_to_retry
from regatta.errors import UserError, describe_os_error
from regatta.locks import hold
from regatta.outcome import outcome_text
from regatta.plan import make_plan
from regatta.sources import sources


def campaign_file():
    """The campaign: the one file of --configfile, else the default. Regatta reads it itself, so that nothing of the
    default campaign is ever merged into another."""
    given = [Path(path) for path in workflow.config_settings.configfiles]
    if len(given) > 1:
        raise UserError("--configfile was given several files; a campaign is one file. Give one.")
    if workflow.config_settings.config:
        keys = ", ".join(workflow.config_settings.config)
        raise UserError(f"--config ({keys}) is not used: a campaign is what its file says. Edit the file, or copy it.")
    path = given[0] if given else Path(workflow.basedir) / "config" / "config.yaml"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def plan_campaign():
    try:
        return make_plan(campaign_file(), Path("results"), is_retry=IS_RETRY)
    except UserError as error:
        sys.exit(str(error))  # a WorkflowError would add the places in this file where it came from
    except OSError as error:
        sys.exit(describe_os_error(error))


def prepare_to_run():
    """Before the first job: no second Snakemake on this campaign, and a kill stops a local run as Ctrl-C does."""
    global campaign_lock  # held until this process ends
    if "measure" in workflow.dag_settings.forcerun and not IS_RETRY:
        raise WorkflowError("forcerun: measure is taken only from the command line: snakemake ... --forcerun measure")
    if set(workflow.dag_settings.targets) == {"plan"}:
        return
    taken = f"{RESULTS}: another Snakemake is running this campaign. Wait for it, or stop it."
    try:
        campaign_lock = hold(PLAN.results / ".lock", taken)
    except UserError as error:
        sys.exit(str(error))
    if PLAN.campaign.cluster["scheduler"] == "none":
        # Snakemake answers SIGTERM by waiting for its jobs. On one machine the user wants them stopped.
        signal.signal(signal.SIGTERM, stop_once)
        signal.signal(signal.SIGINT, stop_once)


def print_outcome():
    if set(workflow.dag_settings.targets) != {"plan"}:
        print(outcome_text(PLAN.results), file=sys.stderr)


def stop_once(number, frame):
    """Stop as on Ctrl-C, but only once: Snakemake answers a second one with a traceback and no report."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("Stopping the ranks; what was measured is kept.", file=sys.stderr, flush=True)
    raise KeyboardInterrupt


def report_what_there_is():
    """After a failed or stopped run: the report of what has been measured so far."""
    done = subprocess.run([PYTHON, str(SCRIPTS / "rebuild_report.py"), RESULTS])
    if done.returncode == 0:
        print_outcome()
        print(f"What was measured so far: {RESULTS}/report.html", file=sys.stderr)


IS_RETRY = is_asked_to_retry(sys.argv)
PLAN = plan_campaign()
RESULTS = str(PLAN.results)
CAMPAIGN = str(PLAN.campaign.file.path)
FROZEN = str(PLAN.frozen_campaign)
BATCHES = [batch.id for batch in PLAN.batches]
MANIFESTS = sorted(
    {f"{RESULTS}/batches/{batch}/manifest.json" for batch in BATCHES}
    | {str(path) for path in PLAN.results.glob("batches/*/manifest.json")}
)
# A finished batch is a file like any other: only what is left to do can be made. Jobs on a cluster make what they are told.
BATCH_PATTERN = ("|".join(map(re.escape, BATCHES)) or "none") if workflow.is_main_process else ".+"
UNLISTED = [str(path) for path in PLAN.history.unlisted]  # of batches that were stopped: what they measured counts
RETRY_FLAG = "--retry" if IS_RETRY else ""  # not a param: a run without it must not make anything again
PYTHON = sys.executable
