"""Numbers and names as text: three significant figures, with their unit, n/a if unknown."""

import calendar
import re
import time
from collections.abc import Iterable, Mapping

SECOND_UNITS = ((1e6, "\N{MICRO SIGN}s"), (1e3, "ms"))
UNKNOWN, NOT_PLANNED = "n/a", "\N{EN DASH}"
NEGATIVE = re.compile(r"(?<![\w.\])-])-(?=\d)")  # the hyphen of a negative number, none within a name or a range
# Words for statuses and phases of records; other statuses are shown unchanged.
STATUS_WORDS = {"timeout": "timed out", "placement": "wrong placement", "skipped": "not started"}
PHASE_WORDS = {
    "launch": "during launch",
    "image": "during image start",
    "placement": "during the placement check",
    "init": "during initialization",
    "setup": "during setup",
    "check": "in the result check",
    "warmup": "during warm-up",
    "measure": "while measuring",
}


def three(value: float | None, figures: int = 3) -> str:
    """Return three significant figures without an exponent: 0.000123, 1.20, 12,300. n/a if there is no value."""
    if is_unknown(value):
        return UNKNOWN
    if value == 0:
        return "0"
    if type(value) is float and 1e-4 <= abs(value) < 10 ** (figures - 1):  # most values, in a third of the time
        return f"{value:#,.{figures}g}".rstrip(".")
    digits = figures - 1 - int(f"{value:.{figures - 1}e}".partition("e")[2])
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def percent(ratio: float | None) -> str:
    """Return a ratio in percent with one decimal, without the sign; never -0.0."""
    return UNKNOWN if is_unknown(ratio) else f"{100 * ratio:z.1f}"


def signed_percent(ratio: float) -> str:
    """Return a ratio as a signed difference in percent with one decimal, for columns of them: +12.6, −0.4, 0.0."""
    text = f"{100 * (ratio - 1):+.1f}"
    return "0.0" if float(text) == 0 else with_minus_signs(text)


def change_text(row: object) -> str:
    """Return the change in percent with its interval or range: `+12.6 [+11.7, +13.4]`."""
    ends = (row.time_low_ratio, row.time_high_ratio)
    if is_unknown(ends[0]):
        return signed_percent(row.time_ratio)
    low, high = map(signed_percent, ends)
    return f"{signed_percent(row.time_ratio)} " + (
        f"({low} to {high})" if row.interval == "range" else f"[{low}, {high}]"
    )


def with_minus_signs(text: str) -> str:
    """Return a text with minus signs before its negative numbers instead of hyphens, for a page."""
    return NEGATIVE.sub("\N{MINUS SIGN}", text) if "-" in text else text


def ratio_text(ratio: float | None) -> str:
    """Return a ratio with three decimals near 1, such as 0.998 and 1.002, else with three significant figures."""
    return three(ratio) if is_unknown(ratio) or not 0.1 <= ratio < 10 else f"{ratio:.3f}"


def bracket(low: str, high: str, kind: str | None) -> str:
    """Return a range over launches as (low to high), and an interval as [low, high].

    kind: the table's column `interval`. An interval from a fit's residuals reads [low, high] (residuals).
    """
    if not is_unknown(kind) and kind == "range":
        return f"({low} to {high})"
    return f"[{low}, {high}]{' (residuals)' if not is_unknown(kind) and kind == 'residuals' else ''}"


def interval_heading(kinds: Iterable[str | None]) -> str:
    """Return the heading of a column of ranges and intervals, by its rows. kinds: column `interval`."""
    known = {"range": "range", "interval": "95 % CI"}
    kinds = {"interval" if kind == "residuals" else kind for kind in kinds if not is_unknown(kind)}
    found = [word for kind, word in known.items() if kind in kinds]
    return " or ".join(found) or known["interval"]


def with_ends(name: str, unit: str) -> tuple[str, ...]:
    """Return the names of a number and of the ends of its range or interval: step_s, step_low_s, step_high_s."""
    return tuple(f"{name}{end}_{unit}" if unit else f"{name}{end}" for end in ("", "_low", "_high"))


def is_unknown(value: object) -> bool:
    """Return whether a value is None, NaN, or pandas.NA. Planning does not import pandas."""
    if value is None or isinstance(value, float):
        return value is None or value != value
    return type(value).__name__ == "NAType"


def times(value: float | None, factor: float) -> float | None:
    """Return value x factor, None if unknown."""
    return None if is_unknown(value) else float(value) * factor


