"""Benchmarks outside Regatta's tree: the entries of a campaign with `benchmark: ./my_step.py`.

The file is parsed and never imported. Its axes are the fields of its dataclass, its results the keys of RESULTS. A
cell's id covers its content, and that of what it imports from its folder.
"""

import ast
import csv
import dataclasses
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from regatta.campaign.script_entries import script_files, whole_path_in
from regatta.campaign.yaml_file import FileError, YamlFile, raise_errors
from regatta.core.benchmarks import PROGRAMS, axes_of, built_in_names, declare
from regatta.core.errors import UserError
from regatta.core.schemas import SCHEMAS, load_schema, place, violations
from regatta.kit.columns import FACTORS, UNITS, Column

COLUMNS = SCHEMAS / "published" / "columns.csv"
DOCS = "docs/benchmarks/own.md"
TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
KNOWN_TYPES = f"{', '.join(TYPES)} or Literal[...]"
# Modules that ranks import by these names.
MODULES = {"torch", "torchvision", *sys.stdlib_module_names, *(path.stem for path in PROGRAMS.iterdir())}


@dataclasses.dataclass(frozen=True)
class BenchmarkFile:
    """What a file declares: see workflow/schemas/frozen.yaml. lines: of axes and results, such as ("axes", "size")."""

    path: Path
    declaration: dict
    lines: dict[tuple, int]


def resolve(file: YamlFile) -> tuple[YamlFile, dict[str, dict], dict[int, dict]]:
    """Return a campaign file with names instead of paths of benchmarks, the declarations by name, and what identifies
    the code of an entry, by its place. The declarations are added to those that this process knows.

    Raises UserError with the errors of all files.
    """
    entries, folder = file.data.get("benchmarks"), file.path.absolute().parent
    paths: dict[int, Path] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = entry.get("benchmark") if isinstance(entry, dict) else None
        if isinstance(name, str) and name.endswith(".py"):
            paths[index] = Path(os.path.abspath(whole_path_in(name, folder)))
    if not paths:
        return file, {}, {}
    known: dict[str, BenchmarkFile] = {}
    errors: list[FileError] = []
    for index, path in paths.items():
        where = ("benchmarks", index, "benchmark")
        try:
            other = known.get(path.stem)
            if other and other.path != path:
                raise UserError(f"{path} and {other.path} have the same file name. Rename one of them.")
            if other is None:
                known[path.stem] = read_benchmark_file(path)
                _check_columns(known[path.stem], [one for one in known.values() if one.path != path])
        except UserError as error:
            errors.append(file.error(where, f"{place(where)}: {error}"))
    raise_errors(file, errors)
    declared = {name: found.declaration for name, found in known.items()}
    declare(declared)
    modules = {index: {"path": str(path), "files": script_files(path, ())} for index, path in paths.items()}
    entries = [e | {"benchmark": paths[i].stem} if i in paths else e for i, e in enumerate(entries)]
    return dataclasses.replace(file, data=file.data | {"benchmarks": entries}), declared, modules


def check_name(path: Path) -> None:
    """Raise UserError if a file's name is not usable as the name of a benchmark."""
    if path.stem in built_in_names():
        raise UserError(f"{path}: {path.stem} is the name of a benchmark of Regatta. Rename the file.")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,39}", path.stem) or path.stem in MODULES:
        raise UserError(f"{path}: {path.stem} is the name of another module, or not a valid one. Rename the file.")


