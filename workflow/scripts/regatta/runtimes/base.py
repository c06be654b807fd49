"""The interface of a container runtime, and what runtimes share: paths, binds, hashes of files, wrappers."""

import hashlib
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from regatta.core.errors import Problem, UserError


@dataclass(frozen=True)
class Site:
    """The machine that ranks run on.

    is_here: it is this one. node_folders: exist on compute nodes only. job_variables: prefixes of variables that are
    set in jobs only.
    """

    is_here: bool
    node_folders: tuple[str, ...] = ()
    job_variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchContext:
    """Inputs of a runtime for a launch: folders to mount, and variables to set.

    variables: the job's, substituted in binds; None keeps their names. folders: read and written by ranks. error_dir:
    that of the launch, named after it; None by hand. env: overrides the image's variables; None: known only at launch.
    """

    variables: Mapping[str, str] | None = None
    folders: tuple[Path, ...] = ()
    error_dir: Path | None = None
    env: Mapping[str, str | None] = field(default_factory=dict)

    def paths(self, stack: dict) -> list[Path]:
        """Return the folders, without those that are below another one, and the wrapper."""
        unique = dict.fromkeys(self.folders)
        outer = [folder for folder in unique if not any(folder != f and folder.is_relative_to(f) for f in unique)]
        wrappers = [Path(stack["wrapper"]), Path(stack["wrapper"]).resolve()] if stack["wrapper"] else []
        for path in dict.fromkeys(wrappers):
            if not any(path.is_relative_to(folder) for folder in outer):
                outer.append(path)  # even if it is the target of a link
        return outer


@dataclass(frozen=True)
class Runtime:
    """The way to start the Python of a stack, and the keys of the stack that this involves."""

    place: str  # location of the ranks' libraries, for messages
    has_image: bool  # False on the host, where all paths are those of the host
    identity_keys: tuple[str, ...]  # keys of a stack in a cell's id, besides kind, python and env
    default_python: str  # interpreter of a stack that names none
    # Command before Python. Arguments: stack (with gpu_vendor amd for AMD GPUs), device, variables (the job's,
    # substituted in binds; None keeps their names), folders (read and written by ranks).
    prefix: Callable[[dict, str, Mapping[str, str] | None, tuple[Path, ...]], list[str]]
    variable_names: Callable[[dict, Mapping[str, str]], dict[str, str]]  # names that override the image's variables
    host_python: Callable[[dict], Path | None]  # the host's path of the stack's Python; None inside an image
    identify: Callable[[dict], dict[str, str | None]]  # image_id, wrapper_sha256; raises OSError, or ValueError
    problems: Callable[[dict, Iterable[str], Site], list[Problem]]  # arguments: stack, keys in its file, site
    library_remedy: Callable[[dict, str], str]  # remedy for missing libraries
    bind_option: str = ""  # precedes each bind; or words that end in =, before all binds
    launcher: str | None = None  # the only one whose options start the image; None: `prefix` starts it
    launcher_options: Callable[[dict, LaunchContext], list[str]] = lambda stack, context: []
    options_beside: tuple[str, ...] = ()  # launcher options of the campaign's stacks with other runtimes
    plugin_options: tuple[str, ...] = ()  # launcher options that only this runtime sets; refused in stacks and jobs
    # What a job compares instead of image_id, which would take too long to compute. Raises OSError, or ValueError.
    image_state: Callable[[dict], str] | None = None
    # Mount point that exists only in the image, by stack and name of the launch: bench/harness/libraries.py.
    image_mount: Callable[[dict, str], str | None] = lambda stack, launch: None
    write_files: Callable[[dict, LaunchContext], None] = lambda stack, context: None  # to error_dir, before a launch
    withheld: tuple[str, ...] = ()  # variables that would reach the image, and name folders of the host
    user_variables: tuple[str, ...] = ()  # prefixes of the runtime's variables; not inherited: no cell id has them
    kept_variables: tuple[str, ...] = ()  # except these


def whole_path(text: str | None) -> Path | None:
    """Return a path of a campaign file as an absolute path, with ~ and variables expanded."""
    return Path(os.path.expanduser(os.path.expandvars(text))).absolute() if text else None


