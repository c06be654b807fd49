"""Reading files of other programs: golden files, with the figures that they print."""

import json

import pytest
from formats_files import ALL, FILES, NEEDS, read, read_text, text_of

from regatta.core.errors import UserError
from regatta.core.schemas import load_schema
from regatta.formats import FORMATS, importer
from regatta.formats.base import Options, shape_of
from regatta.formats.tidy_csv import COLUMNS, OF_ROW
from regatta.store.records import CENTERS


@pytest.mark.parametrize("name", ALL)
def test_each_golden_file_is_recognized_by_its_content_and_read_whole(name, wording):
    kind, source = importer.read_text(text_of(name), name, NEEDS.get(name, Options()))
    wording(f"{kind.name}: {len(source.readings)} results")


# --- benchmark.py, text


def test_a_row_of_benchmark_py_gives_step_and_both_printed_figures():
    first = read("ddp-2x4-gh200.txt").readings[0]
    assert first.parameters["strategy"] == "none"
    # 1392/s is truncated: 32/1393 to 32/1392 s. Seconds (0.023 +- 0.0005) leave more open.
    assert first.times_s["p50_s"] == pytest.approx((32 / 1393 + 32 / 1392) / 2)
    assert (first.times_s["p50_low_s"], first.times_s["p50_high_s"]) == pytest.approx((32 / 1393, 32 / 1392))
    assert [first.times_s[f"p{p}_s"] for p in (75, 90, 95)] == pytest.approx(
        [(32 / (x + 1) + 32 / x) / 2 for x in (1387, 1386, 1381)]
    )
    assert (first.printed["p50_sec_per_iter"], first.printed["p50_ex_per_sec"]) == (0.023, 1392)


def test_seconds_and_rate_together_narrow_a_slow_step():
    """32 samples in 0.415 s: 77/s leaves 0.4103 to 0.4156 s, and 0.415 s leaves 0.4145 to 0.4155 s."""
    slow = [r for r in read("ddp-2x8-v100.txt").readings if r.parameters["model"] == "resnext101_32x8d"]
    assert [r.times_s["p50_s"] for r in slow] == pytest.approx([0.415, 0.425, 0.438, 0.439, 0.447, 0.450], abs=5e-4)
    assert (slow[0].times_s["p50_low_s"], slow[0].times_s["p50_high_s"]) == pytest.approx((0.4145, 0.4155))


def test_times_of_truncated_rates_are_not_biased_and_lie_within_their_ends():
    """True steps of 10 to 12 ms with batch size 1: 83/s to 99/s, so a truncated rate is 0.5 % slow on average."""
    head, ratios = text_of("ddp-2x4-gh200.txt").partition("Benchmark:")[0], []
    for step_s in (0.01 + 0.002 * i / 500 for i in range(500)):
        row = "".join(f"  p{p}:  {step_s:.3f}s  {int(1 / step_s)}/s" for p in (50, 75, 90, 95))
        times = read_text(f"{head}Benchmark: m with batch size 1\n\n   1 GPUs --   no ddp:{row}\n\n", "f", Options())
        times = times.readings[0].times_s
        assert times["p50_low_s"] <= step_s <= times["p50_high_s"]
        ratios.append(times["p50_s"] / step_s)
    assert sum(ratios) / len(ratios) == pytest.approx(1, abs=5e-4)


def test_the_gpus_in_a_label_are_corrected_by_the_gpus_of_the_machine(wording):
    source = read("ddp-2x4-gh200.txt")
    labels = [(r.printed["label"].split(" -- ")[1], r.nodes, r.gpus_per_node) for r in source.readings[:6]]
    assert labels == [
        ("no ddp", 1, 1),
        ("1M/1G", 1, 1),
        ("1M/2G", 1, 2),
        ("1M/4G", 1, 4),
        ("1M/8G", 1, 4),
        ("2M/8G", 2, 4),
    ]
    wording.lines(source.notes, "1M/8G with 4")
    assert (read("ddp-2x8-v100.txt").readings[5].nodes, read("ddp-2x8-v100.txt").readings[5].gpus_per_node) == (2, 8)


