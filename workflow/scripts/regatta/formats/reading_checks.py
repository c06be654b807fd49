"""What a file says, held against what a launch file and a table can hold: refused before anything is written."""

import math
import re

from regatta.analysis.tables import CELL, FLAG, REAL, TEXT, WHOLE
from regatta.formats.reading import LEAST_SECONDS, MOST_RANKS, MOST_SECONDS, Reading, Source, quoted, refusal

STACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,63}")
STACK_FORM = "letters, digits and underscore, at most 64, the first a letter or digit"
MOST_INTEGER, MOST_LETTERS = 2**63 - 1, 200
EXPECTED = {
    TEXT: f"a text of 1 to {MOST_LETTERS} printable characters",
    WHOLE: "a whole number from 0 to 2^63 - 1",
    REAL: "a number of 0 or more",
    FLAG: "true or false",
}


def check_source(name: str, source: Source) -> None:
    """Raise UserError for figures of no machine, and for values that no column of a table can hold. name: of the file."""
    if not _fits(source.backend, TEXT):
        raise refusal(name, None, f"backend = {quoted(source.backend)}", EXPECTED[TEXT])
    for reading in source.readings:
        _check_figures(name, reading)
        if reading.backend is not None and not _fits(reading.backend, TEXT):
            raise refusal(name, reading.line, f"backend = {quoted(reading.backend)}", EXPECTED[TEXT])
        if reading.stack is not None and not STACK.fullmatch(reading.stack):
            raise refusal(name, reading.line, f"stack = {quoted(reading.stack)}", STACK_FORM)
        for parameter, value in reading.parameters.items():
            kind = CELL[parameter]
            if value is not None and not _fits(value, kind):
                raise refusal(name, reading.line, f"{parameter} = {_shown(value)}", EXPECTED[kind])
        for key, value in reading.printed.items():
            if isinstance(value, int | float) and not _is_held(value):
                raise refusal(
                    name, reading.line, f"{quoted(key)[1:-1]} = {_shown(value)}", "a number of at most 2^63 - 1"
                )


def _check_figures(name: str, reading: Reading) -> None:
    strange = [f"{time} = {value:g}" for time, value in reading.times_s.items()
               if not LEAST_SECONDS <= value <= MOST_SECONDS and not reading.failure]  # fmt: skip
    if reading.nodes * reading.gpus_per_node > MOST_RANKS:
        strange.append(f"{reading.nodes} x {reading.gpus_per_node} ranks")
    if strange:
        raise refusal(name, reading.line, ", ".join(strange), "figures of a machine")


def _fits(value: object, kind: str) -> bool:
    """Return whether a column of a table can hold a value that is known."""
    if kind == FLAG:
        return isinstance(value, bool)
    if kind == TEXT:
        return isinstance(value, str) and value.isprintable() and value.strip() != "" and len(value) <= MOST_LETTERS
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_held(value) or value < 0:
        return False
    return kind == REAL or isinstance(value, int)


def _is_held(value: float) -> bool:
    if isinstance(value, int):
        return abs(value) <= MOST_INTEGER
    return math.isfinite(value)


def _shown(value: object) -> str:
    """Python writes no whole number of more than 4300 digits."""
    try:
        return quoted(value)
    except ValueError:
        return "a number of thousands of digits"
