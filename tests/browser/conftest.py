"""Fixtures of the browser tests: a chromium, and reports made from synthetic results."""

import os
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(Path(__file__).parent),
    str(ROOT / "benchmarks"),
    str(ROOT / "tests" / "unit"),
    str(ROOT / "workflow" / "scripts"),
]


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium")
    if program is None:
        missing = "chromium is not installed (Debian: apt-get install chromium)"
        if os.environ.get("REGATTA_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    from chromium import Chromium

    with Chromium(program) as running:
        yield running


@pytest.fixture(scope="session")
def reports(tmp_path_factory) -> dict[str, Path]:
    """Return the report of a laptop with failures, and of a cluster with many series and every class of failure."""
    from synthetic import make_report, write_laptop
    from synthetic_failures import write_failing
    from synthetic_preflight import write_preflight

    folder = tmp_path_factory.mktemp("results")
    cluster = write_failing(folder / "cluster")
    write_preflight(cluster)
    return {"laptop": make_report(write_laptop(folder / "laptop")), "cluster": make_report(cluster)}


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """Return a function that makes the page of a planted campaign, and reads its answer.json where it has one."""
    from test_planted_facts import MAKERS

    folder = tmp_path_factory.mktemp("planted")
    return cache(lambda name: MAKERS[name](folder / name.replace(" ", "-")))
