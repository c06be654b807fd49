"""Read quantities from the output of any program, by patterns that a user declares (`read:` and `check:`).

    read:
      rate: {match: 'WR\\S+.*?(\\S+)$', unit: Gflop/s, better: larger}           one number
      tps: {samples: 'tps: ([\\d,]+)', unit: tokens/s, better: larger, drop: 10}   one number for each iteration
    check: {match: PASSED, reject: FAILED}

Values are in SI units. Instead of patterns, `read:` may name an import format, such as nccl-tests.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from regatta.core import matching
from regatta.core.errors import UserError
from regatta.core.matching import MOST_CHARACTERS, SIMILAR, Match
from regatta.core.printed_numbers import parse_duration, parse_scaled
from regatta.core.samples import doubts, printing_ranks, wider_patterns
from regatta.core.text import one_line, plural, quoted
from regatta.core.text import size as text_of_size
from regatta.core.units import find_unit, scaled

# Version of this reader, in each record: 2 since lines are known by rank. A later one reads kept outputs again.
READER = 2
LEAST_SECONDS, BYTES_PER_SECOND = 2, 2_000_000  # CPU time of each pattern; one usually reads 70 MB/s
MOST_PROBLEMS = 5  # of one quantity
MOST_PATTERN = 1000  # characters
MOST_NAMES = 8  # of results, in a message
REMEDY = "Fix the pattern or the program"
READ_OUTPUT = Path(__file__).resolve().parents[2] / "read_output.py"


@dataclass(frozen=True)
class Quantity:
    """A quantity of an output. match: pattern of its one number; samples: of one number for each iteration.

    The number is the group `value`, else the first group, else the whole match; it may end with a suffix, such as
    11.9k. A group `unit` is the unit in the text itself. drop: first samples that are warm-up. expected: number of
    samples, with these; 0 if it is unknown. better: `smaller` or `larger`. comma: whether it separates `thousands` or
    is `decimal`; empty if the number must say so.
    """

    match: str = ""
    samples: str = ""
    unit: str = ""
    better: str = "smaller"
    drop: int = 0
    expected: int = 0
    comma: str = ""

    @property
    def pattern(self) -> str:
        return self.match or self.samples


@dataclass(frozen=True)
class Reader:
    """What to read from an output. match: a pattern that must occur; reject: one that must not; ranks: of the number of
    ranks.

    quantities: empty, if the output is read as an import format.
    """

    quantities: dict[str, Quantity] = field(default_factory=dict)
    match: str = ""
    reject: str = ""
    ranks: str = ""


@dataclass(frozen=True)
class OutputReading:
    """What was read from an output: numbers in SI units, samples without those dropped, and the lines of the matches.

    problems: why a quantity is missing or the output is not valid, each with its line and what to do; empty if all was
    read. A quantity with a problem has no value. texts: each number of a quantity with its unit as the output has them,
    and its value in SI units, None if it is no number.
    """

    values: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    matched_lines: dict[str, list[int]] = field(default_factory=dict)
    texts: dict[str, list[tuple[str, float | None]]] = field(default_factory=dict)


@dataclass(frozen=True)
class FormatResult:
    """A result of an output in an import format. size: of its message, in bytes. samples: seconds, or a single mean.

    line: None in JSON. failure: why it does not count. bus_factor: bus over algorithm bandwidth; None if unknown.
    """

    name: str
    size: int | None
    line: int | None
    samples: list[float]
    failure: str | None
    bus_factor: float | None = None


def parse_reader(read: dict | str, check: dict | None = None) -> Reader:
    """Return the reader of a campaign's `read` and `check`. Raises UserError for what the schema cannot check."""
    quantities = {} if isinstance(read, str) else {name: _quantity(f"read.{name}", of) for name, of in read.items()}
    for name, pattern in (check or {}).items():
        _check_pattern(f"check.{name}", pattern)
    return Reader(quantities, **check or {})


def _quantity(key: str, given: dict) -> Quantity:
    quantity = Quantity(**given)
    if bool(quantity.match) == bool(quantity.samples):
        raise UserError(f"{key}: needs either match (one number) or samples (one number for each iteration).")
    for name in ("drop", "expected"):
        if getattr(quantity, name) and quantity.match:
            text = f"{key}.{name}: {getattr(quantity, name)} has no effect with match. Remove it, or use samples."
            raise UserError(text)
    if 0 < quantity.expected <= quantity.drop:
        text = f"{key}.expected: {quantity.expected} includes the samples of drop, {quantity.drop}. Increase it."
        raise UserError(text)
    _check_pattern(key, quantity.pattern)
    try:
        find_unit(quantity.unit)
    except UserError as error:
        raise UserError(f"{key}.unit: {error}") from None
    return quantity


