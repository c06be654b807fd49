"""The one exception that a user's mistake raises, the hint that its messages share, and how a script ends with it."""

import difflib
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Exit statuses (README). 1 is also that of a gate that failed, and of a comparison in which a cell got slower.
UNEXPECTED_ERROR, USER_ERROR, INCOMPLETE, NOTHING_MEASURED = 1, 2, 3, 4
CLOSED_PIPE = 128 + signal.SIGPIPE  # exit status by which shells know a program that lost its reader


class UserError(Exception):
    """A mistake that the user can mend. Its text says what was found, where, and what to do; no traceback is shown."""


class Problem(NamedTuple):
    """What is wrong at a key of a stack or a cluster file, for a message that names file, line and value.

    is_missing: this machine lacks something that the key names. A campaign with such problems alone can be planned, but
    not run, here. is_in_id: cell ids depend on what is missing.
    """

    key: tuple[str | int, ...]
    text: str
    has_value: bool = True
    is_missing: bool = False
    is_in_id: bool = False


def exit_with_user_error(text: str) -> NoReturn:
    """End the program with a message, and the exit status of a user's error."""
    print(text, file=sys.stderr)
    sys.exit(USER_ERROR)


def nearest(word: object, known: Iterable[object]) -> str:
    """Return ` Did you mean 'x'?` for the known word that is most like `word`, or an empty string."""
    matches = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.6)
    return f" Did you mean '{matches[0]}'?" if matches else ""


def run_script(main: Callable[[], None]) -> None:
    """Run a script's main function. A UserError ends it with one message, exit status 2, and no traceback.

    Where its output is no longer read, as behind `| head`, it ends quietly with exit status 141.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be UTF-8
    try:
        try:
            main()
        finally:
            _flush_stdout()
    except UserError as error:
        exit_with_user_error(str(error))
    except BrokenPipeError:
        sys.exit(CLOSED_PIPE)
    except OSError as error:
        if error.filename is None and error.errno not in NO_SPACE:
            raise
        exit_with_user_error(describe_os_error(error))


def _flush_stdout() -> None:
    """Write what was printed, while an error can still be told: at the interpreter's end it would be a traceback."""
    if sys.stdout is None:  # closed
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter does not try again
        raise


def describe_os_error(error: OSError) -> str:
    """Return what the operating system refused, where, and what to do, in one line."""
    where = error.filename or "standard output or the results folder"
    if error.errno in NO_SPACE:
        return f"{where}: no space left on the disk. Free some and run the same line again."
    return f"{where}: {error.strerror}. Check that the path is right and that this user may write there."
