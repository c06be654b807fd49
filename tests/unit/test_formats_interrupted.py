"""Imports that were killed or run concurrently, and folders and files that no longer are as an import left them."""

import json
import os
import shutil

import pytest
from formats_files import FILES, collected, content_of, run_import, run_script, text_of
from synthetic import write_lines

from regatta.core.errors import UserError
from regatta.core.files import hold
from regatta.formats import importer as store_import
from regatta.formats.base import Options

TABLE = "ddp-2x8-v100.txt"


def launches_of(folder):
    return sorted((folder / "launches").glob("*.jsonl"))


# --- Killed


DAMAGES = {
    "cut short": lambda text: text[:-40],
    "changed": lambda text: text.replace(b'"repeat":0', b'"repeat":1', 1),
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_with_a_damaged_launch_file_is_refused_until_it_is_deleted(tmp_path, damage, wording):
    run_import(tmp_path / "c", TABLE)
    before = content_of(tmp_path / "c")
    path = launches_of(tmp_path / "c")[1]
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with wording.raises(UserError):
        run_import(tmp_path / "c", TABLE)
    shutil.rmtree(tmp_path / "c")
    run_import(tmp_path / "c", TABLE)
    assert content_of(tmp_path / "c") == before


def test_a_folder_without_one_launch_of_a_file_is_refused_so_that_no_repeat_is_given_twice(tmp_path, wording):
    run_import(tmp_path / "c", TABLE)
    launches_of(tmp_path / "c")[0].unlink()
    before = content_of(tmp_path / "c")
    with wording.raises(UserError):
        run_import(tmp_path / "c", "times.csv")
    assert content_of(tmp_path / "c") == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
def test_an_import_that_is_stopped_takes_back_what_it_wrote_and_leaves_the_campaign(tmp_path, monkeypatch, error):
    run_import(tmp_path / "c", "times.csv")
    before = content_of(tmp_path / "c")

    def write_json(path, value):
        raise error

    monkeypatch.setattr(store_import, "write_json", write_json)
    with pytest.raises(error):
        run_import(tmp_path / "c", TABLE)
    assert content_of(tmp_path / "c") == before


# --- At the same time


def test_a_second_import_into_a_campaign_is_refused_while_one_runs_and_works_behind_it(tmp_path, wording):
    with hold(tmp_path / ".c.import.lock", "taken"):
        with wording.raises(UserError):
            run_import(tmp_path / "c", "times.csv")
        assert not (tmp_path / "c").exists()
        run_import(tmp_path / "d", "times.csv")
    run_import(tmp_path / "c", "times.csv")


def test_the_lock_is_held_until_the_campaign_is_written(tmp_path, monkeypatch):
    refused, write_json = [], store_import.write_json

    def meanwhile(path, value):
        with pytest.raises(UserError, match="another import"):
            run_import(tmp_path / "c", "times.csv")
        refused.append(path)
        write_json(path, value)

    monkeypatch.setattr(store_import, "write_json", meanwhile)
    run_import(tmp_path / "c", TABLE)
    assert [path.name.partition(".")[0] for path in refused] == ["campaign"]


# --- Names and files that are none


def test_a_campaign_name_cannot_lead_out_of_the_results_folder(tmp_path, wording):
    for name in ("../esc", str(tmp_path / "esc"), ".", "", "a/b", "..", "a\n"):
        with wording.raises(UserError):
            store_import.campaign_folder(tmp_path / "results", name)
    assert store_import.campaign_folder(tmp_path, "v1.0-a_b") == tmp_path / "v1.0-a_b"
    done = run_script("import_results.py", FILES / "times.csv", "--campaign", "../esc", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    wording.lines(done.stderr, "--campaign '../esc': a")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_refused_and_not_waited_for(tmp_path, wording):
    os.mkfifo(tmp_path / "pipe")
    done = run_script("import_results.py", "pipe", "--campaign", "c", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    wording(done.stderr)


# --- Own files that were damaged


@pytest.mark.parametrize("missing", ["sha256", "device", "num_launches", "stack"])
def test_an_imported_launch_line_that_lacks_something_is_one_message(tmp_path, missing, wording):
    run_import(tmp_path / "c", "times.csv")
    path = launches_of(tmp_path / "c")[0]
    header, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    (header if missing == "device" else header["imported"]).pop(missing)
    write_lines(path, [header, *lines])
    with wording.raises(UserError):
        run_import(tmp_path / "c", "osu-bw.txt")


@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
def test_a_frozen_campaign_that_is_damaged_is_one_message(tmp_path, text, wording):
    run_import(tmp_path / "c", "times.csv")
    next((tmp_path / "c").glob("campaign.*.json")).write_text(text, encoding="utf-8")
    with wording.raises(UserError):
        run_import(tmp_path / "c", "times.csv")


def test_a_frozen_campaign_that_was_deleted_is_written_again(tmp_path):
    run_import(tmp_path / "c", TABLE)
    before = content_of(tmp_path / "c")
    next((tmp_path / "c").glob("campaign.*.json")).unlink()
    run_import(tmp_path / "c", TABLE)
    assert content_of(tmp_path / "c") == before


# --- Values that no later step can read


def suite(parameters=None, **entry):
    own = {"model": "resnet18", "batch_size": 8, "strategy": "ddp", "step_time_ms": 3.0}
    return {
        "world_size": 1,
        "config": {"device": "cpu"},
        "results": {"training": {"a": own | {"parameters": parameters or {}} | entry}},
    }


@pytest.mark.parametrize(
    "report",
    [
        suite({"image_size": "<b>x"}),
        suite({"image_size": 224.5}),
        suite({"image_size": True}),
        suite({"image_size": 2**63}),
        suite({"image_size": -1}),
        suite({"bucket_cap_mb": "x"}),
        suite({"bucket_cap_mb": True}),
        suite({"compile": "yes"}),
        suite({"optimizer": 7}),
        suite({"optimizer": ""}),
        suite(model="a\0b"),
        suite(model="a\nb"),
        suite(model="\ud800"),
        suite(model="x" * 201),
        suite(strategy=" "),
        suite() | {"config": {"device": "cpu", "backend": "gl\x1boo"}},
        suite(samples_per_second=10**400),
    ],
)
def test_a_value_that_no_table_can_hold_is_refused(tmp_path, report, wording):
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    with wording.raises(UserError) as raised:
        run_import(tmp_path / "c", path)
    str(raised.value).encode()
    assert not (tmp_path / "c").exists()


def test_values_of_the_right_kind_are_taken_over(tmp_path):
    path = tmp_path / "suite.json"
    given = {"image_size": 64.0, "bucket_cap_mb": 2.5, "compile": True, "optimizer": "adamw"}
    path.write_text(json.dumps(suite(given, model="modèle-1")), encoding="utf-8")
    run_import(tmp_path / "c", path)
    row = collected(tmp_path / "c")[1]["measurements"].iloc[0]
    assert (row["image_size"], row["bucket_cap_mb"], row["compile"], row["optimizer"]) == (64, 2.5, True, "adamw")
    assert row["model"] == "modèle-1"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"step_time_ms": 3.0', '"step_time_ms": 1e400', "step_time_ms = 1e400"),
        ('"step_time_ms": 3.0', '"step_time_ms": 3.0, "step_time_ms": 4.0', "key 'step_time_ms' is duplicated"),
    ],
)
def test_json_that_means_two_things_or_nothing_is_refused(tmp_path, old, new, message):
    path = tmp_path / "suite.json"
    text = json.dumps(suite())
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        run_import(tmp_path / "c", path)


def test_a_version_that_is_no_text_of_one_line_cannot_spoil_the_store(tmp_path):
    report = json.loads(text_of("ddp-2x4.json")) | {"pytorch_version": "2\ud800\n.1"}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    run_import(tmp_path / "c", path, options=Options(gpus_per_node=4))
    header = json.loads(launches_of(tmp_path / "c")[0].read_text(encoding="utf-8").partition("\n")[0])
    assert header["environment"]["torch"] == "2\ufffd .1"


@pytest.mark.parametrize("number", ["0.0_260", "٠.٠٢٦٠", "0x1p-5", "1_0", "inf", "nan", "-1", "1e999", "."])
def test_a_number_of_a_csv_has_ascii_digits_and_no_underscores(tmp_path, number, wording):
    path = tmp_path / "x.csv"
    text = text_of("times.csv")
    assert ",0.0260" in text
    path.write_text(text.replace(",0.0260", f",{number}", 1), encoding="utf-8")
    with wording.raises(UserError):
        run_import(tmp_path / "c", path)
    path.write_text(text.replace("2,4,nccl,cuda,0.0260", "1_0,4,nccl,cuda,0.0260", 1), encoding="utf-8")
    with wording.raises(UserError):
        run_import(tmp_path / "c", path)
