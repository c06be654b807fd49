"""Stacks: check them before anything is submitted, and tell what of them can change a number.

A stack of a checked campaign holds every key of the schema and three more: `image_id` and `wrapper_sha256`, both null
for kind host, and the cluster's `gpu_request`; one that names scripts also `scripts`.
"""

import hashlib
import os
import re
import shutil
import uuid
from pathlib import Path
from string import Template

from regatta.campaign.yaml_file import Mistake, YamlFile
from regatta.core.errors import UserError
from regatta.core.schemas import place, show

# Scripts that a stack names: what they hold can change a number, so it is part of a cell's id.

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


SIF_MAGIC = slice(32, 42)  # header of a SIF file: github.com/apptainer/sif, pkg/sif/sif.go
SIF_UUID = slice(48, 64)
IN_CONTAINER = ("image", "runtime", "runtime_options", "binds", "wrapper", "required_host_libraries")
OF_THE_JOB = re.compile(r"TMPDIR$|SLURM_")  # variables whose value only the job knows
# Options of the runtime after which ranks have no meeting point, no rank, and nothing of the stack's env.
WITHOUT_ENVIRONMENT = ("-e", "--cleanenv", "-C", "--containall", "--compat")

SRUN_BY_REGATTA = [
    "-N",
    "--nodes",
    "-n",
    "--ntasks",
    "--ntasks-per-node",
    "-G",
    "--gpus",
    "--gpus-per-node",
    "--gres",
    "-t",
    "--time",
    "--jobid",
    "-o",
    "--output",
    "-e",
    "--error",
    "-K",
    "--kill-on-bad-exit",
    "--export",
    "-D",
    "--chdir",
    "-J",
    "--job-name",
    "-W",
    "--wait",
    "--overlap",
]
SBATCH_BY_REGATTA = [
    "-N",
    "--nodes",
    "-n",
    "--ntasks",
    "--ntasks-per-node",
    "-c",
    "--cpus-per-task",
    "-t",
    "--time",
    "-p",
    "--partition",
    "-A",
    "--account",
    "-q",
    "--qos",
    "-C",
    "--constraint",
    "--reservation",
    "--exclusive",
    "--mem",
    "--mem-per-cpu",
    "-G",
    "--gpus",
    "--gpus-per-node",
    "--gres",
    "-J",
    "--job-name",
    "-o",
    "--output",
    "-e",
    "--error",
    "--export",
    "--comment",
    "--parsable",
    "--wrap",
    "-D",
    "--chdir",
    "-k",
    "--no-kill",
    "-M",
    "--clusters",
    "--ntasks-per-gpu",
    "--cpus-per-gpu",
    "--requeue",
    "--no-requeue",
    "-a",
    "--array",
]


def stack_mistakes(file: YamlFile, stacks: dict, cluster: dict) -> list[Mistake]:
    """Return what is wrong with each stack here and now: keys without effect, and paths that are not there."""
    found = []
    for name, stack in stacks.items():
        where = ("stacks", name)
        if stack["kind"] == "host":
            found += [_no_effect(file, (*where, key)) for key in IN_CONTAINER if (*where, key) in file.lines]
            if problem := _python_problem(stack["python"], cluster):
                found.append(_mistake(file, (*where, "python"), f"= {show(stack['python'])} {problem}"))
        else:
            found += _container_mistakes(file, where, stack, cluster)
        if cluster["scheduler"] == "none" and stack["srun"]:
            text = "has no effect on a cluster without Slurm. Take it out, or name a cluster with scheduler: slurm."
            found.append(_mistake(file, (*where, "srun"), text))
        found += option_mistakes(file, (*where, "srun"), stack["srun"], SRUN_BY_REGATTA)
        found += script_mistakes(file, (*where, "srun"), stack["srun"], cluster["node_folders"])
    return found


def option_mistakes(file: YamlFile, where: tuple, options: list[str], taken: list[str]) -> list[Mistake]:
    """Return a mistake for each option that Regatta gives itself: a second one would start other ranks than planned."""
    found = []
    for index, option in enumerate(options):
        name = re.split("[= ]", option)[0]
        if name in taken or (option[:2] in taken and not option.startswith("--")):
            text = "is given by Regatta itself, from the campaign's shapes and the cluster file. Take it out."
            found.append(_mistake(file, (*where, index), f"= {show(option)} {text}"))
        elif name.startswith("--") and option[len(name) :].startswith(" "):
            words = f"{name}={option[len(name) :].strip()}"
            text = f"is one word, which a long option with a space is not. Write {words}."
            found.append(_mistake(file, (*where, index), f"= {show(option)} {text}"))
    return found


