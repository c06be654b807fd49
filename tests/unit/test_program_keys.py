"""Campaigns with any program: cells, their identity, command lines, units, and what is refused."""

import contextlib
import dataclasses
import json
import os
import shlex
from pathlib import Path

import pytest
import yaml
from campaign_files import HOSTILE, SLURM, TEXT, fake_sif, load, matrix, message, plan, program, small, write_launch
from synthetic import make_campaign
from typed import cell_pairs

from regatta.campaign import program_entries as programs
from regatta.core import recorded_times
from regatta.core.benchmarks import load_benchmark, undeclared
from regatta.core.errors import UserError
from regatta.core.readers import Quantity, parse_reader, read_quantities
from regatta.core.text import with_values
from regatta.launchers import launch_argv, program_words
from regatta.model.frozen import fields_to_json, names_by_id
from regatta.model.launches import LaunchRequest
from regatta.plan.plan import launch_lines
from regatta.plan.plan_page import workload_hours
from regatta.run import program_launches as runs
from regatta.store.history import summarize
from regatta.store.launch_files import read_launch_file
from regatta.store.records import problem_of
from regatta.tables.counterparts import match_key

RATE = {"match": r"rate: (\S+)", "unit": "Gflop/s", "better": "larger"}
ENTRY = {
    "benchmark": "program",
    "name": "hpl",
    "command": ["xhpl", "-n", "{n}", "{world_size}"],
    "files": {"HPL.dat": "FOLDER/hpl.dat.in"},
    "parameters": {"n": [1000, 2000], "nb": [192]},
    "read": {"rate": RATE},
    "check": {"match": "PASSED"},
}


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "hpl.dat.in").write_text("{n} Ns\n{nb} NBs {unknown}\n")
    return tmp_path


def campaign(folder: Path, *entries: dict, **changes) -> dict:
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    entries = [json.loads(json.dumps(ENTRY | entry).replace("FOLDER", str(folder))) for entry in entries or ({},)]
    entries = [{key: value for key, value in entry.items() if value is not None} for entry in entries]
    return small(shapes=shapes, benchmarks=entries) | changes


def ids_of(folder: Path, entry: dict, **changes) -> list[str]:
    return [cell.cell.id for cell in plan(folder, campaign(folder, entry, **changes)).cells]


@pytest.mark.parametrize(
    ("when", "kept"),
    [
        ({"n": 1000}, ["n 2000, nb 192"]),
        ({"n": [1000, 2000], "world_size": 2}, []),
        ({"n": 1000, "nb": 256}, ["n 1000, nb 192", "n 2000, nb 192"]),
        ({"benchmark": "program", "n": "2000"}, ["n 1000, nb 192"]),
    ],
)
def test_cells_are_excluded_by_the_names_of_their_parameters(folder, when, kept):
    found = plan(folder, campaign(folder, exclude=[{"when": when, "reason": "too slow"}])).cells
    assert [cell.cell.parameters["settings"] for cell in found] == kept


def test_quantities_of_one_run_share_its_price(folder):
    """Two runs of at most 60 s, each with two quantities, 3 launches, on 2 ranks."""
    found = plan(folder, campaign(folder, {"read": {"rate": RATE, "other": RATE}}, limits={"cell_seconds": 60}))
    assert [cell.seconds for cell in found.cells] == [30, 30, 30, 30]
    [workload] = workload_hours(found.cells, names_by_id([cell.cell for cell in found.cells]))
    assert workload["gpu_hours"] == pytest.approx(2 * 60 * 3 * 2 / 3600)


def test_an_unknown_parameter_in_exclude_is_refused_with_the_known_ones(folder, wording):
    wording(message(folder, campaign(folder, exclude=[{"when": {"nn": 1}, "reason": "too slow"}])))


def test_programs_need_no_backend_and_ids_are_those_of_the_devices_usual_one(folder):
    data = campaign(folder)
    del data["backend"]
    assert [cell.cell.id for cell in plan(folder, data).cells] == ids_of(folder, {}, backend=["gloo"])
    data["benchmarks"].append({"benchmark": "collective", "parameters": {"operation": ["barrier"]}})
    assert "lacks backend" in message(folder, data)


