"""No container: the Python of a stack is a program of the host."""

import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from regatta.core.errors import Problem
from regatta.runtimes.base import Runtime, Site, is_below

IMAGE_KEYS = ("image", "runtime", "runtime_options", "binds", "wrapper", "required_host_libraries")
NO_EFFECT = "has no effect on kind host. Remove it, or make the stack contained or bind-mounted."


def host_python(stack: dict) -> Path | None:
    python = stack["python"] or ""
    found = python if "/" in python else shutil.which(python)
    return Path(found) if found else None


def problems(stack: dict, given: Iterable[str], site: Site) -> list[Problem]:
    found = [Problem((key,), NO_EFFECT, has_value=False) for key in IMAGE_KEYS if key in given]
    python = stack["python"]
    # A plain name is looked up on the PATH of the nodes, not here.
    if not python or "/" not in python or is_below(Path(python), site.node_folders):
        return found
    if not (os.path.isfile(python) and os.access(python, os.X_OK)):
        hint = " Neither ~ nor variables are expanded." if re.search(r"^~|\$", python) else ""
        remedy = "Write its absolute path, or add its folder to node_folders if only compute nodes have it."
        text = f"is not an executable file here.{hint} {remedy}"
        found.append(Problem(("python",), text, is_missing=True, is_in_id=True))
    return found


RUNTIME = Runtime(
    place="environment",
    has_image=False,
    identity_keys=(),
    default_python=sys.executable,
    prefix=lambda stack, device, variables, folders: [],
    variable_names=lambda stack, variables: {},
    host_python=host_python,
    identify=lambda stack: {"image_id": None, "wrapper_sha256": None},
    problems=problems,
    library_remedy=lambda stack, libraries: f"Put {libraries} first in LD_LIBRARY_PATH in the stack's `env`.",
)
