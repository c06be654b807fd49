"""Excerpts of nccl-tests as documents publish them, and options that contradict a file."""

from pathlib import Path

import pytest

from regatta.core.errors import UserError
from regatta.formats import Options
from regatta.formats.importer import read_import

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "formats"
TABLE = (GOLDEN / "nccl-13-columns.txt").read_text()
ROWS = TABLE[TABLE.index("#       size") :]


def read(folder: Path, text: str, **options):
    path = folder / "excerpt.txt"
    path.write_text(text)
    return read_import(path, Options(**options)).source


def refusal(folder: Path, text: str, **options) -> str:
    with pytest.raises(UserError) as caught:
        read(folder, text, **options)
    return str(caught.value)


def excerpt(*left_out: str) -> str:
    return "\n".join(line for line in ROWS.split("\n") if not any(word in line for word in left_out))


@pytest.mark.parametrize("left_out", [("concluded",), ("concluded", "Out of bounds", "Avg bus")])
def test_an_excerpt_reads_as_the_whole_file_with_the_shape_and_operation_of_the_options(tmp_path, left_out, wording):
    whole = read(tmp_path, TABLE)
    found = read(tmp_path, excerpt(*left_out), nodes=2, gpus_per_node=4, operation="all_reduce")
    shared = ("benchmark", "parameters", "nodes", "gpus_per_node", "times_s", "printed", "failure")
    pairs = zip(found.readings, whole.readings, strict=True)
    assert all(getattr(a, name) == getattr(b, name) for a, b in pairs for name in shared)
    assert {(r.num_iterations, r.num_warmup) for r in found.readings} == {(None, None)}
    wording(found.notes)


def test_a_wrong_number_of_ranks_is_noticed_by_the_bus_bandwidth(tmp_path, wording):
    text = refusal(tmp_path, excerpt("concluded"), nodes=1, gpus_per_node=4, operation="all_reduce")
    wording(text)


@pytest.mark.parametrize("missing", ["nodes", "gpus_per_node", "operation"])
def test_what_is_missing_is_named_with_its_option(tmp_path, missing):
    options = {"nodes": 2, "gpus_per_node": 4, "operation": "all_reduce"}
    del options[missing]
    assert f"--{missing.replace('_', '-')}" in refusal(tmp_path, excerpt("concluded"), **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"nodes": 1}, "2 hosts with 4 ranks each, but --nodes is 1; expected 2, or no --nodes"),
        ({"gpus_per_node": 8}, "2 hosts with 4 ranks each, but --gpus-per-node is 8"),
        ({"operation": "all_gather"}, "the file is from all_reduce_perf, but --operation is all_gather"),
    ],
)
def test_an_option_that_contradicts_the_file_is_refused(tmp_path, options, expected):
    assert expected in refusal(tmp_path, TABLE, **options)


def test_an_option_that_contradicts_a_csv_is_refused(tmp_path, wording):
    path = GOLDEN / "exported.csv"
    shapes = {(r.nodes, r.gpus_per_node) for r in read_import(path, Options()).source.readings}
    most = max(gpus for _, gpus in shapes)
    assert most > 1
    with wording.raises(UserError):
        read_import(path, Options(gpus_per_node=1))
    with wording.raises(UserError):
        read_import(path, Options(operation="broadcast"))


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NCCL version 2.20.5+cuda12.4", "2.20.5"),
        ("# nccl-tests version 2.17.9 nccl-headers=23005 nccl-library=23005", "2.30.5"),
        ("RCCL version : 2.22.3-HEAD:9bd4a9f", "2.22.3"),
        ("# nothing", None),
    ],
)
def test_the_librarys_version_is_kept_where_it_is_printed(tmp_path, line, version):
    text = TABLE.replace("NCCL version 2.20.5+cuda12.4", line)
    assert read(tmp_path, text).environment["nccl"] == version
