"""Why files were not imported, as a short text: many files may have the same reason, or as many reasons as files."""

import re

from regatta.core.errors import UserError
from regatta.core.text import one_line

NOTHING = " Nothing was imported."
MOST_LISTED, MOST_FILES = 20, 20  # reasons in a text, and files of each reason
MOST_CHARACTERS, FEW, MOST_OF_FEW = 300, 3, 1000  # length of a reason, and with few refused files


def refused_text(refused: dict[str, str]) -> str:
    """Return why files were not imported: a line for each reason with its files, bounded. refused: see Outcome."""
    most = MOST_OF_FEW if len(refused) <= FEW else MOST_CHARACTERS
    by_reason: dict[str, list[str]] = {}
    for path, reason in refused.items():
        line, text = re.fullmatch(r"(:\d+)?:? ?(.*)", reason.removeprefix(path), re.DOTALL).groups()
        by_reason.setdefault(one_line(text.replace(NOTHING, ""), most), []).append(f"{path}{line or ''}")
    lines = [f"{', '.join(_first(places, MOST_FILES, 'files'))}: {text}" for text, places in by_reason.items()]
    return "\n".join(_first(lines, MOST_LISTED, "reasons"))


def _first(texts: list[str], most: int, what: str) -> list[str]:
    """Return texts, or the first ones and how many more there are."""
    return texts if len(texts) <= most else [*texts[:most], f"and {len(texts) - most} more {what}"]


def nothing_imported(refused: dict[str, str]) -> UserError:
    text = f"{refused_text(refused)}\n{NOTHING.strip()}" if len(refused) > 1 else next(iter(refused.values()))
    return UserError(text)
