"""How files and images are put into a page as data URIs, so that it is one file."""

import base64
import gzip
from collections.abc import Callable
from functools import partial

from regatta.report.images import mime_of

MAX_PLAIN_BYTES = 100_000  # a larger CSV is embedded as .csv.gz, a tenth of its size; pandas and R read that as it is
MAX_PLAIN_BYTES_LARGE = 2_000  # the same on a page of thousands of cells


def data_uri(content: str | bytes, mime: str) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return f"data:{mime};base64,{base64.b64encode(raw).decode()}"


def image_uri(image: bytes) -> str:
    return data_uri(image, mime_of(image))


def filters(is_large: bool = False) -> dict[str, Callable]:
    """Return the filters of every page's templates. is_large: of a page of thousands of cells."""
    most = MAX_PLAIN_BYTES_LARGE if is_large else MAX_PLAIN_BYTES
    return {"image_uri": image_uri, "download": partial(download, max_plain_bytes=most)}


def download(csv: str, name: str, max_plain_bytes: int) -> tuple[str, str]:
    """Return the name under which a CSV is saved, and its URI."""
    raw = csv.encode()
    if len(raw) <= max_plain_bytes:
        return name, data_uri(raw, "text/csv")
    return f"{name}.gz", data_uri(gzip.compress(raw, mtime=0), "application/gzip")
