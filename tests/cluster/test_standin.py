"""The stand-in for Pyxis, the Container Engine and uenv does what Regatta relies on. No part of Regatta runs here."""

import json
import subprocess
from pathlib import Path

import pytest
from slurm import Cluster, wait_until

SHOW = """
import importlib.util, json, os, socket
lines = [line.split() for line in open("/proc/self/mountinfo")]
print(json.dumps({
    "host": socket.gethostname(), "uid": os.getuid(), "folder": os.getcwd(),
    "env": dict(os.environ),
    "system": open("/etc/os-release").read(), "torch": bool(importlib.util.find_spec("torch")),
    "mounts": {words[4]: [words[words.index("-") + 1], *words[5].split(",")] for words in lines},
}))
"""
MOUNTERS = [{}, {"STANDIN_SQUASHFUSE": "1"}]  # the kernel if it can, or FUSE
PLUGSTACK = "/etc/regatta-cluster/plugstack.conf"


@pytest.fixture(scope="module")
def image(cluster, cpu_squashfs) -> str:
    """Return the path of an image that brings variables."""
    path = cluster.state / "images" / "with-variables.sqsh"
    path.hardlink_to(path.with_name(Path(cpu_squashfs).name))
    Path(f"{path}.env").write_text("FROM_IMAGE=image\nKEPT=image\nPATH=/opt/image/bin:/usr/bin\n")
    return f"/images/{path.name}"


@pytest.fixture(scope="module")
def uenv(cluster) -> str:
    """Return the path of a uenv image whose view has a program."""
    bin_folder = cluster.shared / "uenv/env/view/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "only-in-uenv").write_text("#!/bin/sh\necho from the uenv\n")
    (bin_folder / "only-in-uenv").chmod(0o755)
    cluster.run(["mksquashfs", "/shared/uenv", "/shared/uenv.squashfs", "-quiet", "-no-progress"])
    return "/shared/uenv.squashfs"


def srun(cluster: Cluster, *options: str, env: dict[str, str] | None = None) -> list[dict]:
    """Return what the tasks show, by the image's Python or that of the environment."""
    is_contained = any(option.startswith(("--container", "--environment")) for option in options) or env
    python = "python3" if is_contained else cluster.python
    for path in cluster.shared.glob("shown-*"):
        path.unlink()
    # A file for each task: srun mixes lines of more than 1 KiB.
    line = ["srun", "--output=/shared/shown-%t.json", *options, python, "-c", SHOW]
    cluster.run(line, env=env, cwd="/shared")
    return [json.loads(path.read_text()) for path in sorted(cluster.shared.glob("shown-*"))]


