"""Read the output of any program: by patterns (core/readers.py), or as an import format, `read: nccl-tests-json`."""

from pathlib import Path

from regatta.core import readers
from regatta.core.errors import UserError, nearest
from regatta.core.readers import OutputReading, Reader, read_quantities
from regatta.formats import FORMATS, read_text
from regatta.formats.base import NANOSECONDS, Options, Reading, check_source
from regatta.formats.importer import read_import
from regatta.store.records import CENTERS

# Parameters that name a result of an import format.
NAMED = ("operation", "message_bytes", "dtype", "model", "batch_size", "strategy")


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
    found = read_quantities(output, reader)
    if not reader.format or found.is_cut:
        return found
    values, samples, problems, lines = found.values, found.samples, [*found.problems], found.matched_lines
    try:
        for name, reading in _readings(output, reader.format, options or Options()).items():
            _add_reading(name, reading, values, samples, problems)
            lines[name] = [reading.line] if reading.line else []
    except UserError as error:
        problems.append(str(error))
    return OutputReading(values, samples, tuple(problems), lines)


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
