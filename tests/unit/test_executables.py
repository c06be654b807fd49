"""The files that a program runs: what of them is in a cell's id, when cells are measured again, and what plans note."""

import hashlib
import os
import tracemalloc
from pathlib import Path

import pytest
from campaign_files import SLURM, matrix, message, plan, small, write_launch

from regatta.campaign import executables
from regatta.plan.plan import notes
from regatta.runtimes import base

RATE = {"rate": {"match": r"rate: (\S+)", "unit": "GB/s", "better": "larger"}}
LONG_AGO, LATER = 1_700_000_000, 1_900_000_000  # the records of `play` are of 2026-11-21T03:00:00Z


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def put(path: Path, text: str = "#!/bin/sh\necho rate: 1\n", time: int = LONG_AGO) -> Path:
    """Write a program that was last modified at this time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    os.utime(path, (time, time))
    return path


def campaign(command: list, **entry) -> dict:
    changes = {key: entry.pop(key) for key in ("stacks", "repeats") if key in entry}
    entry = {"benchmark": "program", "name": "prog", "command": command, "read": RATE} | entry
    return small(shapes=[{"nodes": [1], "gpus_per_node": [2]}], benchmarks=[entry]) | changes


def files_in_ids(folder: Path, data: dict, cluster: dict | None = None) -> list[dict | None]:
    return [cell.spec.get("executables") for cell in matrix(folder, data, cluster).cells]


def states(made) -> list[tuple[str, str, tuple]]:
    return [(cell.status, cell.reason, cell.repeats) for cell in made.cells]


def test_the_content_of_a_program_with_a_path_is_in_the_id(tmp_path):
    prog = put(tmp_path / "prog")
    assert files_in_ids(tmp_path, campaign([str(prog)])) == [{str(prog): sha256(prog)}]
    builds = campaign([f"{tmp_path}/{{build}}/prog"], parameters={"build": ["a", "b"]})
    a, b = put(tmp_path / "a" / "prog"), put(tmp_path / "b" / "prog", "other")
    assert files_in_ids(tmp_path, builds) == [{str(a): sha256(a)}, {str(b): sha256(b)}]


def test_a_relative_program_is_found_from_the_folder_of_the_command(tmp_path, monkeypatch):
    prog = put(tmp_path / "bin" / "prog")
    monkeypatch.chdir(tmp_path)
    assert files_in_ids(tmp_path, campaign(["bin/prog"])) == [{str(prog): sha256(prog)}]


@pytest.mark.parametrize("word", ["prog", "{tmp}/absent", "{tmp}", "{tmp}/fifo", "{tmp}/scratch/prog", "{tmp}/link"])
def test_what_the_driver_cannot_know_is_in_no_id(tmp_path, monkeypatch, word):
    """A plain name, a file that is not here or is none, and one below node_folders, also behind a link."""
    put(tmp_path / "prog")
    monkeypatch.setenv("PATH", str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(put(tmp_path / "scratch" / "prog"))
    cluster = SLURM | {"node_folders": [str(tmp_path / "scratch")]}
    assert files_in_ids(tmp_path, campaign([word.replace("{tmp}", str(tmp_path))]), cluster) == [None]


def test_a_program_that_may_be_run_but_not_read_is_in_no_id(tmp_path, monkeypatch):
    prog = put(tmp_path / "prog")

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(base, "file_hash", denied)
    assert files_in_ids(tmp_path, campaign([str(prog)])) == [None]


def test_of_an_image_only_a_program_in_a_bind_is_in_the_id(folder, monkeypatch):
    monkeypatch.chdir(folder / "bin")  # the working folder is mounted
    monkeypatch.setenv("HOME", str(folder / "bin"))
    monkeypatch.setenv("BUILD", str(folder / "build"))
    prog = put(folder / "build" / "prog")
    image = {"kind": "contained", "image": str(folder / "a.sif")}
    found = files_in_ids(folder, campaign(["/app/prog"], stacks={"c": image | {"binds": ["$BUILD:/app:ro"]}}))
    assert found == [{str(prog): sha256(prog)}]
    assert files_in_ids(folder, campaign(["/app/prog"], stacks={"c": image})) == [None]
    assert files_in_ids(folder, campaign([str(prog)], stacks={"c": image})) == [None]


def test_what_a_wrapper_starts_is_in_the_id_if_the_entry_depends_on_it(tmp_path):
    prog, library = put(tmp_path / "prog"), put(tmp_path / "a.so", "library")
    data = campaign(
        ["sh", str(prog), "{lib}"], parameters={"lib": ["a"]}, depends=[str(prog), f"{tmp_path}/{{lib}}.so"]
    )
    assert files_in_ids(tmp_path, data) == [{str(library): sha256(library), str(prog): sha256(prog)}]


def test_a_file_that_an_entry_depends_on_must_be_readable_and_its_parameters_known(tmp_path, wording):
    for path in (f"{tmp_path}/absent", f"{tmp_path}/", "{lib}.so"):
        wording(message(tmp_path, campaign(["sh"], depends=[path])))
    wording(message(tmp_path, campaign(["sh"], benchmark="collective", read=None, depends=["a"])))
    made = plan(tmp_path, campaign(["sh"], depends=[f"{tmp_path}/absent"]), may_lack_files=True)
    assert [(missing.stack, missing.is_in_id) for missing in made.campaign.missing] == [(None, True)]
    nodes_only = SLURM | {"node_folders": [str(tmp_path)]}
    assert files_in_ids(tmp_path, campaign(["sh"], depends=[f"{tmp_path}/absent"]), nodes_only) == [None]


def test_a_rebuilt_program_is_measured_again_and_the_earlier_build_is_not(tmp_path, play):
    prog = put(tmp_path / "prog")
    data = campaign([str(prog)])
    play(data)
    put(prog, time=LATER)  # of the same content
    assert states(plan(tmp_path, data)) == [("done", "3 ok", ())]
    put(prog, "rebuilt", LONG_AGO)  # another content of the same age
    assert states(plan(tmp_path, data)) == [("todo", f"changed: {prog}", (0, 1, 2))]
    play(data)
    assert states(plan(tmp_path, data)) == [("done", "3 ok", ())]
    put(prog)
    assert states(plan(tmp_path, data)) == [("done", "3 ok", ())]


@pytest.fixture
def before(monkeypatch):
    """A function that plays a campaign as an earlier version would: no hash is in an id."""

    def before(play, data: dict):
        with monkeypatch.context() as patch:
            patch.setattr(executables, "executables_of", lambda *_: {})
            return play(data)

    return before


def test_cells_of_an_earlier_version_are_kept_if_the_program_is_older_than_their_records(tmp_path, play, before):
    prog = put(tmp_path / "prog")
    data = campaign([str(prog)])
    old = before(play, data)
    made = plan(tmp_path, data)
    assert states(made) == [("done", "3 ok", ())]
    assert made.frozen_campaign == old.frozen_campaign  # so that nothing is collected or reported again
    assert [cell.repeats for cell in plan(tmp_path, data | {"repeats": 5}).cells] == [(3, 4)]
    put(prog, time=LATER)
    assert states(plan(tmp_path, data)) == [("todo", f"changed: {prog}", (0, 1, 2))]


def test_only_the_records_that_the_program_is_newer_than_are_measured_again(tmp_path, before):
    data = campaign([str(put(tmp_path / "prog", time=1_795_300_000))])  # 2026-11-21T22:26:40Z
    (cell,) = before(lambda data: plan(tmp_path, data), data).cells
    for repeat, day in enumerate(("21", "22", "22")):
        record = {"cell": cell.cell.id, "status": "ok", "time_utc": f"2026-11-{day}T03:00:00Z"}
        write_launch(tmp_path / "results" / "small", f"n01g02-0123456789ab-l{repeat:03d}-a00", repeat, [record])
    assert states(plan(tmp_path, data)) == [("todo", f"changed: {tmp_path}/prog", (0,))]


@pytest.mark.parametrize(("size", "repeats"), [(10, ()), (11, (0, 1, 2))])
def test_no_record_of_before_counts_if_a_later_launch_noted_another_file_of_any_age(tmp_path, before, size, repeats):
    prog = put(tmp_path / "prog", "0123456789")
    (cell,) = before(lambda data: plan(tmp_path, data), campaign([str(prog)])).cells
    for repeat in range(3):
        noted = {"path": str(prog), "size_bytes": size, "time_utc": "2023-11-14T22:13:20Z", "ranks": [0]}  # LONG_AGO
        header = {"environment": {"programs": [noted]}} if repeat == 2 else {}
        record = {"cell": cell.cell.id, "status": "ok"}
        write_launch(
            tmp_path / "results" / "small", f"n01g02-0123456789ab-l{repeat:03d}-a00", repeat, [record], **header
        )
    assert [cell.repeats for cell in plan(tmp_path, campaign([str(prog)])).cells] == [repeats]


def test_a_file_that_an_entry_newly_depends_on_is_no_change_if_it_is_older_than_the_records(tmp_path, play):
    prog, data_file = put(tmp_path / "prog"), put(tmp_path / "input", "1")
    play(campaign([str(prog)]))
    data = campaign([str(prog)], depends=[str(data_file)])
    assert states(plan(tmp_path, data)) == [("done", "3 ok", ())]
    put(data_file, "2", LATER)
    assert states(plan(tmp_path, data)) == [("todo", f"changed: {data_file}", (0, 1, 2))]


def test_a_program_is_read_in_pieces_and_only_once(tmp_path, monkeypatch):
    prog = put(tmp_path / "prog")
    os.truncate(prog, 64 * 2**20)
    os.utime(prog, (LONG_AGO, LONG_AGO))
    num, digest = [], hashlib.file_digest
    monkeypatch.setattr(base.hashlib, "file_digest", lambda *args: num.append(1) or digest(*args))
    tracemalloc.start()
    found = files_in_ids(tmp_path, campaign([str(prog), "{n}"], parameters={"n": [1, 2, 3]}))
    assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    tracemalloc.stop()
    assert len(found) == 3
    assert len(num) == 1


def test_a_program_that_cannot_be_read_here_is_noted(tmp_path, wording):
    wording([note for note in notes(plan(tmp_path, campaign([f"{tmp_path}/absent"]))) if "absent" in note])
    put(tmp_path / "prog")
    assert not [note for note in notes(plan(tmp_path, campaign([f"{tmp_path}/prog"]))) if "prog," in note]


NOTED = {"path": "/usr/bin/prog", "size_bytes": 10, "time_utc": "2026-01-01T00:00:00Z", "ranks": [0, 1]}


@pytest.mark.parametrize(
    ("programs", "present", "num_notes"),
    [
        ([NOTED, NOTED], None, 0),
        ([NOTED, NOTED | {"size_bytes": 11}], None, 1),  # two launches ran two files
        ([NOTED], ("other", LATER), 1),  # the file that would run now
        ([], ("other", LATER), 0),  # of earlier versions: unknown
        ([{"path": 1}, "no entry"], None, 0),  # damaged
    ],
)
def test_a_change_of_a_program_without_path_is_noted(tmp_path, monkeypatch, wording, programs, present, num_notes):
    monkeypatch.setenv("PATH", str(tmp_path))
    if present:
        put(tmp_path / "prog", *present)
    data = campaign(["prog"])
    (cell,) = plan(tmp_path, data).cells
    for repeat in range(3):
        environment = {"programs": [programs[min(repeat, len(programs) - 1)]] if programs else []}
        name, record = f"n01g02-0123456789ab-l{repeat:03d}-a00", {"cell": cell.cell.id, "status": "ok"}
        write_launch(tmp_path / "results" / "small", name, repeat, [record], environment=environment)
    made = plan(tmp_path, data)
    assert states(made) == [("done", "3 ok", ())]
    found = [note for note in notes(made) if "prog" in note]
    assert len(found) == num_notes
    wording(found)


def test_plans_of_cells_with_equal_programs_keep_stacks_together_and_compare_them(folder):
    """The host's stack has the program's hash, the image's has none: they are compared all the same."""
    prog = put(folder / "prog")
    stacks = {"host": {"kind": "host"}, "image": {"kind": "contained", "image": str(folder / "a.sif")}}
    found = matrix(folder, campaign([str(prog)], stacks=stacks)).cells
    assert len({cell.twin_key for cell in found}) == 1
    assert "executables" not in found[0].fields
