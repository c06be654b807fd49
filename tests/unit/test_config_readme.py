"""config/README.md is held to the schemas: each key with its type, unit, default and meaning, and nothing else.

After a change of a schema, take the rows from what this prints: python tests/unit/test_config_readme.py
"""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "workflow" / "schemas"
README = ROOT / "config" / "README.md"
UNITS = {
    "_seconds": "s",
    "_minutes": "min",
    "_bytes": "bytes",
    "_mb_per_node": "MiB",
    "target_precision": "ratio",
    "margin": "ratio",
}
TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
TYPES |= {"object": "keys and values"}
PLURALS = {"text": "texts", "whole number": "whole numbers", "number": "numbers", "keys and values": "entries"}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
MAX_NAMES = 12  # of an enum in a table; longer ones have a list of their own


def headings() -> dict[str, str]:
    """Return the heading of each schema's section."""
    benchmarks = sorted(path.stem for path in (SCHEMAS / "benchmarks").glob("*.yaml"))
    sections = {f"benchmarks/{name}": f"## Parameters of `{name}`" for name in benchmarks}
    return {"campaign": "## Campaign file", **sections, "cluster": "## Cluster file"}


def load(name: str) -> dict:
    return yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8"))


def type_words(rule: dict, is_plural: bool = False) -> str:
    if "const" in rule:
        return f"`{rule['const']}`"
    if "enum" in rule:
        return "the names below" if len(rule["enum"]) > MAX_NAMES else " or ".join(f"`{v}`" for v in rule["enum"])
    if "anyOf" in rule:
        return " or ".join(type_words(option, is_plural) for option in rule["anyOf"])
    if rule["type"] == "array":
        return f"list of {type_words(rule['items'], is_plural=True)}"
    names = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    words = [TYPES[name] for name in names]
    limits = ", ".join(f"{sign} {rule[key]}" for key, sign in LIMITS.items() if key in rule)
    return " or ".join(PLURALS.get(w, w) if is_plural else w for w in words) + (f" {limits}" if limits else "")


def unit(key: str, rule: dict) -> str:
    return rule.get("x-unit") or next((unit for end, unit in UNITS.items() if key.endswith(end)), "–")


def rows(schema: dict, prefix: str = "") -> list[str]:
    """Return the table rows of an object's keys, and of all keys below."""
    found = []
    for key, rule in schema.get("properties", {}).items():
        default = "**required**" if key in schema.get("required", []) else "none"
        if "default" in rule:
            default = f"`{json.dumps(rule['default'])}`"
        path = f"{prefix}{key}"
        found.append(f"| `{path}` | {type_words(rule)} | {unit(key, rule)} | {default} | {rule['description']} |")
        found += rows(rule, f"{path}.")
        found += rows(rule.get("items", {}), f"{path}[].")
        named = rule.get("additionalProperties")
        if isinstance(named, dict):
            about = named.get("description", "An entry of this name")
            found.append(f"| `{path}.NAME` | {type_words(named)} | – | none | {about} |")
            found += rows(named, f"{path}.NAME.")
    return found


def section(name: str) -> str:
    """Return the text of a schema's section, from its heading to the next of the same level."""
    text = README.read_text(encoding="utf-8").split(f"\n{headings()[name]}\n")
    assert len(text) == 2, f"config/README.md needs one heading {headings()[name]}"
    return text[1].split("\n## ")[0]


def long_enums(name: str) -> list[list[str]]:
    rules = [rule.get("items", rule) for rule in load(name)["properties"].values()]
    return [rule["enum"] for rule in rules if len(rule.get("enum", [])) > MAX_NAMES]


def examples() -> list[dict]:
    text = README.read_text(encoding="utf-8")
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize("name", list(headings()))
def test_a_section_has_a_row_for_each_key_of_its_schema_and_no_other(name):
    found = [line for line in section(name).splitlines() if line.startswith("| `")]
    assert found == rows(load(name))


def test_no_section_is_without_a_schema():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("| `") for line in lines) == sum(len(rows(load(name))) for name in headings())


def test_all_names_of_a_long_list_stand_there_and_no_others():
    text = README.read_text(encoding="utf-8")
    found = [re.findall(r"`([^`]+)`", block) for block in re.findall(r"<!-- names -->\n(.*?)\n\n", text, re.DOTALL)]
    assert found == [names for name in headings() for names in long_enums(name)]
    assert len(found[0]) == 86


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
    assert missing_keys(example, load("campaign")) == []
    for entry in example["benchmarks"]:
        assert missing_keys(entry["parameters"], load(f"benchmarks/{entry['benchmark']}")) == []
    benchmarks = {name.removeprefix("benchmarks/") for name in headings() if "/" in name}
    assert {entry["benchmark"] for entry in example["benchmarks"]} == benchmarks


def test_the_example_clusters_are_valid_and_one_shows_every_key():
    import jsonschema

    full, small = examples()[1:]
    for example in (full, small):
        jsonschema.validate(example, load("cluster"))
    assert missing_keys(full, load("cluster")) == []


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


if __name__ == "__main__":
    for schema, heading in headings().items():
        print(heading, *rows(load(schema)), "", sep="\n")
        for names in long_enums(schema):
            print("<!-- names -->\n" + ", ".join(f"`{name}`" for name in names) + "\n")
