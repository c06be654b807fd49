"""Pyxis: a Slurm plugin starts ranks in an image. Images are SquashFS files, or registry images pinned by digest.

Sources: github.com/NVIDIA/pyxis 0.24, github.com/NVIDIA/enroot 4.1. Needed: Pyxis 0.15; for a digest, enroot 4.0.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from regatta.core.errors import Problem, UserError
from regatta.core.files import ROOT
from regatta.runtimes import apptainer, base, squashfs
from regatta.runtimes.base import LaunchContext, Runtime, Site, expand
from regatta.store.launch_files import read_one_line

REFERENCE = re.compile(r"(?:[^@#\s,]+@)?[\w.:-]+#[\w./-]+(?::[\w.-]+)?@sha256:([0-9a-f]{64})", re.ASCII)
MOUNTS, WORKDIR = "--container-mounts", "--container-workdir"
UNMOUNTABLE = re.compile(r'[,"$`\\]')  # Pyxis divides mounts at commas, and writes them into a script of Bash
NAME = "--container-name"
USER_OPTIONS = (NAME, "--container-writable", "--container-readonly")
FIXED = ("--no-container-mount-home", "--no-container-entrypoint", "--no-container-remap-root")
OTHERS = "image save mount-home remap-root entrypoint entrypoint-log env unshare"
IMPORT = "Import one: enroot import --output NAME.sqsh docker://..."


def launcher_options(stack: dict, context: LaunchContext) -> list[str]:
    """Return the options that start the image. Raises UserError for a path that cannot be mounted."""
    options = [f"--container-image={stack['image']}", f"{MOUNTS}={','.join(mounts(stack, context))}"]
    workdir = ROOT if context.error_dir else "$PWD"
    options += [f"{WORKDIR}={workdir}", *FIXED, f"--container-env={','.join(context.env)}"]
    options += [option for option in stack["runtime_options"] if option != NAME]
    is_named = NAME in stack["runtime_options"] and context.error_dir
    return [*options, *([f"{NAME}={_container_name(stack, context)}:no_exec"] if is_named else [])]


def _container_name(stack: dict, context: LaunchContext) -> str:
    """Return the name of the container of a stack in this batch and job.

    A name that exists is reused regardless of its content. It changes after each launch that did not start, because the
    image may be only partly unpacked.
    """
    here, keys = context.error_dir, (*RUNTIME.identity_keys, "env")
    content = hashlib.sha256(repr([here.parents[1].name, *(stack[key] for key in keys)]).encode()).hexdigest()
    files = [here.parents[3] / "launches" / f"{other.name}.jsonl" for other in here.parent.glob("*") if other != here]
    num_failed = sum(not (read_one_line(file, 1) or {}).get("environment") for file in files)
    return f"regatta-{(context.variables or {}).get('SLURM_JOB_ID')}-{content[:12]}-{num_failed}"


def mounts(stack: dict, context: LaunchContext) -> list[str]:
    """Return what is mounted, as source:target[:ro]: binds, the folders that ranks need, and the image check."""
    binds, paths = stack["binds"], [*map(str, context.paths(stack))]
    texts = binds if context.variables is None else [expand(bind, context.variables) for bind in binds]
    for text, bind in zip([*texts, *paths], [*binds, *([""] * len(paths))], strict=True):
        if text != bind and (UNMOUNTABLE.search(text) or text.count(":") != bind.count(":")):
            remedy = 'A path must not contain a comma, a colon, or any of " $ ` \\. Rename the folder, or use a link.'
            raise UserError(f"runtime {stack['runtime']} cannot mount {text}. {remedy}")
    found = [text if ":" in text else f"{text}:{text}" for text in [*texts, *paths]]
    return found + ([f"{context.error_dir}:{image_mount(stack, context.error_dir.name)}"] if context.error_dir else [])


def image_mount(_stack: dict, launch: str) -> str:
    return f"/regatta-{launch}"


def _hash(stack: dict, hash_image: Callable[[Path], str]) -> str:
    found = REFERENCE.fullmatch(stack["image"])
    return found[1] if found else hash_image(Path(stack["image"]))


def problems(stack: dict, _given: Iterable[str], site: Site) -> list[Problem]:
    found, image = base.image_problems(stack, site), stack["image"]
    if image is None:
        text = f"has kind `{stack['kind']}` but no `image`. Add `image:` (absolute path of a SquashFS file)."
        found.append(Problem((), text, has_value=False))
    elif not REFERENCE.fullmatch(image) and re.search(r"[#@]|^[\w+]+://", image):
        text = "is not REGISTRY#IMAGE@sha256:DIGEST, as docker.io#pytorch/pytorch@sha256:... Tags can be reassigned"
        found.append(Problem(("image",), f"{text}: write the digest, or import the image (enroot import)."))
    elif not REFERENCE.fullmatch(image) and not os.path.isabs(image):
        text = "is not an absolute path; ~ and variables are not expanded. In a registry: REGISTRY#IMAGE@sha256:..."
        found.append(Problem(("image",), text))
    elif not REFERENCE.fullmatch(image) and (text := squashfs_problem(image, IMPORT)):
        found.append(Problem(("image",), text, is_missing=True, is_in_id=True))
    return found + option_problems(stack, USER_OPTIONS)


def squashfs_problem(image: str, remedy: str) -> str | None:
    """Return what is wrong with a SquashFS file, or None. remedy: how to get one."""
    try:
        squashfs.fingerprint(Path(image))
    except ValueError as error:
        return f"{error}. {remedy} ({base.BUILD})."
    except OSError as error:
        return f"cannot be read: {error.strerror}. Correct the path. See {base.BUILD}."
    return None


def option_problems(stack: dict, accepted: tuple[str, ...]) -> list[Problem]:
    """Return a problem for each of `runtime_options` that is not accepted, such as `--view=NAME` without a value."""
    found, forms = [], {option.partition("=")[0]: option for option in accepted}
    for index, option in enumerate(stack["runtime_options"]):
        name, _, value = option.partition("=")
        if name not in forms or bool(value) != ("=" in forms[name]) or (option != name and not value):
            text = f"Write {forms[name]}." if name in forms else f"Accepted: {', '.join(accepted) or 'none'}."
            found.append(Problem(("runtime_options", index), f"is not accepted by runtime {stack['runtime']}. {text}"))
    return found


RUNTIME = Runtime(
    place="image",
    has_image=True,
    identity_keys=("image_id", "runtime", "runtime_options", "binds", "wrapper_sha256"),
    default_python="python3",
    prefix=lambda stack, device, variables, folders: [stack["wrapper"]] if stack["wrapper"] else [],
    variable_names=lambda stack, variables: {},
    host_python=lambda stack: base.mounted_python(stack, [str(ROOT)]),
    problems=problems,
    library_remedy=apptainer.library_remedy,
    bind_option=f"{MOUNTS}= {WORKDIR}=",
    launcher="slurm",
    launcher_options=launcher_options,
    plugin_options=(*USER_OPTIONS, *FIXED, MOUNTS, WORKDIR, *(f"--container-{name}" for name in OTHERS.split())),
    **squashfs.identified_by(_hash),
    image_mount=image_mount,
    withheld=("LD_LIBRARY_PATH",),
)
