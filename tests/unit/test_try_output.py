"""try_output.py: what the patterns of a campaign find in a saved output, also of the shipped campaigns in published ones."""

import re
import sys
from pathlib import Path

import pytest
from campaign_files import small, write

import try_output
from regatta.core.errors import UserError

FOLDER = Path(__file__).resolve().parents[2]
CAMPAIGNS, PUBLISHED = FOLDER / "config" / "campaigns", FOLDER / "tests" / "golden" / "formats"
# https://github.com/pytorch/torchtitan/pull/3393, with colors as on a terminal
TITAN = (
    "[rank0]:\x1b[31m[titan] 2026-05-18 16:04:46,338 - root - INFO - step: {step:2}  loss:  3.24405  grad_norm:  0.8319"
    "  memory:  9.46GiB(64.99%)  tps: {rate:,}  tflops: 0.52  mfu: 0.17%\x1b[39m\n"
)


def try_it(capsys, monkeypatch, *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["try_output.py", *map(str, words)])
    try:
        try_output.main()
        status = 0
    except SystemExit as ended:
        status = ended.code
    found = capsys.readouterr()
    return status, found.out, found.err


def program(**changes) -> dict:
    read = {"rate": {"match": r"rate: (\S+)", "unit": "GB/s", "better": "larger"}}
    return {"benchmark": "program", "name": "p", "command": ["p"], "read": read} | changes


def one_size(name: str, size: int) -> str:
    """Return a published output with the row of one message size."""
    lines = (PUBLISHED / name).read_text().splitlines(keepends=True)
    words = [line.split() for line in lines]
    rows = [word[:1] == [str(size)] or not (word and word[0].isdigit()) for word in words]
    return "".join(line for line, is_kept in zip(lines, rows, strict=True) if is_kept)


def published(name: str) -> str:
    return (PUBLISHED / name).read_text()


@pytest.mark.parametrize(
    ("campaign", "name", "output", "given"),
    [
        ("nccl-tests", "all_reduce_bandwidth", one_size("nccl-13-columns.txt", 1048576), "gives 55.76 GB/s"),
        ("nccl-tests", "all_reduce_latency", published("nccl-13-columns.txt"), "all_reduce, 8 B, fp32: 20.1 µs"),
        ("osu-allreduce", "osu_allreduce", published("osu-allreduce.txt"), "all_reduce, 1 MiB, fp32: 2.50 ms"),
        ("torchtitan", "torchtitan", "".join(TITAN.format(step=n, rate=7000 + n) for n in range(1, 61)), "50 samples"),
    ],
)
def test_the_shipped_campaigns_read_published_outputs(tmp_path, capsys, monkeypatch, campaign, name, output, given):
    path = tmp_path / "output.log"
    path.write_text(output)
    status, text, errors = try_it(capsys, monkeypatch, CAMPAIGNS / f"{campaign}.yaml", path, "--benchmark", name)
    assert (status, errors) == (0, "")
    assert given in text


def test_eight_bytes_of_nccl_tests_have_a_time_although_their_bandwidth_is_zero(tmp_path, capsys, monkeypatch):
    path = tmp_path / "output.log"
    path.write_text(one_size("nccl-13-columns.txt", 8))
    campaign = CAMPAIGNS / "nccl-tests.yaml"
    status, _, errors = try_it(capsys, monkeypatch, campaign, path, "--benchmark", "all_reduce_bandwidth")
    assert (status, "0 is not positive" in errors) == (2, True)
    path.write_text(published("nccl-13-columns.txt"))
    status, text, _ = try_it(capsys, monkeypatch, campaign, path, "--benchmark", "all_reduce_latency")
    assert (status, "20.1 µs" in text) == (0, True)


def test_what_a_format_finds_is_shown_for_each_size_with_what_is_missing(tmp_path, capsys, monkeypatch, wording):
    entry = program(name=None, command=["/opt/all_reduce_perf"], read="nccl-tests", sizes=["1MiB", "1GiB"])
    shapes = [{"nodes": [1], "gpus_per_node": [2, 4]}]
    path = write(tmp_path, small(cluster="local", shapes=shapes, benchmarks=[{k: v for k, v in entry.items() if v}]))
    for name in ("nccl-per-iteration.json", "osu-latency.txt", "mlperf.log"):
        try:
            status, text, errors = try_it(capsys, monkeypatch, path, PUBLISHED / name)
        except UserError as error:
            status, text, errors = 2, "", str(error)
        assert status == 2
        wording(text + errors)


