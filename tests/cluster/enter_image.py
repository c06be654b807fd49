"""Make the mounts of a step on one node, for standin.c, which runs this as root.

Arguments are the options as NAME=VALUE; standard input begins with the job's variables, as /proc/PID/environ has them,
terminated by an empty string. Standard output gets records that end with NUL, and an empty one at the end:

    nPID         tasks join the mount namespace of this process        wFOLDER      and change to this folder
    =NAME=VALUE  they get this variable                                ?NAME=VALUE  unless the job has it
    -NAME        they do not get this variable                         cNAME=OTHER  they get a copy of another
    eTEXT        no task starts, for this reason                       xTEXT        the step does not start
"""

import ctypes
import os
import pwd
import re
import subprocess
import sys
import time
import tomllib

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
CLONE_NEWNS, MNT_DETACH = 0x20000, 2
OLD = "/old_root"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
libc = ctypes.CDLL(None, use_errno=True)
daemons: list[subprocess.Popen] = []


class Refused(Exception):
    """The step's tasks cannot start; each argument is a record."""


def main() -> None:
    options = dict(word.split("=", 1) for word in sys.argv[1:])
    job = dict(read_variables())
    if os.fork():
        os._exit(0)
    os.setsid()
    os.closerange(3, 1024)  # what slurmstepd holds
    try:
        if uenvs := job.get("UENV_MOUNT_LIST"):
            mount_uenvs(uenvs, job)
        if container := read_container(options, job):
            for record in [*enter(container, options, job), f"n{os.getpid()}"]:
                say(record)
    except Refused as refusal:
        for record in refusal.args:
            say(record)
    except Exception as err:  # a fault of the stand-in: nothing may run on the host
        say(f"epyxis: container start failed: {err}")
    say("")
    sys.stdin.buffer.read(1)  # the namespace is open
    if daemons:
        sys.stdin.buffer.read()  # slurmstepd ends
        for daemon in daemons:
            daemon.kill()


def read_variables():
    text = b""
    while b"\0\0" not in text and (read := sys.stdin.buffer.read1()):
        text += read
    for item in os.fsdecode(text).split("\0"):
        name, is_set, value = item.partition("=")
        if is_set:
            yield name, value


def say(record: str) -> None:
    sys.stdout.buffer.write(os.fsencode(record) + b"\0")
    sys.stdout.buffer.flush()


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [word and os.fsencode(word) for word in (source, target, kind, options)]
    check(libc.mount(*words[:3], ctypes.c_ulong(flags), words[3]), f"mount {source} at {target}")


def check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{os.strerror(ctypes.get_errno())}: {what}")


def mount_squashfs(image: str, target: str, job: dict[str, str]) -> None:
    """Mount by a loop device of a temporary devtmpfs, since the node's /dev has none; by FUSE if that fails."""
    tried = None
    if "STANDIN_SQUASHFUSE" not in job:
        try:
            mount("devtmpfs", "/dev", "devtmpfs")
            words = ["mount", "-t", "squashfs", "-o", "loop,ro,nosuid,nodev", image, target]
            tried = subprocess.run(words, capture_output=True, text=True)
            libc.umount2(b"/dev", MNT_DETACH)
        except OSError:
            pass
    if tried is None or tried.returncode:
        fuse = subprocess.Popen(
            ["squashfuse", "-f", "-o", "allow_other,nosuid,nodev", image, target], stdin=subprocess.DEVNULL
        )
        daemons.append(fuse)
        while not os.path.ismount(target):
            if fuse.poll() is not None:
                raise OSError(f"squashfuse {image}: exit status {fuse.returncode}")
            time.sleep(0.005)


def is_squashfs(image: str) -> bool:
    with open(image, "rb") as file:
        return file.read(4) == b"hsqs"


# ---- uenv


def mount_uenvs(uenvs: str, job: dict[str, str]) -> None:
    for uenv in uenvs.split(","):
        image, _, target = uenv.partition(":")
        if not os.path.isfile(image):
            raise Refused(f"xinvalid squashfs mount {uenv} - invalid squashfs {image} (is not a regular file)")
        if not is_squashfs(image):
            raise Refused(
                f"xinvalid squashfs mount {uenv} - unable to read squashfs {image} (not a valid squashfs file)"
            )
        if not os.path.isdir(target):
            raise Refused(f"xthe mount path {target} does not exist")
        mount_squashfs(image, target, job)