def complete_stack(stack: dict, cluster: dict) -> dict:
    """Return a stack as launches need it: absolute paths, the cluster's options merged in, and who its image is."""
    cpus = [f"--cpus-per-task={cluster['cpus_per_rank']}"] if cluster["cpus_per_rank"] else []
    srun = [*cluster["srun"], *cpus, *stack["srun"]] if cluster["scheduler"] == "slurm" else []
    image, wrapper = _path(stack["image"]), _path(stack["wrapper"])
    complete = {
        **stack,
        "env": {**cluster["env"], **stack["env"]},
        "srun": srun,
        "image": str(image) if image else None,
        "image_id": image_id(image) if image else None,
        "wrapper": str(wrapper) if wrapper else None,
        "wrapper_sha256": file_hash(wrapper) if wrapper else None,
        "gpu_request": cluster["gpu_request"],
    }
    # Absent where there is none, so that ids from before scripts were hashed stay.
    scripts = script_hashes(complete, cluster)
    return complete | ({"scripts": scripts} if scripts else {})


def identity(name: str, stack: dict, scheduler: str) -> dict:
    """Return what of a stack can change a number, as cells hold it: paths of image and wrapper cannot, what they hold can."""
    keys = ["kind", "python", "env"]
    if stack["kind"] != "host":
        keys += ["image_id", "runtime", "runtime_options", "binds", "wrapper_sha256"]
    if scheduler == "slurm":
        keys.append("srun")
    if "scripts" in stack:
        keys.append("scripts")
    return {"name": name, **{key: stack[key] for key in keys}}


def image_id(image: Path) -> str:
    """Return the UUID in a SIF file's header: cheap, where a hash of 10 GB is not.

    Raises ValueError if it is no SIF, or has none: some tools leave it empty, and two images could not be told apart.
    """
    if image.exists() and not image.is_file() and not image.is_dir():  # a FIFO would be waited for
        raise ValueError("is no SIF image")
    with image.open("rb") as file:
        header = file.read(SIF_UUID.stop)
    if len(header) < SIF_UUID.stop or header[SIF_MAGIC] != b"SIF_MAGIC\0":
        raise ValueError("is no SIF image")
    if not any(header[SIF_UUID]):
        raise ValueError("has no UUID in its header, by which images are told apart")
    return str(uuid.UUID(bytes=header[SIF_UUID]))


def changed_since_planned(name: str, stack: dict) -> str | None:
    """Return in words how image, wrapper or a script differ from those that were planned, or None."""
    remedy = "Run the same line again: it plans anew, with what is there now."
    try:
        if stack["image"] and image_id(Path(stack["image"])) != stack["image_id"]:
            return f"stack {name}: {stack['image']} is another image than the one that was planned. {remedy}"
        planned = [(stack["wrapper"], stack["wrapper_sha256"])] if stack["wrapper"] else []
        paths = script_paths(stack)
        planned += [(paths.get(key, key), digest) for key, digest in stack.get("scripts", {}).items()]
        for path, digest in planned:
            if file_hash(Path(path)) != digest:
                return f"stack {name}: {path} was edited after the cells were planned. {remedy}"
    except (OSError, ValueError) as error:
        return f"stack {name}: {getattr(error, 'filename', None) or stack['image']} cannot be read ({error})."
    return None


def expand(text: str, variables: dict[str, str]) -> str:
    """Return a bind with its $VARIABLES replaced. Raises UserError that names one that is not set."""
    try:
        return Template(text).substitute(variables)
    except KeyError as error:
        raise UserError(
            f"binds: {text} names ${error.args[0]}, which is not set in the job. Set it, or write the path."
        ) from None
    except ValueError:
        raise UserError(f"binds: {text} holds a $ that begins no name of a variable. Write $$ for a plain $.") from None


