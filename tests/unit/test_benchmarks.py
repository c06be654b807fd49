"""The declarations in the benchmarks' schemas hold everywhere: programs, columns, rules, records."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import LAPTOP, edit_records, laptop_campaign, write_results
from typed import collect

from regatta.core import benchmarks
from regatta.core.benchmarks import PROGRAMS, all_axes, axes_of, benchmark_names, load_benchmark, undeclared
from regatta.core.schemas import load_schema
from regatta.core.text import PHASE_WORDS
from regatta.store.csv_files import CELL, COLLECTED, MEASUREMENTS, TYPES
from regatta.store.records import MEMORY_BYTES
from regatta.tables.cells import columns_with

RULE_FIELDS = {"world_size", "element_bytes", "device", "backend", "nodes", "gpus_per_node"}


def fields_of_parameters(program: Path) -> list[str]:
    """Return the fields of a program's class Parameters."""
    tree = ast.parse(program.read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Parameters"]
    return [node.target.id for node in found.body if isinstance(node, ast.AnnAssign)]


WITH_PYTHON = [name for name in benchmark_names() if name != "program"]  # program.sh starts any program


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_program_and_schema_have_the_same_parameters(name):
    differing = set(load_benchmark(name).parameters) ^ set(fields_of_parameters(PROGRAMS / f"{name}.py"))
    files = f"workflow/scripts/bench/{name}.py: class Parameters and {load_benchmark(name).file}"
    assert not differing, f"{files} differ in {', '.join(sorted(differing))}"


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_a_program_has_what_a_launch_imports(name):
    tree = ast.parse((PROGRAMS / f"{name}.py").read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {"build", "measure_cell"} & functions, f"workflow/scripts/bench/{name}.py has no function build"
    assert load_benchmark(name).version >= 1


@pytest.mark.parametrize("name", benchmark_names())
def test_every_axis_and_result_has_its_column(name):
    for axis in axes_of(name).values():
        assert CELL[axis.name] == MEASUREMENTS[axis.name] == TYPES[axis.type], axis.name
        assert len(axis.label.split()) <= 4, axis.name
    for result in load_benchmark(name).results.values():
        assert len(result.label.split()) <= 4, result.name
        if result.column:
            assert result.column in COLLECTED[result.table], f"{name}: {result.group}.{result.name}"


def test_what_several_benchmarks_declare_is_identical():
    """It is one column: of an axis with one definition and words per benchmark, of a result in each of its tables."""
    shared = {}
    for name in benchmark_names():
        for axis in axes_of(name).values():
            declared = replace(axis, words="", help="")
            assert shared.setdefault(axis.name, declared) == declared, f"{load_benchmark(name).file}: {axis.name}"
        for result in load_benchmark(name).results.values():
            key = (result.group, result.table, result.column)
            assert shared.setdefault(key, result) == result or not result.column, f"{name}: {result.name}"


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_a_program_has_an_option_for_each_axis(name):
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    missing = [axis for axis in axes_of(name) if axis.replace("_", "-") not in text]
    assert not missing, f"workflow/scripts/bench/{name}.py: no option for {missing}"


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_every_declared_result_is_written_by_a_program(name):
    text = "\n".join(path.read_text(encoding="utf-8") for path in PROGRAMS.rglob("*.py"))
    words = set(re.findall(r"\w+", text)) | {"first_loss", "last_loss"}  # written as f"{...}_loss"
    unwritten = [field for _, field in load_benchmark(name).results if field not in words]
    assert not unwritten, f"{load_benchmark(name).file}: x-results declares {unwritten}, which no program writes"


@pytest.mark.parametrize("name", benchmark_names())
def test_rules_name_fields_of_a_cell(name):
    benchmark = load_benchmark(name)
    for rule in benchmark.schema.get("x-impossible", []):
        assert set(rule["when"]) <= RULE_FIELDS | set(benchmark.parameters)
        assert rule["reason"]


@pytest.mark.parametrize("name", benchmark_names())
def test_the_table_of_cells_has_all_parameters(name):
    assert set(axes_of(name)) <= set(columns_with([load_benchmark(name)]))


def test_the_memory_of_a_record_is_declared_once():
    record = load_schema("record")["$defs"]["record"]
    assert set(record["properties"]["memory"]["properties"]) == set(MEMORY_BYTES)


def test_every_phase_of_a_record_has_words():
    phases = load_schema("record")["$defs"]["record"]["properties"]["phase"]["enum"]
    assert set(PHASE_WORDS) == set(phases) - {None}


def new_schema(tmp_path: Path, monkeypatch, **changes: dict) -> None:
    """Add a benchmark `broadcast` with one axis to a copy of the schemas. changes: keys of that axis."""
    schemas, programs = tmp_path / "schemas", tmp_path / "bench"
    schemas.mkdir()
    programs.mkdir()
    for name in benchmark_names():
        (schemas / f"{name}.yaml").write_text((benchmarks.SCHEMAS / f"{name}.yaml").read_text())
        (programs / f"{name}.py").write_text("VERSION = 1\n")
    axis = {"type": "array", "items": {"type": "integer"}, "x-label": "Root rank", "description": "Rank"} | changes
    axis = {key: value for key, value in axis.items() if value is not None}
    schema = {"x-subject": "broadcast", "properties": {"root": axis}}
    (schemas / "broadcast.yaml").write_text(json.dumps(schema))
    (programs / "broadcast.py").write_text("VERSION = 1\n")
    monkeypatch.setattr(benchmarks, "SCHEMAS", schemas)
    monkeypatch.setattr(benchmarks, "PROGRAMS", programs)
    for name in ("built_in_names", "_load"):
        monkeypatch.setattr(benchmarks, name, getattr(benchmarks, name).__wrapped__)


def test_a_new_benchmark_brings_its_columns(tmp_path, monkeypatch):
    before = set(all_axes())
    new_schema(tmp_path, monkeypatch)
    assert benchmarks.all_axes()["root"].type == "integer"
    assert before < set(benchmarks.all_axes())


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"x-label": None}, r"properties\.root lacks x-label"),
        ({"description": None}, r"properties\.root lacks description"),
        ({"items": {"type": "object"}}, r"properties\.root\.items"),
    ],
)
def test_an_axis_that_is_not_declared_in_full_is_named(tmp_path, monkeypatch, changes, place):
    new_schema(tmp_path, monkeypatch, **changes)
    with pytest.raises(ValueError, match=rf"broadcast\.yaml: {place}"):
        benchmarks.all_axes()


