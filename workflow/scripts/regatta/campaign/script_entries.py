"""A user's training script as a benchmark: the entries of a campaign with `benchmark: script`.

The script is read as text and never imported. A cell's id covers its content, that of the modules which it imports from
its folder, and of the files that the entry lists.
"""

import ast
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from regatta.campaign.yaml_file import FileError, YamlFile, schema_errors
from regatta.core.schemas import place, show
from regatta.runtimes.base import hash_if_readable, whole_path

BENCHMARK = "script"
RATES = ("samples_per_step", "tokens_per_step")
KEYS = ("script", "arguments", *RATES, "steps", "ddp", "exposed", "files")  # no other benchmark has these
AXES = ("script", "settings", *RATES)
MAX_POINTS = 100_000  # of one entry's parameters
TEMPLATE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
PARAMETERS = {
    "propertyNames": {
        "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$",
        "description": "letters, digits and underscore; at most 64 characters, the first no digit",
    },
    "additionalProperties": {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "description": "values of the parameter",
        "items": {
            "type": ["string", "number", "boolean"],
            "pattern": "^[^\0\n\r]{0,200}$",
            "description": "one line of at most 200 characters",
        },
    },
}


def script_errors(file: YamlFile) -> list[FileError]:
    """Return the errors of all entries in their keys for scripts, except those that the campaign's schema finds."""
    entries, found = file.data.get("benchmarks"), []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, dict) or "benchmark" not in entry:
            continue
        where = ("benchmarks", index)
        if entry["benchmark"] == BENCHMARK:
            found += _entry_errors(file, where, entry)
            continue
        for key in KEYS:
            if key in entry and (entry["benchmark"], key) != ("program", "files"):
                text = f"{place((*where, key))} has no effect with benchmark: {entry['benchmark']}. Remove it."
                found.append(file.error((*where, key), text))
    return found


def _entry_errors(file: YamlFile, where: tuple, entry: dict) -> list[FileError]:
    parameters = entry.get("parameters", {})
    found = schema_errors(file, parameters, PARAMETERS, (*where, "parameters"))
    found += schema_errors(file, entry.get("files", []), {"type": "array"}, (*where, "files"))
    if found or not isinstance(parameters, dict) or not isinstance(entry.get("arguments", []), list):
        return found
    num_points = math.prod(map(len, parameters.values()))
    if num_points > MAX_POINTS:
        text = f"{place(where)}.parameters have {num_points:,} combinations; the limit is {MAX_POINTS:,}."
        return [file.error((*where, "parameters"), f"{text} Remove values.")]
    templates = [(*where, "arguments", index) for index in range(len(entry.get("arguments", [])))]
    templates += [(*where, key) for key in RATES if key in entry]
    used = set()
    for key in templates:
        text = file.texts.get(key, "")
        names = [found[1] if found[1] is not None else found[0] for found in TEMPLATE.finditer(text)]
        unknown = [name for name in names if name not in ("{{", "}}", *parameters)]
        used |= set(names) if key[2] == "arguments" else set()
        if unknown:
            known = f"Known: {', '.join(parameters)}" if parameters else "The entry has no parameters"
            remedy = "A literal brace is written {{ or }}."
            shown = f"{place(key)} = {show(text)} names {show(unknown[0])}, which is not a parameter."
            found.append(file.error(key, f"{shown} {known}. {remedy}"))
    for name in parameters:
        if name not in used and not found:
            text = f"{place(where)}.parameters.{name} is not used in arguments. Add {{{name}}}, or remove it."
            found.append(file.error((*where, "parameters", name), text))
    if not found:
        found += _rate_errors(file, where, entry, parameters)
    return found


def _rate_errors(file: YamlFile, where: tuple, entry: dict, parameters: dict) -> Iterator[FileError]:
    """Yield the first error of samples_per_step and tokens_per_step each."""
    for key in RATES:
        texts = dict.fromkeys(_rendered(file, where, key, point) for point in texts_of_points(file, where, parameters))
        for text in texts if key in entry else ():
            if _product(text) is None:
                wanted = "Write an integer above 0, or a product such as {batch}*4."
                yield file.error(
                    (*where, key), f"{place((*where, key))} is {show(text)}, which is not a positive integer. {wanted}"
                )
                break


