"""Quantities of any program's output: patterns, units, checks, and outputs and patterns that must not do harm."""

import io
import re
import time
from pathlib import Path

import pytest
from formats_files import ALL, FILES, NEEDS, read, text_of

from read_output import formats_named, read_results
from regatta import formats
from regatta.core import matching, readers
from regatta.core.errors import UserError
from regatta.core.matching import MOST_CHARACTERS, search_stream
from regatta.core.readers import FormatResult, find_result, ignored_sizes, parse_reader, read_quantities
from regatta.core.schemas import load_schema
from regatta.formats.base import Options

HPL = "T/V  N  NB  P  Q  Time  Gflops\nWR11C2R4  1000 192 2 2  0.12  1.2345e+03\n||Ax-b||= 3.2e-03 ...... PASSED\n"
RATE = {"rate": {"match": r"WR\S+.*?(\S+)$", "unit": "Gflop/s", "better": "larger"}}


def tps(pattern=r"tps: ([\d,]+)", **more):
    return {"tps": {"samples": pattern, "unit": "tokens/s", "better": "larger"} | more}


def test_one_number_in_si_units_with_its_line_and_a_check():
    found = read_quantities(HPL, parse_reader(RATE, {"match": "PASSED", "reject": "FAILED"}))
    assert (found.values, found.samples, found.problems) == ({"rate": pytest.approx(1.2345e12)}, {}, ())
    assert found.matched_lines == {"rate": [2]}


def test_a_check_that_fails_is_a_problem_with_its_line():
    reader = parse_reader(RATE, {"match": "PASSED", "reject": "FAILED"})
    [missing, rejected] = read_quantities(HPL.replace("PASSED", "FAILED"), reader).problems
    assert "check.match" in missing
    assert rejected.startswith("line 3: check.reject")


@pytest.mark.parametrize(("text", "num_problems"), [("1,024", 0), ("1024", 0), ("102,4", 1), ("1,024k", 1)])
def test_a_number_of_ranks_may_have_thousands(text, num_problems):
    reader = parse_reader(tps(), {"ranks": r"on (\S+) ranks"})
    found = read_quantities(f"on {text} ranks, tps: 5\n", reader, [1024])
    assert len(found.problems) == num_problems


def test_blanks_at_the_end_of_a_line_do_no_harm():
    found = read_quantities("rate 1\nrate 1  \n", parse_reader({"rate": {"match": r"rate (\S+)$"}}))
    assert (found.values, found.problems, found.matched_lines) == ({"rate": 1}, (), {"rate": [1, 2]})


def test_of_a_check_the_first_match_is_enough():
    emitted = []
    stream = io.BytesIO(b"ok ok\nx 1\nok\nx 2\n")
    search_stream(stream, {"check.match": "ok", "x": r"x (\d)"}, ["check.match"], {}, 100, emitted.append)
    assert [match[:3] for match in emitted] == [("check.match", 1, "ok"), ("x", 2, "1"), ("x", 4, "2"), (None,) * 3]


def test_too_many_matches_are_a_problem_and_no_part_of_them_is_kept(tmp_path, monkeypatch):
    program = Path(matching.__file__).read_text().replace("MOST_MATCHES = 1_000_000", "MOST_MATCHES = 1_000")
    (tmp_path / "matching.py").write_text(program)
    monkeypatch.setattr(matching, "__file__", str(tmp_path / "matching.py"))
    found = read_quantities("rate 1\n" + "1" * 1000, parse_reader({"rate": {"samples": "1"}}))
    assert found.samples == {}
    assert "line 2: more than 1,000 matches. Narrow the pattern of read.rate" in found.problems[0]


def test_samples_without_warm_up_with_thousands_colors_and_carriage_returns():
    text = "\x1b[32mtps: 1,000\x1b[0m\rtps: 2,000\rtps: 3,000\r\nloss 1\ntps: 4,000"
    found = read_quantities(text, parse_reader(tps(drop=1)), comma="thousands")
    assert (found.samples, found.problems) == ({"tps": [2000, 3000, 4000]}, ())
    assert found.matched_lines == {"tps": [1, 1, 1, 3]}


