"""Strip line prefixes added by launchers, log collectors and documents."""

import re

from regatta.core.matching import ESCAPES

PREFIXES = {
    "mpirun --tag-output": r"\[\d+,\d+\]<std(?:out|err)>: ?",
    "mpirun -l": r"\[\d{1,7}\] ",
    "srun -l": r" {0,6}\d{1,7}: ",
    "kubectl logs --prefix": r"\[pod/[^\]\s]{1,300}\] ",
    "docker compose": r"[\w.-]{1,100} +\| ",
    "timestamp": r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z| ?[+-]\d\d:?\d\d)?\]?:? ",
    "Markdown quote": r"> ?",
    "indentation": r"(?: {4}|\t)",
}
MIN_SHARE = 0.9  # of the lines that are not blank; others, as from the launcher itself, stay as they are
MAX_PREFIXES = 4  # applied in sequence, such as a timestamp before a rank


def strip_prefixes(text: str) -> str:
    """Return a text without ANSI escapes and common line prefixes. Line numbers do not change."""
    lines = ESCAPES.sub("", text).split("\n")
    for _ in range(MAX_PREFIXES):
        filled = [line for line in lines if line.strip()]
        found = (re.compile(prefix) for prefix in PREFIXES.values())
        usual = next((one for one in found if _share(one, filled) >= MIN_SHARE), None)
        if usual is None:
            break
        lines = [usual.sub("", line, count=1) if usual.match(line) else line for line in lines]
    return "\n".join(lines)


def _share(prefix: re.Pattern, lines: list[str]) -> float:
    return sum(prefix.match(line) is not None for line in lines) / len(lines) if lines else 0.0
