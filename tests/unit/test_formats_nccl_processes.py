"""nccl-tests whose processes drive several GPUs each (-t, -g): each GPU is a rank, and JSON lists one per process.

The golden files have the format that src/util.cu of NVIDIA/nccl-tests writes, with synthetic figures.
"""

import json

import pytest
from formats_files import analysed, read_text, run_import, text_of

from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.tables.cells import rows_of

ONE, TWO = "nccl-one-process.json", "nccl-threads.json"  # 1 process x 8 GPUs; 2 processes x 2 threads x 2 GPUs


def changed(name, **config):
    """Return the text of a golden file with other entries of its `config`."""
    run = json.loads(text_of(name))
    run["config"] |= config
    return json.dumps(run)


def shapes(source):
    return {(reading.nodes, reading.gpus_per_node) for reading in source.readings}


@pytest.mark.parametrize(
    ("program", "operation"), [("broadcast", "broadcast"), ("reduce", "reduce"), ("sendrecv", "send_recv_ring")]
)
def test_operations_whose_bandwidths_do_not_tell_the_ranks_have_all_of_them(program, operation):
    source = read_text(text_of(ONE).replace("broadcast_perf", f"{program}_perf"), "f", Options())
    assert shapes(source) == {(1, 8)}
    assert {reading.parameters["operation"] for reading in source.readings} == {operation}


@pytest.mark.parametrize("program", ["all_gather", "reduce_scatter", "alltoall"])
def test_operations_whose_bandwidths_tell_the_ranks_are_read(program):
    run = json.loads(text_of(ONE).replace("broadcast_perf", f"{program}_perf"))
    for result in run["results"]:
        for side in ("out_of_place", "in_place"):
            result[side]["bus_bw"] *= 7 / 8
    assert shapes(read_text(json.dumps(run), "f", Options())) == {(1, 8)}


def test_the_bus_bandwidth_that_is_printed_is_that_of_all_ranks(tmp_path):
    run_import(tmp_path / "c", TWO)
    _, tables, _ = analysed(tmp_path / "c")
    printed = {r["size"]: r["in_place"]["bus_bw"] for r in json.loads(text_of(TWO))["results"]}
    rows = rows_of(tables["cells"], "collective").set_index("message_bytes")
    assert set(rows["world_size"]) == {8}
    assert {size: rows.loc[size, "pipelined_busbw_gb_per_s"] for size in printed} == pytest.approx(printed, rel=1e-5)


def test_a_file_that_lists_every_gpu_has_no_more_ranks_than_that():
    devices = json.loads(text_of(ONE))["config"]["devices"]
    listed = [devices[0] | {"rank": rank, "device": rank} for rank in range(8)]
    source = read_text(changed(ONE, devices=listed), "f", Options())
    assert (shapes(source), source.notes) == ({(1, 8)}, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(TWO, ngpus=4), r"f: 2 devices listed, with 2 x 4 = 8 GPUs per process; expected the first GPU"),
        (changed(ONE, nthreads=0), "config.nthreads = 0 is out of range: it must be at least 1"),
        (changed(ONE, ngpus=10**12), "1000000000000 GPUs per process; expected"),
        (
            text_of("nccl-threads.txt").replace("nGpus 4", "nGpus 3"),
            r"f:3: 8 devices listed, with 2 x 3 = 6 GPUs per process; expected threads x GPUs",
        ),
        (text_of("nccl-threads.txt").replace("nGpus 4", "nGpus 0"), r"f:3: 8 devices .*0 GPUs per process"),
    ],
)
def test_devices_that_do_not_fit_the_processes_are_refused(text, message):
    with pytest.raises(UserError, match=message):
        read_text(text, "f", Options())
