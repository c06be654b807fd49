"""Read quantities from the output of any program, by patterns that a user declares (`read:` and `check:`).

    read:
      rate: {match: 'WR\\S+.*?(\\S+)$', unit: Gflop/s, better: larger}           one number
      tps: {samples: 'tps: ([\\d,]+)', unit: tokens/s, better: larger, drop: 10}   one number for each iteration
    check: {match: PASSED, reject: FAILED}

`read` may also be the name of an import format, such as nccl-tests-json. Values are in SI units.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regatta.core import readers
from regatta.core.errors import UserError, nearest
from regatta.core.readers import Quantity, Reader
from regatta.core.text import one_line
from regatta.core.units import convert, parse_number
from regatta.formats import FORMATS, matching, read_text
from regatta.formats.base import NANOSECONDS, Options, Reading, check_source, quoted
from regatta.formats.importer import read_import
from regatta.store.records import CENTERS

LEAST_SECONDS, BYTES_PER_SECOND = 2, 4_000_000  # CPU time of each pattern; one usually reads 70 MB/s
MOST_PROBLEMS = 5  # of one quantity
# Parameters that name a result of an import format.
NAMED = ("operation", "message_bytes", "dtype", "model", "batch_size", "strategy")


@dataclass(frozen=True)
class OutputReading:
    """What was read from an output: numbers in SI units, samples without those dropped, and the lines of the matches.

    problems: why a quantity is missing or the output is not valid, each with its line and what to do; empty if all was
    read. A quantity with a problem has no value.
    """

    values: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    matched_lines: dict[str, list[int]] = field(default_factory=dict)


def parse_reader(read: dict | str, check: dict | None = None) -> Reader:
    """Return the reader of a campaign's `read` and `check`. Raises UserError that names key and remedy."""
    if isinstance(read, dict):
        return readers.parse_reader(read, check)
    known = [kind.name for kind in FORMATS]
    if read not in known:
        raise UserError(f'read: unknown format "{read}".{nearest(read, known)} Known formats: {", ".join(known)}.')
    return Reader(format=read, **readers.parse_check(check))


def read_output(output: str | Path, reader: Reader, options: Options | None = None) -> OutputReading:
    """Return what a reader finds in an output, given as text or as the path of a file of any size.

    options: shape of the run, which the output of most import formats lacks.
    """
    patterns = {f"read.{name}": quantity.pattern for name, quantity in reader.quantities.items()}
    patterns |= {f"check.{name}": getattr(reader, name) for name in ("match", "reject") if getattr(reader, name)}
    values, samples, problems, lines = {}, {}, [], {}
    found: dict[str, list] = {name: [] for name in patterns}
    for name, line, *groups in _search(output, patterns):
        if name is not None:
            found[name].append((line, *groups))
        elif groups[0]:  # the search ended early: what it found may be a part
            return OutputReading(problems=(groups[0],))
    for name, quantity in reader.quantities.items():
        matches = found[f"read.{name}"]
        lines[name] = [line for line, *_ in matches]
        try:
            numbers = _numbers(name, quantity, matches)
        except ValueError as error:
            problems += error.args
            continue
        if quantity.samples:
            samples[name] = numbers[quantity.drop :]
        else:
            values[name] = numbers[0]
    if reader.match and not found["check.match"]:
        problems.append(f"check.match: no line matches {reader.match!r}. The program failed, or the pattern is wrong")
    if rejected := found.get("check.reject"):
        line, text, _ = rejected[0]
        problems.append(f"line {line}: check.reject matches {quoted(text)}. The run is invalid")
    if reader.format:
        try:
            for name, reading in _readings(output, reader.format, options or Options()).items():
                _add_reading(name, reading, values, samples, problems)
                lines[name] = [reading.line] if reading.line else []
        except UserError as error:
            problems.append(str(error))
    return OutputReading(values, samples, tuple(problems), lines)


def _numbers(name: str, quantity: Quantity, matches: list[tuple[int, str | None, str | None]]) -> list[float]:
    """Return the numbers of a quantity in SI units. Raises ValueError with one problem for each argument."""
    numbers, problems = [], []
    for line, text, unit in matches:
        try:
            number = parse_number((text or "").strip())
            numbers.append(convert(number, quantity.unit if unit is None else unit.strip()))
        except (ValueError, UserError) as error:
            problems.append(f"line {line}: {name} is {quoted(text or '')}: {error}. Fix the pattern or the program")
    if problems:
        raise ValueError(*problems[:MOST_PROBLEMS])
    if len(numbers) <= quantity.drop:
        few = f"only {len(numbers)} matches, {quantity.drop} of them dropped" if numbers else "no line matches"
        raise ValueError(f"read.{name}: {few}; pattern {quantity.pattern!r}. Compare it with the output")
    if quantity.match and len(set(numbers)) > 1:
        places = ", ".join(str(line) for line, *_ in matches[:MOST_PROBLEMS])
        differ = f"{len(numbers)} matches with different numbers (lines {places})"
        raise ValueError(f"read.{name}: {differ}. Narrow the pattern, or use samples")
    return numbers


def _readings(output: str | Path, name: str, options: Options) -> dict[str, Reading]:
    """Return what an output in an import format contains, by operation or model and the parameters that are stated."""
    if isinstance(output, Path):
        item = read_import(output, options)
        kind, source = item.kind, item.source
    else:
        kind, source = read_text(output, "output", options)
        check_source("output", source)
    if kind.name != name:
        raise UserError(f"the output is {kind.contents}. Write read: {kind.name}")
    found: dict[str, Reading] = {}
    for reading in source.readings:
        stated = [str(value) for key, value in reading.parameters.items() if key in NAMED and value is not None]
        first = found.setdefault("_".join(stated), reading)
        if first is not reading:
            where = f"lines {first.line} and {reading.line}" if reading.line else "the file"
            raise UserError(f"several results of {'_'.join(stated)} in {where}. Run the program once for each launch")
    return found


def _add_reading(name: str, reading: Reading, values: dict, samples: dict, problems: list) -> None:
    slowest = reading.slowest_ns or [max(times) for times in zip(*reading.samples_ns or (), strict=True)]
    if reading.failure:
        problems.append(f"{name}: {reading.failure}. Run it again")
    elif slowest:
        samples[name] = [time / NANOSECONDS for time in slowest]
    else:
        values[name] = next(reading.times_s[key] for key in CENTERS if key in reading.times_s)


def _search(output: str | Path, patterns: dict[str, str]) -> Iterator[list]:
    """Yield what matching.py prints, which runs as a process to be bounded in time."""
    if not patterns:
        return
    with tempfile.TemporaryFile() if isinstance(output, str) else _open(output) as file:
        if isinstance(output, str):
            file.write(output.encode("utf-8", "replace"))
            file.seek(0)
        num_bytes = file.seek(0, 2)
        file.seek(0)
        seconds = LEAST_SECONDS + len(patterns) * num_bytes / BYTES_PER_SECOND
        once = [name for name in patterns if name.startswith("check.")]
        options = json.dumps({"patterns": patterns, "once": once, "seconds": seconds})
        command = [sys.executable, "-I", "-S", matching.__file__, options]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    if done.returncode:  # such as one that ran out of memory
        found = f"matching ended with status {done.returncode}: {one_line(done.stderr, 200)}"
        yield [None, 0, f"{found}. Simplify the patterns"]
    yield from map(json.loads, done.stdout.splitlines())


def _open(path: Path):
    if not path.is_file():
        raise UserError(f"{path}: no such file, or not a regular file. Write the output to a file.")
    return path.open("rb")
