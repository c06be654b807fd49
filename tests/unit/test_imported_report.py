"""The report of published outputs: their times are those of the import, and single values have no interval."""

import pytest
from formats_files import run_import
from synthetic import LAPTOP, make_campaign, train_cell, write_results
from synthetic import analyse as analyse_store
from test_frozen_tables import import_published

from regatta.report.page import facts, machine_line
from regatta.topics.base import unreliable_cells
from regatta.topics.fitted_models import model_table
from regatta.topics.stability import findings
from regatta.topics.summary import answer_json, next_steps


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    return analyse_store(import_published(tmp_path_factory.mktemp("imported") / "published"))


def test_single_imported_values_are_warned_of(imported):
    [single] = [finding for finding in findings(imported) if finding.kind == "single_launches"]
    assert set(single.cells) == set(imported.ok["cell"]) == unreliable_cells(imported)


def test_an_import_has_no_repeats_to_increase(imported, tmp_path):
    measured = analyse_store(
        write_results(tmp_path / "r", make_campaign([train_cell("resnet18", 1, 1)], repeats=1), LAPTOP)
    )
    of_both = [next_steps(data) for data in (imported, measured)]
    assert [any("`repeats" in step for step in steps) for steps in of_both] == [False, True]
    assert [any("import" in step for step in steps) for steps in of_both] == [True, False]


@pytest.mark.parametrize("file", ["osu-put-bw.txt", "osu-mbw-mr.txt", "osu-iallreduce.txt"])
def test_an_operation_without_a_bus_factor_has_a_table_without_bus_bandwidth(tmp_path, file):
    run_import(tmp_path / "osu", file)
    models = analyse_store(tmp_path / "osu").tables["communication_models"]
    table = model_table("communication_models", models)
    assert table is None or "B as bus bandwidth (GB/s)" not in table.columns
    assert file != "osu-put-bw.txt" or table is not None


def test_times_of_an_import_are_not_called_those_of_records(imported):
    names = [name for name, _ in facts(imported.campaign, imported.measurements, imported.tables["launches"])]
    assert "Imported" in names
    assert "First record" not in names
    assert machine_line(imported.campaign, imported.facts, imported.measurements)[-1].startswith("imported 20")
    found = answer_json(imported)
    assert (found["first_record_utc"], found["last_record_utc"]) == (None, None)


def test_a_measured_campaign_has_the_times_of_its_records(tmp_path):
    data = analyse_store(write_results(tmp_path / "r", make_campaign([train_cell("resnet18", 1, 1)]), LAPTOP))
    assert "First record" in dict(facts(data.campaign, data.measurements, data.tables["launches"]))
    assert answer_json(data)["first_record_utc"] == min(data.measurements["time_utc"])
