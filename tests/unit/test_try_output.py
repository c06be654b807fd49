"""try_output.py: what the patterns of a campaign find in a saved output, also of the shipped campaigns in published ones."""

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
    assert (status, "0 is not above 0" in errors) == (2, True)
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
