"""From records of sync_batchnorm to their table and figure: numbers computed by hand."""

import pytest
from synthetic import analyse, make_campaign, report_data
from synthetic_training import norm_cell, norm_record
from test_training_runs import T, tables_of
from typed import cell_row, norm_cells

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.records import problem_of
from regatta.topics.sync_batchnorm import findings, section

OWN, TORCH = (norm_cell(name, 32, 128, device="cuda", backend="nccl") for name in ("own", "torch"))


def results_of(folder, cells_and_times):
    """cells_and_times: (cell, microseconds of each launch)."""
    records = [norm_record(cell, repeat, T, us) for cell, times in cells_and_times for repeat, us in enumerate(times)]
    return tables_of(folder, [cell for cell, _ in cells_and_times], records)


def findings_of(folder, cells_and_times):
    results_of(folder, cells_and_times)
    return findings(analyse(folder))


def test_each_pass_has_a_mean_over_launches_of_its_own(tmp_path):
    records = [norm_record(OWN, repeat, T, us) for repeat, us in enumerate((400, 800))]
    records[1]["parts_ns"] = {"forward": [[300_000] * 12] * 2, "backward": [[100_000] * 12] * 2}
    row = tables_of(tmp_path, [OWN], records)[0]["cells"].iloc[0]
    assert (row["time_s"], row["time_low_s"], row["time_high_s"]) == pytest.approx((4e-4 * 2**0.5, 4e-4, 8e-4))
    # Forward 100 and 300, backward 300 and 100: their geometric means do not add up to 566.
    assert (row["forward_s"], row["forward_low_s"], row["forward_high_s"]) == pytest.approx((1e-4 * 3**0.5, 1e-4, 3e-4))
    assert (row["backward_s"], row["backward_low_s"], row["backward_high_s"]) == pytest.approx(
        (1e-4 * 3**0.5, 1e-4, 3e-4)
    )
    assert (row["num_launches"], row["num_planned"], row["interval"]) == (2, 3, "range")


def test_memory_and_errors_are_the_largest_over_ranks_and_launches(tmp_path):
    worse = {"largest_output_error": 2e-6, "largest_input_gradient_error": 1e-7}
    records = [norm_record(OWN, 0, T, 400), norm_record(OWN, 1, T, 400, values=worse)]
    row = tables_of(tmp_path, [OWN], records)[0]["cells"].iloc[0]
    assert (row["largest_output_error"], row["largest_input_gradient_error"]) == (2e-6, 4e-7)
    assert row["peak_allocated_bytes"] == 12 * 32 * 128 + 512
    assert (row["parameter_bytes"], row["gradient_bytes"], row["saved_bytes"]) == (1024, 17408, 17924)


def test_what_was_not_measured_has_a_row_and_what_is_unknown_is_empty():
    rows = [cell_row(OWN) | {"repeat": 0, "status": "ok", "p50_s": 0.001}]
    table = norm_cells(make_campaign([OWN, TORCH]), make_table(rows, MEASUREMENTS)).set_index("cell")
    assert table["num_launches"].to_dict() == {OWN["id"]: 1, TORCH["id"]: 0}
    assert table.loc[TORCH["id"], ["time_s", "saved_bytes"]].isna().all()
    assert table.loc[OWN["id"], ["forward_s", "time_low_s", "largest_output_error"]].isna().all()


@pytest.mark.parametrize("value", ["large", [1e-7], True, float("inf")])
def test_an_error_that_is_no_number_makes_the_record_invalid(value):
    record = norm_record(OWN, 0, T, 400, values={"largest_output_error": value})
    assert problem_of(record).startswith(f"values.largest_output_error = {value!r}")
    failed = record | {"status": "failed", "phase": "check", "cause": "check failed"}
    assert problem_of(failed) == problem_of(record)


def test_layers_are_in_a_table_by_implementation(tmp_path):
    results_of(tmp_path, [(OWN, [370, 390]), (TORCH, [500, 530])])
    [table] = section(analyse(tmp_path)).tables
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["Cell"], row["Features"], row["n"]) == ("1×2 · custom", "128", "2/3")
    assert (row["Forward and backward (µs)"], row["range of forward and backward"]) == ("380", "(370 to 390)")
    assert (row["Forward pass (µs)"], row["Backward pass (µs)"]) == ("95", "285")
    assert (row["Peak allocated (KiB)"], row["Weights (KiB)"]) == ("48.5", "1.00")
    assert (row["Largest output error"], row["Largest gradient error"]) == ("8.0e-07", "4.0e-07")


def test_implementations_are_compared_on_the_same_input_alone(tmp_path):
    other = [norm_cell(name, 64, 1024, device="cuda", backend="nccl") for name in ("own", "torch")]
    cells = [(OWN, [370, 390]), (TORCH, [500, 530]), (other[0], [400] * 2), (other[1], [480] * 2)]
    [finding] = findings_of(tmp_path / "same", cells)
    assert (finding.values["least_ratio"], finding.values["most_ratio"]) == pytest.approx(
        ((370 * 390 / 500 / 530) ** 0.5, 400 / 480)
    )
    assert finding.cells == (OWN["id"], TORCH["id"])  # they differ most
    apart = norm_cell("torch", 64, 128, device="cuda", backend="nccl")
    assert findings_of(tmp_path / "apart", [(OWN, [400]), (apart, [500])]) == []


def test_nothing_measured_is_no_section():
    assert section(report_data(make_campaign([OWN]), make_table([], MEASUREMENTS))) is None