def _check_pattern(key: str, pattern: str) -> None:
    if not 0 < len(pattern) <= MOST_PATTERN:
        raise UserError(f"{key}: a pattern must be text of 1 to {MOST_PATTERN} characters.")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(f"{key}: invalid pattern '{pattern}' ({error}). Use the syntax of Python's re.") from None


def read_quantities(
    output: str | Path, reader: Reader, num_ranks: Collection[int] = (), comma: str = ""
) -> OutputReading:
    """Return what the patterns of a reader find in an output, given as text or as the path of a file of any size.

    num_ranks: numbers of ranks that the output may state. comma: what it separates in this output, for quantities that
    do not say so.
    """
    patterns = {f"read.{name}": quantity.pattern for name, quantity in reader.quantities.items()}
    of_check = {name: getattr(reader, name) for name in ("match", "reject", "ranks")}
    patterns |= {f"check.{name}": pattern for name, pattern in of_check.items() if pattern}
    values, samples, problems, lines, texts = {}, {}, [], {}, {}
    found: dict[str, list[Match]] = {name: [] for word in ("", SIMILAR) for name in (word + key for key in patterns)}
    near = {f"read.{name}": wider_patterns(quantity.pattern) for name, quantity in reader.quantities.items()}
    for match in _search(output, patterns, near):
        if match.name is not None:
            found[match.name].append(match)
        elif match.value:  # the search ended early: what it found may be a part
            return OutputReading(problems=(match.value,))
    for name, quantity in reader.quantities.items():
        matches = found[f"read.{name}"]
        lines[name] = [match.line for match in matches if match.value is not None or not match.whole]
        quantity, texts[name] = replace(quantity, comma=quantity.comma or comma), []
        try:
            numbers = _numbers(name, quantity, matches, found[f"{SIMILAR}read.{name}"], texts[name])
        except ValueError as error:
            problems += error.args
            continue
        if quantity.samples:
            samples[name] = numbers[quantity.drop :]
        else:
            values[name] = numbers[0]
    if reader.match and not found["check.match"]:
        problems.append(f"check.match: no line matches '{reader.match}'. The program failed, or the pattern is wrong")
    if rejected := found.get("check.reject"):
        text = f"line {rejected[0].line}: check.reject matches {quoted(rejected[0].value)}. The run is invalid"
        problems.append(text)
    problems += _ranks_problem(reader.ranks, found["check.ranks"], num_ranks) if reader.ranks else []
    return OutputReading(values, samples, tuple(problems), lines, texts)


def _ranks_problem(pattern: str, matches: list[Match], num_ranks: Collection[int]) -> list[str]:
    """Return the problem if an output states a number of ranks other than planned, or none."""
    if not matches:
        return [f"check.ranks: no line matches '{pattern}'. The program failed, or the pattern is wrong"]
    for match in matches:
        text = match.whole or match.value or ""
        digits = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.strip())
        if not re.fullmatch(r"\d+", digits, re.ASCII) or int(digits) not in num_ranks:
            planned = " or ".join(map(str, sorted(num_ranks)))
            where = f"line {match.line}: check.ranks is {quoted(text)}, planned: {planned}"
            return [f"{where}. Fix the command or the pattern"]
    return []


