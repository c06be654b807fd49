import pytest
from synthetic_preflight import LIBRARIES, make_rank, make_seen, make_stack, nccl_log

from regatta.run.preflight_verdict import judge

FABRIC = {"required_network": "AWS Libfabric", "binds": ["/opt/cray:/host", "/usr/lib64/libcxi.so.1"]}
HOST_LIBRARIES = {"required_host_libraries": ["libfabric", "libcxi"]}


def problems(stack, seen, text="", cause=None):
    verdict = judge(stack, seen, text, cause)
    assert verdict["ok"] == (not verdict["problems"])
    return verdict["problems"]


def test_a_stack_that_is_what_it_says_passes(wording):
    verdict = judge(make_stack(**FABRIC, **HOST_LIBRARIES), make_seen(), nccl_log("slingshot"), None)
    wording(verdict.pop("notes"))
    assert verdict == {
        "ok": True,
        "problems": [],
        "nccl": None,
        "network": "AWS Libfabric",
        "plugin": None,
        "provider": "cxi",
        "transports": ["NET/AWS Libfabric/GDRDMA", "P2P/IPC"],
    }


def test_a_launch_that_failed_fails_the_stack(wording):
    (problem,) = problems(make_stack(), None, cause="ImportError: libcudart.so.13")
    wording(problem)
    (problem,) = problems(make_stack(), None)
    assert "results/x.log" in judge(make_stack(), None, "", None, "results/x.log")["problems"][0]


def test_the_network_interface_is_shown(wording):
    verdict = judge(make_stack(env={"GLOO_SOCKET_IFNAME": "hsn0"}), make_seen(), "", None)
    assert verdict["ok"]
    wording(verdict["notes"])


def test_misplaced_ranks_fail_the_stack_and_nothing_else_is_held_against_it(wording):
    seen = make_seen(placement_problems=["hosts: 1 found, 2 expected (n1)"], backends=[], ranks=[make_rank(0, {})])
    (problem,) = problems(make_stack(**FABRIC, **HOST_LIBRARIES), seen)
    wording(problem)
    assert judge(make_stack(**FABRIC), seen, "", None)["notes"] == []


def test_a_backend_that_does_not_work_fails_the_stack_with_what_nccl_says(wording):
    tried = {
        "backend": "nccl",
        "ok": False,
        "cause": "rank 0 on host n1: DistBackendError: NCCL error",
        "elapsed_ns": 1,
    }
    found = problems(make_stack(**FABRIC), make_seen(backends=[tried]), nccl_log("2.26-required-network-missing"))
    wording(found[0])
    wording(found[1])


ON_TCP = nccl_log("slingshot").replace("Provider is cxi", "Provider is tcp;ofi_rxm")
HALF_SOCKETS = "a NCCL INFO Using network AWS Libfabric\nb NCCL INFO Using network Socket\n"
WITHOUT_NETWORK = {  # what to do depends on how libraries reach the stack
    "old libfabric": (FABRIC, nccl_log("2.20-old-libfabric")),
    "contained": ({"kind": "contained", "required_network": "OFI"}, nccl_log("2.26-one-host")),
    "host": ({"kind": "host", "required_network": "IB"}, nccl_log("2.26-one-host")),
    "another network": ({"required_network": "Mesh"}, nccl_log("2.26-one-host")),
    "a plugin that fails": (FABRIC, nccl_log("2.27-plugin-fails")),
    "a plugin that is not used": (FABRIC, nccl_log("2.27-plugin-not-used")),
    "a silent NCCL": (FABRIC, ""),
    "one rank on sockets": (FABRIC, HALF_SOCKETS),
    "libfabric over TCP": (FABRIC, ON_TCP),
}


@pytest.mark.parametrize("name", WITHOUT_NETWORK)
def test_a_stack_without_the_required_network_is_told_why_and_what_to_mount(name, wording):
    stack, text = WITHOUT_NETWORK[name]
    (problem,) = problems(make_stack(**stack), make_seen(), text)
    wording(problem)


@pytest.mark.parametrize("name", ["AWS Libfabric", "Libfabric", "libfabric", "OFI"])
def test_the_networks_three_names_are_one(name):
    assert problems(make_stack(required_network=name), make_seen(), nccl_log("slingshot")) == []
    assert problems(make_stack(required_network=name), make_seen(), nccl_log("2.29-libfabric")) == []


def test_a_required_network_without_nccl_is_a_note(wording):
    gloo = make_seen(backends=[{"backend": "gloo", "ok": True, "cause": None, "elapsed_ns": 1}])
    verdict = judge(make_stack(**FABRIC), gloo, "", None)
    assert verdict["ok"]
    wording(verdict["notes"])


def test_sockets_where_nothing_is_required_are_a_note_between_hosts_only(wording):
    verdict = judge(make_stack(), make_seen(), nccl_log("2.21-sockets"), None)
    assert verdict["ok"]
    wording(verdict["notes"][0])
    one_host = make_seen(ranks=[make_rank(rank) for rank in range(4)])
    assert judge(make_stack(), one_host, nccl_log("2.21-sockets"), None)["notes"] == []


def test_a_host_library_that_is_not_loaded_fails_the_stack(wording):
    without = {name: where for name, where in LIBRARIES.items() if "cxi" not in name}
    ranks = [make_rank(rank, without if rank > 3 else LIBRARIES) for rank in range(8)]
    (problem,) = problems(make_stack(**HOST_LIBRARIES), make_seen(ranks=ranks))
    wording(problem)
    (problem,) = problems(make_stack(**HOST_LIBRARIES), make_seen(ranks=[make_rank(r, without) for r in range(8)]))


def test_a_host_library_from_the_image_fails_the_stack_with_its_path(wording):
    mixed = LIBRARIES | {"libfabric.so.1.22.0": ("/usr/lib/libfabric.so.1.22.0", "image")}
    ranks = [make_rank(rank, mixed if rank == 5 else LIBRARIES) for rank in range(8)]
    (problem,) = problems(make_stack(**HOST_LIBRARIES), make_seen(ranks=ranks))
    wording(problem)


def test_a_required_library_may_have_a_longer_name_and_nccl_is_no_plugin(wording):
    libraries = {"libnccl-net-ofi.so": ("/host/lib/libnccl-net-ofi.so", "host"), "libnccl.so.2": ("/usr/lib/libnccl.so.2", "image")}  # fmt: skip
    seen = make_seen(ranks=[make_rank(rank, libraries) for rank in range(8)])
    assert problems(make_stack(required_host_libraries=["libnccl-net"]), seen) == []
    (problem,) = problems(make_stack(required_host_libraries=["libnccl.so.2"]), seen)
    wording(problem)


def test_hosts_that_differ_are_named(wording):
    older = LIBRARIES | {"libcxi.so.1.5.0": ("/host/lib/libcxi.so.1.4.0", "host")}
    ranks = [make_rank(rank) for rank in range(4)]
    ranks += [make_rank(rank, older, driver="550.54.14", torch="2.11") for rank in range(4, 8)]
    ranks[2]["torch"] = "2.10"
    wording(judge(make_stack(), make_seen(ranks=ranks), "", None)["notes"])


def test_libraries_that_carry_no_communication_may_differ():
    ranks = [make_rank(0, LIBRARIES | {"libsqlite3.so.0": ("/usr/lib/libsqlite3.so.0", "image")}), make_rank(1)]
    assert judge(make_stack(), make_seen(ranks=ranks), "", None)["notes"] == []