def complete_entries(file: YamlFile, entries: list[dict]) -> tuple[list[dict], list[tuple[FileError, bool]]]:
    """Return the entries, those of scripts with the axes of their cells as `parameters` and the cells as `points`.

    Also returns the errors of scripts and listed files, and whether the file is missing here.
    """
    complete, found, names = [], [], {}
    for index, entry in enumerate(entries):
        if entry["benchmark"] != BENCHMARK:
            complete.append(entry)
            continue
        problems = list(_file_errors(file, ("benchmarks", index), entry))
        cells = points(file, index, entry)
        axes = {axis: list({parameters[axis]: None for parameters, _ in cells}) for axis in AXES}
        complete.append(entry | {"parameters": axes, "points": cells})
        if not problems:
            problems = [(error, False) for error in _same_names(file, index, cells, names)]
        found += problems
    return complete, found


def _file_errors(file: YamlFile, where: tuple, entry: dict) -> Iterator[tuple[FileError, bool]]:
    """Yield the errors of a script and of the files that its entry lists, and whether the file is missing here."""
    script = whole_path(entry["script"])
    keys = [("script",), *(("files", number) for number in range(len(entry.get("files", []))))]
    for key, path in zip(keys, [script, *_listed(script, entry)], strict=True):
        named = f"{place((*where, *key))}: {path}"
        try:
            if path.exists() and not path.is_file():  # reading a pipe could wait indefinitely
                yield file.error((*where, *key), f"{named} is not a regular file. Correct the path."), False
                continue
            content = path.read_bytes()
            if key == ("script",):
                ast.parse(content, filename=str(path))
        except OSError as error:
            beside = file.path.absolute().parent / entry["script"]
            is_beside = key == ("script",) and beside.is_file()
            remedy = f"Correct the path to {beside}." if is_beside else "Correct the path."
            text = f"{named} cannot be read: {error.strerror}. {remedy}"
            yield file.error((*where, *key), text), isinstance(error, FileNotFoundError)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            text = f"{named}{line}: {getattr(error, 'msg', None) or error}. Fix the script."
            yield file.error((*where, *key), text), False


def _same_names(file: YamlFile, index: int, cells: list[tuple[dict, dict]], names: dict) -> Iterator[FileError]:
    """Yield an error if cells of an entry have the names of those of an earlier one. names: entries by name so far."""
    for parameters, _ in cells:
        first = names.setdefault((parameters["script"], parameters["settings"]), index)
        if first != index:
            settings = parameters["settings"] or "no parameters"
            text = f"benchmarks[{index}] measures {parameters['script']} with {settings}, as benchmarks[{first}] does."
            remedy = 'Merge them, with a parameter such as `mode: ["", --compile]` and the argument `{mode}`.'
            yield file.error(("benchmarks", index), f"{text} {remedy}")
            return


def points(file: YamlFile, index: int, entry: dict) -> list[tuple[dict, dict]]:
    """Return the parameters of the cells of an entry, and their `script`: what a rank needs, and the hashes."""
    where, script = ("benchmarks", index), whole_path(entry["script"])
    files = script_files(script, tuple(_listed(script, entry)))
    given, ddp = entry.get("parameters", {}), entry.get("ddp", {})
    crossed = itertools.product(
        zip(texts_of_points(file, where, given), itertools.product(*given.values()), strict=True),
        [dict(zip(ddp, values, strict=True)) for values in itertools.product(*ddp.values())],
    )
    found = []
    for (texts, values), of_ddp in crossed:
        keys = [(*where, "arguments", number) for number in range(len(entry.get("arguments", [])))]
        words = [(file.texts[key], render(file.texts[key], texts)) for key in keys]
        parameters = {
            "script": re.sub(r"[^A-Za-z0-9_.-]", "_", script.name)[:64],
            "settings": ", ".join(setting_text(name, value) for name, value in (texts | of_ddp).items()) or None,
        }
        for key in RATES:
            parameters[key] = _product(_rendered(file, where, key, texts)) if key in entry else None
        found.append(
            (
                parameters,
                {
                    "path": str(script),
                    "arguments": [word for text, word in words if word or not text],
                    "parameters": dict(zip(given, values, strict=True)),
                    "steps": entry.get("steps"),
                    "files": files,
                    **({"ddp": of_ddp} if of_ddp else {}),  # absent otherwise, as below
                    **({"exposed": True} if entry.get("exposed") else {}),
                },
            )
        )
    return found


