"""uenv of CSCS: a Slurm plugin mounts a SquashFS file with a software stack. The root file system stays the host's.

Sources: docs.cscs.ch/software/uenv, github.com/eth-cscs/uenv2.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from regatta.core.errors import Problem
from regatta.runtimes import base, host, squashfs
from regatta.runtimes.base import LaunchContext, Runtime, Site, file_hash
from regatta.runtimes.pyxis import option_problems, squashfs_problem

IMAGE = re.compile(r"(?:(?P<path>/[\w./-]+)|(?P<hash>[0-9a-f]{64}))(?::(?P<mount>/[\w./-]+))?", re.ASCII)
DEFAULT_MOUNT = "/user-environment"
TEMPLATE = re.compile(r"\{(first_host|port)\}")


def prefix(stack: dict, _device: str, _variables: Mapping[str, str] | None, _folders: tuple[Path, ...]) -> list[str]:
    """Return `env` with the stack's variables, and the wrapper: views replace variables of srun. Those with a template
    are left to srun: their values are known at launch."""
    values = [f"{name}={value}" for name, value in stack["env"].items() if not TEMPLATE.search(value)]
    return [*(["env", *values] if values else []), *([stack["wrapper"]] if stack["wrapper"] else [])]


def launcher_options(stack: dict, _context: LaunchContext) -> list[str]:
    image = IMAGE.fullmatch(stack["image"])
    return [f"--uenv={image['path'] or image['hash']}:{_mount(stack)}", *stack["runtime_options"]]


def _mount(stack: dict) -> str:
    return os.path.normpath(IMAGE.fullmatch(stack["image"])["mount"] or DEFAULT_MOUNT)  # as in /proc/self/mountinfo


def host_python(stack: dict) -> Path | None:
    """Return the path of a host Python; None if it is in the uenv, or found on PATH."""
    python = stack["python"] or ""
    is_inside = bool(stack["image"]) and Path(python).is_relative_to(_mount(stack))
    return host.host_python(stack) if "/" in python and not is_inside else None


def _hash(stack: dict, hash_image: Callable[[Path], str]) -> str:
    """Return the hash of the image, then that of meta/env.json beside it, which overrides the views of the image, and
    another mount point than the default."""
    image, found = IMAGE.fullmatch(stack["image"]), []
    if image["path"] and (views := Path(image["path"]).parent / "meta" / "env.json").is_file():
        found.append(file_hash(views))
    found += [_mount(stack)] if _mount(stack) != DEFAULT_MOUNT else []
    return ":".join([image["hash"] or hash_image(Path(image["path"])), *found])


def problems(stack: dict, _given: Iterable[str], site: Site) -> list[Problem]:
    found, image = base.image_problems(stack, site), IMAGE.fullmatch(stack["image"] or "")
    if stack["kind"] != "contained" or stack["binds"]:
        key, remedy = ("binds", "Remove it.") if stack["kind"] == "contained" else ("kind", "Make it contained.")
        text = f"is not supported by runtime uenv, which leaves the host's root file system in place. {remedy}"
        found.append(Problem((key,), text))
    if image is None:
        text = "is neither an absolute path (letters, digits, _ . - /) nor a SHA-256; labels can be reassigned"
        text = text if stack["image"] else "has no `image`"
        text = f"{text}. Write the hash that uenv image inspect --format='{{sha256}}' LABEL prints."
        found.append(Problem(("image",) if stack["image"] else (), text, has_value=bool(stack["image"])))
    elif image["path"] and (text := squashfs_problem(image["path"], "Pull one: uenv image pull LABEL")):
        found.append(Problem(("image",), text, is_missing=True, is_in_id=True))
    if "/" not in (stack["python"] or ""):
        text = "needs `python`, such as /user-environment/env/default/bin/python3: PATH may begin with another Python."
        found.append(Problem((), text, has_value=False))
    return found + option_problems(stack, ("--view=NAME", "--repo=PATH", "--no-default-view"))


RUNTIME = Runtime(
    place="uenv",
    has_image=True,
    identity_keys=("image_id", "runtime", "runtime_options", "wrapper_sha256"),
    default_python="python3",
    prefix=prefix,
    variable_names=lambda stack, variables: {},
    host_python=host_python,
    problems=problems,
    library_remedy=lambda stack, libraries: f"Use a uenv that contains {libraries}.",
    launcher="slurm",
    launcher_options=launcher_options,
    options_beside=("--uenv-passthrough=ignore",),  # or srun may mount a uenv that the shell has loaded
    plugin_options=("--uenv", "--view", "--repo", "--no-default-view"),
    **squashfs.identified_by(_hash),
    image_mount=lambda stack, launch: f"squashfs:{_mount(stack)}",
)
