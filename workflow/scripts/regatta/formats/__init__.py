"""Formats of other benchmarks: read into the store, and written from results. See docs/formats.md."""

import re
from dataclasses import replace
from pathlib import Path

from regatta.core.errors import UserError
from regatta.core.files import check_listed
from regatta.core.matching import SlowPatternError, cpu_limit
from regatta.core.text import quoted
from regatta.formats.all_reduce_bench import ALL_REDUCE_BENCH
from regatta.formats.base import (
    Format,
    ImportedFile,
    Options,
    Reading,
    check_json,
    check_source,
    lines_of,
    parse_json,
    refusal,
)
from regatta.formats.mlperf import MLPERF
from regatta.formats.nccl import NCCL_TEXT
from regatta.formats.nccl_json import NCCL_JSON, RCCL_JSON, SUPERBENCH
from regatta.formats.osu import OSU
from regatta.formats.prefixes import Stripped, known_prefixes, strip_prefixes
from regatta.formats.pytorch import PYTORCH_JSON, PYTORCH_TEXT
from regatta.formats.suite_json import SUITE
from regatta.formats.tidy_csv import CSV
from regatta.runtimes.plugins import check_additions, load_plugin
from regatta.store.launch_files import read_file

# Formats, ordered as they are tried. A new format is a file and an entry here; a test names what else is missing.
FORMATS = (
    *(CSV, PYTORCH_TEXT, OSU, NCCL_TEXT, ALL_REDUCE_BENCH, MLPERF),
    *(PYTORCH_JSON, NCCL_JSON, RCCL_JSON, SUPERBENCH, SUITE),
)
check_listed("formats", "Format", FORMATS, "FORMATS of formats/__init__.py")
_of_plugins: list[Format] = []  # tried after these

# Per file: reading needs about 30 times its size in memory. Published results and job logs are far smaller.
MOST_BYTES, MOST_LINES = 32_000_000, 300_000
CPU_SECONDS = 120  # to read a file; the largest one takes about 20
SPLIT = "Keep only the results, or split the file. Nothing was imported."


def read_content(path: Path) -> bytes:
    """Return the bytes of a file. Raises UserError for one that is too large or binary."""
    try:
        if (num_bytes := path.stat().st_size) > MOST_BYTES:
            raise UserError(f"{path}: {num_bytes:,} bytes; the limit is {MOST_BYTES:,}. {SPLIT}")
        content = read_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). Nothing was imported.") from None
    if (num_lines := content.count(b"\n")) > MOST_LINES:
        raise UserError(f"{path}: {num_lines:,} lines; the limit is {MOST_LINES:,}. {SPLIT}")
    if (at := content.find(b"\0")) >= 0:
        line = 1 + content.count(b"\n", 0, at)
        raise UserError(f"{path}:{line}: a null byte, so this is binary content. Nothing was imported.")
    return content


def read_checked(content: bytes, name: str, options: Options) -> tuple[Format, ImportedFile]:
    """Return the format of a file and its reading, whose values are plausible. name: for messages."""
    # Logs contain arbitrary bytes between their rows. The replacement of an invalid one matches no number.
    try:
        with cpu_limit(CPU_SECONDS):
            kind, source = read_text(content.decode("utf-8", "replace"), name, options)
    except SlowPatternError as slow:
        raise UserError(f"{name}: {slow}. Nothing was imported.") from None
    check_source(name, source)
    check_options(name, source, options)
    return kind, source


def all_formats() -> tuple[Format, ...]:
    """Return the formats, also of plugins, ordered as they are tried."""
    return (*FORMATS, *_of_plugins)


def add_formats(path: Path) -> None:
    """Add the formats of a plugin. Raises UserError for one that cannot be used."""
    found = {getattr(kind, "name", str(place)): kind for place, kind in enumerate(load_plugin(path))}
    check_additions(path, "format", [kind.name for kind in all_formats()], found, Format)
    _of_plugins.extend(found.values())


def _known() -> str:
    first, *others = [kind.contents for kind in (*_of_plugins, *FORMATS)]
    return f"{', '.join([first, *others[:-1]])}, or {others[-1]} (docs/formats.md)"


