"""Reading files of other programs: golden files, with the figures that they print."""

import dataclasses
import json
import os

import pytest
from formats_files import ALL, FILES, NEEDS, read, read_text, text_of

from read_output import formats_named
from regatta import formats
from regatta.core.errors import UserError
from regatta.core.schemas import load_schema
from regatta.formats import FORMATS, importer
from regatta.formats.base import Options, shape_of
from regatta.formats.tidy_csv import COLUMNS, OF_ROW
from regatta.store.records import CENTERS

READINGS = FILES.parent / "readings"


def plain(value: object) -> dict:
    """Return the fields of a source or a reading that are set."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: content for name, content in fields.items() if content not in (None, {}, ()) and name != "readings"}


@pytest.mark.parametrize("name", ALL)
def test_each_golden_file_is_recognized_by_its_content_and_has_the_frozen_readings(name):
    """tests/golden/readings: one line of JSON for the file, and one for each reading, frozen from values by hand."""
    kind, source = formats.read_text(text_of(name), name, NEEDS.get(name, Options()))
    found = [{"format": kind.name, **plain(source)}, *map(plain, source.readings)]
    frozen = READINGS / f"{name}.jsonl"
    if os.environ.get("REGATTA_WRITE_GOLDEN"):
        frozen.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in found), encoding="utf-8")
    expected = [json.loads(line) for line in frozen.read_text(encoding="utf-8").splitlines()]
    assert json.loads(json.dumps(found)) == expected


# --- benchmark.py, text


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
         r"f:\d+: incomplete row '16 4 float sum -1nid.*If NCCL output is mixed in, run again with NCCL_DEBUG_FILE"),
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


def test_the_environment_of_the_process_stays_where_it_is():
    assert "do-not-take-over" in text_of("nccl-per-iteration.json")
    assert "do-not-take-over" not in repr(read("nccl-per-iteration.json"))


def test_json_without_its_end_or_with_another_boolean_is_refused(wording):
    run = json.loads(text_of("nccl-summary.json"))
    del run["out_of_bounds"]
    with wording.raises(UserError):
        read_text(json.dumps(run), "f", Options())
    run = json.loads(text_of("nccl-summary.json"))
    run["config"]["blocking_collectives"] = "yes"
    with wording.raises(UserError):
        read_text(json.dumps(run), "f", Options())


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("nccl-summary.json", "aggregated_iterations", "x"),
        ("nccl-summary.json", "graph", None),
        ("nccl-summary.json", "nwrong", 10**400),
        ("rccl-mpi.json", "wrong", 10**400),
    ],
)
def test_json_with_a_number_that_cannot_be_read_is_refused_with_its_key(name, key, value):
    run = json.loads(text_of(name))
    place = {"nwrong": lambda: run["results"][0]["out_of_place"], "wrong": lambda: run[0]}
    place.get(key, lambda: run["config"])()[key] = value
    with pytest.raises(UserError, match=rf"^f: .*\b{key} = "):
        read_text(json.dumps(run), "f", Options())


# --- OSU


def test_the_part_of_a_rank_becomes_the_message_of_all():
    text = text_of("osu-allreduce.txt").replace("Allreduce", "Allgather")
    source = read_text(text, "f", Options(nodes=2, gpus_per_node=4))
    assert source.readings[0].parameters["message_bytes"] == 4 * 8


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (text_of("osu-allreduce.txt"), Options(), "does not state where its ranks ran; expected --nodes and --gpus-per-node"),
        (text_of("osu-latency.txt"), Options(), "does not state where its ranks ran; expected --nodes[.]"),
        (text_of("osu-latency.txt"), Options(nodes=3), "2 ranks on --nodes 3"),
        (text_of("osu-latency.txt").replace("\n64 ", "\n# 64 "), Options(nodes=2), "size 128 after 32; expected 64"),
        (text_of("osu-allreduce.txt").replace("7.29        1000", "7.29", 1), Options(2, 4), "expected a complete row of Size, Avg"),
        (text_of("osu-latency.txt").replace("Latency Test", "Put Latency Test"), Options(nodes=2), "f:2: unsupported test '# OSU MPI Put Latency"),
        (text_of("osu-latency.txt") + text_of("osu-allreduce.txt"), Options(nodes=2), "f:30: .* not state where its ranks ran"),
        (text_of("osu-allreduce.txt").replace("Min Latency", "Sum Latency"), Options(2, 4), "unknown columns"),
    ],
)  # fmt: skip
def test_a_table_of_osu_that_is_not_clear_is_refused(text, options, message):
    with pytest.raises(UserError, match=message):
        read_text(text, "f", options)


# --- suite, CSV, and what is none of all


def test_the_suite_asks_for_the_gpus_of_a_node(wording):
    with wording.raises(UserError):
        read_text(text_of("suite-4gpu.json"), "f", Options())


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
        ('{"a": NaN}', "f:1: unknown JSON format with 'a'; expected"),
        ("{" * 100_000, "f:1: invalid JSON"),
        ("\0\x01\x02", "unknown format"),
        (text_of("times.csv").partition("\n")[0] + "\n", "f:1: no row below the header; expected"),
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
    read_from = {formats.read_text(text_of(name), name, NEEDS.get(name, Options()))[0].name for name in ALL}
    assert not (missing := {kind.name for kind in FORMATS} - read_from), f"tests/golden/formats: no file of {missing}"
    missing = {kind.name for kind in FORMATS if kind.is_json} - load_schema("foreign")["$defs"].keys()
    assert not missing, f"workflow/schemas/foreign.yaml: no schema of {missing}"


def test_read_of_a_campaign_accepts_each_format_and_names_that_cover_several():
    known = load_schema("campaign")["properties"]["benchmarks"]["items"]["properties"]["read"]["then"]["enum"]
    missing = {kind.name for kind in FORMATS} - {*known}
    assert not missing, f"workflow/schemas/campaign.yaml, read: no name {missing}"
    assert [name for name in known if not formats_named(name)] == []
    assert [kind.name for kind in formats_named("nccl-tests")] == ["nccl-tests-text", "nccl-tests-json"]


def test_a_csv_without_bucket_and_image_size_says_which_it_uses(wording):
    notes = read("times.csv").notes
    wording(notes)
    assert not any("dtype" in note or "context_length" in note for note in notes)
    assert any("dtype" in note for note in read("times.csv", text_of("times.csv").replace(",fp32,", ",,")).notes)
