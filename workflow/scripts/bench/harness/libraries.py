"""Which shared libraries this process has really loaded, and whether they lie in the image or on the host.

The files that an image holds say little: a bind, a wrapper or a site's default can put others before them, and a rank
loads what its search path finds first. Only the process itself can tell. Standard library only.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

# File names of the libraries whose version or origin changes speed: torch and its backends, CUDA, fabrics and their
# drivers, MPI and the launchers' side of it, OpenMP, BLAS.
LIBRARY_PATTERN = re.compile(
    r"/lib(torch|c10|gloo|nccl|rccl|cuda|cudart|cudnn|cublas|fabric|cxi|efa|psm|mpi|pmi|ucp|ucs|uct|ibverbs|rdmacm|"
    r"mlx5|gdrapi|gomp|iomp|omp|mkl|openblas|dnnl)[-_.0-9a-z]*\.so[-_.0-9a-z]*$",
    re.IGNORECASE,
)
ANY_LIBRARY = re.compile(r"/lib[^/]*\.so[^/]*$")
DELETED = " (deleted)"  # as the kernel marks a file that is no longer under its name (proc(5))

# What Apptainer and Singularity put into every image that they build or convert, and where --nv mounts the libraries of
# the host's driver (apptainer.org, user guide, "GPU Support").
CONTAINER_VARIABLES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
CONTAINER_FOLDER = "/.singularity.d"
DRIVER_FOLDER = f"{CONTAINER_FOLDER}/libs"
# Places of an image that nobody binds. Which mount holds them shows where the image itself lies.
IMAGE_PROBES = ("/", CONTAINER_FOLDER, f"{CONTAINER_FOLDER}/env", f"{CONTAINER_FOLDER}/runscript")


@dataclass(frozen=True)
class Mount:
    """One line of /proc/<pid>/mountinfo: at `point` lies what the file system `device` holds at `root`."""

    device: str
    root: str
    point: str


def loaded_libraries() -> list[str]:
    """Return the paths of the loaded shared libraries that matter, sorted; [] where /proc does not tell."""
    return that_matter(mapped_files(read_proc("maps")))


def that_matter(paths: list[str]) -> list[str]:
    return [path for path in paths if LIBRARY_PATTERN.search(path.removesuffix(DELETED))]


def mapped_files(maps: str) -> list[str]:
    """Return the paths in /proc/<pid>/maps, sorted. A path is the sixth field and may hold blanks (proc(5))."""
    return sorted({fields[5] for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6})


def loaded_with_origin() -> list[dict]:
    """Return name, path and origin of every library that this process has loaded, sorted by path."""
    return with_origin(read_proc("maps"), read_proc("mountinfo") if is_in_container() else None)


def with_origin(maps: str, mountinfo: str | None) -> list[dict]:
    """Return name, path and origin (`image` or `host`) of mapped libraries. mountinfo: None outside a container."""
    mounts = None if mountinfo is None else parse_mounts(mountinfo)
    found = []
    for path in mapped_files(maps):
        plain = path.removesuffix(DELETED)
        if not ANY_LIBRARY.search(plain):
            continue
        origin = "host" if mounts is None else origin_of(plain, mounts)
        found.append({"name": plain.rpartition("/")[2], "path": path, "origin": origin})
    return found


def is_in_container() -> bool:
    """Return whether this process runs in a container of Apptainer or Singularity."""
    return any(name in os.environ for name in CONTAINER_VARIABLES) or Path(CONTAINER_FOLDER).exists()


def origin_of(path: str, mounts: list[Mount]) -> str:
    """Return `image` for what the container brings along and `host` for what is mounted into it from outside.

    The image is one mount at / where the runtime lays an overlay over it. Where it cannot, it builds / out of many
    mounts of parts of the image (an underlay), which show the same device as those probes that nobody binds.
    """
    if is_within(path, DRIVER_FOLDER):
        return "host"
    own = holder(path, mounts)
    if own is None or own.point == "/":
        return "image"
    images = [mount for probe in IMAGE_PROBES if (mount := holder(probe, mounts)) is not None]
    is_image = any(own.device == image.device and is_within(own.root, base_of(image)) for image in images)
    return "image" if is_image else "host"


def base_of(image: Mount) -> str:
    """Return the folder of its file system that an image's mount would show at /."""
    return image.root.removesuffix(image.point) or "/"


def holder(path: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount that a path lies in: the deepest, and at one place the last, which hides the others."""
    inside = [mount for mount in mounts if is_within(path, mount.point)]
    return max(enumerate(inside), key=lambda item: (len(item[1].point), item[0]))[1] if inside else None


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def parse_mounts(mountinfo: str) -> list[Mount]:
    """Read /proc/<pid>/mountinfo: device, root and mount point are fields 3, 4 and 5 (proc(5))."""
    rows = [line.split(" ") for line in mountinfo.splitlines()]
    return [Mount(row[2], decode(row[3]), decode(row[4])) for row in rows if len(row) > 4]


def decode(text: str) -> str:
    """Return a path of mountinfo without its octal escapes: blank, tab, newline and backslash are written \\040 etc."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def read_proc(name: str) -> str:
    """Return the text of /proc/self/<name>, or an empty one where there is none."""
    try:
        return Path("/proc/self", name).read_text(errors="replace")
    except OSError:
        return ""
