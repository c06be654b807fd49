"""One Snakemake invocation on one campaign: the values that its rules use, and the steps before and after their jobs.

In a job on a cluster the rules are read again, but nothing is planned: the job uses the frozen batch, even if the
campaign file has changed since.
"""

import contextlib
import functools
import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regatta.campaign.load import load_campaign
from regatta.campaign.module_config import written_config
from regatta.command_line import is_read_only, is_retry_requested, parse_command_line
from regatta.compare.campaigns import check_baseline_campaign
from regatta.compare.gate import STATUS, result_of
from regatta.core.errors import (
    UNEXPECTED_ERROR,
    USER_ERROR,
    UserError,
    ending_on_user_errors,
    exit_with_user_error,
    keep_running_unread,
)
from regatta.core.files import ROOT, SCRIPTS, check_folders, hold
from regatta.job_resources import check_set_resources, ignored_defaults, of_site, resources_of_jobs
from regatta.launchers import LAUNCHERS, launcher_of
from regatta.launchers.base import Geometry, end_jobs, outlive_run_campaign
from regatta.plan.batches import Batch
from regatta.plan.plan import Plan, nothing_to_retry, plan_campaign, tidy_frozen
from regatta.report.commands import DEFAULTS, note_run, recorded_run
from regatta.run.kept_outputs import read_again
from regatta.run.on_finish import run_on_finish
from regatta.run.preflight import failed_stacks
from regatta.run.progress import outcome_text, run_status
from regatta.run.run_lines import print_progress, warn_if_busy
from regatta.store.history import end_times_after_now
from regatta.store.jobs import hosts_to_avoid

MEASURING = ("preflight", "measure")  # rules whose jobs are submitted
NOTHING_TO_START = {"exclusive": False, "cpus_per_rank": 1}
NO_GATE = {"baseline_campaign": None, "margin": 0, "allocation_variation": 0, "undecided": "likely"}
ALL_CORES = 10_000  # Snakemake reduces it to what it has
FOLDERS = ("batches", "cache", "launches", "logs", "preflight", "tables")  # of a results folder


