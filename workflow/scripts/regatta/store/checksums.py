"""Checksums of launch files, by which damage of any size is found (docs/contracts.md, Checksums).

Each line ends with its number in the file and a checksum of the launch's name and of all bytes before the checksum. The
`complete` line also has a digest of all bytes before the line, so that a whole file is verified by one hash. The name
is included, so that a file or a line of another launch does not pass. `bench/harness/launch_file.py` writes the same.
"""

import hashlib
import json
import re

KEY = b',"checksum":"'
NUM_DIGITS = 16  # of a SHA-256
TAIL = len(KEY) + NUM_DIGITS + len(b'"}')
_encode = json.JSONEncoder(separators=(",", ":")).encode
_DIGEST = re.compile(rb'"digest":"([0-9a-f]{64})","line":[0-9]+$')


def sealed(line: dict, launch: str, number: int) -> bytes:
    """Return a line of a launch file with its number, from 1, and its checksum."""
    body = _encode({**line, "line": number})[:-1].encode()
    return body + KEY + _checksum(launch, body) + b'"}\n'


def sealed_file(lines: list[dict], launch: str) -> bytes:
    """Return the content of a launch file whose lines are all known. A `complete` line gets its digest."""
    texts, digest = [], hashlib.sha256()
    for number, line in enumerate(lines, 1):
        last = {"digest": digest.hexdigest()} if line["kind"] == "complete" else {}
        texts.append(sealed(line | last, launch, number))
        digest.update(texts[-1])
    return b"".join(texts)


def has_checksums(content: bytes) -> bool:
    """Return whether a launch file was written with checksums. Those of earlier versions were not."""
    return KEY in content  # quotes within a text are escaped, so this is a key


def is_intact(launch: str, content: bytes) -> bool:
    """Return whether a launch file ends with a `complete` line whose checksum and digest are right."""
    begin = content.rfind(b"\n", 0, len(content) - 1) + 1
    last = content[begin:]
    found = _DIGEST.search(last[: -TAIL - 1]) if last.endswith(b'"}\n') else None
    if found is None or line_problem(launch, last[:-1]):
        return False
    return hashlib.sha256(memoryview(content)[:begin]).hexdigest().encode() == found[1]


def line_problem(launch: str, text: bytes) -> str | None:
    """Return what is wrong with the checksum of a line, without its end, of a file that has checksums; or None."""
    body, tail = text[:-TAIL], text[-TAIL:]
    if not tail.startswith(KEY):
        return "it has no checksum"
    return None if tail[len(KEY) : -2] == _checksum(launch, body) else "its checksum is wrong"


def _checksum(launch: str, body: bytes) -> bytes:
    name = launch.encode("utf-8", "surrogateescape")
    return hashlib.sha256(name + b"\n" + body).hexdigest()[:NUM_DIGITS].encode()
