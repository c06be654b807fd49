"""Several tables or runs in one file, and the tests of OSU beside latency, bandwidth and blocking collectives."""

import pytest
from formats_files import ALL, FILES, NEEDS, collected, read, read_text, run_import, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.store.launch_files import read_store

OSU = NEEDS["osu-several.txt"]


def test_each_program_in_a_job_log_is_a_run_and_the_same_table_twice_is_two_launches(tmp_path):
    run_import(tmp_path / "logs", "rccl-several.txt")
    _, found, problems = collected(tmp_path / "logs")
    rows = found["measurements"]
    medians = rows.groupby(["operation", "message_bytes"])["p50_s"].apply(list).to_dict()
    assert medians == {
        ("all_gather", 2**20): [40e-6],  # out of place, as in Regatta's benchmark
        ("all_gather", 2**21): [60e-6],
        ("all_reduce", 2**20): [48e-6, 49e-6],
        ("all_reduce", 2**21): [68e-6, 69e-6],
        ("all_reduce", 2**22): [98e-6, 99e-6],
    }
    assert rows["algorithm"].isna().all()  # the file does not say which one the library took
    assert problems["invalid"] == problems["superseded"] == []
    headers = [launch.header for launch in read_store(tmp_path / "logs" / "launches")]
    of_order = {(len(header.order), header.repeat): header.environment["nccl"] for header in headers}
    assert of_order == {(3, 0): "2.27.7", (2, 0): "2.28.4", (3, 1): "2.27.7"}


def test_lines_of_a_message_are_those_of_the_whole_file(wording):
    text = text_of("rccl-several.txt").replace("26.89   20.16", "26.89   90.16")
    line = next(n for n, row in enumerate(text.split("\n"), start=1) if "90.16" in row)
    with wording.raises(UserError, line=f"f:{line}:"):
        read_text(text, "f", Options())


@pytest.mark.parametrize("line", range(text_of("rccl-several.txt").count("\n")))
def test_a_job_log_cut_off_within_a_run_is_rejected(line):
    text = "".join(text_of("rccl-several.txt").splitlines(keepends=True)[:line])
    ends = [n for n, row in enumerate(text_of("rccl-several.txt").split("\n"), start=1) if "Avg bus" in row]
    if line < ends[0] or "starting" in text.split("Avg bus")[-1]:
        with pytest.raises(UserError, match=r"^f:"):
            read_text(text, "f", Options())
    else:
        runs = {reading.run for reading in read_text(text, "f", Options()).readings}
        assert len(runs) == sum(line >= end for end in ends)


def test_several_excerpts_in_one_file_are_several_runs():
    rows = [line for line in text_of("rccl-several.txt").split("\n") if not line.startswith(("# nThread", "#  Rank"))]
    source = read_text("\n".join(rows), "f", Options(nodes=1, gpus_per_node=4))
    assert [(r.run, r.parameters["operation"]) for r in source.readings] == [
        *[(0, "all_reduce")] * 3,
        *[(1, "all_gather")] * 2,
        *[(2, "all_reduce")] * 3,
    ]


