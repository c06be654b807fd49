"""JSON of other programs, read with care: the place of a mistake in the message, and types that are checked."""

import json
import math

from regatta.formats.reading import quoted, refusal

MOST_WHOLE, MOST_NUMBER = 10**15, 1e300  # comparisons with these are safe where conversions overflow


def parse_json(text: str, name: str) -> object:
    """Return the value of a JSON file. Raises UserError with the line where it breaks off.

    Refused are NaN and Infinity, numbers too large to be held, and a key that stands twice in one object.
    """
    try:
        return json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        told = f"JSON breaks off or is damaged in column {error.colno} ({error.msg})"
        raise refusal(name, error.lineno, told, "a whole JSON file") from None
    except (ValueError, RecursionError) as error:
        raise refusal(name, 1, f"JSON cannot be read ({error})", "JSON without such a value") from None


def _constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text if len(text) <= 40 else text[:37] + '...'} is no number that can be held")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict:
    """Which of two values is meant is not said, and readers of JSON differ in it."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {quoted(next(key for key in keys if keys.count(key) > 1))} stands twice in one object")
    return value


class Node:
    """A place in a JSON file: its value, its file and the keys that lead to it."""

    def __init__(self, value: object, name: str, place: str = ""):
        self.value, self.name, self.place = value, name, place

    def refuse(self, expected: str):
        shown = quoted(json.dumps(self.value))
        return refusal(self.name, None, f"{self.place or 'the file'} = {shown}", expected)

    def has(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def key(self, key: str) -> "Node":
        if not self.has(key):
            raise refusal(self.name, None, f"{self.place or 'the file'} has no key '{key}'", f"one with '{key}'")
        return Node(self.value[key], self.name, f"{self.place}.{key}".lstrip("."))

    def items(self) -> list["Node"]:
        if not isinstance(self.value, list):
            raise self.refuse("a list")
        return [Node(value, self.name, f"{self.place}[{i}]") for i, value in enumerate(self.value)]

    def members(self) -> list[tuple[str, "Node"]]:
        if not isinstance(self.value, dict):
            raise self.refuse("an object")
        return [(key, self.key(key)) for key in self.value]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.refuse("a text")
        return self.value

    def whole(self, least: int = 1) -> int:
        """Return a whole number. 25.0 is one, true is none."""
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= MOST_WHOLE or value != int(value):
            raise self.refuse(f"a whole number of {least} or more")
        return int(value)

    def number(self, least: float = 0.0) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= MOST_NUMBER:
            raise self.refuse(f"a number of {least:g} or more")
        return float(value)

    def positive(self) -> float:
        if (value := self.number()) == 0:
            raise self.refuse("a number above 0")
        return value
