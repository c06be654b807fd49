import pytest
from synthetic_preflight import LIBRARIES, make_rank, make_seen, make_stack, nccl_log

from regatta.run.preflight_verdict import judge

FABRIC = {"required_network": "AWS Libfabric", "binds": ["/opt/cray:/host", "/usr/lib64/libcxi.so.1"]}
HOST_LIBRARIES = {"required_host_libraries": ["libfabric", "libcxi"]}


def problems(stack, seen, text="", cause=None):
    verdict = judge(stack, seen, text, cause)
    assert verdict["ok"] == (not verdict["problems"])
    return verdict["problems"]


def test_a_stack_that_is_what_it_says_passes():
    verdict = judge(make_stack(**FABRIC, **HOST_LIBRARIES), make_seen(), nccl_log("slingshot"), None)
    assert verdict == {
        "ok": True,
        "problems": [],
        "notes": ["NCCL warns: NET/OFI Unable to register memory (type = 2) for device 5. RC: -22, Error: Invalid argument"],
        "nccl": None,
        "network": "AWS Libfabric",
        "plugin": None,
        "provider": "cxi",
        "transports": ["NET/AWS Libfabric/GDRDMA", "P2P/IPC"],
    }  # fmt: skip


def test_a_launch_that_failed_fails_the_stack():
    (problem,) = problems(make_stack(), None, cause="ImportError: libcudart.so.13")
    assert problem == (
        "The launch failed: ImportError: libcudart.so.13. Read its log, then fix image, python, binds, wrapper, env or srun."
    )
    (problem,) = problems(make_stack(), None)
    assert "the cause is unknown" in problem
    assert "results/x.log" in judge(make_stack(), None, "", None, "results/x.log")["problems"][0]


def test_the_network_interface_is_shown():
    verdict = judge(make_stack(env={"GLOO_SOCKET_IFNAME": "hsn0"}), make_seen(), "", None)
    assert verdict["ok"]
    assert "Network interface of gloo: hsn0 (GLOO_SOCKET_IFNAME)." in verdict["notes"]


def test_misplaced_ranks_fail_the_stack_and_nothing_else_is_held_against_it():
    seen = make_seen(placement_problems=["hosts: 1 found, 2 expected (n1)"], backends=[], ranks=[make_rank(0, {})])
    (problem,) = problems(make_stack(**FABRIC, **HOST_LIBRARIES), seen)
    assert problem.startswith("Ranks are not placed as requested: hosts: 1 found, 2 expected (n1). Check nodes")
    assert judge(make_stack(**FABRIC), seen, "", None)["notes"] == []


def test_a_backend_that_does_not_work_fails_the_stack_with_what_nccl_says():
    tried = {
        "backend": "nccl",
        "ok": False,
        "cause": "rank 0 on host n1: DistBackendError: NCCL error",
        "elapsed_ns": 1,
    }
    found = problems(make_stack(**FABRIC), make_seen(backends=[tried]), nccl_log("2.26-required-network-missing"))
    assert found[0].startswith(
        "Backend nccl does not work: rank 0 on host n1: DistBackendError: NCCL error."
        " NCCL: Error: network AWS Libfabric not found. No cell of this stack"
    )
    assert found[1] == (
        "NCCL found no network; required: 'AWS Libfabric'. No loadable libnccl-net.so in the image"
        " (NCCL: Could not find: ofi libnccl-net-ofi.so). Mount NCCL's plugin and libfabric from the host"
        " with `binds` (now /opt/cray:/host, /usr/lib64/libcxi.so.1) and put them first in LD_LIBRARY_PATH in the"
        " `wrapper` (see containers/README.md)."
    )


