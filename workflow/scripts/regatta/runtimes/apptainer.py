"""Apptainer and Singularity: an image is a SIF file, started with `run`, --bind, and --nv or --rocm."""

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from regatta.core.errors import Problem
from regatta.runtimes import base
from regatta.runtimes.base import LaunchContext, Runtime, Site, expand, file_hash, whole_path

SIF_MAGIC = slice(32, 42)  # header of a SIF file: github.com/apptainer/sif, pkg/sif/sif.go
SIF_UUID = slice(48, 64)
# Options that remove the ranks' environment: MASTER_ADDR, RANK and the stack's env.
WITHOUT_ENVIRONMENT = ("-e", "--cleanenv", "-C", "--containall", "--compat")
# The runtime evaluates values in a shell: these characters have no meaning there.
PLAIN_VALUE = re.compile(r"[\w@%+=:,./^ -]*", re.ASCII)
BIND_OPTION = "--bind"
VARIABLES = ("APPTAINER", "SINGULARITY")  # prefixes; what the user's shell sets for every image


def prefix(stack: dict, device: str, variables: Mapping[str, str] | None, folders: tuple[Path, ...]) -> list[str]:
    """Return the runtime, its binds, the image and the wrapper."""
    binds = stack["binds"]
    if variables is not None:
        values = {name: bind_word(value) for name, value in variables.items()}
        binds = [expand(bind, values) for bind in binds]
    gpus = ["--rocm" if stack.get("gpu_vendor") == "amd" else "--nv"] if device == "cuda" else []
    line = [stack["runtime"], "run", *gpus, *stack["runtime_options"]]
    for bind in [*binds, *(bind_word(str(path)) for path in LaunchContext(folders=folders).paths(stack))]:
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
        if PLAIN_VALUE.fullmatch(value) and key not in base.SET_BY_RUNTIME and not key.startswith(VARIABLES)
    }


def host_python(stack: dict) -> Path | None:
    """Return the host path of a Python that is mounted: in a bind, the home directory or the working directory."""
    return base.mounted_python(stack, (os.path.expanduser("~"), os.getcwd()))


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
    kind, image = stack["kind"], whole_path(stack["image"])
    found = []
    if image is None:
        text = f"has kind `{kind}` but no `image`. Add `image:` (path of a SIF file)."
        found.append(Problem((), text, has_value=False))
    elif text := _image_problem(image, stack["image"]):
        found.append(Problem(("image",), text, is_missing=True, is_in_id=True))
    for index, option in enumerate(stack["runtime_options"]):
        if option.split("=")[0] in WITHOUT_ENVIRONMENT:
            text = "would hide the ranks' variables from the image. Remove it."
            found.append(Problem(("runtime_options", index), text))
    found += base.image_problems(stack, site)
    if site.is_here and shutil.which(stack["runtime"]) is None and not stack.get("prologue"):  # it may be a module
        text = "is not installed here. Install it, or set the other runtime (apptainer or singularity)."
        found.append(Problem(("runtime",), text, is_missing=True))
    return found


def _image_problem(image: Path, text: str) -> str | None:
    try:
        image_id(image)
    except ValueError as error:
        return f"{error}. Build one: apptainer build NAME.sif ... ({base.BUILD})."
    except OSError as error:
        where = "" if str(image) == text else f" ({image}, relative to the working directory)"
        return f"cannot be read{where}: {error.strerror}. Correct the path; how to build an image: {base.BUILD}."
    return None


def library_remedy(stack: dict, libraries: str) -> str:
    if stack["kind"] == "contained":
        image = f"Build an image that contains {libraries}"
        return f"{image}, or make the stack bind-mounted with `binds` and a `wrapper` (see {base.BUILD})."
    binds = f"`binds` (now {', '.join(stack['binds']) or 'none'})"
    return (
        f"Mount {libraries} from the host with {binds} and put them first in LD_LIBRARY_PATH in the `wrapper`"
        f" (see {base.BUILD})."
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