def refused(cluster: Cluster, *options: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    """Return output and errors of an srun that fails."""
    done = cluster.run(["srun", *options, "hostname"], env=env, check=False)
    assert done.returncode != 0
    return done.stdout, done.stderr


def is_in_use(cluster: Cluster) -> bool:
    """Return whether a process or a loop device serves an image on the nodes."""
    pgrep = ["pgrep", "-f", "squashfuse|enter_image"]
    if any(cluster.run(pgrep, node, check=False).returncode == 0 for node in ("n1", "n2")):
        return True
    held = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return any(Path(path.strip()).name in ("with-variables.sqsh", "uenv.squashfs") for path in held)


@pytest.mark.parametrize("mounter", MOUNTERS)
def test_tasks_enter_an_image_and_leave_nothing_on_the_nodes(cluster, image, mounter):
    node_system = cluster.run(["cat", "/etc/os-release"]).stdout
    mounts = "--container-mounts=/shared:/regatta-x,/images:/regatta-y/z:ro"
    tasks = srun(
        cluster, "--nodes=2", "--ntasks-per-node=2", f"--container-image={image}", mounts, env={"A": "job"} | mounter
    )
    assert [task["host"] for task in tasks] == ["n1", "n1", "n2", "n2"]
    for task in tasks:
        assert task["system"] != node_system
        assert task["torch"]
        assert task["uid"] == cluster.shared.stat().st_uid
        assert task["folder"] == "/"
        assert "ro" in task["mounts"]["/"]
        assert "rw" in task["mounts"]["/regatta-x"]
        assert "ro" in task["mounts"]["/regatta-y/z"]
    wait_until(lambda: not is_in_use(cluster), 30, "nothing left on the nodes")


@pytest.mark.parametrize("mounter", MOUNTERS)
def test_a_cancelled_step_leaves_nothing_on_the_nodes(cluster, image, mounter):
    line = ["srun", "--nodes=2", f"--container-image={image}", "sleep", "600"]
    with cluster.popen(line, env={"A": "job"} | mounter, stderr=subprocess.DEVNULL):
        wait_until(lambda: is_in_use(cluster), 60, "an image in use")
        cluster.run(["scancel", "--me"])
    wait_until(lambda: not is_in_use(cluster), 30, "nothing left on the nodes")


def test_variables_are_those_of_pyxis(cluster, image):
    given = {
        "FROM_IMAGE": "job",
        "KEPT": "job",
        "FROM_JOB": "job",
        "RANK": "9",
        "LC_ALL": "C",
        "LANG": "C",
        "LD_LIBRARY_PATH": "/job",
    }
    inside = f"--container-image={image}"
    first, second = (
        task["env"] for task in srun(cluster, "--ntasks=2", inside, "--container-env=KEPT,LANG", env=given)
    )
    assert (first["FROM_IMAGE"], first["KEPT"], first["FROM_JOB"]) == ("image", "job", "job")
    assert first["PATH"] == "/opt/image/bin:/usr/bin"
    assert first["LD_LIBRARY_PATH"] == "/job"  # Pyxis replaces it only if the image has one
    assert ("LC_ALL" in first, first["LANG"]) == (False, "C")
    assert (first["RANK"], second["RANK"], second["LOCAL_RANK"]) == ("0", "1", "1")
    assert second["PYTORCH_VERSION"]
    assert (first["WORLD_SIZE"], first["OMP_NUM_THREADS"]) == ("2", "1")  # by the hook for PyTorch

    variables = {"PYXIS_CONTAINER_IMAGE": image, "PYXIS_CONTAINER_MOUNTS": "/shared:/regatta-x"}
    [task] = srun(cluster, "--ntasks=1", env=variables)
    assert task["env"]["KEPT"] == "image"
    assert "/regatta-x" in task["mounts"]
    [task] = srun(cluster, "--ntasks=1", "--container-mounts=/shared:/regatta-y", env=variables)
    assert "/regatta-x" not in task["mounts"]


def test_no_task_runs_where_the_container_cannot_start(cluster, image):
    cluster.run(["ln", "-s", image, "/tmp/one-node.sqsh"], "n1")
    out, errors = refused(cluster, "--nodes=2", "--ntasks=3", "--container-image=/tmp/one-node.sqsh")
    assert set(out.split()) == {"n1"}
    assert "No such file" in errors.partition("pyxis:     [ERROR]")[2]
    assert "/tmp/one-node.sqsh" in errors

    inside = f"--container-image={image}"
    for options, shown in [
        ((inside, "--container-mounts=/none:/x"), "exist: /none"),
        ((inside, "--container-workdir=/none"), "chdir to /none"),
        (("--container-image=/images/cpu.sif",), "Invalid image format"),
        (("--container-name=none",), '"pyxis_none" does not'),
        (("--environment=none",), "none"),
    ]:
        out, errors = refused(cluster, "--nodes=2", *options)
        assert out == ""
        assert "pyxis: " in errors
        assert shown in errors
    out, errors = refused(cluster, inside, "--container-unknown=x")
    assert (out, "--container-unknown" in errors) == ("", True)

    ignored = cluster.run(["srun", "--container-mounts=/shared:/x", "hostname"])
    assert ("pyxis: ignoring" in ignored.stderr, ignored.stdout.split()) == (True, ["n1"])


@pytest.mark.parametrize("node", ["login", "n2"])
def test_a_node_without_the_plugin(cluster, image, node):
    """srun refuses the option on a login node without it. A compute node without it starts its tasks on the host."""
    cluster.run(["mount", "--bind", "/dev/null", PLUGSTACK], node, as_root=True)
    try:
        script = 'echo "$(hostname)" "$(md5sum </etc/os-release)"'
        done = cluster.run(["srun", "--nodes=2", f"--container-image={image}", "sh", "-c", script], check=False)
        if node == "login":
            assert (done.returncode != 0, done.stdout, "--container-image" in done.stderr) == (True, "", True)
        else:
            found = dict(line.split()[:2] for line in done.stdout.splitlines())
            on_host = cluster.run(["sh", "-c", "md5sum </etc/os-release"]).stdout.split()[0]
            assert (done.returncode, done.stderr, found["n2"]) == (0, "", on_host)
            assert found["n1"] != on_host
    finally:
        cluster.run(["umount", PLUGSTACK], node, as_root=True)


def test_an_environment_definition_file_extends_another(cluster, image, uenv):
    folder = cluster.shared / "edf"
    folder.mkdir()
    (folder / "base.toml").write_text(
        f'image = "{image}"\nworkdir = "/"\nmounts = ["/images:/regatta-base:ro"]\n'
        '[env]\nWHO = "base"\nONLY_BASE = "${GIVEN}"\nFROM_IMAGE = "file"\n'
    )
    (folder / "derived.toml").write_text(
        'base_environment = ["base"]\nworkdir = "/regatta-derived"\n'
        f'mounts = ["${{SHARED}}:/regatta-derived", "{uenv}:/u:sqsh"]\n'
        '[env]\nWHO = "derived"\nLITERAL = "$${GIVEN}"\nREMOVED = ""\n'
    )
    env = {
        "EDF_PATH": "/none:/shared/edf",
        "GIVEN": "g",
        "SHARED": "/shared",
        "REMOVED": "1",
        "LC_ALL": "C",
        "RANK": "9",
    }
    [task] = srun(cluster, "--ntasks=1", "--environment=derived", env=env)
    shown = {name: task["env"].get(name) for name in ("WHO", "ONLY_BASE", "FROM_IMAGE", "LITERAL", "REMOVED", "LC_ALL")}
    assert shown == {
        "WHO": "derived",
        "ONLY_BASE": "g",
        "FROM_IMAGE": "file",
        "LITERAL": "${GIVEN}",
        "REMOVED": None,
        "LC_ALL": None,
    }
    assert task["env"]["RANK"] == "9"  # the Container Engine does not replace it
    assert task["folder"] == "/regatta-derived"
    assert "ro" in task["mounts"]["/regatta-base"]
    assert "rw" in task["mounts"]["/regatta-derived"]
    assert "/u" in task["mounts"]
    assert "rw" in task["mounts"]["/"]
    with (folder / "derived.toml").open("a") as file:
        file.write('[annotations]\ncom.pyxis.pytorch_remap_vars = "true"\n')
    [task] = srun(cluster, "--ntasks=1", "--environment=/shared/edf/derived.toml", env=env)
    assert task["env"]["RANK"] == "0"
    assert "SHARED" in refused(cluster, "--environment=derived", env={"EDF_PATH": "/shared/edf"})[1]


def test_a_uenv_is_mounted_beside_the_files_of_the_node(cluster, uenv):
    tasks = srun(cluster, "--nodes=2", f"--uenv={uenv}", "--view=view")
    assert [task["host"] for task in tasks] == ["n1", "n2"]
    for task in tasks:
        assert task["mounts"]["/user-environment"][0] in ("squashfs", "fuse.squashfuse")
        assert task["env"]["UENV_MOUNT_LIST"] == f"{uenv}:/user-environment"
        assert task["env"]["PATH"].startswith("/user-environment/env/view/bin:")
        assert task["folder"] == "/shared"
    assert "uenv" in cluster.run(["srun", f"--uenv={uenv}:/user-tools", "--view=view", "only-in-uenv"]).stdout

    inherited = {"UENV_MOUNT_LIST": f"{uenv}:/user-tools"}
    for options, expected in [
        ([], ["/user-tools/env"]),
        (["--uenv-passthrough=ignore"], []),
        ([f"--uenv={uenv}"], ["/user-environment/env"]),
    ]:
        listing = ["sh", "-c", "ls -d /user-tools/* /user-environment/* || true"]
        assert cluster.run(["srun", *options, *listing], env=inherited).stdout.split() == expected
    assert cluster.run(["sbatch", "--wrap=true"], env=inherited, check=False).returncode != 0

    assert "/none" in refused(cluster, "--uenv=/none")[1]
    assert "/none" in refused(cluster, env={"UENV_MOUNT_LIST": "/none:/user-tools"})[1]
    cluster.run(["ln", "-s", uenv, "/tmp/on-login"], "login")
    out, errors = refused(cluster, "--nodes=2", "--uenv=/tmp/on-login")
    assert (out, "launch failed" in errors) == ("", True)
    cluster.run(["srun", "--nodes=2", "true"])  # the nodes still serve
    wait_until(lambda: not is_in_use(cluster), 30, "nothing left on the nodes")
