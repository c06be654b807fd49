"""Images that Slurm plugins start: srun options, identity, and the check that ranks are inside."""

import hashlib
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from campaign_files import SLURM, TEXT, load, message, stack, write_launch
from test_launch import on_slurm

from regatta import launchers
from regatta.campaign.stacks import changed_since_planned, identity
from regatta.core.errors import UserError
from regatta.core.files import ROOT
from regatta.launchers import LAUNCHERS, command_by_hand, launch_argv, launch_context, slurm_queue
from regatta.runtimes import base, pyxis, runtime_of, squashfs
from regatta.runtimes.prologue_steps import NOT_PASSED

DIGEST = "ab" * 32
REFERENCE = f"nvcr.io#nvidia/pytorch@sha256:{DIGEST}"
LAUNCH = Path("/r/batches/n1/errors/n1-l000-a00")
MOUNT = "/user-environment"
OLD = 1_700_000_000  # seconds: a file that nothing writes any more


def squashfs_file(path: Path, content: bytes = b"files", superblock: bytes = b"1") -> Path:
    """Write a file that begins as a SquashFS image does."""
    path.write_bytes((b"hsqs" + superblock).ljust(96, b"\0") + content)
    os.utime(path, (OLD, OLD))
    return path


@pytest.fixture
def image(folder, monkeypatch) -> Path:
    """Return an image in the folder of the fixture `folder`, with the user's cache beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(base, "HASHES", {})  # files of earlier tests had the same inodes, sizes and times
    return squashfs_file(folder / "a.sqsh")


def of(runtime: str, image: object, **changes) -> dict:
    """Return a complete stack with this image."""
    changes = {"python": f"{MOUNT}/python3"} | changes if runtime == "uenv" else changes
    return stack("contained", SLURM, runtime=runtime, image=str(image), **changes)


def options(made: dict, **context) -> list[str]:
    """Return the srun options and the command prefix that the runtime adds to a launch."""
    words = launch_argv(on_slurm(2, 1), made, ["x.py"], **context)
    return words[words.index("--export=ALL") + 1 : -2]


# ---- Command lines


def test_pyxis_gets_its_image_mounts_and_variables_as_options_of_srun(image, folder):
    made = of("pyxis", image, binds=["$TMPDIR", "/usr:/host/usr:ro"], env={"NCCL_NET": "x"}, wrapper="wrapper.sh")
    variables, folders = {"TMPDIR": "/tmp/7"}, (ROOT, ROOT / "results")
    found = options(made, variables=variables, folders=folders, error_dir=LAUNCH)
    name, value = found[1].split("=")
    mounts = ["/tmp/7:/tmp/7", "/usr:/host/usr:ro", f"{ROOT}:{ROOT}", f"{folder}/wrapper.sh:{folder}/wrapper.sh"]
    assert name == "--container-mounts"
    assert value.split(",") == [*mounts, f"{LAUNCH}:/regatta-{LAUNCH.name}"]
    fixed = ["--no-container-mount-home", "--no-container-entrypoint", "--no-container-remap-root"]
    assert found[0] == f"--container-image={image}"
    assert found[2:6] == [f"--container-workdir={ROOT}", *fixed]
    assert found[7:] == [f"{folder}/wrapper.sh"]


def test_every_variable_of_a_launch_overrides_that_of_a_pyxis_image(image):
    """--container-env lists the variables that win. PATH and LD_LIBRARY_PATH stay the image's."""
    made = of("pyxis", image, env={"NCCL_NET": "x", "OMP_NUM_THREADS": "3", "MASTER_ADDR": "{first_host}i"})
    [words] = [word for word in options(made) if word.startswith("--container-env=")]
    extra = {"MASTER_PORT": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET", "NCCL_DEBUG_FILE": "/x"}
    meeting = {"first_host": "n1", "port": "1"}
    environment = launchers.launch_environment(LAUNCHERS["slurm"], made, extra, meeting=meeting, is_program=True)
    added = environment.keys() - launchers.inherited_environment(LAUNCHERS["slurm"]).keys()
    assert added <= {*words.partition("=")[2].split(",")}
    of_images = of("pyxis", image) | {"env": {"PATH": "/x", "LD_LIBRARY_PATH": "/y", "A": "1"}}
    [words] = [word for word in options(of_images) if word.startswith("--container-env=")]
    assert {"PATH", "LD_LIBRARY_PATH", "A"} & {*words.partition("=")[2].split(",")} == {"A"}


@pytest.mark.parametrize("path", ["/a,b", "/a:b", "/$(id)", '/a"b', "/a`b", "/a\\b"])
@pytest.mark.parametrize("runtime", ["pyxis", "ce"])
def test_a_path_that_a_plugin_would_divide_or_run_is_refused(image, folder, path, runtime):
    (folder / "a.toml").write_text(f'image = "{image}"\n')
    for changes, context in (
        ({}, {"folders": (Path(path),)}),
        ({"binds": ["$TMPDIR:/x"]}, {"variables": {"TMPDIR": path}}),
    ):
        made = of(runtime, folder / "a.toml" if runtime == "ce" else image, **changes)
        with pytest.raises(UserError, match="comma"):
            pyxis.mounts(made, launch_context(made, **context))


def test_an_image_is_unpacked_once_per_job_until_a_launch_does_not_start(image, folder):
    """A name that exists would be reused with another image, of another stack, or after an unpacking that was killed."""
    made = of("pyxis", image, runtime_options=["--container-name", "--container-readonly"])
    results = folder / "results"
    errors = results / "batches" / "b" / "errors"

    def name(made: dict, launch: str, job: str = "7") -> str:
        found = options(made, variables={"SLURM_JOB_ID": job}, error_dir=errors / launch)
        assert "--container-readonly" in found
        return next(word for word in found if word.startswith("--container-name="))

    first = name(made, "l0")
    for launch in ("l0", "l1", "l2"):
        (errors / launch).mkdir(parents=True)
    write_launch(results, "l0", 0, [])
    write_launch(results, "l1", 0, [])
    assert name(made, "l2") == first
    write_launch(results, "l2", 0, [], environment=None)  # the driver's, of a launch that did not start
    assert name(made, "l3") != first
    others = [name(made, "l2", "8"), name({**made, "image_id": "x"}, "l2"), name({**made, "env": {"A": "1"}}, "l2")]
    errors = results / "batches" / "other" / "errors"
    assert len({first, *others, name(made, "l0")}) == 5
    assert all(word.startswith("--container-name=regatta-") and word.endswith(":no_exec") for word in (first, *others))
    assert not any(word.startswith("--container-name") for word in options(made))  # by hand


def test_a_uenv_is_mounted_where_the_stack_says(image):
    made = of("uenv", f"{image}:/user-tools", runtime_options=["--view=default"], wrapper="wrapper.sh")
    assert options(made, error_dir=LAUNCH) == [f"--uenv={image}:/user-tools", "--view=default", made["wrapper"]]
    assert options(of("uenv", DIGEST)) == [f"--uenv={DIGEST}:{MOUNT}"]
    assert runtime_of(made).image_mount(made, "x") == "squashfs:/user-tools"
    assert options(of("uenv", f"{DIGEST}:/a//b/")) == [f"--uenv={DIGEST}:/a/b"]  # as in /proc/self/mountinfo


def test_a_view_does_not_replace_the_variables_of_the_stack(image):
    """The plugin sets those of the view in srun's environment."""
    made = of("uenv", DIGEST, env={"CUDA_HOME": "/x y", "A": "{rank}", "MASTER_ADDR": "{first_host}i"})
    assert options(made)[1:] == ["env", "CUDA_HOME=/x y", "A={rank}"]


def test_libraries_of_the_host_do_not_reach_an_image_by_a_variable(image, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/host/lib")
    for made, is_passed in ((of("pyxis", image), False), (of("uenv", DIGEST), True), (stack(), True)):
        of_cluster = {**made, "env": {"LD_LIBRARY_PATH": "/cluster", "PATH": "/bin"}}
        for given, prologue in ((made, {"LD_LIBRARY_PATH": "/module"}), (of_cluster, {})):
            environment = launchers.launch_environment(LAUNCHERS["slurm"], given, prologue=prologue)
            assert ("LD_LIBRARY_PATH" in environment) == is_passed
        assert not {"PATH", "LD_LIBRARY_PATH"} & launch_context(of_cluster).env.keys()


def test_neither_env_nor_a_prologue_selects_an_image(folder, wording):
    """Pyxis reads each of its options from a variable, too, and uenv the image that is loaded."""
    names = ("PYXIS_CONTAINER_NAME", "SLURM_UENV", "UENV_MOUNT_LIST")
    env = "{" + ", ".join(f"{name}: /x" for name in names) + "}"
    wording(message(folder, TEXT.replace("{kind: host}", f"{{kind: host, python: /bin/ls, env: {env}}}"), SLURM))
    assert all(NOT_PASSED.fullmatch(name) for name in (*names, "EDF_PATH"))
    assert not NOT_PASSED.fullmatch("UENV_REPO_PATH")


def test_host_stacks_ignore_a_uenv_of_the_shell_without_a_new_cell_id(image, folder):
    python = "python: /bin/ls"
    both = TEXT.replace("  host: {kind: host}\n", f"  host: {{kind: host, {python}}}\n")
    alone = load(folder, both, SLURM).data["stacks"]["host"]
    spack = f"  spack: {{kind: contained, runtime: uenv, image: {image}, python: {MOUNT}/python3}}\n"
    stacks = load(folder, both.replace("shapes:", f"{spack}shapes:", 1), SLURM).data["stacks"]
    beside = stacks["host"]
    assert "options_beside" not in stacks["spack"]
    assert options(alone) == []
    assert options(beside) == ["--uenv-passthrough=ignore"]
    assert identity("host", alone, SLURM) == identity("host", beside, SLURM)


def test_a_loaded_uenv_and_options_of_salloc_reach_neither_jobs_nor_ranks(monkeypatch):
    option = "_SLURM_SPANK_OPTION_pyxis_container_image"  # of salloc --container-image
    for name in ("UENV_MOUNT_LIST", "UENV_VIEW", "UENV_REPO_PATH", "SLURM_UENV", option):
        monkeypatch.setenv(name, "/x")
    for environment in (launchers.launch_environment(LAUNCHERS["slurm"], stack()), slurm_queue.environment()):
        assert {name for name in environment if "UENV" in name or name == option} == {"UENV_REPO_PATH"}


def test_the_container_engine_gets_a_file_for_each_launch_that_is_based_on_the_users(image, folder, tmp_path):
    edf, launch = folder / "a.toml", tmp_path / "errors" / "n1-l000-a00"
    edf.write_text('image = "${IMAGES}/a.sqsh"\n')
    env = {"A": 'a "quoted" $HOME $$ ${HOME}\nline', "EMPTY": "", "MASTER_ADDR": "{first_host}i", "IMAGES": str(folder)}
    made = of("ce", edf, env=env, binds=["/usr:/host/usr:ro"])
    assert options(made) == [f"--environment={edf}"]
    assert options(made, error_dir=launch) == [f"--environment={launch}/environment.toml"]
    meeting = {"first_host": "n1", "port": "1"}
    context = launch_context(made, meeting, variables={}, folders=(ROOT,), error_dir=launch)
    runtime_of(made).write_files(made, context)
    written = tomllib.loads((launch / "environment.toml").read_text())
    assert (written["image"], written["base_environment"]) == (str(image), [str(edf)])  # no prologue changes the image
    assert written["mounts"] == ["/usr:/host/usr:ro", f"{ROOT}:{ROOT}", f"{launch}:/regatta-{launch.name}"]
    given = {"A": 'a "quoted" $HOME $$$ $${HOME}\nline', "MASTER_ADDR": "n1i", "REGATTA_MASTER_ADDR": "n1i"}
    given |= {"PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1"}
    assert written["env"] == env | given


def test_the_line_by_hand_enters_the_image_with_the_shells_variables(image):
    made = of("pyxis", image, binds=["$TMPDIR/x"], env={"A": "b c"})
    spec = {"benchmark": "collective", "nodes": 1, "gpus_per_node": 1, "device": "cpu", "backend": "gloo"}
    line = command_by_hand(spec | {"parameters": {}, "sampling": {}}, made, SLURM | {"gpu_request": "none"})
    script = f'srun() {{ printf \'%s\\n\' "$@"; }}\nenv() {{ shift $(($# - $#)); srun "$@"; }}\n{line}'
    words = subprocess.run(["bash", "-c", script], env={"TMPDIR": "/t t"}, capture_output=True, text=True, cwd="/")
    assert {"--container-mounts=/t t/x:/t t/x,/:/", "--container-workdir=/"} <= {*words.stdout.splitlines()}


# ---- What is refused

PYTHON = f"python: {MOUNT}/python3"
LINES = {
    "pyxis without Slurm": ({}, ["runtime: pyxis", "image: {folder}/a.sqsh"]),
    "a tag": (SLURM, ["runtime: pyxis", "image: 'nvcr.io#nvidia/pytorch:25.01'"]),
    "a relative path": (SLURM, ["runtime: pyxis", "image: a.sqsh"]),
    "an image of Apptainer": (SLURM, ["runtime: pyxis", "image: {folder}/a.sif"]),
    "an image that is not there": (SLURM, ["runtime: pyxis", "image: {folder}/b.sqsh"]),
    "no image": (SLURM, ["runtime: pyxis"]),
    "a path that the image sets": (SLURM, ["runtime: pyxis", "image: {folder}/a.sqsh", "env: {PATH: x}"]),
    "an option of Regatta": (
        SLURM,
        ["runtime: pyxis", "image: {folder}/a.sqsh", "runtime_options: [--container-image=x]"],
    ),
    "a name of a container": (
        SLURM,
        ["runtime: pyxis", "image: {folder}/a.sqsh", "runtime_options: [--container-name=x]"],
    ),
    "a label of a uenv": (SLURM, ["runtime: uenv", PYTHON, "image: 'prgenv-gnu/25.6:v2'"]),
    "no uenv": (SLURM, ["runtime: uenv", PYTHON]),
    "a uenv with binds": (SLURM, ["runtime: uenv", PYTHON, "image: {folder}/a.sqsh", "binds: [/usr]"]),
    "a uenv with a Python on PATH": (SLURM, ["runtime: uenv", "image: {folder}/a.sqsh", "python: python3"]),
    "a view without a name": (SLURM, ["runtime: uenv", PYTHON, "image: {folder}/a.sqsh", "runtime_options: [--view=]"]),
    "Slurm's container": (SLURM, ["srun: ['--container=/x']"]),
    "no environment file": (SLURM, ["runtime: ce"]),
    "a name in EDF_PATH": (SLURM, ["runtime: ce", "image: pytorch"]),
    "an environment file with a tag": (SLURM, ["runtime: ce", "image: {folder}/tag.toml"]),
    "an environment file without an image": (SLURM, ["runtime: ce", "image: {folder}/none.toml"]),
    "an environment file that is none": (SLURM, ["runtime: ce", "image: {folder}/wrapper.sh"]),
    "an environment file with itself as base": (SLURM, ["runtime: ce", "image: {folder}/loop.toml"]),
    "an environment file with an unset variable": (SLURM, ["runtime: ce", "image: {folder}/unset.toml"]),
    "an environment file with an image of Apptainer": (SLURM, ["runtime: ce", "image: {folder}/sif.toml"]),
    "an environment file that is nested too deeply": (SLURM, ["runtime: ce", "image: {folder}/deep.toml"]),
    "an environment file that is an image": (SLURM, ["runtime: ce", "image: {folder}/a.sqsh"]),
    "an environment file that is a pipe": (SLURM, ["runtime: ce", "image: {folder}/fifo.toml"]),
    "an environment file with a base that is not there": (SLURM, ["runtime: ce", "image: {folder}/name.toml"]),
    "an environment file with a base that a variable names": (SLURM, ["runtime: ce", "image: {folder}/variable.toml"]),
    "an environment file without its image": (SLURM, ["runtime: ce", "image: {folder}/gone.toml"]),
    "pyxis on the host": (SLURM, ["srun: ['--container-image=/x']"]),
    "an abbreviated option of pyxis": (SLURM, ["srun: ['--container-im=/x']"]),
    "the container engine on the host": (SLURM, ["srun: ['--environment=/x.toml']"]),
    "a uenv on the host": (SLURM, ["srun: ['--uenv=/x']"]),
}


@pytest.mark.parametrize(("cluster", "lines"), LINES.values(), ids=list(LINES))
def test_a_stack_without_an_identified_image_is_refused_with_its_line(image, folder, cluster, lines, wording):
    (folder / "tag.toml").write_text('image = "nvcr.io#nvidia/pytorch:25.01"\n')
    (folder / "none.toml").write_text('mounts = ["/a:/b"]\n')
    (folder / "loop.toml").write_text(f'base_environment = "{folder}/loop.toml"\nimage = "{image}"\n')
    (folder / "unset.toml").write_text('image = "${NO_SUCH}/a.sqsh"\n')
    (folder / "gone.toml").write_text(f'image = "{folder}/gone.sqsh"\n')
    (folder / "sif.toml").write_text(f'image = "{folder}/a.sif"\n')
    (folder / "deep.toml").write_text(f"a = {'[' * 5000}\n")
    (folder / "name.toml").write_text('base_environment = "base"\n')
    (folder / "variable.toml").write_text('base_environment = "${HOME}/base.toml"\n')
    os.mkfifo(folder / "fifo.toml")
    kind = "contained" if any(line.startswith("runtime:") for line in lines) else "host, python: /bin/ls"
    entry = ", ".join([f"kind: {kind}", *(line.format(folder=folder) for line in lines if "{PATH" not in line)])
    entry += ", env: {PATH: x}" if any("{PATH" in line for line in lines) else ""
    found = message(folder, TEXT.replace("{kind: host}", f"{{{entry}}}"), cluster)
    wording(re.sub(r"image = '\S*", "image = VALUE", found))  # truncated: its folder is long


def test_options_of_plugins_are_refused_for_jobs_too(folder, wording):
    wording(
        message(folder, TEXT.replace("{kind: host}", "{kind: host, python: /bin/ls}"), SLURM | {"sbatch": ["--uenv=x"]})
    )


# ---- Identity


def test_an_image_is_read_once(image, monkeypatch):
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    assert of("pyxis", image)["image_id"] == digest
    os.utime(image, ns=(OLD * 10**9, OLD * 10**9 + 123_456_789))  # as on most file systems
    assert of("pyxis", image)["image_id"] == digest
    monkeypatch.setattr(squashfs, "file_hash", lambda path: pytest.fail(f"{path} is read again"))
    assert of("pyxis", image)["image_id"] == of("uenv", image)["image_id"] == digest


def test_an_image_with_another_size_time_or_inode_is_read_again(image, folder):
    first = of("pyxis", image)["image_id"]
    squashfs_file(folder / "b", content=b"other").replace(image)  # with the same size and modification time
    second = of("pyxis", image)["image_id"]
    squashfs_file(image, content=b"3rd  ")
    os.utime(image, (OLD, OLD + 1))
    assert len({first, second, of("pyxis", image)["image_id"]}) == 3


@pytest.mark.parametrize("cache", [b"", b"[1]", b'{"x": 1}', b"\xff", b"hash"])
def test_a_damaged_cache_is_written_anew(image, folder, cache):
    (folder / "cache" / "regatta").mkdir(parents=True)
    found = image.stat()
    entry = {
        "size_times_inode": f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}",
        "sha256": "x,y:--z",
    }
    content = json.dumps({str(image): entry}).encode() if cache == b"hash" else cache
    (folder / "cache" / "regatta" / "images.json").write_bytes(content)
    assert of("pyxis", image)["image_id"] == hashlib.sha256(image.read_bytes()).hexdigest()
    assert str(image) in (folder / "cache" / "regatta" / "images.json").read_text()


@pytest.mark.parametrize("runtime", ["pyxis", "uenv", "ce"])
def test_a_job_recognizes_an_image_without_reading_it(image, folder, monkeypatch, runtime, wording):
    edf = folder / "a.toml"
    edf.write_text(f'image = "{image}"\n')
    made = of(runtime, edf if runtime == "ce" else image)
    monkeypatch.setattr(squashfs, "file_hash", lambda path: pytest.fail(f"{path} is read in a job"))
    assert changed_since_planned("a", made, SLURM) is None
    squashfs_file(image, superblock=b"2")  # same size and time
    wording(changed_since_planned("a", made, SLURM))
    squashfs_file(image)
    assert changed_since_planned("a", made, SLURM) is None
    os.utime(image, (OLD, OLD + 5))
    assert changed_since_planned("a", made, SLURM)
    image.unlink()
    wording(changed_since_planned("a", made, SLURM))


def test_the_digest_of_a_registry_and_the_hash_of_a_uenv_are_the_identity(image):
    assert of("pyxis", REFERENCE)["image_id"] == of("uenv", DIGEST)["image_id"] == DIGEST
    assert of("pyxis", REFERENCE)["image"] == REFERENCE
    assert changed_since_planned("a", of("pyxis", REFERENCE), SLURM) is None
    assert changed_since_planned("a", of("uenv", DIGEST), SLURM) is None


def test_the_identity_of_an_environment_file_includes_its_bases_and_its_image(image, folder):
    """Bases by path, or by name in the EDF_PATH of the stack; what a file says itself wins."""
    edf, base = folder / "a.toml", folder / "edf" / "base.toml"
    base.parent.mkdir()
    base.write_text(f'image = "{folder}/other.sqsh"\n')
    edf.write_text(f'base_environment = ["base"]\nimage = "{image}"\n')
    env = {"EDF_PATH": f"/no/such:{base.parent}"}
    first = of("ce", edf, env=env)
    assert first["env"] == env
    base.write_text('image = "x"\nworkdir = "/"\n')
    assert changed_since_planned("a", first, SLURM)
    second = of("ce", edf, env=env)
    edf.write_text(f'base_environment = ["{base}"]\nimage = "nvcr.io#nvidia/pytorch@sha256:{DIGEST}"\n')
    third = of("ce", edf, env=env)
    assert len({made["image_id"] for made in (first, second, third)}) == 3
    base.write_text(f'image = "{image}"\n')
    edf.write_text(f'base_environment = "{base}"\n')
    fourth = of("ce", edf)
    squashfs_file(image, content=b"other")
    os.utime(image, (OLD, OLD + 9))
    assert of("ce", edf)["image_id"] != fourth["image_id"]


@pytest.mark.parametrize(("num_bases", "is_accepted"), [(9, True), (10, False)])
def test_an_environment_file_has_at_most_nine_levels_of_bases(image, folder, num_bases, is_accepted):
    """The engine permits ten, and the EDF of a launch is one more."""
    (folder / "0.toml").write_text(f'image = "{image}"\n')
    for level in range(num_bases):
        (folder / f"{level + 1}.toml").write_text(f'base_environment = "{folder}/{level}.toml"\n')
    if is_accepted:
        assert of("ce", folder / f"{num_bases}.toml")["image_id"]
    else:
        with pytest.raises(ValueError, match="levels"):
            of("ce", folder / f"{num_bases}.toml")


def test_the_identity_of_a_uenv_includes_its_mount_and_the_views_beside_it(image, folder):
    """meta/env.json beside the file replaces that in the image."""
    plain, moved = of("uenv", image), of("uenv", f"{image}:/user-tools")
    (folder / "meta").mkdir()
    (folder / "meta" / "env.json").write_text("{}")
    assert changed_since_planned("a", plain, SLURM)
    assert len({made["image_id"] for made in (plain, moved, of("uenv", image), of("uenv", DIGEST))}) == 4


# ---- The check that ranks are inside


@pytest.mark.parametrize(
    ("inside", "is_inside"),
    [("-", True), ("/proc", True), ("/regatta-x", False), ("squashfs:/proc", False), ("squashfs:/no", False)],
)
def test_a_program_outside_of_its_image_is_not_started(tmp_path, inside, is_inside):
    from regatta.launchers import PROGRAM
    from regatta.run.causes import find_cause

    words = ["sh", PROGRAM, tmp_path, tmp_path, "-", inside, "echo", "measured"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode == 0, "measured" in done.stdout) == (is_inside, is_inside)
    assert (tmp_path / "started-0").exists() == is_inside
    if not is_inside:
        cause = find_cause(LAUNCHERS["slurm"], [], done.stderr, 1, 0)
        assert (cause.status, cause.phase) == ("failed", "image")
        assert f"{inside.removeprefix('squashfs:')} is not mounted" in cause.text


LOGS = {
    "an image that is missing": """\
slurmstepd: error: pyxis: child 4711 failed with error code: 1
slurmstepd: error: pyxis: failed to create container filesystem for image: /images/a.sqsh
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/a.sqsh
slurmstepd: error: pyxis: couldn't start container
slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
slurmstepd: error: Failed to invoke spank plugin stack
srun: error: n2: task 1: Exited with exit code 1
""",
    "a mount that is missing": """\
[2026-11-30T09:37:38.440] error: pyxis: --container-mounts: source path does not exist: /no/such
[2026-11-30T09:37:38.440] error: pyxis: couldn't create enroot start configuration script
[2026-11-30T09:37:38.440] error: Failed to invoke spank plugin stack
srun: error: n2: tasks 2-3: Exited with exit code 1
""",
    "a uenv that is missing": """\
srun: error: invalid squashfs mount /x:/user-environment - invalid squashfs /x (is not a regular file)
srun: error: spank: required plugin uenv.so: init_post_opt() failed with rc=-1
""",
    "a node without the plugin": """\
srun: unrecognized option '--container-image=/images/a.sqsh'
Try "srun --help" for more information
""",
}


@pytest.mark.parametrize("log", LOGS.values(), ids=list(LOGS))
def test_the_error_of_a_plugin_is_the_cause_if_no_rank_started(log, wording):
    from regatta.run.causes import find_cause

    cause = find_cause(LAUNCHERS["slurm"], [], log, 1, 0)
    assert (cause.status, cause.phase) == ("failed", "image")
    assert cause.hosts == (frozenset({"n2"}) if "n2" in log else frozenset())
    wording(cause.text)


def test_a_program_in_a_folder_named_uenv_is_not_an_image():
    from regatta.run.causes import find_cause

    log = "slurmstepd: error: execve(): /x/uenv/app: No such file or directory\nsrun: error: n1: task 0: Exited with exit code 2\n"
    assert find_cause(LAUNCHERS["slurm"], [], log, 1, 0).phase == "launch"


def test_the_error_of_a_plugin_after_that_of_a_rank_is_not_the_cause():
    from regatta.run.causes import find_cause

    log = LOGS["a mount that is missing"]
    error = {"rank": 0, "host": "n1", "status": "failed", "phase": "measure", "cause": "ValueError: x", "time_ns": 1}
    assert find_cause(LAUNCHERS["slurm"], [error], log, 1, 0).phase == "measure"
    killed = log.replace("tasks 2-3: Exited with exit code 1", "task 2: Killed")
    assert find_cause(LAUNCHERS["slurm"], [], killed, 1, 0).phase is None


def test_a_python_in_a_mounted_folder_has_a_host_path(image, folder):
    made = of("pyxis", image, binds=[f"{folder}/bin:/tools"], python="/tools/apptainer")
    assert pyxis.RUNTIME.host_python(made) == folder / "bin" / "apptainer"
    assert runtime_of(made).host_python({**made, "python": "/opt/python"}) is None
    uenv = of("uenv", image, python="/user-environment/env/default/bin/python")
    assert runtime_of(uenv).host_python(uenv) is None
    assert runtime_of(uenv).host_python({**uenv, "python": "/bin/ls"}) == Path("/bin/ls")
