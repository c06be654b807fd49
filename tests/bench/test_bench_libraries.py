"""Which libraries a process has loaded, and whether they are from the image or the host. Needs no torch.

tests/golden/apptainer/ has the output of Apptainer 1.4.5 for a real torch process in a SIF image, with two host
libraries bound into it; shortened, and with other folder names. In `overlay` the image is one mount at /; in
`underlay` the runtime built / out of many mounts of parts of it.
"""

from pathlib import Path

import pytest

from harness import libraries
from harness.libraries import Mount, origin_of, parse_mounts, with_origin

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "apptainer"


def golden(name: str) -> list[dict]:
    return with_origin((GOLDEN / f"{name}.maps").read_text(), (GOLDEN / f"{name}.mountinfo").read_text())


@pytest.mark.parametrize(("name", "folder"), [("overlay", "/host/lib"), ("underlay", "/usr/lib/fabric")])
def test_in_a_real_image_only_what_was_bound_is_the_hosts(name, folder):
    found = golden(name)
    assert len(found) == 23
    assert [library for library in found if library["origin"] == "host"] == [
        {"name": "libcxi.so.1", "path": f"{folder}/libcxi.so.1", "origin": "host"},
        {"name": "libfabric.so.1", "path": f"{folder}/libfabric.so.1", "origin": "host"},
    ]
    torch = next(library for library in found if library["name"] == "libtorch_cpu.so")
    assert torch["path"] == "/usr/local/lib/python3.11/dist-packages/torch/lib/libtorch_cpu.so"
    assert torch["origin"] == "image"


def test_outside_a_container_everything_is_the_hosts():
    found = with_origin((GOLDEN / "overlay.maps").read_text(), None)
    assert {library["origin"] for library in found} == {"host"}


SANDBOX = parse_mounts("""\
22 1 8:1 /images/torch / rw - ext4 /dev/sda1 rw
23 22 8:1 /opt/cray /opt/cray rw - ext4 /dev/sda1 rw
24 22 8:1 /images/torch/usr/share /usr/share rw - ext4 /dev/sda1 rw
25 22 0:40 / /home rw - nfs server:/home rw
26 25 8:1 /usr/lib/libcuda.so.550 /.singularity.d/libs/libcuda.so.1 rw - ext4 /dev/sda1 rw
""")


def test_in_a_folder_used_as_image_the_same_disk_is_told_apart_by_folder():
    assert origin_of("/usr/lib/libtorch.so", SANDBOX) == "image"
    assert origin_of("/usr/share/lib/libx.so", SANDBOX) == "image"
    assert origin_of("/opt/cray/libfabric/lib64/libfabric.so.1", SANDBOX) == "host"


def test_home_is_the_hosts_and_so_is_what_nv_mounts():
    assert origin_of("/home/me/.local/lib/libgomp.so.1", SANDBOX) == "host"
    assert origin_of("/.singularity.d/libs/libcuda.so.1", SANDBOX) == "host"
    assert origin_of("/.singularity.d/libs/libnot-a-mount.so", SANDBOX) == "host"


def test_a_name_that_only_begins_like_a_mount_point_is_not_inside_it():
    assert origin_of("/opt/cray-old/libfabric.so.1", SANDBOX) == "image"


def test_the_last_of_several_mounts_at_one_place_counts():
    mounts = [Mount("0:9", "/", "/"), Mount("0:9", "/lib", "/host"), Mount("8:1", "/lib", "/host")]
    assert origin_of("/host/libfabric.so.1", mounts) == "host"
    assert origin_of("/host/libfabric.so.1", mounts[:2]) == "image"


def test_blanks_and_backslashes_in_mount_points_are_decoded():
    (mount,) = parse_mounts(r"30 22 8:1 /my\040libs\134new /host\011libs rw master:1 - ext4 /dev/sda1 rw")
    assert mount == Mount("8:1", "/my libs\\new", "/host\tlibs", "ext4")


def test_lines_that_are_no_mounts_are_passed_over():
    assert parse_mounts("\nnonsense\n") == []


MAPS = """\
7f00-7f01 r-xp 00000000 fe:00 1   /opt/a b/libtorch_cpu.so
7f01-7f02 r--p 00001000 fe:00 1   /opt/a b/libtorch_cpu.so
7f02-7f03 r-xp 00000000 fe:00 2   /usr/lib/libnccl-net-ofi.so.0
7f03-7f04 r-xp 00000000 fe:00 3   /opt/cray/libfabric.so.1.18.2 (deleted)
7f04-7f05 r-xp 00000000 fe:00 4   /usr/lib/libc.so.6
7f05-7f06 rw-p 00000000 00:00 0
7f06-7f07 r-xp 00000000 fe:00 5   /usr/lib/libmpi_gnu_123.so.12
7f07-7f08 r-xp 00000000 fe:00 6   /x/libgomp-a34b3233.so.1.0.0
7f08-7f09 r-xp 00000000 fe:00 7   /usr/lib/libpmix.so.2.13.1
7f09-7f0a r-xp 00000000 fe:00 8   /usr/lib/python3/_struct.cpython-311-x86_64-linux-gnu.so
"""


