"""Damage of a finished results folder: it is named with file and line, and what it cost is measured again; nothing else."""

import itertools
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from campaign_files import collectives, plan
from synthetic import LAPTOP, laptop_campaign, write_results
from typed import collect

import warm_start
from regatta.core.errors import USER_ERROR, UserError
from regatta.core.files import check_folders
from regatta.plan.plan import plan_json, tidy_frozen
from regatta.store.checksums import is_intact, sealed_file
from regatta.store.history import read_history
from regatta.store.launch_files import (
    Tail,
    append_launch_line,
    launch_paths,
    parse_launch_file,
    read_launch_file,
    read_one_line,
)
from regatta.workflow import FOLDERS

SIZES = (4, 8, 16)
LINES = [
    {"kind": "launch", "launch": "l0", "repeat": 0, "stack": "host", "time_utc": "2026-11-21T03:00:00Z"},
    {"kind": "start", "cell": "a", "note": "J*"},  # one bit from a line feed
    {"kind": "record", "cell": "a", "status": "ok", "samples_ns": [[1234, 5678]], "note": "J*"},
    {"kind": "start", "cell": "b"},
    {"kind": "record", "cell": "b", "status": "ok", "samples_ns": [[4321]]},
    {"kind": "complete", "elapsed_ns": 5},
]
WHOLE = sealed_file(LINES, "l0")
ADDED = ("line", "checksum", "digest")
NAMED = re.compile(r"l0\.jsonl: (line \d|1 line missing|no readable launch)")


def read(tmp_path, content: bytes, name: str = "l0"):
    (tmp_path / f"{name}.jsonl").write_bytes(content)
    return read_launch_file(tmp_path / f"{name}.jsonl")


def recorded(launch_file) -> list[str]:
    return [line["cell"] for _, line in launch_file.lines if line["kind"] == "record"]


# The file.


def test_an_undamaged_file_has_no_problem_and_passes_with_one_hash(tmp_path):
    found = read(tmp_path, WHOLE)
    assert (found.problems, found.is_checked, recorded(found)) == ([], True, ["a", "b"])
    assert is_intact("l0", WHOLE)
    assert not is_intact("l0", WHOLE[:-1])
    assert not is_intact("l1", WHOLE)


def test_each_flipped_bit_is_found_and_costs_at_most_the_lines_that_it_is_in(tmp_path):
    for place, bit in itertools.product(range(len(WHOLE)), range(8)):
        changed = bytearray(WHOLE)
        changed[place] ^= 1 << bit
        content = bytes(changed)
        assert not is_intact("l0", content)
        found = parse_launch_file(tmp_path / "l0.jsonl", content)
        assert found.problems
        assert all(NAMED.match(problem) for problem in found.problems), found.problems
        first, cost = WHOLE[:place].count(b"\n"), 2 if WHOLE[place] == ord("\n") else 1
        undamaged = LINES[:first] + LINES[first + cost :]
        kept = [{k: v for k, v in line.items() if k not in ADDED} for _, line in found.lines]
        assert all(line in kept for line in undamaged), (place, bit)


def test_a_changed_digit_is_named_with_its_line(tmp_path, wording):
    found = read(tmp_path, WHOLE.replace(b"5678", b"5679"))
    wording(found.problems)
    assert recorded(found) == ["b"]
    assert read_one_line(tmp_path / "l0.jsonl", 3) is None
    assert [number for number, _ in Tail(tmp_path / "l0.jsonl").read()] == [1, 2, 4, 5, 6]


def test_a_removed_line_is_named_and_the_others_are_used(tmp_path, wording):
    lines = WHOLE.splitlines(keepends=True)
    found = read(tmp_path, b"".join(lines[:1] + lines[3:]))
    wording(found.problems)
    assert recorded(found) == ["b"]


def test_a_line_that_was_copied_is_used_once(tmp_path, wording):
    lines = WHOLE.splitlines(keepends=True)
    found = read(tmp_path, b"".join([*lines[:3], lines[2], *lines[3:]]))
    wording(found.problems[0])
    assert recorded(found).count("a") == 1


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(len(LINES)), 2)))
def test_lines_in_another_order_are_named_and_used(tmp_path, first, second):
    lines = WHOLE.splitlines(keepends=True)
    lines[first], lines[second] = lines[second], lines[first]
    found = read(tmp_path, b"".join(lines))
    assert sorted(recorded(found)) == ["a", "b"]
    assert found.header is not None
    assert found.problems


