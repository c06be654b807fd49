"""Declarations of what to read from the output of a program: `read:` and `check:` of a campaign.

formats/output.py explains and applies them.
"""

import re
from dataclasses import dataclass, field, fields

from regatta.core.errors import UserError, nearest
from regatta.core.units import find_unit

MOST_PATTERN = 1000  # characters


@dataclass(frozen=True)
class Quantity:
    """A quantity of an output. match: pattern of its one number; samples: of one number for each iteration.

    The number is the group `value`, else the first group, else the whole match. A group `unit` is the unit in the text
    itself. drop: first samples that are warm-up. better: `smaller` or `larger`.
    """

    match: str = ""
    samples: str = ""
    unit: str = ""
    better: str = "smaller"
    drop: int = 0

    @property
    def pattern(self) -> str:
        return self.match or self.samples


@dataclass(frozen=True)
class Reader:
    """What to read from an output. match: a pattern that must occur; reject: one that must not.

    format: name of an import format, instead of quantities.
    """

    quantities: dict[str, Quantity] = field(default_factory=dict)
    match: str = ""
    reject: str = ""
    format: str = ""


def parse_reader(read: dict, check: dict | None = None) -> Reader:
    """Return the reader of a campaign's `read` and `check`. Raises UserError that names key and remedy."""
    if not read:
        raise UserError("read: no quantity. Add one, such as rate: {match: 'rate: (\\S+)', unit: Gflop/s}.")
    quantities = {name: _quantity(f"read.{name}", given) for name, given in read.items()}
    return Reader(quantities, **parse_check(check))


def parse_check(check: dict | None) -> dict[str, str]:
    """Return the patterns of a campaign's `check`. Raises UserError that names key and remedy."""
    check = check or {}
    for name in check.keys() - {"match", "reject"}:
        raise UserError(f"check.{name}: unknown key.{nearest(name, ('match', 'reject'))} Use match or reject.")
    for name, pattern in check.items():
        _check_pattern(f"check.{name}", pattern)
    return check


def _quantity(key: str, given: dict) -> Quantity:
    known = [each.name for each in fields(Quantity)]
    for name in given.keys() - {*known}:
        raise UserError(f"{key}.{name}: unknown key.{nearest(name, known)} Known keys: {', '.join(known)}.")
    quantity = Quantity(**given)
    if bool(quantity.match) == bool(quantity.samples):
        raise UserError(f"{key}: needs either match (one number) or samples (one number for each iteration).")
    if quantity.better not in ("smaller", "larger"):
        raise UserError(f'{key}.better: "{quantity.better}" is unknown. Use smaller or larger.')
    if type(quantity.drop) is not int or quantity.drop < 0 or (quantity.drop and quantity.match):
        raise UserError(f"{key}.drop: {quantity.drop} is invalid. Use a number of iterations, together with samples.")
    _check_pattern(key, quantity.pattern)
    try:
        find_unit(quantity.unit)
    except UserError as error:
        raise UserError(f"{key}.unit: {error}") from None
    return quantity


def _check_pattern(key: str, pattern: str) -> None:
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MOST_PATTERN:
        raise UserError(f"{key}: a pattern must be text of 1 to {MOST_PATTERN} characters.")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(f"{key}: invalid pattern {pattern!r} ({error}). Use the syntax of Python's re.") from None
