"""containers/host_libraries.sh with substitutes for the host's folders: order of libraries, and variables."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WRAPPER = Path(__file__).resolve().parents[2] / "containers" / "host_libraries.sh"
SETTINGS = {
    "NCCL_NET": "AWS Libfabric",
    "NCCL_NET_GDR_LEVEL": "PHB",
    "NCCL_CROSS_NIC": "0",
    "FI_MR_CACHE_MONITOR": "userfaultfd",
    "FI_CXI_DISABLE_HOST_REGISTER": "1",
    "FI_CXI_DEFAULT_CQ_SIZE": "131072",
    "FI_CXI_RDZV_GET_MIN": "0",
}
SHOW = "import os, sys; print(repr((dict(os.environ), sys.argv[1:])))"


@pytest.fixture
def host(tmp_path) -> Path:
    """A folder that holds /host/lib, /host/usr/lib64 and /tmp of an image, with empty files for libraries."""
    for path in (
        "lib/libfabric.so.1.18.2",
        "lib/libfabric.a",
        "lib/pkgconfig/libfabric.pc",
        "lib/libother.so.1",
        "lib64/libcxi.so.1.5.0",
        "lib64/libcxiutils.so.0",
        "lib64/libfabric.so.1",  # an older one, of the distribution
        "lib64/libstdc++.so.6",
        "lib64/libc.so.6",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "lib" / "libfabric.so.1").symlink_to("libfabric.so.1.18.2")
    (tmp_path / "lib64" / "libcxi.so.1").symlink_to("libcxi.so.1.5.0")
    (tmp_path / "lib64" / "libcxi.so").symlink_to("/not/mounted/libcxi.so.1")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def environment(host: Path, **variables: str) -> dict[str, str]:
    folders = {"HOST_LIBFABRIC_DIR": "lib", "HOST_LIBCXI_DIR": "lib64", "HOST_LINKS_DIR": "tmp"}
    own = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "77", "HOST_OTHER_DIR": f"{host}/more"}
    return own | {name: str(host / folder) for name, folder in folders.items()} | variables


def wrapped(host: Path, *words: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess:
    line = [str(WRAPPER), *words]
    return subprocess.run(line, env=environment(host, **variables), capture_output=True, text=True, check=check)


def seen(host: Path, *words: str, **variables: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables and arguments of a program that is run by the wrapper."""
    return eval(wrapped(host, sys.executable, "-c", SHOW, *words, **variables).stdout)


def links(host: Path) -> dict[str, str]:
    [folder] = (host / "tmp").iterdir()
    return {path.name: os.readlink(path) for path in folder.iterdir()}


def test_only_libfabric_and_libcxi_are_linked_and_the_first_folder_wins(host):
    seen(host)
    assert links(host) == {
        "libfabric.so.1": f"{host}/lib/libfabric.so.1",
        "libfabric.so.1.18.2": f"{host}/lib/libfabric.so.1.18.2",
        "libcxi.so.1": f"{host}/lib64/libcxi.so.1",
        "libcxi.so.1.5.0": f"{host}/lib64/libcxi.so.1.5.0",
        "libcxiutils.so.0": f"{host}/lib64/libcxiutils.so.0",
    }


def test_the_links_come_before_the_image_s_libraries_and_no_folder_of_the_host_is_searched(host):
    variables, _ = seen(host, LD_LIBRARY_PATH="/usr/local/nccl/lib:/.singularity.d/libs")
    first, *image = variables["LD_LIBRARY_PATH"].split(":")
    assert Path(first).parent == host / "tmp"
    assert image == ["/usr/local/nccl/lib", "/.singularity.d/libs"]


@pytest.mark.parametrize("before", [{}, {"LD_LIBRARY_PATH": ""}])
def test_without_a_search_path_in_the_image_the_links_are_the_only_one(host, before):
    variables, _ = seen(host, **before)
    assert [Path(path).parent for path in variables["LD_LIBRARY_PATH"].split(":")] == [host / "tmp"]