def size(num_bytes: int) -> str:
    """Return bytes in the largest binary unit that leaves at most three figures before the point: 4 KiB, 1.50 MiB."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes >= 1024**power:
            count = num_bytes / 1024**power
            return f"{count:.0f} {unit}" if count == int(count) else f"{three(count)} {unit}"
    return f"{num_bytes} B"


def duration(seconds: float | None) -> str:
    """Return seconds with the unit that suits them: 12.3 µs, 4.56 ms, 7.89 s."""
    if is_unknown(seconds):
        return UNKNOWN
    factor, unit = time_scale(seconds)
    return f"{three(seconds * factor)} {unit}"


def time_scale(seconds: float) -> tuple[float, str]:
    """Return the unit that suits a time, after the number of them in a second."""
    return next((scale for scale in SECOND_UNITS if seconds * scale[0] < 1000), (1, "s"))


def long_duration(hours: float, beside_hours: float = 0) -> str:
    """Return hours with the unit that suits them: 39 s, 5.4 min, 4.14 hours, 1,230 hours.

    beside_hours: time in the same sentence, so that both have the unit of the longer one.
    """
    longest = max(hours, beside_hours)
    if longest >= 1:
        return f"{three(hours, 2 if hours < 1 else 3)} hours"
    return f"{60 * hours:.1f} min" if longest >= 1 / 60 else f"{3600 * hours:.0f} s"


def status_text(status: str, phase: str | None = None) -> str:
    """Return the status of a record in words: `timed out while measuring`. phase: if known."""
    where = "" if phase is None or phase == status else f" {PHASE_WORDS[phase]}"
    return STATUS_WORDS.get(status, status.replace("_", " ")) + where


def plural(num: int, noun: str, nouns: str | None = None) -> str:
    return f"{num:,} {noun if num == 1 else nouns or noun + 's'}"


def any_of(texts: list[str]) -> str:
    """Return `2`, `2 or 12`, or `2, 4 or 12`."""
    return " or ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def shape(nodes: int, gpus_per_node: int) -> str:
    """Return nodes × GPUs per node: 2×4."""
    return f"{nodes}\N{MULTIPLICATION SIGN}{gpus_per_node}"


def thousands(value: float) -> str:
    """Return a short number for the tick of an axis: 950, 1.5k, 20k, 3M."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def prefixed(value: float, unit: str) -> str:
    """Return a short number with a prefix for its unit, for the tick of an axis: 950 B/s, 1.5 kB/s, 20 µs."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")):
        if value >= factor * (1 - 1e-9):
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value / 1e-9:.3g} n{unit}"


def natural(text: str) -> list[str | float]:
    """Return a key that sorts ids with their sizes as numbers: 4096 before 16384, 0.5 before 25."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]


def one_line(value: object, limit: int = 1000) -> str:
    """Return any value as one line that can be encoded: no line break, control character or lone surrogate."""
    text = " ".join(str(value).split())
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text


def quoted(text: object, limit: int = 80) -> str:
    """Return a piece of a file for a message, on one line and short."""
    return f"'{one_line(text, limit)}'"


def nodes_text(cluster: dict) -> str:
    """Return the name of a campaign's cluster, with the node type if the campaign names one."""
    return f"{cluster['name']}, node type {cluster['node_type']}" if "node_type" in cluster else cluster["name"]


def rank_word(device: str) -> str:
    """Return the word for a rank in the report: a rank of a CPU campaign has no GPU."""
    return "process" if device == "cpu" else "GPU"


def ranks_word(device: str) -> str:
    return "processes" if device == "cpu" else "GPUs"


def device_words(device: str) -> dict[str, str]:
    """Return the words for a rank, several ranks, and ranks × hours: {rank}, {ranks} and {hours} in a text."""
    return {"rank": rank_word(device), "ranks": ranks_word(device), "hours": f"{rank_word(device)} hours"}


def rank_time(hours: float, device: str, beside_hours: float = 0) -> str:
    """Return ranks × time with the unit that suits it: 44 process seconds, 5.4 GPU minutes, 4.14 GPU hours."""
    number, unit = long_duration(hours, beside_hours).split()
    return f"{number} {rank_word(device)} {'minutes' if unit == 'min' else 'seconds' if unit == 's' else unit}"


def span_text(low_s: float, high_s: float) -> str:
    """Return an estimate with two significant digits and the unit of its higher end: 20-25 min, about 2.5 hours."""
    factor, unit = next(
        (factor, unit) for factor, unit in ((3600, "hours"), (60, "min"), (0, "s")) if max(high_s, 0) >= factor
    )
    low, high = (three(max(1.0, seconds) / (factor or 1), 2) for seconds in (low_s, high_s))
    return f"about {high} {unit}" if low == high else f"{low}\N{EN DASH}{high} {unit}"


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the known {names} replaced. Other braces stay: it may be of any format."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda found: values[found[1]], text) if values else text


TIME_UTC = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")  # so that times sort as text


def utc_text(seconds: float) -> str:
    """Return a time, in seconds since 1970, as it is recorded."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def is_time(time_utc: object) -> bool:
    return isinstance(time_utc, str) and bool(TIME_UTC.fullmatch(time_utc))


def utc_seconds(time_utc: object) -> int | None:
    """Return a recorded time as seconds since 1970, or None if it is absent or malformed."""
    if not is_time(time_utc):
        return None
    try:
        return calendar.timegm(time.strptime(time_utc, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None
