"""Mutated campaign files through `snakemake -n`: each is planned, or refused with file and line, without side effects."""

import os
import random
import re

import pytest
import yaml
from campaigns import fake_campaign, script, snakemake

from mutations import SEED, mutated

pytestmark = pytest.mark.slow

NUM_FILES = 30 if "REGATTA_THOROUGH" in os.environ else 15
# Snakemake reads --configfile before the Snakefile, and does not name the line. run_campaign.py reads it first.
OF_SNAKEMAKE = ("Config file is not valid JSON or YAML", "load_configfile")


def test_a_dry_run_plans_a_mutated_file_or_refuses_it_with_file_and_line(tmp_path):
    rng, text = random.Random(SEED), yaml.safe_dump(fake_campaign(), sort_keys=False)
    path, refused, wrong = tmp_path / "campaign.yaml", 0, []
    for number in range(NUM_FILES):
        path.write_text(mutated(text, rng), encoding="utf-8", errors="surrogatepass")
        by_script = script(tmp_path, "run_campaign.py", path.name, "--version", check=False)
        by_snakemake = snakemake(tmp_path, path, "-n")
        said = by_snakemake.stdout + by_snakemake.stderr
        is_refused = by_script.returncode == 2
        refused += is_refused
        is_named = re.match(r"campaign\.yaml(:\d+)?: ", by_script.stderr)
        if "Traceback" in by_script.stderr or bool(is_named) != is_refused or by_script.returncode not in (0, 2):
            wrong.append((number, by_script.returncode, by_script.stderr[-600:]))
        statuses = ((1,) if any(words in said for words in OF_SNAKEMAKE) else (2,)) if is_refused else (0,)
        if by_snakemake.returncode not in statuses or ("Traceback" in said and statuses != (1,)):
            wrong.append((number, by_snakemake.returncode, said[-600:]))
        assert {file.name for file in tmp_path.iterdir()} <= {"campaign.yaml", ".snakemake"}, number
    assert wrong == []
    assert NUM_FILES / 5 < refused < NUM_FILES
