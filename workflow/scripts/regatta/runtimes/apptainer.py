"""Apptainer and Singularity: an image is a SIF file, started with `run`, --bind, and --nv or --rocm."""

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

from regatta.core.errors import Problem
from regatta.runtimes.base import Runtime, Site, bind_problem, expand, file_hash, whole_path

SIF_MAGIC = slice(32, 42)  # header of a SIF file: github.com/apptainer/sif, pkg/sif/sif.go
SIF_UUID = slice(48, 64)
# Options that remove the ranks' environment: MASTER_ADDR, RANK and the stack's env.
WITHOUT_ENVIRONMENT = ("-e", "--cleanenv", "-C", "--containall", "--compat")
# The runtime evaluates values in a shell: these characters have no meaning there.
PLAIN_VALUE = re.compile(r"[\w@%+=:,./^ -]*", re.ASCII)
SET_BY_RUNTIME = ("PATH", "LD_LIBRARY_PATH")
BIND_OPTION = "--bind"
VARIABLES = ("APPTAINER", "SINGULARITY")  # prefixes; what the user's shell sets for every image
BUILD = "containers/README.md"


def prefix(stack: dict, device: str, variables: Mapping[str, str] | None, folders: tuple[Path, ...]) -> list[str]:
    """Return the runtime, its binds, the image and the wrapper."""
    binds = stack["binds"]
    if variables is not None:
        values = {name: bind_word(value) for name, value in variables.items()}
        binds = [expand(bind, values) for bind in binds]
    unique = dict.fromkeys(folders)
    outer = [folder for folder in unique if not any(folder != f and folder.is_relative_to(f) for f in unique)]
    for path in dict.fromkeys([Path(stack["wrapper"]), Path(stack["wrapper"]).resolve()] if stack["wrapper"] else []):
        if not any(path.is_relative_to(folder) for folder in outer):
            outer.append(path)  # even if it is the target of a link
    gpus = ["--rocm" if stack.get("gpu_vendor") == "amd" else "--nv"] if device == "cuda" else []
    line = [stack["runtime"], "run", *gpus, *stack["runtime_options"]]
    for bind in [*binds, *(bind_word(str(path)) for path in outer)]:
        line += [BIND_OPTION, bind]
    return [*line, stack["image"], *([stack["wrapper"]] if stack["wrapper"] else [])]


def bind_word(path: str) -> str:
    """Escape comma and colon, which separate binds. Other backslashes are literal."""
    return re.sub("([,:])", r"\\\1", path)


