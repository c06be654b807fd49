"""Logs of nccl-tests as clusters leave them: crashed runs, copies that ran alone, sets of hosts, settings, roots."""

import itertools
import json

import pytest
from formats_files import analysed, run_script, text_of

from regatta.compare.campaigns import read_campaign
from regatta.formats.base import Options
from regatta.formats.importer import read_import
from regatta.formats.rounding import common, printed_interval
from regatta.store.frozen_files import read_frozen_campaign
from regatta.store.launch_files import read_store

FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
}
HEADINGS = """#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.5\n#\n"
FAILURE = "n1: Test NCCL failure common.cu:401 'remote process exited or there was a network error / '"
TRACE = " .. n1 pid 500: Test failure common.cu:519"
MIB = 2**20


def head(program="sendrecv", hosts=("n1", "n2"), least=MIB, most=2 * MIB, num_gpus=1, **counts):
    """Return what a run prints before its table, with one process for each host in the list."""
    counts = {"warmup iters": 5, "iters": 20, "agg iters": 1, "validation": 1, "graph": 0} | counts
    pairs = " ".join(f"{name}: {value}" for name, value in counts.items())
    text = f"# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n# Collective test starting: {program}_perf\n"
    text += (
        f"# nThread 1 nGpus {num_gpus} minBytes {least} maxBytes {most} step: 2(factor) {pairs}\n#\n# Using devices\n"
    )
    for rank in range(len(hosts) * num_gpus):
        text += f"#  Rank {rank:2d} Group  0 Pid {500 + rank // num_gpus:6d} on {hosts[rank // num_gpus]:>10s} device"
        text += f" {rank % num_gpus:2d} [0x10] GPU\n"
    return text


def begin(size, dtype="float", redop="sum", root=-1):
    return f"{size:12d}  {size // 4:12d}  {dtype:>8s}  {redop:>6s}  {root:6d}"


def row(size, time_us, program="sendrecv", ranks=2, **cell):
    rate = size / time_us / 1000
    figures = f"  {time_us:7.2f}  {rate:6.2f}  {rate * FACTORS.get(program, lambda _: 1)(ranks):6.2f}       0"
    return f"{begin(size, **cell)}{figures}{figures}\n"


def run(program="sendrecv", times=(121.3, 187.8), hosts=("n1", "n2"), **settings):
    sizes = [MIB << index for index in range(len(times))]
    ranks = len(hosts) * settings.get("num_gpus", 1)
    body = "".join(row(size, time, program, ranks) for size, time in zip(sizes, times, strict=True))
    text = head(program, hosts, most=sizes[-1], **settings) + HEADINGS + body + END
    return f"{text}# Collective test concluded: {program}_perf\n\n"


def imported(tmp_path, *texts, options=(), status=0):
    """Import texts by the command. Return its output, and the rows of its launches."""
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text(text, encoding="utf-8")
    done = run_script("import_results.py", *paths, "--campaign", "c", *options, cwd=tmp_path)
    assert done.returncode == status, done.stderr + done.stdout
    folder = tmp_path / "results" / "c"
    return done, read_campaign(folder).measurements if folder.exists() else None


def answer(tmp_path):
    """Return the lines of answer.json by id, after the report was built by its command."""
    folder = tmp_path / "results" / "c"
    assert run_script("rebuild_report.py", folder, cwd=tmp_path).returncode == 0
    return {line["id"]: line for line in json.loads((folder / "answer.json").read_text())["lines"]}


def cells(rows):
    """Return (operation, bytes, status) of each row."""
    found = zip(rows["operation"], rows["message_bytes"], rows["status"], strict=True)
    return sorted((operation, None if size != size else int(size), status) for operation, size, status in found)


# Rounding: each figure stands for half a unit in its last digit to either side.


def test_a_run_on_one_gpu_is_imported_with_times_of_two_decimals(tmp_path, wording):
    rates = [(64, "0.90"), (128, "1.87"), (256, "3.42"), (512, "7.41")]
    body = "".join(
        f"{begin(size)}     3.31  {size / 3310:6.2f}    0.00       0     0.07  {rate:>6s}    0.00       0\n"
        for size, rate in rates
    )
    text = head("all_reduce", ["n1"], least=64, most=512) + HEADINGS + body + END
    done, rows = imported(tmp_path, text)
    assert cells(rows) == [("all_reduce", size, "ok") for size, _ in rates]
    assert set(rows["p50_s"]) == {0.07e-6}
    wording.lines(done.stdout, "one GPU")


@pytest.mark.parametrize(
    ("figure", "interval"),
    [
        ("0.07", (0.065, 0.075)),
        ("0.00", (0, 0.005)),
        ("12345", (12344.5, 12345.5)),
        ("1.2e+06", (1.15e6, 1.25e6)),
        ("1e+06", (0.5e6, 1.5e6)),
        (0.07, (0.065, 0.075)),
        (3.0, (2.5, 3.5)),  # of JSON, which does not keep how many zeros were printed
        (1234560.0, (1234555, 1234565)),
        (3, (2.5, 3.5)),
    ],
)
def test_a_figure_stands_for_half_a_unit_in_its_last_digit(figure, interval):
    assert printed_interval(figure) == pytest.approx(interval)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [((0, 1), (1, 2), (1, 1)), ((0, 1), (1 + 1e-12, 2), (1, 1)), ((0, 3), (1, 2), (1, 2)), ((0, 1), (1.1, 2), None)],
)
def test_intervals_agree_if_they_have_a_point_in_common(first, second, shared):
    assert common(first, second) == (shared and pytest.approx(shared))


TIMES = [
    # 0.07 us is 0.065 to 0.075: 128 bytes at 1.7067 to 1.9692 GB/s
    ("0.07", "1.71", True), ("0.07", "1.70", False), ("0.07", "1.97", True), ("0.07", "1.98", False),
    ("0.00", "99.00", True), ("0.00", "25.59", False),  # below 0.005 us: above 25.6 GB/s
    ("3.31", "0.04", True), ("3.31", "0.05", False),
]  # fmt: skip


@pytest.mark.parametrize(("time", "rate", "is_right"), TIMES)
def test_time_and_bandwidth_of_a_row_agree_within_their_rounding(tmp_path, time, rate, is_right):
    figures = f"  {time:>7s}  {rate:>6s}    0.00       0"
    text = head("all_reduce", ["n1"], least=128, most=128) + HEADINGS + f"{begin(128)}{figures}{figures}\n" + END
    _, rows = imported(tmp_path, text, status=0 if is_right else 2)
    if is_right:
        assert cells(rows) == [("all_reduce", 128, "failed" if time == "0.00" else "ok")]


def superbench(time, rate, bus):
    values = {
        f"nccl-bw:default/allreduce_1024_{name}:0": v for name, v in (("time", time), ("algbw", rate), ("busbw", bus))
    }
    return json.dumps({"node": "n1", **values}) + "\n" + json.dumps({"node": "n2", **values}) + "\n"


def rccl(time, rate, bus):
    shape = {"nodes": 1, "ranks": 8, "ranksPerNode": 8, "gpusPerRank": 1, "numCycle": 0}
    cell = {"name": "AllReduce", "size": 1024, "type": "float", "redop": "sum", "wrong": "0"}
    return json.dumps([{**shape, **cell, "inPlace": p, "time": time, "algBw": rate, "busBw": bus} for p in (0, 1)])


def nccl_json(time, rate, bus):
    report = json.loads(text_of("nccl-summary.json"))
    side = {"time": time, "alg_bw": rate, "bus_bw": bus, "nwrong": 0}
    report["results"] = [report["results"][0] | {"size": 1024, "out_of_place": side, "in_place": side}]
    return json.dumps(report)


@pytest.mark.parametrize(
    ("text", "options", "is_right"),
    [
        # 1024 bytes in 0.07 us: 13.65 to 15.75 GB/s; all-reduce of 8 ranks: 1.75 times that
        (superbench(0.07, 15.7, 27.5), ("--gpus-per-node", 8), True),
        (superbench(0.07, 15.9, 27.8), ("--gpus-per-node", 8), False),
        (rccl(0.07, 15.7, 27.5), (), True),
        (rccl(0.07, 15.7, 27.7), (), False),
    ],
)
def test_figures_of_json_agree_within_their_rounding(tmp_path, text, options, is_right):
    imported(tmp_path, text, options=options, status=0 if is_right else 2)


@pytest.mark.parametrize(("bus", "is_right"), [(10.971429, True), (10.98, False)])
def test_json_of_nccl_tests_agrees_within_its_rounding(tmp_path, bus, is_right):
    """1024 bytes in 0.07 us are 14.628571 GB/s; an all-to-all of 4 ranks has three quarters of it."""
    imported(tmp_path, nccl_json(0.07, 14.628571, bus), status=0 if is_right else 2)


# A crashed run.


CRASHES = {
    "in the warm-up": (HEADINGS + f"{FAILURE}\n{TRACE}\n", MIB, "failed", FAILURE),
    "before the table": (f"{FAILURE}\n{TRACE}\n", MIB, "failed", FAILURE),
    "in a row": (HEADINGS + row(MIB, 90.0, "alltoall") + begin(2 * MIB) + f"{FAILURE}\n{TRACE}\n", 2 * MIB, "failed", FAILURE),
    "in place": (
        HEADINGS + row(MIB, 90.0, "alltoall") + row(2 * MIB, 90.0, "alltoall")[:88].rstrip() + f"{FAILURE}\n",
        *(2 * MIB, "failed", FAILURE),
    ),
    "time limit": (
        HEADINGS + row(MIB, 90.0, "alltoall") + "slurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED AT"
        " 2026-11-21T03:04:05 DUE TO TIME LIMIT ***\nsrun: error: n1: task 0: Terminated\n",
        *(2 * MIB, "timeout", "DUE TO TIME LIMIT"),
    ),
    "memory": (HEADINGS + "n1: Test CUDA failure common.cu:892 'out of memory'\n", MIB, "out_of_memory", "out of memory"),
    "srun": (HEADINGS + "srun: error: n2: task 1: Exited with exit code 3\n", MIB, "failed", "task 1: Exited"),
    "MPI": (
        HEADINGS + row(MIB, 90.0, "alltoall") + "-" * 74 + "\nMPI_ABORT was invoked on rank 1 in communicator"
        " MPI_COMM_WORLD\nwith errorcode 3.\n" + "-" * 74 + "\n",
        *(2 * MIB, "failed", "MPI_ABORT"),
    ),
    "task": (
        HEADINGS + "srun: error: n2: task 1: Exited with exit code 3\nslurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED"
        " AT 2026-11-21T03:04:05 ***\nsrun: error: n1: task 0: Terminated\n",
        *(MIB, "failed", "srun: error: n2: task 1: Exited with exit code 3"),
    ),
    "exit": (
        HEADINGS + "-" * 74 + "\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code.\n" + "-" * 74
        + "\nmpirun detected that one or more processes exited with non-zero status, thus causing\n",
        *(MIB, "failed", "mpirun detected that one or more processes exited with non-zero status"),
    ),
    "warning": (
        HEADINGS + row(MIB, 90.0, "alltoall") + begin(2 * MIB) + "\nn1:500:611 [0] transport/net_ib.cc:1296 NCCL WARN"
        " NET/IB : Got completion from peer 10.0.0.2<47911> with status=12\n",
        *(2 * MIB, "failed", "n1:500:611 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion"),
    ),
    "in a figure": (HEADINGS + row(MIB, 90.0, "alltoall") + begin(2 * MIB) + "   120.49   10Killed\n",
                    2 * MIB, "failed", "Killed"),
    "signal": (HEADINGS + "[n1:500] *** Process received signal ***\n[n1:500] Signal: Segmentation fault (11)\n",
               MIB, "failed", "Segmentation fault"),
}  # fmt: skip


PLACES = ["first", "last", "other file", "alone"]


@pytest.mark.parametrize(
    ("crash", "place"), [*((crash, "first") for crash in CRASHES), *(("in a row", place) for place in PLACES[1:])]
)
def test_a_crashed_run_is_a_failure_of_the_size_that_it_measured_and_complete_runs_come_in(
    tmp_path, crash, place, wording
):
    body, size, status, cause = CRASHES[crash]
    crashed, whole = head("alltoall") + body, run()
    texts = {"first": [crashed + whole], "last": [whole + crashed], "alone": [crashed], "other file": [whole, crashed]}
    done, rows = imported(tmp_path, *texts[place])
    wording(done.stdout)
    expected = [("send_recv_ring", MIB, "ok"), ("send_recv_ring", 2 * MIB, "ok")] if place != "alone" else []
    expected += [("all_to_all", MIB, "ok")] if size > MIB else []
    assert cells(rows) == sorted([*expected, ("all_to_all", size, status)])
    [failed] = rows[rows["status"] != "ok"].to_dict("records")
    assert cause in failed["cause"]
    assert failed["cause"].startswith((cause, "[n1", "slurmstepd", "srun", "n1: "))
    assert (failed["dtype"], failed["nodes"], failed["gpus_per_node"]) == ("fp32", 2, 1)


@pytest.mark.parametrize("end", [f"{FAILURE}\n{TRACE}\n", "srun: error: n2: task 1: Exited with exit code 3\n"])
@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_crashed_after_its_last_size_has_all_rows_and_is_named(tmp_path, end, place):
    crashed, whole = (
        head("alltoall") + HEADINGS + row(MIB, 90.0, "alltoall") + row(2 * MIB, 95.0, "alltoall") + end,
        run(),
    )
    texts = {"first": [crashed + whole], "last": [whole + crashed], "alone": [crashed], "other file": [whole, crashed]}
    done, rows = imported(tmp_path, *texts[place])
    expected = [("send_recv_ring", MIB, "ok"), ("send_recv_ring", 2 * MIB, "ok")] if place != "alone" else []
    assert cells(rows) == [("all_to_all", MIB, "ok"), ("all_to_all", 2 * MIB, "ok"), *expected]
    [note] = [line for line in done.stdout.splitlines() if end.split("\n")[0] in line]
    assert "all_to_all crashed" in note


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        "+ mpirun -np 2 ./alltoall_perf\n./alltoall_perf: error while loading shared libraries: libnccl.so.2: cannot open\n",
        "srun: error: n2: task 1: Exited with exit code 127\n",
    ],
)
def test_an_error_outside_of_all_runs_is_named(tmp_path, error, is_last):
    done, rows = imported(tmp_path, run() + error + (run("all_reduce") if not is_last else ""))
    assert len(rows) == 2 if is_last else 4
    [note] = [line for line in done.stdout.splitlines() if error.split("\n")[-2] in line]
    assert f":{len((run() + error).splitlines())}: " in note  # the line of the error


def test_a_run_without_a_word_of_its_end_is_a_failure_if_another_follows(tmp_path):
    silent = head("alltoall") + HEADINGS + row(MIB, 90.0, "alltoall")
    _, rows = imported(tmp_path, silent + run())
    assert ("all_to_all", 2 * MIB, "failed") in cells(rows)
    assert len(rows) == 4


def test_a_last_run_without_a_word_may_be_truncated_and_is_refused(tmp_path):
    silent = head("alltoall") + HEADINGS + row(MIB, 90.0, "alltoall")
    done, rows = imported(tmp_path, run() + silent, status=2)
    assert "--incomplete" in done.stderr
    assert rows is None
    _, rows = imported(tmp_path, run() + silent, options=["--incomplete"])
    assert cells(rows) == sorted([
        *[("send_recv_ring", size, "ok") for size in (MIB, 2 * MIB)], ("all_to_all", MIB, "ok")
    ])  # fmt: skip


def test_a_crash_before_the_gpus_are_known_is_named_and_left_out(tmp_path, wording):
    crashed = head("alltoall", hosts=()) + "Invalid number of GPUs: 8 requested but only 4 were found.\n"
    done, rows = imported(tmp_path, crashed + run())
    assert len(rows) == 2
    wording.lines(done.stdout, "Invalid number of GPUs")
    alone = tmp_path / "alone"
    alone.mkdir()
    done, rows = imported(alone, crashed, status=2)
    assert "Invalid number" in done.stderr
    assert rows is None


def test_the_data_type_and_reduction_of_a_crash_are_those_of_its_row(tmp_path):
    body = HEADINGS + begin(MIB, "bfloat16", "max") + f"{FAILURE}\n"
    _, rows = imported(tmp_path, head("all_reduce") + body)
    assert list(zip(rows["operation"], rows["dtype"], strict=True)) == [("all_reduce_max", "bf16")]


def test_old_outputs_without_a_program_name_are_told_apart_by_their_commands(tmp_path):
    def old(program, text):
        lines = [line for line in text.split("\n") if not line.startswith(("# Collective", "# nccl-tests"))]
        return f"+ mpirun -np 2 ./{program}_perf -b 1M -e 2M -f 2\n" + "\n".join(lines)

    crashed = old("alltoall", head("alltoall") + HEADINGS + f"{FAILURE}\n{TRACE}\n")
    _, rows = imported(tmp_path, crashed + old("sendrecv", run()))
    assert cells(rows) == [
        ("all_to_all", MIB, "failed"), *[("send_recv_ring", size, "ok") for size in (MIB, 2 * MIB)]
    ]  # fmt: skip


def test_the_report_of_a_crash_names_it_and_does_not_propose_snakemake(tmp_path):
    imported(tmp_path, head("alltoall") + HEADINGS + f"{FAILURE}\n" + run())
    lines = answer(tmp_path)
    assert lines["failed"]["values"]["num_failed"] == 1
    assert lines["failed"]["values"]["cause"] == FAILURE
    assert not any("snakemake" in step for step in lines["next"]["values"]["steps"])


# Bandwidths, placements and versions.


@pytest.mark.parametrize(
    ("program", "cell", "ratio"),
    [
        ("gather", {"root": 0}, 0.75),
        ("scatter", {"root": 2}, 0.75),
        ("reduce", {"root": 1, "redop": "max"}, 1),
        ("all_reduce", {"redop": "avg"}, 1.5),
        ("sendrecv", {}, 1),
    ],
)
def test_each_operation_has_the_bus_bandwidth_of_nccl_tests(tmp_path, program, cell, ratio):
    """1 MiB in 50 us on 4 ranks: algbw 20.97 GB/s."""
    text = head(program, ["n1"] * 4, most=MIB) + HEADINGS + row(MIB, 50.0, program, 4, **cell) + END
    imported(tmp_path, text)
    [rate] = analysed(tmp_path / "results" / "c")[1]["cells"]["busbw_gb_per_s"]
    assert rate == pytest.approx(MIB / 50 / 1000 * ratio)


@pytest.mark.parametrize("program", ["gather", "scatter"])
def test_a_rooted_row_with_a_contradictory_bus_bandwidth_is_refused(tmp_path, program):
    text = head(program, ["n1"] * 4, most=MIB) + HEADINGS + row(MIB, 50.0, "broadcast", 4, root=0) + END
    imported(tmp_path, text, status=2)


@pytest.mark.parametrize(("program", "has_other_meaning"), [("all_reduce", False), ("all_gather", True)])
def test_a_table_of_rccl_tests_may_have_times_in_place_alone(tmp_path, program, has_other_meaning):
    size = f"{MIB:12d}  {MIB // 4:12d}  {'float':>8s}  {'sum':>6s}  {-1:6d}"
    rate = MIB / 50 / 1000
    titles = "#\n#                                                        in-place          \n"
    titles += "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    titles += "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n"
    body = f"{size}  {50.0:7.2f}  {rate:6.2f}  {rate * FACTORS[program](4):6.2f}      0\n"
    _, rows = imported(tmp_path, head(program, ["n1"] * 4, most=MIB) + titles + body + END)
    assert (cells(rows), [*rows["p50_s"]]) == ([(program, MIB, "ok")], [50e-6])
    [launch] = read_store(tmp_path / "results" / "c" / "launches")
    assert launch.header.imported["statistic"].endswith("; in place") is has_other_meaning
    printed = launch.lines_of("record")[0]["imported"]["printed"]
    assert (printed["in_place_time_us"], "out_of_place_time_us" in printed) == (50, False)


def test_json_of_versions_that_misspell_a_key_is_read(tmp_path):
    text = text_of("nccl-summary.json").replace("bandwidth", "bandwi" + "dith")
    _, rows = imported(tmp_path, text)
    assert cells(rows) == [("all_to_all", MIB, "ok"), ("all_to_all", 2 * MIB, "ok")]


# Copies that ran alone.


def mixed(hosts=("n1", "n2"), num_gpus=1, split="rows"):
    """Return what two copies print at once. split: where their outputs change places."""
    alone = [head("all_reduce", [host], num_gpus=num_gpus) for host in hosts]
    tables = [
        [row(size, time, "all_reduce", num_gpus) for size, time in ((MIB, first), (2 * MIB, first * 1.9))]
        for first in (5.1, 5.2)
    ]
    if split == "rows":
        lines = [*itertools.chain(*zip(*[text.splitlines(keepends=True) for text in alone], strict=True))]
        return "".join(lines) + HEADINGS * 2 + "".join(itertools.chain(*zip(*tables, strict=True))) + END * 2
    if split == "tables":
        return "".join(alone) + "".join(HEADINGS + "".join(table) + END for table in tables)
    parts = [text + HEADINGS + table[0] for text, table in zip(alone, tables, strict=True)]
    return "".join(parts) + tables[0][1] + END + tables[1][1] + END


@pytest.mark.parametrize("split", ["rows", "tables", "late"])
@pytest.mark.parametrize("hosts", [("n1", "n2"), ("n1", "n1")])
@pytest.mark.parametrize("num_gpus", [1, 4])
def test_copies_that_ran_alone_are_named_with_the_remedy(tmp_path, split, hosts, num_gpus, wording):
    done, rows = imported(tmp_path, mixed(hosts, num_gpus, split), status=2)
    assert rows is None
    wording(done.stderr)


@pytest.mark.parametrize("hosts", [("n1", "n2"), ("n1", "n1")])
def test_copies_one_after_another_are_runs_of_one_gpu_with_a_note(tmp_path, hosts, wording):
    copies = [run("all_reduce", (5.1, 9.7), [host]) for host in hosts]
    done, rows = imported(tmp_path, "".join(copies))
    assert set(zip(rows["nodes"], rows["gpus_per_node"], strict=True)) == {(1, 1)}
    wording.lines(done.stdout, "one GPU")


# Hosts.


PAIRS = [*itertools.combinations(["n1", "n2", "n3", "n4"], 2)]


def pair(hosts, program="all_reduce"):
    slow = 1.4 if "n4" in hosts else 1
    return run(program, (121.3 * slow, 187.8 * slow), hosts)


def frozen(tmp_path):
    return read_frozen_campaign(next((tmp_path / "results" / "c").glob("campaign.*.json")))


@pytest.mark.parametrize("is_one_log", [True, False])
def test_an_import_of_pairs_is_a_sweep_in_which_the_slow_node_is_seen(tmp_path, is_one_log):
    texts = [pair(hosts[:: -1 if hosts == ("n2", "n3") else 1]) for hosts in PAIRS]
    imported(tmp_path, *(["".join(texts)] if is_one_log else texts))
    campaign = frozen(tmp_path)
    assert campaign.sweep == "pairs"
    assert sorted({cell.hosts for cell in campaign.cells}) == PAIRS
    assert len(campaign.cells) == 12
    lines = answer(tmp_path)
    worst = lines["nodes"]["values"]["inconclusive"][0]
    assert (worst["hosts"], worst["ratio"]) == ("n4", pytest.approx(1.4, abs=0.01))
    assert "noise" not in lines
    assert "disturb" not in json.dumps([*lines.values()])


def test_nodes_one_by_one_are_a_sweep_of_nodes(tmp_path):
    imported(tmp_path, *(run("all_reduce", (20.0, 30.0), [host] * 4) for host in ("n1", "n2", "n3")))
    assert frozen(tmp_path).sweep == "nodes"
    assert {cell.hosts for cell in frozen(tmp_path).cells} == {("n1",), ("n2",), ("n3",)}


def test_runs_on_the_same_hosts_are_launches_of_cells_without_hosts(tmp_path):
    _, rows = imported(tmp_path, pair(("n1", "n2")), run("all_reduce", (122.0, 188.0), ("n2", "n1")))
    assert {cell.hosts for cell in frozen(tmp_path).cells} == {()}
    assert sorted(rows["repeat"]) == [0, 0, 1, 1]
    assert frozen(tmp_path).sweep is None


def test_only_cells_with_several_sets_of_hosts_have_them(tmp_path):
    imported(tmp_path, pair(("n1", "n2")), pair(("n1", "n3")), run())
    found = {(cell.parameters["operation"], cell.hosts) for cell in frozen(tmp_path).cells}
    assert found == {("all_reduce", ("n1", "n2")), ("all_reduce", ("n1", "n3")), ("send_recv_ring", ())}
    assert frozen(tmp_path).sweep is None


def test_a_later_import_keeps_hosts_apart_or_says_that_they_differ(tmp_path, wording):
    imported(tmp_path, pair(("n1", "n2")), pair(("n1", "n3")))
    imported(tmp_path, pair(("n2", "n3")))
    assert {cell.hosts for cell in frozen(tmp_path).cells} == {("n1", "n2"), ("n1", "n3"), ("n2", "n3")}
    other = tmp_path / "other"
    other.mkdir()
    imported(other, pair(("n1", "n2")))
    done, _ = imported(other, pair(("n1", "n4")))
    assert {cell.hosts for cell in frozen(other).cells} == {()}
    wording.lines(done.stdout, "unlike an earlier import")


def test_a_host_name_that_no_cell_can_have_is_refused(tmp_path, wording):
    done, rows = imported(tmp_path, pair(("n1", "n2")), pair(("n1", "../<b>n3")), status=3)
    assert len(rows) == 2  # of the other file
    wording(done.stderr)
    (tmp_path / "alone").mkdir()
    _, rows = imported(tmp_path / "alone", pair(("n1", "../<b>n3")))
    assert len(rows) == 2


# Checks that were off.

OLD_HEADINGS = """#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


