"""The test cluster is real: Slurm starts the ranks, they communicate over a network, and nodes can fail."""

import json
import shlex
import signal
import subprocess
from collections import Counter

import pytest
from slurm import copy_checkout, send_signal, wait_until

from regatta.core.schemas import fill_defaults, load_schema
from regatta.launchers import LAUNCHERS
from regatta.launchers.base import Geometry

SHOW_TASK = """
import json, os, socket
names = ["SLURM_PROCID", "SLURM_CONF", "CUDA_VISIBLE_DEVICES"]
print(json.dumps({"host": socket.gethostname(), "uid": os.getuid(), **{name: os.environ[name] for name in names}}))
"""

ALL_REDUCE = """
import os, socket
import torch, torch.distributed as dist
rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", rank=rank, world_size=world_size, init_method="tcp://n1:29400")
summed = torch.full((1000,), float(rank + 1))
dist.all_reduce(summed)
print(rank, socket.gethostname(), summed.unique().tolist(), flush=True)
dist.destroy_process_group()
"""


def test_srun_starts_ranks_on_two_nodes_with_their_devices_as_an_ordinary_user(cluster):
    srun = ["srun", "--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4"]
    tasks = [json.loads(line) for line in cluster.run([*srun, cluster.python, "-c", SHOW_TASK]).stdout.splitlines()]
    assert Counter(task["host"] for task in tasks) == {"n1": 4, "n2": 4}
    assert sorted(int(task["SLURM_PROCID"]) for task in tasks) == list(range(8))
    assert {task["CUDA_VISIBLE_DEVICES"] for task in tasks} == {"0,1,2,3"}
    assert {task["uid"] for task in tasks} == {cluster.shared.stat().st_uid}
    assert 0 not in {task["uid"] for task in tasks}


@pytest.mark.parametrize(
    ("site", "requested"),
    [
        ({"gpu_type": "pretend", "gres": ["scratch:1"]}, "gres/gpu:pretend:2,gres/scratch:1"),
        ({"gpu_request": "gres", "gpu_type": "pretend", "gres": ["scratch:1"]}, "gres/gpu:pretend:2,gres/scratch:1"),
        ({"gpu_request": "none", "sbatch": ["--gres=gpu:pretend:2"]}, "gres/gpu:pretend:2"),
    ],
)
def test_ranks_get_gpus_of_a_type_beside_other_resources(cluster, site, requested):
    given = {"schema": 1, "name": "c", "scheduler": "slurm", "num_nodes": 2, "gpus_per_node": 4} | site
    place = Geometry(fill_defaults(given | {"exclusive": False}, load_schema("cluster")), 1, 2, "cuda")
    stack = {"srun": [], "env": {}}
    srun = LAUNCHERS["slurm"].ranks.argv(place, stack, [], ["printenv", "CUDA_VISIBLE_DEVICES"])
    show = "squeue --noheader --jobs=$SLURM_JOB_ID --Format=tres-per-node:100"
    sbatch = ["sbatch", "--wait", "--output=/shared/gres.out", *LAUNCHERS["slurm"].jobs.options(place, 1)]
    script = f"#!/bin/sh\n{show}\n{shlex.join(srun)}\n"
    cluster.run(sbatch, stdin=script)
    job, *devices = (cluster.shared / "gres.out").read_text().splitlines()
    assert set(job.strip().split(",")) == set(requested.split(","))
    assert sorted(devices) == ["0: 0,1", "1: 0,1"]


def test_slurm_is_found_only_where_slurm_conf_says(cluster):
    assert cluster.run(["printenv", "SLURM_CONF"]).stdout == "/etc/regatta-cluster/slurm.conf\n"
    lost = cluster.run(["env", "--unset=SLURM_CONF", "srun", "hostname"], check=False)
    assert lost.returncode != 0
    assert "n1" not in lost.stdout


def test_arguments_status_and_standard_input_reach_the_command_unchanged(cluster):
    words = ["a b", "", "*", "$HOME", "line\nbreak", "--", "x=y"]
    shown = cluster.run([cluster.python, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *words])
    assert json.loads(shown.stdout) == words
    failed = cluster.run(
        ["sh", "-c", "cat; pwd; echo $GIVEN; exit 7"], "n2", "/shared", {"GIVEN": "x"}, check=False, stdin="in\n"
    )
    assert (failed.returncode, failed.stdout) == (7, "in\n/shared\nx\n")