def test_without_topology_a_label_that_cannot_be_true_asks_for_the_gpus_of_a_node(wording):
    text = text_of("ddp-2x4-gh200.txt").replace("GPU", "XPU").replace("XPUs --", "GPUs --")
    with wording.raises(UserError):
        read_text(text, "f", Options())
    assert read_text(text, "f", Options(gpus_per_node=4)).readings[5].nodes == 2
    with wording.raises(UserError):
        read_text(text, "f", Options(gpus_per_node=3))


def test_the_option_outranks_the_topology_and_a_note_says_so(wording):
    source = read_text(text_of("ddp-2x8-v100.txt"), "f", Options(gpus_per_node=4))
    assert (source.readings[5].nodes, source.readings[5].gpus_per_node) == (4, 4)
    wording(source.notes)


def test_the_tables_may_stand_in_a_page_and_beside_a_comparison_that_holds_no_measurement():
    diff = "\nBenchmark: resnet50 with batch size 32\n\n                  sec/iter    ex/sec      diff\n"
    diff += "   1 GPUs:  p75:    0.101s     317/s     -0.3%\n"
    page = f"# Title\n\n<pre><code>{text_of('ddp-2x8-v100.txt')[:-1]}</code></pre>\n<p>more</p>\n{diff}</html>\n"
    assert read_text(page, "f", Options()).readings == tuple(
        r.__class__(**{**r.__dict__, "line": r.line + 2}) for r in read("ddp-2x8-v100.txt").readings
    )


def test_ranks_of_a_whole_node_come_first():
    assert [shape_of(n, 4) for n in (1, 3, 4, 8, 6)] == [(1, 1), (1, 3), (1, 4), (2, 4), None]


