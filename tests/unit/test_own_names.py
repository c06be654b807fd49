"""Names of results and parameters of users that meet other names: in cells.csv, on the page, and in the index."""

import shutil

import pandas as pd
import pytest
from synthetic import (
    Machine,
    collective_cell,
    edit_records,
    make_campaign,
    make_cell,
    make_report,
    write_results,
)
from synthetic_own import MACHINE, program_cell, script_cell
from test_report import block_of

import warm_start
from rebuild_report import rebuild
from regatta.core import benchmarks

SIZES = {"integer": (1, 2), "string": ("1k", "2k")}


class Constant(Machine):
    def seconds(self, spec: dict) -> float:
        return 0.01


def write(folder, result: str, kind: str = "integer"):
    """Write a campaign of my_step, whose result is 1, 2 and 3 in its launches, and of a collective. Make its report."""
    cells = [make_cell("my_step", 1, 1, {"size": size}) for size in SIZES[kind]] + [collective_cell(1024, 1, 2)]
    declaration = {"version": 1, "file": "my_step.py", "axes": {"size": {"type": kind}}}
    declaration["results"] = {result: {"label": "Result", "better": "larger"}}
    campaign = make_campaign(cells, name=folder.name, repeats=3, benchmarks={"my_step": declaration})
    for record in edit_records(write_results(folder, campaign, Constant({}, {}, 1, 0, 1, 0.002))):
        if record["spec"]["benchmark"] == "my_step":
            record["values"] = {result: 1.0 + record["repeat"]}
    done = warm_start.script("rebuild_report.py", folder)
    assert (done.returncode, done.stderr) == (0, "")
    return pd.read_csv(folder / "cells.csv").query("benchmark == 'my_step'")


@pytest.mark.parametrize("name", ["script_exposed_s", "parameter_size"])
def test_a_result_with_the_name_of_another_column_has_a_column_and_a_figure_of_its_own(tmp_path, name):
    cells = write(tmp_path / "a", name)
    assert sorted(cells["parameter_size"]) == [1, 2]
    assert cells[f"result_{name}"].tolist() == [2, 2]
    assert f'id="custom-my-step-result-{name}'.replace("_", "-") in (tmp_path / "a" / "report.html").read_text("utf-8")


def test_a_rate_of_a_user_is_no_time(tmp_path):
    """images_per_s ends with _s, as a time does: its ends were images_per_low_s, and its unit a second."""
    cells = write(tmp_path / "a", "images_per_s")
    assert cells["images_per_s"].tolist() == [2, 2]
    assert (cells["images_low_per_s"] < 2).all()
    assert (cells["images_high_per_s"] > 2).all()
    page = (tmp_path / "a" / "report.html").read_text("utf-8")
    [entry] = (entry for entry in block_of(page)["columns"] if entry["key"] == "images_per_s")
    assert entry["label"] == "Result (1/s)"


def test_parameters_of_scripts_and_programs_have_columns(tmp_path):
    """Numbers are numbers; a value such as 007 is a text."""
    values = [{"batch": 8, "rate": 0.1, "tag": "007"}, {"batch": 16, "rate": 1, "tag": "b"}]
    cells = [script_cell(batch, 1) for batch in (8, 16)]
    for cell, parameters in zip(cells, values, strict=True):
        cell["spec"]["script"] = {"path": "/train.py", "arguments": [], "parameters": parameters}
    cells.append(program_cell(5, 1))
    cells[2]["spec"]["program"]["parameters"] = {"size": "1k", "batch": "4"}
    write_results(tmp_path / "r", make_campaign(cells, repeats=3), MACHINE)
    make_report(tmp_path / "r")
    table = pd.read_csv(tmp_path / "r" / "cells.csv", dtype=str, keep_default_na=False).set_index("cell")
    found = table.loc[
        [cell["id"] for cell in cells], [f"parameter_{name}" for name in ("batch", "rate", "tag", "size")]
    ]
    assert found.to_numpy().tolist() == [["8", "0.1", "007", ""], ["16", "1", "b", ""], ["4", "", "", "1k"]]


def test_the_index_follows_campaigns_whose_benchmark_renamed_a_result_and_changed_the_type_of_a_parameter(tmp_path):
    write(tmp_path / "a", "speed", "string")
    write(tmp_path / "b", "renamed", "integer")
    done = warm_start.script("index_results.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Bus bandwidth (GB/s)" in (tmp_path / "index.html").read_text("utf-8")


def test_a_campaign_has_the_same_files_whatever_campaigns_the_process_has_read_before(tmp_path, monkeypatch):
    """Two campaigns with a benchmark of the same name, whose parameter has another type and whose result another name."""
    monkeypatch.setattr(benchmarks, "_custom", {})
    alone = {}
    for name, (result, kind) in {"a": ("speed", "string"), "b": ("renamed", "integer")}.items():
        write(tmp_path / name, result, kind)  # each in another process
        alone[name] = files_of(tmp_path / name)
    for name in "aba":  # each after the other
        shutil.rmtree(tmp_path / name / "cache")
        rebuild(tmp_path / name, next((tmp_path / name).glob("campaign.*.json")))
        found = files_of(tmp_path / name)
        assert {file: text for file, text in found.items() if text != alone[name][file]} == {}, name
        assert "speed" not in found["measurements.csv"] or name == "a"


def files_of(folder) -> dict[str, str]:
    """Return the texts of the tables, problems and answers of a results folder by their paths."""
    paths = (path for path in folder.rglob("*") if path.suffix == ".csv" or path.stem in ("problems", "answer"))
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in paths}