def test_sockets_instead_of_the_required_network_say_why_and_what_to_mount():
    (problem,) = problems(make_stack(**FABRIC), make_seen(), nccl_log("2.20-old-libfabric"))
    assert problem == (
        "NCCL uses Socket; required: 'AWS Libfabric'. All traffic between nodes would go through TCP sockets."
        " No loadable libnccl-net.so in the image (NCCL: dlerror=/opt/amazon/efa/lib/libfabric.so.1: version"
        " `FABRIC_1.7' not found (required by /usr/local/lib/libnccl-net.so)). Mount NCCL's plugin and libfabric from"
        " the host with `binds` (now /opt/cray:/host, /usr/lib64/libcxi.so.1) and put them first in LD_LIBRARY_PATH in"
        " the `wrapper` (see containers/README.md)."
    )


def test_what_to_do_depends_on_how_libraries_reach_the_stack():
    text = nccl_log("2.26-one-host")
    (contained,) = problems(make_stack(kind="contained", required_network="OFI"), make_seen(), text)
    assert contained.endswith(
        "(NCCL: Could not find: libnccl-net.so). Build an image that contains NCCL's plugin and libfabric,"
        " or make the stack bind-mounted with `binds` and a `wrapper` (see containers/README.md)."
    )
    (host,) = problems(make_stack(kind="host", required_network="IB"), make_seen(), text)
    assert "No loadable libnccl-net.so in the environment" in host
    assert host.endswith("Put libibverbs and its drivers first in LD_LIBRARY_PATH in the stack's `env`.")
    (other,) = problems(make_stack(required_network="Mesh"), make_seen(), text)
    assert other.endswith(
        "Mount NCCL's plugin for it from the host with `binds` (now none) and put them first in LD_LIBRARY_PATH in the"
        " `wrapper` (see containers/README.md)."
    )


def test_a_plugin_that_is_loaded_and_not_used_is_no_network():
    (problem,) = problems(make_stack(**FABRIC), make_seen(), nccl_log("2.27-plugin-fails"))
    assert "NCCL loads the plugin Libfabric (v10), but does not use it (NCCL: NET/OFI Failed to initialize" in problem
    (problem,) = problems(make_stack(**FABRIC), make_seen(), nccl_log("2.27-plugin-not-used"))
    assert problem.startswith("NCCL uses IB; required: 'AWS Libfabric'. NCCL loads the plugin AWS Libfabric (v6), but")
    assert problem.endswith("Or set required_network to 'IB', if that is intended.")


@pytest.mark.parametrize("name", ["AWS Libfabric", "Libfabric", "libfabric", "OFI"])
def test_the_networks_three_names_are_one(name):
    assert problems(make_stack(required_network=name), make_seen(), nccl_log("slingshot")) == []
    assert problems(make_stack(required_network=name), make_seen(), nccl_log("2.29-libfabric")) == []


def test_a_silent_nccl_fails_a_stack_that_requires_a_network():
    (problem,) = problems(make_stack(**FABRIC), make_seen())
    assert problem.startswith("NCCL did not log which network it uses; required: 'AWS Libfabric'. Remove NCCL_DEBUG")


def test_one_rank_on_sockets_is_enough_to_fail():
    text = "a NCCL INFO Using network AWS Libfabric\nb NCCL INFO Using network Socket\n"
    (problem,) = problems(make_stack(**FABRIC), make_seen(), text)
    assert problem.startswith("NCCL uses AWS Libfabric and Socket; required: 'AWS Libfabric'.")


def test_libfabric_over_tcp_is_found_out():
    text = nccl_log("slingshot").replace("Provider is cxi", "Provider is tcp;ofi_rxm")
    (problem,) = problems(make_stack(**FABRIC), make_seen(), text)
    assert problem.startswith(
        "NCCL uses AWS Libfabric with libfabric's provider tcp;ofi_rxm, which is TCP sockets; expected a provider"
        " of the fabric (cxi, efa, verbs). Loaded: /host/lib/libfabric.so.1.22.0 (host). Mount"
    )


def test_a_required_network_without_nccl_is_a_note():
    gloo = make_seen(backends=[{"backend": "gloo", "ok": True, "cause": None, "elapsed_ns": 1}])
    verdict = judge(make_stack(**FABRIC), gloo, "", None)
    assert verdict["ok"]
    assert verdict["notes"] == [
        "required_network 'AWS Libfabric' was not checked: only NCCL reports its network, and backends are gloo."
    ]


