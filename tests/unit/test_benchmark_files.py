"""Benchmarks outside the tree: what their files declare, what is refused, and the identity of their cells."""

import itertools
import json
import shlex
from pathlib import Path

import pytest
from campaign_files import HOSTILE, message, plan, small, write

from regatta.campaign.benchmark_files import read_benchmark_file
from regatta.campaign.load import results_folder
from regatta.campaign.script_entries import script_files
from regatta.core import benchmarks
from regatta.core.benchmarks import axes_of, load_benchmark, undeclared
from regatta.core.errors import UserError
from regatta.model.frozen import FrozenBatch
from regatta.plan.plan import write_frozen
from regatta.report.page import MARKS
from regatta.report.panels import Table
from regatta.run.batch import BatchRun
from regatta.store.csv_files import (
    COLLECTED,
    MEASUREMENTS,
    cell_columns,
    cell_row,
    columns_in,
    make_table,
    read_csv,
    write_csv,
)
from regatta.store.frozen_files import read_frozen_campaign
from regatta.tables.cells import results_of
from regatta.topics.base import ReportData
from regatta.topics.catalog import make_tables
from regatta.topics.status_matrix import status_matrix

FILE = """\
import dataclasses
import typing
from neighbor import helper
RESULTS = {
    "rate_gb_per_s": {"label": "Rate", "better": "larger", "help": "bytes / time"},
    "depth": {"label": "Depth", "unit": "m"},
}
@dataclasses.dataclass
class Parameters:
    size: int
    mode: typing.Literal["fast", "exact"] = "fast"
    share: float = 1
    name: str = "a b"
    is_cold: bool = False
def build(parameters, ranks):
    raise SystemExit("the driver ran the file")
"""
DECLARATION = {
    "version": 1,
    "file": "my_step.py",
    "axes": {
        "size": {"type": "integer"},
        "mode": {"type": "string", "choices": ["fast", "exact"], "default": "fast"},
        "share": {"type": "number", "default": 1},
        "name": {"type": "string", "default": "a b"},
        "is_cold": {"type": "boolean", "default": False},
    },
    "results": {
        "rate_gb_per_s": {"label": "Rate", "better": "larger", "help": "bytes / time"},
        "depth": {"label": "Depth", "unit": "m"},
    },
}


@pytest.fixture(autouse=True)
def _forget_after():
    yield
    benchmarks._custom.clear()


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "neighbor.py").write_text("import deeper\n")
    (tmp_path / "deeper.py").write_text("")
    path = tmp_path / "my_step.py"
    path.write_text(FILE)
    return path


def campaign(*entries: dict, **changes) -> dict:
    entry = {"benchmark": "./my_step.py", "parameters": {"size": [1, 2]}}
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    return small(shapes=shapes, benchmarks=list(entries or (entry,)), **changes)


def test_the_dataclass_and_the_dictionary_are_the_declaration(file):
    assert read_benchmark_file(file).declaration == DECLARATION


def test_a_declared_version_is_read(file):
    file.write_text(f"{FILE}VERSION = 3\n")
    assert read_benchmark_file(file).declaration["version"] == 3