def test_a_line_of_another_launch_is_not_used(tmp_path, wording):
    lines, others = WHOLE.splitlines(keepends=True), sealed_file(LINES, "l1").splitlines(keepends=True)
    found = read(tmp_path, b"".join([*lines[:4], others[4], lines[5]]))
    wording(found.problems)
    assert recorded(found) == ["a"]


@pytest.mark.parametrize("content", [WHOLE, b"".join(json.dumps(line).encode() + b"\n" for line in LINES)])
def test_a_file_with_the_name_of_another_launch_is_not_used(tmp_path, content, wording):
    found = read(tmp_path, content, "l1")
    wording(found.problems)
    assert (found.header, found.lines) == (None, [])


def test_a_line_that_lost_its_checksum_is_damaged_and_a_file_without_any_is_of_an_earlier_version(tmp_path, wording):
    lines = WHOLE.splitlines(keepends=True)
    lines[2] = json.dumps(LINES[2]).encode() + b"\n"
    wording(read(tmp_path, b"".join(lines)).problems)
    old = read(tmp_path, b"".join(json.dumps(line).encode() + b"\n" for line in LINES))
    assert (old.problems, old.is_checked, recorded(old)) == ([], False, ["a", "b"])


def test_a_launch_that_was_killed_in_a_line_is_continued_by_the_driver(tmp_path, wording):
    path = tmp_path / "l0.jsonl"
    path.write_bytes(b"".join(WHOLE.splitlines(keepends=True)[:4]) + b'{"kind":"rec')
    append_launch_line(path, LINES[4])
    found = read_launch_file(path)
    assert recorded(found) == ["a", "b"]
    wording(found.problems)
    old = tmp_path / "l1.jsonl"
    old.write_bytes(b'{"kind":"start","cell":"a"}\n')
    append_launch_line(old, {"kind": "stopped"})
    assert old.read_bytes().endswith(b'\n{"kind":"stopped"}\n')  # all lines or none have checksums


# The folder: plan and tables.


@pytest.fixture
def results(tmp_path, play):
    """A finished campaign: three cells, three launches."""
    play(collectives(*SIZES))
    return tmp_path / "results" / "small"


def left(tmp_path) -> dict[int, tuple[int, ...]]:
    """Return the repeats that are planned to be measured, by the message size of their cell."""
    made = plan(tmp_path, collectives(*SIZES))
    assert not any(p.reason == "new" for p in made.cells)
    return {p.cell.spec["parameters"]["message_bytes"]: p.repeats for p in made.cells if p.repeats}


def tables(results):
    """Return what the tables have not measured, and the damage that they name."""
    frozen = json.loads(next(results.glob("campaign.*.json")).read_text())
    collected, problems = collect(frozen, results / "launches")
    rows = collected["measurements"]
    rows = rows[rows["status"] == "not_measured"]
    return sorted((int(row.message_bytes), int(row.repeat)) for row in rows.itertuples()), problems


def line_of(path, kind, size=None) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    return next(
        line
        for line in lines
        if f'"kind":"{kind}"'.encode() in line and (size is None or b"_reduce-%d-" % size in line)
    )


