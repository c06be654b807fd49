"""Regatta's results in formats of other programs: what their tools read, and what an import returns."""

import json
import shutil

import numpy as np
import pytest
from formats_files import FILES, FORMAT, analysed, run_import, run_script, write_analysed, written
from synthetic import LAPTOP, laptop_campaign, make_campaign, train_cell, write_results

from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.formats.results_folder import read_results_folder
from regatta.formats.tidy_csv import TIDY
from regatta.store.csv_files import read_csv
from regatta.tables.cells import rows_of

KEYS = ("pytorch_version", "cuda_version", "distributed_backend", "bucket_size", "device", "benchmark_results")


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    """Return the results folder of a synthetic campaign on CPUs, with its tables."""
    folder = tmp_path_factory.mktemp("results") / "laptop"
    write_results(folder, laptop_campaign(), LAPTOP)
    write_analysed(folder)
    return folder


# --- benchmark.py


def test_a_report_has_the_keys_and_the_order_that_diff_py_reads(laptop):
    report = FORMAT["pytorch-json"].write(read_results_folder(laptop, {"bucket_cap_mb": "25"}))
    assert tuple(report) == KEYS
    assert (report["pytorch_version"], report["distributed_backend"], report["bucket_size"]) == ("2.12.1", "gloo", 25)
    assert [(entry["model"], entry["batch_size"]) for entry in report["benchmark_results"]] == [
        ("resnet18", 8),
        ("mobilenet_v3_small", 8),
    ]
    for entry in report["benchmark_results"]:
        assert [result["ranks"] for result in entry["result"]] == [[0], [0], [0, 1]]
        for result in entry["result"]:
            assert len(result["measurements"]) % len(result["ranks"]) == 0
            assert all(0 < seconds < 1 for seconds in result["measurements"])


def test_an_imported_report_is_written_as_it_was(tmp_path):
    folder = tmp_path / "c"
    run_import(folder, "ddp-2x4.json")
    write_analysed(folder)
    report = FORMAT["pytorch-json"].write(read_results_folder(folder, {"stack": "imported"}))
    original = json.loads((FILES / "ddp-2x4.json").read_text())
    for entry in original["benchmark_results"]:
        del entry["result"][4]  # the second of two equal rows is of stack imported_again
        for result, given in zip(entry["result"], of_model(report, entry["model"]), strict=True):
            assert {key: given[key] for key in result} == result
    assert {key: report[key] for key in KEYS[:4]} == {key: original[key] for key in KEYS[:4]}


def of_model(report, model):
    return next(entry["result"] for entry in report["benchmark_results"] if entry["model"] == model)


def test_a_campaign_without_a_step_without_ddp_keeps_its_place_empty(laptop, tmp_path):
    campaign = laptop_campaign()
    campaign["cells"] = [c for c in campaign["cells"] if c["spec"]["parameters"].get("strategy") != "none"]
    folder = write_results(tmp_path / "laptop", campaign, LAPTOP)
    write_analysed(folder)
    report = FORMAT["pytorch-json"].write(read_results_folder(folder, {"bucket_cap_mb": "25"}))
    assert report["benchmark_results"][0]["result"][0] == {"ranks": [0], "measurements": []}
    run_import(tmp_path / "back", written(tmp_path, report), options=Options(gpus_per_node=2))
    assert len(analysed(tmp_path / "back")[0]["cells"]) == 4


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, r"cannot represent bucket_cap_mb = 1, 25. Select one with --where bucket_cap_mb=1"),
        ({"bucket": "25"}, "--where bucket: no cell of .* has this field"),
        ({"stack": "typo"}, r"no cell with stack=typo has a valid record.* Values of stack in this campaign: host\."),
    ],
)
def test_what_a_report_has_no_place_for_is_refused(laptop, where, message):
    with pytest.raises(UserError, match=message):
        FORMAT["pytorch-json"].write(read_results_folder(laptop, where))


def test_two_shapes_of_as_many_ranks_have_no_place_in_one_report(tmp_path, wording):
    cells = [train_cell("resnet18", nodes, gpus, strategy="ddp") for nodes, gpus in ((1, 4), (2, 2))]
    folder = write_results(tmp_path / "c", make_campaign(cells), LAPTOP)
    write_analysed(folder)
    with wording.raises(UserError):
        FORMAT["pytorch-json"].write(read_results_folder(folder, {}))


def test_a_table_without_samples_cannot_become_a_report(tmp_path, wording):
    run_import(tmp_path / "c", "ddp-2x8-v100.txt")
    write_analysed(tmp_path / "c")
    with wording.raises(UserError):
        FORMAT["pytorch-json"].write(read_results_folder(tmp_path / "c", {}))


def test_a_folder_without_tables_says_how_to_make_them(laptop, tmp_path, wording):
    shutil.copytree(laptop, tmp_path / "c")
    (tmp_path / "c" / "measurements.csv").unlink()
    with wording.raises(UserError):
        read_results_folder(tmp_path / "c", {})
    with wording.raises(UserError):
        read_results_folder(tmp_path / "nothing", {})


# --- CSV


def test_every_number_of_every_table_stands_in_a_row_of_its_own(laptop, tmp_path):
    path = written(tmp_path, FORMAT["csv"].write(read_results_folder(laptop, {})), "tidy.csv")
    rows = read_csv(path, TIDY)
    _, tables, _ = analysed(laptop)
    scaling = rows_of(tables["cells"], "train_step").set_index("cell")["efficiency_ratio"].dropna().astype(float)
    own = rows[(rows["table"] == "cells") & (rows["quantity"] == "efficiency_ratio")].set_index("cell")["value"]
    assert np.allclose(own.sort_index().to_numpy(float), scaling.sort_index().to_numpy(float), rtol=1e-8)
    medians = rows[(rows["table"] == "measurements") & (rows["quantity"] == "p50_s")]
    assert len(medians) == (tables["measurements"]["status"] == "ok").sum()
    assert set(medians["repeat"]) == {0, 1, 2}
    assert rows["value"].notna().all()
    assert not rows.duplicated(["table", "cell", "scaling", "against", "rank", "repeat", "quantity"]).any()
    assert rows["cell"].notna().all()
    groups = {"communication_models", "scaling_models", "straggler_hosts", "stragglers"}
    groups |= {"allocations", "timeline", "slow_launches"}
    assert set(rows["table"]).isdisjoint(groups)
    assert {name for name, table in read_results_folder(laptop, {}).tables.items() if "cell" not in table} == groups


def test_a_condition_leaves_the_cells_that_have_the_value_or_none(laptop):
    cells = read_results_folder(laptop, {"bucket_cap_mb": "25"}).cells
    assert {cell.parameters.get("bucket_cap_mb") for cell in cells} == {25, None}
    assert len(read_results_folder(laptop, {"model": "resnet18", "strategy": "none"}).cells) == 8  # and 7 collectives


# --- As a user does it


def test_each_form_by_command_line(laptop, tmp_path):
    done = run_script(
        "export_results.py",
        laptop,
        "--format",
        "pytorch-json",
        "--out",
        "p.json",
        "--where",
        "bucket_cap_mb=1",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "p.json").read_text())["bucket_size"] == 1
    done = run_script("export_results.py", laptop, "--format", "csv", "--out", "t.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t.csv").read_text().startswith("table,cell,benchmark,model")


def test_an_error_on_the_command_line_is_one_message(laptop, tmp_path):
    done = run_script("export_results.py", laptop, "--format", "pytorch-json", "--out", "x.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--where bucket_cap_mb=1" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
