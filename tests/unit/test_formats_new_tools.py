"""JSON of rccl-tests, all_reduce_bench.py and SuperBench."""

import json

import pytest
from formats_files import NEEDS, collected, read, read_text, run_import, text_of

from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.store.launch_files import read_store

BENCH, SUPERBENCH = NEEDS["all-reduce-bench.txt"], NEEDS["superbench.jsonl"]


def test_json_of_rccl_tests_without_mpi_needs_the_shape(wording):
    rows = [
        {k: v for k, v in row.items() if k not in ("nodes", "ranks", "ranksPerNode", "gpusPerRank")}
        for row in json.loads(text_of("rccl-mpi.json"))
    ]
    with wording.raises(UserError):
        read_text(json.dumps(rows), "f", Options())
    assert read_text(json.dumps(rows), "f", Options(1, 8)).readings == read("rccl-mpi.json").readings


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (1, {"name": "AllToAllv"}, r"f: \[1\].name = 'AllToAllv' is invalid"),
        (2, {"size": 1048576, "inPlace": 0}, r"f: \[2\]: size 1048576 again"),
        (3, {"busBw": 10.0}, r"f: \[2\]: algbw .* and busbw 10"),
        (4, {"ranks": 16}, "f: several values of nodes, ranks"),
        (5, {"wrong": "-3"}, r"f: \[5\].wrong = '-3' is invalid"),
        (0, {"inPlace": 2}, r"f: .*inPlace"),
        (0, {"time": "fast"}, r"f: .*time"),
    ],
)
def test_json_of_rccl_tests_that_is_not_clear_names_the_entry(index, change, message):
    rows = json.loads(text_of("rccl-mpi.json"))
    rows[index] |= change
    with pytest.raises(UserError, match=message):
        read_text(json.dumps(rows), "f", Options())


def test_wrong_values_of_rccl_tests_are_a_failure_and_unchecked_ones_a_note(wording):
    text = text_of("rccl-mpi.json")
    assert read_text(text.replace('"wrong": "0"', '"wrong": "3"', 1), "f", Options()).readings[0].failure
    wording.lines(read_text(text.replace('"0"', '"N/A"', 1), "f", Options()).notes, "some results were")


# --- all_reduce_bench.py


def test_queued_calls_and_symmetric_memory_are_other_measurements():
    text = text_of("all-reduce-bench.txt")
    queued = read_text(text.replace("20 trials)", "20 trials, up to 16 queued calls per trial)"), "f", BENCH)
    assert (set(queued.readings[0].times_s), queued.readings[0].num_iterations) == ({"window_step_s"}, None)
    more = "20 trials, 1 call per trial, host overhead included, symmetric memory)"
    symmetric = read_text(text.replace("20 trials)", more), "f", BENCH).readings[0]
    assert (symmetric.parameters["operation"], set(symmetric.times_s)) == ("all_reduce_symmetric_memory", {"mean_s"})


def test_two_tables_of_all_reduce_bench_are_two_launches_with_their_versions(tmp_path):
    text = text_of("all-reduce-bench.txt")
    (tmp_path / "log.txt").write_text(text + text.replace("(2, 26, 2)", "(2, 27, 3)"))
    run_import(tmp_path / "out", tmp_path / "log.txt", options=BENCH)
    assert collected(tmp_path / "out")[1]["measurements"]["repeat"].value_counts().to_dict() == {0: 7, 1: 7}
    headers = [launch.header for launch in read_store(tmp_path / "out" / "launches")]
    assert {h.repeat: h.environment["nccl"] for h in headers} == {0: "2.26.2", 1: "2.27.3"}


@pytest.mark.parametrize(
    ("old", "new", "options", "message"),
    [
        ("", "", Options(), r"f:5: 4 ranks on an unknown number of nodes; expected --gpus-per-node"),
        ("", "", Options(gpus_per_node=3), r"f:5: 4 ranks on nodes of 3 GPUs"),
        ("payload |    busbw", "payload |    latency", BENCH, r"f:7: unknown columns '\| latency"),
        ("2.44GBps", "3.44GBps", BENCH, r"f:10: busbw 3.44 and algbw 1.63 GB/s with 4 ranks; expected busbw 2.4"),
        ("|  128KiB", "|  127KiB", BENCH, r"f:11: size 130048 after 65536; expected 131072"),
        ("4.72GBps |   3.15GBps |", "4.72GBps |   3.", BENCH, r"f:11: incomplete row"),
        ("20 trials)", "20 trials, on the Moon)", BENCH, r"f:5: unknown setting 'on the Moon'"),
        ("average bandwidth", "0.5GiB payload bandwidth", BENCH, r"f:5: found 'The 0.5GiB payload"),
        ("GBps", "Gbps", BENCH, r"f:9: incomplete row '\| 32KiB"),
    ],
)
def test_a_table_of_all_reduce_bench_that_is_not_clear_names_the_line(old, new, options, message):
    with pytest.raises(UserError, match=message):
        read_text(text_of("all-reduce-bench.txt").replace(old, new), "f", options)


# --- SuperBench


def test_each_node_of_superbench_is_a_launch_and_other_benchmarks_are_named(tmp_path):
    outcome = run_import(tmp_path / "out", "superbench.jsonl", options=SUPERBENCH)
    rows = collected(tmp_path / "out")[1]["measurements"]
    times = rows.groupby(["operation", "message_bytes"])["window_step_s"].apply(
        lambda times: [round(t, 9) for t in times]
    )
    assert times.to_dict() == {
        ("all_reduce", 2**20): [40e-6, 40.8e-6],
        ("all_reduce", 2**23): [120e-6, 122.4e-6],
        ("all_to_all", 2**20): [40e-6, 40.8e-6],
        ("all_to_all", 2**23): [120e-6, 122.4e-6],
    }
    assert any("ib-loopback, kernel-launch" in note for note in outcome.notes)
    headers = [launch.header for launch in read_store(tmp_path / "out" / "launches")]
    assert {h.environment["hosts"][0]["host"] for h in headers} == {"nid001000", "nid001001"}


def test_a_summary_of_one_node_and_one_with_variants():
    line = text_of("superbench.jsonl").split("\n")[0]
    assert len(read_text(line, "f", SUPERBENCH).readings) == 4
    more = {k.replace(":default", ":nv-link"): v for k, v in json.loads(line).items()}
    readings = read_text(json.dumps(json.loads(line) | more), "f", SUPERBENCH).readings
    assert {r.stack for r in readings} == {"default", "nv_link"}


UNCLEAR = {
    "no shape": ("", "", Options()),
    "another shape": ("", "", Options(gpus_per_node=4)),
    "latency": ("allreduce_1048576_time", "allreduce_1048576_latency", SUPERBENCH),
    "an unknown operation": ("alltoall_", "alltoallv_", SUPERBENCH),
    "an exit code": ('nccl-bw:default/return_code:0": 0', 'nccl-bw:default/return_code:0": 124', SUPERBENCH),
    "other benchmarks": ("nccl-bw:", "gemm-flops:", SUPERBENCH),
    "no bandwidth": ('"nccl-bw:default/allreduce_1048576_busbw:0": 45.87, ', "", SUPERBENCH),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_a_summary_of_superbench_that_is_not_clear_names_line_and_metric(name, wording):
    old, new, options = UNCLEAR[name]
    with wording.raises(UserError):
        read_text(text_of("superbench.jsonl").replace(old, new), "f", options)


def test_a_summary_that_is_cut_off_names_the_line():
    with pytest.raises(UserError, match=r"f:2: invalid JSON"):
        read_text(text_of("superbench.jsonl")[:-30], "f", SUPERBENCH)