# ---- Pyxis and the Container Engine


def read_container(options: dict[str, str], job: dict[str, str]) -> dict:
    """Return the settings of the container, from the EDF or from the options and variables of Pyxis."""
    if "environment" in options:
        found = read_edf(options["environment"], job) | {"environment": options["environment"]}
        annotations = found.get("annotations", {}).get("com", {}).get("pyxis", {})
        found["remaps"] = annotations.get("pytorch_remap_vars") == "true"
        return found if found.get("image") else {}

    def get(name: str) -> str:
        return options.get(f"container-{name}", job.get(f"PYXIS_CONTAINER_{name.upper().replace('-', '_')}", ""))

    if not get("image"):
        if not (name := get("name")):
            return {}
        text = f'a container with name "pyxis_{name}" does not exist, and --container-image is not set'
        raise Refused(f"epyxis: error: {text}")
    return {
        "image": get("image"),
        "mounts": get("mounts").split(",") if get("mounts") else [],
        "workdir": get("workdir"),
        "kept": get("env").split(","),
        "writable": "container-writable" in options,
        "home": "container-mount-home" in options,
        "remaps": True,
    }


def read_edf(name: str, job: dict[str, str]) -> dict:
    folders = job.get("EDF_PATH", f"{job.get('HOME')}/.edf").split(":")
    paths = [name] if name.startswith(("/", ".")) else [f"{folder}/{name}.toml" for folder in folders]
    paths = [os.path.join(job.get("PWD", "/"), path) for path in paths]
    path = next(filter(os.path.isfile, paths), None)
    if path is None:
        raise Refused(f"epyxis: unable to find environment definition file: {name}")
    with open(path, "rb") as file:
        content = expand(tomllib.load(file), job)
    bases = content.pop("base_environment", [])
    merged: dict = {}
    for part in [*(read_edf(base, job) for base in ([bases] if isinstance(bases, str) else bases)), content]:
        part["mounts"] = merged.get("mounts", []) + part.get("mounts", [])
        part["env"] = merged.get("env", {}) | part.get("env", {})
        merged |= part
    return merged


def expand(value: object, job: dict[str, str]) -> object:
    """Replace ${NAME} and ${NAME:-DEFAULT} in all texts; $$ is $."""
    if isinstance(value, dict):
        return {key: expand(part, job) for key, part in value.items()}
    if isinstance(value, list):
        return [expand(part, job) for part in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match) -> str:
        if match[0] == "$$":
            return "$"
        found = job.get(match[1], match[2])
        if found is None:
            raise Refused(f"epyxis: environment definition file: variable {match[1]} is not set")
        return found

    return re.sub(r"\$\$|\$\{(\w+)(?::-([^}]*))?\}", replace, value)


