"""Show what a campaign's `read` and `check` find in a saved output of a program; nothing runs.

python workflow/scripts/try_output.py config/my.yaml old.log
python workflow/scripts/try_output.py config/my.yaml old.log --benchmark hpl    name of one of several programs

Prints the lines that match and what they give. Exit status 2 if a launch with this output would fail.
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from regatta.campaign.load import load_campaign
from regatta.campaign.program_entries import BENCHMARK, num_ranks
from regatta.core.benchmarks import parse_bytes
from regatta.core.errors import USER_ERROR, UserError, nearest, run_script
from regatta.core.matching import lines_of_stream
from regatta.core.readers import (
    FormatResult,
    OutputReading,
    Quantity,
    find_result,
    ignored_sizes,
    parse_reader,
    read_quantities,
    read_results,
)
from regatta.core.recorded_times import sample_ns
from regatta.core.text import duration, one_line, plural
from regatta.core.text import shape as text_of_shape
from regatta.core.units import find_unit
from regatta.run.program_launches import shape_of_run
from regatta.runtimes.plugins import PLUGINS

MOST_LINES, MOST_TEXT = 5, 100  # shown of a quantity; characters of a line
MOST_RESULTS = 40  # shown of an import format


def find_entry(config: Path, entries: list[dict], name: str | None) -> dict:
    """Return the entry of a program. Raises UserError without one, and with several if none is named."""
    names = [entry["name"] for entry in entries]
    found = entries if name is None else [entry for entry in entries if entry["name"] == name]
    if len(found) == 1:
        return found[0]
    if not entries:
        raise UserError(f"{config}: no entry with `benchmark: {BENCHMARK}`. docs/benchmarks/program.md has an example.")
    if name is None:
        choices = f"--benchmark {names[0]} (make: BENCHMARK={names[0]}). Known: {', '.join(names)}"
        raise UserError(f"{config} has {plural(len(entries), 'program')}. Name one: {choices}.")
    if found:
        raise UserError(f"{config}: {len(found)} entries are named {name}. Rename all but one.")
    raise UserError(f"{config}: no program is named {name}.{nearest(name, names)} Known: {', '.join(names)}.")


def describe(output: Path, entry: dict, reading: OutputReading) -> Iterator[str]:
    """Yield the lines to print: what each pattern matched, and what that gives."""
    reader = parse_reader(entry["read"], entry.get("check"))
    for name, quantity in reader.quantities.items():
        numbers = reading.matched_lines.get(name, [])
        yield f"read.{name}: {plural(len(numbers), 'match', 'matches')} of '{quantity.pattern}'"
        texts = _lines(output, numbers[:MOST_LINES])
        for number, read in zip(numbers[:MOST_LINES], reading.texts.get(name, ()), strict=False):
            yield f"  line {number}: {one_line(texts.get(number, '').strip(), MOST_TEXT)}"
            yield f"    {_as_read(*read, quantity)}"
        yield from [f"  and {len(numbers) - MOST_LINES} more"] if len(numbers) > MOST_LINES else []
        if name in reading.samples:
            samples = reading.samples[name]
            ends = f"{_number(min(samples), quantity)} to {_converted(max(samples), quantity)}"
            dropped = f" after dropping the first {quantity.drop}" if quantity.drop else ""
            yield f"  gives {plural(len(samples), 'sample')}{dropped}: {ends}"
        elif name in reading.values:
            yield f"  gives {_converted(reading.values[name], quantity)}; {quantity.better} is better"


def describe_results(results: list[FormatResult], sizes: list[int | None]) -> Iterator[str]:
    """Yield the lines to print of an output in an import format."""
    for result in results[:MOST_RESULTS]:
        line = f"line {result.line}: " if result.line else ""
        num = f", {len(result.samples)} samples" if len(result.samples) > 1 else ""
        given = result.failure or f"{duration(statistics.median(result.samples))}{num}"
        yield f"  {line}{result.name}: {given}"
    if len(results) > MOST_RESULTS:
        yield f"  and {len(results) - MOST_RESULTS} more"
    if others := ignored_sizes(results, sizes):
        yield f"  not in sizes, ignored: {others}"


def results_in_shape(
    output: Path, entry: dict, shapes: list[tuple[int, int]]
) -> tuple[tuple[int, int], list[FormatResult]]:
    """Return the first shape of a campaign that an output can be of, and its results. Raises UserError without one."""
    for shape in shapes:
        try:
            return shape, read_results(output, entry["read"], *shape_of_run(_spec(entry, shape)), PLUGINS)
        except UserError as error:
            problem = error
    raise problem


def _spec(entry: dict, shape: tuple[int, int]) -> dict:
    of = dict(zip(("nodes", "gpus_per_node"), shape, strict=True))
    return of | {"device": None, "program": {"ranks": entry.get("ranks", "gpu")}}


def _nums_ranks(entry: dict, shapes: list[tuple[int, int]]) -> set[int]:
    return {num_ranks(_spec(entry, shape)) for shape in shapes}


def try_format(output: Path, entry: dict, shapes: list[tuple[int, int]]) -> list[str]:
    """Print the results of an output in an import format. Returns why a launch with this output would fail."""
    numbers = _nums_ranks(entry, shapes)
    problems = list(read_quantities(output, parse_reader(entry["read"], entry.get("check")), numbers).problems)
    shape, results = results_in_shape(output, entry, shapes)
    sizes = [parse_bytes(size) for size in entry.get("sizes", ())] or [None]
    print(f"read: {entry['read']}: {plural(len(results), 'result')} of {text_of_shape(*shape)} ranks")
    print(*describe_results(results, sizes), sep="\n")
    for size in sizes:
        try:
            _ = [sample_ns(number, Quantity(unit="s")) for number in find_result(results, size).samples]
        except ValueError as error:
            problems.append(f"read: {error}")
    return problems


def _as_read(text: str, value: float | None, quantity: Quantity) -> str:
    """Return a number as it is printed, and in the unit of the campaign."""
    return one_line(f"{text}: not read" if value is None else f"{text} is {_converted(value, quantity)}", MOST_TEXT)


def _converted(value: float, quantity: Quantity) -> str:
    return f"{_number(value, quantity)} {quantity.unit}".rstrip()


def _number(value: float, quantity: Quantity) -> str:
    """Return a number in the unit of the campaign with all digits that a program may print."""
    return f"{value / find_unit(quantity.unit).factor:,.12g}"


def _lines(output: Path, numbers: list[int]) -> dict[int, str]:
    """Return the text of these lines, the first one of each."""
    found: dict[int, str] = {}
    with output.open("rb") as stream:
        for number, text, *_ in lines_of_stream(stream) if numbers else ():
            if number > max(numbers):
                break
            if number in numbers:
                found.setdefault(number, text)
    return found


def _unrecordable(entry: dict, reading: OutputReading) -> Iterator[str]:
    """Yield why a number that was read cannot be a time: it is 0, negative, or out of range."""
    for name, given in entry["read"].items():
        numbers = reading.samples.get(name) or [value for key, value in reading.values.items() if key == name]
        try:
            _ = [sample_ns(number, Quantity(**given)) for number in numbers]
        except ValueError as error:
            yield f"read.{name}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", type=Path, help="campaign file with a program")
    parser.add_argument("output", help="file with the program's output")
    parser.add_argument("--benchmark", help="name of the program's entry")
    given = parser.parse_args()
    if not given.output:
        parser.error("the path of the output is empty; specify a file (make: FILE=old.log)")
    output = Path(given.output)
    data = load_campaign(given.campaign, may_lack_files=True).data
    entry = find_entry(given.campaign, [e for e in data["benchmarks"] if e["benchmark"] == BENCHMARK], given.benchmark)
    shapes = [shape for of in data["shapes"] for shape in itertools.product(of["nodes"], of["gpus_per_node"])]
    if isinstance(entry["read"], str):
        problems = try_format(output, entry, shapes)
    else:
        reading = read_quantities(output, parse_reader(entry["read"], entry.get("check")), _nums_ranks(entry, shapes))
        print(*describe(output, entry, reading), sep="\n")
        problems = [*reading.problems, *_unrecordable(entry, reading)]
    if problems:
        print("A launch with this output would fail:", *problems, sep="\n  ", file=sys.stderr)
        sys.exit(USER_ERROR)
    print("A launch with this output would pass.")


if __name__ == "__main__":
    run_script(main)
