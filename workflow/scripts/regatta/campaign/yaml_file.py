"""Read a YAML file with the line of each key and list item, and validate it: every error names its line."""

import contextlib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from regatta.core.errors import UserError
from regatta.core.schemas import Where, place, violations

MAX_ERRORS_SHOWN = 10
MAX_BYTES = 10 * 2**20
MAX_NESTED_IN_C = 2_000
MAX_VALUES = 100_000  # aliases are counted expanded: nested ones grow exponentially
LARGEST_INTEGER = 2**53  # JSON readers may use 64-bit floats
OCTAL = re.compile(r"[-+]?0[0-7_]+")
PLAIN_TAGS = ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")


class FileError(NamedTuple):
    """An error message, and the place in the file that it refers to."""

    where: Where
    text: str


@dataclass(frozen=True)
class YamlFile:
    """A parsed YAML file. `lines`: the line of each place in `data`, from 1; `texts`: each scalar as written."""

    path: Path
    text: str
    data: dict
    lines: dict[Where, int]
    texts: dict[Where, str]

    def at(self, where: Where) -> str:
        """Return `file:line` of a place, or of its nearest parent that is in the file."""
        while where and where not in self.lines:
            where = where[:-1]
        return f"{self.path}:{self.lines.get(where, 1)}"

    def error(self, where: Where, text: str) -> FileError:
        """Return the error of a place, its text after `file:line`."""
        return FileError(where, f"{self.at(where)}: {text}")


def schema_errors(file: YamlFile, data: object, schema: dict, base: Where = ()) -> list[FileError]:
    """Return an error for each violation of the schema by `data`, which is at `base` in `file`."""
    return [file.error(where, f"{text}.{remedy}") for where, text, remedy in violations(data, schema, base)]


def raise_errors(file: YamlFile, errors: list[FileError]) -> None:
    """Raise one UserError with all errors in the order of the file, if there are any."""
    lines = [error.text for error in sorted(errors, key=lambda error: file.lines.get(error.where, 0))]
    if len(lines) > MAX_ERRORS_SHOWN:
        lines = [*lines[:MAX_ERRORS_SHOWN], f"... and {len(lines) - MAX_ERRORS_SHOWN} more."]
    if lines:
        raise UserError("\n".join(lines))


def read_yaml(path: Path) -> YamlFile:
    """Read a YAML file whose top level is a mapping.

    Raises UserError with file and line if it cannot be read, has a syntax error, is not a mapping or has more than
    MAX_VALUES values. One error lists all duplicate keys, recursive aliases, tags of lists and mappings, and values
    that are neither string nor number.
    """
    text = _read_text(path)
    try:
        loader, node = _parse(text)
        reader = _Reader(path, loader)
        data = reader.build(node, ()) if node is not None else None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(
            f"{path}:{line}: contains the character #x{error.character:04x}, which YAML does not allow. Remove it."
        ) from None
    except yaml.YAMLError as error:
        raise UserError(_syntax_error(path, error)) from None
    except RecursionError:
        line = _deepest_line(text)
        raise UserError(f"{path}:{line}: lists or keys are nested too deeply to be read. Reduce the nesting.") from None
    if reader.errors:
        raise UserError("\n".join(text for _, text in sorted(reader.errors)))
    if not isinstance(data, dict):
        found = "nothing" if data is None else "a list" if isinstance(data, list) else "one value"
        raise UserError(
            f"{path}:{reader.lines.get((), 1)}: contains {found} at the top level; expected keys and values, such as"
            " `name: laptop`."
        )
    return YamlFile(path, text, data, reader.lines, reader.texts)


def _parse(text: str) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    """Return the loader and the top node of a YAML text. libyaml is ten times as fast; errors come from Python's."""
    # Deep recursion crashes libyaml instead of raising an error. This is an upper bound on the nesting.
    most_nested = sum(map(text.count, "[{-?")) + max(len(line) - len(line.lstrip()) for line in text.split("\n"))
    if most_nested <= MAX_NESTED_IN_C and "\t" not in text:  # libyaml accepts tabs that Snakemake's parser refuses
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        with contextlib.suppress(yaml.YAMLError):
            return loader, loader.get_single_node()
    loader = yaml.SafeLoader(text)
    return loader, loader.get_single_node()


def _read_text(path: Path) -> str:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # reading a pipe could wait indefinitely
            raise UserError(f"{path}: is a pipe or device. Specify a regular file.")
        if path.stat().st_size > MAX_BYTES:
            raise UserError(
                f"{path}: the file is too large: {path.stat().st_size:,} bytes (limit {MAX_BYTES:,}). Reduce the file."
            )
        raw = path.read_bytes()
        return raw.decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file. Check the path.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}. Specify a readable text file.") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8. Save the file as UTF-8.") from None


