"""Rank-side programs import the standard library, torch and each other; torchvision only inside functions."""

import ast
import sys

import pytest
from bench_cells import BENCH

PROGRAMS = sorted(BENCH.rglob("*.py"))
FOLDERS = ("harness", "algorithms", "workloads")  # each imports itself and those before it; programs import all


def imported_packages(nodes) -> set[str]:
    packages = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "programs are run as scripts: no relative imports"
            packages.add(node.module.split(".")[0])
    return packages


def test_each_folder_is_listed_and_programs_are_at_the_top():
    assert {path.parent.name for path in PROGRAMS} == {"bench", *FOLDERS}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_program_imports_only_the_standard_library_and_torch(path):
    tree = ast.parse(path.read_text())
    folder = path.parent.name
    below = FOLDERS[: FOLDERS.index(folder) + 1] if folder in FOLDERS else FOLDERS
    allowed = set(sys.stdlib_module_names) | {"torch"} | set(below)
    inside_functions = [
        node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in ast.walk(function)
    ]
    elsewhere = [node for node in ast.walk(tree) if node not in set(inside_functions)]
    assert imported_packages(elsewhere) <= allowed
    assert imported_packages(inside_functions) <= allowed | {"torchvision"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_no_program_hides_a_module_of_the_standard_library(path):
    assert path.stem not in sys.stdlib_module_names


@pytest.mark.parametrize("name", ["train_step", "collective"])
def test_version_is_a_literal_that_the_driver_can_read(name):
    tree = ast.parse((BENCH / f"{name}.py").read_text())
    values = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [target.id for target in node.targets] == ["VERSION"]
    ]
    assert len(values) == 1
    assert isinstance(values[0], int)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_files_and_functions_stay_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name}"