def test_a_unit_in_the_text_outranks_none():
    text = "bw=1.5GiB/s\nbw=512MiB/s\n"
    read_key = {"samples": r"bw=(?P<value>[\d.]+)(?P<unit>\S+)", "unit": "B/s", "better": "larger"}
    reader = parse_reader({"bandwidth": read_key})
    assert read_quantities(text, reader).samples == {"bandwidth": [1.5 * 2**30, 2.0**29]}
    assert "line 1" in read_quantities("bw=3parsec/s", reader).problems[0]


def iops(text: str, pattern: str, **more) -> tuple[list[float], int]:
    """Return the samples that a pattern reads from a text, and the number of problems."""
    found = read_quantities(text, parse_reader({"iops": {"samples": pattern, "unit": "operations/s"} | more}))
    return found.samples.get("iops", []), len(found.problems)


@pytest.mark.parametrize(
    "text",
    ["IOPS=11.9k, BW", "IOPS=11.9k", "IOPS=11.9K BW", "IOPS=3M,", "IOPS=3G/s", "IOPS=3T;", "IOPS=4Ki,", "IOPS=4Mi"],
)
def test_a_number_cut_before_its_suffix_is_a_problem_and_converts_if_the_group_has_it(text):
    assert iops(text, r"IOPS=([\d.]+)") == ([], 1)
    assert iops(text, r"IOPS=(?P<value>[\d.]+)") == ([], 1)
    factors = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1024, "Mi": 1048576}
    number, suffix = re.search(r"=([\d.]+)([A-Za-z]+)", text).groups()
    expected = float(number) * factors[suffix]
    assert iops(text, r"IOPS=([\d.]+[kKMGT]?i?)") == ([pytest.approx(expected)], 0)
    with_match = read_quantities(text, parse_reader({"iops": {"match": r"IOPS=([\d.]+[kKMGT]?i?)"}}))
    assert with_match.values == {"iops": pytest.approx(expected)}


@pytest.mark.parametrize(
    ("text", "pattern", "value"),
    [
        ("rate 12ms", r"rate ([\d.]+)", 12),
        ("rate 12 k", r"rate ([\d.]+)", 12),
        ("rate 3Kernel", r"rate ([\d.]+)", 3),
        ("rate 3k_x", r"rate ([\d.]+)", 3),
        ("rate 3GB/s", r"rate ([\d.]+)", 3),
        ("rate 11.9k", r"rate ([\d.]+)k", 11.9),  # the user's choice
        ("rate 12.", r"rate (\d+)", 12),
        ("rate 12, 345", r"rate (\d+)", 12),
        ("rate 12,34,56", r"rate (\d+)", 12),  # a list
        ("rate 12,34", r"rate (\d+),", 12),  # the user's choice
        ("rate 11.9 k", r"rate ([\d.]+ ?k)", 11900),
        ("rate 1,234.5k", r"rate (\S+)", 1234500),
        ("rate 1'234.5k", r"rate (\S+)", 1234500),
        ("rate 1.5e3k", r"rate (\S+)", 1.5e6),
        ("n12 ms", r"(\d+) ms", 12),
        ("3-12 ms", r"(\d+) ms", 12),
        ("a-12 ms", r"(\d+) ms", 12),
        ("2,12 ms", r",(\d+) ms", 12),
        ("1,2,12 ms", r"(\d+) ms", 12),
        ("0:12 ms", r":(\d+) ms", 12),
        ("n0:8123 ms", r"(\d+) ms", 8123),
        ("rate -12 ms", r"rate -(\d+) ms", 12),
    ],
)
def test_what_follows_a_number_and_is_no_suffix_does_no_harm(text, pattern, value):
    assert iops(text, pattern) == ([pytest.approx(value)], 0)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("rate 11.9", r"rate (\d+)"),
        ("rate 1,234", r"rate (\d+)"),
        ("rate 12,34", r"rate (\d+)"),
        ("rate 12,3456", r"rate (\d+)"),
        ("rate 0,415 s", r"rate ([\d.]+)"),
        ("rate 1.234,5", r"rate ([\d.]+)"),
        ("rate 1'234", r"rate (\d+)"),
        ("2,12 ms", r"(\d+) ms"),
        ("1,210 tokens", r"(\d+) tokens"),
        ("1'210 tokens", r"(\d+) tokens"),
        ("0:12.50 elapsed", r"([\d.]+) elapsed"),
        ("took 1:02:03.50", r"took ([\d.]+)"),
        ("real 2m5.250s", r"real\s+([\d.]+)"),
        ("real 2m5.250s", r"([\d.]+)s$"),
        ("rate 1,234,567 x", r"rate ([\d.]+)"),
        ("rate 1.5e-05", r"rate ([\d.]+)"),
        ("rate 123", r"rate (\d)"),
        ("rate 11.9kB/s", r"rate ([\d.]+[kMG]?)"),  # a suffix of the unit, not of the number
        ("rate 4KiB", r"rate (\d+[kMGK]?i?)"),
        ("1.06e+03 ms", r"([\d.]+) ms"),
        ("1e3 ms", r"(\d+) ms"),
        ("12.5 ms", r"(\d+) ms"),
        ("123 ms", r"(\d) ms"),
        ("took -5 ms", r"([\d.]+) ms"),
        ("took \N{MINUS SIGN}5 ms", r"([\d.]+) ms"),
        ("rate 1.5D-03 s", r"rate ([\d.]+)"),
        ("1.5d+03 ms", r"([\d.]+) ms"),
        ("rate 1.5x10^-3 s", r"rate ([\d.]+)"),
        ("rate 1.5 \N{MULTIPLICATION SIGN} 10\N{SUPERSCRIPT MINUS}\N{SUPERSCRIPT THREE} s", r"rate ([\d.]+)"),
        ("1.5e\N{MINUS SIGN}3 ms", r"([\d.]+) ms"),
    ],
)
def test_other_numbers_that_are_cut_are_problems(text, pattern):
    assert iops(text, pattern) == ([], 1)


