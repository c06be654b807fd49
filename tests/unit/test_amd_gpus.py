"""AMD GPUs: names of PyTorch instead of ROCm's, the runtime's option, and counting with `detect`, in fake trees of sysfs."""

import json

import pytest
from campaign_files import CLUSTER, SLURM, TEXT, fake_sif, load, message, small

from regatta.campaign.expansion import expand
from regatta.campaign.load import for_jobs
from regatta.launchers import LAUNCHERS, launch_argv, launch_environment
from regatta.launchers.base import Geometry
from regatta.model.frozen import FrozenBatch
from regatta.plan.plan import plan_campaign, plan_json, write_frozen
from regatta.store.frozen_files import read_frozen

# Properties of KFD nodes, abridged. A CPU has cores and no SIMD units; a GPU the reverse; an APU of one die has both.
CPU = "cpu_cores_count 16\nsimd_count 0\nmem_banks_count 1\ngfx_target_version 0\nvendor_id 0\ndevice_id 0\n"
MI250X = "cpu_cores_count 0\nsimd_count 440\nmem_banks_count 1\ngfx_target_version 90010\nvendor_id 4098\n"
MI300A = "cpu_cores_count 0\nsimd_count 912\nmem_banks_count 1\ngfx_target_version 90402\nvendor_id 4098\n"
APU = "cpu_cores_count 8\nsimd_count 44\ngfx_target_version 90000\nvendor_id 4098\n"
OLD_KERNEL = "cpu_cores_count 0\nsimd_count 256\ndevice_id 26287\n"  # before Linux 5.15: no gfx_target_version
TREES = {
    "no KFD": ([], 0),
    "a CPU only, which KFD lists too": ([CPU], 0),
    "four CPUs and eight dies of MI250X": ([CPU] * 4 + [MI250X] * 8, 8),
    "four MI300A": ([CPU] * 4 + [MI300A] * 4, 4),
    "an APU": ([APU], 1),
    "an older kernel": ([CPU, OLD_KERNEL], 1),
    "a GPU that this user may not read": ([CPU, MI250X, None], 1),
    "no text": ([CPU, MI250X, "\xff\xfe\0simd_count 4"], 1),
    "an empty file": ([CPU, "", MI250X], 1),
    "counts that are none": (["simd_count \n", "simd_count -1\n", "simd_count 00\n", "max_simd_count 4\n", "simd_count x"], 0),
}  # fmt: skip


