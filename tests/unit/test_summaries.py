"""The cache of summaries affects only the run time, never results."""

import json
import math
import os

import pytest
from synthetic import laptop_campaign, write_laptop
from typed import collect

from regatta.store import summaries
from regatta.store.collect import collected_csv
from regatta.store.launch_files import load_json, parse_line


def tables(folder) -> tuple[dict[str, str], dict]:
    collected, problems = collect(laptop_campaign(), folder / "launches", folder / "cache" / "summaries")
    return collected_csv(collected), problems


def kept(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "cache" / "summaries").iterdir()}


@pytest.fixture
def folder(tmp_path):
    """A campaign whose summaries are kept."""
    folder = write_laptop(tmp_path / "laptop")
    tables(folder)
    return folder


@pytest.fixture
def num_read(monkeypatch) -> list:
    """The launch files whose samples are read from now on."""
    read, parse = [], summaries.parse_launch_file
    monkeypatch.setattr(summaries, "parse_launch_file", lambda path, text: read.append(path) or parse(path, text))
    return read


def flip(path, place: int) -> None:
    """Change one bit of a file, and keep its size and time."""
    times = path.stat()
    text = bytearray(path.read_bytes())
    text[place] ^= 1
    path.write_bytes(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_kept_summary_gives_the_same_tables_without_reading_samples(folder, num_read):
    with_summaries = tables(folder)
    assert num_read == []
    before = kept(folder)
    assert len(before) == len(list((folder / "launches").iterdir()))
    for path in (folder / "cache" / "summaries").iterdir():
        path.unlink()
    assert tables(folder) == with_summaries
    assert kept(folder) == before


def test_a_changed_byte_of_a_launch_file_is_noticed(folder, num_read):
    path = sorted((folder / "launches").iterdir())[0]
    content = path.read_bytes()
    place = content.index(b'"samples_ns":[[') + len(b'"samples_ns":[[')  # the first digit of a sample
    before = tables(folder)
    flip(path, place)
    changed = tables(folder)
    assert changed[0]["measurements"] != before[0]["measurements"]
    assert num_read == [path]
    assert len(kept(folder)) == len(list((folder / "launches").iterdir()))  # that of the old content is deleted
    flip(path, place)
    assert tables(folder) == before


@pytest.mark.parametrize("is_in_values", [True, False])
def test_a_changed_byte_of_a_summary_is_noticed(folder, num_read, is_in_values):
    before, path = tables(folder), sorted((folder / "cache" / "summaries").iterdir())[0]
    content = path.read_bytes()
    flip(path, content.index(b'"p50_s":0.') + len(b'"p50_s":0.0') if is_in_values else 3)
    assert tables(folder) == before
    assert len(num_read) == 1
    assert path.read_bytes() == content


def test_a_truncated_or_foreign_summary_is_recomputed(folder, num_read):
    before = tables(folder)
    first, second, *_ = sorted((folder / "cache" / "summaries").iterdir())
    first.write_bytes(first.read_bytes()[:100])
    second.write_bytes(b"")
    assert tables(folder) == before
    assert len(num_read) == 2


def test_a_summary_is_valid_only_for_its_specs(folder, num_read):
    campaign = laptop_campaign()
    cell = next(cell for cell in campaign["cells"] if cell["spec"]["gpus_per_node"] == 2)
    cell["spec"] = cell["spec"] | {"gpus_per_node": 1}  # samples of two ranks no longer fit
    collected, _ = collect(campaign, folder / "launches", folder / "cache" / "summaries")
    rows = collected["measurements"].set_index("cell").loc[[cell["id"]]]
    assert set(rows["status"]) == {"not_measured"}
    assert len(num_read) == campaign["repeats"]


def test_another_version_of_the_code_reads_all_samples(folder, num_read, monkeypatch):
    before = tables(folder)
    monkeypatch.setattr(summaries, "code_version", lambda: b"other")
    assert tables(folder) == before
    assert len(num_read) == len(list((folder / "launches").iterdir()))


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    folder = write_laptop(tmp_path / "laptop")
    (folder / "cache").write_text("a file of this name")
    before = tables(folder)
    (folder / "cache").unlink()
    assert tables(folder) == before


def test_parallel_and_serial_reads_agree(folder, monkeypatch):
    before = tables(folder)
    for path in (folder / "cache" / "summaries").iterdir():
        path.unlink()
    monkeypatch.setattr(summaries, "MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert tables(folder) == before
    assert len(kept(folder)) == len(list((folder / "launches").iterdir()))


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[123456789012345678,-12345678901234567,1]}',
        '{"a":0.00012345678901234567}',
        '{"a":NaN,"b":-Infinity}',
        '{"a":1e400}',
        '{"a":"\\ud800"}',
        '\ufeff{"a":1}',
        '{"a":1}x',
        '{"a":' + "[" * 2000 + "]" * 2000 + "}",
        '{"a":1,"a":2}',
    ],
)
def test_json_is_read_as_by_the_standard_library(text):
    def outcome(read) -> str:
        try:
            return repr(read(text.encode()))
        except (ValueError, RecursionError) as error:
            return type(error).__name__

    assert outcome(load_json) == outcome(json.loads)


def test_integers_of_19_digits_are_read_as_floats_like_longer_ones():
    read = load_json(
        b'{"a":1234567890123456789,"b":[-9223372036854775808,18446744073709551616],"c":' + b"9" * 5000 + b"}"
    )
    assert read == {"a": 1234567890123456789.0, "b": [-(2.0**63), 2.0**64], "c": math.inf}
    assert {type(read["a"]), *map(type, read["b"])} == {float}


def test_a_summary_of_odd_values_reads_as_they_are(tmp_path):
    for value in ({"cell": "\ud800"}, {"repeat": 10**30}, {"p50_s": 0.1 + 0.2}):
        assert summaries.from_json(summaries.to_json(value)) == value


def test_a_line_nested_too_deeply_is_corrupt():
    with pytest.raises(ValueError, match="nested"):
        parse_line(b'{"kind":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
