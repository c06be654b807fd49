"""Rendezvous of ranks: the address, the interface on which the store listens, and what older torch versions accept."""

import socket

import pytest

from harness import peers

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("n1", "n1"),
        ("n2,n4", "n2"),
        ("n[2-3]", "n2"),
        ("n[7,9]", "n7"),
        ("gh[001-004,007]-ib,login1", "gh001-ib"),
        ("rack[1-2]n[05-06]", "rack1n05"),
        ("node-a.example.org", "node-a.example.org"),
        ("", ""),
    ],
)
def test_the_first_host_of_a_node_list(nodelist, host):
    assert peers.first_host(nodelist) == host


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, ("a", "1")),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NODELIST": "n[2-3]", "MASTER_PORT": "1"}, ("n2", "1")),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "n2", "MASTER_ADDR": "of-the-image", "MASTER_PORT": "1"},
            ("n2", "1"),
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "n2", "REGATTA_MASTER_ADDR": "n2i", "MASTER_PORT": "1"},
            ("n2i", "1"),
        ),
        ({"SLURM_STEP_NODELIST": "n2", "MASTER_PORT": "1"}, (None, "1")),  # torchrun within a job
        ({"SLURM_PROCID": "0"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_ranks_meet_on_the_first_node_of_their_step_regardless_of_the_image(environment, expected):
    assert peers.meeting_point(environment) == expected


def resolve_to(monkeypatch, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = [(family, socket.SOCK_STREAM, 6, "", (address, 0, 0, 0) if ":" in address else (address, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


@pytest.mark.parametrize(
    ("address", "num_nodes", "expected"),
    [
        ("127.0.0.1", "1", "127.0.0.1"),
        ("127.0.0.1", "2", "::"),  # a node's own name stands for loopback: others could not reach it
        ("127.0.0.2", "1", "127.0.0.2"),
        ("::1", "2", "::"),
        ("198.51.100.1", "2", "::"),  # no interface of this host
        ("fe80::1", "2", "::"),  # an address of a link, without its interface
    ],
)
def test_the_store_listens_on_the_interface_of_its_address_where_others_can_reach_it(
    monkeypatch, address, num_nodes, expected
):
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", num_nodes)
    resolve_to(monkeypatch, address)
    with peers.listen("n1", 0) as listener:
        assert listener.getsockname()[0] == expected
        monkeypatch.undo()
        if expected == "::":  # whichever family the others come by
            for loopback in ("127.0.0.1", "::1"):
                socket.create_connection((loopback, listener.getsockname()[1]), timeout=5).close()


def test_a_port_that_is_taken_is_an_error_and_not_another_interface(monkeypatch):
    monkeypatch.delenv("SLURM_STEP_NUM_NODES", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        peers.listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(
    ("version", "expected"), [("2.7.1+cu128", {"use_libuv": False}), ("2.8.0", {}), ("2.12.1", {}), ("3.0", {})]
)
def test_torch_before_2_8_is_given_the_socket_without_libuv(monkeypatch, version, expected):
    monkeypatch.setattr(peers.torch, "__version__", version)
    monkeypatch.setenv("STORE_LISTEN_FD", "9")
    assert peers.listen_options("n1", 1) == {"master_listen_fd": 9, **expected}


def test_a_store_made_on_an_address_is_reached_there_and_nowhere_else(monkeypatch, free_port):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    first = peers.connect_store(0, 2, 20, "x")
    second = peers.connect_store(1, 2, 20, "x")
    second.set("key", "value")
    assert first.get("key") == b"value"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", free_port), timeout=5)


@pytest.mark.parametrize(
    ("answer", "interface", "words"),
    [
        (["127.0.1.1"], None, ["n1 resolves its hostname to 127.0.1.1", "network_interface"]),
        (["::1"], None, ["::1"]),
        ([], None, ["no interface of n1", "network_interface"]),
        (["127.0.1.1"], "eth0", None),
        (["0.0.0.0"], None, None),
    ],
)
def test_a_name_that_resolves_to_loopback_is_a_problem_of_gloo(monkeypatch, answer, interface, words):
    """0.0.0.0 stands for an address of an interface: it can be bound everywhere."""
    families = [socket.AF_INET6 if ":" in text else socket.AF_INET for text in answer]
    found = [(family, 1, 6, "", (text, 0)) for family, text in zip(families, answer, strict=True)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(peers, "_can_bind", lambda family, address: True)
    problem = peers.loopback_problem("n1", interface)
    assert problem is None if words is None else [word for word in words if word not in problem] == []
