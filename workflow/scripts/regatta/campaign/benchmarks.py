"""What the driver knows of each benchmark: the axes that its schema declares, and the version that its program declares.

The driver never imports the rank's programs: a program's `VERSION = 1` is read from its source text.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regatta.core.schemas import SCHEMAS, load_schema

PROGRAMS = Path(__file__).resolve().parents[2] / "bench"
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's name, its version (numbers of two versions are not comparable), and its parameters' schema."""

    name: str
    version: int
    schema: dict

    @property
    def parameters(self) -> dict[str, dict]:
        return self.schema["properties"]

    @property
    def is_sampled(self) -> bool:
        """Whether the campaign's sampling decides how many iterations there are; else a parameter does, such as epochs."""
        return self.schema.get("x-sampled", True)


def benchmark_names() -> list[str]:
    return sorted(path.stem for path in (SCHEMAS / "benchmarks").glob("*.yaml"))


@cache
def load_benchmark(name: str) -> Benchmark:
    return Benchmark(name, program_version(PROGRAMS / f"{name}.py"), load_schema(f"benchmarks/{name}"))


def program_version(program: Path) -> int:
    """Return the literal that a rank's program assigns to VERSION. Raises ValueError if it assigns none."""
    for node in ast.parse(program.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "VERSION" for t in node.targets):
            return ast.literal_eval(node.value)
    raise ValueError(f"{program} assigns no VERSION")


def parse_bytes(value: int | str) -> int:
    """Return a number of bytes from a whole number or a text such as `64KiB`. The schema has checked the form."""
    if isinstance(value, int):
        return value
    number, unit = re.fullmatch(r"(\d+) ?([A-Za-z]+)", value).groups()
    return int(number) * UNITS[unit]


def normalise(benchmark: Benchmark, parameters: dict) -> dict:
    """Return a cell's parameters as they are hashed: bytes as numbers, and null where a parameter has no effect."""
    normal = {}
    for name, rule in benchmark.parameters.items():
        value = parameters[name]
        if rule.get("x-unit") == "bytes":
            value = parse_bytes(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        applies = rule.get("x-applies-when", {})
        unless = rule.get("x-unless", {})
        if any(parameters[other] not in values for other, values in applies.items()) or any(
            parameters[other] in values for other, values in unless.items()
        ):
            value = None
        normal[name] = value
    return normal