@pytest.fixture
def compiled(host) -> Path:
    """The same folder with real libraries: libfabric needs libcxi and libm, libcxi needs libjson-c, and that libz9."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def build(path: str, *needs: Path, content: str = "") -> Path:
        target = host / path
        target.unlink(missing_ok=True)
        target.parent.mkdir(exist_ok=True)
        line = [compiler, "-shared", "-fPIC", "-xc", "-", "-xnone", "-Wl,--no-as-needed", *needs, "-o", target]
        subprocess.run([*line, f"-Wl,-soname,{target.name}"], input=content, text=True, check=True)
        return target

    shutil.rmtree(host / "lib")
    z9 = build("more/libz9.so.9")
    json = build("lib64/libjson-c.so.3", z9)
    cxi = build("lib64/libcxi.so.1", json)
    build("lib/libfabric.so.1", cxi, content="int from_host(void) { return 1; }")
    build("image/libfabric.so.1")
    (host / "lib64" / "libm.so.6").touch()  # the image has one, and this one would break all
    return host


def load(host: Path) -> dict[str, str]:
    """Load libfabric in a program that the wrapper runs; return which file is behind each library of this folder."""
    program = "import ctypes; ctypes.CDLL('libfabric.so.1'); print(open('/proc/self/maps').read())"
    maps = wrapped(host, sys.executable, "-c", program, LD_LIBRARY_PATH=f"{host}/image").stdout
    paths = set(re.findall(rf"{host}/(\S+\.so\S*)$", maps, re.MULTILINE))
    return {Path(path).name: path for path in paths}


def test_the_linker_takes_the_host_s_libraries_and_what_they_need_that_the_image_lacks(compiled):
    assert load(compiled) == {
        "libfabric.so.1": "lib/libfabric.so.1",
        "libcxi.so.1": "lib64/libcxi.so.1",
        "libjson-c.so.3": "lib64/libjson-c.so.3",
        "libz9.so.9": "more/libz9.so.9",
    }


def test_what_the_image_has_is_the_image_s(compiled):
    shutil.copy(compiled / "lib64" / "libjson-c.so.3", compiled / "image")
    found = load(compiled)
    assert found["libjson-c.so.3"] == "image/libjson-c.so.3"
    assert found["libfabric.so.1"] == "lib/libfabric.so.1"


def test_what_nobody_has_is_said_by_the_linker_and_not_looked_for_without_end(compiled):
    (compiled / "more" / "libz9.so.9").unlink()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        load(compiled)
    assert "libz9.so.9: cannot open" in caught.value.stderr


def test_images_of_one_job_do_not_share_a_folder(host):
    for variables in ({}, {"APPTAINER_CONTAINER": "/a.sif"}, {"SINGULARITY_CONTAINER": "/b.sif"}):
        seen(host, **variables)
    assert len(list((host / "tmp").iterdir())) == 3


def test_settings_are_made_where_they_are_unset(host):
    variables, _ = seen(host)
    assert {name: variables.get(name) for name in SETTINGS} == SETTINGS
    assert "FI_CXI_RX_MATCH_MODE" not in variables


@pytest.mark.parametrize("name", SETTINGS)
def test_the_campaign_s_settings_are_kept(host, name):
    variables, _ = seen(host, **{name: "of the campaign"})
    assert {name: variables[name] for name in SETTINGS} == SETTINGS | {name: "of the campaign"}


def test_the_folders_are_those_of_the_published_line(tmp_path):
    text = WRAPPER.read_text()
    defaults = dict(re.findall(r'"\$\{(HOST_\w+):=(.+?)\}"', text))
    assert defaults["HOST_LIBFABRIC_DIR"] == "/host/lib"
    assert defaults["HOST_LIBCXI_DIR"] == "/host/usr/lib64"


HOSTILE = ["a b", "$(touch x)", "'", '"', "", "*", "--flag", "; exit 3", "a\nb"]


def test_the_program_is_run_with_its_words_as_they_are(host):
    _, words = seen(host, *HOSTILE)
    assert words == HOSTILE


def test_the_program_takes_the_wrapper_s_place(host):
    """So that its exit code is the rank's, and a signal reaches it."""
    line = [str(WRAPPER), sys.executable, "-c", "import os; print(os.getpid()); raise SystemExit(7)"]
    process = subprocess.Popen(line, env=environment(host), stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=60)
    assert (int(output), process.returncode) == (process.pid, 7)