def test_versus_and_baseline_accept_the_names_of_parameters(folder, wording):
    found = matrix(folder, campaign(folder, versus={"axis": "n", "reference": 2000}, baseline={"n": 1000}))
    assert found.notes == []
    frozen = make_campaign([cell.frozen().to_json() for cell in found.cells], versus={"axis": "n", "reference": "2000"})
    (pair,) = cell_pairs(frozen)
    assert [cell.parameters["settings"] for cell in (pair.reference, pair.other)] == [
        "n 2000, nb 192",
        "n 1000, nb 192",
    ]
    assert load(folder, campaign(folder, versus={"axis": "n", "reference": 2000})).data["versus"]["reference"] == "2000"
    for wrong in ({"versus": "nn"}, {"versus": {"axis": "n", "reference": 3}}, {"baseline": {"nn": 1}}):
        wording(message(folder, campaign(folder, **wrong)))


def test_the_points_of_an_entry_are_cells(folder):
    cells = [cell.cell for cell in plan(folder, campaign(folder)).cells]
    assert [cell.spec["parameters"] for cell in cells] == [
        {"program": "hpl", "settings": "n 1000, nb 192", "reported_quantity": "rate (flop/s)"},
        {"program": "hpl", "settings": "n 2000, nb 192", "reported_quantity": "rate (flop/s)"},
    ]
    spec = cells[0].spec
    assert programs.command_of(spec, {}) == ["xhpl", "-n", "1000", "2"]
    assert spec["sampling"] is None
    text = with_values(spec["program"]["files"]["HPL.dat"], programs.values_of(spec, "x"))
    assert text == "1000 Ns\n192 NBs {unknown}\n"
    words = ["--nproc-per-node=2", "--label", "--no-python", "xhpl", "-n", "1000", "2"]
    assert shlex.split(cells[0].command)[-7:] == words


CHANGES = {
    "command": ["xhpl", "-m", "{n}", "{world_size}"],
    "parameters": {"n": [1001, 2000], "nb": [192]},
    "ranks": "node",
    "files": {"HPL.txt": "FOLDER/hpl.dat.in"},
    "read": {"rate": RATE | {"unit": "Mflop/s"}},
    "check": {"match": "passed"},
}


@pytest.mark.parametrize("key", CHANGES)
def test_an_id_covers_what_can_change_the_result(folder, key):
    before = ids_of(folder, {})
    assert ids_of(folder, {}) == before
    assert ids_of(folder, {key: CHANGES[key]})[0] not in before


def test_an_id_covers_the_text_of_files_and_no_sampling(folder):
    before = ids_of(folder, {})
    assert ids_of(folder, {"cell_seconds": 3}, sampling={"max_seconds": 77}) == before
    (folder / "hpl.dat.in").write_text("{n} {nb} edited\n")
    assert not set(ids_of(folder, {})) & set(before)


def test_cells_of_two_campaigns_match_if_they_have_the_same_quantity(folder):
    def key(**read) -> str:
        (entry,) = campaign(folder, {"read": {"rate": RATE | read}, "parameters": {"n": [1]}})["benchmarks"]
        return match_key(matrix(folder, campaign(folder, entry | {"files": {}})).cells[0])

    assert key() == key(unit="Mflop/s", match="x")
    assert key() != key(unit="GB/s")
    assert key() != key(unit="s", better="smaller")


def test_no_word_passes_through_a_shell(folder):
    words = [word for word in HOSTILE if word and "{" not in word and word != "$HOME"]
    entry = {
        "command": ["xhpl", *words, "{n}", "{nb}"],
        "parameters": {"n": [w for w in words if "\n" not in w], "nb": [1]},
    }
    for cell in (cell.cell for cell in plan(folder, campaign(folder, entry)).cells):
        value = cell.spec["program"]["parameters"]["n"]
        assert programs.command_of(cell.spec, {}) == ["xhpl", *words, value, "1"]
        assert shlex.split(cell.command)[-len(words) - 3 :] == ["xhpl", *words, value, "1"]


