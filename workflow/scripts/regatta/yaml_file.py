"""Read a YAML file together with the line of every key and list item, so that an error can point at it."""

import math
from dataclasses import dataclass
from pathlib import Path

import yaml

from regatta.errors import UserError

Where = tuple[str | int, ...]  # ("benchmarks", 0, "parameters", "model", 1)


@dataclass(frozen=True)
class YamlFile:
    """A parsed YAML file. `lines` gives the 1-based line of each place in `data`."""

    path: Path
    text: str
    data: dict
    lines: dict[Where, int]

    def at(self, where: Where) -> str:
        """Return `file:line` of a place, or of its nearest parent that is in the file."""
        while where and where not in self.lines:
            where = where[:-1]
        return f"{self.path}:{self.lines.get(where, 1)}"


def place(where: Where) -> str:
    """Return a place as people write it: `benchmarks[0].parameters.model[1]`."""
    text = ""
    for step in where:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".")


def read_yaml(path: Path) -> YamlFile:
    """Read a YAML file whose top level is a mapping.

    Raises UserError with file and line for a file that cannot be read, a syntax error, a key given twice, or another top level.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}.") from None
    lines: dict[Where, int] = {}
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        data = _construct(loader, node, (), lines, path) if node is not None else None
    except yaml.YAMLError as error:
        raise UserError(syntax_error(path, error)) from None
    except RecursionError:
        raise UserError(f"{path}: an alias (*name) points to itself. Write the value out.") from None
    except ValueError as error:  # a scalar that YAML's own types cannot hold, such as the date 2026-13-45
        raise UserError(f"{path}: a value cannot be read: {error}. If it is a text, put it in quotes.") from None
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(data, dict):
        raise UserError(f"{path}: must hold keys and values at the top level (`name: value`), but does not.")
    return YamlFile(path, text, data, lines)


def syntax_error(path: Path, error: yaml.YAMLError) -> str:
    """Return a YAML syntax error as one message with file and line."""
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    line = f":{mark.line + 1}" if mark is not None else ""
    found = ""
    if mark is not None and mark.buffer is not None:
        rows = mark.buffer.rstrip("\0").splitlines()
        if mark.line < len(rows):
            found = f" at `{rows[mark.line].strip()}`"
    return (
        f"{path}{line}: not valid YAML{found}: {problem or error}. Mend this line or the one above it (indentation,"
        " a missing colon, bracket or quote; tabs are not allowed)."
    )


def _scalar(value: object) -> object:
    """Return a scalar with 2.0 as 2, so that both are the same cell. Raises ValueError for what JSON cannot hold."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no finite number")
        return int(value) if value.is_integer() else value
    if not isinstance(value, str | int | None):
        raise ValueError(f"{value} is a {type(value).__name__}, and no text or number")
    return value


def _construct(loader: yaml.SafeLoader, node: yaml.Node, where: Where, lines: dict[Where, int], path: Path) -> object:
    lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_construct(loader, child, (*where, i), lines, path) for i, child in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(loader.construct_object(node))
    seen: dict[object, int] = {}
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise UserError(f"{path}:{line}: a key must be one word.")
        if key_node.value in seen and key_node.value != "<<":
            raise UserError(
                f"{path}:{line}: {place((*where, key_node.value))} is given twice (first in line {seen[key_node.value]})."
                " Keep one of the two."
            )
        seen[key_node.value] = line
    loader.flatten_mapping(node)
    data = {}
    for key_node, value_node in node.value:
        key = key_node.value
        lines[(*where, key)] = key_node.start_mark.line + 1
        data[key] = _construct(loader, value_node, (*where, key), lines, path)
    return data
