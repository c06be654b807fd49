"""Load the campaign and plan it, once, before the graph is built. Names in capitals are used by the rules.

In a job on a cluster this file is read again. There nothing is planned: the job makes the file that it was sent for from
what was frozen, whatever has become of the campaign file since.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

SCRIPTS = Path(workflow.basedir) / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS))

from regatta.launchers import slurm_queue as queue
from regatta.campaign.load import load_campaign
from regatta.campaign.command_line import is_asked_to_retry, only_looks
from regatta.core.errors import UNEXPECTED_ERROR, USER_ERROR, UserError, describe_os_error, exit_with_user_error
from regatta.run.policy import run_status
from regatta.launchers.slurm_resources import sbatch_options, shape_resources, site_resources, walltime_minutes
from regatta.core.files import hold
from regatta.report.outcome import outcome_text
from regatta.plan.plan import batch_prices, make_plan
from regatta.store.launch_files import hosts_to_avoid
from regatta.run.processes import end_jobs
from regatta.run.preflight import failed_stacks, latest_preflight
from regatta.launchers.slurm_resources import partition_problems, read_partitions
from regatta.core.files import sources
from regatta.store.history import end_times_after_now
from regatta.store.tables import COLLECTED, TABLES

STACK_MINUTES = 1  # of a preflight, beside the time that its ranks have to start
NOTHING_TO_START = {"exclusive": False, "cpus_per_rank": 1}
NOTHING = {"slurm_extra": "", "gres": "", "tasks_per_gpu": 0}


def campaign_file():
    """The campaign: the one file of --configfile, else the default. Regatta reads it itself, so that nothing of the
    default campaign is ever merged into another."""
    given = [Path(path) for path in workflow.config_settings.configfiles]
    workflow.config_settings.configfiles = []  # not for the jobs: a file that is being edited must not stop them
    if len(given) > 1:
        raise UserError("--configfile was given several files; a campaign is one file. Give one.")
    if workflow.config_settings.config:
        keys = ", ".join(workflow.config_settings.config)
        raise UserError(f"--config ({keys}) is not used: a campaign is what its file says. Edit the file, or copy it.")
    path = given[0] if given else Path(workflow.basedir) / "config" / "config.yaml"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def plan_campaign():
    try:
        path = campaign_file()
        campaign = load_campaign(path)
        if campaign.cluster["scheduler"] == "slurm":
            tell_what_cannot_start(campaign, only_looks(sys.argv))
        if campaign.cluster["scheduler"] == "slurm" and not only_looks(sys.argv):
            from regatta.launchers.slurm_executor import mend_status_queries

            mend_status_queries()
            take(campaign.name)
            queue.wait_for_live_jobs(campaign.name, Path.cwd())
        if not only_looks(sys.argv):
            end_times_after_now(Path("results") / campaign.name)
        return make_plan(path, Path("results"), is_retry=IS_RETRY)
    except UserError as error:
        exit_with_user_error(str(error))  # a WorkflowError would add the places in this file where it came from
    except OSError as error:
        exit_with_user_error(describe_os_error(error))


def tell_what_cannot_start(campaign, is_note):
    """Slurm takes a job that asks for more than its partition has, and lets it wait for ever. A plan may be for elsewhere."""
    shapes = [(n, g) for shape in campaign.data["shapes"] for n in shape["nodes"] for g in shape["gpus_per_node"]]
    problems = [] if queue.job_id() else partition_problems(campaign.cluster, shapes, read_partitions())
    text = "\n".join(f"config/clusters/{campaign.cluster['name']}.yaml: {problem}" for problem in problems)
    if problems and not is_note:
        raise UserError(text)
    if problems and workflow.is_main_process:
        print(text, file=sys.stderr)


def take(name):
    """Lock a campaign until this process ends. Raises UserError if another Snakemake runs it."""
    global campaign_lock
    taken = f"results/{name}: another Snakemake is running this campaign. Wait for it, or stop it."
    if campaign_lock is None:
        campaign_lock = hold(Path("results") / name / ".lock", taken)


def of_batch(key):
    """A resource of a batch's job, looked up once for each job and attempt. In a job itself it means nothing any more."""

    def value(wildcards, attempt):
        if PLAN is None:
            return NOTHING.get(key, 1)
        if is_all_held(wildcards.batch):  # by now the preflight has been made: nothing is left to start
            return job_resource(key, PLAN.campaign.cluster | NOTHING_TO_START, (1, 1), 0, attempt, [])
        shape = tuple(map(int, re.match(r"n(\d+)g(\d+)-", wildcards.batch).groups()))
        avoid = hosts_to_avoid(Path(RESULTS) / "batches" / wildcards.batch)
        minutes = BATCH_MINUTES.get(wildcards.batch, 0)
        return job_resource(key, PLAN.campaign.cluster, shape, minutes, attempt, avoid)

    return value


