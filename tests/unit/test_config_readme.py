"""config/README.md matches the schemas: each key with its type, unit, default and meaning, and nothing else."""

import re
from pathlib import Path

import pytest

from publish_schemas import README, long_enums, rows, schemas_by_heading, with_tables
from regatta.core.benchmarks import load_benchmark

ROOT = Path(__file__).resolve().parents[2]


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
