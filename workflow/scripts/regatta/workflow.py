"""One Snakemake invocation on one campaign: the values that its rules use, and the steps before and after their jobs.

In a job on a cluster the rules are read again, but nothing is planned: the job uses the frozen batch, even if the
campaign file has changed since.
"""

import argparse
import contextlib
import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from snakemake.cli import get_argument_parser

from regatta.campaign.load import load_campaign
from regatta.campaign.yaml_file import read_yaml
from regatta.compare.campaigns import check_baseline_campaign
from regatta.compare.gate import STATUS, result_of
from regatta.core.errors import (
    UNEXPECTED_ERROR,
    USER_ERROR,
    UserError,
    describe_os_error,
    drop_lost_output,
    exit_with_user_error,
)
from regatta.core.files import ROOT, SCRIPTS, check_folders, hold
from regatta.launchers import launcher_of
from regatta.launchers.base import Geometry, end_jobs, outlive_run_campaign
from regatta.plan.batches import Batch
from regatta.plan.plan import Plan, nothing_to_retry, plan_campaign, tidy_frozen
from regatta.report.commands import DEFAULTS, note_run
from regatta.run.kept_outputs import read_again
from regatta.run.on_finish import run_on_finish
from regatta.run.preflight import failed_stacks
from regatta.run.progress import outcome_text, run_status
from regatta.run.run_lines import print_progress, warn_if_busy
from regatta.store.history import end_times_after_now
from regatta.store.jobs import hosts_to_avoid

NOTHING_TO_START = {"exclusive": False, "cpus_per_rank": 1}
NO_GATE = {"baseline_campaign": None, "margin": 0, "allocation_variation": 0, "undecided": "likely"}
ALL_CORES = 10_000  # Snakemake reduces it to what it has
FOLDERS = ("batches", "cache", "launches", "logs", "preflight", "tables")  # of a results folder
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


def is_retry_requested(options: argparse.Namespace) -> bool:
    """Return whether the command line contains `--forcerun measure`."""
    return "measure" in options.forcerun


def is_read_only(options: argparse.Namespace) -> bool:
    """Return whether nothing is measured: a dry run, a plan, or an option by which Snakemake only shows something."""
    shows_report = options.report and not options.report_after_run
    return bool("plan" in options.targets or shows_report or any(getattr(options, name) for name in READ_ONLY))


def check_configfiles(argv: Sequence[str]) -> None:
    """Read the files of --configfile, and end with file, line and remedy if one is missing or invalid.

    The profiles call this: Snakemake reads these files before any rule, and reports neither file nor line of an error.
    """
    for path in parse_command_line(argv).configfile:
        with ending_on_user_errors():
            file, key = read_yaml(path), "__use_yte__"
        if key in file.data:
            exit_with_user_error(f"{file.at((key,))}: {key} lets Snakemake run code from this file. Remove the key.")


@contextlib.contextmanager
def ending_on_user_errors() -> Iterator[None]:
    """End the process with a user error's message. A WorkflowError would add locations in the rules."""
    try:
        yield
    except UserError as error:
        exit_with_user_error(str(error))
    except OSError as error:
        exit_with_user_error(describe_os_error(error))


