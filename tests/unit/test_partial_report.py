"""The report of a campaign that still runs: what is missing is counted, also in a launch file that is being written."""

import json
from pathlib import Path

import pytest
from synthetic import LAPTOP, collective_cell, make_campaign, make_report, write_results

import warm_start

SCRIPT = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "rebuild_report.py"
CELLS = [collective_cell(size, 1, 2) for size in (4096, 65536)]


@pytest.fixture
def results(tmp_path):
    """A campaign of six measurements that is being measured: the fourth is half written, the last launch not begun."""
    folder = write_results(tmp_path / "results" / "laptop", make_campaign(CELLS), LAPTOP)
    _, second, third = sorted((folder / "launches").iterdir())
    lines = second.read_text().splitlines(keepends=True)
    assert json.loads(lines[4])["kind"] == "record"
    second.write_text("".join(lines[:4]) + lines[4][:100])
    third.write_text(third.read_text()[:50])
    return folder


def head_of(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("</header>")[0]


def test_the_report_of_a_running_campaign_counts_what_is_missing(results):
    page = make_report(results)
    assert "Incomplete: 3 of 6" in head_of(page)
    corrupt = json.loads((results / "problems.json").read_text())["corrupt"]
    assert len(corrupt) == 2  # read again when the report is rebuilt


def test_the_report_of_a_complete_campaign_is_not_partial(tmp_path):
    folder = write_results(tmp_path / "laptop", make_campaign(CELLS), LAPTOP)
    assert "Incomplete" not in head_of(make_report(folder))


def test_before_the_first_record_there_is_a_report_too(results):
    for path in (results / "launches").iterdir():
        path.unlink()
    assert "Incomplete: 6 of 6" in head_of(make_report(results))


def test_the_campaign_file_names_the_results_folder(results, tmp_path):
    text = (SCRIPT.parents[2] / "config" / "config.yaml").read_text()
    assert "\nname: laptop\n" in text
    (tmp_path / "-my.yaml").write_text(text)
    done = warm_start.script(SCRIPT.name, "--", "-my.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "results/laptop/report.html\n"), done.stderr
    assert "Incomplete" in head_of(results / "report.html")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [\n", "my.yaml:2: not valid YAML"),
        ("schema: 1\nname: ../x\n", "my.yaml:2: name = '../x'"),
        ("5\n", "my.yaml:1: "),
        (None, "my.yaml: "),
    ],
)
def test_an_invalid_campaign_file_is_an_error_of_the_user(tmp_path, text, message):
    (tmp_path / "x").mkdir()
    if text is not None:
        (tmp_path / "my.yaml").write_text(text)
    done = warm_start.script(SCRIPT.name, "--", "my.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "x").iterdir()) == []
