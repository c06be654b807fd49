"""The one exception that a user's mistake raises, the hint that its messages share, and how a script ends with it."""

import difflib
import errno
import sys
from collections.abc import Callable, Iterable

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """A mistake that the user can mend. Its text says what was found, where, and what to do; no traceback is shown."""


def nearest(word: object, known: Iterable[object]) -> str:
    """Return ` Did you mean 'x'?` for the known word that is most like `word`, or an empty string."""
    matches = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.6)
    return f" Did you mean '{matches[0]}'?" if matches else ""


def run_script(main: Callable[[], None]) -> None:
    """Run a script's main function. What the user can mend ends it with one message, exit code 1, and no traceback."""
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
    except OSError as error:
        if error.filename is None and error.errno not in NO_SPACE:
            raise
        sys.exit(describe_os_error(error))


def describe_os_error(error: OSError) -> str:
    """Return what the operating system refused, where, and what to do, in one line."""
    where = error.filename or "the results folder"
    if error.errno in NO_SPACE:
        return f"{where}: no space left on the disk. Free some and run the same line again."
    return f"{where}: {error.strerror}. Check that the path is right and that this user may write there."
