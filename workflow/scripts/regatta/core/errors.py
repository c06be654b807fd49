"""User errors, and what all scripts share: exit statuses, and the copy of their output in a log file."""

import argparse
import contextlib
import difflib
import errno
import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Exit statuses (README). 1 is also used for a failed gate, and for a comparison with a slower cell.
UNEXPECTED_ERROR, USER_ERROR, INCOMPLETE, NOTHING_MEASURED, GATE_UNDECIDED = 1, 2, 3, 4, 5
CLOSED_PIPE = 128 + signal.SIGPIPE  # exit status when stdout is closed (SIGPIPE)
INTERRUPTED = 128 + signal.SIGINT  # by Ctrl-C


class UserError(Exception):
    """An error that the user can fix. Its text states what was found, where, and what to do; no traceback is shown."""


class ProcessKilled(Exception):
    """A process that computes beside this one was killed. Its text states what to do; no traceback is shown."""


class Problem(NamedTuple):
    """A problem at a key of a stack or a cluster file, for a message that names file, line and value.

    is_missing: the key names something missing on this machine: the campaign can be planned here, but not run.
    is_in_id: cell ids depend on what is missing.
    """

    key: tuple[str | int, ...]
    text: str
    has_value: bool = True
    is_missing: bool = False
    is_in_id: bool = False


DID_YOU_MEAN = "Did you mean"


def exit_with_user_error(text: str) -> NoReturn:
    """Print a message and exit with the status of a user error."""
    print(text, file=sys.stderr)
    sys.exit(USER_ERROR)


@contextlib.contextmanager
def ending_on_user_errors() -> Iterator[None]:
    """End the process with a user error's message. Snakemake would add locations in the rules."""
    try:
        yield
    except UserError as error:
        exit_with_user_error(str(error))
    except OSError as error:
        exit_with_user_error(describe_os_error(error))


def nearest(word: object, known: Iterable[object]) -> str:
    """Return ` Did you mean 'x'?` for the known word that is closest to `word`, or an empty string."""
    names = [str(name) for name in known]
    by_lower = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6) or [
        by_lower[name] for name in difflib.get_close_matches(str(word).lower(), by_lower, n=1, cutoff=0.6)
    ]
    return f" {DID_YOU_MEAN} '{matches[0]}'?" if matches else ""


def run_script(main: Callable[[], None], *, is_short: bool = False, status_if_killed: int = UNEXPECTED_ERROR) -> None:
    """Run a script's main function. A UserError ends it with one message, exit status 2, and no traceback.

    So does ProcessKilled, with `status_if_killed`. It ends quietly with exit status 141 when its output is no longer
    read, as with `| head`, and with 130 after Ctrl-C. Messages that cannot be printed are dropped. is_short: without
    garbage collection, which takes a tenth of the time and frees almost nothing.
    """
    if is_short:
        gc.disable()
    _prepare_streams()
    sys.stderr = Output(sys.stderr)
    try:
        try:
            main()
        finally:
            _flush_stdout()
    except UserError as error:
        exit_with_user_error(str(error))
    except ProcessKilled as error:
        print(error, file=sys.stderr)
        sys.exit(status_if_killed)
    except BrokenPipeError:
        sys.exit(CLOSED_PIPE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is None and error.errno not in NO_SPACE:
            raise
        exit_with_user_error(describe_os_error(error))


def _prepare_streams() -> None:
    """Open /dev/null for each closed standard stream (`>&-`), and escape characters that cannot be encoded.

    Otherwise the next file opened would reuse the descriptor and receive the output.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_lost_output() -> None:
    """Keep this process running if its output is no longer read or the disk is full."""
    _prepare_streams()
    sys.stdout, sys.stderr = Output(sys.stdout), Output(sys.stderr)


def keep_running_unread() -> None:
    """Keep this process running if its output is no longer read, also that of Snakemake's log, which has begun."""
    before = (sys.stdout, sys.stderr)
    drop_lost_output()
    for handler in logging.getLogger("snakemake.logging").handlers:
        if getattr(handler, "stream", None) in before:
            handler.setStream(Output(handler.stream))


def _flush_stdout() -> None:
    """Flush the output while an error can still be reported: when the interpreter exits, it would be a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)
        raise


def _discard(stream: TextIO) -> None:
    """Redirect a failed stream to /dev/null, because the interpreter flushes it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def describe_os_error(error: OSError) -> str:
    """Return what the operating system refused, where, and what to do, in one line."""
    where = error.filename or "standard output or the results folder"
    if error.errno in NO_SPACE:
        return f"{where}: no space left on the disk. Free some space and run the same command again."
    return f"{where}: {error.strerror}. Check the path and its write permission."


def script_parser(text: str, *, has_log: bool = False) -> argparse.ArgumentParser:
    """Return the parser of a script, whose help begins with its docstring.

    has_log: add `--log FILE`, the `log:` of a rule, beside the terminal or the job's output. Name it first on the
    command line: errors in options before it are not logged.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if has_log:
        about = "copy what is printed to this file"
        parser.add_argument("--log", type=Path, action=_CopyOutput, metavar="FILE", help=about)
    return parser


def positive(text: str) -> int:
    """Return the value of an option that is an integer above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be an integer of at least 1")
    return int(text)


def add_parent_option(parser: argparse.ArgumentParser) -> None:
    """Add `--parent PID`, for a script that stops when its parent exits."""
    text = "PID of the parent process; stop when it exits (default: the current parent)"
    parser.add_argument("--parent", type=int, default=os.getppid(), metavar="PID", help=text)


class _CopyOutput(argparse.Action):
    def __call__(self, _parser: object, namespace: argparse.Namespace, path: Path, _option: str | None = None) -> None:
        setattr(namespace, self.dest, path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            log = path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)
        except OSError as error:  # measurements must not fail because the log cannot be written
            print(f"{path}: no log written ({error.strerror}).", file=sys.stderr)
            return
        sys.stdout, sys.stderr = Output(sys.stdout, log), Output(sys.stderr, log)


class Output:
    """A text stream that drops what it cannot write (closed pipe, full disk), and copies all to a log if it has one.

    Everything else, such as isatty, is delegated to the stream.
    """

    def __init__(self, stream: TextIO | None, log: TextIO | None = None) -> None:
        self._stream, self._log = stream, log

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):  # full disk: the terminal still shows it
            if self._log:
                self._log.write(text)
        try:
            return self._stream.write(text) if self._stream else len(text)
        except OSError:
            _discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            if self._stream:
                self._stream.flush()
        except OSError:
            _discard(self._stream)
