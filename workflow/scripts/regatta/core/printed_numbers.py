"""Numbers and durations as programs print them: 1,234.5, 0,415, 1.5D-03, 11.9k, 2m5.25s, 1:02:03."""

import math
import re
from collections.abc import Iterable
from decimal import Decimal

from regatta.core.units import PREFIXES, SECONDS, scaled

NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eEdD][-+]?\d{1,3})?", re.ASCII)
NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)(?:\([^)]*\))?", re.IGNORECASE)
SUFFIX = re.compile(r"(?<=[\d.]) ?([kKMGT]i?)$")
THOUSANDS, DECIMAL = "thousands", "decimal"  # what a comma separates: the key `comma`
SET_DECIMAL = "Set the key `comma: decimal` of the quantity"
PARTS = re.compile(r"([-+]?)([\d.,]+)((?:[eEdD][-+]?\d{1,3})?)", re.ASCII)
WITH_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
WITH_DECIMAL = re.compile(r"(?:\d*|[1-9]\d{0,2}(?:\.\d{3})+),\d+", re.ASCII)
DOT_GROUPS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+", re.ASCII)
# Groups that are separated by an apostrophe, underscore or narrow space, which can be nothing else.
GROUPS = re.compile("[-+]?[1-9]\\d{0,2}(['’_\u00a0\u2009\u202f])\\d{3}(?:\\1\\d{3})*(?=\\D|$)", re.ASCII)
SPACED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:[.,]\d+)?", re.ASCII)
CLOCK = re.compile(r"(?:(\d+)(-| days?,? ))?(\d+(?::[0-5]\d){1,3})([.,]\d+)?", re.ASCII)
PART = re.compile(r"(\d+(?:[.,]\d+)*)\s?([A-Za-zµμ]+)[ ,]*", re.ASCII)
ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d+)?)S)?)?", re.ASCII)


def parse_number(text: str, comma: str = "") -> float:
    """Return a number as programs print it: 1,234.5 or 1.5e-3 or Fortran's 1.5D-03.

    comma: what it separates, THOUSANDS or DECIMAL; empty if that is unknown, and then a number that can be read in two
    ways is an error. Raises ValueError with a reason, and perhaps what to do. NaN and infinity are no numbers.
    """
    if NOT_FINITE.fullmatch(text):
        raise ValueError("not finite")
    if SPACED.fullmatch(text):
        raise ValueError("a space separates its groups, or two numbers", "Capture one number, or print no groups")
    if groups := GROUPS.match(text):
        text = groups[0].replace(groups[1], "") + text[groups.end() :]
    parts = PARTS.fullmatch(text)
    if not parts or not any(character.isdigit() for character in parts[2]):
        raise ValueError("not a number")
    sign, digits, exponent = parts.groups()
    value = float(f"{sign}{_with_point(digits, comma)}{exponent.replace('D', 'e').replace('d', 'e')}")
    if not math.isfinite(value):
        raise ValueError("out of range")
    return value


def _with_point(digits: str, comma: str) -> str:
    """Return digits with a decimal point and without groups."""
    if "," not in digits:
        if comma == DECIMAL and DOT_GROUPS.fullmatch(digits):
            if digits.count(".") == 1:
                whole = digits.replace(".", "")
                raise ValueError(
                    f"it is {whole} if the dot separates thousands, or {digits} if it is decimal",
                    "Print it without groups",
                )
            return digits.replace(".", "")
        if DOT_GROUPS.fullmatch(digits) and digits.count(".") > 1:
            raise ValueError(f"its dots separate thousands, so it is {digits.replace('.', '')}", SET_DECIMAL)
        if digits.count(".") > 1:
            raise ValueError("not a number")
        return digits
    digits = digits.removesuffix(".")  # of a sentence
    whole = digits.replace(",", "") if WITH_THOUSANDS.fullmatch(digits) else ""
    fraction = digits.replace(".", "").replace(",", ".") if WITH_DECIMAL.fullmatch(digits) else ""
    if not whole and not fraction:
        raise ValueError("a comma must separate groups of 3 digits")
    if found := {THOUSANDS: whole, DECIMAL: fraction, "": not fraction and whole}[comma]:
        return found
    shown = f"{float(fraction):.15g}" if fraction else ""
    if whole and fraction:
        reason = f"it is {whole} if the comma separates thousands, or {shown} if it is decimal"
        raise ValueError(reason, "Add the key `comma: thousands` or `comma: decimal` to the quantity")
    if whole:
        raise ValueError(
            f"its commas separate thousands, so it is {whole}", "Remove `comma: decimal`, or fix the pattern"
        )
    raise ValueError(f"its comma is decimal, so it is {shown}", SET_DECIMAL)


def parse_scaled(text: str, comma: str = "") -> float:
    """Return a number that may end with a suffix: 11.9k, 4Ki. Raises ValueError as parse_number does."""
    suffix = SUFFIX.search(text)
    number = parse_number(text[: suffix.start()] if suffix else text, comma)
    return number * PREFIXES[suffix[1]] if suffix else number


def parse_duration(text: str, comma: str = "") -> float | None:
    """Return the seconds of a time with its units, such as 2m5.25s or 1:02:03; None if it is something else.

    1:02 is minutes and seconds. A comma after minutes is decimal. Raises ValueError as parse_number does.
    """
    if clock := CLOCK.fullmatch(text):
        days, mark, fields, fraction = clock.groups()
        numbers = [*map(int, fields.split(":"))]
        is_slurm = mark == "-" and len(numbers) == 2  # days-hours:minutes
        if (len(numbers) == 4 and days) or (is_slurm and fraction):
            return None
        factors = [3600, 60] if is_slurm else [86400, 3600, 60, 1][-len(numbers) :]
        whole = int(days or 0) * 86400 + sum(map(int.__mul__, numbers, factors))
        return float(f"{whole}{(fraction or '').replace(',', '.')}")
    if (iso := ISO.fullmatch(text)) and any(iso.groups()):
        return _sum(zip((part or "0" for part in iso.groups()), (86400, 3600, 60, 1), strict=True))
    parts = PART.findall(text)
    if not parts or "".join(PART.split(text)[::3]):
        return None
    words = [word.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u") for _, word in parts]
    known = SECONDS | ({"m": 60.0} if len(parts) > 1 else {})
    factors = [known.get(word) or known.get(word.lower() if len(word) > 2 else "") for word in words]
    if None in factors or factors != sorted({*factors}, reverse=True):
        return None
    if len(parts) == 1:
        return scaled(parse_number(parts[0][0], comma), factors[0])
    if any(not number.isdigit() for number, _ in parts[:-1]) or not re.fullmatch(r"\d+(?:[.,]\d+)?", parts[-1][0]):
        return None
    return _sum(zip((number for number, _ in parts), factors, strict=True))


def _sum(parts: Iterable[tuple[str, float]]) -> float:
    """Return the sum of numbers x factors, correctly rounded."""
    return float(sum(Decimal(number.replace(",", ".")) * Decimal(str(factor)) for number, factor in parts))