def of_preflight(key):
    def value(wildcards, attempt):
        if PLAN is None or PLAN.preflight is None:
            return NOTHING.get(key, 1)
        content = PLAN.preflight.content
        minutes = len(content["stacks"]) * (content["launch_start_seconds"] / 60 + STACK_MINUTES)
        shape = (content["nodes"], content["gpus_per_node"])
        return job_resource(key, PLAN.campaign.cluster, shape, minutes, attempt, [])

    return value


def job_resource(key, cluster, shape, minutes, attempt, avoid):
    device = PLAN.campaign.data["device"]
    if key == "runtime":
        return walltime_minutes(cluster, minutes, attempt)
    if key == "slurm_extra":
        return sbatch_options(cluster, *shape, device, avoid)
    return shape_resources(cluster, *shape, device)[key]


def is_all_held(batch):
    """Whether the preflight failed every stack of a batch. Its job then only says so, and needs no nodes of its own."""
    stacks = {launch.stack for b in PLAN.batches if b.id == batch for launch in b.launches}
    return PLAN.preflight is not None and stacks <= failed_stacks(PLAN.preflight_result).keys()


def prepare_to_run():
    """Before the first job: no second Snakemake on this campaign, and a kill stops a local run as Ctrl-C does."""
    if "measure" in workflow.dag_settings.forcerun and not IS_RETRY:
        exit_with_user_error("forcerun: measure is taken only from the command line: snakemake ... --forcerun measure")
    if set(workflow.dag_settings.targets) == {"plan"}:
        return
    refuse_wrong_profile()
    try:
        take(PLAN.campaign.name)
    except UserError as error:
        exit_with_user_error(str(error))
    except OSError as error:
        exit_with_user_error(describe_os_error(error))
    # Snakemake answers SIGTERM by waiting for its jobs, also for one that can never start. The user wants them stopped.
    signal.signal(signal.SIGTERM, stop_once)
    if workflow.local_exec:
        threading.Thread(target=end_jobs, args=(has_to_stop, is_closing), daemon=True).start()
        signal.signal(signal.SIGINT, stop_once)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # else it runs under nohup
            signal.signal(signal.SIGHUP, stop_once)


def refuse_wrong_profile():
    """A campaign for a cluster is run by its jobs, one for this machine on this machine."""
    name, scheduler = PLAN.campaign.cluster["name"], PLAN.campaign.cluster["scheduler"]
    if scheduler == "none" and not workflow.local_exec:
        exit_with_user_error(
            f"cluster '{name}' has scheduler none: nothing of it is submitted. Use --profile profiles/local."
        )
    if scheduler == "slurm" and workflow.local_exec and queue.job_id() is None:
        exit_with_user_error(
            f"cluster '{name}' has scheduler slurm. Use --profile profiles/slurm; or profiles/local within an allocation."
        )
    shapes = [batch.shape for batch in PLAN.batches]
    if scheduler == "slurm" and workflow.local_exec and shapes:
        if problem := queue.does_not_fit(shapes, PLAN.campaign.cluster["cpus_per_rank"] or 1):
            exit_with_user_error(
                f"{problem}. Ask salloc for as much, or use --profile profiles/slurm, which submits each shape."
            )


def print_outcome():
    if set(workflow.dag_settings.targets) != {"plan"}:
        print(outcome_text(PLAN.results), file=sys.stderr)


def stop_once(number, frame):
    """Stop as on Ctrl-C, but only once: Snakemake answers a second one with a traceback and no report."""
    # A job that is just being started on this machine would inherit SIG_IGN; an scancel should.
    ignore_signals((lambda *_: None) if workflow.local_exec else signal.SIG_IGN)
    has_to_stop.set()
    try:
        os.write(sys.stderr.fileno(), b"Stopping the ranks; what was measured is kept.\n")
    except OSError:  # the terminal is gone
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
    raise KeyboardInterrupt


def begin_to_close():
    """The jobs are over. What still comes takes seconds, and a signal would only leave it half done."""
    is_closing.set()
    ignore_signals(signal.SIG_IGN)


def ignore_signals(handler):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if workflow.local_exec or number != signal.SIGHUP:
            signal.signal(number, handler)