@pytest.mark.parametrize("is_old", [True, False])
def test_results_that_were_not_checked_are_imported_without_checks(tmp_path, is_old, wording):
    sizes, body = [0, 0, 4, 8], ""
    for size in sizes:
        figures = f"    20.00  {size / 20000:6.2f}  {size / 20000:6.2f}    N/A" * 2
        body += (f"{size:12d}  {size // 4:12d}  {'float':>6s}  {'sum':>6s}" if is_old else begin(size)) + figures + "\n"
    text = head("all_reduce", ["n1", "n1"], least=1, most=8, validation=0)
    if is_old:
        text = "\n".join(line for line in text.split("\n") if not line.startswith(("# nccl", "# Coll"))).replace(
            "Group  0 ", ""
        )
    text += (OLD_HEADINGS if is_old else HEADINGS) + body + END
    done, rows = imported(tmp_path, text, options=["--operation", "all_reduce"])
    assert cells(rows) == [("all_reduce", 4, "ok"), ("all_reduce", 8, "ok")]
    wording(done.stdout)
    for launch in read_store(tmp_path / "results" / "c" / "launches"):
        for record in launch.lines_of("record"):
            assert record["imported"]["printed"]["in_place_num_wrong"] is None


@pytest.mark.parametrize("factor", [1, 0.75])
def test_all_gather_of_versions_before_2_9_has_one_bandwidth(tmp_path, factor):
    """Until 2020, algbw counted the parts of the other ranks: 3 of 4."""
    size, rate = MIB, MIB / 50.0 / 1000
    figures = f"    50.00  {rate * factor:6.2f}  {rate * 0.75:6.2f}  0e+00" * 2
    body = f"{size:12d}  {size // 16:12d}  {'float':>6s}  {'':>6s}{figures}\n"
    text = head("all_gather", ["n1"] * 4, most=MIB) + OLD_HEADINGS + body + END
    _, rows = imported(tmp_path, text)
    assert cells(rows) == [("all_gather", MIB, "ok")]