def enter(container: dict, options: dict[str, str], job: dict[str, str]) -> list[str]:
    """Move this process into the container, which the tasks then join. Returns their records."""
    check_image(image := container["image"])
    user = pwd.getpwuid(int(options["uid"]))
    records = variables(container, job)
    binds = [("/proc", "/proc", False), ("/sys", "/sys", True), ("/dev", "/dev", False)]
    binds += [
        (path, path, True) for path in ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf") if os.path.exists(path)
    ]
    if container.get("home"):
        binds.append((user.pw_dir, user.pw_dir, False))
    if "script" in options:  # of sbatch
        binds.append((options["script"], options["script"], True))
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount("none", "/", flags=MS_PRIVATE | MS_REC)
    mount("standin", "/mnt", "tmpfs", options="mode=755")
    for name in ("image", "upper", "work", "root"):
        os.mkdir(f"/mnt/{name}")
    for i, text in enumerate(dict.fromkeys(container.get("mounts", []))):
        source, target, flags = (*text.split(":"), "", "")[:3]
        if not os.path.exists(source):
            raise Refused(
                f"epyxis: --container-mounts: source path does not exist: {source}",
                "epyxis: couldn't create enroot start configuration script",
            )
        if flags == "sqsh":
            os.mkdir(f"/mnt/{i}")
            mount_squashfs(source, f"/mnt/{i}", job)
            source = f"/mnt/{i}"
        binds.append((os.path.realpath(source), target or source, "ro" in flags.split("+")))
    mount_squashfs(image, "/mnt/image", job)
    layers = "lowerdir=/mnt/image,upperdir=/mnt/upper,workdir=/mnt/work"
    mount("overlay", "/mnt/root", "overlay", MS_NOSUID | MS_NODEV, layers)
    os.mkdir(f"/mnt/root{OLD}")
    os.chdir("/mnt/root")
    check(libc.pivot_root(b".", os.fsencode(OLD[1:])), "pivot_root")
    os.chdir("/")
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for source, target, is_readonly in binds:
        bind(OLD + source, target, is_readonly)
    if os.path.exists("/etc/passwd"):
        with open("/etc/passwd", "a") as file:
            file.write(":".join(map(str, user)) + "\n")
    libc.umount2(OLD.encode(), MNT_DETACH)
    os.rmdir(OLD)
    if not container.get("writable", True):
        mount("none", "/", flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return [*records, f"w{container.get('workdir') or '/'}"]


def check_image(image: str) -> None:
    if not image.startswith((".", "/")):
        raise Refused(f"epyxis: failed to import docker image: {image}")
    problem = "Invalid image format" if os.path.isfile(image) else "No such file or directory"
    if not os.path.isfile(image) or not is_squashfs(image):
        raise Refused(
            f"epyxis: failed to create container filesystem for image: {image}",
            "epyxis: printing enroot log file:",
            f"epyxis:     [ERROR] {problem}: {image}",
        )


def bind(source: str, target: str, is_readonly: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            open(target, "w").close()
    mount(source, target, flags=MS_BIND | MS_REC)
    if is_readonly:
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def variables(container: dict, job: dict[str, str]) -> list[str]:
    """Return the records of the variables: the image's override the job's, except those in --container-env."""
    kept = container.get("kept", [])
    image = {"PATH": PATH, "PYTORCH_VERSION": "standin"} | read_image_variables(container["image"])
    hooked = {} if "environment" in container else hook_variables(job)
    known = {*image, *(name for name in kept if job.get(name))}
    image |= {name: value for name, value in hooked.items() if name not in known}
    records = [f"-{name}" for name in ("LANG", "LANGUAGE", "LC_ALL") if name not in kept]
    records += [f"{'?' if name in kept else '='}{name}={value}" for name, value in image.items()]
    for name, value in container.get("env", {}).items():
        records.append(f"={name}={value}" if value else f"-{name}")
    return records + (["cRANK=SLURM_PROCID", "cLOCAL_RANK=SLURM_LOCALID"] if container["remaps"] else [])


def read_image_variables(image: str) -> dict[str, str]:
    """Return those of the file IMAGE.env, as an image made of a container has them in its /etc/environment."""
    if not os.path.exists(f"{image}.env"):
        return {}
    with open(f"{image}.env") as file:
        return dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)


def hook_variables(job: dict[str, str]) -> dict[str, str]:
    """Return what enroot's hook 50-slurm-pytorch sets for an image with PYTORCH_VERSION, except what the image sets."""
    tasks, nodes = int(job.get("SLURM_STEP_NUM_TASKS", 1)), int(job.get("SLURM_STEP_NUM_NODES", 1))
    found = {"MASTER_PORT": str(int(job["SLURM_JOB_ID"]) % 4536 + 61000), "WORLD_SIZE": job.get("SLURM_NTASKS", "")}
    if hosts := job.get("SLURM_STEP_NODELIST"):
        shown = subprocess.run(["scontrol", "show", "hostname", hosts], capture_output=True, text=True, env=job)
        found["MASTER_ADDR"] = shown.stdout.partition("\n")[0]
    if tasks > nodes:
        found["OMP_NUM_THREADS"] = "1"
    return {name: value for name, value in found.items() if value}


if __name__ == "__main__":
    main()
