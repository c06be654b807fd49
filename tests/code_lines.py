"""Print code lines by package of workflow/scripts (no blanks, comments, docstrings), and the longest line."""

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

SCRIPTS = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1], "workflow/scripts").resolve()
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    owners = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and n.body]
    documented = [owner.body[0] for owner in owners if ast.get_docstring(owner, clean=False) is not None]
    return {line for first in documented for line in range(first.lineno, first.end_lineno + 1)}


if __name__ == "__main__":
    code, lines, docstrings, longest = Counter(), 0, 0, (0, "")
    for path in sorted(SCRIPTS.rglob("*.py")):
        with tokenize.open(path) as file:
            text = file.read()
        tokens = tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__)
        spans = [range(token.start[0], token.end[0] + 1) for token in tokens if token.type not in NOT_CODE]
        in_docstring = docstring_lines(ast.parse(text))
        parts = path.relative_to(SCRIPTS).parent.parts
        code["/".join(parts[:2]) or "scripts"] += len({line for span in spans for line in span} - in_docstring)
        docstrings += len(in_docstring)
        lines += text.count("\n")
        longest = max(longest, *((len(line), f"{path.name}:{i}") for i, line in enumerate(text.splitlines(), 1)))
    for package, number in code.most_common():
        print(f"{number:6} {package}")
    print(f"{code.total():6} code lines; docstrings are {docstrings / lines:.1%} of all {lines} lines")
    print(f"{longest[0]:6} characters in the longest line: {longest[1]}")