# Settings, roots and repeats.


SETTINGS = {
    "aggregated": ({"agg iters": 4}, ""),
    "more aggregated": ({"agg iters": 8}, ""),
    "graph": ({"graph": 1}, ""),
    "no warm-up": ({"warmup iters": 0}, ""),
    "a single call": ({"iters": 1}, ""),
    "blocking": ({}, "# Blocking Enabled: wait for completion and barrier after each collective \n"),
    "no barrier": ({}, "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n"),
    "barrier not timed": (
        {},
        "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier \n",
    ),
    "registered buffers": ({}, "+ mpirun ./all_reduce_perf -b 1M -R 2 -e 2M\n"),
    "slowest rank": ({}, "+ mpirun ./all_reduce_perf --average=3 -b 1M\n"),
}


def with_settings(name):
    counts, line = SETTINGS[name] if name else ({}, "")
    before, using, after = run("all_reduce", (121.3, 187.8), ["n1"] * 2, **counts).partition("# Using devices\n")
    return before + line + using + after


def test_runs_with_other_settings_are_never_launches_of_one_cell(tmp_path):
    meanings = {}
    for name in (None, *SETTINGS):
        path = tmp_path / "out.txt"
        path.write_text(with_settings(name), encoding="utf-8")
        meanings[name] = read_import(path, Options()).source.statistic
    assert len(set(meanings.values())) == 1 + len(SETTINGS), meanings