# What replaces a part of the file, and the line of the error.
BAD = {
    "syntax": ("def build(parameters, ranks):", "def build(:", 15),
    "deep expression": ("RESULTS = {", f"x = {100_000 * '-'}1; RESULTS = {{", 1),
    "no build": ("def build(", "def built(", 1),
    "unknown annotation": ("size: int", "size: torch.dtype", 10),
    "list annotation": ("size: int", "size: list[int]", 10),
    "mixed literal": ('"fast", "exact"', '"fast", 1', 11),
    "default of another type": ("share: float = 1", 'share: float = "1"', 12),
    "default that is no choice": ('= "fast"', '= "slow"', 11),
    "default that is no literal": ('name: str = "a b"', "name: str = str(1)", 13),
    "no dataclass": ("@dataclasses.dataclass\n", "", 1),
    "several dataclasses": ("def build(", "@dataclasses.dataclass()\nclass B:\n    x: int\ndef build(", 16),
    "results that call": ('"Depth"', "str(1)", 4),
    "results that are a list": ('{"label": "Depth", "unit": "m"}', '["Depth"]', 6),
    "result without a label": ('"label": "Depth", ', "", 6),
    "unknown key of a result": ('"unit": "m"', '"units": "m"', 6),
    "key that is no text": ('"depth":', "1:", 6),
    "version that is no number": ("RESULTS = {", "VERSION = '1'; RESULTS = {", 4),
    "no dictionary": ("RESULTS = {", "RESULTS = []; OTHERS = {", 4),
    "braces in a label": ('"Depth"', '"{0}"', 6),
    "two lines in a label": ('"Depth"', '"a\\nb"', 6),
    "name in upper case": ("size: int", "Size: int", 10),
    "reserved parameter": ("size: int", "hosts: int", 10),
    "key of a cell's spec": ("size: int", "module: int", 10),
    "type of another benchmark": ("size: int", "batch_size: str", 10),
    "reserved result": ('"depth"', '"p50_s"', 6),
    "result named as a parameter": ('"depth"', '"size"', 6),
    "unit that contradicts the name": ('"depth": {"label": "Depth", "unit": "m"}', '"depth_s": {"label": "D", "unit": "m"}', 6),
    "unit that would be converted": ('"unit": "m"', '"unit": "GFLOP"', 6),
    "bytes that the name does not state": ('"unit": "m"', '"unit": "B"', 6),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_an_error_names_campaign_file_and_line(tmp_path, file, kind, wording):
    old, new, line = BAD[kind]
    assert FILE.count(old) == 1
    file.write_text(FILE.replace(old, new))
    text = message(tmp_path, json.dumps(campaign()))
    wording(text)
    assert text.startswith("campaign.yaml:1: ")
    assert f"my_step.py:{line}:" in text
    assert "my_step" not in benchmarks.benchmark_names()


@pytest.mark.parametrize("name", ["collective.py", "random.py", "torch.py", "harness.py", "a-b.py", "missing.py"])
def test_a_name_that_cannot_be_used_is_refused(tmp_path, file, name, wording):
    if name != "missing.py":
        (tmp_path / name).write_text(FILE)
    wording(message(tmp_path, json.dumps(campaign({"benchmark": name, "parameters": {"size": [1]}}))))


def test_two_files_of_one_name_are_refused(tmp_path, file, wording):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "my_step.py").write_text(FILE)
    entries = [{"benchmark": name, "parameters": {"size": [1]}} for name in ("my_step.py", "other/my_step.py")]
    wording(message(tmp_path, json.dumps(campaign(*entries))))
    assert len(plan(tmp_path, campaign(entries[0], entries[0])).cells) == 1


def test_two_files_that_declare_a_column_differently_are_refused(tmp_path, file, wording):
    (tmp_path / "other.py").write_text(FILE.replace('"Depth"', '"Height"'))
    entries = [{"benchmark": name, "parameters": {"size": [1]}} for name in ("my_step.py", "other.py")]
    wording(message(tmp_path, json.dumps(campaign(*entries))))
    (tmp_path / "other.py").write_text(FILE)
    assert {cell.cell.benchmark for cell in plan(tmp_path, campaign(*entries)).cells} == {"my_step", "other"}


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({"size": ["1"]}, "size[0]"),
        ({"size": [1], "mode": ["slow"]}, "mode[0]"),
        ({"size": [1], "sizes": [1]}, "sizes"),
        ({"mode": ["fast"]}, "size"),
    ],
)
def test_parameters_are_validated_as_those_of_other_benchmarks(tmp_path, file, parameters, place, wording):
    text = message(tmp_path, json.dumps(campaign({"benchmark": "my_step.py", "parameters": parameters})))
    wording(text)
    assert place in text


def test_cells_have_the_parameters_the_file_and_a_readable_id(tmp_path, file):
    one, two = (planned.cell for planned in plan(tmp_path, campaign()).cells)
    assert one.parameters == {"size": 1, "mode": "fast", "share": 1, "name": "a b", "is_cold": False}
    assert one.id.rpartition("-")[0] == "my_step-1-fast-n01g02-host"  # free text is not part of an id
    assert one.spec["module"]["path"] == str(file)
    assert {Path(path).name for path in one.spec["module"]["files"]} == {"my_step.py", "neighbor.py", "deeper.py"}
    assert two.parameters["size"] == 2
    assert not load_benchmark("my_step").has_windows