def read_text(text: str, name: str, options: Options) -> tuple[Format, ImportedFile]:
    """Return the format of a file, recognized by content and never by name, and its reading. name: for messages."""
    found = strip_prefixes(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"))
    try:
        return _read_labelled(found, name, options)
    except UserError:
        line, prefix = _find_prefix(found)
        if not prefix.strip():
            raise
    if not (patterns := known_prefixes(prefix)):
        want = "unmodified output. Strip the prefix from all lines"
        raise refusal(name, line, f"unknown prefix {quoted(prefix)}", want)
    for pattern in patterns:  # a file of which less than MIN_SHARE is from this program
        found = found.without(pattern)
    return _read_labelled(found, name, options)


def _find_prefix(found: Stripped) -> tuple[int, str]:
    """Return the first line (from 1) that a format begins with, and what stands before it; empty without one."""
    begins = [re.compile(kind.begins) for kind in all_formats() if kind.begins]
    filled = [(number, line) for number, line in enumerate(found.lines, start=1) if line.strip()]
    for number, line in filled:
        if match := next((match for one in begins if (match := one.search(line))), None):
            return number, line[: match.start()]
    number, line = filled[0] if filled else (1, "")
    match = re.search(r"(?:\[\s*)?\{\s*(?:\"|$)|\[\s*$", line)  # JSON
    prefix = line[: match.start()] if match else ""
    if not prefix.strip():
        return number, ""
    lines = (
        one.removeprefix(prefix) if one.startswith(prefix) else "".join(one.partition("{")[1:]) for _, one in filled
    )
    try:
        value = _parse_json("\n".join(lines), "")
    except UserError:
        return number, ""
    return number, prefix if _recognized(value, is_json=True) else ""


def _read_labelled(found: Stripped, name: str, options: Options) -> tuple[Format, ImportedFile]:
    """Read a text in which several ranks or hosts may have printed: their results are never merged.

    Those that all of them printed alike count once.
    """
    read, places = {}, {}  # by label; by cell
    for label, of_label in found.by_label().items():
        text = "\n".join([*of_label.values(), *[""] * (len(found.lines) - 1 not in of_label)])
        if not _may_have_results(text):
            continue
        try:
            kind, source = _read_ended(text, name, options)
        except UserError:
            continue
        numbers = [None, *(index + 1 for index in of_label)]
        source = replace(source, readings=tuple(replace(one, line=numbers[one.line or 0]) for one in source.readings))
        alone = [replace(reading, line=None, environment=None) for reading in source.readings]
        read[label] = kind, source, alone
        for reading in alone:
            if alone != read[places.setdefault(_cell_of(reading), label)][-1]:
                labels = ", ".join(quoted(each) for each in read)
                want = "those of one. Keep its lines, or put those of each into a separate file"
                raise refusal(name, numbers[1], f"results of several ranks or hosts: {labels}", want)
    (kind, source, first), *others = read.values() or [(None, None, None)]
    if not others or any(alone != first for *_, alone in others):
        return _read_ended(found.text, name, options)
    return kind, replace(source, notes=(*source.notes, f"{len(read)} ranks printed the same results, which count once"))


def _may_have_results(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[") or _recognized(text, is_json=False) is not None


def _cell_of(reading: Reading) -> str:
    cell = reading.benchmark, reading.parameters, reading.nodes, reading.gpus_per_node, reading.stack, reading.backend
    return repr(cell)


def _read_ended(text: str, name: str, options: Options) -> tuple[Format, ImportedFile]:
    """Read a text. A last line without its end is part of an incomplete file if it can be read."""
    lines, _, last = text.rpartition("\n")
    try:
        return _read_text(text, name, options)
    except UserError:
        if not options.is_incomplete or not last or not lines:
            raise
    kind, source = _read_text(f"{lines}\n", name, options)
    return kind, replace(source, notes=(*source.notes, "last line excluded (truncated)"))


def _read_text(text: str, name: str, options: Options) -> tuple[Format, ImportedFile]:
    start = text.lstrip()[:1]
    kind = None if start == "{" else _recognized(text, is_json=False)
    if kind is not None:
        return kind, kind.read(text, name, options)
    if start not in ("{", "["):  # many logs begin with "[" too, so that a text is tried first
        line, found = next(((n, line) for n, line in enumerate(lines_of(text), start=1) if line.strip()), (1, None))
        what = "the file is empty" if found is None else f"unknown format, first line {quoted(found)}"
        raise refusal(name, line, what, _known())
    value = _parse_json(text, name)
    kind = _recognized(value, is_json=True)
    if kind is None:
        keys = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
        raise refusal(name, 1, f"unknown JSON format with {quoted(keys)}", _known())
    check_json(value, name, kind.name)
    return kind, kind.read(value, name, options)


def _parse_json(text: str, name: str) -> object:
    return _parse_lines(text, name) or parse_json(text, name)


def _parse_lines(text: str, name: str) -> list | None:
    """Return the values of JSON lines, or None if the text is not one JSON object per line."""
    lines = [(n, line.strip()) for n, line in enumerate(text.split("\n")) if line.strip()]
    if len(lines) < 2 or not lines[0][1].endswith("}") or not all(line.startswith("{") for _, line in lines):
        return None
    return [parse_json(line, name, number) for number, line in lines]


def _recognized(content: object, is_json: bool) -> Format | None:
    kinds = (kind for kind in all_formats() if kind.is_json == is_json)
    return next((kind for kind in kinds if kind.recognize(content)), None)


def check_options(name: str, source: ImportedFile, options: Options) -> None:
    """Raise UserError for an option that contradicts a file."""
    cells = source.readings
    operations = sorted({cell.parameters["operation"] for cell in cells if cell.benchmark == "collective"})
    most = {"nodes": max(cell.nodes for cell in cells), "gpus-per-node": max(cell.gpus_per_node for cell in cells)}
    for option, value in (("nodes", options.nodes), ("gpus-per-node", options.gpus_per_node)):
        if value is not None and most[option] > value:
            problem = f"--{option} {value} contradicts the file ({most[option]})"
            raise UserError(f"{name}: {problem}. Remove the option. Nothing was imported.")
    if options.operation not in (None, *operations):
        found = ", ".join(operations) or "no collective"
        problem = f"--operation {options.operation} contradicts the file ({found})"
        raise UserError(f"{name}: {problem}. Remove the option. Nothing was imported.")