DAMAGED = {
    "contradictory": ("1233/s", "1733/s"),
    "no unit": ("1233/s", "1233"),
    "a percentile less": ("p75:  0.026s    1211/s", ""),
    "rates that rise": ("1211/s", "1240/s"),
    "no first row": ("no ddp", "1M/1G"),
    "no batch size": ("batch size 32", "batch size x"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_table_is_refused_with_its_line(name, wording):
    with wording.raises(UserError):
        read_text(text_of("ddp-2x4-gh200.txt").replace(*DAMAGED[name]), "f", Options())


def test_a_second_table_with_fewer_rows_than_the_first_was_cut_off():
    text = "\n".join(text_of("ddp-2x4-gh200.txt").split("\n")[:-2]) + "\n"
    message = (
        r"f:\d+: the table of resnet101 has 5 rows \(4 GPUs -- 1M/8G is the last\); expected the 6 rows of resnet50's"
    )
    with pytest.raises(UserError, match=message):
        read_text(text, "f", Options())


# --- benchmark.py, JSON


def test_measurements_of_a_report_are_samples_rank_by_rank():
    source = read("ddp-2x4.json")
    report = json.loads(text_of("ddp-2x4.json"))
    seconds = report["benchmark_results"][0]["result"][5]["measurements"]
    reading = source.readings[5]
    assert (reading.nodes, reading.gpus_per_node, len(reading.samples_ns), reading.num_iterations) == (2, 4, 8, 10)
    assert reading.samples_ns[3] == [round(s * 1e9) for s in seconds[30:40]]
    assert [r.parameters["strategy"] for r in source.readings[:6]] == ["none", *["ddp"] * 5]


def result_of(report, number):
    return report["benchmark_results"][0]["result"][number]


BROKEN = {
    "a time less": lambda r: result_of(r, 2)["measurements"].pop(),
    "a negative time": lambda r: result_of(r, 2)["measurements"].__setitem__(3, -1.0),
    "two ranks first": lambda r: result_of(r, 0)["ranks"].append(1),
    "no bucket size": lambda r: r.pop("bucket_size"),
    "no model": lambda r: r["benchmark_results"].clear(),
    "a flag as number": lambda r: r["benchmark_results"][1].update(batch_size=True),
    "a number as name": lambda r: r["benchmark_results"][0].update(model=7),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_report_that_breaks_its_form_is_refused_with_the_place(name, wording):
    report = json.loads(text_of("ddp-2x4.json"))
    BROKEN[name](report)
    with wording.raises(UserError):
        read("ddp-2x4.json", json.dumps(report))


def test_a_report_of_several_ranks_asks_for_the_gpus_of_a_node(wording):
    with wording.raises(UserError):
        read_text(text_of("ddp-2x4.json"), "f", Options())


# --- nccl-tests


def test_nccl_tests_give_shape_operation_and_the_placement_that_regatta_measures():
    source = read("nccl-13-columns.txt")
    last = source.readings[-1]
    assert (last.parameters["operation"], last.nodes, last.gpus_per_node) == ("all_reduce", 2, 4)
    assert (last.parameters["message_bytes"], last.parameters["dtype"]) == (8589934592, "fp32")
    assert last.printed["placement"] == "in_place"
    assert last.times_s == {"window_step_s": last.printed["in_place_time_us"] / 1e6}
    assert (last.num_iterations, last.num_warmup, source.environment["nccl"]) == (20, 5, "2.20.5")
    assert source.environment["hosts"][1] == {"host": "nid001001", "ranks": [4, 5, 6, 7]}
    assert "back-to-back" in source.statistic


def test_twelve_columns_without_root_and_with_blank_redop_are_read():
    source = read("nccl-12-columns.txt")
    assert [r.parameters["message_bytes"] for r in source.readings] == [2**k for k in range(20, 27)]
    assert source.readings[0].printed["out_of_place_time_us"] == 25.35
    assert source.readings[0].printed["placement"] == "out_of_place"
    assert (source.readings[0].nodes, source.readings[0].gpus_per_node) == (1, 8)


def test_per_iteration_columns_give_the_range_of_single_calls():
    first = read("nccl-21-columns.txt").readings[0]
    assert set(first.times_s) == {"window_step_s", "min_s", "max_s", "p99_s"}
    assert first.times_s["min_s"] < first.times_s["window_step_s"] < first.times_s["max_s"]


def test_what_was_not_checked_is_said_and_blocking_calls_are_a_mean():
    source = read("nccl-sendrecv-unchecked.txt")
    assert source.readings[0].parameters["operation"] == "send_recv_ring"
    assert source.readings[0].parameters["dtype"] == "bf16"
    assert set(source.readings[0].times_s) == {"mean_s"}
    assert source.readings[0].printed["in_place_num_wrong"] is None
    assert source.notes == ()  # N/A stands where the time is not taken from


def test_wrong_results_are_failures(wording):
    text = text_of("nccl-13-columns.txt").split("\n")
    at = next(i for i, line in enumerate(text) if line.startswith("     1048576"))
    text[at] = text[at][:-1] + "7"
    source = read_text("\n".join(text).replace("values : 0 OK", "values : 7 FAILED"), "f", Options())
    failed = [r for r in source.readings if r.failure]
    assert [r.line for r in failed] == [at + 1]
    wording(failed[0].failure)
    unplaced = read_text(text_of("nccl-12-columns.txt").replace(": 0 OK", ": 3 FAILED"), "f", Options())
    [failure] = {r.failure for r in unplaced.readings}
    wording(failure)


def nccl_without(pattern):
    return "\n".join(line for line in text_of("nccl-13-columns.txt").split("\n") if pattern not in line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nccl_without("Out of bounds"), "the run is incomplete: the last lines are missing; expected '# Out of bounds"),
        (nccl_without("# Avg bus"), "the run is incomplete"),
        (nccl_without("       65536         16384"), r"30 rows, but the header announces 31 sizes \(8 to 8589934592 bytes\)"),
        (nccl_without("Rank  7"), r"hosts with \[3, 4\] ranks; expected the same number"),
        (nccl_without("nid001001 device"), r"algbw .* and busbw .* with 4 ranks; expected busbw"),
        (nccl_without("starting").replace("concluded: all_reduce_perf", ""), "no program name; expected one of all_reduce_perf"),
        (nccl_without("# nThread"), "no line '# nThread"),
        (nccl_without("# Avg bus") + text_of("nccl-13-columns.txt"), r"f:\d+: the run is incomplete"),
        (text_of("nccl-13-columns.txt") + nccl_without("# Avg bus"), r"f:\d+: the run is incomplete"),
        (text_of("nccl-13-columns.txt").replace("all_reduce_perf", "hypercube_perf"), "found the programs hypercube; expected"),
        (text_of("nccl-13-columns.txt").replace("-1    21.44", "-1nid001000:1:2 [0] NCCL INFO x\n   21.44"),
         r"f:\d+: found '16 4 float sum -1nid.*If NCCL output is mixed in, run again with NCCL_DEBUG_FILE"),
        (text_of("nccl-13-columns.txt").replace("Group  0 Pid  41207", "Group  1 Pid  41207"), "split into groups"),
        (text_of("nccl-13-columns.txt").replace("   time ", "cputime "), "CPU times"),
    ],
)  # fmt: skip
def test_an_incomplete_or_contradictory_run_is_refused_with_a_word(text, message):
    with pytest.raises(UserError, match=message):
        read_text(text, "f", Options())


def test_rows_of_no_bytes_are_left_out_and_counted(wording):
    text = text_of("nccl-12-columns.txt").replace("minBytes 1048576", "minBytes 524288")
    at = text.index("     1048576  ")
    empty = (
        "           0             0   float            10.20    0.00    0.00   0e+00    10.10    0.00    0.00   0e+00\n"
    )
    source = read_text(text[:at] + empty + text[at:], "f", Options())
    assert len(source.readings) == 7
    wording(list(source.notes))


def test_calls_of_json_are_samples_of_each_rank():
    source = read("nccl-per-iteration.json")
    reading = source.readings[0]
    printed = json.loads(text_of("nccl-per-iteration.json"))["results"][0]["in_place_per_iter"]
    assert [len(row) for row in reading.samples_ns] == [20] * 4
    assert reading.samples_ns[2][5] == round(printed["per_process_max_times_us"][2][5] * 1000)
    assert (source.environment["nccl"], source.measured_at) == ("2.29.7", "2026-11-02 14:03:11")
    assert source.argv[0].endswith("all_reduce_perf")


def test_the_environment_of_the_process_stays_where_it_is():
    assert "do-not-take-over" in text_of("nccl-per-iteration.json")
    assert "do-not-take-over" not in repr(read("nccl-per-iteration.json"))


def test_a_summary_in_json_has_words_for_booleans_and_for_what_is_no_number():
    source = read("nccl-summary.json")
    assert [r.times_s for r in source.readings] == [
        {"mean_s": r.printed["out_of_place_time_us"] / 1e6} for r in source.readings
    ]
    assert source.readings[0].printed["out_of_place_num_wrong"] is None


def test_json_without_its_end_or_with_another_boolean_is_refused(wording):
    run = json.loads(text_of("nccl-summary.json"))
    del run["out_of_bounds"]
    with wording.raises(UserError):
        read_text(json.dumps(run), "f", Options())
    run = json.loads(text_of("nccl-summary.json"))
    run["config"]["blocking_collectives"] = "yes"
    with wording.raises(UserError):
        read_text(json.dumps(run), "f", Options())


# --- OSU


def test_osu_gives_means_and_keeps_the_range_over_ranks_as_printed():
    source = read("osu-allreduce.txt")
    first = source.readings[0]
    assert (first.parameters["operation"], first.parameters["message_bytes"], first.parameters["dtype"]) == (
        "all_reduce",
        4,
        "fp32",
    )
    assert first.times_s == {"mean_s": 6.81 / 1e6}
    assert first.printed == {"Avg Latency": 6.81, "Min Latency": 6.40, "Max Latency": 7.29, "Iterations": 1000.0}
    assert (first.nodes, first.gpus_per_node, first.num_iterations, source.backend, source.device) == (
        2,
        4,
        1000,
        "mpi",
        "cpu",
    )


def test_osu_bandwidth_becomes_the_time_of_a_message_among_many():
    source = read("osu-bw.txt")
    last = source.readings[-1]
    assert (last.parameters["operation"], last.nodes, last.gpus_per_node, source.device) == ("osu_bw", 2, 1, "cuda")
    assert last.times_s["window_step_s"] == pytest.approx(4194304 / (last.printed["Bandwidth"] * 1e6))


def test_the_part_of_a_rank_becomes_the_message_of_all():
    text = text_of("osu-allreduce.txt").replace("Allreduce", "Allgather")
    source = read_text(text, "f", Options(nodes=2, gpus_per_node=4))
    assert source.readings[0].parameters["message_bytes"] == 4 * 8


def test_osu_without_size_is_a_barrier_and_without_bytes_no_message(wording):
    assert read("osu-barrier.txt").readings[0].parameters["message_bytes"] is None
    wording(list(read("osu-latency.txt").notes))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (text_of("osu-allreduce.txt"), Options(), "does not state the number of ranks. Add --nodes and --gpus-per-node"),
        (text_of("osu-latency.txt"), Options(), "whether the two ranks shared a node. Add --nodes 1 or --nodes 2"),
        (text_of("osu-latency.txt"), Options(nodes=3), "two ranks on --nodes 3"),
        (text_of("osu-latency.txt").replace("\n64 ", "\n# 64 "), Options(nodes=2), "size 128 after 32; expected 64"),
        (text_of("osu-allreduce.txt").replace("7.29        1000", "7.29", 1), Options(2, 4), "expected a complete row of Size, Avg"),
        (text_of("osu-latency.txt").replace("Latency Test", "Put Latency Test"), Options(nodes=2), "f:2: unsupported test '# OSU MPI Put Latency"),
        (text_of("osu-latency.txt") + text_of("osu-allreduce.txt"), Options(nodes=2), "f:30: .* not state the number of ranks"),
        (text_of("osu-allreduce.txt").replace("Min Latency", "Sum Latency"), Options(2, 4), "unknown columns"),
    ],
)  # fmt: skip
def test_a_table_of_osu_that_is_not_clear_is_refused(text, options, message):
    with pytest.raises(UserError, match=message):
        read_text(text, "f", options)


