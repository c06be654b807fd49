"""All programs of the ranks with the oldest torch that they support, in a separate environment."""

import re
import subprocess
import sys

import pytest
from campaigns import ROOT

OLDEST = "2.4.1"


@pytest.mark.install
@pytest.mark.timeout(1800)  # on an idle machine a minute to install and two to run
def test_every_program_of_the_ranks_runs_with_the_oldest_torch(tmp_path):
    program = ROOT / "tests" / "bench" / "torch_versions.py"
    line = [sys.executable, str(program), "--folder", str(tmp_path), OLDEST]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # Two cells shard a model, which needs a GPU with this torch.
    row = r"^\| 2\.4\.1\S* \| 0\.19\.1\S* \| [0-9.]+ \| 32 of 34 \(2 lack what they need\) \| all ran \|$"
    assert re.search(row, done.stdout, re.MULTILINE), done.stdout


def test_the_oldest_torch_is_the_one_that_the_ranks_name():
    text = (ROOT / "workflow/scripts/bench/harness/torch_versions.py").read_text()
    major, minor = OLDEST.split(".")[:2]
    assert f"OLDEST = ({major}, {minor})" in text
