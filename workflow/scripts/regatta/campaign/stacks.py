"""Check stacks before anything is submitted, and identify the parts of them that can affect results.

A stack of a checked campaign has every key of the schema and three more: `image_id` and `wrapper_sha256`, both null for
kind host, and the cluster's `gpu_request`; one that names scripts also has `scripts`. `prologue` begins with the
cluster's steps, and is absent if there are none. With an image and AMD GPUs, `gpu_vendor` is amd, otherwise absent.
Stacks whose image takes long to hash have `image_state`, which jobs compare. `options_beside` are launcher options by
which a stack ignores what the runtimes of others would start; absent if there are none, and in no cell id.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from regatta.campaign.variables import env_problems, unescaped
from regatta.core.errors import Problem
from regatta.launchers import BY_HAND, LAUNCHERS, STACK_KEYS, launcher_of
from regatta.runtimes import runtime_of
from regatta.runtimes.base import Site, file_hash, is_below, whole_path
from regatta.runtimes.prologue_steps import edited_file, hashed, prologue_problems

LATER = ("scripts", "prologue")  # keys of a stack in a cell's id, if they have a value


def stack_problems(stack: dict, given: Iterable[str], cluster: dict) -> list[Problem]:
    """Return the problems of a stack on this machine: keys without effect, and missing paths.

    given: the keys that its file has.
    """
    launcher = launcher_of(cluster)
    site = Site(not launcher.submits, tuple(cluster["node_folders"]), launcher.ranks.variables)
    with_cluster = stack | {"prologue": [*cluster["prologue"], *stack["prologue"]]}
    runtime = runtime_of(stack)
    found = runtime.problems(with_cluster, given, site)
    if runtime.launcher not in (None, launcher.name):
        text = f"requires a cluster with scheduler: {runtime.launcher}. Name one, or choose another runtime."
        found.append(Problem(("runtime",), text))
    found += prologue_problems(stack["prologue"], cluster["node_folders"])
    found += env_problems(stack["env"], BY_HAND)
    for other in LAUNCHERS.values():
        for key in {*other.ranks.stack_keys} - {*launcher.ranks.stack_keys}:
            if stack[key]:
                remedy = f"Remove it, or name a cluster with scheduler: {other.name}."
                text = f"has no effect on a cluster without {other.title}. {remedy}"
                found.append(Problem((key,), text, has_value=False))
    return found + launcher.checks.stack_problems(stack, cluster)


def complete_stack(stack: dict, cluster: dict, *, may_lack_files: bool = False) -> dict:
    """Return a stack as launches need it: absolute paths, the cluster's options, and the identity of its image.

    may_lack_files: what cannot be read is None, so the ids of its cells are not final.
    """
    runtime, image, wrapper = runtime_of(stack), stack["image"], whole_path(stack["wrapper"])
    if image and not runtime.launcher:  # otherwise the plugin interprets it
        image = str(whole_path(image))
    complete = {
        **stack,
        "env": {name: unescaped(value) for name, value in {**cluster["env"], **stack["env"]}.items()},
        **{key: [] for key in STACK_KEYS},
        **launcher_of(cluster).ranks.stack_options(cluster, stack),
        "image": image,
        "image_id": None,
        "wrapper": str(wrapper) if wrapper else None,
        "wrapper_sha256": None,
        "gpu_request": cluster["gpu_request"],
    }
    for part in ("image", "wrapper"):  # separately: the other may exist
        try:
            only = complete | dict.fromkeys({"image", "wrapper"} - {part})
            known = runtime.identify(only)
            complete |= {key: value for key, value in known.items() if value is not None}
        except (OSError, ValueError):
            if not may_lack_files:
                raise
    # Omitted if empty, so that earlier ids stay valid.
    del complete["node_type"]  # what it changes is in `cluster`
    later = {"scripts": _script_hashes(complete, cluster)}
    later["prologue"] = hashed([*cluster["prologue"], *complete.pop("prologue")], cluster["node_folders"])
    if runtime.image_state and complete["image_id"]:
        later["image_state"] = runtime.image_state(complete)
    if runtime.has_image and cluster.get("gpu_vendor") == "amd":
        later["gpu_vendor"] = "amd"
    return complete | {key: value for key, value in later.items() if value}


def beside_each_other(stacks: dict[str, dict]) -> dict[str, dict]:
    """Return complete stacks with the launcher options that the runtimes of others in the campaign require."""
    needed = {runtime_of(stack).options_beside: runtime_of(stack) for stack in stacks.values()}
    found = {}
    for name, stack in stacks.items():
        options = [word for words, runtime in needed.items() if runtime is not runtime_of(stack) for word in words]
        found[name] = stack | ({"options_beside": options} if options else {})
    return found


def identity(name: str, stack: dict, cluster: dict) -> dict:
    """Return the parts of a stack that can affect results: the content of image and wrapper, not their paths."""
    keys = ["kind", "python", "env", *runtime_of(stack).identity_keys, *launcher_of(cluster).ranks.stack_keys]
    return {"name": name, **{key: stack[key] for key in [*keys, *(key for key in LATER if key in stack)]}}


def changed_since_planned(name: str, stack: dict, cluster: dict) -> str | None:
    """Return how image, wrapper or a script differ from those that were planned, as text, or None."""
    remedy = "Run the same command again to plan with the current files."
    runtime, state = runtime_of(stack), stack.get("image_state")
    try:
        now = runtime.identify({**stack, "image": None} if state else stack)
        if state and runtime.image_state(stack) != state:
            return f"stack {name}: {stack['image']} changed after the cells were planned. {remedy}"
        if not state and now["image_id"] != stack["image_id"]:
            return f"stack {name}: {stack['image']} is not the image that was planned. {remedy}"
        paths = _script_paths(stack, cluster)
        edited = [stack["wrapper"]] if now["wrapper_sha256"] != stack["wrapper_sha256"] else []
        for key, digest in stack.get("scripts", {}).items():
            path = paths.get(key, Path(key))
            edited += [path] if file_hash(path) != digest else []
        edited += filter(None, [edited_file(stack)])
        if edited:
            return f"stack {name}: {edited[0]} was edited after the cells were planned. {remedy}"
    except (OSError, ValueError) as error:
        file, why = getattr(error, "filename", None) or stack["image"], getattr(error, "strerror", None) or error
        return f"stack {name}: {file}: {why}. {remedy}"
    return None


# Scripts that a stack names: their content can affect results, so it is part of a cell's id.


def _script_hashes(stack: dict, cluster: dict) -> dict[str, str]:
    paths = _script_paths(stack, cluster)
    if launcher_of(cluster).submits and "/" not in (stack["python"] or ""):
        paths.pop("python", None)  # looked up on the nodes' PATH
    return {
        key: file_hash(path)
        for key, path in paths.items()
        if os.path.isfile(path)
        and not is_below(path, cluster["node_folders"])
        and (key != "python" or _has_interpreter(path))
    }


def _script_paths(stack: dict, cluster: dict) -> dict[str, Path]:
    """Return the scripts that `python` and the launcher's options name. A plain `python` is looked up on PATH."""
    python = runtime_of(stack).host_python(stack)
    return ({"python": python} if python else {}) | launcher_of(cluster).ranks.script_paths(stack)


def _has_interpreter(path: Path) -> bool:
    """Return whether a program is a script; False for one that may be run but not read."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except PermissionError:
        return False
