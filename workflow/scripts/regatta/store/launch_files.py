"""The store: the launch files of a results folder, append-only, one JSON object per line.

A launch file begins with a `launch` line (its environment); each cell then has a `start` and a `record` line; the last
line is `complete` or `stopped`. A truncated or corrupt line is reported and skipped, never repaired.
See docs/contracts.md.
"""

import contextlib
import errno
import itertools
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import orjson

from regatta.core.benchmarks import all_axes
from regatta.core.errors import UserError
from regatta.core.schemas import first_violation, load_schema

SCHEMA = 1  # the version of all frozen files
LARGE_FILE_BYTES = 300_000  # compiling a schema takes as long as checking this by jsonschema

# Keys that every reader relies on. The analysis validates the rest against workflow/schemas/record.yaml.
NEEDED = {
    "launch": {"repeat": int, "stack": str, "time_utc": str},
    "start": {"cell": str},
    "record": {"cell": str, "status": str},
}


@dataclass
class LaunchFile:
    """The content of one launch file. `lines` keeps the line numbers, from 1, by which the report refers to records."""

    path: Path
    header: dict | None = None
    lines: list[tuple[int, dict]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def launch(self) -> str:
        return self.path.stem

    def is_complete(self) -> bool:
        return any(line["kind"] == "complete" for _, line in self.lines)


_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
LONG_DIGITS = 19  # from this length on, integers become floats; 10^18 ns are 31 years


def load_json(text: bytes) -> object:
    """Parse JSON in 60 % of the time of json.loads. Long integers become floats, which schemas reject as integers.

    Raises ValueError or RecursionError. orjson rejects NaN, Infinity and lone surrogates.
    """
    if b"0" * LONG_DIGITS not in text.translate(_TO_ZERO):
        with contextlib.suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < LONG_DIGITS else float(digits))


def duration(value: object) -> int | float | None:
    """Return a recorded duration, or None if it is invalid: not a number, negative or not finite."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 10**LONG_DIGITS else None


def parse_line(text: bytes) -> dict:
    """Return one line of a launch file. Raises ValueError unless it is a JSON object with what every reader needs."""
    try:
        line = load_json(text)  # UnicodeDecodeError and JSONDecodeError are ValueErrors
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        raise ValueError("not an object with a kind")
    for key, kind in NEEDED.get(line["kind"], {}).items():
        if not isinstance(line.get(key), kind):
            raise ValueError(f"{key} is missing or of the wrong type")
    return line


def read_file(path: Path) -> bytes:
    """Return the bytes of a file. Raises OSError for a pipe or a device, which may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # reading a directory raises an error anyway
        raise OSError(errno.EINVAL, "Is a pipe or device", str(path))
    return path.read_bytes()


def read_launch_file(path: Path) -> LaunchFile:
    """Read a launch file, also one that is still being written or was cut off. Never raises on its content."""
    content, problem = read_launch_bytes(path)
    return parse_launch_file(path, content) if problem is None else LaunchFile(path, problems=[problem])


def read_launch_bytes(path: Path) -> tuple[bytes, str | None]:
    """Return the bytes of a launch file, and why it cannot be read or None."""
    try:
        path.name.encode()  # tables are UTF-8 and contain the name
        return read_file(path), None
    except UnicodeEncodeError:
        return b"", f"{path.name}: its name is not UTF-8; skipped"
    except OSError as error:  # a folder, a pipe or a dangling link of this name
        return b"", f"{path.name}: cannot be read ({error.strerror}); skipped"