def _container_mistakes(file: YamlFile, where: tuple, stack: dict, cluster: dict) -> list[Mistake]:
    found = []
    kind = stack["kind"]
    image = _path(stack["image"])
    if image is None:
        found.append(_mistake(file, where, f"is of kind {kind} and lacks image. Add `image:` (path of a SIF file)."))
    elif problem := _unreadable_image(image, stack["image"]):
        found.append(_mistake(file, (*where, "image"), f"= {show(stack['image'])} {problem}"))
    wrapper = _path(stack["wrapper"])
    if wrapper and not (os.path.isfile(wrapper) and os.access(wrapper, os.R_OK | os.X_OK)):
        text = f"= {show(stack['wrapper'])} is no program that can be run. Correct the path, or chmod +x it."
        found.append(_mistake(file, (*where, "wrapper"), text))
    if kind == "bind-mounted" and not stack["binds"]:
        text = (
            "is of kind bind-mounted and lacks binds. Add the host's libraries (source:target), or make it contained."
        )
        found.append(_mistake(file, where, text))
    for key in ("PATH", "LD_LIBRARY_PATH"):
        if key in stack["env"]:
            text = "does not reach a container: the runtime sets it anew. Set it in a wrapper (containers/README.md)."
            found.append(_mistake(file, (*where, "env", key), text))
    for index, option in enumerate(stack["runtime_options"]):
        if option.split("=")[0] in WITHOUT_ENVIRONMENT:
            text = f"= {show(option)} would keep the ranks' variables out of the image. Take it out."
            found.append(_mistake(file, (*where, "runtime_options", index), text))
    for index, bind in enumerate(stack["binds"]):
        if problem := _bind_problem(bind, cluster):
            found.append(_mistake(file, (*where, "binds", index), f"= {show(bind)} {problem}"))
    if cluster["scheduler"] == "none" and shutil.which(stack["runtime"]) is None:
        text = f"= {show(stack['runtime'])} is not installed here. Install it, or name the other of the two."
        found.append(_mistake(file, (*where, "runtime"), text))
    return found


def _python_problem(python: str | None, cluster: dict) -> str | None:
    """Return why a host stack's Python cannot be run. A plain name is looked for on the nodes' PATH, not here."""
    path = Path(python) if python and "/" in python else None
    if path is None or any(path.is_relative_to(folder) for folder in cluster["node_folders"]):
        return None
    if os.path.isfile(path) and os.access(path, os.X_OK):
        return None
    hint = " Neither ~ nor variables are expanded." if re.search(r"^~|\$", python) else ""
    return f"is no program that can be run here.{hint} Write its whole path; a folder that only nodes have goes into node_folders."


def _unreadable_image(image: Path, text: str) -> str | None:
    try:
        image_id(image)
    except ValueError as error:
        return f"{error}. Build one: apptainer build NAME.sif ... (containers/README.md)."
    except OSError as error:
        where = "" if str(image) == text else f" ({image}, from the folder in which Regatta was called)"
        return f"cannot be read{where}: {error.strerror}. Correct the path; containers/README.md says how to build an image."
    return None


def _bind_problem(bind: str, cluster: dict) -> str | None:
    source, *rest = bind.split(":")
    if len(rest) > 2 or not source or (len(rest) == 2 and rest[1] not in ("ro", "rw")):
        return "is not source, source:target or source:target:ro."
    if not all(part.startswith(("/", "$")) for part in [source, *rest[:1]]):
        return "is not absolute. Begin both source and target with / or a variable."
    names = re.findall(r"\$\{?(\w+)", bind.replace("$$", ""))
    of_the_job = {name: f"/{name}" for name in names if OF_THE_JOB.match(name)}
    try:
        path = Path(expand(bind, {**os.environ, **of_the_job}).split(":")[0])
    except UserError as error:
        return f"cannot be used: {str(error).removeprefix('binds: ')}".replace(" in the job", " here")
    if of_the_job or os.path.exists(path) or any(path.is_relative_to(folder) for folder in cluster["node_folders"]):
        return None
    return f"is not there: {path} does not exist. Correct it; a folder that only compute nodes have goes into node_folders of the cluster file."


def _no_effect(file: YamlFile, where: tuple) -> Mistake:
    return _mistake(
        file, where, "has no effect on kind host. Take it out, or make the stack contained or bind-mounted."
    )


def _mistake(file: YamlFile, where: tuple, text: str) -> Mistake:
    return Mistake(where, f"{file.at(where)}: {place(where)} {text}")


def _path(text: str | None) -> Path | None:
    return Path(os.path.expanduser(os.path.expandvars(text))).absolute() if text else None