def test_libraries_that_matter_are_picked_from_the_maps():
    assert libraries.relevant(libraries.mapped_files(MAPS)) == [
        "/opt/a b/libtorch_cpu.so",
        "/opt/cray/libfabric.so.1.18.2 (deleted)",
        "/usr/lib/libmpi_gnu_123.so.12",
        "/usr/lib/libnccl-net-ofi.so.0",
        "/usr/lib/libpmix.so.2.13.1",
        "/x/libgomp-a34b3233.so.1.0.0",
    ]


@pytest.mark.parametrize(
    "name",
    ["libnccl.so.2", "libnccl-net.so", "libnccl-tuner.so", "libcxi.so.1", "libibverbs.so.1.14", "libmlx5.so.1", "libpmi2.so.0"],
)  # fmt: skip
def test_what_a_fabric_needs_matters(name):
    assert libraries.relevant([f"/usr/lib/{name}"]) != []


def test_a_preflight_lists_every_library_but_no_module_of_python():
    found = {library["name"]: library["path"] for library in with_origin(MAPS, None)}
    assert found["libfabric.so.1.18.2"] == "/opt/cray/libfabric.so.1.18.2 (deleted)"
    assert "libc.so.6" in found
    assert len(found) == 7


def test_this_process_tells_its_libraries():
    found = libraries.loaded_with_origin()
    assert any(library["name"].startswith("libc.so") for library in found)
    assert libraries.read_proc("no such file") == ""


# A container of Pyxis: enroot unpacks the image on the node's disk, and binds what is mounted.
ENROOT = """\
700 400 259:1 /enroot/data/pyxis_7.0 / rw,nosuid,nodev - xfs /dev/nvme0n1p1 rw
701 700 0:21 / /proc rw - proc proc rw
702 700 0:99 /regatta /shared/regatta rw - lustre fs rw
703 700 0:99 /regatta/errors/l0 /regatta-l0 rw - lustre fs rw
704 700 259:2 /usr/lib64/libcuda.so.1 /usr/lib/libcuda.so.1 ro - xfs /dev/nvme0n1p2 rw
705 700 259:1 /opt/libfabric /host/lib ro - xfs /dev/nvme0n1p1 rw
"""
UENV = "36 1 8:2 / / rw - ext4 /dev/sda2 rw\n90 36 7:25 / /user-environment ro - squashfs /dev/loop25 ro\n"


def maps_of(*paths: str) -> str:
    return "".join(f"7f00-7f01 r-xp 0 08:02 1 {path}\n" for path in paths)


def test_mounted_libraries_of_an_unpacked_image_have_origin_host():
    """Even if it is on the same file system as the unpacked image."""
    of_image, of_host = "/opt/torch/libtorch.so", ("/usr/lib/libcuda.so.1", "/host/lib/libfabric.so.1")
    found = with_origin(maps_of(of_image, *of_host), ENROOT)
    assert {entry["path"]: entry["origin"] for entry in found} == {of_image: "image"} | dict.fromkeys(of_host, "host")


def test_only_libraries_below_the_mount_of_a_uenv_have_origin_image():
    found = with_origin(
        maps_of("/user-environment/lib/libnccl.so.2", "/usr/lib/libc.so.6"), None, ["/user-environment"]
    )
    assert [entry["origin"] for entry in found] == ["image", "host"]


def test_the_mount_of_a_launch_shows_that_libraries_are_in_an_image(monkeypatch):
    texts = {"maps": maps_of("/opt/torch/libtorch.so"), "mountinfo": ENROOT}
    monkeypatch.setattr(libraries, "read_proc", texts.get)
    assert [entry["origin"] for entry in libraries.loaded_with_origin()] == ["image"]
    texts["mountinfo"] = UENV
    assert [entry["origin"] for entry in libraries.loaded_with_origin()] == ["host"]
    texts["maps"] = maps_of("/user-environment/lib/libtorch.so")
    monkeypatch.setenv("UENV_MOUNT_LIST", "/images/a.squashfs:/user-environment")
    assert [entry["origin"] for entry in libraries.loaded_with_origin()] == ["image"]


@pytest.mark.parametrize(
    ("inside", "is_inside"),
    [
        (None, True),
        ("/regatta-l0", True),
        ("/regatta-l1", False),
        ("squashfs:/user-environment", True),
        ("squashfs:/proc", False),  # another file system
        ("squashfs:/user-tools", False),
    ],
)
def test_a_rank_without_the_mount_of_its_image_is_outside(monkeypatch, inside, is_inside):
    monkeypatch.setattr(libraries, "read_proc", {"mountinfo": ENROOT + UENV}.get)
    if is_inside:
        libraries.check_image(inside)
    else:
        with pytest.raises(RuntimeError, match=inside.rpartition(":")[2]):
            libraries.check_image(inside)