@pytest.mark.parametrize(("name", "changes"), [("my_step", True), ("deeper", True), ("unused", False)])
def test_the_id_changes_with_the_file_and_what_it_imports(tmp_path, file, name, changes):
    made = plan(tmp_path, campaign())
    write_frozen(made)
    (tmp_path / f"{name}.py").write_text((FILE if name == "my_step" else "") + "# edited\n")
    script_files.cache_clear()
    again = plan(tmp_path, campaign())
    assert ({c.cell.id for c in made.cells}.isdisjoint({c.cell.id for c in again.cells})) == changes
    assert all((f"{name}.py" in planned.reason) == changes for planned in again.cells)


def test_axes_work_in_exclude_and_versus(tmp_path, file):
    changes = {"exclude": [{"when": {"size": 1}, "reason": "small"}], "versus": {"axis": "size", "reference": 2}}
    matrix = plan(tmp_path, campaign(**changes)).matrix
    assert [cell.parameters["size"] for cell in matrix.cells] == [2]
    assert [cell.parameters["size"] for cell, _ in matrix.skipped] == [1]


def test_hostile_values_reach_the_ranks_as_they_are(tmp_path, file):
    values = [text for text in HOSTILE if "\n" not in text]
    entry = {"benchmark": "my_step.py", "parameters": {"size": [1], "name": values}}
    for planned, value in zip(plan(tmp_path, campaign(entry)).cells, values, strict=True):
        words = shlex.split(planned.cell.command)
        assert words[words.index("--parameters") - 5].endswith("my_step.py")
        assert json.loads(words[words.index("--parameters") + 1])["name"] == value


def test_an_image_has_the_folder_of_the_file(folder):
    for name, text in (("my_step", FILE), ("neighbor", "")):
        (folder / f"{name}.py").write_text(text)
    made = plan(folder, campaign(stacks={"image": {"kind": "contained", "image": "a.sif"}}))
    write_frozen(made)
    (batch,) = (made.results / "batches").iterdir()
    content = json.loads((batch / "batch.json").read_text())
    run = BatchRun(batch, FrozenBatch.from_json(content), {})
    argv = run.launches[0].write_request(content["launches"][0]["cells"]).argv
    assert str(folder) in [word for before, word in itertools.pairwise(argv) if before == "--bind"]


def test_the_frozen_declaration_outlives_the_file(tmp_path, file, monkeypatch):
    made = plan(tmp_path, campaign())
    write_frozen(made)
    file.unlink()
    benchmarks._custom.clear()
    frozen = read_frozen_campaign(made.frozen_campaign)
    assert frozen.benchmarks == {"my_step": DECLARATION}
    assert [axis.type for axis in axes_of("my_step").values()] == ["integer", "string", "number", "string", "boolean"]
    names = [name.full for name in frozen.cell_names.values()]
    assert all("size 1" in name or "size 2" in name for name in names)
    assert cell_columns()["size"] == "Int64"
    assert list(columns_in(frozen, MEASUREMENTS))[-7:] == [*DECLARATION["axes"], *DECLARATION["results"]]
    assert [one.heading("cpu") for one in results_of(frozen.custom_benchmarks["my_step"])] == [
        "Rate (GB/s)",
        "Depth (m)",
    ]
    monkeypatch.chdir(tmp_path)
    assert results_folder(write(tmp_path, campaign() | {"cluster": "local"})) == Path("results/small")
    with pytest.raises(UserError):
        plan(tmp_path, campaign())


