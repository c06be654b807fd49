"""Which format a file has, by what stands in it and never by its name, and the file as a Source."""

import codecs
import hashlib
import stat
from pathlib import Path

from regatta.errors import UserError
from regatta.formats.exported_csv import is_exported_csv, read_exported_csv
from regatta.formats.json_file import Node, parse_json
from regatta.formats.nccl_json import is_nccl_json, read_nccl_json
from regatta.formats.nccl_text import is_nccl_text, read_nccl_text
from regatta.formats.osu_text import is_osu_text, read_osu_text
from regatta.formats.pytorch_json import is_pytorch_json, read_pytorch_json
from regatta.formats.pytorch_text import is_pytorch_text, read_pytorch_text
from regatta.formats.reading import Options, Source, lines_of, quoted, refusal
from regatta.formats.suite_json import is_suite_json, read_suite_json
from regatta.formats.tidy_csv import FORMAT as CSV
from regatta.formats.tidy_csv import is_csv, read_csv_text

KNOWN = (
    "a table or --json report of PyTorch's benchmark.py, text or JSON of nccl-tests, a table of OSU, JSON of a suite with"
    " world_size and results, or CSV with the columns benchmark and seconds or as export_results.py writes it"
    " (docs/formats.md)"
)


def read_source(path: Path, options: Options) -> tuple[str, Source]:
    """Return the SHA-256 of what a file holds (content_digest), and what it says. Raises UserError for a file that is foreign, damaged or cut off."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
        content = path.read_bytes() if kind in (stat.S_IFREG, stat.S_IFDIR) else None  # to read a folder is an error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). Nothing was imported.") from None
    if content is None:
        raise UserError(
            f"{path}: is a pipe or device; expected a file. Write it to a file first. Nothing was imported."
        )
    # Logs hold bytes of any kind between their rows. What stands for a broken one matches no figure.
    source = read_text(content.decode("utf-8", "replace"), str(path), options)
    return content_digest(content, source.format), source


def content_digest(content: bytes, kind: str) -> str:
    """Return the SHA-256 by which a file is known again: of its bytes without what editors and spreadsheets change.

    That is the mark in front of the text, the kind of line ends, spaces and line ends behind the text, and in a CSV, of
    which only rows count, lines of nothing but commas. Of most files it is the SHA-256 of the file.
    """
    lines = content.removeprefix(codecs.BOM_UTF8).rstrip().replace(b"\r\n", b"\n").split(b"\n")
    if kind == CSV:
        lines = [line.rstrip() for line in lines if line.strip(b", \t\r")]
    return hashlib.sha256(b"\n".join(lines) + b"\n").hexdigest()


def read_text(text: str, name: str, options: Options) -> Source:
    """Return what the text of a file says. name: for messages."""
    text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    start = text.lstrip()[:1]
    if start == "{":
        return _read_json(Node(parse_json(text, name), name), options)
    if is_csv(text):
        return read_csv_text(text, name, options)
    if is_exported_csv(text):
        return read_exported_csv(text, name)
    lines = lines_of(text)
    for is_format, read in (
        (is_pytorch_text, read_pytorch_text),
        (is_osu_text, read_osu_text),
        (is_nccl_text, read_nccl_text),
    ):
        if is_format(text):
            return read(lines, name, options)
    if start == "[":  # also how many logs begin
        return _read_json(Node(parse_json(text, name), name), options)
    first = next(((number, line) for number, line in enumerate(lines, start=1) if line.strip()), None)
    if first is None:
        raise refusal(name, 1, "the file is empty", KNOWN)
    raise refusal(name, first[0], f"found {quoted(first[1])}, and no known format in the file", KNOWN)


def _read_json(file: Node, options: Options) -> Source:
    for is_format, read in (
        (is_pytorch_json, read_pytorch_json),
        (is_nccl_json, read_nccl_json),
        (is_suite_json, read_suite_json),
    ):
        if is_format(file.value):
            return read(file, options)
    keys = ", ".join(map(str, file.value)) if isinstance(file.value, dict) else type(file.value).__name__
    raise refusal(file.name, 1, f"found JSON of {quoted(keys)}", KNOWN)
