"""Locks that the kernel frees when their holder dies, so that a kill -9 never leaves one behind."""

import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import TextIO

from regatta.errors import UserError


def hold(path: Path, taken: str) -> TextIO:
    """Lock a file and return it; the lock lasts until the file is closed or the process ends.

    taken: the message of the UserError that is raised if another process holds the lock; its process id is added.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
            file.close()
            raise UserError(
                f"{path}: this file system has no locks ({error.strerror}). Mount it with them (Lustre: -o flock)."
            ) from None
        if not isinstance(error, BlockingIOError):
            raise
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise UserError(f"{taken} (process {holder})" if holder else taken) from None
    try:
        file.truncate(0)
        os.write(file.fileno(), f"{os.getpid()} on {socket.gethostname()}".encode())
    except OSError as error:  # of a full disk the system names no file
        file.close()
        error.filename = str(path)
        raise
    return file
