"""Print code lines by package (no blanks, comments, docstrings), and the longest line of Python.

    python3 tests/code_lines.py           of all packages
    python3 tests/code_lines.py --check   fail if a package has more than code_lines.csv permits
    python3 tests/code_lines.py --write   write the present numbers into code_lines.csv

A package may grow only by an edit of code_lines.csv in the same commit, which says why.
"""

import ast
import csv
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "tests" / "code_lines.csv"
SUFFIXES = {".py", ".smk", ".j2", ".js", ".css", ".yaml"}
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
COMMENTS = re.compile(r"/\*.*?\*/|\{#.*?#\}|^\s*(#|//).*?$", re.DOTALL | re.MULTILINE)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    owners = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and n.body]
    documented = [owner.body[0] for owner in owners if ast.get_docstring(owner, clean=False) is not None]
    return {line for first in documented for line in range(first.lineno, first.end_lineno + 1)}


def num_lines(path: Path) -> int:
    """Return the number of lines with code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return sum(1 for line in COMMENTS.sub("", text).splitlines() if line.strip())
    tokens = tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__)
    spans = [range(token.start[0], token.end[0] + 1) for token in tokens if token.type not in NOT_CODE]
    return len({line for span in spans for line in span} - docstring_lines(ast.parse(text)))


def package_of(path: Path) -> str:
    """Return the folder that a file is counted in: within workflow, at most two below workflow/scripts."""
    parts = path.relative_to(ROOT).parent.parts
    return "/".join(parts[: 4 if parts[:2] == ("workflow", "scripts") else 2])


def main() -> int:
    paths = [path for of in ("workflow", "benchmarks") for path in (ROOT / of).rglob("*") if path.suffix in SUFFIXES]
    code = Counter()
    for path in paths:
        code[package_of(path)] += num_lines(path)
    if "--write" in sys.argv:
        with LEDGER.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("package", "lines"), *sorted(code.items())])
    with LEDGER.open(encoding="utf-8", newline="") as file:
        permitted = {row["package"]: int(row["lines"]) for row in csv.DictReader(file)}
    over = {name: num for name, num in code.items() if num > permitted.get(name, 0)}
    for name, num in over.items():
        print(f"{name} has {num} code lines; tests/code_lines.csv permits {permitted.get(name, 0)}")
    if "--check" in sys.argv:
        return bool(over)
    for name, num in code.most_common():
        print(f"{num:6} {name}")
    print(f"{code.total():6} code lines; tests/code_lines.csv permits {sum(permitted.values())}")
    paths = [path for path in paths if path.suffix == ".py"]
    lines = [(len(line) - 1, f"{path.name}:{i}") for path in paths for i, line in enumerate(path.open(), 1)]
    print("{:6} characters in the longest line: {}".format(*max(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
