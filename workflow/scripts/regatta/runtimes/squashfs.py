"""SquashFS images: identified by their SHA-256, which is computed once, and recognized in jobs without reading them."""

import contextlib
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from regatta.core.text import size
from regatta.runtimes.base import RECENT_SECONDS, file_hash
from regatta.store.launch_files import read_json, write_json

MAGIC, SUPERBLOCK_BYTES = b"hsqs", 96  # kernel.org, filesystems/squashfs
LARGE_BYTES = 2**30  # reading it takes seconds


def sha256(path: Path) -> str:
    """Return the SHA-256 of an image, from the user's cache if size, time and inode are the same.

    Raises OSError, or ValueError if it is not a SquashFS image.
    """
    fingerprint(path)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "regatta", "images.json")
    known, name, found = read_json(cache), str(path.resolve()), path.stat()
    known = known if isinstance(known, dict) else {}
    # As text: JSON numbers of this size lose digits.
    file = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
    entry = known.get(name)
    entry = entry if isinstance(entry, dict) and entry.get("size_times_inode") == file else {}
    if re.fullmatch("[0-9a-f]{64}", str(entry.get("sha256"))):
        return entry["sha256"]
    if found.st_size >= LARGE_BYTES:
        print(f"Computing the SHA-256 of {path} ({size(found.st_size)}), once ...", file=sys.stderr, flush=True)
    digest = file_hash(path)
    if abs(time.time() - found.st_mtime) > RECENT_SECONDS and cache.is_absolute():  # no cache without a home directory
        with contextlib.suppress(OSError):  # a full or read-only home directory: the next plan reads the image again
            write_json(cache, {**known, name: {"size_times_inode": file, "sha256": digest}})
    return digest


def fingerprint(path: Path) -> str:
    """Return size, time and a hash of the superblock. Raises OSError, or ValueError if it is not a SquashFS image."""
    if path.exists() and not path.is_file() and not path.is_dir():  # reading a FIFO would block
        raise ValueError("is not a SquashFS image")
    with path.open("rb") as file:
        superblock, found = file.read(SUPERBLOCK_BYTES), os.fstat(file.fileno())
    if len(superblock) < SUPERBLOCK_BYTES or not superblock.startswith(MAGIC):
        raise ValueError("is not a SquashFS image")
    return f"{found.st_size} {int(found.st_mtime)} {hashlib.sha256(superblock).hexdigest()}"


def identified_by(hash_stack: Callable[[dict, Callable[[Path], str]], str]) -> dict[str, Callable]:
    """Return `identify` and `image_state` of a runtime. hash_stack(stack, hash_image): hash_image hashes one file."""

    def identify(stack: dict) -> dict[str, str | None]:
        wrapper = file_hash(Path(stack["wrapper"])) if stack["wrapper"] else None
        return {"image_id": hash_stack(stack, sha256) if stack["image"] else None, "wrapper_sha256": wrapper}

    return {"identify": identify, "image_state": lambda stack: hash_stack(stack, fingerprint)}
