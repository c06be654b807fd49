"""The one exception that a user's mistake raises, and the nearest-match hint that its messages share."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake that the user can mend. Its text says what was found, where, and what to do; no traceback is shown."""


def nearest(word: object, known: Iterable[object]) -> str:
    """Return ` Did you mean 'x'?` for the known word that is most like `word`, or an empty string."""
    matches = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.6)
    return f" Did you mean '{matches[0]}'?" if matches else ""
