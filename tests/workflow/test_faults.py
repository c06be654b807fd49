"""Real ranks, real torch: a cell that raises, one that runs out of memory, one that hangs, one whose rank is killed."""

import os
import signal
import subprocess
import sys
import time

import campaigns
import pytest
from campaigns import fake_campaign, frozen_batches, lines, record_lines, slots

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TRAIN = {"image_size": [32], "batch_size": [2], "strategy": ["ddp"], "bucket_cap_mb": [25]}


def real_campaign(benchmarks: list[dict], **changes) -> dict:
    return fake_campaign(
        stacks={"host": {"kind": "host"}},
        shapes=[{"nodes": [1], "gpus_per_node": [2]}],
        repeats=1,
        benchmarks=benchmarks,
        **changes,
    )


def train(**parameters) -> dict:
    return {"benchmark": "train_step", "parameters": {**TRAIN, **parameters}}


def started(results, part: str) -> bool:
    return any(line["kind"] == "start" and part in line["cell"] for line in lines(results))


def a_rank(folder) -> int:
    """Return the process id of a rank of the launch that is running in `folder`; never a stranger's."""
    ranks = []
    for process in campaigns.processes_naming(str(folder)):
        with open(f"/proc/{process}/cmdline", "rb") as file:
            words = file.read()
        if b"run_launch.py" in words and b"torch.distributed.run" not in words:
            ranks.append(process)
    return max(ranks)


@pytest.mark.system
def test_each_fault_becomes_a_record_with_its_class_and_cause_while_the_rest_is_measured(tmp_path):
    long = {"min_seconds": 2.5, "max_seconds": 2.5, "max_warmup_seconds": 0.05}
    campaign = real_campaign(
        [
            {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [4096]}},
            train(model=["resnet18"]),  # this one hangs: a rank is stopped
            train(model=["mobilenet_v3_small"]),  # of this one a rank is killed
            train(model=["inception_v3"], image_size=[8]),  # raises: the image is too small
            train(model=["squeezenet1_1"], batch_size=[200_000_000_000]),  # petabytes: more than an address space
        ],
        sampling=long,
        limits={"cell_seconds": 25, "launch_start_seconds": 100},
    )
    batch = frozen_batches(tmp_path, campaign)[0]
    results = batch.parent.parent
    line = [sys.executable, str(campaigns.SCRIPTS / "measure.py"), "--batch", str(batch)]
    supervisor = subprocess.Popen(line, cwd=tmp_path)
    todo = {"resnet18": signal.SIGSTOP, "mobilenet": signal.SIGKILL}
    while supervisor.poll() is None:
        for part in [part for part in todo if started(results, part)]:
            time.sleep(1.0)
            os.kill(a_rank(tmp_path), todo.pop(part))
        time.sleep(0.1)
    assert supervisor.returncode == 0
    found = {record["cell"].split("-")[1]: record for record in record_lines(results)}
    assert found["all_reduce"]["status"] == "ok"
    assert (found["resnet18"]["status"], found["resnet18"]["phase"]) == ("timeout", None)
    assert "within 25 s" in found["resnet18"]["cause"]
    assert found["mobilenet_v3_small"]["status"] == "failed"
    assert "killed by SIGKILL" in found["mobilenet_v3_small"]["cause"]
    assert found["inception_v3"]["status"] == "failed"
    assert found["inception_v3"]["cause"].startswith("rank ")
    assert "image_size" in found["inception_v3"]["cause"] or "Error" in found["inception_v3"]["cause"]
    assert found["squeezenet1_1"]["status"] == "out_of_memory"
    assert len(slots(results)) == 5
    assert campaigns.processes_naming(str(tmp_path)) == []


def test_a_hung_rank_leaves_its_stack_in_the_log(tmp_path):
    campaign = real_campaign(
        [{"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [1 << 20]}}],
        sampling={"min_seconds": 30, "max_seconds": 30},
        limits={"cell_seconds": 12, "launch_start_seconds": 60},
    )
    batch = frozen_batches(tmp_path, campaign)[0]
    campaigns.script(tmp_path, "measure.py", "--batch", str(batch))
    (record,) = record_lines(batch.parent.parent)
    assert record["status"] == "timeout"
    (log,) = (batch / "logs").iterdir()
    assert "most recent call" in log.read_text()
    assert "collective.py" in log.read_text()


def test_a_stack_without_torch_fails_with_words_and_not_with_numbers(tmp_path):
    campaign = real_campaign(
        [{"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [4096]}}]
    )
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    campaign["stacks"]["host"]["python"] = str(bare / "bin" / "python3")
    batch = frozen_batches(tmp_path, campaign)[0]
    campaigns.script(tmp_path, "measure.py", "--batch", str(batch))
    (record,) = record_lines(batch.parent.parent)
    assert (record["status"], record["phase"]) == ("failed", "launch")
    assert "torch" in record["cause"]