def test_a_schema_without_program_is_named(tmp_path, monkeypatch):
    new_schema(tmp_path, monkeypatch)
    (tmp_path / "bench" / "broadcast.py").unlink()
    with pytest.raises(ValueError, match=r"broadcast\.yaml has no program"):
        benchmarks.all_axes()


def test_an_undeclared_field_is_named_with_its_file():
    spec = {"benchmark": "collective", "version": load_benchmark("collective").version}
    record = {"spec": spec, "values": {"num_elements": 1, "tide": 2}, "parts_ns": None, "memory": {"saved_bytes": 1}}
    others = {"checks": {"is_calm": True}, "parts_ns": {"ebb": [[1]]}}
    collective = load_benchmark("collective")
    problems = undeclared(record | others, collective)
    assert {problem.split()[0] for problem in problems} == {"values.tide", "checks.is_calm", "parts_ns.ebb"}
    assert all("workflow/schemas/benchmarks/collective.yaml" in problem for problem in problems)
    assert undeclared(record | {"spec": spec | {"version": spec["version"] - 1}}, collective) == []  # an old store


def test_collecting_reports_an_undeclared_field_once_and_uses_the_record(tmp_path):
    write_results(tmp_path, laptop_campaign(), LAPTOP)
    (campaign,) = tmp_path.glob("campaign.*.json")
    campaign = json.loads(campaign.read_text())
    before, problems = collect(campaign, tmp_path / "launches")
    assert problems["invalid"] == []
    version = load_benchmark("train_step").version
    for cell in campaign["cells"]:
        if cell["spec"]["benchmark"] == "train_step":
            cell["spec"]["version"] = version
    for record in edit_records(tmp_path):
        if record["spec"]["benchmark"] == "train_step":
            record["spec"]["version"] = version
            if record["values"] is not None:
                record["values"]["tide"] = 3
    after, problems = collect(campaign, tmp_path / "launches")
    (problem,) = problems["invalid"]
    assert "values.tide" in problem["problem"]
    assert "benchmarks/train_step.yaml" in problem["problem"]
    assert after["measurements"].equals(before["measurements"])
