import copy
from pathlib import Path

import pytest
from comparison_results import cell_of, write_folder

from regatta.compare.campaigns import history_of_cells, largest_changes, read_campaign
from regatta.compare.output import history_figures, history_table, history_text
from regatta.core.errors import UserError

SMALL, LARGE, ONCE = cell_of("bound", 4096), cell_of("bound", 16384), cell_of("bound", 65536)
THREE = [1.0, 1.1, 1.2]


def folders(tmp_path):
    """Three campaigns: the large cell gets 20 % slower with another torch; the small one stays, and is not in the second."""
    old, new = {"torch": "2.12.1"}, {"torch": "2.13.0"}
    return [
        write_folder(tmp_path / "june", [(SMALL, THREE), (LARGE, [1.32, 1.2, 1.44])], "21", new),
        write_folder(tmp_path / "january", [(SMALL, THREE), (LARGE, THREE)], "01", old),
        write_folder(tmp_path / "may", [(LARGE, THREE), (ONCE, THREE)], "09", old),
    ]


def history_of(tmp_path):
    return history_of_cells([read_campaign(folder) for folder in folders(tmp_path)])


def test_campaigns_are_ordered_by_the_time_of_their_first_record(tmp_path):
    history = history_of(tmp_path)
    assert [campaign.folder.name for campaign in history.campaigns] == ["january", "may", "june"]
    large = history.table[history.table["cell"] == LARGE["id"]]
    assert list(large["place"]) == [0, 1, 2]
    assert list(large["time_s"]) == pytest.approx([1.32 ** (1 / 3)] * 2 + [1.2 * 1.32 ** (1 / 3)])
    assert list(large["ratio_to_first"]) == pytest.approx([1, 1, 1.2])
    assert list(large["date_utc"].str[:10]) == ["2026-11-01", "2026-11-09", "2026-11-21"]
    assert list(large["interval"]) == ["interval"] * 3


def test_a_change_of_the_environment_is_marked_where_it_came(tmp_path):
    history = history_of(tmp_path)
    assert [history.has_changed(place) for place in range(3)] == [False, False, True]
    assert [(c.name, c.reference, c.other) for c in history.changes[2]] == [("torch", "2.12.1", "2.13.0")]


def test_cells_of_one_campaign_only_are_counted_and_the_one_that_moved_most_is_first(tmp_path):
    history = history_of(tmp_path)
    assert history.num_once == 1
    assert list(largest_changes(history).index) == [LARGE["id"], SMALL["id"]]
    assert list(history.table[history.table["cell"] == SMALL["id"]]["place"]) == [0, 2]


GOLDEN = """\
1   2026-11-01  january
2   2026-11-09  may
3*  2026-11-21  june
     torch: 2.12.1 -> 2.13.0

Mean time, and ratio to the first campaign. *: environment changed.
cell                                              1               2              3*
all-reduce · 1×2 processes · 16 KiB  1.10 s (1.000)  1.10 s (1.000)  1.32 s (1.200)

Not shown, within 5.0 % of the first campaign: 1 cell. --all shows them.

Measured in only one campaign: 1 cell.
"""


def test_the_text_shows_what_left_the_margin_and_counts_the_rest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = history_of(Path())
    assert history_text(history, 0.05) == GOLDEN
    everything = history_text(history, 0.05, shows_all=True)
    assert "all-reduce · 1×2 processes · 4 KiB   1.10 s (1.000)               –  1.10 s (1.000)" in everything
    assert "No cell changed by more than the margin." in history_text(history, 0.5)


def test_the_figure_has_the_cell_that_changed_most_first_and_marks_the_change(tmp_path, drawing):
    history = history_of(tmp_path)
    (figure,) = history_figures(history)
    assert 'aria-label="Cells over time: Ratio to first campaign"' in figure.svg
    assert "3*" in figure.svg
    assert [row[0] for row in figure.table.rows] == ["all-reduce · 1×2 processes · 16 KiB"] * 3 + [
        "all-reduce · 1×2 processes · 4 KiB"
    ] * 2
    assert history_table(history).rows[2][3:] == ("3", "1.3 s", "[1.1, 1.6] s", "1.200")
    assert figure.svg == history_figures(history)[0].svg


def test_another_version_of_the_benchmark_is_another_cell(tmp_path):
    newer = copy.deepcopy(LARGE)
    newer["spec"]["version"] = 2
    written = [
        write_folder(tmp_path / name, [(SMALL, THREE), (cell, THREE)], day)
        for name, cell, day in (("a", LARGE, "01"), ("b", newer, "02"))
    ]
    history = history_of_cells([read_campaign(folder) for folder in written])
    assert set(history.table["cell"]) == {SMALL["id"]}
    assert history.num_once == 2


def test_campaigns_without_a_common_cell_have_no_history(tmp_path):
    written = [write_folder(tmp_path / name, [(cell, THREE)]) for name, cell in (("a", SMALL), ("b", LARGE))]
    with pytest.raises(UserError, match="no cell was measured in more than one"):
        history_of_cells([read_campaign(folder) for folder in written])
