"""Real launch files, good and broken, through collect and analyse. REGATTA_WRITE_GOLDEN=1 accepts changed tables.

tests/golden/launches: launches of one and of two ranks; one with a negative sample, a truncated record, no last line;
two with training runs and a batch norm, in the second of which a run lacks the loss of an epoch.
"""

import json
import os
from pathlib import Path

import pytest
from published_columns import without_new_columns
from typed import collect, make_tables, read_collected

from regatta.store.collect import write_collected
from regatta.store.frozen_files import read_frozen
from regatta.store.records import violation
from regatta.topics.catalog import write_tables

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return file name -> text, as the command lines would write it."""
    campaign = read_frozen(GOLDEN / "campaign.json")
    collected, problems = collect(campaign, GOLDEN / "launches")
    folder = tmp_path_factory.mktemp("golden")
    write_collected(collected, folder / "measurements.csv")
    collected = read_collected(campaign, folder / "measurements.csv")
    write_tables(make_tables(campaign, collected), folder / "tables")
    return {
        "problems.json": json.dumps(problems, indent=1) + "\n",
        **{path.name: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.csv"))},
    }


@pytest.mark.parametrize(
    "name", sorted(path.name for path in GOLDEN.iterdir() if path.name == "problems.json" or path.suffix == ".csv")
)
def test_real_launch_files_give_the_golden_tables(outputs, name):
    if os.environ.get("REGATTA_WRITE_GOLDEN"):
        (GOLDEN / name).write_text(without_new_columns(outputs[name]), encoding="utf-8")
    assert without_new_columns(outputs[name]) == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["n01g01-326556ed4dba-l000-a00", "n01g02-c89750b42640-l000-a00", "n01g02-24314893462e-l000-a00"]
)
def test_what_the_ranks_write_is_what_the_schema_says(name):
    lines = (GOLDEN / "launches" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert [violation(json.loads(line)) for line in lines] == [None] * len(lines)