class Session:
    """The state of Snakemake's process for one campaign. In a job on a cluster there is no plan.

    workflow: Snakemake's object. argv: its command line, `sys.argv`. config: in a module of another workflow, the
    campaign. rules: their names there (`use rule * from regatta as regatta_*`), by their names here.
    """

    def __init__(self, workflow, argv: Sequence[str], config: Mapping):
        self.workflow = workflow
        self.config = None if workflow.modifier.is_main_snakefile() else config
        self.rules = {name: name for name in ("all", "gate", "plan", *MEASURING)}
        self.rename_rules()
        self.options = parse_command_line(argv)
        self.is_retry = is_retry_requested(self.options, self.rules["measure"])
        self.lock = None
        self.is_stopping, self.is_closing = threading.Event(), threading.Event()
        self.plan: Plan | None = None
        # A rule of the parent may name a file of the campaign, also in a job.
        self.results, self.prices = Path("results", str((self.config or {}).get("name", "none"))), {}
        if not workflow.is_main_process:
            return
        keep_running_unread()
        gc.disable()  # every collection would traverse the millions of objects of a large plan
        with ending_on_user_errors():
            self.plan = self._make_plan()
        gc.freeze()
        gc.enable()
        if self.is_retry and (text := nothing_to_retry(self.plan)):
            print(text, file=sys.stderr)
        self.results = self.plan.results
        self.prices = {price.batch.id: price for price in self.plan.batch_prices}

    def rename_rules(self) -> None:
        """Learn the names in the parent of the rules that are imported now."""
        found = {name: self.workflow.modifier.avail_rulename(name) for name in self.rules}
        self.rules |= {name: here for name, here in found.items() if here}

    def _campaign_file(self) -> Path:
        """Return the file of --configfile, else the default; in a module, a copy of its config. Snakemake would merge
        it into other configurations."""
        if self.config is not None:
            if self.workflow.modifier.modify_path(page := str(self.results / "report.html")) != page:
                raise UserError("A module of Regatta cannot have prefix or replace_prefix. Remove it: results/ stays.")
            return written_config(self.config)
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
        may_lack_files = self.rules["plan"] in self.options.targets
        if may_lack_files and len(self.options.targets) > 1:
            raise UserError("plan cannot be combined with other targets: nothing runs in a plan. Specify it alone.")
        campaign = load_campaign(path, may_lack_files=may_lack_files)
        for folder in ((Path("results") / campaign.name).resolve(), ROOT):
            if (shown := os.fsencode(folder).decode(errors="backslashreplace")) != str(folder):
                raise UserError(f"{shown}: this path is not UTF-8, so ranks cannot find it. Use another folder.")
        if Path("results").exists() and not Path("results").is_dir():  # Snakemake would end with a traceback
            raise UserError("results: is not a folder. Rename it, or work in another folder.")
        launcher, is_run = launcher_of(campaign.cluster), not is_read_only(self.options, self.rules["plan"])
        settings = self.workflow.resource_settings
        check_set_resources(settings, launcher.jobs, [self.rules[name] for name in MEASURING])
        if ignored := ignored_defaults(settings, launcher.jobs):
            print(f"--default-resources: no effect on what is measured: {', '.join(ignored)}", file=sys.stderr)
        found: dict[str, None] = {}
        for place, shapes in campaign.places():
            site = of_site(settings, self.rules["measure"], place)
            found |= dict.fromkeys(launcher.checks.site_problems(site, shapes, campaign.data["stacks"]))
        problems = "\n".join(f"{campaign.cluster_file}: {problem}" for problem in found)
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
            note_run(plan.results, self._run(path))
        return plan

    @property
    def _profile(self) -> str:
        return [*(self.options.profile or ()), os.environ.get("SNAKEMAKE_PROFILE") or DEFAULTS["PROFILE"]][0]

    @property
    def is_job_of_parent(self) -> bool:
        """Return whether this is a job of a rule of another workflow, of which Regatta is a module."""
        measuring = {self.rules[name] for name in MEASURING}
        return self.plan is None and self.config is not None and not measuring & {*self.options.allowed_rules}

    @property
    def command(self) -> list[str]:
        """Return what the report's commands depend on: another campaign file or profile rebuilds it."""
        run = self._run(self.plan.campaign.file.path) if self.plan else recorded_run(self.results)
        return [run.get("config", ""), run.get("profile", ""), *run.get("start", ())]

    def _run(self, path: Path) -> dict:
        """Return how this run is started again, by make unless in another folder or as a module."""
        run = {"config": str(path), "profile": self._profile}
        start = [sys.executable, str(SCRIPTS / "run_campaign.py"), str(path), "--profile", self._profile]
        if self.config is not None:
            start = ["snakemake", "--profile", self._profile]
        elif Path.cwd() == ROOT:
            return run
        return run | {"start": start, "retry": [*start, "--forcerun", self.rules["measure"]]}

    def _lock_campaign(self, name: str) -> None:
        """Lock a campaign until this process ends. Raises UserError if another Snakemake process runs it."""
        taken = f"results/{name}: another Snakemake process is running this campaign. Wait for it, or stop it."
        self.lock = hold(Path("results") / name / ".lock", taken)

    # Values for the rules.

    def batch_resources(self) -> dict:
        """Return the resources of the jobs that measure batches."""
        return self._resources("measure", self._batch_job)

    def preflight_resources(self) -> dict:
        """Return the resources of the job of the preflight."""
        return self._resources("preflight", self._preflight_job if self.plan and self.plan.preflights else None)

    def _resources(self, rule: str, job: Callable | None) -> dict:
        """Return functions, which Snakemake calls for each job and attempt; nothing where no job is submitted."""
        if self.plan is None:  # a plugin reads them again in a job, where the cluster is unknown
            return {name: value for one in LAUNCHERS.values() for name, value in one.jobs.resources_in_job.items()}
        cluster = self.plan.campaign.cluster if job else {"scheduler": "none"}
        launcher = launcher_of(cluster)
        if not launcher.submits:
            return {}
        return resources_of_jobs(self.workflow, self.rules[rule], cluster["max_jobs"], launcher.jobs, job)

    def batch_threads(self, wildcards) -> int:
        """Return the threads of a batch: all cores without submission, even within the user's allocation, so that one
        runs at a time. The executor is known only once the rules have been read."""
        return self._threads(self._batch_job, wildcards)

    def preflight_threads(self, wildcards) -> int:
        return self._threads(self._preflight_job, wildcards)

    def _threads(self, job: Callable, wildcards) -> int:
        if self.config is not None and self.plan and not (self.workflow.dryrun or self.workflow.touch):
            self._check_profile()  # a parent's rules may start without `onstart`
        is_here = self.workflow.local_exec or self.plan is None
        return ALL_CORES if is_here else job(wildcards)[0].cluster.get("cpus_per_rank") or 1

    def _batch_job(self, wildcards) -> tuple[Geometry, float, list]:
        """Return where a batch runs, for how many minutes, and which nodes it avoids, in groups."""
        price = self.prices[wildcards.batch]
        batch, minutes = price.batch, price.reserved_minutes
        if self._is_all_held(batch):  # the preflight has ended by now: nothing is left to start
            return Geometry(batch.cluster | NOTHING_TO_START, 1, 1, batch.geometry.device), 0, [[], self.plan.blamed]
        avoid = hosts_to_avoid(self.results / "batches" / batch.id)
        return batch.geometry, minutes, [avoid, self.plan.blamed]

    def _preflight_job(self, wildcards) -> tuple[Geometry, float, list]:
        [preflight] = [one for one in self.plan.preflights if one.id == wildcards.preflight]
        avoid = hosts_to_avoid(self.results / "preflight" / preflight.id)
        return preflight.geometry, preflight.minutes, [avoid, self.plan.blamed]

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
        given = {name: self.gate[name] for name in ("margin", "allocation_variation", "undecided")}
        return shlex.join(f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None)

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
        """Return the targets, those of Regatta by their names here."""
        names = {name: here for here, name in self.rules.items()}
        return {names.get(target, target) for target in self.workflow.dag_settings.targets}

    def prepare(self) -> None:
        """Check what the plan cannot know, and let SIGTERM and SIGHUP stop a local run as Ctrl-C does."""
        if self.rules["measure"] in self.workflow.dag_settings.forcerun and not self.is_retry:
            exit_with_user_error("forcerun: measure only takes effect on the command line (--forcerun measure).")
        if self.targets == {"plan"}:
            return
        if self.plan.campaign.missing:
            exit_with_user_error("\n".join(missing.text for missing in self.plan.campaign.missing))
        with ending_on_user_errors():
            self._check_profile()
            if self.baseline and "gate" in self.targets:
                self._check_baseline()
        warn_if_busy(self.plan.campaign.cluster, is_measuring=bool(self.prices) and not self.workflow.dryrun)
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

    @functools.cache  # noqa: B019
    def _check_profile(self) -> None:
        """Raise UserError if the profile cannot run this cluster's jobs."""
        cluster, shapes = self.plan.campaign.cluster, [batch.shape for batch in self.plan.batches]
        if problem := launcher_of(cluster).checks.profile_problem(cluster, self.workflow.local_exec, shapes):
            raise UserError(problem)

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
        failed = {name for job in self.workflow.scheduler.failed for name in job.rules}
        rules = failed - {self.rules[name] for name in MEASURING}
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
