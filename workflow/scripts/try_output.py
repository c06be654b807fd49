"""Show what a campaign's `read` and `check` find in a saved output of a program; nothing runs.

python workflow/scripts/try_output.py config/my.yaml old.log
python workflow/scripts/try_output.py config/my.yaml old.log --benchmark hpl    name of one of several programs

Prints the lines that match and what they give. Exit status 2 if a launch with this output would fail.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from regatta.campaign.load import load_campaign
from regatta.campaign.programs import BENCHMARK, sample_ns
from regatta.core.errors import USER_ERROR, UserError, nearest, run_script
from regatta.core.matching import lines_of_stream
from regatta.core.readers import OutputReading, Quantity, parse_reader, read_quantities
from regatta.core.text import one_line, plural, three
from regatta.core.units import find_unit

MOST_LINES, MOST_TEXT = 5, 100  # shown of a quantity; characters of a line


def find_entry(config: Path, name: str | None) -> dict:
    """Return the entry of a program. Raises UserError without one, and with several if none is named."""
    entries = [e for e in load_campaign(config, may_lack_files=True).data["benchmarks"] if e["benchmark"] == BENCHMARK]
    names = [entry["name"] for entry in entries]
    found = entries if name is None else [entry for entry in entries if entry["name"] == name]
    if len(found) == 1:
        return found[0]
    if not entries:
        raise UserError(f"{config}: no entry with `benchmark: {BENCHMARK}`. docs/benchmarks/program.md has an example.")
    if name is None:
        raise UserError(f"{config} has {plural(len(entries), 'program')}. Name one: --benchmark {names[0]}")
    if found:
        raise UserError(f"{config}: {len(found)} entries are named {name}. Rename all but one.")
    raise UserError(f"{config}: no program is named {name}.{nearest(name, names)} Known: {', '.join(names)}.")


def describe(output: Path, entry: dict, reading: OutputReading) -> Iterator[str]:
    """Yield the lines to print: what each pattern matched, and what that gives."""
    reader = parse_reader(entry["read"], entry.get("check"))
    for name, quantity in reader.quantities.items():
        numbers = reading.matched_lines.get(name, [])
        yield f"read.{name}: {plural(len(numbers), 'match', 'matches')} of '{quantity.pattern}'"
        for number, text in _lines(output, numbers[:MOST_LINES]).items():
            yield f"  line {number}: {one_line(text.strip(), MOST_TEXT)}"
        yield from [f"  and {len(numbers) - MOST_LINES} more"] if len(numbers) > MOST_LINES else []
        if name in reading.samples:
            samples = [_shown(value, quantity) for value in reading.samples[name]]
            ends = f"{three(min(samples))} to {three(max(samples))} {quantity.unit}"
            dropped = f", without the first {quantity.drop}" if quantity.drop else ""
            yield f"  gives {plural(len(samples), 'sample')}{dropped}: {ends}"
        elif name in reading.values:
            yield f"  gives {_shown(reading.values[name], quantity):,.7g} {quantity.unit}; {quantity.better} is better"


def _shown(value: float, quantity: Quantity) -> float:
    return value / find_unit(quantity.unit)[1]


def _lines(output: Path, numbers: list[int]) -> dict[int, str]:
    """Return the text of these lines, the first one of each."""
    found: dict[int, str] = {}
    with output.open("rb") as stream:
        for number, text in lines_of_stream(stream) if numbers else ():
            if number > numbers[-1]:
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
    entry = find_entry(given.campaign, given.benchmark)
    reading = read_quantities(output, parse_reader(entry["read"], entry.get("check")))
    print(*describe(output, entry, reading), sep="\n")
    if problems := [*reading.problems, *_unrecordable(entry, reading)]:
        print("A launch with this output fails:", *problems, sep="\n  ", file=sys.stderr)
        sys.exit(USER_ERROR)
    print("A launch with this output is ok.")


if __name__ == "__main__":
    run_script(main)
