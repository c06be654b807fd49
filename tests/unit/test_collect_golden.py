"""Real launch files, good and broken, through collect and analyse.

tests/golden/launches holds a launch of one rank, one of two, and a third that was damaged: a negative sample, a record cut
in half, no last line. After a wanted change of the tables: REGATTA_WRITE_GOLDEN=1 pytest tests/unit/test_collect_golden.py
"""

import json
import os
from pathlib import Path

import pytest

from regatta.analysis.all_tables import make_tables
from regatta.analysis.collect import collect
from regatta.analysis.table_names import TABLES
from regatta.analysis.tables import MEASUREMENTS, read_csv, to_csv, write_csv
from regatta.store.launch_files import read_frozen
from regatta.store.records import violation

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return file name -> text, as the command lines would write it."""
    campaign = read_frozen(GOLDEN / "campaign.json")
    measurements, problems = collect(campaign, GOLDEN / "launches")
    path = tmp_path_factory.mktemp("golden") / "measurements.csv"
    write_csv(measurements, path)
    measurements = read_csv(path, MEASUREMENTS)
    return {
        "measurements.csv": path.read_text(encoding="utf-8"),
        "problems.json": json.dumps(problems, indent=1) + "\n",
        **{f"{name}.csv": to_csv(table) for name, table in make_tables(campaign, measurements).items()},
    }


@pytest.mark.parametrize(
    "name",
    ["measurements.csv", "problems.json", *(f"{name}.csv" for name in TABLES)],
)
def test_real_launch_files_give_the_golden_tables(outputs, name):
    if os.environ.get("REGATTA_WRITE_GOLDEN"):
        (GOLDEN / name).write_text(outputs[name], encoding="utf-8")
    assert outputs[name] == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["n01g01-326556ed4dba-l000-a00", "n01g02-c89750b42640-l000-a00"])
def test_what_the_ranks_write_is_what_the_schema_says(name):
    lines = (GOLDEN / "launches" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert [violation(json.loads(line)) for line in lines] == [None] * len(lines)
