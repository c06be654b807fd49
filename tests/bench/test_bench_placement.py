"""Problems that the placement check finds, and how a process determines its rank."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench_cells import BENCH

pytest.importorskip("torch")

import torch

from harness import environment, free_memory, peers, placement
from harness.placement import Place, find_problems

pytestmark = pytest.mark.torch


def place(rank: int, host: str = "n1", device: str = "cpu", problem: str | None = None) -> Place:
    return Place(rank, rank, host, None if problem else device, problem, [0, 1], None, None, None)


def test_ranks_as_asked_have_no_problem():
    assert find_problems([place(0), place(1)], 2, nodes=1, gpus_per_node=2, timeout_seconds=5) == []
    on_gpus = [place(0, "n1", "GPU-a"), place(1, "n1", "GPU-b"), place(2, "n2", "GPU-a"), place(3, "n2", "GPU-b")]
    assert find_problems(on_gpus, 4, nodes=2, gpus_per_node=2, timeout_seconds=5) == []


ON_HOSTS = [place(0, "n1"), place(1, "n1"), place(2, "n1"), place(3, "n2")]
MISPLACED = {  # places, world size, nodes, GPUs per node
    "fewer ranks": ([place(0)], 1, 1, 2),
    "missing ranks": ([place(0), place(2)], 4, 1, 4),
    "all on one host": ([place(0), place(1)], 2, 2, 1),
    "uneven hosts": (ON_HOSTS, 4, 2, 2),
    "two on one GPU": ([place(0, "n1", "GPU-a"), place(1, "n1", "GPU-a")], 2, 1, 2),
    "no device": ([place(0, problem="device cuda, but this rank sees no GPU")], 1, 1, 1),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_misplaced_ranks_are_named(name, wording):
    wording(find_problems(*MISPLACED[name], timeout_seconds=5))


def test_ranks_on_two_hosts_may_have_gpus_of_one_name():
    assert placement.device_problems([place(0, "n1", "cuda:0"), place(1, "n2", "cuda:0")]) == []


def test_position_comes_from_torchrun_then_srun_then_alone():
    slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}
    assert peers.position_from_environment({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"} | slurm) == (3, 4, 1)
    assert peers.position_from_environment(slurm) == (5, 8, 1)
    assert peers.position_from_environment({"SLURM_NTASKS": "8"}) == (0, 1, 0)  # in sbatch, not under srun
    assert peers.position_from_environment({}) == (0, 1, 0)


@pytest.mark.parametrize(
    "of_runtime",
    [
        {"RANK": "5", "LOCAL_RANK": "1"},  # Pyxis, in an image with PYTORCH_VERSION
        {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "elsewhere"},  # a hook of enroot
    ],
)
def test_a_task_of_srun_ignores_what_a_container_runtime_derives_from_its_variables(of_runtime):
    slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": "n[3-4]"}
    assert peers.position_from_environment(slurm | of_runtime) == (5, 8, 1)
    assert peers.meeting_point(slurm | of_runtime | {"MASTER_PORT": "29500"}) == ("n3", "29500")
    torchrun = of_runtime | {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "n4"}
    assert peers.position_from_environment(slurm | torchrun) == (0, 8, 1)
    assert peers.meeting_point(slurm | torchrun | {"MASTER_PORT": "29500"}) == ("n4", "29500")


def test_what_gives_no_position_or_device_is_an_error(monkeypatch, wording):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with wording.raises(ValueError):
        peers.position_from_environment({"RANK": "0"})
    with pytest.raises(ValueError, match="integer"):
        peers.position_from_environment({"RANK": "a", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    with wording.raises(ValueError):
        peers.connect_store(0, 2, 1.0, "test")
    with wording.raises(ValueError):
        peers.choose_device("tpu", 0)


def test_only_allowed_variables_are_recorded():
    allowed = {"NCCL_DEBUG": "WARN", "FI_PROVIDER": "cxi", "SLURM_JOB_ID": "7", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    allowed |= {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0", "RCCL_MSCCL_ENABLE": "0", "HSA_XNACK": "1"}
    allowed |= {"CUDA_LAUNCH_BLOCKING": "1", "NVIDIA_TF32_OVERRIDE": "0"}
    assert environment.allowed_variables(allowed | {"HOME": "/", "MY_TOKEN": "x", "CUDA_TOKEN": "secret"}) == allowed


def test_a_rank_without_an_amd_gpu_names_rocm_s_variables(monkeypatch, wording):
    monkeypatch.setattr(peers.torch.version, "hip", "6.4.43482")
    monkeypatch.setattr(peers.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(peers.torch, "__version__", "2.8.0+rocm6.4")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    with wording.raises(ValueError):
        peers.choose_device("cuda", 0)


def test_hosts_are_listed_in_the_order_of_their_lowest_rank():
    hosts = environment.hosts([place(0, "b"), place(1, "a"), place(2, "b")])
    assert [(host["host"], host["ranks"], host["num_cores"]) for host in hosts] == [("b", [0, 2], 2), ("a", [1], 2)]


@pytest.mark.parametrize(("seconds", "expected"), [((1.5, 4.25, None), 4.25), ((None, None, None), None)])
def test_imports_take_as_long_as_on_the_slowest_rank(seconds, expected):
    places = [replace(place(rank, "a"), import_s=of_rank) for rank, of_rank in enumerate(seconds)]
    assert environment.describe(places, torch.device("cpu"), 1)["import_s"] == expected


def test_a_rank_that_comes_too_late_still_hears_the_verdict():
    store = torch.distributed.HashStore()
    missing = ["rank 1 is missing"]
    placement.send_verdicts(missing, [place(0)], 2, store)
    assert placement.receive_verdict(1, store).problems == placement.receive_verdict(0, store).problems == missing


@pytest.mark.parametrize("fixed", ["4,2", "0", "03", " 3", "-1"])
def test_threads_that_are_no_number_are_a_problem_that_every_rank_hears(monkeypatch, fixed, wording):
    monkeypatch.setenv("REGATTA_THREADS_PER_RANK", fixed)
    store = torch.distributed.HashStore()
    placement.send_verdicts([], [place(0), place(1)], 3, store)
    for rank in range(3):
        [problem] = placement.receive_verdict(rank, store).problems
        wording(problem)


def test_every_rank_receives_the_fixed_threads_and_the_cores_of_its_host(monkeypatch):
    monkeypatch.setenv("REGATTA_THREADS_PER_RANK", "12")
    store = torch.distributed.HashStore()
    places = [replace(place(0), cores=[0, 1]), replace(place(1), cores=[2]), replace(place(2), host="b", cores=[5])]
    placement.send_verdicts([], places, 4, store)
    found = [placement.receive_verdict(rank, store) for rank in range(4)]
    assert [verdict.host_cores for verdict in found] == [[0, 1, 2], [0, 1, 2], [5], []]
    assert {verdict.threads_per_rank for verdict in found[:3]} == {12}


MEMINFO = "MemTotal:       900000 kB\nMemFree:        600000 kB\nMemAvailable:   700000 kB\n"


def write_nodes(folder, nodes: list[tuple[str, int, int]]) -> None:
    """Write what sysfs tells of NUMA nodes: (cores, total, free), both in kB."""
    for number, (cores, total, free) in enumerate(nodes):
        node = folder / f"node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cores}\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal: {total:>9} kB\nNode {number} MemFree: {free:>9} kB\n")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text(MEMINFO)
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "NUMA_NODES", tmp_path / "node")
    return tmp_path


@pytest.mark.parametrize(
    ("nodes", "total_kb", "available_kb"),
    [
        ([], 900_000, 700_000),  # sysfs tells of none
        ([("0-3", 500_000, 300_000), ("4-7", 400_000, 300_000)], 900_000, 700_000),
        # As on a superchip: the memory of the GPU is a node without cores.
        ([("0-71", 500_000, 310_000), ("", 400_000, 290_000)], 500_000, 410_000),
        # Its MIG instances have nodes too, without memory.
        ([("0-71", 500_000, 310_000), ("", 400_000, 290_000), ("", 0, 0)], 500_000, 410_000),
        ([("", 900_000, 600_000)], 900_000, 700_000),  # no node with cores: nobody can tell
    ],
)
def test_memory_of_a_host_is_that_of_nodes_with_cores(machine, nodes, total_kb, available_kb):
    write_nodes(machine / "node", nodes)
    assert (free_memory.total_bytes(), free_memory.available_bytes()) == (1024 * total_kb, 1024 * available_kb)


def test_memory_of_a_host_that_does_not_tell_is_unknown(machine):
    (machine / "meminfo").unlink()
    assert (free_memory.total_bytes(), free_memory.available_bytes()) == (None, None)


def test_this_machine_has_as_much_memory_as_it_says():
    assert 2**28 < free_memory.available_bytes() <= free_memory.total_bytes()


@pytest.mark.parametrize(("value", "expected"), [(None, (True, True)), ("1", (True, True)), ("0", (False, False))])
def test_settings_say_that_the_libraries_use_no_tf32_if_the_variable_forbids_it(monkeypatch, value, expected):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if value is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        found = environment.math_settings()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert (found["allow_tf32_matmul"], found["allow_tf32_cudnn"]) == expected


def test_versions_that_a_build_of_torch_lacks_are_unknown(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: None)
    assert environment.cudnn_version() is None
    monkeypatch.setattr(environment, "NCCL_LIBRARIES", ("libnccl-absent.so.2",))
    monkeypatch.delattr(torch._C, "_nccl_version", raising=False)
    assert environment.nccl_version() is None


@pytest.mark.parametrize(("code", "version"), [(23102, "2.31.2"), (2804, "2.8.4")])
def test_the_version_of_nccl_is_that_of_the_loaded_library(tmp_path, code, version):
    needed = Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"
    if not (shutil.which("gcc") and shutil.which("nm") and needed.exists()):
        pytest.skip("no gcc, no nm, or a torch without CUDA: no other NCCL can be loaded")
    listed = subprocess.run(["nm", "-D", "--undefined-only", needed], capture_output=True, text=True, check=True)
    names = set(re.findall(r"\b(nccl\w+)$", listed.stdout, re.MULTILINE)) - {"ncclGetVersion"}
    source = f"int ncclGetVersion(int *version) {{ *version = {code}; return 0; }}\n"
    (tmp_path / "nccl.c").write_text(source + "".join(f"int {name}(void) {{ return 1; }}\n" for name in sorted(names)))
    library = tmp_path / "libnccl.so.2"
    line = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", library, tmp_path / "nccl.c"]
    subprocess.run(line, check=True)
    program = "import torch; from harness import environment; print(environment.nccl_version())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(BENCH)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == version, done.stderr


def test_a_gpu_that_cannot_be_used_is_a_problem_of_its_rank(monkeypatch, wording):
    def describe(device: torch.device) -> dict:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nMore lines follow.")

    monkeypatch.setattr(peers, "choose_device", lambda kind, local_rank: torch.device("cuda", 0))
    monkeypatch.setattr(environment, "describe_gpu", describe)
    place, device = placement.take_place(3, 0, "cuda")
    assert (place.rank, place.device, place.gpu, device.type) == (3, None, None, "cpu")
    wording(place.problem)