class Session:
    """The state of Snakemake's process for one campaign. In a job on a cluster there is no plan.

    workflow: Snakemake's object. argv: its command line, `sys.argv`.
    """

    def __init__(self, workflow, argv: Sequence[str]):
        self.workflow = workflow
        self.options = parse_command_line(argv)
        self.is_retry = is_retry_requested(self.options)
        self.lock = None
        self.is_stopping, self.is_closing = threading.Event(), threading.Event()
        self.plan: Plan | None = None
        self.results, self.prices = Path("results/none"), {}
        if not workflow.is_main_process:
            return
        drop_lost_output()
        gc.disable()  # every collection would traverse the millions of objects of a large plan
        with ending_on_user_errors():
            self.plan = self._make_plan()
        gc.freeze()
        gc.enable()
        if self.is_retry and (text := nothing_to_retry(self.plan)):
            print(text, file=sys.stderr)
        self.results = self.plan.results
        self.prices = {price.batch.id: price for price in self.plan.batch_prices}

    def _campaign_file(self) -> Path:
        """Return the file of --configfile, else the default. Snakemake would merge it into other configurations."""
        settings = self.workflow.config_settings
        given = [Path(path) for path in settings.configfiles]
        settings.configfiles = []  # jobs do not read it: an edit must not stop them
        if len(given) > 1:
            raise UserError("--configfile has several files, but a campaign is one file. Specify one.")
        if settings.config:
            keys = ", ".join(settings.config)
            raise UserError(f"--config ({keys}) has no effect on a campaign. Edit the campaign file, or a copy of it.")
        path = given[0] if given else ROOT / "config" / "config.yaml"
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

    def _make_plan(self) -> Plan:
        """Plan the campaign, once, before the graph is built."""
        path = self._campaign_file()
        may_lack_files = "plan" in self.options.targets
        if may_lack_files and len(self.options.targets) > 1:
            raise UserError("plan cannot be combined with other targets: nothing runs in a plan. Specify it alone.")
        campaign = load_campaign(path, may_lack_files=may_lack_files)
        for folder in ((Path("results") / campaign.name).resolve(), ROOT):
            if (shown := os.fsencode(folder).decode(errors="backslashreplace")) != str(folder):
                raise UserError(f"{shown}: this path is not UTF-8, so ranks cannot find it. Use another folder.")
        if Path("results").exists() and not Path("results").is_dir():  # Snakemake would end with a traceback
            raise UserError("results: is not a folder. Rename it, or work in another folder.")
        cluster, launcher, is_run = campaign.cluster, launcher_of(campaign.cluster), not is_read_only(self.options)
        of_places = (launcher.checks.site_problems(*place, campaign.data["stacks"]) for place in campaign.places())
        found = dict.fromkeys(problem for problems in of_places for problem in problems)
        problems = "\n".join(f"config/clusters/{cluster['name']}.yaml: {problem}" for problem in found)
        if problems and is_run:
            raise UserError(problems)
        if problems:  # the plan may be for a different machine
            print(problems, file=sys.stderr)
        if is_run:  # locked before planning: Snakemake would act on a plan that another run has made outdated
            self._lock_campaign(campaign.name)
            launcher.queue.wait_for_jobs(campaign.name, Path.cwd())
            end_times_after_now(Path("results") / campaign.name)
            check_folders(Path("results") / campaign.name, FOLDERS)
        plan = plan_campaign(campaign, Path("results"), is_retry=self.is_retry)
        if is_run and read_again(plan.results, plan.kept, plan.history.grown):
            plan = plan_campaign(campaign, Path("results"), is_retry=self.is_retry)
        for problem in [*plan.history.problems, *tidy_frozen(plan)] if is_run else ():
            print(f"{plan.results}: {problem}", file=sys.stderr)
        if is_run:
            note_run(plan.results, path, self._profile)
        return plan

    @property
    def _profile(self) -> str:
        return [*(self.options.profile or ()), os.environ.get("SNAKEMAKE_PROFILE") or DEFAULTS["PROFILE"]][0]

    @property
    def command(self) -> list[str]:
        """Return what the report's commands depend on: another campaign file or profile rebuilds it."""
        return [str(self.plan.campaign.file.path), self._profile] if self.plan else []

    def _lock_campaign(self, name: str) -> None:
        """Lock a campaign until this process ends. Raises UserError if another Snakemake process runs it."""
        taken = f"results/{name}: another Snakemake process is running this campaign. Wait for it, or stop it."
        self.lock = hold(Path("results") / name / ".lock", taken)

    # Values for the rules.

    def batch_resources(self) -> dict:
        """Return the resources of the jobs that measure batches."""

        def job(wildcards) -> tuple[Geometry, float, list[str]]:
            price = self.prices[wildcards.batch]
            batch, minutes = price.batch, price.reserved_minutes
            if self._is_all_held(batch):  # the preflight has ended by now: nothing is left to start
                return Geometry(batch.cluster | NOTHING_TO_START, 1, 1, batch.geometry.device), 0, []
            return batch.geometry, minutes, hosts_to_avoid(self.results / "batches" / batch.id)

        return self._resources(job)

    def preflight_resources(self) -> dict:
        """Return the resources of the job of the preflight."""

        def job(wildcards) -> tuple[Geometry, float, list[str]]:
            [preflight] = [one for one in self.plan.preflights if one.id == wildcards.preflight]
            avoid = hosts_to_avoid(self.results / "preflight" / preflight.id)
            return preflight.geometry, preflight.minutes, avoid

        return self._resources(job if self.plan and self.plan.preflights else None)

    def _resources(self, job: Callable | None) -> dict:
        """Return functions, which Snakemake calls for each job and attempt; nothing where no job is submitted.

        nodes: counted by --resources nodes. runtime, longest: minutes. most_jobs: in the queue, 0 for no limit.
        options: of the scheduler, quoted for a shell.
        """
        if self.plan is None or not launcher_of(self.plan.campaign.cluster).submits:
            return {}
        jobs = launcher_of(self.plan.campaign.cluster).jobs

        def of_job(wildcards, attempt) -> dict:
            geometry, minutes, avoid = job(wildcards)
            return {
                "nodes": geometry.nodes,
                "runtime": jobs.walltime_minutes(geometry.cluster, minutes, attempt),
                "longest": geometry.cluster["max_walltime_minutes"],
                "most_jobs": self.plan.campaign.cluster["max_jobs"] or 0,
                "options": shlex.join(jobs.options(geometry, minutes, [avoid, self.plan.blamed], attempt)),
            }

        names = ("nodes", "runtime", "longest", "most_jobs", "options") if job else ()
        return {name: (lambda wildcards, attempt, name=name: of_job(wildcards, attempt)[name]) for name in names}

    def _is_all_held(self, batch: Batch) -> bool:
        """Return whether the preflight failed every stack of a batch. Its job then needs no nodes."""
        failed = {stack for one in self.plan.preflights for stack in failed_stacks(self.plan.result_of(one))}
        return {launch.stack for launch in batch.launches} <= failed

    def manifests(self) -> list[str]:
        """Return the manifests of all batches, planned and finished."""
        found = {f"{self.results}/batches/{batch}/manifest.json" for batch in self.prices}
        return sorted(found | {str(path) for path in self.results.glob("batches/*/manifest.json")})

    @property
    def gate(self) -> dict:
        return self.plan.campaign.data["gate"] if self.plan else NO_GATE

    @property
    def gate_options(self) -> str:
        """Return the options of gate.py that are set, quoted for a shell."""
        names = ("margin", "allocation_variation", "undecided")
        given = {name: self.gate[name] for name in names if self.gate[name] is not None}
        return shlex.join(f"--{name.replace('_', '-')}={value}" for name, value in given.items())

    @property
    def gate_files(self) -> list[Path]:
        return [self.results / name for name in ("gate.txt", "gate.junit.xml", "gate.html")]

    @property
    def baseline(self) -> Path | None:
        name = self.gate["baseline_campaign"]
        return self.results.parent / name if name else None

    # Before the first job.

    @property
    def targets(self) -> set[str]:
        return set(self.workflow.dag_settings.targets)

    def prepare(self) -> None:
        """Check what the plan cannot know, and let SIGTERM and SIGHUP stop a local run as Ctrl-C does."""
        if "measure" in self.workflow.dag_settings.forcerun and not self.is_retry:
            exit_with_user_error("forcerun: measure only takes effect on the command line (--forcerun measure).")
        if self.targets == {"plan"}:
            return
        if self.plan.campaign.missing:
            exit_with_user_error("\n".join(missing.text for missing in self.plan.campaign.missing))
        cluster, shapes = self.plan.campaign.cluster, [batch.shape for batch in self.plan.batches]
        if problem := launcher_of(cluster).checks.profile_problem(cluster, self.workflow.local_exec, shapes):
            exit_with_user_error(problem)
        if self.baseline and "gate" in self.targets:
            with ending_on_user_errors():
                self._check_baseline()
        warn_if_busy(cluster, is_measuring=bool(self.prices) and not self.workflow.dryrun)
        if not self.workflow.local_exec:  # submitted jobs continue if run_campaign.py is killed
            outlive_run_campaign()
        logging.getLogger("snakemake.logging").addFilter(self._is_shown)
        # On SIGTERM Snakemake would wait for its jobs, even for one that can never start.
        signal.signal(signal.SIGTERM, self._stop_once)
        if self.workflow.local_exec:
            threading.Thread(target=end_jobs, args=(self.is_stopping, self.is_closing), daemon=True).start()
            signal.signal(signal.SIGINT, self._stop_once)
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(signal.SIGHUP, self._stop_once)
        for path in self.gate_files:  # left by earlier runs
            path.unlink(missing_ok=True)
        if not self.workflow.dryrun:
            arguments = (self.results, self.is_stopping, self.is_closing, not self.workflow.local_exec)
            threading.Thread(target=print_progress, args=arguments, daemon=True).start()

    def _check_baseline(self) -> None:
        """Raise UserError before anything is measured if the baseline campaign has no results."""
        where, name = self.plan.campaign.file.at(("gate", "baseline_campaign")), self.gate["baseline_campaign"]
        if name == self.plan.campaign.name:
            raise UserError(f"{where}: gate.baseline_campaign is this campaign itself. Specify another.")
        try:
            check_baseline_campaign(self.baseline)
        except UserError as error:
            raise UserError(f"{where}: gate.baseline_campaign = '{name}', but {error}") from None

    # Signals.

    def _stop_once(self, _number: int, _frame: object) -> None:
        """Stop as on Ctrl-C, but only once: on a second signal Snakemake ends with a traceback and no report."""
        # A local job that is being started would inherit SIG_IGN; an scancel should.
        self._ignore_signals((lambda *_: None) if self.workflow.local_exec else signal.SIG_IGN)
        self.is_stopping.set()
        with contextlib.suppress(OSError):  # not print: the signal may have interrupted one. The terminal may be gone
            os.write(sys.stderr.fileno(), b"Stopping the ranks; completed measurements are kept.\n")
        raise KeyboardInterrupt

    def _is_shown(self, record: logging.LogRecord) -> bool:
        """Return whether Snakemake prints a record: not the error of a job that a stop has ended."""
        is_of_job = hasattr(record, "rule_name") or getattr(record, "exception", None) == "RuleException"
        return not (self.is_stopping.is_set() and record.levelno >= logging.ERROR and is_of_job)

    def _begin_to_close(self) -> None:
        """Ignore signals from now on: the jobs are over, and the last steps take seconds."""
        self.is_closing.set()
        self._ignore_signals(signal.SIG_IGN)

    def _ignore_signals(self, handler) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if self.workflow.local_exec or number != signal.SIGHUP:
                signal.signal(number, handler)

    # After the last job.

    def close(self) -> None:
        self._begin_to_close()
        self._print_outcome()
        self._print_gate()
        self._end_with_status()

    def close_failed(self, log: str) -> None:
        """End a failed run: with the gate's verdict, or with a report of the measurements so far."""
        self._begin_to_close()
        if self._has_judged():
            self._print_outcome()
            self._print_gate()
            sys.exit(STATUS[result_of(self.gate_files[0].read_text(encoding="utf-8"))])
        if self.targets == {"plan"}:
            sys.exit(USER_ERROR)  # such as an unwritable directory; printed above
        report_problem = self._build_partial_report()
        print(f"Snakemake's log: {log}", file=sys.stderr)
        rules = {name for job in self.workflow.scheduler.failed for name in job.rules} - {"preflight", "measure"}
        self._end_with_status(f"rule {', '.join(sorted(rules))} failed" if rules else report_problem)
        print(f"exit status {UNEXPECTED_ERROR}: the run failed, see above", file=sys.stderr)
        sys.exit(UNEXPECTED_ERROR)

    def _print_outcome(self) -> None:
        if self.targets != {"plan"}:
            print(outcome_text(self.results), file=sys.stderr)

    def _has_judged(self) -> bool:
        return "gate" in self.targets and self.gate_files[0].exists()

    def _print_gate(self) -> None:
        if self._has_judged():
            print(self.gate_files[0].read_text(encoding="utf-8"), end="", flush=True)

    def _build_partial_report(self) -> str | None:
        """Build the report of the measurements so far. Returns the error, or None."""
        line = [sys.executable, str(SCRIPTS / "rebuild_report.py"), str(self.results)]
        done = subprocess.run(line, stdout=subprocess.DEVNULL)  # the path, which is printed below
        if done.returncode == 0:
            self._print_outcome()
            print(f"Partial report: {self.results}/report.html", file=sys.stderr)
        return None if done.returncode in (0, USER_ERROR) else "the report could not be built"

    def _end_with_status(self, failed_step: str | None = None) -> None:
        """End a run of the whole campaign with its exit status (README); return if it is 0."""
        settings = self.workflow.dag_settings
        is_part = not self.targets <= {"all", "gate"} or settings.until or settings.omit_from
        if is_part or self.workflow.dryrun or self.workflow.touch:
            return
        repeats = range(self.plan.campaign.data["repeats"])
        planned = [(cell.cell.id, repeat) for cell in self.plan.cells for repeat in repeats]
        status, cause = run_status(self.results, planned, self.prices, failed_step)
        if status:
            where = f". Report: {page}" if (page := self.results / "report.html").exists() else ""
            print(f"exit status {status}: {cause}{where}", file=sys.stderr, flush=True)
        campaign = self.plan.campaign
        run_on_finish(campaign.data["on_finish"], campaign.name, status, self.results)
        if status:
            sys.exit(status)