def report_what_there_is():
    """After a failed or stopped run: the report of what has been measured so far. Returns what went wrong with it."""
    done = subprocess.run([PYTHON, str(SCRIPTS / "rebuild_report.py"), RESULTS])
    if done.returncode == 0:
        print_outcome()
        print(f"What was measured so far: {RESULTS}/report.html", file=sys.stderr)
    return None if done.returncode in (0, USER_ERROR) else "the report could not be built"


def what_failed():
    """Return which rules other than preflight and measure failed, or None."""
    rules = {name for job in workflow.scheduler.failed for name in job.rules} - {"preflight", "measure"}
    return f"rule {', '.join(sorted(rules))} failed" if rules else None


def end_with_status(failed_step=None):
    """End a run that was to measure the whole campaign with the exit status of README; return where it is 0."""
    settings = workflow.dag_settings
    is_part = not set(settings.targets) <= {"all", "gate"} or settings.until or settings.omit_from
    if is_part or workflow.dryrun or workflow.touch:
        return
    planned = [(plan.cell.id, repeat) for plan in PLAN.cells for repeat in range(PLAN.campaign.data["repeats"])]
    status, cause = run_status(PLAN.results, planned, BATCHES, failed_step)
    if status:
        page = PLAN.results / "report.html"
        where = f". Report: {page}" if page.exists() else ""
        print(f"exit status {status}: {cause}{where}", file=sys.stderr, flush=True)
        sys.exit(status)


def closing(execute):
    """Snakemake calls no hook where nothing is left to do. A campaign without results must fail then, too."""

    def execute_and_close(*arguments, **options):
        execute(*arguments, **options)
        if not workflow.dryrun and not is_closing.is_set():
            print_outcome()
            end_with_status()

    return execute_and_close


campaign_lock = None
has_to_stop, is_closing = threading.Event(), threading.Event()
IS_RETRY = is_asked_to_retry(sys.argv)
RETRY_FLAG = "--retry" if IS_RETRY else ""  # not a param: a run without it must not make anything again
PYTHON = sys.executable
if workflow.is_main_process:
    workflow.execute = closing(workflow.execute)
    queue.keep_configuration()
    PLAN = plan_campaign()
    RESULTS = str(PLAN.results)
    CAMPAIGN = str(PLAN.campaign.file.path)
    FROZEN = str(PLAN.frozen_campaign)
    BATCHES = [batch.id for batch in PLAN.batches]
    BATCH_MINUTES = {price["batch"]: price["minutes"] for price in batch_prices(PLAN)}
    SITE = site_resources(PLAN.campaign.cluster) if PLAN.campaign.cluster["scheduler"] == "slurm" else {}
    # All cores, which Snakemake cuts down to what it has: without submission, so also within an allocation that the user
    # holds, one batch runs at a time.
    THREADS = 10_000 if workflow.local_exec else 1
    # A finished batch is a file like any other: only what is left to do can be made.
    BATCH_PATTERN = "|".join(map(re.escape, BATCHES)) or "none"
    CAMPAIGN_PATTERN = re.escape(PLAN.campaign.name)
    PREFLIGHT = [str(PLAN.preflight_result)] if PLAN.preflight else []
    LATEST_PREFLIGHT = PREFLIGHT or latest_preflight(PLAN.results)
    PREFLIGHT_REQUEST = [f"{RESULTS}/preflight/{PLAN.preflight.id}/request.json"] if PLAN.has_preflight_to_run else []
    if PLAN.campaign.cluster["reservation"]:
        os.environ["SBATCH_RESERVATION"] = PLAN.campaign.cluster["reservation"]  # the executor has no resource for it
    if PLAN.campaign.cluster["memory_mb_per_node"] == 0:
        os.environ["SBATCH_MEM_PER_NODE"] = "0"  # all of it; the executor takes no --mem=0
else:
    PLAN, BATCHES, BATCH_MINUTES, SITE, THREADS, PREFLIGHT, PREFLIGHT_REQUEST = None, [], {}, {}, 1, [], []
    LATEST_PREFLIGHT = []
    RESULTS = CAMPAIGN = FROZEN = "results/none"  # of rules that are not run in a job
    BATCH_PATTERN, CAMPAIGN_PATTERN = r"n\d+g\d+-[0-9a-f]{12}", "[^/]+"
OF_TRAININGS = [f"{RESULTS}/{name}.csv" for name in COLLECTED if name != "measurements"]
MANIFESTS = sorted(
    {f"{RESULTS}/batches/{batch}/manifest.json" for batch in BATCHES}
    | {str(path) for path in Path(RESULTS).glob("batches/*/manifest.json")}
)
# Of batches that were stopped: what they measured counts.
UNLISTED = [str(path) for path in PLAN.history.unlisted] if PLAN else []