@pytest.mark.parametrize("setting", ["no barrier", "registered buffers"])
def test_another_setting_is_refused_in_one_campaign(tmp_path, setting):
    done, rows = imported(tmp_path, with_settings(None), with_settings(setting), status=3)
    assert "--stack" in done.stderr
    assert len(rows) == 2  # of the other file


def test_threads_and_gpus_of_a_process_are_a_setting(tmp_path, wording):
    two, one = run("all_reduce", (20.0, 30.0), ["n1"], num_gpus=2), run("all_reduce", (21.0, 31.0), ["n1", "n1"])
    done, _ = imported(tmp_path, two, one, status=3)
    wording(done.stderr)


def test_another_root_is_another_cell(tmp_path):
    body = "".join(row(MIB, 50.0 + root, "broadcast", redop="none", root=root) for root in range(3))
    text = head("broadcast", ["n1"] * 3, most=MIB) + HEADINGS + body + END
    _, rows = imported(tmp_path, text)
    assert sorted(rows["operation"]) == ["broadcast", "broadcast_root1", "broadcast_root2"]
    assert set(rows["repeat"]) == {0}


def test_all_types_and_reductions_in_one_run_are_cells(tmp_path):
    kinds = [*itertools.product(["float", "half", "f8e4m3"], ["sum", "prod", "avg"])]
    body = "".join(
        row(size, 50.0, "reduce", dtype=dtype, redop=redop, root=0) for dtype, redop in kinds for size in (MIB, 2 * MIB)
    )
    _, rows = imported(tmp_path, head("reduce", ["n1"] * 2) + HEADINGS + body + END)
    found = {*zip(rows["dtype"], rows["operation"], strict=True)}
    assert len(rows) == 18
    assert ("fp16", "reduce_avg") in found
    assert ("fp32", "reduce") in found


@pytest.mark.parametrize("is_rccl", [True, False])
def test_cycles_share_their_processes_and_are_refused(tmp_path, is_rccl, wording):
    cycle = row(MIB, 121.3, "sendrecv") + row(2 * MIB, 187.8, "sendrecv")
    body = cycle + "# Testing 2 cycle.\n" * is_rccl + cycle.replace("121.30    8.64", "121.35    8.64")
    done, rows = imported(tmp_path, head() + HEADINGS + body + END, status=2)
    assert rows is None
    wording(done.stderr)