def line_of(cell, folder: Path) -> list[str]:
    """Return the line of a launch of a cell on n1, n2."""
    place, meeting = programs.geometry_of(cell.spec, cell.cluster), {"first_host": "n1", "port": "7"}
    command = runs.prepare(cell.spec, folder / "out", meeting)
    words = program_words(str(folder / "errors"), str(folder / "out"), place, command, ["n1", "n2"])
    return launch_argv(place, cell.stack_entry, words, is_python=False)


@pytest.mark.parametrize(("ranks", "nodes", "tasks"), [("gpu", 2, 4), ("node", 2, 1), ("one", 1, 1), (3, 2, 3)])
def test_slurm_starts_the_processes_of_a_program(folder, ranks, nodes, tasks):
    shapes = [{"nodes": [2], "gpus_per_node": [4]}]
    cell = matrix(folder, campaign(folder, {"ranks": ranks}, shapes=shapes), SLURM).cells[0]
    line = line_of(cell, folder)
    assert line[:4] == ["srun", f"--nodes={nodes}", f"--ntasks={nodes * tasks}", f"--ntasks-per-node={tasks}"]
    begin = line.index("sh")
    assert ("--label" in line[:begin]) == (nodes * tasks > 1)  # only then a reader needs the rank of a line
    assert line[begin + 1].endswith("bench/program.sh")
    starts = "2x4:n1,n2" if ranks in ("node", "one") else "-"
    assert line[begin + 2 :] == [str(folder / "errors"), str(folder / "out"), starts, "-", "xhpl", "-n", "1000", "8"]
    assert (folder / "out" / "HPL.dat").read_text() == "1000 Ns\n192 NBs {unknown}\n"


def test_an_image_needs_no_python(folder, monkeypatch):
    (folder / "bin").mkdir()
    runtime = program(folder / "bin" / "apptainer", "exit 0\n")
    monkeypatch.setenv("PATH", f"{runtime.parent}:{os.environ['PATH']}")
    image = fake_sif(folder / "x.sif")
    stacks = {"image": {"kind": "contained", "image": str(image)}}
    made = plan(folder, campaign(folder, stacks=stacks))
    assert not made.preflights  # it would start Python
    cell = made.cells[0].cell
    line = line_of(cell, folder)
    begin = line.index("--no-python")
    assert line[begin + 1] == "apptainer"
    assert line[line.index("sh", begin) - 1] == str(image)
    assert not [word for word in line[begin:] if "python3" in word]


def test_the_plan_shows_the_command_of_a_program(folder):
    lines = launch_lines(plan(folder, campaign(folder)))
    assert {stack: line.rpartition(" --no-python ")[2] for stack, line in lines.items()} == {"host": "xhpl -n 2000 2"}


