"""The preflight of two gloo ranks: its result, also when something is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench_cells import BENCH, clean_environment

PREFLIGHT = BENCH / "preflight.py"


@pytest.fixture
def write_preflight(tmp_path):
    """A function that writes a preflight request and returns its path; keywords change its keys."""

    def write(**changes: object) -> Path:
        request = {
            "schema": 1,
            "stack": "host",
            "launch": "host-00",
            "nodes": 1,
            "gpus_per_node": 2,
            "device": "cpu",
            "backends": ["gloo"],
            "start_timeout_seconds": 20,
            "out_file": str(tmp_path / "host-00.seen.json"),
            "error_dir": str(tmp_path / "errors"),
            "image": None,
            "image_id": None,
            "argv": ["torchrun"],
        }
        path = tmp_path / "request.json"
        path.write_text(json.dumps(request | changes))
        return path

    return write


@pytest.fixture
def seen(tmp_path):
    """A function that returns what rank 0 wrote."""
    return lambda: json.loads((tmp_path / "host-00.seen.json").read_text())


def keys_in_contract() -> set[str]:
    """Return the keys of the example in docs/contracts.md."""
    text = (BENCH.parents[2] / "docs" / "contracts.md").read_text()
    section = text[text.index("### What the ranks report") :]
    return set(json.JSONDecoder().raw_decode(section[section.index('{"schema"') :])[0])


@pytest.mark.torch
def test_two_ranks_tell_where_they_are_and_what_they_have_loaded(run_ranks, write_preflight, seen, tmp_path):
    done = run_ranks(2, PREFLIGHT, "--request", write_preflight())
    assert done.returncode == 0, done.stderr
    found = seen()
    assert set(found) == keys_in_contract()
    assert (found["schema"], found["stack"], found["launch"]) == (1, "host", "host-00")
    assert found["placement_problems"] == []
    (gloo,) = found["backends"]
    assert (gloo["backend"], gloo["ok"], gloo["cause"]) == ("gloo", True, None)
    assert gloo["elapsed_ns"] > 0
    assert [(rank["rank"], rank["device"], rank["driver"]) for rank in found["ranks"]] == [(0, "cpu", None), (1, "cpu", None)]  # fmt: skip
    assert {rank["torch"] for rank in found["ranks"]} == {found["environment"]["torch"]}
    for rank in found["ranks"]:
        assert set(rank) == {"rank", "host", "device", "torch", "driver", "libraries"}
        torch_cpu = next(library for library in rank["libraries"] if library["name"] == "libtorch_cpu.so")
        assert torch_cpu["origin"] == "host"
        assert torch_cpu["path"] in found["environment"]["libraries"]
    assert not (tmp_path / "errors").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host-00.seen.json", "request.json"]


@pytest.mark.torch
def test_fewer_ranks_than_asked_are_told_and_no_failure(run_ranks, write_preflight, seen, wording):
    done = run_ranks(1, PREFLIGHT, "--request", write_preflight(nodes=2))
    assert done.returncode == 0, done.stderr
    found = seen()
    wording(found["placement_problems"][0])
    assert found["backends"] == []
    assert [rank["rank"] for rank in found["ranks"]] == [0]


@pytest.mark.torch
def test_ranks_that_see_no_gpu_say_so(run_ranks, write_preflight, seen, wording):
    request = write_preflight(device="cuda", backends=["nccl"])
    assert run_ranks(2, PREFLIGHT, "--request", request, CUDA_VISIBLE_DEVICES="").returncode == 0
    wording(re.sub(r"torch \d[^,]*", "torch <version>", seen()["placement_problems"][0]))
    assert seen()["ranks"][1]["device"] is None


@pytest.mark.torch
def test_a_backend_that_does_not_work_is_told_with_the_libraries_and_fails(
    run_ranks, write_preflight, seen, tmp_path, wording
):
    done = run_ranks(2, PREFLIGHT, "--request", write_preflight(backends=["gloo", "nccl"]))
    assert done.returncode != 0
    gloo, nccl = seen()["backends"]
    assert gloo["ok"]
    assert (nccl["backend"], nccl["ok"]) == ("nccl", False)
    assert nccl["cause"].startswith("rank 0 on ")
    assert "an accelerator" in nccl["cause"]
    assert seen()["ranks"][1]["libraries"] != []
    reports = [json.loads(path.read_text()) for path in sorted((tmp_path / "errors").glob("rank-*.json"))]
    assert {report["phase"] for report in reports} == {"init"}
    wording.lines(done.stderr, "regatta: rank 1")


@pytest.mark.torch
def test_a_sum_that_is_wrong_on_one_rank_is_found(run_ranks, write_preflight, seen, tmp_path, wording):
    program = tmp_path / "broken.py"
    broken = """\
import os, sys
sys.path.insert(0, {bench!r})
import torch.distributed as dist
whole = dist.all_reduce
def all_reduce(numbers):
    whole(numbers)
    numbers[7] += os.environ["RANK"] == "1"
dist.all_reduce = all_reduce
import preflight
preflight.main()
"""
    program.write_text(broken.format(bench=str(BENCH)))
    assert run_ranks(2, program, "--request", write_preflight()).returncode != 0
    (gloo,) = seen()["backends"]
    assert not gloo["ok"]
    wording(gloo["cause"])


def as_tasks_of_srun(port: int) -> list[dict[str, str]]:
    """Return the environments of two ranks that srun has started."""
    shared = {"SLURM_NTASKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [shared | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in ("0", "1")]


@pytest.mark.torch
def test_ranks_find_each_other_under_srun(fork_server, write_preflight, free_port, seen):
    command = (PREFLIGHT, "--request", write_preflight())
    ranks = [fork_server.spawn(None, command, environment) for environment in as_tasks_of_srun(free_port)]
    assert [rank.wait(120) for rank in ranks] == [0, 0], [rank.stderr() for rank in ranks]
    assert [rank["rank"] for rank in seen()["ranks"]] == [0, 1]


@pytest.mark.torch
def test_a_rank_that_never_comes_is_named(fork_server, write_preflight, free_port, seen, wording):
    first, _ = as_tasks_of_srun(free_port)
    done = fork_server.run(None, PREFLIGHT, "--request", write_preflight(start_timeout_seconds=2), **first)
    assert done.returncode == 0, done.stderr
    wording(seen()["placement_problems"][0])


def test_a_torch_that_cannot_be_imported_is_reported(write_preflight, free_port, tmp_path, wording):
    (tmp_path / "no_torch").mkdir()
    (tmp_path / "no_torch" / "torch.py").write_text(
        "raise ImportError('libcudart.so.13: cannot open shared object file')"
    )
    command = [sys.executable, str(PREFLIGHT), "--request", str(write_preflight())]
    ranks = [
        subprocess.Popen(command, env=clean_environment() | environment | {"PYTHONPATH": str(tmp_path / "no_torch")})
        for environment in as_tasks_of_srun(free_port)
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [1, 1]
    report = json.loads((tmp_path / "errors" / "rank-1.json").read_text())
    wording(report["cause"])
    assert not (tmp_path / "host-00.seen.json").exists()