def _numbers(name: str, quantity: Quantity, matches: list[Match], similar: list[Match], texts: list) -> list[float]:
    """Return the numbers of a quantity in SI units. Raises ValueError with one problem for each argument.

    similar: lines that match but for their unit. texts: gets each number as it is printed, and its value.
    """
    numbers, problems = [], []
    for match in matches:
        if match.value is None and match.whole:  # a number that the pattern does not match
            continue
        number, text = None, match.value or ""
        try:
            number = _number(quantity, match)
            numbers.append(number)
        except UserError as error:
            problems.append(f"line {match.line}: {name} is {quoted(text)}: {str(error).rstrip('.')}. {REMEDY}")
        except ValueError as error:
            reason, remedy = (*error.args, REMEDY)[:2]
            problems.append(f"line {match.line}: {name} is {quoted(text)}: {reason}. {remedy}")
        texts.append((f"{text} {match.unit}" if match.unit else text, number))
    problems += [problem for match in similar if (problem := _other_unit(name, quantity, match))]
    if problems:
        raise ValueError(*problems[:MOST_PROBLEMS])
    is_complete = quantity.expected and len(numbers) == quantity.expected
    ranks = printing_ranks([match for match in matches if not (is_complete and match.is_tagged)])
    if len(ranks) > 1:
        places = ", ".join(f"{rank} (line {line})" for rank, line in [*ranks.items()][:MOST_PROBLEMS])
        more = f" and {len(ranks) - MOST_PROBLEMS} more" if len(ranks) > MOST_PROBLEMS else ""
        remedy = "Print it on one rank: the slowest time, or the sum of rates"
        raise ValueError(f"read.{name}: printed on {len(ranks)} ranks: {places}{more}. {remedy}")
    if not is_complete and (behind := [match for match in matches if match.is_behind]):
        shown = f"{quoted(behind[0].whole)} is after the first {MOST_CHARACTERS:,} characters of line {behind[0].line}"
        raise ValueError(f"read.{name}: {shown}. Only these are read. Print shorter lines")
    found = [*doubts(matches, is_complete)]
    if len(numbers) <= quantity.drop:
        few = f"only {plural(len(numbers), 'match', 'matches')}, {quantity.drop} of them dropped"
        few = "; ".join([few if numbers else "no line matches", *found])
        raise ValueError(f"read.{name}: {few}; pattern '{quantity.pattern}'. Compare it with the output")
    if quantity.match and len(set(numbers)) > 1:
        places = ", ".join(str(match.line) for match in matches[:MOST_PROBLEMS])
        differ = f"{len(numbers)} matches with different numbers (lines {places})"
        remedy = "If these are iterations, use samples; if each rank prints one, print it on one rank"
        raise ValueError(f"read.{name}: {differ}. Narrow the pattern. {remedy}")
    if quantity.samples and quantity.expected and not is_complete:
        wrong = "; ".join([f"{plural(len(numbers), 'sample')}, {quantity.expected} expected", *found])
        raise ValueError(f"read.{name}: {wrong}. Fix the pattern or the program")
    if quantity.samples and found:
        remedy = f"Fix the pattern or the program; if {len(numbers)} samples are right, add expected: {len(numbers)}"
        raise ValueError(f"read.{name}: {'; '.join(found)}. {remedy}")
    return numbers


def _number(quantity: Quantity, match: Match) -> float:
    """Return a number of a quantity in SI units. Raises ValueError with a reason, and perhaps what to do."""
    text, unit, whole, behind = (match.value or "").strip(), match.unit, match.whole, match.behind
    wanted = find_unit(quantity.unit)
    seconds = parse_duration(text, quantity.comma) if wanted.powers == {"s": 1} else None
    number = parse_scaled(text, quantity.comma) if seconds is None else seconds
    if whole:
        raise ValueError(f"only part of {quoted(whole)}", f"Capture all of it, {_how_to_capture(text, whole)}")
    if seconds is not None:
        return seconds
    if unit is None:
        if _contradicts(behind, quantity.unit):
            reason = f"its unit is {quoted(behind)} in the output, but {quantity.unit or 'empty'} in the campaign"
            raise ValueError(reason, "Correct `unit`, or capture the unit as a group named unit")
        return scaled(number, wanted.factor)
    found = find_unit(unit, kind=wanted.si)
    if found.powers == wanted.powers:
        return scaled(number, found.factor)
    if not found.is_inverse_of(wanted):
        raise ValueError(f"its unit {quoted(unit)} cannot be converted to {quantity.unit or 'a dimensionless number'}")
    if number == 0:
        raise ValueError(f"0 {unit} has no inverse")
    return 1 / scaled(number, found.factor)


@lru_cache(maxsize=1000)
def _contradicts(behind: str, declared: str) -> bool:
    """Return whether the word behind a number is a unit that converts it by another factor than the declared one.

    Not if it is decimal and the declared one binary: many programs mean MiB by MB. Nor if it may be another word.
    """
    if behind in ("", "min", "d", "h", "x", "J", "W"):  # also minimum and others
        return False
    try:
        found, wanted = find_unit(behind), find_unit(declared)
    except UserError:
        return False
    if found.powers != wanted.powers or found.factor == wanted.factor:
        return False
    return not ("i" in declared[:2] and 0.8 < found.factor / wanted.factor < 1)


