"""The JSON Schemas for editors: up to date, self-contained, and named by every campaign and cluster file."""

import csv
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from campaign_files import TEXT, write

from publish_schemas import PUBLISHED, published_schemas
from regatta.core.benchmarks import load_benchmark
from regatta.core.schemas import load_schema
from regatta.plan.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "config").rglob("*.yaml"))
MODELINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")
COMMAND = "python workflow/scripts/publish_schemas.py"


def kind(path: Path) -> str:
    return "cluster" if path.parent.name == "clusters" else "campaign"


def validator(name: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8")))


def errors(change: str, old: str) -> list[str]:
    """Return the places at which the default campaign is refused after an edit."""
    text = (ROOT / "config" / "config.yaml").read_text(encoding="utf-8")
    assert old in text
    data = yaml.safe_load(text.replace(old, change, 1))
    return [".".join(map(str, error.absolute_path)) for error in validator("campaign").iter_errors(data)]


def test_what_is_published_is_what_the_schemas_say():
    texts = published_schemas()
    assert sorted(texts) == sorted(PUBLISHED.iterdir())
    for path, text in texts.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date. Run: {COMMAND}"


def test_the_list_of_columns_has_each_column_of_each_file_in_order_with_type_and_definition():
    from regatta.core.benchmarks import built_in_names, load_benchmark
    from regatta.store.csv_files import COLLECTED
    from regatta.tables.cells import columns_with
    from regatta.topics.catalog import TABLES

    with (PUBLISHED / "columns.csv").open(encoding="utf-8", newline="") as file:
        listed = list(csv.DictReader(file))
    files = COLLECTED | {"cells": columns_with(map(load_benchmark, built_in_names()))}
    files |= {f"tables/{name}": spec.columns for name, spec in TABLES.items()}
    assert [(row["file"], row["column"]) for row in listed] == [
        (f"{name}.csv", column) for name, columns in files.items() for column in columns
    ]
    assert {row["type"] for row in listed} == {"string", "integer", "number", "boolean"}
    assert [row for row in listed if not row["definition"] or "see below" in row["definition"]] == []


@pytest.mark.parametrize("name", ["campaign", "cluster"])
def test_a_published_schema_is_valid_and_refers_to_no_other_file(name):
    schema = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    assert "$ref" not in json.dumps(schema)
    assert '"x-' not in json.dumps(schema)
    assert set(schema["properties"]) == set(load_schema(name)["properties"])
    assert all(rule["description"] for rule in schema["properties"].values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_first_line_of_each_file_names_its_schema_and_the_file_is_valid(path):
    found = MODELINE.match(path.read_text(encoding="utf-8"))
    assert found, f"{path} must begin with # yaml-language-server: $schema="
    assert (path.parent / found[1]).resolve() == PUBLISHED / f"{kind(path)}.json"
    assert list(validator(kind(path)).iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))) == []


def test_an_editor_knows_no_parameters_of_programs_and_marks_none():
    entry = "  - {benchmark: program, name: p, command: [p], parameters: {n: [1]}, read: {t: {match: t, unit: s}}}"
    old, new = "baseline: {strategy: none,", "versus: n\nbaseline: {n: 1,"
    change = f"{entry}\nexclude: [{{when: {{n: 1}}, reason: x}}]\n{new}"
    assert not [place for place in errors(change, old) if place.startswith(("exclude", "versus", "baseline"))]
    assert sorted(errors(new, old)) == ["baseline", "versus"]


@pytest.mark.parametrize(
    ("old", "change", "place"),
    [
        ("repeats: 3", "repeets: 3", ""),
        ("strategy: [none, ddp]", "strategy: [none, dpd]", "benchmarks.0.parameters.strategy.1"),
        ("batch_size: [8]", "batch_sizes: [8]", "benchmarks.0.parameters"),
        ("benchmark: collective", "benchmark: collectiv", "benchmarks.1.benchmark"),
        ("operation: [all_reduce]", "operation: [ddp]", "benchmarks.1.parameters.operation.0"),
        ("baseline: {strategy: none,", "baseline: {strategi: none,", "baseline"),
        ("baseline:", "versus: nodse\nbaseline:", "versus"),
        ("baseline:", "exclude: [{when: {modelx: resnet18}, reason: x}]\nbaseline:", "exclude.0.when"),
    ],
)
def test_an_editor_marks_an_error_where_it_is(old, change, place):
    assert place in errors(change, old)


def test_the_parameters_of_each_benchmark_are_there_with_their_descriptions():
    entry = validator("campaign").schema["properties"]["benchmarks"]["items"]
    inlined = {
        case["if"]["properties"]["benchmark"]["const"]: case["then"]["properties"]["parameters"]
        for case in entry["allOf"]
    }
    assert sorted(inlined) == entry["properties"]["benchmark"]["anyOf"][0]["enum"]
    for name in ("script", "program"):
        assert "additionalProperties" in inlined.pop(name)  # names of the user's choice
    for name, schema in inlined.items():
        wanted = {key: rule["description"] for key, rule in load_benchmark(name).parameters.items()}
        assert {key: rule["description"] for key, rule in schema["properties"].items()} == wanted


def test_the_line_for_editors_changes_no_cell_and_no_batch(tmp_path):
    line = "# yaml-language-server: $schema=../workflow/schemas/published/campaign.json\n"
    text = TEXT.replace("cluster: tiny", "cluster: local")
    plans = [make_plan(write(tmp_path, content), tmp_path / "results") for content in (text, line + text)]
    cells, batches = zip(*(([c.cell.id for c in p.cells], [b.id for b in p.batches]) for p in plans), strict=True)
    assert cells[0] == cells[1]
    assert batches[0] == batches[1]
    assert len(cells[0]) > 0 < len(batches[0])
