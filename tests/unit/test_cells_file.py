"""A cells.csv that is not the one of its campaign is refused with the remedy, instead of a report that lacks cells."""

import pytest
from synthetic import write_laptop

import warm_start


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_laptop(tmp_path_factory.mktemp("results") / "laptop")
    assert warm_start.script("rebuild_report.py", folder).returncode == 0
    return folder


def without_column(lines: list[str], name: str) -> list[str]:
    place = lines[0].split(",").index(name)
    return [",".join(line.split(",")[:place] + line.split(",")[place + 1 :]) for line in lines]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:5],
        lambda lines: lines[:1],
        lambda lines: [*lines, lines[1].replace(",", "x,", 1)],
        lambda lines: [*lines[:-1], lines[-1][:-9]],  # only the last number is shorter
        lambda lines: without_column(lines, "interval"),
        lambda lines: [],
        None,
    ],
)
def test_a_report_of_a_damaged_table_of_cells_is_refused(folder, damage):
    path, out = folder / "cells.csv", folder / "again.html"
    text = path.read_text("utf-8")
    try:
        path.write_text("".join(damage(text.splitlines(keepends=True))), "utf-8") if damage else path.unlink()
        [campaign] = folder.glob("campaign.*.json")
        words = ["--campaign", campaign, "--measurements", folder / "measurements.csv", "--tables", folder / "tables"]
        done = warm_start.script("report.py", *words, "--launches", folder / "launches", "--out", out)
    finally:
        path.write_text(text, "utf-8")
    assert (done.returncode, out.exists()) == (2, False)
    assert done.stderr.startswith(f"{path}: ")
    assert done.stderr.rstrip().endswith(f"make report CONFIG={folder}")


def test_a_table_without_columns_is_refused_with_their_names_in_order(folder):
    path = folder / "measurements.csv"
    text = path.read_text("utf-8")
    try:
        lines = without_column(without_column(text.splitlines(), "time_utc"), "repeat")
        path.write_text("\n".join([*lines, ""]), "utf-8")
        [campaign] = folder.glob("campaign.*.json")
        words = ["--campaign", campaign, "--measurements", path, "--out-dir", folder / "other"]
        done = warm_start.script("analyse.py", *words)
    finally:
        path.write_text(text, "utf-8")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{path}: cannot be read (it lacks repeat, time_utc). ")


def test_a_campaign_with_a_benchmark_of_another_version_is_refused_by_its_name(tmp_path, wording):
    """Of a later version, or an earlier one: the report used to miss a file that was never there."""
    folder = write_laptop(tmp_path / "laptop")
    [path] = folder.glob("campaign.*.json")
    path.write_text(path.read_text("utf-8").replace('"benchmark": "train_step"', '"benchmark": "train_loop"'), "utf-8")
    done = warm_start.script("rebuild_report.py", folder)
    assert (done.returncode, "train_loop" in done.stderr, (folder / "report.html").exists()) == (2, True, False)
    wording(done.stderr)