def _other_unit(name: str, quantity: Quantity, match: Match) -> str:
    """Return the problem of a line that a pattern leaves out because of its unit; empty if it is no such unit."""
    try:
        found, matched = find_unit(match.unit), find_unit(match.behind)
    except UserError:
        return ""
    if found.powers != matched.powers and not found.is_inverse_of(matched):
        return ""
    left_out = f"line {match.line}: {name} has the unit {quoted(match.unit)} here, but the pattern '{quantity.pattern}'"
    remedy = r"Capture the unit as a group named unit: (?P<value>[\d.]+) ?(?P<unit>\S+)"
    return f"{left_out} matches only {quoted(match.behind)}. {remedy}"


def _how_to_capture(text: str, whole: str) -> str:
    """Return how to capture a number of which a group is a part, for a message."""
    before, _, rest = whole.partition(text)
    if rest.startswith(tuple("kKMGT")):
        return r"as ([\d.]+[kMG]?) does, or match the suffix behind the group to ignore it"
    if re.search(r"\d:|\d[dhm]", before + text + rest):
        return r"as (\S+) does: 1:02:03 and 2m5.25s are read as times"
    if re.search(r"\d[,'’_\s]|[,'’_\s]\d", whole):
        return r"as ([\d.,'’_]+) does; or match the sign outside of the group, if it separates two numbers"
    return r"as ([\d.,eE+-]+) does, or its unit as a group named unit"


def _search(output: str | Path, patterns: dict[str, str], near: dict[str, list[str]]) -> Iterator[Match]:
    """Yield what matching.py prints, which runs as a process to be bounded in time.

    near: for a pattern, wider ones of numbers that it should match as well.
    """
    if not patterns:
        return
    with tempfile.TemporaryFile() if isinstance(output, str) else _open(output) as file:
        if isinstance(output, str):
            file.write(output.encode("utf-8", "replace"))
            file.seek(0)
        num_bytes = file.seek(0, 2)
        file.seek(0)
        seconds = LEAST_SECONDS + (len(patterns) + sum(map(len, near.values()))) * num_bytes / BYTES_PER_SECOND
        once = [name for name in patterns if name in ("check.match", "check.reject")]
        options = json.dumps({"patterns": patterns, "once": once, "near": near, "seconds": seconds})
        command = [sys.executable, "-I", "-S", matching.__file__, str(file.fileno())]
        shared = {"pass_fds": [file.fileno()], "input": options}
        done = subprocess.run(command, **shared, capture_output=True, text=True, check=False)
    if done.returncode:  # such as one that ran out of memory
        found = f"matching ended with status {done.returncode}: {one_line(done.stderr, 200)}"
        yield Match(None, None, f"{found}. Simplify the patterns")
    yield from (Match(*json.loads(line)) for line in done.stdout.splitlines())


def _open(path: Path):
    if not path.is_file():
        raise UserError(f"{path}: no such file, or not a regular file. Write the output to a file.")
    return path.open("rb")


def program_of(name: str) -> str:
    """Return the name of an import format without that of its notation: nccl-tests of nccl-tests-json."""
    return re.sub("-(text|jsonl?|log)$", "", name)


def read_results(
    output: Path, name: str, shape: tuple[int, int], processes_per_node: int, plugins: Iterable[Path] = ()
) -> list[FormatResult]:
    """Return the results of an output in an import format. Raises UserError with the reason if it has none.

    shape: nodes and GPUs per node of the run. A process reads them, because it needs libraries.
    plugins: with more formats.
    """
    command = [sys.executable, READ_OUTPUT, output, name, *shape, processes_per_node, *plugins]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(one_line(done.stderr, 500))
    return [FormatResult(**result) for result in json.loads(done.stdout)]


def find_result(results: list[FormatResult], size: int | None) -> FormatResult:
    """Return the result of a message size; without one, the only result. Raises ValueError."""
    found = [each for each in results if size in (None, each.size)]
    of_size = f" for {text_of_size(size)}" if size else ""
    if len(found) == 1:
        if found[0].failure:
            raise ValueError((f"line {found[0].line}: " if found[0].line else "") + found[0].failure)
        return found[0]
    if found:
        remedy = "List message sizes under sizes" if size is None else "Run one test per launch"
        raise ValueError(f"{len(found)} results{of_size}: {_listed([each.name for each in found])}. {remedy}")
    sizes = [text_of_size(each.size) for each in results if each.size is not None]
    raise ValueError(f"no result{of_size}; the output has {_listed(sizes) or 'no message sizes'}")


def ignored_sizes(results: list[FormatResult], sizes: Collection[int | None]) -> str:
    """Return the sizes of an output beside the wanted ones as text; empty without any, or if no size is wanted."""
    others = [each.size for each in results if each.size is not None and each.size not in sizes]
    return _listed([text_of_size(size) for size in others]) if any(sizes) else ""


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