def _deepest_line(text: str) -> int:
    """Return the line with the deepest nesting of brackets, also those in strings, or the deepest indentation."""
    depth, depths = 0, []
    for line in text.split("\n"):
        depth += sum(line.count(c) for c in "[{") - sum(line.count(c) for c in "]}")
        indent = len(line) - len(line.lstrip(" -?"))
        depths.append(max(depth, line.count("["), line.count("{"), indent))
    return depths.index(max(depths)) + 1


def _syntax_error(path: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    rows = mark.buffer.rstrip("\0").splitlines() if mark is not None and mark.buffer is not None else []
    found = f" at `{rows[mark.line].strip()}`" if mark is not None and mark.line < len(rows) else ""
    line = "" if mark is None else f":{mark.line + 1}"
    remedy = "Fix this line or the one above it (indentation, a missing colon, bracket or quote; tabs are not allowed)."
    if "got '{'" in problem:
        remedy = 'Quote a word that contains braces, such as "--size={n}", or add the missing comma.'
    return f"{path}{line}: not valid YAML{found}: {problem or error}. {remedy}"


@dataclass
class _Reader:
    """Builds plain data from YAML nodes. Errors are collected with their lines and reported together."""

    path: Path
    loader: yaml.SafeLoader
    lines: dict[Where, int] = field(default_factory=dict)
    texts: dict[Where, str] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    parents: list[yaml.Node] = field(default_factory=list)  # ancestors of the node that is being built
    num_values: int = 0

    def build(self, node: yaml.Node, where: Where) -> object:
        self.lines.setdefault(where, node.start_mark.line + 1)
        self.num_values += 1
        if self.num_values > MAX_VALUES:
            raise UserError(
                f"{self.path}:{self.lines[where[:1]]}: {place(where[:1]) or 'the file'} expands to more than"
                f" {MAX_VALUES:,} values, aliases (*name) included. Remove nested aliases, or shorten its lists."
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, where)
        if node.tag not in PLAIN_TAGS:
            text = f"{place(where) or 'the file'} has the tag {node.tag}. Remove it."
            self._note(node.start_mark.line + 1, text)
            return None
        if any(node is parent for parent in self.parents):
            text = f"{place(where)} is an alias (*name) of a value that contains itself. Write the value out."
            self._note(self.lines[where], text)
            return None
        self.parents.append(node)
        if isinstance(node, yaml.SequenceNode):
            data = [self.build(child, (*where, i)) for i, child in enumerate(node.value)]
        else:
            data = self._mapping(node, where)
        self.parents.pop()
        return data

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict:
        key_lines: dict[str, int] = {}
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise UserError(f"{self.path}:{line}: a key must be a string, not a list or mapping.")
            key = key_node.value
            if key in key_lines and key != "<<":
                first = f"first in line {key_lines[key]}"
                self._note(line, f"{place((*where, key))} is specified twice ({first}). Keep one of the two.")
            key_lines[key] = line
        self.loader.flatten_mapping(node)
        # Remove overridden keys from the node itself: it may be read again through an alias.
        node.value = list({key.value: (key, value) for key, value in node.value}.values())
        data = {}
        for key_node, value_node in node.value:
            self.lines[(*where, key_node.value)] = key_node.start_mark.line + 1
            data[key_node.value] = self.build(value_node, (*where, key_node.value))
        return data

    def _scalar(self, node: yaml.ScalarNode, where: Where) -> object:
        self.texts[where] = node.value
        try:
            value = _plain(self.loader.construct_object(node))
            if isinstance(value, int | float) and not isinstance(value, bool) and "env" not in where:
                if ":" in node.value:
                    raise ValueError(f"YAML reads it as the base-60 number {value}")
                if OCTAL.fullmatch(node.value):
                    raise ValueError(f"YAML reads it as the octal number {value}")
            return value
        # PyYAML raises various errors for a tag that does not match its value: `!!bool x`, `!!int ""`, `!!timestamp x`.
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            value = node.value if len(node.value) <= 80 else node.value[:77] + "..."
            reason = str(error) if isinstance(error, ValueError) else f"it is not a valid {node.tag.rpartition(':')[2]}"
            text = f"{place(where)} = {value!r} cannot be used: {reason}. Write a number, or a string in quotes."
            self._note(self.lines[where], text)
            return None

    def _note(self, line: int, text: str) -> None:
        self.errors.append((line, f"{self.path}:{line}: {text}"))


def _plain(value: object) -> object:
    """Return a scalar with 2.0 as 2, so that both are the same cell. Raises ValueError for what JSON cannot express."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return int(value) if value.is_integer() else value
    if not isinstance(value, str | int | None):
        raise ValueError("it is binary data" if isinstance(value, bytes) else f"it is a {type(value).__name__}")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError("it is larger than 2^53")
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("it contains an unpaired surrogate")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("it contains a NUL character")
    return value