def failure(host: Path, *words: str, **variables: str) -> str:
    done = wrapped(host, *words, check=False, **variables)
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("what", ["nothing mounted", "only libcxi", "a link into a folder that is not mounted"])
def test_without_libfabric_it_says_what_to_mount_and_runs_nothing(host, what, wording):
    for path in host.glob("lib*/libfabric.so*"):
        path.unlink()
    if what == "nothing mounted":
        shutil.rmtree(host / "lib")
        shutil.rmtree(host / "lib64")
    if what.startswith("a link"):
        (host / "lib" / "libfabric.so.1").symlink_to("/opt/cray/libfabric.so.1")
    wording(failure(host, "echo", "hello"))
    assert list((host / "tmp").iterdir()) == []


def test_without_a_program_it_says_how_it_is_used(host, wording):
    wording(failure(host))


def test_a_folder_that_cannot_be_written_is_named(host, wording):
    wording(failure(host, "true", HOST_LINKS_DIR="/proc/none"))


def test_many_ranks_at_once_share_one_whole_folder(host):
    check = "import os; d = os.environ['LD_LIBRARY_PATH'].split(':')[0]; print(len(os.listdir(d)), d)"
    line = [str(WRAPPER), sys.executable, "-c", check]
    ranks = [subprocess.Popen(line, env=environment(host), stdout=subprocess.PIPE, text=True) for _ in range(24)]
    outputs = {rank.communicate(timeout=60)[0] for rank in ranks}
    assert [rank.returncode for rank in ranks] == [0] * 24
    [folder] = (host / "tmp").iterdir()
    assert outputs == {f"5 {folder}\n"}


def test_the_next_launch_of_a_job_uses_the_same_folder_and_another_job_one_of_its_own(host):
    for job in ("77", "77", "78"):
        seen(host, SLURM_JOB_ID=job)
    names = sorted(path.name for path in (host / "tmp").iterdir())
    assert [name.split(".")[:3] for name in names] == [
        ["host_libraries", str(os.getuid()), job] for job in ("77", "78")
    ]


def test_stacks_with_other_libraries_do_not_share_a_folder(host):
    seen(host)
    (host / "lib" / "libfabric.so.1.25.0").touch()
    variables, _ = seen(host)
    assert len(list((host / "tmp").iterdir())) == 2
    assert "libfabric.so.1.25.0" in os.listdir(variables["LD_LIBRARY_PATH"].split(":")[0])


@pytest.mark.parametrize("kind", ["link", "foreign"])
def test_a_folder_that_somebody_else_prepared_is_not_trusted(host, kind, wording):
    seen(host)
    [folder] = (host / "tmp").iterdir()
    if kind == "link":
        folder.rename(host / "trap")
        folder.symlink_to(host / "trap")
    elif os.getuid() == 0:
        os.chown(folder, 12345, 12345)
    else:
        pytest.skip("only root can give a folder away")
    said = failure(host, "echo", "hello")
    wording(said, folder=folder)


def test_paths_with_spaces_are_whole(tmp_path, host):
    shutil.copytree(host, tmp_path / "with a space", symlinks=True, ignore=shutil.ignore_patterns("with*"))
    variables, _ = seen(tmp_path / "with a space")
    assert variables["LD_LIBRARY_PATH"].split(":")[0].startswith(f"{tmp_path}/with a space/tmp/")


def test_what_the_wrapper_sets_is_what_the_campaign_s_third_stack_sets():
    """config/campaigns/gh200-slingshot-ddp.yaml promises that nothing but the libraries differs."""
    text = (WRAPPER.parents[1] / "config" / "campaigns" / "gh200-slingshot-ddp.yaml").read_text()
    named = dict(re.findall(r"^  #    ([A-Z_]+): (.+)$", text, re.MULTILINE))
    assert named == SETTINGS | {"NCCL_SOCKET_IFNAME": "hsn"}