@pytest.mark.parametrize(
    ("output", "changes", "status"),
    [
        ("rate: 3\n", {}, 0),
        ("rate: 3\nrate: 4\n", {}, 2),
        ("rate: nan\n", {}, 2),
        ("rate: 0\n", {}, 2),  # a rate without a time
        ("", {}, 2),
        ("rate: 3\nFAILED\n", {"check": {"reject": "FAILED"}}, 2),
    ],
)
def test_the_status_is_that_of_a_launch(tmp_path, capsys, monkeypatch, wording, output, changes, status):
    path = write(tmp_path, small(cluster="local", benchmarks=[program(**changes)]))
    log = tmp_path / "old.log"
    log.write_text(output)
    found, text, errors = try_it(capsys, monkeypatch, path, log)
    assert found == status
    wording(text + errors)


@pytest.mark.parametrize(("pattern", "status", "shown"), [("([\\d.]+)", 2, "11.9k"), ("([\\d.]+[kMG]?)", 0, "11,900")])
def test_a_number_that_is_cut_before_its_suffix_is_shown_with_it(tmp_path, capsys, monkeypatch, pattern, status, shown):
    read = {"iops": {"match": f"IOPS={pattern}", "unit": "IOPS", "better": "larger"}}
    path = write(tmp_path, small(cluster="local", benchmarks=[program(read=read)]))
    log = tmp_path / "old.log"
    log.write_text("read: IOPS=11.9k, BW=46.5MiB/s\n")
    found, text, errors = try_it(capsys, monkeypatch, path, log)
    assert (found, shown in (errors if status else text)) == (status, True)


def test_the_entry_is_chosen_by_name(tmp_path, capsys, monkeypatch, wording):
    other = program(name="q", read={"t": {"samples": "t: (.*)", "unit": "ms", "better": "smaller", "drop": 1}})
    path = write(tmp_path, small(cluster="local", benchmarks=[program(), other]))
    log = tmp_path / "old.log"
    log.write_text("t: 9\n" + "".join(f"t: {n}\n" for n in range(1, 8)))
    status, text, errors = try_it(capsys, monkeypatch, path, log, "--benchmark", "q")
    assert (status, errors) == (0, "")
    wording(text)
    for words in ((), ("--benchmark", "r")):
        with pytest.raises(UserError) as refused:
            try_it(capsys, monkeypatch, path, log, *words)
        wording(str(refused.value))


