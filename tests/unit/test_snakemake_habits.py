"""Conventions of Snakemake workflows: lint, environments for conda, an entry for the catalog, results/README.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "workflow" / "rules"
ENVIRONMENTS = {"driver": ["driver"], "local": ["driver", "rank"]}
NO_ENVIRONMENT = "Specify a conda environment or container for each rule."
# Remaining points of the linter, by file. The reason for NO_ENVIRONMENT is in params.smk; each file of rules refers to it.
JUSTIFIED = {
    "gate.smk": "Mixed rules and functions",  # an input function of its one rule
    "Snakefile": "No log directive defined",  # rule all prints nothing
}


def lines(path: str) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def locked(names: list[str]) -> dict[str, str]:
    """Return the pinned version of each package that requirements/*.in of these sets name."""
    found = {}
    for name in names:
        pins = dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", "\n".join(lines(f"requirements/{name}.lock")), re.M))
        direct = [re.match(r"[a-z0-9._-]+", line)[0] for line in lines(f"requirements/{name}.in") if line[:1].isalpha()]
        found |= {package: pins[package] for package in direct}
    return found


def lint() -> list[tuple[str, str]]:
    """Return the file and the title of each point of Snakemake's linter. Its own --lint json prints no JSON (9.27)."""
    line = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--lint"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    found, file = [], None
    for text in done.stderr.splitlines():
        if head := re.match(r"Lints for (?:snakefile|rule) .*?([^/ ]+?)\)?:$", text):
            file = head[1]
        elif text.startswith("    * "):
            found.append((file, text.removeprefix("    * ").removesuffix(":")))
    return found


@pytest.mark.slow
def test_snakemakes_linter_finds_only_points_that_are_justified():
    found = lint()
    with_rules = {
        path.name for path in RULES.glob("*.smk") if re.search(r"(?m)^rule \w+:", path.read_text(encoding="utf-8"))
    }
    assert {file for file, title in found if title == NO_ENVIRONMENT} == with_rules | {"Snakefile"}  # rule all
    for name in with_rules:
        assert "Reason: params.smk" in (RULES / name).read_text(encoding="utf-8")
    assert "nor container:" in (RULES / "params.smk").read_text(encoding="utf-8")
    others = [(file, title) for file, title in found if title != NO_ENVIRONMENT]
    assert [point for point in others if not point[1].startswith(JUSTIFIED.get(point[0], "nothing"))] == []


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_an_environment_for_conda_has_the_versions_of_the_lock_files(name):
    environment = yaml.safe_load("\n".join(lines(f"workflow/envs/{name}.yaml")))
    *conda, pip = environment["dependencies"]
    assert dict(pin.split("==") for pin in pip["pip"]) == locked(ENVIRONMENTS[name])
    python = re.fullmatch(r"python=3\.(\d+)", conda[0])
    assert int(python[1]) >= 11
    assert conda[1:] == ["pip"]


def test_there_is_no_other_environment():
    assert {path.name for path in (ROOT / "workflow" / "envs").iterdir()} == {f"{name}.yaml" for name in ENVIRONMENTS}


def test_the_catalogs_entry_names_a_profile_that_is_there():
    usage = yaml.safe_load("\n".join(lines(".snakemake-workflow-catalog.yml")))["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    option, profile = usage["mandatory-flags"]["flags"].split()
    assert option == "--profile"
    assert (ROOT / profile / "config.yaml").exists()
    assert (ROOT / "config" / "README.md").exists()  # the catalog shows it
    # No rule has conda: or container:, so --software-deployment-method would have no effect.
    deployment = usage["software-stack-deployment"]
    assert not deployment["conda"]
    assert not deployment["apptainer"]


def test_git_ignores_results_but_not_their_readme():
    ignored = [line for line in lines(".gitignore") if "results" in line]
    assert ignored == ["/results/*", "!/results/README.md"]
    assert (ROOT / "results" / "README.md").exists()
