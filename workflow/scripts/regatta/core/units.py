"""Units and numbers in outputs of programs, converted to SI: seconds, bytes, counts per second, flop/s, ratios.

A unit is a product of words, such as tokens/s/GPU: a prefix and a word, divided by others. Any count can be divided by
a time, or a time by it. Numbers and durations: numbers.py.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from regatta.core.errors import UserError, nearest
from regatta.core.text import one_line

DECIMAL = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY = {f"{prefix}i": 2.0 ** (10 * power) for power, prefix in enumerate("KMGTPE", start=1)} | {"ki": 1024.0}
PREFIXES = DECIMAL | BINARY
SPELLED = {"kilo": "k", "mega": "M", "giga": "G", "tera": "T", "peta": "P", "exa": "E"}
SPELLED |= {"kibi": "Ki", "mebi": "Mi", "gibi": "Gi", "tebi": "Ti"}
TIMES = {
    "fs": 1e-15,
    "ps": 1e-12,
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "day": 86400.0,
}
TIME_WORDS = {"ns": "nsec nanosec nanosecond", "us": "usec microsec microsecond", "ms": "msec millisec millisecond"}
TIME_WORDS |= {"fs": "femtosecond", "ps": "picosec picosecond", "s": "sec second", "min": "minute", "h": "hr hour"}
TIME_WORDS |= {"day": "d"}
SECONDS = TIMES | {word: TIMES[unit] for unit, words in TIME_WORDS.items() for word in words.split()}
SECONDS |= {f"{word}s": factor for word, factor in SECONDS.items() if len(word) > 1 and word not in TIMES}
SECONDS |= {"mins": 60.0, "days": 86400.0}
# Counts that programs abbreviate, by singular. Another word is a count of this name.
ABBREVIATED = {
    name: words.split()
    for name, _, words in (
        part.strip().partition(":")
        for part in (
            "token: tok t; iteration: it its iter; sample; image: img; step: timestep time-step; message: msg; query;"
            "operation: op; request: req; sequence: seq; transaction: tx txn; event: ev; example: ex; document: doc;"
            "character: char; pixel: pix; hash: H; element: elem; batch; packet: pkt; update: upd up; edge; frame;"
            "transfer: T; particle; atom; atom-step; key; row; record; item; point; zone; dof; cycle; file; lookup;"
            "instruction: inst; photon; site; neuron; spin; pair; word; cell; ray"
        ).split(";")
    )
}
COUNTS = {word: name for name, words in ABBREVIATED.items() for word in (name, *words)}
# Words that contain their time.
RATES = {"fps": "frame", "iops": "operation", "rps": "request", "qps": "query", "pps": "packet", "wps": "word"}
RATES |= {"gups": "update", "gup": "update", "lups": "update", "flups": "update", "cups": "update", "teps": "edge"}
AMBIGUOUS = {
    "m": "It may be minutes or meters. Write min, or ms for milliseconds",
    "tps": "It may be tokens or transactions. Write tokens/s or transactions/s",
    "ips": "It may be images, items or instructions. Write images/s, items/s or instructions/s",
    "b": "It may be bits or bytes. Write bit or B",
}
# What a rate may be divided by; beside a time or energy, any word.
PLACES = ("gpu", "device", "chip", "node", "rank", "process", "core", "user")
EXAMPLES = (
    "ns us ms s min h day B kB MB GB KiB MiB GiB W J % kbit Mbit Gbit kB/s MB/s GB/s MiB/s GiB/s Mbit/s Gbit/s flop/s"
    " Mflop/s Gflop/s Tflop/s Tflop/s/GPU tokens/s tok/s samples/s images/s steps/s it/s iterations/s messages/s"
    " operations/s edges/s updates/s Gupdates/s requests/s frames/s s/it ms/step ns/op ns/day hours/ns"
).split()
KNOWN = (
    "times: ns, us, ms, s, min, h, day; bytes and bits: B, kB, KiB, Gbit; rates: GB/s, GiB/s, Gbit/s, Tflop/s, Hz, and"
    " any count per time, such as tokens/s, it/s, widgets/min, also per GPU: tokens/s/GPU; time per count: s/it,"
    " ns/op; simulated time: ns/day, hours/ns; W, J, kWh, tokens/J; %; or an empty unit for a dimensionless number."
    " Prefixes: k, M, G, T, P, E, Ki, Mi, Gi, Ti"
)
SIMULATED = "simulated s"
SHOWN_TIMES = (("h", 3600.0), ("s", 1.0), ("ms", 1e-3), ("\N{MICRO SIGN}s", 1e-6), ("ns", 1e-9))
PLURALS = {"query": "queries", "batch": "batches", "hash": "hashes", "frequency": "frequencies"}
BASE = ("flop", "B", "W", "J", "s", SIMULATED)


@dataclass(frozen=True)
class Unit:
    """A unit as its factor to SI units and the powers of these: {token: 1, s: -1}."""

    factor: float = 1.0
    powers: Mapping[str, int] = field(default_factory=dict)

    @property
    def si(self) -> str:
        """Return the name of the SI unit: B/s, tokens/s, s/iteration; empty if it has no dimension."""
        above = [_plural(name) for name, power in self.powers.items() if power > 0]
        below = sorted((name for name, power in self.powers.items() if power < 0), key=lambda name: name != "s")
        return "/".join([*(above or ["1"] * bool(below)), *below])

    @property
    def is_rate(self) -> bool:
        return self.powers.get("s", 0) < 0

    @property
    def is_time(self) -> bool:
        return self.powers.get("s", 0) > 0

    def per(self, other: "Unit") -> "Unit":
        powers = {name: self.powers.get(name, 0) - other.powers.get(name, 0) for name in (*self.powers, *other.powers)}
        return Unit(self.factor / other.factor, {name: power for name, power in powers.items() if power})

    def is_inverse_of(self, other: "Unit") -> bool:
        return bool(self.powers) and {name: -power for name, power in self.powers.items()} == other.powers


def find_unit(text: str, kind: str | None = None) -> Unit:
    """Return the unit of a text. Raises UserError for an unknown unit, with the list.

    kind: SI unit of which a suggestion must be, if the text stands for a known one.
    """
    try:
        return _parsed(text)
    except _UnknownUnit as unknown:
        reason = f" {unknown}." if unknown.args else _suggestion(text, kind)
        raise UserError(f'unknown unit "{one_line(text, 60)}".{reason} Known units: {KNOWN}.') from None


def convert(number: float, unit: str) -> float:
    """Return a number in SI units, correctly rounded. Raises UserError for an unknown unit, with the list."""
    return scaled(number, find_unit(unit).factor)


def scaled(number: float, factor: float) -> float:
    """Return number x factor. A factor such as 1/1000 divides, because it has no exact value."""
    reciprocal = 1 / factor
    is_whole = factor < 1 and abs(reciprocal - round(reciprocal)) < 1e-9 * reciprocal
    return number / round(reciprocal) if is_whole else number * factor


class _UnknownUnit(Exception):
    """Its text says why, if there is more to say."""


@lru_cache(maxsize=1000)
def _parsed(text: str) -> Unit:
    text = text.strip().strip("()[]{},;:").replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    text = re.sub(r"\s*/\s*|\s+per\s+|_per_", "/", text)
    if len(text) > 60:
        raise _UnknownUnit
    first, *others = text.split("/")
    below = [_denominator(word) for word in others]
    above = _numerator(first, has_time=any(unit.is_time for unit in below))
    if below and above.is_time and below[0].is_time:  # ns/day: the small one is simulated
        short, long = sorted((above.factor, below[0].factor))
        if not short <= 1e-6 or not long >= 1:
            raise _UnknownUnit("A time per time must be simulated time, in us or a smaller unit: ns/day")
        parts = [Unit(unit.factor, {SIMULATED: 1}) if unit.factor == short else unit for unit in (above, below[0])]
        above, below = parts[0], [parts[1], *below[1:]]
    for unit in below:
        above = above.per(unit)
    if set(above.powers) - {*BASE} and not set(above.powers.values()) & {-1}:  # a bare count
        raise _UnknownUnit("For a count, use the empty unit; for a rate, add a time: tokens/s")
    below = {name for name, power in above.powers.items() if power < 0}
    if not {"s", SIMULATED, "W", "J"} & {*above.powers} and not below <= {*BASE, *ABBREVIATED, *PLACES}:
        raise _UnknownUnit
    return above


def _numerator(word: str, has_time: bool) -> Unit:
    if word in ("", "1", "x", "\N{MULTIPLICATION SIGN}", "%", "percent"):
        if word == "" and has_time:
            raise _UnknownUnit("Write what is counted, or 1/s")
        return Unit(0.01 if word in ("%", "percent") else 1.0)
    if found := _time(word) or _base(word, has_time):
        return found
    if not has_time and (found := _rate(word)):
        return found
    return _count(word)


def _denominator(word: str) -> Unit:
    if not word:
        raise _UnknownUnit
    return _time(word) or _base(word, has_time=True) or _count(word)


def _time(word: str) -> Unit | None:
    seconds = SECONDS.get(word) or (SECONDS.get(word.lower()) if len(word) > 2 else None)
    return Unit(seconds, {"s": 1}) if seconds else None


def _base(word: str, has_time: bool) -> Unit | None:
    """Return bytes, bits, flop, W or J with a prefix; without a time, flops are flop/s."""
    if long := re.fullmatch(f"({'|'.join(SPELLED)})([a-z]{{3,}})", word.lower()):
        word = SPELLED[long[1]] + long[2]
    if match := re.fullmatch(r"([kKMGTPE]i?|ki)?(?:(B|[Bb]ytes?)|(b|[Bb]its?))(ps)?", word):
        prefix, is_bytes, bits, per_second = match.groups()
        if bits == "b" and not (prefix or per_second or has_time):
            raise _UnknownUnit(AMBIGUOUS["b"])
        unit = Unit(PREFIXES.get(prefix, 1.0) / (1 if is_bytes else 8), {"B": 1})
        return unit.per(Unit(1.0, {"s": 1})) if per_second else unit
    if match := re.fullmatch(r"([mgt])bps", word):  # bps are bits, and no program counts thousandths of them
        return Unit(DECIMAL[match[1].upper()] / 8, {"B": 1, "s": -1})
    if match := re.fullmatch(r"([kmgtpe]?)(flop|flops|f)", word.lower()):
        if match[2] == "f" and (word[-1] != "F" or not match[1] or not has_time):
            return None
        unit = Unit(DECIMAL.get(match[1].upper(), 1.0), {"flop": 1})
        return unit.per(Unit(1.0, {"s": 1})) if match[2] == "flops" and not has_time else unit
    if match := re.fullmatch(r"([umkKMGT]?)(W|J|Wh|[Ww]atts?|[Jj]oules?|Hz|hz)", word):
        factor = ({"u": 1e-6, "m": 1e-3} | DECIMAL).get(match[1], 1.0)
        if match[2] in ("Hz", "hz"):
            return Unit(factor, {"s": -1})
        is_hours, name = match[2] == "Wh", "W" if match[2] in ("W", "watt", "watts", "Watt", "Watts") else "J"
        return Unit(factor * (3600 if is_hours else 1), {name: 1})
    return None


def _rate(word: str) -> Unit | None:
    """Return the rate of a word that contains its time: fps, kIOPS, MLUPS, TOPS."""
    if word.lower() in AMBIGUOUS:
        raise _UnknownUnit(AMBIGUOUS[word.lower()])
    if word in ("GUPS", "GUP"):
        return Unit(1e9, {"update": 1, "s": -1})
    for size in (0, 1, 2):
        prefix, rest = word[:size], word[size:].lower()
        if size and prefix not in PREFIXES:
            continue
        if rest in RATES:
            return Unit(PREFIXES.get(prefix, 1.0), {RATES[rest]: 1, "s": -1})
        if size and rest == "ops":
            return Unit(PREFIXES[prefix], {"operation": 1, "s": -1})
    if word == "SYPD":  # of climate models
        return Unit(1 / 86400, {"year": 1, "s": -1})
    return None


def _count(word: str) -> Unit:
    """Return the count of a word, with a prefix only before one that programs abbreviate: Mops, but kernels."""
    if word in PREFIXES:
        raise _UnknownUnit("A prefix needs a unit. Write Mops/s, for example, or capture the prefix with the number")
    if word in AMBIGUOUS:
        raise _UnknownUnit(AMBIGUOUS[word])
    spaced = re.fullmatch(r"([kKMGTPE]|[Mm]illion|[Bb]illion) (.+)", word)
    if spaced:
        factor = DECIMAL.get(spaced[1]) or (1e6 if spaced[1].lower() == "million" else 1e9)
        return Unit(factor, _count(spaced[2]).powers)
    if name := _known_count(word):
        return Unit(1.0, {name: 1})
    for size in (1, 2):
        if word[:size] in PREFIXES and (name := _known_count(word[size:])):
            return Unit(PREFIXES[word[:size]], {name: 1})
    if not re.fullmatch(r"[A-Za-z]?[a-z]+(?:[ _-][a-z]+)*|[A-Z]{2,}|[A-Z]{2,}s", word) or len(word) > 40:
        raise _UnknownUnit
    if re.fullmatch("[kmgtpe]i?(b|bs|bits?|bytes?)", word.lower()) or len(word) < 2:
        raise _UnknownUnit
    return Unit(1.0, {_singular(word.lower()): 1})


def _known_count(word: str) -> str | None:
    if word in ("H", "T", "t"):  # MH/s, GT/s, t/s
        return COUNTS[word]
    word = word.lower()
    return (
        None if len(word) < 2 else COUNTS.get(word) or COUNTS.get(_singular(word)) or COUNTS.get(word.removesuffix("s"))
    )


def _singular(word: str) -> str:
    if found := next((name for name, plural in PLURALS.items() if plural == word), None):
        return found
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _plural(name: str) -> str:
    return name if name in BASE else PLURALS.get(name, f"{name}s")


def _suggestion(text: str, kind: str | None) -> str:
    """Return the nearest unit of the same kind: of the wanted one, else of as many words, with the same prefix."""
    if kind is None:
        known = [unit for unit in EXAMPLES if unit.count("/") == text.count("/")]
    else:
        known = [unit for unit in EXAMPLES if _parsed(unit).si == kind]
    same = [unit for unit in known if unit.lower() == text.lower()]
    return f" Did you mean '{same[0]}'?" if same else nearest(text, known)


def fitted(unit: str, value: float) -> tuple[str, float]:
    """Return the unit that suits a value, and how many of it are one of the given unit: s, 8e-6 -> us, 1e6.

    The given one unless it has too many or too few digits; of times, bytes, bits, flop, W and J alone.
    """
    if 0.1 <= abs(value) < 10_000 or not value:
        return unit, 1.0
    first, slash, rest = unit.partition("/")
    if time := _time(first):
        seconds = abs(value) * time.factor
        name, factor = next((one for one in SHOWN_TIMES if seconds >= one[1]), SHOWN_TIMES[-1])
        return f"{name}{slash}{rest}", time.factor / factor
    known = [*DECIMAL] if "i" not in first[:2] else [*BINARY]
    prefix = next((p for p in sorted(known, key=len, reverse=True) if first.startswith(p)), "")
    name = first.removeprefix(prefix)
    with contextlib.suppress(UserError):
        base, given = find_unit(f"{name}{slash}{rest}"), find_unit(unit)
        ratio = given.factor / base.factor
        if base.powers == given.powers and next(iter(base.powers), "") in ("B", "flop", "W", "J"):
            steps = [(1.0, "")] + [(PREFIXES[p], p) for p in ("kMGTPE" if known[0] == "k" else BINARY) if p != "ki"]
            factor, shown = next((one for one in reversed(steps) if abs(value) * ratio >= one[0]), steps[0])
            return f"{shown}{name}{slash}{rest}", ratio / factor
    return unit, 1.0