# Outputs of common programs: text, pattern, unit, better, what is shown (a value) or said (several words).
BASH = r"real\s+(\S+)"
GERMAN = "2147483648 Bytes kopiert, 1,826 s, 1,176 GB/s\n"
BAR = r"(?P<value>[\d.]+) ?(?P<unit>it/s|s/it)"
LINK = "".join(
    f"second {n} rate {rate}\n" for n, rate in enumerate(["9.38 Gbits/sec", "912 Mbits/sec", "9.41 Gbits/sec"])
)
WITH_UNIT = r"rate (?P<value>[\d.]+) (?P<unit>\S+)$"
READ = [
    ("real\t2m5.250s\n", BASH, "s", "gives 125.25 s"),
    ("real\t0m0,415s\n", BASH, "s", "gives 0.415 s"),
    ("runtime = 1:02:03.50\n", r"= (\S+)", "s", "gives 3,723.5 s"),
    ("Elapsed 1-02:03:04\n", r"Elapsed (\S+)", "h", "gives 26.0511111111 h"),
    ("elapsed: 1:02\n", r"elapsed: (\S+)", "s", "gives 62 s"),
    ("100%|##| 80/80 [00:40<00:00,  2.00it/s]\n", BAR, "iterations/s", "2.00 it/s is 2 iterations/s"),
    ("100%|##| 80/80 [03:20<00:00,  2.50s/it]\n", BAR, "iterations/s", "2.50 s/it is 0.4 iterations/s"),
    ("100%|##| 80/80 [03:20<00:00,  2.50s/it]\n", BAR, "s/it", "gives 2.5 s/it"),
    ("            (ns/day)\nPerformance:    41.870\n", r"Performance: +(\S+)", "ns/day", "41.870 is 41.87 ns/day"),
    ("Performance:  41.870  0.573\n", r"Performance: +\S+ +(\S+)", "hours/ns", "gives 0.573 hours/ns"),
    ("step 2 tokens 1,215 mfu 31.6% memory 61.2GiB\n", r"mfu ([\d.]+)", "%", "gives 31.6 %"),
    ("step 2 tokens 1,215 mfu 31.6% memory 61.2GiB\n", r"mfu (?P<value>[\d.]+)(?P<unit>%)", "", "gives 0.316;"),
    ("loss 2.3456789\n", r"loss (\S+)", "", "gives 2.3456789;"),
    (LINK, r"second 1 " + WITH_UNIT, "Gbit/s", "912 Mbits/sec is 0.912 Gbit/s"),
    ("bw=46.5MiB/s (48.8MB/s)\n", r"bw=([\d.]+)MiB/s", "MiB/s", "gives 46.5 MiB/s"),
    ("1.10 GBytes in 1 s\n", r"([\d.]+) GBytes", "GiB", "gives 1.1 GiB"),  # as iperf means it
    ("copy 1,234,567 and 12.5\n", r"copy ([\d,]+)", "MB/s", "1,234,567 is 1,234,567 MB/s"),
    ("rate 1'234.5 MB/s\n", r"rate (\S+)", "MB/s", "gives 1,234.5 MB/s"),
    ("12.345678901 ms\n", r"(\S+) ms", "ms", "gives 12.345678901 ms"),
]
REFUSED = [
    (GERMAN, r"(\S+) GB/s$", "GB/s"),
    (GERMAN, r"(\d+) GB/s$", "GB/s"),
    ("real 0m0,415s\n", r"real\s+0m([\d.,]+)s", "s"),
    ("real 0m0,415s\n", r"real\s+0m([\d.]+)", "s"),
    ("real 2m5.250s\n", r"([\d.]+)s$", "s"),
    ("took 1:02:03.5\n", r"took (\d+)", "s"),
    ("rate 912 Mbits/sec\n", r"rate ([\d.]+)", "Gbit/s"),
    ("rate 912 Mbits/sec\n", r"rate ([\d.]+) Mbits", "Gbit/s"),
    ("rate 123456789.5 B/s\n", r"rate (\S+)", "MB/s"),
    ("mfu 31.6%\n", r"mfu ([\d.]+)", ""),
    ("rate 3 furlong\n", WITH_UNIT, "GB/s"),
    ("rate 3 GB/sx\n", WITH_UNIT, "GB/s"),
    ("rate 3 it/s\n", WITH_UNIT, "GB/s"),
    ("rate 0 s/it\n", WITH_UNIT, "it/s"),
]


def try_text(tmp_path, capsys, monkeypatch, text: str, **quantity) -> tuple[int, str, str]:
    """Return the status and what is printed of a campaign with one quantity."""
    path = write(tmp_path, small(cluster="local", benchmarks=[program(read={"q": quantity})]))
    log = tmp_path / "old.log"
    log.write_text(text)
    return try_it(capsys, monkeypatch, path, log)


def better_of(unit: str) -> str:
    return "smaller" if unit in ("s", "ms", "h", "s/it", "hours/ns", "GiB") else "larger"


@pytest.mark.parametrize(("text", "pattern", "unit", "shown"), READ)
def test_outputs_are_read_as_printed(tmp_path, capsys, monkeypatch, text, pattern, unit, shown):
    given = {"match": pattern, "unit": unit, "better": better_of(unit)}
    status, printed, errors = try_text(tmp_path, capsys, monkeypatch, text, **given)
    assert (status, errors, shown in printed) == (0, "", True)


def test_no_factor_is_lost_in_silence(tmp_path, capsys, monkeypatch, wording):
    """What is said of each is in the golden file."""
    for text, pattern, unit in REFUSED:
        given = {"match": pattern, "unit": unit, "better": better_of(unit)}
        status, _, errors = try_text(tmp_path, capsys, monkeypatch, text, **given)
        assert status == 2, (text, pattern)
        wording(errors)


