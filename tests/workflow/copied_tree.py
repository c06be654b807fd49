"""A copy of the tree with an extension of examples/, and its commands in forks that import from the copy."""

import csv
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

from campaigns import QUICK_REPORT, write_campaign

import warm_start

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = "workflow/scripts"
NOT_COPIED = (".git", ".venv*", ".snakemake", ".*_cache", "__pycache__", "results", "*.sif")


def use_tree(tree: str) -> None:
    """Forget Regatta's modules of this checkout, and look for them in a copy."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "regatta"]:
        del sys.modules[name]
    installed = sys.prefix  # may be in the checkout too
    sys.path[:] = [path if path.startswith(installed) else path.replace(str(ROOT), tree) for path in sys.path]


def run(
    tree: Path, *words: object, cwd: Path | None = None, path: Path | None = None, env: dict | None = None
) -> CompletedProcess:
    """Run a script of a copy, or a module: run(tree, "plan.py", ...) or run(tree, "-m", "pytest", ...)."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | (env or {})
    if path:
        environment["PATH"] = os.pathsep.join([str(path), environment["PATH"]])
    head = [] if words[0] == "-m" else [str(tree / SCRIPTS / words[0])]
    command = [sys.executable, *head, *map(str, words[len(head) :])]
    return warm_start.run(command, cwd=cwd or tree, env=environment, prepare=partial(use_tree, str(tree)))


def check(done: CompletedProcess) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def pytest_of(tree: Path, *names: str) -> CompletedProcess:
    return run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names)


def make_tree(folder: Path, example: str) -> Path:
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    for part in ("workflow", "tests"):
        if (ROOT / "examples" / example / part).exists():
            shutil.copytree(ROOT / "examples" / example / part, tree / part, dirs_exist_ok=True)
    for patch in sorted((ROOT / "examples" / example).glob("*.patch")):
        subprocess.run(["git", "apply", str(patch)], cwd=tree, check=True, env=os.environ | {"GIT_DIR": "/nonexistent"})
    return tree


def run_campaign(tree: Path, folder: Path, campaign: dict, path: Path | None = None) -> Path:
    """Measure a campaign, and build its report in forks, which is faster. path: a folder that comes first in PATH."""
    file = write_campaign(folder, campaign)
    words = ("--snakefile", tree / "Snakefile", "--profile", tree / "profiles" / "local", "--configfile", file)
    check(run(tree, "-m", "snakemake", *words, cwd=folder, path=path, env=QUICK_REPORT))
    results = folder / "results" / campaign["name"]
    rebuild(tree, results)
    return results


def rebuild(tree: Path, results: Path) -> str:
    """Build the report again from the store, as rebuild_report.py does, and return it."""
    (frozen,) = results.glob("campaign.*.json")
    measurements, tables = results / "measurements.csv", results / "tables"
    store = ("--launches", results / "launches")
    known = ("--measurements", measurements)
    problems = ("--problems", results / "problems.json")
    check(run(tree, "collect.py", "--campaign", frozen, *store, "--out", measurements, *problems))
    check(run(tree, "analyse.py", "--campaign", frozen, *known, "--out-dir", tables))
    page = ("--tables", tables, "--out", results / "report.html")
    check(run(tree, "report.py", "--campaign", frozen, *known, *store, *page))
    return (results / "report.html").read_text(encoding="utf-8")


def section_of(page: str, name: str) -> str:
    """Return a section of the report as text, without images."""
    section = page.partition(f'<section id="{name}"')[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", section).split())


def rows_of(path: Path) -> list[dict]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
