"""Count assertions on sentences: a literal of four words or more in an assert or in pytest.raises(match=...).

Sentences belong in golden files; tests check values. Prints the number by file; fails above LIMIT. Only lower it.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

LIMIT = 100
TESTS = Path(__file__).resolve().parent


def is_sentence(node: ast.AST) -> bool:
    """Return whether a literal below the node has four words or more."""
    literals = (leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant))
    return any(isinstance(text, str) and len(text.split()) >= 4 for text in literals)


def asserts_sentence(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return is_sentence(node.test)
    is_raises = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "raises"
    return is_raises and any(word.arg == "match" and is_sentence(word.value) for word in node.keywords)


if __name__ == "__main__":
    counts = Counter()
    for path in TESTS.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        counts[path.relative_to(TESTS)] = sum(map(asserts_sentence, ast.walk(tree)))
    for path, number in counts.most_common():
        if number and "--quiet" not in sys.argv:
            print(f"{number:5} {path}")
    print(f"{counts.total():5} assertions on sentences; the limit is {LIMIT} (tests/sentence_count.py)")
    sys.exit(counts.total() > LIMIT)