@pytest.mark.parametrize(
    ("value", "unit", "nanoseconds"),
    [
        (1.5, "us", 1500),
        (2.0, "s", 2 * 10**9),
        (500.0, "Gflop/s", 2 * 10**9),  # 10^12 flop
        (10.0, "GB/s", 100 * 10**9),  # 10^12 B
        (250.0, "tokens/s", 4000 * 10**9),  # 10^6 tokens
        (8.0, "Gbit/s", 1000 * 10**9),
        (2.0, "it/s", 500_000 * 10**9),  # 10^6 iterations
        (4.0, "widgets/min", 15_000 * 10**9),  # 1,000 of any other name
        (2.5, "s/it", 25 * 10**8),
        (4.41, "ns/op", 4410),  # of 1,000 operations
        (50.0, "ns/day", 1728 * 10**9 // 1000),  # 10^-12 s of simulated time
        (0.5, "hours/ns", 1_800_000_000),
        (31.25, "%", 3200 * 10**9),
        (1.0, "tokens/J", 10**15),
    ],
)
def test_a_value_is_a_time_and_back(value, unit, nanoseconds):
    better = "smaller" if unit in ("us", "s", "s/it", "ns/op", "hours/ns") else "larger"
    reader = parse_reader({"x": {"match": r"(\S+)", "unit": unit, "better": better}})
    (quantity,) = reader.quantities.values()
    found = recorded_times.sample_ns(read_quantities(f"{value}\n", reader).values["x"], quantity)
    assert found == nanoseconds
    assert recorded_times.shown_value(found / 1e9, quantity) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "unit", "nanoseconds"),
    [
        (2.345, "", 2_345_000_000),
        (31.4, "%", 314_000_000),
        (61.25, "GiB", round(61.25 * 2**30 * 1000)),  # a byte is 1 us
        (350.5, "W", 350_500_000_000),
        (1.5, "kWh", 5_400_000_000_000),  # a joule is 1 ms
        (64.5, "B/op", 64_500),
    ],
)
def test_a_value_of_which_less_is_better_is_proportional_to_a_time(value, unit, nanoseconds):
    reader = parse_reader({"x": {"match": r"(\S+)", "unit": unit, "better": "smaller"}})
    (quantity,) = reader.quantities.values()
    found = recorded_times.sample_ns(read_quantities(f"{value}\n", reader).values["x"], quantity)
    assert found == nanoseconds
    assert recorded_times.shown_value(found / 1e9, quantity) == pytest.approx(value, rel=1e-12)


def test_a_number_without_time_has_its_direction_in_its_name_and_others_do_not(folder):
    names = {}
    for unit, better in (("%", "larger"), ("%", "smaller"), ("GB", "smaller"), ("s/it", "smaller"), ("it/s", "larger")):
        entry = {"read": {"x": RATE | {"unit": unit, "better": better}}}
        names[unit, better] = matrix(folder, campaign(folder, entry)).cells[0].parameters["reported_quantity"]
    assert {key: name.removeprefix("x (").removesuffix(")") for key, name in names.items()} == {
        ("%", "larger"): "no unit, larger",
        ("%", "smaller"): "no unit, smaller",
        ("GB", "smaller"): "B, smaller",
        ("s/it", "smaller"): "s/iteration",
        ("it/s", "larger"): "iterations/s",
    }


UNRECORDABLE = [
    (4.41e-9, "s"),
    (0.0, "s"),
    (-1.0, "GB/s"),
    (1e-10, "s"),
    (1e30, "flop/s"),
    (1e12, "h"),
    (1e300, "s"),
    (1e-300, "B/s"),
]


@pytest.mark.parametrize(("value", "unit"), UNRECORDABLE)
def test_a_value_that_cannot_be_recorded_is_refused(value, unit):
    with pytest.raises(ValueError, match="is"):
        recorded_times.sample_ns(value * (3600 if unit == "h" else 1), Quantity(match="x", unit=unit))


def test_a_unit_in_the_text_must_be_of_the_kind_of_the_declared_one():
    reader = parse_reader({"x": {"match": r"(?P<value>\S+) (?P<unit>\S+)", "unit": "GB/s", "better": "larger"}})
    assert read_quantities("3 MB/s\n", reader).values == {"x": 3e6}
    (problem,) = read_quantities("3 s\n", reader).problems
    assert "'s'" in problem


