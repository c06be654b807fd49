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
