"""The store: the launch files of a results folder, append-only, one JSON object per line.

A launch file begins with a `launch` line (its environment); each cell then has a `start` and a `record` line; the last
line is `complete` or `stopped`. A truncated or damaged line is reported and skipped, never repaired.
See docs/contracts.md.
"""

import contextlib
import errno
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import orjson

from regatta.core.errors import UserError
from regatta.core.text import plural
from regatta.model.launches import LaunchHeader, duration
from regatta.store.checksums import has_checksums, is_intact, line_problem, sealed

# Keys that every reader relies on. The analysis validates the rest against workflow/schemas/record.yaml.
NEEDED = {
    "launch": {"repeat": int, "stack": str, "time_utc": str},
    "start": {"cell": str},
    "record": {"cell": str, "status": str},
}


@dataclass
class LaunchFile:
    """The content of one launch file. `lines` keeps the line numbers, from 1, by which the report refers to records.

    is_checked: it has checksums, so that damage is in `problems`. Files of earlier versions have none.
    """

    path: Path
    lines: list[tuple[int, dict]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_checked: bool = False
    is_truncated: bool = False  # it ends within a line: its writer was killed

    @property
    def launch(self) -> str:
        return self.path.stem

    def lines_of(self, kind: str) -> list[dict]:
        return [line for _, line in self.lines if line["kind"] == kind]

    @cached_property
    def header(self) -> LaunchHeader | None:
        """The content of its first `launch` line; None without one."""
        found = self.lines_of("launch")
        return LaunchHeader.from_json(found[0]) if found else None


_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
LONG_DIGITS = 19  # from this length on, integers become floats


def load_json(text: bytes) -> object:
    """Parse JSON in 60 % of the time of json.loads. Long integers become floats, which schemas reject as integers.

    Raises ValueError or RecursionError. orjson rejects NaN, Infinity and lone surrogates.
    """
    if b"0" * LONG_DIGITS not in text.translate(_TO_ZERO):
        with contextlib.suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < LONG_DIGITS else float(digits))


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


def read_json(path: Path) -> object:
    """Return the content of a JSON file; None if it cannot be read."""
    try:
        return load_json(read_file(path))
    except (OSError, ValueError, RecursionError):
        return None