def variable_names(stack: dict, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the names by which the runtime overrides variables that the image sets.

    Without such a name the image's value wins silently. A value that a shell would change has none: it is passed
    unchanged, unless the image sets that variable.
    """
    return {
        key: f"{stack['runtime'].upper()}ENV_{key}"
        for key, value in variables.items()
        if PLAIN_VALUE.fullmatch(value) and key not in SET_BY_RUNTIME and not key.startswith(VARIABLES)
    }


def host_python(stack: dict) -> Path | None:
    """Return the host path of a Python that is mounted: in a bind, the home directory or the working directory."""
    python = stack["python"] or ""
    if "/" not in python:
        return None
    path = Path(os.getcwd(), python)
    binds = [Template(bind).safe_substitute(os.environ).split(":") for bind in stack["binds"]]
    binds += [[folder] for folder in (os.path.expanduser("~"), os.getcwd())]
    inside = [(target, source) for source, *rest in binds if path.is_relative_to(target := (rest or [source])[0])]
    if not inside:
        return None
    target, source = max(inside, key=lambda pair: len(Path(pair[0]).parts))
    return Path(source) / path.relative_to(target)


def image_id(image: Path) -> str:
    """Return the UUID in a SIF file's header: a hash of 10 GB would take too long.

    Raises ValueError for any other file, and for one without a UUID: some tools leave it empty.
    """
    if image.exists() and not image.is_file() and not image.is_dir():  # reading a FIFO would block
        raise ValueError("is not a SIF image")
    with image.open("rb") as file:
        header = file.read(SIF_UUID.stop)
    if len(header) < SIF_UUID.stop or header[SIF_MAGIC] != b"SIF_MAGIC\0":
        raise ValueError("is not a SIF image")
    if not any(header[SIF_UUID]):
        raise ValueError("has no UUID in its header; Regatta needs one to identify the image")
    return str(uuid.UUID(bytes=header[SIF_UUID]))


def identify(stack: dict) -> dict[str, str | None]:
    return {
        "image_id": image_id(Path(stack["image"])) if stack["image"] else None,
        "wrapper_sha256": file_hash(Path(stack["wrapper"])) if stack["wrapper"] else None,
    }


def problems(stack: dict, _given: Iterable[str], site: Site) -> list[Problem]:
    kind, image, wrapper = stack["kind"], whole_path(stack["image"]), whole_path(stack["wrapper"])
    found = []
    if image is None:
        text = f"has kind `{kind}` but no `image`. Add `image:` (path of a SIF file)."
        found.append(Problem((), text, has_value=False))
    elif text := _image_problem(image, stack["image"]):
        found.append(Problem(("image",), text, is_missing=True, is_in_id=True))
    if wrapper and not (os.path.isfile(wrapper) and os.access(wrapper, os.R_OK | os.X_OK)):
        text = "is not an executable file. Correct the path, or chmod +x it."
        found.append(Problem(("wrapper",), text, is_missing=True, is_in_id=True))
    if kind == "bind-mounted" and not stack["binds"]:
        text = "has kind `bind-mounted` but no `binds`. Add the host's libraries (source:target), or make it contained."
        found.append(Problem((), text, has_value=False))
    unset = f"does not reach a container: the runtime overwrites it. Set it in a wrapper ({BUILD})."
    found += [Problem(("env", key), unset, has_value=False) for key in SET_BY_RUNTIME if key in stack["env"]]
    for index, option in enumerate(stack["runtime_options"]):
        if option.split("=")[0] in WITHOUT_ENVIRONMENT:
            text = "would hide the ranks' variables from the image. Remove it."
            found.append(Problem(("runtime_options", index), text))
    binds = [bind_problem(bind, index, site) for index, bind in enumerate(stack["binds"])]
    found += [problem for problem in binds if problem]
    if site.is_here and shutil.which(stack["runtime"]) is None and not stack.get("prologue"):  # it may be a module
        text = "is not installed here. Install it, or set the other runtime (apptainer or singularity)."
        found.append(Problem(("runtime",), text, is_missing=True))
    return found


def _image_problem(image: Path, text: str) -> str | None:
    try:
        image_id(image)
    except ValueError as error:
        return f"{error}. Build one: apptainer build NAME.sif ... ({BUILD})."
    except OSError as error:
        where = "" if str(image) == text else f" ({image}, relative to the working directory)"
        return f"cannot be read{where}: {error.strerror}. Correct the path; how to build an image: {BUILD}."
    return None


def library_remedy(stack: dict, libraries: str) -> str:
    if stack["kind"] == "contained":
        image = f"Build an image that contains {libraries}"
        return f"{image}, or make the stack bind-mounted with `binds` and a `wrapper` (see {BUILD})."
    binds = f"`binds` (now {', '.join(stack['binds']) or 'none'})"
    return (
        f"Mount {libraries} from the host with {binds} and put them first in LD_LIBRARY_PATH in the `wrapper`"
        f" (see {BUILD})."
    )


RUNTIME = Runtime(
    place="image",
    has_image=True,
    identity_keys=("image_id", "runtime", "runtime_options", "binds", "wrapper_sha256"),
    default_python="python3",
    prefix=prefix,
    variable_names=variable_names,
    host_python=host_python,
    identify=identify,
    problems=problems,
    library_remedy=library_remedy,
    bind_option=BIND_OPTION,
    user_variables=VARIABLES,
    kept_variables=tuple(f"{name}_{place}" for name in VARIABLES for place in ("CACHEDIR", "TMPDIR", "CONFIGDIR")),
)