def test_as_many_patterns_as_there_may_be_reach_the_process_that_matches():
    read_key = {f"q{n}": {"samples": f"q{n}: (.)" + "x?" * 490} for n in range(300)}
    found = read_quantities("q299: 7\n", parse_reader(read_key))
    assert (found.samples, len(found.problems)) == ({"q299": [7]}, 299)


@pytest.mark.parametrize(
    ("read_key", "check", "message"),
    [
        ({"a": {}}, None, "read.a: needs either match"),
        ({"a": {"match": "x", "samples": "y"}}, None, "read.a: needs either match"),
        ({"a": {"match": "x(", "unit": "s"}}, None, "read.a: invalid pattern"),
        ({"a": {"match": "x", "drop": 3}}, None, "read.a.drop"),
        ({"a": {"samples": "x", "drop": 3, "expected": 3}}, None, "read.a.expected"),
        ({"a": {"match": "x" * 1001}}, None, "1 to 1000 characters"),
        ({"a": {"match": "x"}}, {"match": "("}, "check.match: invalid pattern"),
    ],
)
def test_a_declaration_with_an_error_names_the_key(read_key, check, message):
    with pytest.raises(UserError, match=message):
        parse_reader(read_key, check)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no line matches"),
        ("tps: 1\ntps: 2\n", "only 2 matches, 10 of them dropped"),
        ("tps: 1,0\n", "line 1: tps is '1,0'"),
    ],
)
def test_samples_that_are_missing_or_no_numbers_are_problems(text, problem):
    found = read_quantities(text, parse_reader(tps(drop=10)))
    assert found.samples == {}
    assert problem in found.problems[0]


def test_a_number_that_is_not_finite_is_a_problem_and_no_value():
    found = read_quantities("loss: 2\nloss: nan\n", parse_reader({"loss": {"samples": r"loss: (\S+)"}}))
    assert found.samples == {}
    assert found.problems[0].startswith("line 2: loss is 'nan': not finite")


def test_different_numbers_for_one_are_a_problem_and_equal_ones_are_not():
    reader = parse_reader({"rate": {"match": r"rate (\S+)"}})
    assert read_quantities("rate 1\nrate 1.0\n", reader).values == {"rate": 1}
    assert "lines 1, 2" in read_quantities("rate 1\nrate 2\n", reader).problems[0]


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?P<value>(.*?,){25}P)"])
def test_a_pattern_that_backtracks_without_end_is_stopped_and_its_line_named(pattern, monkeypatch):
    monkeypatch.setattr(readers, "LEAST_SECONDS", 0.6)
    text = "first\n" + "a," * 40 + "a" * 60 + "b\n"
    start = time.process_time()
    found = read_quantities(text, parse_reader({"x": {"match": pattern}}))
    assert "line 2: stopped after 1 s in the pattern of read.x" in found.problems[0]
    assert time.process_time() - start < 0.6  # here; the process that matches took that long