def is_below(path: Path, folders: Iterable[str]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


HASHES: dict[tuple, str] = {}  # SHA-256 by device, inode, size and time: executables may be large
RECENT_SECONDS = 2  # a file that was written so shortly ago may be written again without another time


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, which is read in pieces, and again only if it has changed."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if key in HASHES:
            return HASHES[key]
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if abs(time.time() - found.st_mtime) > RECENT_SECONDS:
        HASHES[key] = digest
    return digest


def hash_if_readable(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if it is not there, is no regular file, or may be run but not read."""
    try:
        return file_hash(path) if path.is_file() else None
    except OSError:
        return None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return a bind with its $VARIABLES replaced. Raises UserError for one that is not set."""
    try:
        return Template(text).substitute(variables)
    except KeyError as error:
        found = f"names ${error.args[0]}, which is not set in the job. Set it, or write the path"
    except ValueError:
        found = 'contains "$" without a variable name. Write $$ for a literal $'
    raise UserError(f"binds: {text} {found}.")


def quote_for_shell(line: list[str], bind_option: str) -> list[str]:
    """Quote the words of a command line for a shell, which substitutes the variables of binds and nothing else."""
    pairs = zip(["", *line], line, strict=False)
    is_bind = [bool({*bind_option.split()} & {old, new[: new.find("=") + 1]}) for old, new in pairs]
    return [_quote_bind(word) if bind else shlex.quote(word) for bind, word in zip(is_bind, line, strict=True)]


def _quote_bind(bind: str) -> str:
    """Quote a bind except its variables. $$ is a literal $."""
    parts = re.split(r"(\$\$|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})", bind, flags=re.ASCII)
    if len(parts) == 1:
        return shlex.quote(bind)
    parts[::2] = [re.sub(r'([$"\\`])', r"\\\1", text) for text in parts[::2]]
    parts[1::2] = [r"\$" if variable == "$$" else variable for variable in parts[1::2]]
    return f'"{"".join(parts)}"'


def bind_problem(bind: str, index: int, site: Site) -> Problem | None:
    """Return what is wrong with a bind, `source:target`. A source that does not exist here is missing."""
    key = ("binds", index)
    source, *rest = bind.split(":")
    if len(rest) > 2 or not source or (len(rest) == 2 and rest[1] not in ("ro", "rw")):
        return Problem(key, "is not source, source:target or source:target:ro.")
    if not all(part.startswith(("/", "$")) for part in [source, *rest[:1]]):
        return Problem(key, "is not absolute. Begin both source and target with / or a variable.")
    names = re.findall(r"\$\{?(\w+)", bind.replace("$$", ""))
    of_the_job = {name: f"/{name}" for name in names if name == "TMPDIR" or name.startswith(site.job_variables)}
    try:
        path = Path(expand(bind, {**os.environ, **of_the_job}).split(":")[0])
    except UserError as error:
        text = f"cannot be used: {str(error).removeprefix('binds: ')}".replace(" in the job", " here")
        return Problem(key, text, is_missing=" is not set " in text)
    if of_the_job or os.path.exists(path) or is_below(path, site.node_folders):
        return None
    hint = "Correct it, or add the folder to node_folders of the cluster file if only compute nodes have it."
    return Problem(key, f"cannot be used: {path} does not exist. {hint}", is_missing=True)


SET_BY_RUNTIME = ("PATH", "LD_LIBRARY_PATH")
BUILD = "containers/README.md"


def image_problems(stack: dict, site: Site) -> list[Problem]:
    """Return the problems of what is added to an image: wrapper, binds, and variables that the runtime overwrites."""
    wrapper, found = whole_path(stack["wrapper"]), []
    if wrapper and not (os.path.isfile(wrapper) and os.access(wrapper, os.R_OK | os.X_OK)):
        text = "is not an executable file. Correct the path, or chmod +x it."
        found.append(Problem(("wrapper",), text, is_missing=True, is_in_id=True))
    if stack["kind"] == "bind-mounted" and not stack["binds"]:
        text = "has kind `bind-mounted` but no `binds`. Add the host's libraries (source:target), or make it contained."
        found.append(Problem((), text, has_value=False))
    unset = f"is set by the image, the runtime or a view. Set it in a wrapper ({BUILD})."
    found += [Problem(("env", key), unset, has_value=False) for key in SET_BY_RUNTIME if key in stack["env"]]
    binds = [bind_problem(bind, index, site) for index, bind in enumerate(stack["binds"])]
    return found + [problem for problem in binds if problem]


def mounted_python(stack: dict, mounted: Iterable[str]) -> Path | None:
    """Return the host path of a Python that is in a bind, or in a folder that is always mounted. None: in the image."""
    python = stack["python"] or ""
    if "/" not in python:
        return None
    path = Path(os.getcwd(), python)
    binds = [Template(bind).safe_substitute(os.environ).split(":") for bind in stack["binds"]]
    binds += [[folder] for folder in mounted]
    inside = [(target, source) for source, *rest in binds if path.is_relative_to(target := (rest or [source])[0])]
    if not inside:
        return None
    target, source = max(inside, key=lambda pair: len(Path(pair[0]).parts))
    return Path(source) / path.relative_to(target)
