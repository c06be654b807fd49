"""A run without a terminal prints a line about itself at intervals."""

import re

import pytest
from campaigns import fake_campaign, start_snakemake, write_campaign


def print_often() -> None:
    import regatta.run.run_lines

    regatta.run.run_lines.PROGRESS_SECONDS = 0.2


@pytest.mark.system
def test_a_run_without_a_terminal_prints_how_far_it_is(tmp_path):
    campaign = write_campaign(tmp_path, fake_campaign({"resnet18-none": "raise"}, {"FAKE_CELL_SECONDS": "0.3"}))
    run = start_snakemake(tmp_path, campaign, prepare=print_often)
    status = run.wait(120)
    output = (tmp_path / "output").read_text()
    assert status == 0, output
    lines = re.findall(
        r"^small: (\d+) of (\d+) measurements(.*), (\d) batch(?:es)? running, (\d) queued(.*)$", output, re.M
    )
    done = [int(line[0]) for line in lines]
    assert len(lines) > 3
    assert done == sorted(done)
    assert {line[1] for line in lines} == {"14"}
    assert any(line[3] == "1" and line[5].startswith(", about ") for line in lines)
    assert any("1 failed" in line[2] for line in lines)
    assert "Traceback" not in output