def kfd(folder, nodes: list[str | None]):
    """Write a topology like that of /sys/class/kfd/kfd/topology/nodes. None: a node whose properties cannot be read."""
    for number, properties in enumerate(nodes):
        (folder / str(number)).mkdir(parents=True)
        if properties is None:
            (folder / str(number) / "properties").mkdir()  # reading it raises OSError, for root as well
        else:
            (folder / str(number) / "properties").write_text(properties, encoding="latin-1")
            (folder / str(number) / "gpu_id").write_text("0\n")
    return folder


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that gives this machine NVIDIA GPUs and KFD nodes, and returns a cluster with `detect`."""

    def make(num_nvidia: int, nodes: list[str | None], **cluster) -> dict:
        for number in range(num_nvidia):
            (tmp_path / "nvidia" / str(number)).mkdir(parents=True)
        monkeypatch.setattr("regatta.campaign.load.GPU_FOLDER", tmp_path / "nvidia")
        monkeypatch.setattr("regatta.campaign.load.KFD_NODES", kfd(tmp_path / "nodes", nodes))
        return load(tmp_path, small(), {"gpus_per_node": "detect", **cluster}).cluster

    return make


@pytest.mark.parametrize(("nodes", "num_gpus"), TREES.values(), ids=list(TREES))
def test_detect_counts_the_nodes_of_kfd_that_have_simd_units(machine, nodes, num_gpus):
    cluster = machine(0, nodes)
    assert (cluster["gpus_per_node"], cluster["gpu_vendor"]) == (num_gpus, "amd" if num_gpus else None)


@pytest.mark.parametrize(
    ("num_nvidia", "given", "expected"),
    [
        (2, {}, (2, None)),  # beside the graphics unit of an AMD processor
        (2, {"gpu_vendor": "amd"}, (1, "amd")),
        (2, {"gpu_vendor": "nvidia"}, (2, "nvidia")),
        (0, {"gpu_vendor": "nvidia"}, (0, "nvidia")),
    ],
)
def test_detect_counts_gpus_of_one_vendor(machine, num_nvidia, given, expected):
    cluster = machine(num_nvidia, [CPU, APU], **given)
    assert (cluster["gpus_per_node"], cluster["gpu_vendor"]) == expected


def test_detect_ignores_the_variables_that_hide_gpus(machine, monkeypatch):
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0")
    assert machine(0, [CPU, MI250X, MI250X])["gpus_per_node"] == 2


@pytest.mark.parametrize("word", ["rocm", "ROCm", "hip", "amd", "gpu"])
def test_device_rocm_is_cuda(tmp_path, word, wording):
    text = message(tmp_path, TEXT.replace("device: cpu", f"device: {word}"))
    assert "'cuda'" in text
    wording(text)


@pytest.mark.parametrize("backend", ["[rccl]", "[gloo, RCCL]", "rccl"])
def test_backend_rccl_is_nccl(tmp_path, backend, wording):
    text = message(tmp_path, TEXT.replace("backend: [gloo]", f"backend: {backend}"))
    assert "nccl" in text.replace("rccl", "")
    wording(text)


NODE_TYPES = {
    "node_types": {"mi300x": {"gpu_vendor": "amd"}, "h100": {"gpu_vendor": "nvidia"}, "cpu": {"num_nodes": 4}}
}


@pytest.mark.parametrize(
    ("cluster", "node_type", "option"),
    [
        ({}, None, "--nv"),
        ({"gpu_vendor": "nvidia"}, None, "--nv"),
        ({"gpu_vendor": "amd"}, None, "--rocm"),
        (NODE_TYPES, "mi300x", "--rocm"),
        (NODE_TYPES, "h100", "--nv"),
        (NODE_TYPES | {"gpu_vendor": "amd"}, "h100", "--nv"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("device", "runtime"), [("cuda", "apptainer"), ("cuda", "singularity"), ("cpu", "apptainer")])
def test_the_vendor_decides_how_gpus_reach_an_image(tmp_path, cluster, node_type, option, device, runtime):
    """In the lines of the plan, which are those of the launches, and in the command that repeats a cell."""
    image = str(fake_sif(tmp_path / "a.sif"))
    stacks = {"image": {"kind": "contained", "image": image, "runtime": runtime, "node_type": node_type}}
    of_device = {"device": device, "backend": ["nccl" if device == "cuda" else "gloo"]}
    plan = plan_campaign(load(tmp_path, small(stacks=stacks, **of_device), SLURM | cluster), tmp_path / "results")
    for line in (plan_json(plan)["stacks"]["image"], plan.cells[0].cell.command):
        words = line.split()
        assert [word for word in words if word in ("--nv", "--rocm")] == ([option] if device == "cuda" else [])


def test_a_vendor_changes_no_cell_and_its_absence_no_batch(tmp_path):
    image = str(fake_sif(tmp_path / "a.sif"))
    data = small(stacks={"host": {"kind": "host"}, "image": {"kind": "contained", "image": image}})
    before, after = (load(tmp_path, data, SLURM | changes) for changes in ({}, {"gpu_vendor": "amd"}))
    assert [cell.id for cell in expand(before).cells] == [cell.id for cell in expand(after).cells]
    assert "gpu_vendor" not in json.dumps([for_jobs(before.cluster), before.data["stacks"]])
    assert [name for name, stack in after.data["stacks"].items() if "gpu_vendor" in stack] == ["image"]


def test_a_frozen_batch_keeps_the_vendor(tmp_path):
    """It is checked against the schema when a job reads it, and gives the line of the job's launches."""
    data = small(stacks={"image": {"kind": "contained", "image": str(fake_sif(tmp_path / "a.sif"))}})
    cluster = SLURM | {"gpu_vendor": "amd"}
    made = plan_campaign(load(tmp_path, data | {"device": "cuda", "backend": ["nccl"]}, cluster), tmp_path / "results")
    write_frozen(made)
    path = next((tmp_path / "results").glob("*/batches/*/batch.json"))
    batch = FrozenBatch.from_json(read_frozen(path))
    assert (batch.stacks["image"]["gpu_vendor"], batch.cluster["gpu_vendor"]) == ("amd", "amd")
    words = launch_argv(Geometry(batch.cluster, 1, 1, "cuda"), batch.stacks["image"], ["x.py"])
    assert "--rocm" in words
    assert "--nv" not in words


@pytest.mark.parametrize("name", ["rocm", "AMD", "Nvidia"])
def test_an_unknown_vendor_is_refused(tmp_path, name, wording):
    wording(message(tmp_path, TEXT, {"gpu_vendor": name}))


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_which_gpus_a_rank_sees_is_left_to_the_scheduler(tmp_path, monkeypatch, name):
    monkeypatch.delenv(name, raising=False)
    stack = load(tmp_path, small(), CLUSTER | {"gpu_vendor": "amd"}).data["stacks"]["host"]
    for launcher in LAUNCHERS.values():
        assert name not in launch_environment(launcher, stack)
    monkeypatch.setenv(name, "0,1")
    assert launch_environment(LAUNCHERS["slurm"], stack)[name] == "0,1"