ERRORS = {
    "an unknown value": {"command": ["xhpl", "{nn}"]},
    "an attribute": {"command": ["xhpl", "{n.__class__}"]},
    "a single brace": {"command": ["xhpl", "{"]},
    "no command": {"command": None},
    "a command in one word": {"command": "xhpl -n {n}"},
    "an empty command": {"command": []},
    "an option instead of a program": {"command": ["-x"]},
    "a word with a NUL": {"command": ["xhpl", "\0"]},
    "a name with a slash": {"name": "a/b"},
    "a reserved parameter": {"parameters": {"world_size": [1]}},
    "a parameter that is not used": {"files": None},
    "a parameter that is no list": {"parameters": {"n": 1}},
    "no reader": {"read": None},
    "no unit": {"read": {"rate": {"match": "x", "better": "larger"}}},
    "no direction": {"read": {"rate": {"match": "x", "unit": "GB/s"}}},
    "an unknown unit": {"read": {"rate": RATE | {"unit": "parsec"}}},
    "a wrong direction": {"read": {"rate": RATE | {"better": "smaller"}}},
    "a comma that is neither": {"read": {"rate": RATE | {"comma": "point"}}},
    "a quantity without a name": {"read": {"": RATE, "b": RATE}},
    "a quantity with a line break": {"read": {"a\n": RATE}},
    "a parameter named as the quantities": {
        "command": ["xhpl", "{quantity}"],
        "parameters": {"quantity": [8]},
        "read": {"a": RATE, "b": RATE},
    },
    "a pattern that does not compile": {"read": {"rate": RATE | {"match": "("}}},
    "a match and samples": {"read": {"rate": RATE | {"samples": "x"}}},
    "samples that are all dropped": {
        "read": {"rate": {"samples": "x", "unit": "s", "better": "smaller", "drop": 5, "expected": 5}}
    },
    "an unknown format": {"read": "nccl-test"},
    "sizes of patterns": {"sizes": [8]},
    "sizes that are none": {"read": "osu", "sizes": ["64kb", 0]},
    "a size in two ways": {"read": "osu", "sizes": [1024, "1KiB"]},
    "a parameter named as the sizes": {"read": "osu", "command": ["xhpl", "{size}"], "parameters": {"size": [8]}},
    "too many sizes": {"read": "osu", "sizes": [*range(1, 1001)], "parameters": {"n": [*range(101)], "nb": [1]}},
    "too many quantities": {
        "read": {f"q{number}": RATE for number in range(11)},
        "parameters": {"n": [*range(10_000)]},
        "command": ["xhpl", "{n}"],
    },
    "an invalid check": {"check": {"match": "*"}},
    "an unknown check": {"check": {"must": "x"}},
    "an unknown number of ranks": {"ranks": "core"},
    "no ranks": {"ranks": 0},
    "a file that is not there": {"files": {"a": "FOLDER/absent"}},
    "a file that is a folder": {"files": {"a": "FOLDER"}},
    "a file in another folder": {"files": {"../a": "FOLDER/hpl.dat.in"}},
    "a file in the place of the output": {"files": {"output": "FOLDER/hpl.dat.in"}},
    "a binary file": {"files": {"a": "FOLDER/binary"}},
    "a large file": {"files": {"a": "FOLDER/large"}},
    "a list of files": {"files": ["x"]},
    "a key of a script": {"arguments": ["x"]},
    "a key of another benchmark": {"benchmark": "collective", "parameters": {"operation": ["barrier"]}},
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_line_value_and_remedy(folder, wording, case):
    (folder / "binary").write_bytes(b"\xff\xfe\0")
    (folder / "large").write_text("x" * 20_001)
    (entry,) = campaign(folder, ERRORS[case])["benchmarks"]
    text = TEXT.partition("benchmarks:")[0] + yaml.safe_dump({"benchmarks": [entry]}, sort_keys=False)
    wording(message(folder, text))


WRONG = [None, 1, 1.5, True, "", "x", [], ["x"], [[]], [None], {}, {"x": 1}, {"x": {}}, {"x": [1]}, {"x": {"match": 1}}]


@pytest.mark.parametrize("key", ["name", "command", "ranks", "files", "parameters", "read", "sizes", "check"])
def test_a_value_of_any_type_is_accepted_or_refused(folder, key):
    for value in WRONG:
        (entry,) = campaign(folder, {key: value} if value is not None else {})["benchmarks"]
        data = campaign(folder) | {"benchmarks": [entry | {key: value}]}
        with contextlib.suppress(UserError):
            matrix(folder, data)


def test_two_entries_whose_cells_have_one_name_are_refused(folder, wording):
    entries = campaign(folder, {}, {"command": ["other", "{n}"]})["benchmarks"]
    text = TEXT.partition("benchmarks:")[0] + yaml.safe_dump({"benchmarks": entries}, sort_keys=False)
    wording(message(folder, text))


@pytest.mark.parametrize(("word", "name"), [("/opt/bin/a b", "a_b"), ("./.x", "x"), ("{n}", "n_"), ("ß", "program")])
def test_a_program_without_a_name_has_that_of_its_file(folder, word, name):
    entry = {"name": None, "command": [word, "{n}"], "files": None, "parameters": {"n": [1]}}
    (cell,) = matrix(folder, campaign(folder, entry)).cells
    assert cell.parameters["program"] == name


SIZES = {"read": "osu", "sizes": [8, "1KiB"], "files": None, "parameters": {"n": [1]}, "check": None}


def test_a_size_is_a_cell_with_a_name_that_exclude_and_versus_know(folder):
    found = matrix(folder, campaign(folder, SIZES, exclude=[{"when": {"size": "1KiB"}, "reason": "x"}], versus="size"))
    assert [cell.parameters["settings"] for cell in found.cells] == ["n 1, size 8"]
    (skipped,) = [cell for cell, _ in found.skipped]
    assert skipped.parameters["reported_quantity"] == "time (s)"
    assert [programs.size_of(cell.spec) for cell in (*found.cells, skipped)] == [8, 1024]
    assert programs.what_runs(found.cells[0].spec) == programs.what_runs(skipped.spec)
    other = matrix(folder, campaign(folder, SIZES | {"parameters": {"n": [2]}})).cells[0]
    assert programs.what_runs(other.spec) != programs.what_runs(skipped.spec)
    assert ids_of(folder, SIZES | {"sizes": [8, 16, 32]})[0] == ids_of(folder, SIZES)[0]  # more sizes keep ids


TWO_RATES = {"read": {"copy": RATE, "triad": RATE | {"match": r"triad: (\S+)"}}, "parameters": {"n": [1]}}


def test_quantities_are_not_compared(folder, wording):
    for versus in ("quantity", {"axis": "quantity", "reference": "copy"}):
        wording(message(folder, campaign(folder, TWO_RATES, versus=versus)))


def test_a_quantity_is_a_cell_with_a_name_that_exclude_knows(folder):
    exclude = [{"when": {"quantity": "triad"}, "reason": "x"}]
    found = matrix(folder, campaign(folder, TWO_RATES, exclude=exclude))
    ((skipped, _),) = found.skipped
    cells = [*found.cells, skipped]
    assert [cell.parameters["settings"] for cell in cells] == ["n 1, copy", "n 1, triad"]
    assert [cell.parameters["reported_quantity"] for cell in cells] == ["copy (flop/s)", "triad (flop/s)"]
    assert [[*cell.spec["program"]["read"]] for cell in cells] == [["copy"], ["triad"]]
    assert len({cell.twin_key for cell in cells}) == 1  # one launch
    (alone,) = matrix(folder, campaign(folder, TWO_RATES | {"read": {"copy": RATE}})).cells
    assert programs.what_runs(alone.spec) == programs.what_runs(skipped.spec)


def test_what_runs_does_not_depend_on_the_name_of_the_quantity(folder):
    specs = [matrix(folder, campaign(folder, {"read": {name: RATE}})).cells[0].spec for name in ("a", "b")]
    assert programs.what_runs(specs[0]) == programs.what_runs(specs[1])


@pytest.fixture
def ended(folder):
    """A function that records a program that exited with 0: its last record. started: host by rank."""

    def record(output: bytes, started: dict[int, str], locale: str = "", **entry) -> dict:
        return records(output, started, locale, **entry)[-1]

    def records(output: bytes, started: dict[int, str], locale: str = "", **entry) -> list[dict]:
        cells = matrix(folder, campaign(folder, entry)).cells
        cells = [cell for cell in cells if cell.twin_key == cells[0].twin_key]
        batch, launch = folder / "results" / "batches" / "b", "b-l000-a00"
        for path in (batch / "logs", batch / "errors" / launch):
            path.mkdir(parents=True)
        (batch / "logs" / f"{launch}.log").write_bytes(output)
        for rank, host in started.items():
            lines = f"{host}\n/bin/x\n{f'locale {locale}' if locale else ''}\n"
            (batch / "errors" / launch / f"started-{rank}").write_text(lines)
        fields = dict.fromkeys(field.name for field in dataclasses.fields(LaunchRequest))
        fields |= {"cells": [{"id": cell.id, "spec": cell.spec, "command": "x"} for cell in cells], "launch": launch}
        fields |= {"store_file": str(folder / f"{launch}.jsonl"), "error_dir": str(batch / "errors" / launch)}
        runs.record_output(
            LaunchRequest.from_json(fields | {"repeat": 0, "stack": "host"}), batch / "logs" / f"{launch}.log", 6
        )
        lines = [line for _, line in read_launch_file(folder / f"{launch}.jsonl").lines]
        assert [line["kind"] for line in lines] == ["launch", *["start", "record"] * len(cells), "complete"]
        found = [line for line in lines if line["kind"] == "record"]
        assert [problem for line in found if (problem := problem_of(line))] == []
        return found

    record.all = records
    return record


TWO = {0: "n1", 1: "n1"}
GOOD = b"rate: 4.0\nPASSED\n"


def test_a_program_that_ends_is_recorded(ended):
    record = ended(GOOD, TWO)
    assert (record["status"], record["slowest_rank_samples_ns"]) == ("ok", [250 * 10**9])
    assert record["checks"] == {"output_is_valid": True}
    assert undeclared(record, load_benchmark("program")) == []


LOCALES = [("C.UTF-8", None, 1210), ("POSIX", None, 1210), ("C", "decimal", 1.21), ("de_DE.UTF-8", None, None)]
LOCALES += [("", None, None), ("", "thousands", 1210)]


@pytest.mark.parametrize(("locale", "comma", "value"), LOCALES)
def test_a_comma_is_of_thousands_in_the_locale_of_c_else_the_cell_fails(ended, wording, locale, comma, value):
    read = {"rate": RATE | {"match": r"rate: ([\d.,]+)", "unit": "MB/s"} | ({"comma": comma} if comma else {})}
    record = ended(b"rate: 1,210\nPASSED\n", TWO, locale, read=read)
    assert record["slowest_rank_samples_ns"] == (value and [round(1e12 / (value * 1e6) * 1e9)])
    if not value:
        wording(record["cause"])


OSU = b"# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n4 1.50\n8 2.00\n16 2.50\n"


def test_all_sizes_of_an_output_are_recorded_and_a_missing_one_fails(ended, capsys):
    small, large = ended.all(OSU, TWO, **SIZES)
    assert (small["status"], small["slowest_rank_samples_ns"], small["elapsed_ns"]) == ("ok", [2000], 3)
    assert (large["status"], large["phase"], large["slowest_rank_samples_ns"]) == ("failed", "measure", None)
    assert "no result for 1 KiB; the output has 4 B, 8 B, 16 B" in large["cause"]
    assert "ignored: 4 B, 16 B" in capsys.readouterr().out
    assert small["values"] == {"bus_factor": 1.0}  # 2(n−1)/n of an all-reduce on 2 ranks
    assert undeclared(small, load_benchmark("program")) == []


def test_an_output_of_another_format_or_shape_fails_all_sizes(ended):
    for record in ended.all(b"rate: 4\n", TWO, **SIZES):
        assert (record["status"], record["phase"]) == ("failed", "measure")
        assert "unknown format" in record["cause"]


def test_all_quantities_of_an_output_are_recorded_and_a_missing_one_fails(ended):
    copy, triad = ended.all(b"rate: 4.0\nPASSED\n", TWO, **TWO_RATES)
    assert (copy["status"], copy["slowest_rank_samples_ns"]) == ("ok", [250 * 10**9])
    assert (triad["status"], triad["phase"], triad["slowest_rank_samples_ns"]) == ("failed", "measure", None)
    assert "read.triad: no line matches" in triad["cause"]


def test_a_failed_check_fails_all_quantities(ended):
    assert [record["status"] for record in ended.all(b"rate: 4\ntriad: 3\n", TWO, **TWO_RATES)] == ["failed"] * 2


def test_ranks_that_are_misplaced_fail_all_sizes(ended):
    assert [record["status"] for record in ended.all(OSU, {0: "n1"}, **SIZES)] == ["placement"] * 2


@pytest.mark.parametrize("started", [{}, {0: "n1"}, {1: "n1"}, {0: "n1", 1: "n2"}, {0: "n1", 1: "n1", 2: "n1"}])
def test_other_ranks_than_planned_are_a_placement_failure(ended, started):
    record = ended(GOOD, started)
    assert (record["status"], record["phase"], record["slowest_rank_samples_ns"]) == ("placement", "placement", None)


@pytest.mark.parametrize(
    ("output", "entry", "words"),
    [
        (b"rate: 4\0\nPASSED\n", {}, "binary"),
        (b"rate: 4\nrate: 5\nPASSED\n", {}, "different numbers"),
        (b"rate: inf\nPASSED\n", {}, "not finite"),
        (b"rate: 0\nPASSED\n", {}, "not positive"),
        (b"rate: 4\n", {}, "check.match"),
        (b"", {}, "no line matches"),
        (b"a" * 60 + b"!\n", {"read": {"rate": RATE | {"match": "(a+)+$"}}}, "nested"),
        (b"rate: 4\n", {"read": {"rate": {"samples": "x", "unit": "s", "better": "smaller"}}}, "no line matches"),
        (GOOD, {"command": ["x", "{n}", "{output}"]}, "no such file"),
    ],
    ids=["binary", "several", "infinite", "zero", "check", "empty", "backtracks", "samples", "no output file"],
)
def test_an_output_without_a_number_is_a_failure_with_its_cause(ended, output, entry, words, monkeypatch):
    monkeypatch.setattr("regatta.core.readers.LEAST_SECONDS", 0.5)  # of the pattern that backtracks
    record = ended(output, TWO, **entry)
    assert (record["status"], record["phase"], record["slowest_rank_samples_ns"]) == ("failed", "measure", None)
    assert words in record["cause"]


def test_the_plan_of_an_output_that_was_not_read_names_its_reader_before_a_retry(folder, ended):
    record = ended(b"no rate\n", TWO)
    made = plan(folder, campaign(folder, repeats=1))
    results, launch = made.results, made.results / "launches" / "b-l000-a00.jsonl"
    write_launch(results, launch.stem, 0, [record | {"cell": made.cells[0].cell.id}])

    def advice() -> list[tuple[str, bool]]:
        cells = plan(folder, campaign(folder, repeats=1)).cells
        return [(cell.kind, "make try BENCHMARK=hpl" in cell.reason) for cell in cells if cell.state == "not_ok"]

    assert advice() == [("not read", True)]
    (results / "batches" / "b").mkdir(parents=True, exist_ok=True)
    entries = [fields_to_json(summarize(read_launch_file(launch)))]
    manifest = {"schema": 1, "batch": "b", "held": {}, "launches": entries}
    (results / "batches" / "b" / "manifest.json").write_text(json.dumps(manifest))
    assert advice() == [("not read", True)]
    del entries[0]["records"][-1]["phase"]  # as in manifests of earlier versions
    (results / "batches" / "b" / "manifest.json").write_text(json.dumps(manifest))
    assert advice() == [("not ok", False)]


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"command": ["xhpl", "{m}"]}, "benchmarks[0].command[1]"),
        ({"read": {"rate": RATE | {"better": "bigger"}}}, "benchmarks[0].read.rate.better"),
    ],
)
def test_a_mistake_in_an_entry_is_one_message(folder, entry, key):
    """Parameters of an entry with errors are unknown, so keys that name them are not judged."""
    changes = {"versus": "nb", "exclude": [{"when": {"n": 1000}, "reason": "slow"}], "baseline": {"n": 1000}}
    text = message(folder, yaml.safe_dump(campaign(folder, entry, **changes)))
    assert (text.count("\n"), key in text) == (0, True)