def test_a_sign_that_the_pattern_matches_cuts_nothing(tmp_path, capsys, monkeypatch):
    given = {"match": r", (\d+),\d+ s,", "unit": "s", "better": "smaller"}
    assert try_text(tmp_path, capsys, monkeypatch, GERMAN, **given)[0] == 0


@pytest.mark.parametrize(
    ("text", "comma", "shown"), [(GERMAN, "decimal", "1.176 GB/s"), (GERMAN, "thousands", "1,176 GB/s")]
)
def test_the_key_says_what_a_comma_is(tmp_path, capsys, monkeypatch, text, comma, shown):
    given = {"match": r"(\S+) GB/s$", "unit": "GB/s", "better": "larger", "comma": comma}
    status, printed, _ = try_text(tmp_path, capsys, monkeypatch, text, **given)
    assert (status, f"gives {shown};" in printed) == (0, True)


def test_each_sample_is_converted_by_the_unit_of_its_line(tmp_path, capsys, monkeypatch):
    given = {"samples": WITH_UNIT, "unit": "Gbit/s", "better": "larger"}
    status, printed, _ = try_text(tmp_path, capsys, monkeypatch, LINK, **given)
    assert (status, ": 0.912 to 9.41 Gbit/s" in printed) == (0, True)


SIMILAR = [  # text, pattern, unit, the lines that the pattern leaves out because of their unit
    (LINK, r"rate ([\d.]+) Gbits/sec$", "Gbit/s", {"2"}),
    (LINK, r"([\d.]+) Gbits", "Gbit/s", {"2"}),
    (LINK.replace("912 M", "912 K"), r"rate (?P<value>[\d.]+) (?P<unit>[GM]bits)/sec", "Gbit", {"2"}),
    (LINK, r"rate ([\d.]+) G(?:b|bits)/sec", "Gbit/s", {"2"}),
    ("step 1: 980 ms\nstep 2: 1.2 s\nstep 3: 990 ms\n", r"step \d: ([\d.]+) ms", "ms", {"2"}),
    ("step 1: 1.2 s\nstep 2: 980 ms\nstep 3: 990 ms\n", r"([\d.]+) ms", "ms", {"1"}),
    ("[ 3] 108 MBytes 912 Mbits/sec\n[ 3] 1.1 GBytes 9.4 Gbits/sec\n", r"([\d.]+) Gbits/sec", "Gbit/s", {"1"}),
    ("50%|#   | 40/80 [00:20, 2.00it/s]\n60%|##  | 48/80 [00:40, 2.50s/it]\n", r"([\d.]+)it/s", "it/s", {"2"}),
    ("bw=512KiB/s\nbw=1.5MiB/s\n", r"bw=([\d.]+)MiB/s", "MiB/s", {"1"}),
    ("step 1: 980 ms\nstep 2: 990 ms\ntotal: 3.2 s\n", r"([\d.]+) ms", "ms", set()),
    ("step 1: 980 ms\nstep 2: 990 ms\ninit took 3.2 s\n", r"([\d.]+) ms", "ms", set()),
    ("step 1: 980 ms\nstep 2: 12 tokens\n", r"step \d: ([\d.]+) ms", "ms", set()),
    ("step 1: 980 ms\nstep 2: failed\n", r"step \d: ([\d.]+) ms", "ms", set()),
]


@pytest.mark.parametrize(("text", "pattern", "unit", "lines"), SIMILAR)
def test_samples_of_another_unit_are_not_left_out_in_silence(tmp_path, capsys, monkeypatch, text, pattern, unit, lines):
    given = {"samples": pattern, "unit": unit, "better": better_of(unit)}
    status, _, errors = try_text(tmp_path, capsys, monkeypatch, text, **given)
    named = {*re.findall(r"line (\d+): q has", errors)}
    assert (status, named) == (2 if lines else 0, lines)


def test_a_sample_that_is_left_out_is_named(tmp_path, capsys, monkeypatch, wording):
    given = {"samples": r"rate ([\d.]+) Gbits/sec$", "unit": "Gbit/s", "better": "larger"}
    wording(try_text(tmp_path, capsys, monkeypatch, LINK, **given)[2])
