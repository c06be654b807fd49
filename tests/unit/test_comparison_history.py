"""The times of cells over campaigns, which the index shows."""

import copy

import pytest
from comparison_results import cell_of, write_folder
from typed import typed

from regatta.compare.campaign_history import keys_of, times_of_cells
from regatta.compare.campaigns import read_campaign

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
    large, small = key_of(LARGE), key_of(SMALL)
    assert list(times[large].points) == [0, 1, 2]
    means = [point.number for point in times[large].points.values()]
    assert means == pytest.approx([1.32 ** (1 / 3)] * 2 + [1.2 * 1.32 ** (1 / 3)])
    assert list(times[large].ratios.values()) == pytest.approx([1, 1, 1.2])
    assert all("[" in point.text for point in times[large].points.values())
    assert list(times[small].points) == [0, 2]
    assert times.keys() == {large, small}  # ONCE is in one campaign only


def test_another_version_of_the_benchmark_is_another_cell(tmp_path):
    newer = copy.deepcopy(LARGE)
    newer["spec"]["version"] = 2
    times = times_of(tmp_path, [(SMALL, THREE), (LARGE, THREE)], [(SMALL, THREE), (newer, THREE)])
    assert list(times) == [key_of(SMALL)]


def key_of(cell):
    return next(iter(keys_of([typed(cell)])))
