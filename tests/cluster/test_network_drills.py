"""Nodes whose addresses do not work: the preflight says so, and no cell is blamed."""

import json

import pytest
from drills import campaign, submitted


@pytest.fixture
def torch_campaign(site) -> dict:
    stack = {"kind": "host", "python": site.cluster.python}
    limits = {"cell_seconds": 60, "launch_start_seconds": 60}
    return campaign({"host": stack}, repeats=1, limits=limits)


def verdict(site) -> dict:
    [result] = site.results.glob("preflight/*.json")
    return json.loads(result.read_text())["stacks"][0]["verdict"]


def as_root(site, node: str, script: str) -> None:
    site.cluster.run(["sh", "-euc", script], node=node, as_root=True)


def test_a_name_that_resolves_to_loopback_is_recognized(site, torch_campaign):
    """As on Debian, where /etc/hosts has the node's own name at 127.0.1.1."""
    site.write(torch_campaign)
    script = "sed '/\\b{node}\\b/d' /etc/hosts > /run/hosts; echo 127.0.1.1 {node} >> /run/hosts; mount --bind /run/hosts /etc/hosts"
    try:
        as_root(site, "n2", script.format(node="n2"))
        assert site.snakemake(check=False).returncode == 4
    finally:
        as_root(site, "n2", "umount /etc/hosts || true")
    [problem] = verdict(site)["problems"]
    assert "127.0.1.1" in problem
    assert "network_interface" in problem
    assert site.records() == []


def test_nodes_that_cannot_reach_each_other_are_blamed_together(site, torch_campaign):
    """gloo gets an interface on each node that is connected to nothing. Slurm uses the others."""
    site.write(torch_campaign, network_interface="alone0")
    for number in (1, 2):
        up = "ip link set alone1 up; ip link set alone0 up"
        address = f"ip address add 10.213.7.{number}/24 dev alone0"
        as_root(site, f"n{number}", f"ip link add alone0 type veth peer name alone1; {address}; {up}")
    try:
        done = site.snakemake(check=False)
    finally:
        for number in (1, 2):
            as_root(site, f"n{number}", "ip link delete alone0")
    assert done.returncode == 4
    assert submitted(done.stderr, "preflight") == 2
    assert "n1, n2 cannot" in done.stderr
    assert "connecting" in str(verdict(site)["problems"])
    assert site.records() == []