def parse_launch_file(path: Path, content: bytes) -> LaunchFile:
    """Return the lines of a launch file. Never raises on its content."""
    launch_file = LaunchFile(path)
    for number, text in enumerate(content.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = parse_line(text)
        except ValueError:
            launch_file.problems.append(
                f"{path.name}: line {number} is truncated or corrupt ({len(text)} bytes); skipped"
            )
            continue
        if bad := _invalid_duration(line):
            launch_file.problems.append(f"{path.name}: line {number}: {bad} is not a valid duration; ignored")
        if line["kind"] == "launch" and launch_file.header is None:
            launch_file.header = line
        launch_file.lines.append((number, line))
    if launch_file.header is None and launch_file.lines:
        text = "no readable launch line; its records cannot be attributed to a launch"
        launch_file.problems.append(f"{path.name}: {text}")
    return launch_file


def _invalid_duration(line: dict) -> str | None:
    """Return the name of a line's invalid duration. Those of records are checked by their schema."""
    environment = line.get("environment")
    places = [(environment, "seconds_to_ready")] if isinstance(environment, dict) else []
    places += [(line, "elapsed_ns")] if line["kind"] in ("complete", "stopped") else []
    bad = [name for owner, name in places if owner.get(name) is not None and duration(owner[name]) is None]
    return bad[0] if bad else None


def read_one_line(path: Path, number: int) -> dict | None:
    """Return the line of a launch file that has this number, from 1; None if it is missing or not readable."""
    try:
        if not path.is_file():  # reading a pipe would block
            return None
        with path.open("rb") as file:
            text = next(itertools.islice(file, number - 1, number), b"")
        return parse_line(text)
    except (OSError, ValueError):
        return None


@dataclass
class Tail:
    """Read a launch file while it grows, each line once."""

    path: Path
    _offset: int = 0
    _rest: bytes = b""
    _number: int = 0

    def read(self) -> list[tuple[int, dict]]:
        """Return the lines appended since the last call, with their numbers from 1.

        A line without its end waits for the next call; one that does not parse is skipped.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(text)
        *whole, self._rest = (self._rest + text).split(b"\n")
        lines = []
        for part in whole:
            self._number += 1
            with contextlib.suppress(ValueError):  # reported by every reader of the store
                lines.append((self._number, parse_line(part)))
        return lines


def read_store(launches_dir: Path) -> list[LaunchFile]:
    """Read all launch files of a results folder, sorted by name. A folder that does not exist is an empty store."""
    return [read_launch_file(path) for path in sorted(launches_dir.glob("*.jsonl"))]


def records(launch_files: Iterable[LaunchFile]) -> Iterator[tuple[LaunchFile, int, dict]]:
    """Yield each record with its launch file and line number, in the order of files and lines."""
    for launch_file in launch_files:
        if launch_file.header is None:
            continue
        for number, line in launch_file.lines:
            if line["kind"] == "record":
                yield launch_file, number, line


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def append_line(path: Path, line: dict) -> None:
    """Append one line to a file, flushed to the disk. If the file ends in a torn line, that line is terminated first.

    Raises OSError, such as of a full disk, after removing the part that was written: the store stays readable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        is_torn = file.read(1) not in (b"", b"\n")
        text = (b"\n" if is_torn else b"") + json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            written = file.write(text)
            if written != len(text):
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise


def read_frozen(path: Path, kind: str | None = None) -> dict:
    """Read a JSON file that Regatta has frozen, checked by workflow/schemas/frozen.yaml.

    kind: what it must be, such as campaign, regardless of its name. Raises UserError if it is damaged, of another kind,
    or of another version of its schema.
    """
    text = read_file(path)
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value.get("schema", SCHEMA) != SCHEMA:
        raise UserError(
            f"{path}: has schema {str(value['schema'])[:40]}; this version of Regatta reads schema {SCHEMA}."
            " Use the version that wrote it, or delete the file and run the campaign again; nothing measured is lost."
        )
    # The name gives the schema, if it has one: campaign.0123456789ab.json, preflight-0123456789ab.json, batch.json.
    name = re.fullmatch(r"([a-z]+)([.-][^.]*)?\.json", path.name)
    found = None if isinstance(value, dict) else "not a JSON object"
    if found is None and len(text) > LARGE_FILE_BYTES and name and name[1] == "campaign" and _is_campaign(text):
        return value
    if kind and not (name and name[1] == kind):
        found = found or mismatch(value, kind)
        if found:
            raise UserError(
                f"{path}: is not a {kind} file ({found}). Specify {kind}.<digest>.json of a results folder."
            )
    if found is None and name and name[1] in frozen_schema()["x-kinds"]:
        found = mismatch(value, name[1]) or (_lost_in_batch(value) if name[1] == "batch" else None)
    if found:
        raise UserError(
            f"{path}: is damaged ({found}). Delete it and run the same command again; nothing measured is lost."
        )
    return value


class _Real(float):
    """A number that was written with a fraction or exponent, which fastjsonschema must not take for an integer."""

    def is_integer(self) -> bool:
        return False


def _is_campaign(text: bytes) -> bool:
    """Return whether a frozen campaign meets its schema: what `mismatch` finds out, 20 times as fast."""
    import fastjsonschema

    try:
        value = json.loads(text, parse_float=_Real, parse_constant=str)  # a NaN becomes a word, which no schema allows
        fastjsonschema.compile(frozen_schema()["$defs"]["campaign"], use_default=False)(value)
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


@cache
def frozen_schema() -> dict:
    """Return workflow/schemas/frozen.yaml with the parameters of all benchmarks."""
    schema = load_schema("frozen")
    parts = schema["$defs"]
    kinds = {"integer": "size_or_unknown", "number": "number_or_unknown", "boolean": "flag_or_unknown"}
    known = {axis.name: parts[kinds[axis.type]] for axis in all_axes().values() if axis.type in kinds}
    parts["spec"]["properties"]["parameters"]["properties"] = known
    return schema


def mismatch(value: object, kind: str, key: str | None = None) -> str | None:
    """Return where the content of a frozen file, or one part of it, first breaks its schema, and how; or None."""
    schema = frozen_schema()["$defs"][kind]
    if key is not None:
        schema = {"type": "object", "required": [key], "properties": {key: schema["properties"][key]}}
    return first_violation(value, schema, is_strict=True)


def _lost_in_batch(batch: dict) -> str | None:
    """Return which stack or cell of a launch is missing in the batch: JSON Schema cannot compare two places."""
    for index, launch in enumerate(batch["launches"]):
        for kind, names in (("stacks", [launch["stack"]]), ("cells", launch["cells"])):
            if lost := [name for name in names if name not in batch[kind]]:
                return f"launches[{index}] names {lost[0]!r}, which is not one of its {kind}"
    return None


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically: a reader sees the old file or the whole new one."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, or the target of a link, atomically; a pipe or device directly. Raises OSError with `path`.

    Lone surrogates, as in file names that are not UTF-8, are written as question marks.
    """
    content = text.encode("utf-8", "replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if is_stdout(path):
            print(end="", flush=True)  # keeps the order of the output
            with open(1, "wb", closefd=False) as file:
                file.write(content)
        elif path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(Path(os.path.realpath(path)), content)
    except OSError as error:
        error.filename = str(path)  # name the target, not the temporary file; a full disk names none
        raise


def is_stdout(path: Path) -> bool:
    """Return whether a path is an alias of this process's standard output, such as /dev/stdout."""
    try:
        return os.path.samestat(path.stat(), os.fstat(1))
    except OSError:  # missing, or standard output is closed
        return False


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
