"""A campaign on one machine never listens beyond loopback: neither Snakemake nor the driver nor real ranks."""

import os
import subprocess
import time
from pathlib import Path
from socket import SOCK_DGRAM

import psutil
import pytest
from campaigns import QUICK_REPORT, fake_campaign, record_lines, snakemake_line, write_campaign

pytestmark = [pytest.mark.torch, pytest.mark.system]

BENCHMARKS = [
    {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [4096]}},
    {
        "benchmark": "train_step",
        "parameters": {"model": ["lm_tiny"], "context_length": [16], "batch_size": [1], "strategy": ["fsdp"]},
    },
]


def open_addresses(process: psutil.Process) -> set[str]:
    """Return the addresses on which a process tree listens now, or has a UDP socket."""
    found = set()
    for member in [process, *process.children(recursive=True)]:
        try:
            sockets = member.net_connections("inet")
        except psutil.Error:
            continue
        # A UDP socket with a peer takes nothing from others: getaddrinfo connects one for a moment to sort addresses.
        found |= {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN or is_open_udp(s)}
    return found


def is_open_udp(socket) -> bool:
    return socket.type == SOCK_DGRAM and bool(socket.laddr) and not socket.raddr


def test_a_running_campaign_listens_on_loopback_alone(tmp_path: Path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")  # of the user's shell: not for this campaign
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    made = fake_campaign(stacks={"host": {"kind": "host"}}, shapes=shapes, repeats=1, benchmarks=BENCHMARKS)
    line = snakemake_line(write_campaign(tmp_path, made))
    environment = os.environ | QUICK_REPORT
    with (tmp_path / "out").open("w") as output:
        process = subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT)
    found: set[str] = set()
    while process.poll() is None:
        try:
            found |= open_addresses(psutil.Process(process.pid))
        except psutil.NoSuchProcess:
            break
        time.sleep(0.5)  # a rank's sockets stay open for its launch; each look takes tens of milliseconds
    assert process.wait(timeout=10) == 0, (tmp_path / "out").read_text()
    assert found == {"127.0.0.1"}
    records = record_lines(tmp_path / "results" / "small")
    assert {record["status"] for record in records} == {"ok"}
    assert {record["spec"]["gpus_per_node"] for record in records} == {2}
