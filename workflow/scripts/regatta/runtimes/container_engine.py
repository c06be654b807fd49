"""Container Engine (CE) of CSCS: `srun --environment` starts ranks in the container that an environment definition file
(EDF) defines. For each launch, a derived EDF adds mounts and variables.

Source: docs.cscs.ch, EDF reference.
"""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from regatta.core.errors import Problem
from regatta.core.files import ROOT
from regatta.runtimes import base, pyxis, squashfs
from regatta.runtimes.base import LaunchContext, Site
from regatta.store.launch_files import write_text

MAX_BASE_DEPTH = 9  # the engine permits 10 levels, of which the derived EDF takes one
MAX_FILES, MAX_BYTES = 100, 2**20
DIGEST = re.compile(r"[^@\s]+@sha256:([0-9a-f]{64})", re.ASCII)
VARIABLE = re.compile(r"\$(?:\$|\{(\w+)(:-)?\})")
FILE = "environment.toml"


def launcher_options(stack: dict, context: LaunchContext) -> list[str]:
    return [f"--environment={context.error_dir / FILE if context.error_dir else stack['image']}"]


def write_files(stack: dict, context: LaunchContext) -> None:
    """Write the EDF of a launch."""
    lines = [
        f"image = {_quoted(_content(stack, [])[0])}",  # as it was identified: a prologue may change its variables
        f"base_environment = [{_quoted(stack['image'])}]",
        f"mounts = [{', '.join(map(_quoted, pyxis.mounts(stack, context)))}]",
        f"workdir = {_quoted(str(ROOT))}",
        "[env]",
        *(f"{name} = {_quoted(value)}" for name, value in context.env.items() if value is not None),
    ]
    write_text(context.error_dir / FILE, "\n".join(lines) + "\n")


def _quoted(text: str) -> str:
    """Return a text as a TOML string that the engine does not expand."""
    return json.dumps(re.sub(r"\$(?=[${])", "$$", text), ensure_ascii=False).replace("\x7f", "\\u007f")


def _content(stack: dict, texts: list[bytes]) -> tuple[str, Path]:
    return _image(Path(stack["image"]), {**os.environ, **stack["env"]}, stack["env"].get("EDF_PATH"), texts)


def _image(
    path: Path, variables: Mapping[str, str], search: str | None, texts: list[bytes], depth: int = 0
) -> tuple[str, Path]:
    """Return the image of an EDF and the file that names it: the EDF, else its last base environment with an image.

    Appends the contents of all files to `texts`. Raises OSError, or ValueError.
    """
    if depth > MAX_BASE_DEPTH:
        raise ValueError(f"has more than {MAX_BASE_DEPTH} levels of base environments. Look for a cycle")
    if (path.exists() and not path.is_file()) or path.stat().st_size > MAX_BYTES or len(texts) > MAX_FILES:
        raise ValueError(f"names {path}, which is no file of at most 1 MiB, or one of too many. Correct the path")
    texts.append(path.read_bytes())
    try:
        content = tomllib.loads(texts[-1].decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"is not an environment definition file ({path}: {error})") from None
    bases, image = content.get("base_environment", []), content.get("image", "")
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(image, str) or not isinstance(bases, list) or not all(isinstance(name, str) for name in bases):
        wanted = "image must be a string, base_environment a string or a list of strings"
        raise ValueError(f"is not an environment definition file ({path}: {wanted})")
    found = ("", path)
    for name in filter(None, bases):
        inherited = _image(_find(name, search), variables, search, texts, depth + 1)
        found = inherited if inherited[0] else found
    return (_expanded(image, variables), path) if image else found


def _find(name: str, search: str | None) -> Path:
    """Return the file of a base environment: an absolute path, or a name in the folders of EDF_PATH, else ~/.edf."""
    if os.path.isabs(name):
        return Path(name)
    folders = search.split(":") if search else [os.path.expanduser("~/.edf")]
    paths = [Path(folder, f"{name}.toml") for folder in folders]
    if "/" in name or "$" in name or not (existing := [path for path in paths if path.is_file()]):
        remedy = "Write an absolute path without variables, or set EDF_PATH in the stack's env: the shell's is ignored"
        raise ValueError(f"has the base environment {name!r}, which is not in {':'.join(folders)}. {remedy}")
    return existing[0]


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match) -> str:
        if found[1] is None:
            return "$"
        if found[1] not in variables and not found[2]:
            raise ValueError(f"names ${{{found[1]}}}, which neither shell nor env of the stack sets. Write the path")
        return variables.get(found[1], "")

    return VARIABLE.sub(value, text)


def _hash(stack: dict, hash_image: Callable[[Path], str]) -> str:
    """Return a hash of the EDF, its base environments and the image. Raises OSError, or ValueError."""
    texts: list[bytes] = []
    image, path = _content(stack, texts)
    digest = DIGEST.fullmatch(image)
    if not digest and not os.path.isabs(image):
        found = f"names the image {image!r} ({path}), not a file or a digest" if image else "names no image"
        raise ValueError(f"{found}. Use the absolute path of a SquashFS file, or IMAGE@sha256:DIGEST")
    if digest is None and (problem := pyxis.squashfs_problem(image, pyxis.IMPORT)):
        raise ValueError(f"names the image {image} ({path}), which {problem.rstrip('.')}")
    texts.append((digest[1] if digest else hash_image(Path(image))).encode())
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def problems(stack: dict, _given: Iterable[str], site: Site) -> list[Problem]:
    found = base.image_problems(stack, site)
    if not os.path.isabs(stack["image"] or ""):
        text = "is not an absolute path" if stack["image"] else f"has kind `{stack['kind']}` but no `image`"
        text = f"{text}. Write the absolute path of an environment definition file, such as /users/NAME/.edf/x.toml."
        found.append(Problem(("image",) if stack["image"] else (), text, has_value=bool(stack["image"])))
    else:
        try:
            RUNTIME.image_state(stack)
        except ValueError as error:
            found.append(Problem(("image",), f"{error}.", is_missing=True, is_in_id=True))
        except OSError as error:
            text = f"cannot be used: {error.filename}: {error.strerror}. Correct the path."
            found.append(Problem(("image",), text, is_missing=True, is_in_id=True))
    return found + pyxis.option_problems(stack, ())


RUNTIME = replace(
    pyxis.RUNTIME,
    bind_option="",
    problems=problems,
    launcher_options=launcher_options,
    plugin_options=("--environment",),
    **squashfs.identified_by(_hash),
    write_files=write_files,
)