def test_a_signal_reaches_the_command_itself(cluster):
    waiting = "import signal\nsignal.signal(2, lambda *_: exit(42))\nprint('ready', flush=True)\nsignal.pause()"
    process = cluster.popen([cluster.python, "-c", waiting], stdout=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    send_signal(process, signal.SIGINT)
    assert process.wait(timeout=60) == 42


def test_a_command_that_takes_too_long_is_killed_with_what_it_started(cluster):
    with pytest.raises(AssertionError, match="after 3 s"):
        cluster.run(["sh", "-c", "sleep 4321 & touch /shared/sleeping; wait"], timeout=3)
    assert (cluster.shared / "sleeping").exists()  # it was started
    wait_until(lambda: cluster.run(["pgrep", "-f", "sleep 4321"], check=False).returncode == 1, 30)


def test_a_checkout_on_the_shared_file_system_belongs_to_the_user(cluster):
    path = copy_checkout(cluster, "test-cluster-checkout")
    cluster.run(["sh", "-c", "test -O Snakefile && touch new && rm -r ../test-cluster-checkout"], "n2", path)
    assert not (cluster.shared / "test-cluster-checkout").exists()


def test_the_small_disk_is_full_after_48_mib(cluster):
    written = cluster.run(["dd", "if=/dev/zero", "of=/small/filled", "bs=1M", "count=64"], "n1", check=False)
    assert "No space left" in written.stderr
    cluster.run(["rm", "/small/filled"], "n2")


@pytest.mark.slow
def test_image_runs_from_its_file_on_both_nodes(cluster, cpu_image):
    program = (
        "import importlib.metadata, socket; print(socket.gethostname(), importlib.metadata.version('torch'),"
        " open('/proc/mounts').read().count('squashfuse'))"
    )
    ran = cluster.run(["srun", "--nodes=2", "apptainer", "run", cpu_image, "python3", "-c", program])
    tasks = sorted(line.split() for line in ran.stdout.splitlines())
    assert [host for host, _, _ in tasks] == ["n1", "n2"]
    assert {version for _, version, _ in tasks} == {"2.13.0+cpu"}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("stack", "ranks_per_node"), [("host", 2), ("contained", 1)])
def test_gloo_adds_up_over_two_nodes(request, cluster, stack, ranks_per_node):
    python = [cluster.python]
    if stack == "contained":
        python = ["apptainer", "exec", request.getfixturevalue("cpu_image"), "python3"]
    srun = ["srun", "--nodes=2", f"--ntasks-per-node={ranks_per_node}", "--gpus-per-node=2", "--time=3"]
    ran = cluster.run([*srun, *python, "-c", ALL_REDUCE], env={"GLOO_SOCKET_IFNAME": "eth0"}, timeout=180)
    num_ranks = 2 * ranks_per_node
    total = num_ranks * (num_ranks + 1) / 2  # 1 + 2 + ..., on each rank
    places = [f"{rank} n{1 + rank // ranks_per_node} [{total}]" for rank in range(num_ranks)]
    assert sorted(ran.stdout.splitlines()) == places


@pytest.mark.slow
def test_killed_node_is_down_and_serves_again_when_started(cluster):
    with cluster.popen(["srun", "--nodelist=n2", "sleep", "300"], stderr=subprocess.PIPE) as job:
        wait_until(lambda: "RUNNING" in cluster.squeue().values(), 20)
        cluster.kill_node("n2")
        assert cluster.run(["true"], "n2", check=False).returncode != 0
        wait_until(lambda: cluster.node_state("n2") in ("down", "down*"), 60, "n2 is down")
        assert job.wait(timeout=60) != 0
    cluster.start_node("n2")
    assert cluster.run(["srun", "--nodes=2", "hostname"]).stdout.count("n") == 2


@pytest.mark.slow
def test_node_without_network_is_down_and_serves_again_with_it(cluster):
    cluster.link("n1", "down")
    try:
        wait_until(lambda: cluster.node_state("n1") == "down*", 60, "n1 is down")
        assert cluster.run(["srun", "hostname"]).stdout == "n2\n"
    finally:
        cluster.link("n1", "up")
    assert sorted(cluster.run(["srun", "--nodes=2", "hostname"]).stdout.split()) == ["n1", "n2"]
