import pytest
from synthetic_preflight import NCCL_LOGS, nccl_log

from regatta.run.preflight_verdict import NcclLog, parse_nccl_log


def test_an_empty_log_says_nothing():
    nothing = NcclLog(None, (), None, None, None, (), ())
    assert parse_nccl_log("") == parse_nccl_log("via P2P/CUMEM\n") == nothing
    assert nothing.network is None


@pytest.mark.parametrize(
    ("name", "version", "network", "provider", "transports"),
    [
        ("2.18-ib", "2.18.5+cuda12.0", "IB", None, ()),
        ("slingshot", None, "AWS Libfabric", "cxi", ("NET/AWS Libfabric/GDRDMA", "P2P/IPC")),
        ("2.20-old-libfabric", "2.20.5+cuda12.4", "Socket", None, ()),
        ("2.21-sockets", "2.21.5+cuda12.6", "Socket", None, ("NET/Socket", "P2P/CUMEM/read", "SHM/direct/direct")),
        ("2.26-one-host", "2.26.2+cuda12.2", "Socket", None, ("P2P/CUMEM",)),
        ("2.26-required-network-missing", None, None, None, ()),
        ("2.27-plugin-not-used", "2.27.5+cuda12.9", "IB", "verbs;ofi_rxm", ("NET/IB/GDRDMA", "P2P/IPC")),
        ("2.27-plugin-fails", "2.27.7+cuda13.0", "Socket", None, ()),
        ("2.29-libfabric", "2.29.2+cuda12.8", "Libfabric", "efa", ("NET/Libfabric",)),
    ],
)
def test_each_form_of_the_log_is_understood(name, version, network, provider, transports):
    log = parse_nccl_log(nccl_log(name))
    assert (log.version, log.network, log.provider, log.transports) == (version, network, provider, transports)


def test_no_golden_log_is_left_out():
    assert len(list(NCCL_LOGS.glob("*.log"))) == 9


@pytest.mark.parametrize(
    ("name", "plugin"),
    [
        ("2.27-plugin-not-used", "AWS Libfabric (v6)"),
        ("2.27-plugin-fails", "Libfabric (v10)"),
        ("2.29-libfabric", "Libfabric (v11)"),
    ],
)
def test_a_plugin_that_was_loaded_is_named_and_no_problem(name, plugin):
    log = parse_nccl_log(nccl_log(name))
    assert (log.plugin, log.plugin_problem) == (plugin, None)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("2.18-ib", "Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory"),
        ("2.20-old-libfabric", "dlerror=/opt/amazon/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found (required by /usr/local/lib/libnccl-net.so)"),
        ("2.21-sockets", "Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory : when loading libnccl-net.so"),
        ("2.26-one-host", "Could not find: libnccl-net.so"),
        ("2.26-required-network-missing", "Could not find: ofi libnccl-net-ofi.so"),
    ],
)  # fmt: skip
def test_why_there_is_no_plugin_is_told_in_nccls_words(name, problem):
    log = parse_nccl_log(nccl_log(name))
    assert (log.plugin, log.plugin_problem) == (None, problem)


# The words of src/plugin/plugin_open.cc where the plugin is there and something that it needs is not.
@pytest.mark.parametrize("before", ["", "libnccl-net.so: "])
def test_a_library_that_the_plugin_needs_is_told_before_the_missing_plugin(before):
    missing = f"{before}libfabric.so.1: cannot open shared object file: No such file or directory"
    text = f"n1:1:1 [0] NCCL INFO NET/Plugin: Could not find: ofi\nn1:1:1 [0] NCCL INFO NET/Plugin: {missing}\n"
    assert parse_nccl_log(text).plugin_problem == missing


def test_warnings_are_told_once_and_at_most_five():
    log = nccl_log("2.27-plugin-fails")
    warnings = parse_nccl_log(log).warnings
    assert (len(warnings), len(set(warnings))) == (3, 3)
    assert all(f"NCCL WARN {warning}" in log for warning in warnings)
    many = "".join(f"n1:1:1 [0] net.cc:1 NCCL WARN no {number}\n" for number in range(9))
    assert parse_nccl_log(many).warnings == ("no 0", "no 1", "no 2", "no 3", "no 4")


def test_prefixes_of_launchers_do_not_matter():
    lines = nccl_log("2.29-libfabric").splitlines()
    prefixed = "\n".join(f"{prefix}{line}" for prefix in ("", "0: ", "[1,0]<stdout>:") for line in lines)
    assert parse_nccl_log(prefixed) == parse_nccl_log(nccl_log("2.29-libfabric"))


def test_two_networks_are_both_told():
    text = "a [0] NCCL INFO Using network IB\nb [0] NCCL INFO Using network Socket\na [0] NCCL INFO Using network IB\n"
    log = parse_nccl_log(text)
    assert log.networks == ("IB", "Socket")
    assert log.network == "IB and Socket"


def test_numbers_of_devices_and_proxies_are_left_out_of_transports():
    channel = "n1:1:1 [0] NCCL INFO Channel 00/0 : 3[3] -> 8[0] [send] via "
    vias = ("NET/IB/0(4)/GDRDMA", "NET/IB/12/GDRDMA/Shared", "P2P/direct pointer/read", "P2P/MNNVL", "NET/Socket/1")
    log = parse_nccl_log("".join(f"{channel}{via}\n" for via in vias))
    assert log.transports == ("NET/IB/GDRDMA", "NET/Socket", "P2P/MNNVL", "P2P/direct pointer/read")