# --- suite, CSV, and what is none of all


def test_the_suite_gives_means_and_asks_for_the_gpus_of_a_node(wording):
    source = read("suite-4gpu.json")
    assert [(r.benchmark, r.times_s["mean_s"]) for r in source.readings[-2:]] == [
        ("collective", 2.24 / 1e3),
        ("train_step", 41.7 / 1e3),
    ]
    assert (source.measured_at, source.device) == ("2024-01-15T10:30:00", "cuda")
    with wording.raises(UserError):
        read_text(text_of("suite-4gpu.json"), "f", Options())


def test_rows_of_a_csv_are_medians_and_the_same_cell_twice_is_two_launches():
    source = read("times.csv")
    assert (source.twice, source.readings[1].times_s, source.readings[2].times_s) == (
        "launch",
        {"p50_s": 0.0255},
        {"p50_s": 0.0253},
    )
    assert source.readings[5].parameters["dtype"] == "bf16"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seconds\n", "seconds,second\n", r"f:1: column 'second'; expected each of .* Did you mean 'seconds'\?"),
        (",backend", ",model", "f:1: column 'model'"),
        ("0.0260\n", "0.0260,1\n", "f:5: 13 fields; expected 12"),
        ("0.0260\n", "fast\n", "f:5: seconds 'fast'; expected a number above 0"),
        ("train_step,resnet50,32,ddp,,,fp32,2", "train_stp,resnet50,32,ddp,,,fp32,2", "f:5: benchmark 'train_stp'; expected one of"),
        ("resnet50,32,ddp,,,fp32,2", ",32,ddp,,,fp32,2", "f:5: no model; expected model in each row of train_step"),
        ("2,4,nccl,cuda,0.0260", "2,4,gloo,cuda,0.0260", "2 pairs of backend and device"),
        ("2,4,nccl,cuda,0.0260", "2,4,nccl,gpu,0.0260", "f:5: device 'gpu'; expected cpu or cuda"),
    ],
)  # fmt: skip
def test_a_csv_with_an_error_is_refused_with_its_line(old, new, message):
    with pytest.raises(UserError, match=message):
        read_text(text_of("times.csv").replace(old, new, 1), "f", Options())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1: the file is empty; expected CSV"),
        ("\n\nhello\nworld\n", "f:3: unknown format, first line 'hello'; expected"),
        ('{"a": 1}', "f:1: unknown JSON format with 'a'; expected"),
        ("[1, 2]", "f:1: unknown JSON format with 'list'; expected"),
        ('{"a": 1,\n "b"', "f:2: invalid JSON in column 5"),
        ('{"a": NaN}', "NaN is not a finite number"),
        ("{" * 100_000, "f:1: invalid JSON"),
        ("\0\x01\x02", "unknown format"),
    ],
)
def test_a_foreign_file_is_refused_with_line_and_what_was_expected(text, message):
    with pytest.raises(UserError, match=message):
        read_text(text, "f", Options())