def read_benchmark_file(path: Path) -> BenchmarkFile:
    """Parse a benchmark. Raises UserError with line and remedy."""
    check_name(path)
    try:
        if path.exists() and not path.is_file():  # reading a pipe could wait indefinitely
            raise UserError(f"{path} is not a regular file. Correct the path.")
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. Correct the path.") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        text = getattr(error, "msg", None) or str(error) or "an expression is nested too deeply"  # MemoryError is empty
        raise UserError(f"{path}:{line}: {text}. Fix the file.") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "build" for node in tree.body):
        raise UserError(f"{path}:1: the function build(parameters, ranks) is missing. Add it: {DOCS}.")
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and "dataclass" in map(_name, n.decorator_list)]
    if len(classes) != 1:
        remedy = "Move all but the one with the parameters to another file." if classes else f"Add one: {DOCS}."
        line, num = (classes[1].lineno, len(classes)) if classes else (1, "no")
        raise UserError(f"{path}:{line}: {num} dataclasses found; exactly one must declare the parameters. {remedy}")
    fields = [node for node in classes[0].body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    lines = {("axes", node.target.id): node.lineno for node in fields}
    axes = {node.target.id: _axis(path, node) for node in fields}
    version, at = _constant(path, tree, "VERSION", 1)
    results, node = _constant(path, tree, "RESULTS", {})
    lines |= {("version",): getattr(at, "lineno", 1), ("results",): getattr(node, "lineno", 1)}
    if isinstance(node, ast.Dict):
        lines |= {("results", key.value): key.lineno for key in node.keys if isinstance(key, ast.Constant)}
    declaration = {"version": version, "file": path.name, "axes": axes, "results": results}
    for where, text, remedy in violations(declaration, load_schema("frozen")["$defs"]["declaration"]):
        line = lines.get(where[:2]) or lines[where[:1]]
        raise UserError(f"{path}:{line}: {text}.{remedy}")
    return BenchmarkFile(path, declaration, lines)


def _name(node: ast.AST) -> str:
    """Return the last part of a name such as `dataclasses.dataclass`, also of a call."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", None) or getattr(node, "id", "")


def _axis(path: Path, node: ast.AnnAssign) -> dict:
    """Return a field of the dataclass as a parameter: its type, allowed values, and default."""
    name, annotation = node.target.id, node.annotation
    found: dict = {"type": TYPES.get(getattr(annotation, "id", ""))}
    if isinstance(annotation, ast.Subscript) and _name(annotation.value) == "Literal":
        values = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        choices = [value.value if isinstance(value, ast.Constant) else None for value in values]
        kinds = {type(choice).__name__ for choice in choices}
        found = {"type": TYPES.get(kinds.pop()) if len(kinds) == 1 else None, "choices": choices}
    if found["type"] is None:
        text = f"{name}: the type {ast.unparse(annotation)} is unknown, or mixes types"
        raise UserError(f"{path}:{node.lineno}: {text}. Use {KNOWN_TYPES}.")
    if node.value is None:
        return found
    try:
        found["default"] = ast.literal_eval(node.value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        found["default"] = None
    is_number = found["type"] == "number" and type(found["default"]) is int
    is_right = is_number or TYPES.get(type(found["default"]).__name__) == found["type"]
    if not is_right or found["default"] not in found.get("choices", [found["default"]]):
        text = f"{name}: the default {ast.unparse(node.value)[:80]} is not a literal of its type"
        raise UserError(f"{path}:{node.lineno}: {text}. Write a value such as 1024 or 'fp32', or none.")
    return found


def _constant(path: Path, tree: ast.Module, name: str, default: object) -> tuple[object, ast.AST | None]:
    """Return the literal that a file assigns to a name, and its node; the default without any."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if name in map(_name, targets) and getattr(node, "value", None):
            try:
                return ast.literal_eval(node.value), node.value
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                text = f"{name} is not a literal. Write it without names, calls or expressions: {DOCS}."
                raise UserError(f"{path}:{node.lineno}: {text}") from None
    return default, None


def _check_columns(found: BenchmarkFile, others: list[BenchmarkFile]) -> None:
    """Raise UserError for an axis or result that cannot be a column beside all others."""
    for where, text in _column_problems(found.declaration, [other.declaration for other in others]):
        raise UserError(f"{found.path}:{found.lines[where]}: {where[1]} {text}")


def _column_problems(declaration: dict, others: list[dict]) -> Iterator[tuple[tuple, str]]:
    shared = {axis.name: axis.type for name in built_in_names() for axis in axes_of(name).values()}
    with COLUMNS.open(encoding="utf-8", newline="") as file:
        taken = {row["column"] for row in csv.DictReader(file)}
    taken |= {"table", "quantity", *load_schema("frozen")["$defs"]["spec"]["properties"]}
    for name, rule in declaration["axes"].items():
        if name in taken and shared.get(name) != rule["type"]:
            what = (
                f"is {shared[name]} in a benchmark of Regatta" if name in shared else "is a column of Regatta's tables"
            )
            yield ("axes", name), f"{what}. Rename it."
        for other in others:
            if other["axes"].get(name, rule)["type"] != rule["type"]:
                yield ("axes", name), f"has another type in {other['file']}. Rename one of them."
    for name, keys in declaration["results"].items():
        column = Column(name, shown_as=keys.get("unit", ""), interval="interval")
        if taken & set(column.names) or name in declaration["axes"]:
            what = "a parameter" if name in declaration["axes"] else "a column of Regatta's tables"
            yield ("results", name), f"is {what}. Rename it."
        if column.shown_as not in ("", UNITS.get(column.unit)) if column.unit else ("", column.shown_as) in FACTORS:
            unit = f"ends with _{column.unit}" if column.unit else "would be converted to it"
            yield ("results", name), f"has the unit {column.shown_as}, but {unit}. Rename it, or use another unit."
        if column.shown_as == "B" and not column.unit:
            yield ("results", name), f"has the unit B, but does not end with _bytes. Rename it to {name}_bytes."
        for other in others:
            if other["results"].get(name, keys) != keys or name in other["axes"]:
                yield ("results", name), f"is declared differently in {other['file']}. Rename one of them."
