"""Numbers and units of outputs of programs, converted to SI: seconds, bytes, bytes per second, flop/s, ratios."""

import math
import re

from regatta.core.errors import UserError, nearest

NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eEdD][-+]?\d{1,3})?", re.ASCII)
NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)(?:\([^)]*\))?", re.IGNORECASE)
PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY_PREFIXES = {f"{prefix}i": 2.0 ** (10 * power) for power, prefix in enumerate("KMGTPE", start=1)}
SUFFIXES = PREFIXES | BINARY_PREFIXES | {"K": 1e3, "ki": 1024.0}  # of numbers, as fio prints 11.9k
SUFFIX = re.compile(r"(?<=[\d.]) ?([kKMGT]i?)$")
# Spellings of programs, beside the units themselves.
SPELLINGS = {"nsec": "ns", "usec": "us", "msec": "ms", "sec": "s", "IOPS": "operations/s"}
SPELLINGS |= {"\N{MICRO SIGN}s": "us", "\N{GREEK SMALL LETTER MU}s": "us"}
SPELLINGS |= {"GBps": "GB/s", "MBps": "MB/s", "Mbps": "Mbit/s"}
SPELLINGS |= {"Gbps": "Gbit/s", "GUPS": "Gupdates/s", "GUP/s": "Gupdates/s", "TEPS": "edges/s", "GTEPS": "Gedges/s"}
COUNTED = ("tokens", "samples", "images", "steps", "iterations", "messages", "operations", "edges", "updates")
SCALED = ("B", "B/s", "flop/s", *(f"{name}/s" for name in COUNTED))  # units with a prefix, such as Gupdates/s
TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
# Unit -> (SI unit, factor).
UNITS = {
    "": ("", 1.0),
    "%": ("", 0.01),
    **{unit: ("s", factor) for unit, factor in TIMES.items()},
    **{unit: (unit, 1.0) for unit in ("W", "J")},
    **{f"{prefix}{unit}": (unit, factor) for prefix, factor in ({"": 1.0} | PREFIXES).items() for unit in SCALED},
    **{f"{prefix}{unit}": (unit, factor) for prefix, factor in BINARY_PREFIXES.items() for unit in ("B", "B/s")},
    **{f"{prefix}bit/s": ("B/s", factor / 8) for prefix, factor in ({"": 1.0} | PREFIXES).items()},
}
KNOWN = (
    "ns, us, ms, s, min, h; B, kB, MB, GB, KiB, MiB, GiB; B/s, MB/s, GB/s, GiB/s, Gbit/s; flop/s, Mflop/s, Gflop/s,"
    f" Tflop/s; {', '.join(f'{name}/s' for name in COUNTED)}, also with k, M, G; W, J; %; or an empty unit, for a"
    " dimensionless number"
)


def find_unit(unit: str) -> tuple[str, float]:
    """Return the SI unit of a unit, and the factor to it. Raises UserError for an unknown unit, with the list."""
    unit = SPELLINGS.get(unit, unit)
    if unit not in UNITS:
        raise UserError(f'unknown unit "{unit}".{nearest(unit, UNITS)} Known units: {KNOWN}.')
    return UNITS[unit]


def convert(number: float, unit: str) -> float:
    """Return a number in SI units, correctly rounded. Raises UserError for an unknown unit, with the list."""
    factor = find_unit(unit)[1]
    return number * factor if factor >= 1 else number / round(1 / factor)


def parse_number(text: str) -> float:
    """Return a number as programs print it: 1,234.5 or 1.5e-3 or Fortran's 1.5D-03. Raises ValueError, with a reason.

    A comma separates thousands, never decimals; NaN and infinity are no numbers.
    """
    if NOT_FINITE.fullmatch(text):
        raise ValueError("not finite")
    if not NUMBER.fullmatch(text) or not any(character.isdigit() for character in text):
        raise ValueError("a comma must separate groups of 3 digits" if "," in text else "not a number")
    value = float(text.replace(",", "").replace("D", "e").replace("d", "e"))
    if not math.isfinite(value):
        raise ValueError("beyond the range of numbers")
    return value


def parse_scaled(text: str) -> float:
    """Return a number that may end with a suffix: 11.9k, 4Ki. Raises ValueError as parse_number does."""
    suffix = SUFFIX.search(text)
    return parse_number(text[: suffix.start()]) * SUFFIXES[suffix[1]] if suffix else parse_number(text)
