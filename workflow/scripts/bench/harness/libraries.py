"""List the loaded shared libraries with their origin, image or host, and check that this process is in its image.

Binds, wrappers and defaults of a site may put other libraries before those of an image, so the process itself is
examined. Standard library only.
"""

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# File names of the libraries whose version or origin changes speed: torch and its backends, CUDA, fabrics and their
# drivers, MPI with its launcher libraries, OpenMP, BLAS.
LIBRARY_PATTERN = re.compile(
    r"/lib(torch|c10|gloo|nccl|rccl|cuda|cudart|cudnn|cublas|fabric|cxi|efa|psm|mpi|pmi|ucp|ucs|uct|ibverbs|rdmacm|"
    r"mlx5|gdrapi|gomp|iomp|omp|mkl|openblas|dnnl)[-_.0-9a-z]*\.so[-_.0-9a-z]*$",
    re.IGNORECASE,
)
ANY_LIBRARY = re.compile(r"/lib[^/]*\.so[^/]*$")
DELETED = " (deleted)"  # the kernel's mark of a deleted or replaced file (proc(5))

# Variables and directory that Apptainer and Singularity add to every image that they build or convert, and where --nv
# mounts the libraries of the host's driver (apptainer.org, user guide, "GPU Support").
CONTAINER_VARIABLES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
CONTAINER_FOLDER = "/.singularity.d"
DRIVER_FOLDER = f"{CONTAINER_FOLDER}/libs"
# Paths of an image that are never bind targets. Their mount is that of the image.
IMAGE_PROBES = ("/", CONTAINER_FOLDER, f"{CONTAINER_FOLDER}/env", f"{CONTAINER_FOLDER}/runscript")


# The folder of a launch is mounted there in images that Slurm plugins start; the driver names it in the request.
LAUNCH_MOUNT = "/regatta-"
SQUASHFS = "squashfs:"  # before the mount point of a uenv, which leaves / as it is


@dataclass(frozen=True)
class Mount:
    """One line of /proc/<pid>/mountinfo: `root` of the file system `device` is mounted at `point`."""

    device: str
    root: str
    point: str
    fs_type: str = ""


def check_image(image_mount: str | None) -> None:
    """Raise RuntimeError if this process lacks a mount that exists only in its image.

    image_mount: the mount point, after `squashfs:` if it must be a SquashFS file system; None: no check.
    """
    if image_mount is None:
        return
    point = image_mount.removeprefix(SQUASHFS)
    types = [mount.fs_type for mount in parse_mounts(read_proc("mountinfo")) if mount.point == point]
    if not any("squash" in fs_type or point == image_mount for fs_type in types):
        remedy = "The Slurm plugin did not start the image: check plugstack.conf there."
        raise RuntimeError(f"not in the image: {point} is not mounted on {socket.gethostname()}. {remedy}")


def loaded_libraries() -> list[str]:
    """Return the paths of the relevant loaded libraries, sorted; [] without /proc."""
    return relevant(mapped_files(read_proc("maps")))


def relevant(paths: list[str]) -> list[str]:
    return [path for path in paths if LIBRARY_PATTERN.search(path.removesuffix(DELETED))]


def mapped_files(maps: str) -> list[str]:
    """Return the paths in /proc/<pid>/maps, sorted. A path is the sixth field and may contain blanks (proc(5))."""
    return sorted({fields[5] for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6})


def loaded_with_origin() -> list[dict]:
    """Return name, path and origin of every library that this process has loaded, sorted by path."""
    mountinfo = read_proc("mountinfo")
    is_inside = is_in_container() or any(mount.point.startswith(LAUNCH_MOUNT) for mount in parse_mounts(mountinfo))
    # Set by uenv: image:mount, several separated by commas.
    uenvs = [entry.rpartition(":")[2] for entry in os.environ.get("UENV_MOUNT_LIST", "").split(",") if entry]
    return with_origin(read_proc("maps"), mountinfo if is_inside else None, uenvs)


def with_origin(maps: str, mountinfo: str | None, uenvs: Iterable[str] = ()) -> list[dict]:
    """Return name, path and origin (`image` or `host`) of mapped libraries.

    mountinfo: None outside a container. uenvs: mount points of images that leave / as it is.
    """
    mounts = None if mountinfo is None else parse_mounts(mountinfo)
    found = []
    for path in mapped_files(maps):
        plain = path.removesuffix(DELETED)
        if not ANY_LIBRARY.search(plain):
            continue
        is_in_uenv = any(is_within(plain, point) for point in uenvs)
        origin = "image" if is_in_uenv else "host" if mounts is None else origin_of(plain, mounts)
        found.append({"name": plain.rpartition("/")[2], "path": path, "origin": origin})
    return found


def is_in_container() -> bool:
    """Return whether this process runs in a container of Apptainer or Singularity."""
    return any(name in os.environ for name in CONTAINER_VARIABLES) or Path(CONTAINER_FOLDER).exists()


def origin_of(path: str, mounts: list[Mount]) -> str:
    """Return `image` for files of the container and `host` for files mounted into it.

    With an overlay the image is one mount at /. Without one, the runtime builds / out of many mounts of parts of the
    image (an underlay), which have the same device as the paths that are never bind targets.
    """
    if is_within(path, DRIVER_FOLDER):
        return "host"
    found = mount_of(path, mounts)
    if found is None or found.point == "/":
        return "image"
    for image in filter(None, (mount_of(probe, mounts) for probe in IMAGE_PROBES)):
        base = image.root.removesuffix(image.point) or "/"  # the image's folder in its file system
        if found.device == image.device and is_within(found.root, base):
            return "image"
    return "host"


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount that contains a path: the deepest; of several at one point the last, which hides the others."""
    inside = [mount for mount in mounts if is_within(path, mount.point)]
    return max(reversed(inside), key=lambda mount: len(mount.point), default=None)


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def parse_mounts(mountinfo: str) -> list[Mount]:
    """Read /proc/<pid>/mountinfo: fields 3 to 5 are device, root and mount point; the type follows " - " (proc(5))."""
    rows = [(line.split(" "), line.partition(" - ")[2].split(" ")[0]) for line in mountinfo.splitlines()]
    return [Mount(row[2], decode(row[3]), decode(row[4]), fs_type) for row, fs_type in rows if len(row) > 4]


def decode(text: str) -> str:
    """Return a path of mountinfo without its octal escapes: blank, tab, newline and backslash are written \\040 etc."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def read_proc(name: str) -> str:
    """Return the text of /proc/self/<name>, empty if there is none."""
    try:
        return Path("/proc/self", name).read_text(errors="replace")
    except OSError:
        return ""