def test_a_file_that_is_not_there_is_a_message(tmp_path, wording):
    with wording.raises(UserError):
        importer.read_import(tmp_path / "none.txt", Options())
    with pytest.raises(UserError, match="cannot be read"):
        importer.read_import(FILES, Options())


def test_the_documentation_has_a_row_for_each_format_and_names_each_column_and_option():
    text = (FILES.parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    imports, exports = text.split("\n## Export\n")
    missing = [kind.name for kind in FORMATS if f"\n| `{kind.name}` |" not in imports]
    assert not missing, f"docs/formats.md, Import: no row for {missing}"
    missing = [kind.name for kind in FORMATS if kind.write and f"\n| `{kind.name}` |" not in exports]
    assert not missing, f"docs/formats.md, Export: no row for {missing}"
    words = [*COLUMNS, *(name for name in OF_ROW if name in ("rank", "repeat", "status", "cell"))]
    words += [f"imported: {word}" for word in CENTERS.values()]
    words += ["osu_latency", "osu_bw", "osu_bibw"]
    assert [word for word in words if f"`{word}`" not in text] == []
    for option in ("--campaign", "--stack", "--gpus-per-node", "--nodes", "--results", "--where", "--out"):
        assert option in text


def test_every_format_has_a_golden_file_and_every_json_format_a_schema():
    read_from = {importer.read_text(text_of(name), name, NEEDS.get(name, Options()))[0].name for name in ALL}
    assert not (missing := {kind.name for kind in FORMATS} - read_from), f"tests/golden/formats: no file of {missing}"
    missing = {kind.name for kind in FORMATS if kind.is_json} - load_schema("foreign")["$defs"].keys()
    assert not missing, f"workflow/schemas/foreign.yaml: no schema of {missing}"


def test_a_csv_without_bucket_and_image_size_says_which_it_uses(wording):
    notes = read("times.csv").notes
    wording(notes)
    assert not any("dtype" in note or "context_length" in note for note in notes)
    assert any("dtype" in note for note in read("times.csv", text_of("times.csv").replace(",fp32,", ",,")).notes)
