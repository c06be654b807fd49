"""Scripts that a stack names: what they hold can change a number, so it is part of a cell's id.

A script has an entry by what names it, `python` or the option of srun. One that only the nodes or the image have cannot
be read here, and has none.
"""

import hashlib
import os
import shutil
from pathlib import Path
from string import Template

from regatta.campaign.validation import Mistake, show
from regatta.campaign.yaml_file import YamlFile, place

SRUN_OPTIONS = ("--task-prolog", "--task-epilog", "--prolog", "--epilog")
RUN_BY_SRUN = ("--prolog", "--epilog")  # srun looks for a plain name in its folder; tasks look on the nodes' PATH


def script_hashes(stack: dict, cluster: dict) -> dict[str, str]:
    """Return the SHA-256 of each script that a stack names. Its `srun` holds the cluster's options too."""
    paths = script_paths(stack)
    if cluster["scheduler"] != "none" and "/" not in (stack["python"] or ""):
        paths.pop("python", None)  # the PATH that finds it is that of the nodes
    return {
        key: file_hash(path)
        for key, path in paths.items()
        if _is_here(path, cluster["node_folders"]) and (key != "python" or _has_interpreter(path))
    }


def script_paths(stack: dict) -> dict[str, Path]:
    """Return the script paths that a stack names in `python` and srun's options. A plain `python` is looked up on PATH."""
    paths = {"python": _python_on_host(stack)}
    for option in stack["srun"]:
        name, value = _script_option(option)
        if "/" in value or (name in RUN_BY_SRUN and value):
            paths[name] = Path(value)  # of several, srun takes the last
    return {key: path for key, path in paths.items() if path is not None}


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def script_mistakes(file: YamlFile, where: tuple, options: list[str], node_folders: list[str]) -> list[Mistake]:
    """Return a mistake for each option of srun whose script could not be hashed."""
    found = []
    for index, option in enumerate(options):
        path = Path(_script_option(option)[1])
        is_on_nodes = any(path.is_relative_to(folder) for folder in node_folders)
        if "/" in str(path) and not is_on_nodes and not (_is_here(path, []) and os.access(path, os.R_OK)):
            text = "names no file that can be read here. Write its whole path; a folder that only nodes have goes into"
            at = (*where, index)
            found.append(Mistake(at, f"{file.at(at)}: {place(at)} = {show(option)} {text} node_folders."))
    return found


def _script_option(option: str) -> tuple[str, str]:
    """Return the whole name and the value of an option of srun that names a script, also cut short; else two empty texts."""
    name, _, value = option.partition("=")
    whole = [known for known in SRUN_OPTIONS if known.startswith(name) and len(name) > 2]
    return (whole[0], value) if whole else ("", "")


def _python_on_host(stack: dict) -> Path | None:
    """Return the path of a stack's Python on the host: of an image through a bind, the home folder or Regatta's folder."""
    python = stack["python"] or ""
    if stack["kind"] == "host":
        found = python if "/" in python else shutil.which(python)
        return Path(found) if found else None
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


def _is_here(path: Path, node_folders: list[str]) -> bool:
    return os.path.isfile(path) and not any(path.is_relative_to(folder) for folder in node_folders)


def _has_interpreter(path: Path) -> bool:
    """Whether a program is a script. One that may be run but not read is none."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except PermissionError:
        return False
