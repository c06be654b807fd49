"""Charliecloud: an image is a SquashFS archive, started with `ch-run`, version 0.37 or newer, with squashfuse.

ch-run keeps the environment of the host and shares /tmp, so ranks get their variables and meet on a node. For GPUs,
`ch-fromhost --nvidia` adds the driver's libraries before the image is packed; ch-run is given no option for them.
Manual: https://hpc.github.io/charliecloud/ch-run.html
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from regatta.core.errors import Problem
from regatta.core.files import ROOT
from regatta.runtimes import squashfs
from regatta.runtimes.base import Runtime, Site, bind_problem, expand, whole_path

SHARED = Path("/tmp")  # with the host; ch-run refuses mount points below it
# Options after which ranks lack their rank, their meeting point, and the stack's env.
WITHOUT_ENVIRONMENT = ("--unset-env", "--private-tmp", "-t")


def prefix(stack: dict, device: str, variables: Mapping[str, str] | None, folders: tuple[Path, ...]) -> list[str]:
    """Return ch-run, its binds, the image and the wrapper. --write-fake creates mount points outside the archive."""
    binds = stack["binds"] if variables is None else [expand(bind, variables) for bind in stack["binds"]]
    line = [stack["runtime"], "--write-fake", f"--cd={ROOT}", *stack["runtime_options"]]
    for bind in [*binds, *(str(f) for f in dict.fromkeys(folders) if not f.is_relative_to(SHARED))]:
        line += ["--bind", bind]
    return [*line, stack["image"], "--", *([stack["wrapper"]] if stack["wrapper"] else [])]


def problems(stack: dict, _given: Iterable[str], site: Site) -> list[Problem]:
    found = []
    try:
        if stack["image"]:
            squashfs.fingerprint(whole_path(stack["image"]))
        else:
            found.append(Problem((), "has no `image`. Add `image:` (path of a SquashFS archive).", has_value=False))
    except (OSError, ValueError) as error:
        text = f"{getattr(error, 'strerror', None) or error}. Create one: ch-convert IMAGE NAME.sqfs"
        found.append(Problem(("image",), text, is_missing=True, is_in_id=True))
    for index, option in enumerate(stack["runtime_options"]):
        if option.split("=")[0] in WITHOUT_ENVIRONMENT:
            found.append(Problem(("runtime_options", index), "hides the variables of the ranks. Remove it."))
    found += filter(None, (bind_problem(bind, index, site) for index, bind in enumerate(stack["binds"])))
    if site.is_here and shutil.which(stack["runtime"]) is None:
        found.append(Problem(("runtime",), "is not installed here. Install Charliecloud.", is_missing=True))
    return found


RUNTIME = Runtime(
    place="image",
    has_image=True,
    identity_keys=("image_id", "runtime", "runtime_options", "binds", "wrapper_sha256"),
    default_python="python3",
    prefix=prefix,
    variable_names=lambda stack, variables: {},
    host_python=lambda stack: None,
    problems=problems,
    **squashfs.identified_by(lambda stack, hash_image: hash_image(Path(stack["image"]))),
    library_remedy=lambda stack, libraries: f"Add {libraries} to the image: ch-fromhost --path, or binds.",
    bind_option="--bind",
    user_variables=("CH_RUN_", "CH_IMAGE_"),
)

RUNTIMES = {"ch-run": RUNTIME}