def test_binary_output_is_a_problem_with_its_reason(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"\x7fELF\x02\x01\x01\0\0\0tps: 5")
    found = read_quantities(path, parse_reader(tps()))
    assert "binary" in found.problems[0]
    assert found.samples == {}


def test_a_line_without_end_is_cut_and_the_others_are_read(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"tps: 1\n" + b"x" * (30 * MOST_CHARACTERS) + b"tps: \ntps: 2\n" + b"tps: 3\r" * MOST_CHARACTERS)
    found = read_quantities(path, parse_reader(tps()))
    assert found.samples["tps"] == [1, 2, *[3] * MOST_CHARACTERS]
    assert found.matched_lines["tps"][:3] == [1, 3, 4]


def test_invalid_bytes_match_no_number(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"\xff\xfe tps: 12\xff\ntps: 3\n")
    assert read_quantities(path, parse_reader(tps())).samples == {"tps": [12, 3]}


def test_an_output_that_is_not_there_is_an_error_of_the_user(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_quantities(tmp_path / "none", parse_reader(tps()))


@pytest.mark.parametrize("name", ALL)
def test_each_import_format_is_a_reader_by_its_name_and_by_that_of_its_program(name):
    needs = NEEDS.get(name, Options())
    source, kind = read(name), formats.read_text(text_of(name), name, needs)[0].name
    known = load_schema("campaign")["properties"]["benchmarks"]["items"]["properties"]["read"]["then"]["enum"]
    words = [word for word in known if kind in [each.name for each in formats_named(word)]]
    assert len(words) == (1 if kind in ("csv", "all-reduce-bench") else 2)
    for word in words:
        results = read_results(FILES / name, word, needs, needs)
        assert [result["line"] for result in results] == [reading.line for reading in source.readings]
        assert [result["size"] for result in results] == [r.parameters.get("message_bytes") for r in source.readings]
    for result, reading in zip(results, source.readings, strict=True):
        by_rank = reading.samples_ns or ([reading.slowest_ns] if reading.slowest_ns else [])
        wanted = [max(times) / 1e9 for times in zip(*by_rank, strict=True)]
        assert reading.failure or result["samples"] == wanted or result["samples"][0] in reading.times_s.values()


def test_the_process_that_reads_gives_the_results_or_the_reason():
    results = readers.read_results(FILES / "osu-allreduce.txt", "osu", (2, 4), 4)
    assert (results[0].name, results[0].size, results[0].failure) == ("all_reduce, 4 B, fp32", 4, None)
    assert find_result(results, 1 << 20).samples == [pytest.approx(2503.41e-6)]
    with pytest.raises(UserError, match="osu-text"):
        readers.read_results(FILES / "osu-allreduce.txt", "nccl-tests", (2, 4), 4)
    with pytest.raises(UserError, match=r"^nccl-13-columns.txt:\d+: .*gpus_per_node is 3"):
        readers.read_results(FILES / "nccl-13-columns.txt", "nccl-tests", (2, 3), 3)
    (latency, *_) = readers.read_results(FILES / "osu-latency.txt", "osu", (2, 4), 1)  # of two processes
    assert (latency.name, latency.bus_factor, results[0].bus_factor) == ("osu_latency, 1 B", None, 2 * 7 / 8)


def result(size: int | None, failure: str | None = None) -> FormatResult:
    return FormatResult(f"all_reduce, {size} B", size, 7, [1e-6], failure)


def test_the_result_of_a_size_is_found_or_the_reason_names_the_others():
    both = [result(8), result(16)]
    assert find_result(both, 16) == result(16)
    assert find_result([result(None)], None) == result(None)
    for results, size, words in (
        (both, 32, "no result for 32 B; the output has 8 B, 16 B"),
        ([result(None)], 8, "no result for 8 B; the output has no message sizes"),
        ([], None, "no result; the output has no message sizes"),
        (both, None, "2 results: .* under sizes"),
        ([result(8), result(8)], 8, "2 results for 8 B"),
        ([result(8, "3 wrong values")], 8, "line 7: 3 wrong values"),
    ):
        with pytest.raises(ValueError, match=words):
            find_result(results, size)
    assert ignored_sizes(both, [8]) == "16 B"
    assert ignored_sizes(both, [None]) == ""