def test_sockets_where_nothing_is_required_are_a_note_between_hosts_only():
    verdict = judge(make_stack(), make_seen(), nccl_log("2.21-sockets"), None)
    assert verdict["ok"]
    assert verdict["notes"][0].startswith("NCCL uses TCP sockets between nodes.")
    one_host = make_seen(ranks=[make_rank(rank) for rank in range(4)])
    assert judge(make_stack(), one_host, nccl_log("2.21-sockets"), None)["notes"] == []


def test_a_host_library_that_is_not_loaded_fails_the_stack():
    without = {name: where for name, where in LIBRARIES.items() if "cxi" not in name}
    ranks = [make_rank(rank, without if rank > 3 else LIBRARIES) for rank in range(8)]
    (problem,) = problems(make_stack(**HOST_LIBRARIES), make_seen(ranks=ranks))
    assert problem.startswith("libcxi is not loaded on host n2; required from the host. Mount it with `binds`")
    (problem,) = problems(make_stack(**HOST_LIBRARIES), make_seen(ranks=[make_rank(r, without) for r in range(8)]))
    assert problem.startswith("libcxi is not loaded on any rank;")


def test_a_host_library_from_the_image_fails_the_stack_with_its_path():
    mixed = LIBRARIES | {"libfabric.so.1.22.0": ("/usr/lib/libfabric.so.1.22.0", "image")}
    ranks = [make_rank(rank, mixed if rank == 5 else LIBRARIES) for rank in range(8)]
    (problem,) = problems(make_stack(**HOST_LIBRARIES), make_seen(ranks=ranks))
    assert problem.startswith(
        "libfabric is loaded from the image (/usr/lib/libfabric.so.1.22.0) on rank 5 of n2; required from the host. Mount"
    )


def test_a_required_library_may_have_a_longer_name_and_nccl_is_no_plugin():
    libraries = {"libnccl-net-ofi.so": ("/host/lib/libnccl-net-ofi.so", "host"), "libnccl.so.2": ("/usr/lib/libnccl.so.2", "image")}  # fmt: skip
    seen = make_seen(ranks=[make_rank(rank, libraries) for rank in range(8)])
    assert problems(make_stack(required_host_libraries=["libnccl-net"]), seen) == []
    (problem,) = problems(make_stack(required_host_libraries=["libnccl.so.2"]), seen)
    assert problem.startswith("libnccl.so.2 is loaded from the image (/usr/lib/libnccl.so.2) on all ranks")


def test_hosts_that_differ_are_named():
    older = LIBRARIES | {"libcxi.so.1.5.0": ("/host/lib/libcxi.so.1.4.0", "host")}
    ranks = [make_rank(rank) for rank in range(4)]
    ranks += [make_rank(rank, older, driver="550.54.14", torch="2.11") for rank in range(4, 8)]
    ranks[2]["torch"] = "2.10"
    assert judge(make_stack(), make_seen(ranks=ranks), "", None)["notes"] == [
        "torch differs between ranks: 2.12.1+cu130 on rank 0 of n1, rank 1 of n1, rank 3 of n1;"
        " 2.10 on rank 2 of n1; 2.11 on host n2.",
        "driver differs between ranks: 570.86.15 on host n1; 550.54.14 on host n2.",
        "libcxi differs between ranks: /host/lib/libcxi.so.1.5.0 (host) on host n1;"
        " /host/lib/libcxi.so.1.4.0 (host) on host n2.",
    ]


def test_libraries_that_carry_no_communication_may_differ():
    ranks = [make_rank(0, LIBRARIES | {"libsqlite3.so.0": ("/usr/lib/libsqlite3.so.0", "image")}), make_rank(1)]
    assert judge(make_stack(), make_seen(ranks=ranks), "", None)["notes"] == []