def read_json_lines(path: Path) -> Iterator[object]:
    """Yield the content of each line of a file that is JSON; nothing if the file cannot be read."""
    with contextlib.suppress(OSError):
        for line in read_file(path).decode(errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(line)


def read_launch_file(path: Path) -> LaunchFile:
    """Read a launch file, also one that is still being written or was truncated. Never raises on its content."""
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
    """Return the lines of a launch file that are not damaged. Never raises on its content."""
    launch_file = LaunchFile(path, is_checked=has_checksums(content))
    name = path.name
    is_suspect = launch_file.is_checked and not is_intact(path.stem, content)
    seen, num_skipped = set(), 0
    for number, text in enumerate(content.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = parse_line(text)
        except ValueError:
            launch_file.problems.append(f"{name}: line {number} is truncated or corrupt ({len(text)} bytes); skipped")
            launch_file.is_truncated = number > content.count(b"\n")
            num_skipped += 1
            continue
        if line["kind"] == "launch" and (other := _other_launch(path, line, text)):
            text = f"{name}: line {number} belongs to launch {other}: the file was swapped or renamed; file skipped"
            return LaunchFile(path, problems=[*launch_file.problems, text], is_checked=launch_file.is_checked)
        if is_suspect:
            if problem := line_problem(path.stem, text):
                launch_file.problems.append(f"{name}: line {number} is damaged ({problem}); skipped")
                num_skipped += 1
                continue
            if (written := line.get("line")) in seen:
                launch_file.problems.append(f"{name}: line {number} repeats line {written}; skipped")
                continue
            if seen and written < max(seen):
                launch_file.problems.append(f"{name}: line {number} was line {written}; used")
            seen.add(written)
        if bad := _invalid_duration(line):
            launch_file.problems.append(f"{name}: line {number}: {bad} is not a valid duration; ignored")
        launch_file.lines.append((number, line))
    absent = sorted({*range(1, max(seen, default=0))} - seen)
    if len(absent) > num_skipped:
        which = (
            plural(len(absent) - num_skipped, "line")
            if num_skipped
            else f"line{'s' * (len(absent) > 1)} {', '.join(map(str, absent))}"
        )
        launch_file.problems.append(f"{name}: {which} missing")
    if launch_file.header is None and launch_file.lines:
        text = "no readable launch line; its records cannot be attributed to a launch"
        launch_file.problems.append(f"{name}: {text}")
    return launch_file


def _other_launch(path: Path, line: dict, text: bytes) -> str | None:
    """Return the launch that an undamaged first line names if the file has another name, or None."""
    other = line.get("launch")
    if not isinstance(other, str) or other == path.stem or (has_checksums(text) and line_problem(other, text)):
        return None
    return other


def _invalid_duration(line: dict) -> str | None:
    """Return the name of a line's invalid duration. Those of records are checked by their schema."""
    environment = line.get("environment")
    names = ("seconds_to_ready", "import_s") if isinstance(environment, dict) else ()
    places = [(environment, name) for name in names]
    places += [(line, "elapsed_ns")] if line["kind"] in ("complete", "stopped") else []
    bad = [name for owner, name in places if owner.get(name) is not None and duration(owner[name]) is None]
    return bad[0] if bad else None


def read_one_line(path: Path, number: int) -> dict | None:
    """Return the line of a launch file that has this number, from 1; None if it is missing, not readable or damaged."""
    try:
        if not path.is_file():  # reading a pipe would block
            return None
        with path.open("rb") as file:
            text = next(itertools.islice(file, number - 1, number), b"").rstrip(b"\n")
        return _checked_line(path, text)
    except (OSError, ValueError):
        return None


def _checked_line(path: Path, text: bytes) -> dict:
    """Return one line of a launch file. Raises ValueError if it does not parse or its checksum is wrong."""
    if has_checksums(text) and (problem := line_problem(path.stem, text)):
        raise ValueError(problem)
    return parse_line(text)


@dataclass
class Tail:
    """Read a launch file while it grows, each line once. end: the kind of its last line, `complete` or `stopped`.

    header: without its environment. current: the cell that has started and has no record, None between cells.
    """

    path: Path
    header: LaunchHeader | None = None
    current: str | None = None
    end: str | None = None
    _offset: int = 0
    _rest: bytes = b""
    _number: int = 0

    def read(self) -> list[tuple[int, dict]]:
        """Return the lines appended since the last call, with their numbers from 1.

        A line without its end waits for the next call; one that does not parse or is damaged is skipped.
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
                line = _checked_line(self.path, part)
                lines.append((self._number, line))
                if line["kind"] == "launch" and self.header is None:
                    self.header = LaunchHeader.from_json(line | {"environment": None})
                if line["kind"] in ("start", "record"):
                    self.current = line["cell"] if line["kind"] == "start" else None
                self.end = line["kind"] if line["kind"] in ("complete", "stopped") else self.end
        return lines


def launch_paths(launches: Path) -> list[Path]:
    """Return the launch files of a results folder, sorted by name; none if nothing ran yet.

    Raises UserError if the folder cannot be read, or is missing although a batch was finished: otherwise everything
    would be measured again.
    """
    try:
        if not os.access(launches, os.R_OK | os.X_OK) and launches.is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return sorted(launches / name for name in os.listdir(launches) if name.endswith(".jsonl"))
    except FileNotFoundError:
        problem = f"is a dangling symbolic link to {os.readlink(launches)}" if launches.is_symlink() else None
        if problem is None and (evidence := _evidence_of_launches(launches.parent)):
            problem = f"is missing, but {evidence} names launch files in it"
        if problem is None:
            return []
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    raise UserError(f"{launches}: {problem}. Mount or restore the folder, or make it readable. Nothing was changed.")


def _evidence_of_launches(results: Path) -> Path | None:
    """Return a manifest with launches, or the request of a launch, or None if nothing ran yet."""
    for path in sorted((results / "batches").glob("*/manifest.json")):
        if isinstance(manifest := read_json(path), dict) and manifest.get("launches"):
            return path
    return min((results / "batches").glob("*/launches/*.json"), default=None)


def check_launches(launches: Path, campaign: Path) -> None:
    """Raise UserError unless a folder named on a command line is a store. campaign: its frozen campaign.

    Only the folder beside the campaign may be missing: nothing ran yet.
    """
    if not launches.exists() and not launches.is_symlink() and launches.absolute().parent != campaign.absolute().parent:
        raise UserError(f"{launches}: no such folder. Specify the folder launches/ of a results folder.")
    launch_paths(launches)


def read_store(launches: Path) -> list[LaunchFile]:
    """Read all launch files of a results folder, sorted by name. Raises UserError like `launch_paths`."""
    return [read_launch_file(path) for path in launch_paths(launches)]


def append_line(path: Path, line: dict) -> None:
    """Append one line to a file, flushed to the disk. If the file ends in a torn line, that line is terminated first.

    Raises OSError, such as of a full disk, after removing the part that was written: the store stays readable.
    """
    _append(path, lambda _: _plain(line))


def append_launch_line(path: Path, line: dict) -> None:
    """Append one line to a launch file like `append_line`, with its number and checksum if the others have them."""

    def text(before: bytes) -> bytes:
        is_old = before.strip() and not has_checksums(before)
        return _plain(line) if is_old else sealed(line, path.stem, before.count(b"\n") + 1)

    _append(path, text)


def _plain(line: dict) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _append(path: Path, text_after: Callable[[bytes], bytes]) -> None:
    """Append to a file what `text_after` returns for its content, whose last line is terminated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        file.seek(0)
        before = file.readall()
        end = b"" if before.endswith(b"\n") or not before else b"\n"
        text = end + text_after(before + end)
        try:
            written = file.write(text)
            if written != len(text):
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), len(before))
            raise


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
