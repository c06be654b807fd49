"""The cells that campaigns have in common, whose key figures the index shows."""

import copy

from comparison_results import cell_of, write_folder
from typed import typed

from regatta.compare.campaign_history import keys_of, measured_twice
from regatta.compare.campaigns import read_campaign

SMALL, LARGE, ONCE = cell_of("bound", 4096), cell_of("bound", 16384), cell_of("bound", 65536)
THREE, FAILED = [1.0, 1.1, 1.2], ["failed"] * 3


def names_in(tmp_path, *cells):
    """Return the cells measured twice, given those of each campaign with their launches."""
    folders = [write_folder(tmp_path / str(i), of_one, f"0{i + 1}") for i, of_one in enumerate(cells)]
    return measured_twice([read_campaign(folder) for folder in folders])


def key_of(cell):
    return next(iter(keys_of([typed(cell)])))


def test_cells_that_two_campaigns_measured_have_their_name(tmp_path):
    cells = [(SMALL, THREE), (LARGE, THREE)], [(LARGE, THREE), (ONCE, THREE)], [(SMALL, THREE), (ONCE, FAILED)]
    names = names_in(tmp_path, *cells)
    assert {key: name.rpartition(" · ")[2] for key, name in names.items()} == {
        key_of(SMALL): "4 KiB",
        key_of(LARGE): "16 KiB",
    }


def test_another_version_of_the_benchmark_is_another_cell(tmp_path):
    newer = copy.deepcopy(LARGE)
    newer["spec"]["version"] = 2
    names = names_in(tmp_path, [(SMALL, THREE), (LARGE, THREE)], [(SMALL, THREE), (newer, THREE)])
    assert list(names) == [key_of(SMALL)]