def replace(path, old: bytes, new: bytes):
    """Change a file without changing its size or time stamps."""
    before, content = path.stat(), path.read_bytes()
    assert (len(old), content.count(old)) == (len(new), 1)
    path.write_bytes(content.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def file_of(results, repeat):
    return results / "launches" / f"{next((results / 'batches').iterdir()).name}-l{repeat:03d}-a00.jsonl"


def zero_a_record(results):
    path = file_of(results, 1)
    record = line_of(path, "record", 8)
    replace(path, record[20:-20], bytes(len(record) - 40))
    return {8: (1,)}


def change_a_digit(results):
    path = file_of(results, 1)
    record = line_of(path, "record", 8)
    replace(path, record, record.replace(b"[[1000],", b"[[1001],"))
    return {8: (1,)}


def change_the_repeat(results):
    path = file_of(results, 1)
    first = line_of(path, "launch")
    replace(path, first, first.replace(b'"repeat":1', b'"repeat":2'))
    return dict.fromkeys(SIZES, (1,))


def remove_a_record(results):
    path = file_of(results, 1)
    path.write_bytes(path.read_bytes().replace(line_of(path, "record", 16), b""))
    return {16: (1,)}


def exchange_two_files(results):
    first, second = file_of(results, 0), file_of(results, 2)
    other = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(other)
    return dict.fromkeys(SIZES, (0, 2))


def restore_an_older_copy(results):
    path = file_of(results, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    kept = next(size for size in SIZES if b"_reduce-%d-" % size in lines[2])
    return {size: (1,) for size in SIZES if size != kept}


def copy_a_record_over_another(results):
    path = file_of(results, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    (first, second) = (
        index for index, line in enumerate(lines) if line in (line_of(path, "record", 4), line_of(path, "record", 8))
    )
    assert len(lines[first]) == len(lines[second])
    lost = 8 if b"_reduce-8-" in lines[second] else 4
    lines[second] = lines[first]
    path.write_bytes(b"".join(lines))
    return {lost: (1,)}


def remove_a_file(results):
    file_of(results, 1).unlink()
    return dict.fromkeys(SIZES, (1,))


def empty_a_file(results):
    file_of(results, 1).write_bytes(b"")
    return dict.fromkeys(SIZES, (1,))


def put_a_link_to_another_in_its_place(results):
    file_of(results, 1).unlink()
    file_of(results, 1).symlink_to(file_of(results, 0).name)
    return dict.fromkeys(SIZES, (1,))


DAMAGES = [
    zero_a_record,
    change_a_digit,
    change_the_repeat,
    remove_a_record,
    exchange_two_files,
    restore_an_older_copy,
    copy_a_record_over_another,
    remove_a_file,
    empty_a_file,
    put_a_link_to_another_in_its_place,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_in_plan_and_tables_and_exactly_what_it_cost_is_measured_again(tmp_path, results, play, damage):
    expected = damage(results)
    assert left(tmp_path) == expected
    slots = sorted((size, repeat) for size, repeats in expected.items() for repeat in repeats)
    not_measured, problems = tables(results)
    assert not_measured == slots
    name = file_of(results, slots[0][1]).name
    notes = plan_json(plan(tmp_path, collectives(*SIZES)))["notes"]
    assert any(note.startswith(name) for note in notes)
    assert any(problem.startswith(name) for problem in problems["corrupt"])
    reasons = [p.reason for p in plan(tmp_path, collectives(*SIZES)).cells if p.repeats]
    assert all("damaged" in reason and ".jsonl" in reason for reason in reasons)
    before = {path: path.read_bytes() for path in (results / "launches").iterdir() if path.is_file()}
    play(collectives(*SIZES))
    assert left(tmp_path) == {}
    assert tables(results)[0] == []
    assert {path: path.read_bytes() for path in before} == before


def test_a_file_of_an_earlier_version_is_read_counted_and_not_warned_of(tmp_path, results):
    for path in (results / "launches").iterdir():
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        plain = [{k: v for k, v in line.items() if k not in ("line", "checksum", "digest")} for line in lines]
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in plain))
        manifest = next((results / "batches").glob("*/manifest.json"))
        content = json.loads(manifest.read_text())
        entry = next(entry for entry in content["launches"] if entry["launch"] == path.stem)
        entry["size_bytes"] = path.stat().st_size
        manifest.write_text(json.dumps(content))
    assert left(tmp_path) == {}
    not_measured, problems = tables(results)
    assert (not_measured, problems["corrupt"], problems["num_unchecked"]) == ([], [], 3)
    assert not any(".jsonl" in note for note in plan_json(plan(tmp_path, collectives(*SIZES)))["notes"])
    path = file_of(results, 1)  # what can be seen without checksums
    record = line_of(path, "record", 8)
    replace(path, record[20:-20], bytes(len(record) - 40))
    assert left(tmp_path) == {8: (1,)}


def lose_a_record(manifest):
    manifest["launches"][0]["records"].pop()


def add_a_record(manifest):
    manifest["launches"][0]["records"].append(manifest["launches"][0]["records"][0] | {"cell": "x"})


EDITS = [
    lambda manifest: manifest["launches"][0]["records"][0].update(status="xx"),
    lambda manifest: manifest["launches"][0]["records"][0].update(status="failed"),
    lambda manifest: manifest["launches"][0]["records"][0].update(cell="x"),
    lambda manifest: manifest["launches"][0].update(repeat=7),
    lose_a_record,
    add_a_record,
    lambda manifest: manifest["launches"].pop(),
]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_manifest_does_not_decide(results, edit):
    manifest = next((results / "batches").glob("*/manifest.json"))
    content = json.loads(manifest.read_text())
    edit(content)
    manifest.write_text(json.dumps(content))
    assert len(read_history(results).slots) == 9
    assert {slot.status for slot in read_history(results).slots.values()} == {"ok"}
    assert tables(results)[0] == []


# The folder as a whole.


def test_a_folder_is_empty_only_where_nothing_ran(tmp_path, wording):
    assert launch_paths(tmp_path / "launches") == []
    (tmp_path / "launches").symlink_to("nowhere")
    with wording.raises(UserError):
        launch_paths(tmp_path / "launches")
    (tmp_path / "launches").unlink()
    (tmp_path / "launches").write_text("")
    with wording.raises(UserError):
        launch_paths(tmp_path / "launches")


def test_a_store_that_is_missing_although_batches_were_finished_stops_the_plan(tmp_path, results, wording):
    shutil.rmtree(results / "launches")
    with wording.raises(UserError):
        plan(tmp_path, collectives(*SIZES))


def test_a_store_that_is_missing_is_not_shown_as_complete(results):
    shutil.rmtree(results / "launches")
    done = warm_start.script("watch.py", "--once", results)
    assert (done.returncode, done.stdout) == (USER_ERROR, "")


SCRIPT_LINES = {
    "collect": "collect.py --campaign {frozen} --launches {launches} --out {folder}/measurements.csv",
    "analyse": "analyse.py --campaign {frozen} --launches {launches} --measurements {folder}/measurements.csv"
    " --out-dir {folder}/tables",
    "report": "report.py --campaign {frozen} --measurements {folder}/measurements.csv --tables {folder}/tables"
    " --launches {launches} --out {folder}/report.html",
}


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    folder = write_results(tmp_path_factory.mktemp("analysed") / "r", laptop_campaign(), LAPTOP)
    warm_start.script("rebuild_report.py", folder, check=True)
    return folder


def content_of(folder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts}


@pytest.mark.parametrize("launches", ["missing", "/dev/null", "{folder}/measurements.csv"])
@pytest.mark.parametrize("script", SCRIPT_LINES)
def test_what_is_no_store_ends_each_step_with_status_2_and_changes_nothing(analysed, script, launches):
    before = content_of(analysed)
    words = {"folder": analysed, "frozen": next(analysed.glob("campaign.*.json"))}
    words["launches"] = launches.format(**words)
    name, *arguments = SCRIPT_LINES[script].format(**words).split()
    done = warm_start.script(name, *arguments)
    assert (done.returncode, done.stdout) == (USER_ERROR, "")
    assert done.stderr.startswith(f"{words['launches']}: ")
    assert content_of(analysed) == before


@pytest.mark.parametrize("mode", [0o000, 0o333])
def test_a_store_that_may_not_be_read_is_never_replaced_by_an_empty_one(analysed, mode, wording):
    before = content_of(analysed)
    (analysed / "launches").chmod(mode)
    done = warm_start.script("rebuild_report.py", analysed, prepare=warm_start.heed_permissions)
    (analysed / "launches").chmod(0o755)
    assert done.returncode == USER_ERROR
    wording.lines(done.stderr, "/launches: cannot be")
    assert content_of(analysed) == before


def test_a_launch_file_that_may_not_be_read_is_named_and_the_others_count(tmp_path):
    folder = write_results(tmp_path / "r", laptop_campaign(), LAPTOP)
    first = min((folder / "launches").iterdir())
    first.chmod(0o000)
    done = warm_start.script("rebuild_report.py", folder, prepare=warm_start.heed_permissions)
    first.chmod(0o644)
    assert (done.returncode, done.stdout) == (0, f"{folder}/report.html\n")
    assert done.stderr.startswith(f"{folder}/launches: {first.name}: ")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_in_place_of_a_folder_is_one_message(tmp_path, name, wording):
    (tmp_path / name).write_text("")
    with wording.raises(UserError):
        check_folders(tmp_path, FOLDERS)


# The frozen campaign.


@pytest.mark.parametrize("edit", [lambda text: text[:-200], lambda text: text.replace('"repeats": 3', '"repeats": 2')])
def test_a_damaged_or_edited_frozen_campaign_is_written_again(tmp_path, results, edit, wording):
    [frozen] = results.glob("campaign.*.json")
    whole = frozen.read_text()
    frozen.write_text(edit(whole))
    assert frozen.read_text() != whole
    [done] = tidy_frozen(plan(tmp_path, collectives(*SIZES)))
    wording(done)
    assert frozen.read_text() == whole
    assert tidy_frozen(plan(tmp_path, collectives(*SIZES))) == []


def test_a_second_frozen_campaign_is_removed(tmp_path, results, wording):
    [frozen] = results.glob("campaign.*.json")
    second = results / "campaign.000000000000.json"
    shutil.copy(frozen, second)
    wording(tidy_frozen(plan(tmp_path, collectives(*SIZES))))
    assert [*results.glob("campaign.*.json")] == [frozen]
