"""Plan the campaign, once, before the graph is built (regatta/workflow.py). Names in capitals are used by the rules."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def clone_of(base):
    """Return a clone of a repository that a module names (github, gitlab), because Snakemake copies single files."""
    repository = base.hosted_repo.repo
    commit = repository.commit(base.ref).hexsha
    clone = Path(workflow.sourcecache.cache_path, "regatta", commit)
    if not clone.exists():
        clone.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{commit}.", dir=clone.parent))
        subprocess.run(["git", "clone", "--quiet", "--shared", repository.git_dir, draft], check=True)
        subprocess.run(["git", "-C", draft, "checkout", "--quiet", "--detach", commit], check=True)
        os.rename(draft, clone)
    return clone


BASE = workflow.current_basedir
SCRIPTS = (Path(BASE).parent if BASE.is_local else clone_of(BASE) / "workflow") / "scripts"
sys.path.insert(0, str(SCRIPTS))

from regatta.core.files import digest, sources
from regatta.module_session import session_of
from regatta.run.preflight import latest_preflight
from regatta.store.csv_files import COLLECTED
from regatta.store.history import read_history
from regatta.topics.catalog import TABLES

SESSION = session_of(workflow, sys.argv, config)
PLAN = SESSION.plan  # None in a job on a cluster
ANY_BATCH = r"n\d+g\d+-[0-9a-f]{12}"
PYTHON = sys.executable
PAGE = sorted(map(str, (SCRIPTS.parent / "report").glob("*[!t]")))  # templates and style sheet, without *.rst
RESULTS = str(SESSION.results)
BATCHES = list(SESSION.prices)
MANIFESTS = SESSION.manifests()
DETAILS = [f"{RESULTS}/{name}.csv" for name in COLLECTED if name != "measurements"]
RETRY_FLAG = "--retry" if SESSION.is_retry else ""  # not a param: a run without it must not rebuild anything
BATCH_RESOURCES = SESSION.batch_resources()
PREFLIGHT_RESOURCES = SESSION.preflight_resources()
if PLAN:
    CAMPAIGN = str(PLAN.campaign.file.path)
    CAMPAIGN_SHOWN = os.fsencode(CAMPAIGN).decode(errors="backslashreplace")  # a log is UTF-8
    FROZEN = str(PLAN.frozen_campaign)
    # Only unfinished batches can be made. Snakemake copies the pattern for each job: listing thousands takes seconds.
    BATCH_PATTERN = ANY_BATCH if len(BATCHES) == len(MANIFESTS) else "|".join(map(re.escape, BATCHES)) or "none"
    CAMPAIGN_PATTERN = re.escape(PLAN.campaign.name)
    PREFLIGHT = [str(PLAN.result_of(preflight)) for preflight in PLAN.preflights]
    PREFLIGHT_REQUEST = [str(PLAN.request_of(preflight)) for preflight in PLAN.preflights_to_run]
    LATEST_PREFLIGHT = PREFLIGHT or latest_preflight(PLAN.results)
    UNLISTED = [str(path) for path in PLAN.history.unlisted]  # launch files of batches that were stopped
else:
    CAMPAIGN = CAMPAIGN_SHOWN = FROZEN = RESULTS  # used by rules that are not run in a job
    PREFLIGHT, PREFLIGHT_REQUEST, LATEST_PREFLIGHT, UNLISTED = [], [], [], []
    BATCH_PATTERN, CAMPAIGN_PATTERN = ANY_BATCH, "[^/]+"
    if SESSION.is_job_of_parent:  # a rule of Regatta that the job's rule names must be up to date there
        FROZEN = str(next(SESSION.results.glob("campaign.*.json"), RESULTS))
        LATEST_PREFLIGHT = latest_preflight(SESSION.results)
        UNLISTED = [str(path) for path in read_history(SESSION.results).unlisted]