def setting_text(name: str, value: object) -> str:
    """Return a parameter as people read it."""
    if value == "":
        return f"no {name}"
    return f"{name} {str(value).lower() if isinstance(value, bool) else value}"


def texts_of_points(file: YamlFile, where: tuple, parameters: dict) -> Iterator[dict[str, str]]:
    """Yield the values of each point as written: YAML would turn 1.10 into 1.1."""
    axes = [
        [(name, file.texts.get((*where, "parameters", name, index), str(value))) for index, value in enumerate(values)]
        for name, values in parameters.items()
    ]
    yield from map(dict, itertools.product(*axes))


def render(text: str, values: dict[str, str]) -> str:
    """Return a template with its {names} replaced. Values are not templates."""
    return TEMPLATE.sub(lambda found: values[found[1]] if found[1] is not None else found[0][0], text)


def _rendered(file: YamlFile, where: tuple, key: str, values: dict[str, str]) -> str:
    return render(file.texts.get((*where, key), ""), values)


def _product(text: str) -> int | None:
    """Return the product of the integers in a text such as 8*16, None if it is none."""
    factors = text.replace(" ", "").split("*")
    if not all(re.fullmatch("[1-9][0-9]{0,12}", factor) for factor in factors):
        return None
    product = math.prod(map(int, factors))
    return product if product <= 10**15 else None


def _listed(script: Path, entry: dict) -> list[Path]:
    """Return the files that an entry lists; relative paths begin in the script's folder."""
    return [script.parent / whole_path_in(text, script.parent) for text in entry.get("files", [])]


def whole_path_in(text: str, folder: Path) -> Path:
    """Return a path with ~ and variables expanded, below a folder if it is relative."""
    expanded = Path(text) if not text.startswith(("~", "$")) else whole_path(text)
    return folder / expanded


@functools.cache
def script_files(script: Path, listed: tuple[Path, ...]) -> dict[str, str]:
    """Return the SHA-256 by path of a script, of what it imports from its folder, and of the listed files."""
    found: dict[str, str] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if str(path) not in found:
            found[str(path)] = hash_if_readable(path)
            waiting += imported_files(path, script.parent)
    found |= {str(path): hash_if_readable(path) for path in listed}
    return dict(sorted(found.items()))


@functools.cache
def edited(path: str, digest: str) -> bool:
    """Return whether a file is not the one with this SHA-256; False if it is not here, as a temporary one."""
    found = hash_if_readable(Path(path))
    return found is not None and found != digest


def imported_files(path: Path, folder: Path) -> Iterable[Path]:
    """Return the files in `folder` that a Python file imports anywhere in its text; none if it cannot be parsed."""
    if not path.is_file():
        return []
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: dict[Path, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = folder if not node.level else path.parents[min(node.level, len(path.parents)) - 1]
            modules = [(base, ".".join(filter(None, [node.module, alias.name]))) for alias in node.names]
        else:
            continue
        for base, name in modules:
            parts = name.split(".")
            for depth in range(1, len(parts) + 1):
                module = base.joinpath(*parts[:depth])
                candidates = (module.with_name(f"{module.name}.py"), module / "__init__.py")
                found |= dict.fromkeys(one for one in candidates if one.is_file() and one.is_relative_to(folder))
    return found
