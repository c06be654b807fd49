"""Excerpts and truncated files: `--incomplete` imports what they contain, and marks every row."""

import dataclasses
import json
import re

import pytest
from formats_files import ALL, FILES, NEEDS, read, read_text, run_import, run_script, text_of
from synthetic import make_report

from regatta.compare.campaigns import read_campaign
from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.formats.importer import read_import
from regatta.formats.results_folder import export_notes, read_results_folder
from regatta.formats.tidy_csv import CSV
from regatta.store.launch_files import read_store

NCCL = "nccl-13-columns.txt"
MARK = "; incomplete file"


def excerpt(name, num, end="\n"):
    """Return an nccl-tests output up to its num-th row."""
    lines = text_of(name).split("\n")
    rows = [index for index, line in enumerate(lines) if line.strip()[:1].isdigit()]
    return "\n".join(lines[: rows[num - 1] + 1]) + end


def measurements(folder):
    return read_campaign(folder).measurements


def lenient(name, text):
    return read_text(text, name, dataclasses.replace(NEEDS.get(name, Options()), is_incomplete=True))


def plain(readings):
    """Return readings by what they measured, without what a cut changes: which run of several, and its environment."""
    return {
        json.dumps([r.benchmark, r.parameters, r.nodes, r.gpus_per_node, r.times_s, r.printed], sort_keys=True)
        for r in readings
    }


# One format in full.


@pytest.mark.parametrize("end", ["\n", "", "\n     1048576        26"])
def test_an_excerpt_is_imported_and_every_row_is_marked(tmp_path, end, wording):
    (tmp_path / "cut.txt").write_text(excerpt(NCCL, 5, end))
    words = ("import_results.py", "cut.txt", "--campaign", "c")
    refused = run_script(*words, cwd=tmp_path)
    assert (refused.returncode, refused.stdout, "--incomplete" in refused.stderr) == (2, "", True)
    assert not (tmp_path / "results").exists()
    done = run_script(*words, "--incomplete", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run_import(tmp_path / "whole", NCCL)
    rows, whole = measurements(tmp_path / "results" / "c"), measurements(tmp_path / "whole").set_index("cell")
    assert len(rows) == 5
    assert set(rows["stop"]) == {f"imported: back-to-back mean{MARK}"}
    for row in rows.itertuples():
        assert (row.status, row.p50_s) == ("ok", whole.loc[row.cell, "p50_s"])
    page = make_report(tmp_path / "results" / "c").read_text(encoding="utf-8")
    wording(re.findall("Incomplete files: [^<]*", page))


def test_a_complete_file_has_no_mark_and_a_record_as_before(tmp_path):
    run_import(tmp_path / "c", NCCL)
    assert set(measurements(tmp_path / "c")["stop"]) == {"imported: back-to-back mean"}
    for record in read_store(tmp_path / "c" / "launches")[0].lines_of("record"):
        assert record["imported"].keys() == {"line", "times_s", "printed"}
    assert "Incomplete files" not in make_report(tmp_path / "c").read_text(encoding="utf-8")


def test_a_file_that_the_user_calls_incomplete_is_marked_even_if_it_is_complete(tmp_path):
    for name in (NCCL, "nccl-per-iteration.json"):
        run_import(tmp_path / name, name, options=Options(is_incomplete=True))
        rows = measurements(tmp_path / name)
        assert rows["stop"].str.endswith(MARK).all()


def test_a_wrong_result_of_an_incomplete_file_is_marked_in_its_cause(tmp_path):
    text = excerpt(NCCL, 5).rstrip("\n")
    (tmp_path / "cut.txt").write_text(text[: text.rindex("0")] + "3\n")
    run_import(tmp_path / "c", tmp_path / "cut.txt", options=Options(is_incomplete=True))
    rows = measurements(tmp_path / "c").sort_values("message_bytes")
    assert list(rows["status"]) == ["ok"] * 4 + ["failed"]
    assert rows["cause"].iloc[4].endswith(MARK)


def test_the_export_says_that_it_does_not_mark_the_rows(tmp_path, wording):
    (tmp_path / "cut.txt").write_text(excerpt(NCCL, 5))
    run_import(tmp_path / "c", tmp_path / "cut.txt", options=Options(is_incomplete=True))
    notes = export_notes(read_results_folder(tmp_path / "c", {}), CSV)
    wording.lines(notes, "5 rows imported")
    assert any("back-to-back mean" in note for note in notes)


def test_a_run_that_ends_before_its_table_is_left_out(tmp_path):
    head = text_of(NCCL).partition("#       size")[0]
    path = tmp_path / "log.txt"
    path.write_text(text_of(NCCL) + head)
    with pytest.raises(UserError, match="add --incomplete"):
        read_import(path, Options())
    assert len(read_import(path, Options(is_incomplete=True)).source.readings) == 31


def test_compare_reads_an_incomplete_file_with_the_option(tmp_path):
    (tmp_path / "cut.txt").write_text(excerpt(NCCL, 5))
    words = ("compare.py", FILES / NCCL, "cut.txt", "--csv", "out.csv")
    assert run_script(*words, cwd=tmp_path).returncode == 2
    done = run_script(*words, "--incomplete", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").read_text().count("\n") == 1 + 5


# All formats.


@pytest.mark.parametrize("name", [name for name in ALL if not name.endswith(".json")])
def test_a_cut_file_gives_some_of_its_rows_and_never_others(name):
    text, whole = text_of(name), plain(read(name).readings)
    num_read, length = 0, len(text)
    for cut in range(length // 3, length, max(1, length // 97)):
        try:
            found = plain(lenient(name, text[:cut]).readings)
        except UserError:
            continue
        assert found <= whole, text[:cut][-80:]
        num_read += 1
    assert num_read > 0


@pytest.mark.parametrize("name", ["osu-allreduce.txt", "all-reduce-bench.txt", "ddp-2x4-gh200.txt", NCCL])
def test_a_table_without_one_of_its_rows_is_an_excerpt(name):
    numbers = sorted(reading.line for reading in read(name).readings)
    gone = numbers[len(numbers) * 3 // 4]
    cut = "\n".join(line for number, line in enumerate(text_of(name).split("\n"), start=1) if number != gone)
    with pytest.raises(UserError):
        read(name, cut)
    assert len(lenient(name, cut).readings) == len(read(name).readings) - 1


def test_mlperf_runs_without_an_end_are_left_out():
    text = text_of("mlperf.log")
    cut = text[: text.rindex("run_stop")]
    cut = cut[: cut.rindex("\n") + 1]
    whole = read("mlperf.log").readings
    assert len(whole) > 1
    assert len(lenient("mlperf.log", cut).readings) == len(whole) - 1


def test_json_that_is_cut_off_is_refused_with_the_option(tmp_path):
    path = tmp_path / "cut.json"
    path.write_text(text_of("nccl-summary.json")[:-20])
    for is_incomplete in (False, True):
        with pytest.raises(UserError, match="invalid JSON") as caught:
            read_import(path, Options(is_incomplete=is_incomplete))
        assert "--incomplete" not in str(caught.value)
