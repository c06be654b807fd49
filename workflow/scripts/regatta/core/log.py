"""Copy what a script prints to a log file: the `log:` of its rule, beside the terminal or the job's output."""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TextIO


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """Add `--log FILE`. Name it first on the command line: errors in options before it are not logged."""
    parser.add_argument(
        "--log", type=Path, action=_CopyOutput, metavar="FILE", help="copy what is printed to this file"
    )


class _CopyOutput(argparse.Action):
    def __call__(self, _parser: object, namespace: argparse.Namespace, path: Path, _option: str | None = None) -> None:
        setattr(namespace, self.dest, path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            log = path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)
        except OSError as error:  # measurements must not fail for want of a log
            print(f"{path}: no log is written ({error.strerror}).", file=sys.stderr)
            return
        sys.stdout, sys.stderr = _Copied(sys.stdout, log), _Copied(sys.stderr, log)


class _Copied:
    """A text stream whose output also goes to a log. Everything else, such as isatty, is the stream's."""

    def __init__(self, stream: TextIO | None, log: TextIO) -> None:
        self._stream, self._log = stream, log

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):  # full disk: the terminal still shows it
            self._log.write(text)
        return self._stream.write(text) if self._stream else len(text)

    def flush(self) -> None:
        if self._stream:
            self._stream.flush()
