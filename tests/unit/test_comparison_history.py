"""The times of cells over campaigns, which the index shows."""

import copy

import pytest
from comparison_results import cell_of, write_folder

from regatta.compare.campaigns import read_campaign
from regatta.compare.trends import most_moved, times_of_cells

SMALL, LARGE, ONCE = cell_of("bound", 4096), cell_of("bound", 16384), cell_of("bound", 65536)
THREE = [1.0, 1.1, 1.2]


def times_of(tmp_path, *cells):
    """Return the times of campaigns, given the cells of each with their launches."""
    folders = [write_folder(tmp_path / str(i), of_one, f"0{i + 1}") for i, of_one in enumerate(cells)]
    return times_of_cells([read_campaign(folder) for folder in folders])


def test_each_cell_of_two_campaigns_or_more_has_its_time_and_its_ratio_to_the_first(tmp_path):
    """The large cell gets 20 % slower in the third; the small one stays, and is not in the second."""
    slower = [1.2 * time for time in THREE]
    cells = [(SMALL, THREE), (LARGE, THREE)], [(LARGE, THREE), (ONCE, THREE)], [(SMALL, THREE), (LARGE, slower)]
    times = times_of(tmp_path, *cells)
    large, small = (times[times["cell"] == cell["id"]] for cell in (LARGE, SMALL))
    assert list(large["place"]) == [0, 1, 2]
    assert list(large["time_s"]) == pytest.approx([1.32 ** (1 / 3)] * 2 + [1.2 * 1.32 ** (1 / 3)])
    assert list(large["ratio_to_first"]) == pytest.approx([1, 1, 1.2])
    assert list(large["interval"]) == ["interval"] * 3
    assert list(small["place"]) == [0, 2]
    assert most_moved(times) == [LARGE["id"], SMALL["id"]]  # ONCE is in one campaign only


def test_another_version_of_the_benchmark_is_another_cell(tmp_path):
    newer = copy.deepcopy(LARGE)
    newer["spec"]["version"] = 2
    times = times_of(tmp_path, [(SMALL, THREE), (LARGE, THREE)], [(SMALL, THREE), (newer, THREE)])
    assert set(times["cell"]) == {SMALL["id"]}