def measured(folder, *rates_of_cells):
    """Return the frozen campaign with these rates, by cell and launch, and its tables."""
    made = plan(folder, campaign())
    write_frozen(made)
    frozen = read_frozen_campaign(made.frozen_campaign)
    rows = [
        cell_row(cell) | {"repeat": n, "launch": f"b-{n}-1", "status": "ok", "p50_s": 2.0, "rate_gb_per_s": rate}
        for cell, rates in zip(frozen.cells, rates_of_cells, strict=False)
        for n, rate in enumerate(rates)
    ]
    collected, columns = {name: make_table([], of) for name, of in COLLECTED.items()}, columns_in(frozen, MEASUREMENTS)
    write_csv(make_table(rows, columns), folder / "m.csv")
    collected["measurements"] = read_csv(folder / "m.csv", columns)
    return frozen, collected, make_tables(frozen, collected)


@pytest.mark.parametrize(
    ("rates", "others", "ends"),
    [((0.9, 1.0, 1.1), (7.2, 8.0, 8.8), (6.0127, 9.9873)), ((-0.1, 0.0, 0.1), (7.9, 8.0, 8.1), (7.7516, 8.2484))],
    ids=["positive", "negative"],
)
def test_positive_results_share_a_relative_variance_and_others_an_absolute_one(tmp_path, file, rates, others, ends):
    """Both cells have the variance 0.01: relative in the first case, absolute in the second.

    Moderated it is 0.01 again, with the 2 degrees of freedom of one cell, because both rise and fall together:
    8 x (1 -+ 4.3027 x 0.1 / sqrt(3)) = 6.0127 and 9.9873; 8 -+ 0.2484 = 7.7516 and 8.2484.
    """
    frozen, _, tables = measured(tmp_path, rates, others)
    row = tables["cells"].set_index("cell").loc[frozen.cells[1].id]
    assert (row["rate_low_gb_per_s"], row["rate_high_gb_per_s"]) == pytest.approx(ends, rel=1e-3)


def test_results_are_means_over_launches_and_unmeasured_cells_have_none(tmp_path, file):
    frozen, collected, tables = measured(tmp_path, (1.0, 2.0, 6.0))
    cell, table = frozen.cells[0], tables["cells"].set_index("cell")
    row = table.loc[cell.id]
    assert (row["parameter_size"], row["time_s"], row["rate_gb_per_s"], row["num_launches"]) == (1, 2.0, 3.0, 3)
    assert row["rate_low_gb_per_s"] < 3 < row["rate_high_gb_per_s"]
    assert table.loc[frozen.cells[1].id][["time_s", "rate_gb_per_s", "depth"]].isna().all()
    matrix = status_matrix(ReportData(frozen, collected | tables, [], {}, tmp_path))
    assert [square.text for square in matrix.squares] == ["3.00 GB/s", MARKS["skipped"]]


def test_a_result_in_bytes_has_the_unit_that_fits_the_largest(tmp_path, file):
    file.write_text(FILE.replace('"depth": {"label": "Depth", "unit": "m"}', '"work_bytes": {"label": "Workspace"}'))
    made = plan(tmp_path, campaign())
    write_frozen(made)
    *_, column = results_of(read_frozen_campaign(made.frozen_campaign).custom_benchmarks["my_step"])
    assert column.heading("cpu") == "Workspace (MiB)"
    for largest, heading, text in ((3 * 2**29, "Workspace (GiB)", "1.50"), (2**15, "Workspace (KiB)", "32.0")):
        rows = make_table(
            [{"cell": "a", "work_bytes": largest, "num_launches": 1}],
            dict.fromkeys(column.names, "Float64") | {"cell": "string", "num_launches": "Int64", "interval": "string"},
        )
        table = Table.of_columns("t", [column], rows, "cpu")
        assert (table.columns[0], table.rows[0][0]) == (heading, text)


def test_a_value_without_a_declaration_is_named_and_checks_need_none(tmp_path, file):
    plan(tmp_path, campaign())
    record = {
        "spec": {"benchmark": "my_step", "version": 1},
        "values": {"depth": 1, "depht": 1},
        "checks": {"ok": True},
    }
    (text,) = undeclared(record, load_benchmark("my_step"))
    assert "values.depht" in text
    assert "RESULTS of my_step.py" in text


def test_a_benchmark_of_regatta_cannot_be_replaced():
    version = load_benchmark("collective").version
    benchmarks.declare({"collective": DECLARATION})
    assert load_benchmark("collective").version == version
