"""config/README.md matches the schemas: each key with its type, unit, default and meaning, and nothing else."""

import re
from pathlib import Path

import pytest
import yaml

from publish_schemas import README, long_enums, rows, schemas_by_heading, with_tables
from regatta.core.benchmarks import load_benchmark
from regatta.core.schemas import load_schema

ROOT = Path(__file__).resolve().parents[2]


def examples() -> list[dict]:
    text = README.read_text(encoding="utf-8")
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_the_tables_are_what_the_schemas_say():
    text = README.read_text(encoding="utf-8")
    assert with_tables(text) == text, "config/README.md is out of date. Run: python workflow/scripts/publish_schemas.py"


def test_an_outdated_row_is_replaced_and_a_new_benchmark_gets_a_section():
    text = README.read_text(encoding="utf-8")
    outdated = re.sub(r"(\| `(?:seed|hidden)` \|).*", r"\1 old |", text)
    assert "| old |" in outdated
    assert with_tables(outdated) == text
    begin, end = (text.index(f"\n## {name}\n") for name in ("Parameters of `train_run`", "Parameters of `train_step`"))
    section = with_tables(text[:begin] + text[end:]).partition("\n## Parameters of `train_run`\n")[2]
    assert section.partition("\n## ")[0].count("\n| `") == len(load_benchmark("train_run").parameters)


def test_a_key_without_a_row_is_named():
    text = re.sub(r"\| `repeats` \|.*\n", "", README.read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match=r"config/README\.md.* repeats"):
        with_tables(text)


def test_no_section_is_without_a_schema():
    lines = README.read_text(encoding="utf-8").splitlines()
    known = sum(len(rows(schema)) for schema in schemas_by_heading().values())
    assert sum(line.startswith("| `") for line in lines) == known


def test_the_list_of_models_is_long():
    (names,) = [names for schema in schemas_by_heading().values() for names in long_enums(schema)]
    assert len(names) == 86


def test_the_example_campaign_is_valid_and_shows_every_key(tmp_path, monkeypatch):
    from campaign_files import fake_sif

    from regatta.campaign.load import CLUSTERS, load_campaign

    monkeypatch.chdir(ROOT)  # where the wrapper's path begins
    text = re.search(r"```yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[1]
    text = text.replace("/shared/images/pytorch.sif", str(fake_sif(tmp_path / "pytorch.sif")))
    text = text.replace("/shared/envs/torch/bin/python3", "/bin/sh")
    (tmp_path / "campaign.yaml").write_text(text, encoding="utf-8")
    load_campaign(tmp_path / "campaign.yaml", CLUSTERS)
    example = examples()[0]
    assert missing_keys(example, load_schema("campaign")) == []
    assert {"collective", "sync_batchnorm", "train_run", "train_step"} <= {
        entry["benchmark"] for entry in example["benchmarks"]
    }
    for entry in (entry for entry in example["benchmarks"] if entry["benchmark"] not in ("script", "program")):
        assert missing_keys(entry["parameters"], load_benchmark(entry["benchmark"]).schema) == []


def missing_keys(data: object, schema: dict, prefix: str = "") -> list[str]:
    """Return the keys of a schema that no part of the example has."""
    if isinstance(data, list):
        parts = [set(missing_keys(item, schema.get("items", {}), prefix)) for item in data]
        return sorted(set.intersection(*parts)) if parts else []
    missing = []
    for key, rule in schema.get("properties", {}).items():
        if not isinstance(data, dict) or key not in data:
            missing.append(f"{prefix}{key}")
        else:
            missing += missing_keys(data[key], rule, f"{prefix}{key}.")
    named = schema.get("additionalProperties")
    if isinstance(named, dict) and isinstance(data, dict):
        missing += missing_keys(list(data.values()), {"items": named}, f"{prefix}NAME.")
    return missing


def test_a_key_missing_in_an_example_is_noticed():
    rule = {"properties": {"a": {}, "b": {"items": {"properties": {"c": {}, "d": {}}}}}}
    assert missing_keys({"a": 1, "b": [{"c": 1}, {"c": 2, "d": 3}]}, rule) == []
    assert missing_keys({"b": [{"c": 1}]}, rule) == ["a", "b.d"]