KINDS = {
    "nccl": [name for name in ALL if name.startswith(("nccl", "rccl")) and name.endswith(".txt")],
    "osu": ["osu-allreduce.txt", "osu-barrier.txt", "osu-several.txt", "osu-iallreduce.txt"],
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_file_of_several_logs_has_what_each_has_alone(kind, data):
    names = data.draw(st.lists(st.sampled_from(KINDS[kind]), min_size=1, max_size=4))
    between = data.draw(st.sampled_from(["", "\n", "srun: job 4711 queued\n", "\n\n+ date\nMon Nov 23\n"]))
    found = [what(reading) for reading in read_text(between.join(map(text_of, names)), "f", SHAPE[kind]).readings]
    alone = [read_text(text_of(name), name, SHAPE[kind]).readings for name in names]
    assert found == [what(reading) for readings in alone for reading in readings]


SHAPE = {"nccl": Options(), "osu": Options(2, 4)}


def what(reading):
    return reading.parameters, reading.nodes, reading.gpus_per_node, reading.times_s, reading.printed, reading.failure


def test_two_runs_of_benchmark_py_in_one_file_keep_their_bucket_sizes():
    text = text_of("ddp-2x4-gh200.txt")
    other = text.replace("Maximum bucket size: 25MB", "Maximum bucket size: 50MB")
    assert other != text
    source = read_text(text + other + text, "f", Options())
    num = len(read("ddp-2x4-gh200.txt").readings)
    assert len(source.readings) == 3 * num
    buckets = [r.parameters["bucket_cap_mb"] for r in source.readings if r.parameters["strategy"] == "ddp"]
    assert buckets == [25] * (len(buckets) // 3) + [50] * (len(buckets) // 3) + [25] * (len(buckets) // 3)


def test_what_nccl_logs_about_its_network_is_kept_for_comparisons(tmp_path):
    log = "nid001000:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v8)\n"
    (tmp_path / "a.txt").write_text(log + text_of("nccl-13-columns.txt"))
    run_import(tmp_path / "a", tmp_path / "a.txt")
    [header] = [launch.header for launch in read_store(tmp_path / "a" / "launches")]
    assert header.environment["settings"] == {
        "NCCL network": "AWS Libfabric",
        "NCCL plugin": "Libfabric (v8)",
        "libfabric provider": "cxi",
    }
    assert header.environment["nccl"] == "2.20.5"


# --- OSU


def test_several_osu_tables_in_one_log(tmp_path):
    run_import(tmp_path / "logs", "osu-several.txt", options=OSU)
    rows = collected(tmp_path / "logs")[1]["measurements"]
    medians = rows.groupby(["operation", "message_bytes"])["mean_s"].apply(list).to_dict()
    assert medians["all_reduce", 4] == pytest.approx([6.10e-6, 6.30e-6])
    assert medians["osu_multi_lat", 8] == pytest.approx([1.91e-6])
    assert set(rows["world_size"]) == {8}
    assert len(medians) == 8


@pytest.mark.parametrize(
    ("title", "operation"),
    [
        ("MPI_Get latency Test v5.8", "osu_get_latency_allocate_flush"),
        ("MPI_Put Bi-directional Bandwidth Test v5.8", "osu_put_bibw_allocate_flush"),
        ("MPI_Get_accumulate latency Test v5.8", "osu_get_acc_latency_allocate_flush"),
        ("MPI_Accumulate latency Test", "osu_acc_latency_allocate_flush"),
        ("MPI_Fetch_and_op latency Test v5.8", "osu_fop_latency_allocate_flush"),
        ("MPI_Compare_and_swap latency Test v5.8", "osu_cas_latency_allocate_flush"),
    ],
)
def test_other_one_sided_tests(title, operation):
    text = text_of("osu-put-bw.txt").replace("MPI_Put-CUDA Bandwidth Test v7.4", title)
    column = "Latency (us)" if "latency" in title else "Bandwidth (MB/s)"
    text = text.replace("Bandwidth (MB/s)", column)
    assert {r.parameters["operation"] for r in read_text(text, "f", Options(nodes=1)).readings} == {operation}
    locked = text.replace("MPI_Win_flush", "MPI_Win_lock/unlock")
    assert (
        read_text(locked, "f", Options(nodes=1)).readings[0].parameters["operation"].endswith("_allocate_lock_unlock")
    )


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("osu-mbw-mr.txt", "1093.55 ", "1893.55 ", r"f:12: 128 bytes at 1893.55 MB/s .*; expected 1093.55 MB/s"),
        ("osu-mbw-mr.txt", "# [ pairs: 4 ]", "# [ pairs ]", r"f:1: no number of pairs"),
        ("osu-mbw-mr.txt", "Messages/s", "Messages/h", r"f:4: unknown columns 'Messages/h'"),
        ("osu-mbw-mr.txt", "8424707.26", "", r"f:11: incomplete row"),
        ("osu-iallreduce.txt", "Overlap(%)", "Overlap(%)  Speed", r"f:6: unknown columns 'Speed'"),
        ("osu-iallreduce.txt", "Allreduce", "Neighbor_allgather", r"f:2: unsupported test '.*Neighbor_allgather"),
        ("osu-put-bw.txt", "MPI_Put", "MPI_Shove", r"f:1: unsupported test '# OSU MPI_Shove"),
        ("osu-several.txt", "# Size       Avg", "# Size       Sum", r"f:6: unknown columns 'Sum Latency\(us\)'"),
        ("osu-several.txt", "\n16   ", "\n17   ", r"f:9: size 17 after 8"),
    ],
)
def test_a_table_that_is_not_clear_names_file_line_and_problem(name, old, new, message):
    text = text_of(name).replace(old, new)
    assert text != text_of(name)
    with pytest.raises(UserError, match=message):
        read_text(text, "f", NEEDS[name])


def test_options_that_contradict_the_pairs_of_a_table():
    text = (FILES / "osu-mbw-mr.txt").read_text()
    assert read_text(text, "f", Options(nodes=4)).readings[0].gpus_per_node == 2
    for options in (Options(), Options(nodes=3), Options(nodes=2, gpus_per_node=8)):
        with pytest.raises(UserError, match="f:1: "):
            read_text(text, "f", options)
