"""What differs between the cells of two campaigns that share few or no cells."""

import pytest
from formats_files import FILES, run_script, text_of

from regatta.compare.campaigns import single_differences
from regatta.model.frozen import Cell

GH200 = FILES / "ddp-2x4-gh200.txt"


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "other.txt"
    path.write_text(text_of(GH200.name).replace("bucket size: 25MB", "bucket size: 50MB"))
    return path


def test_two_tables_with_another_bucket_size_say_so(tmp_path, other, wording):
    done = run_script("compare.py", GH200, other, cwd=tmp_path)
    wording.lines(done.stdout, "bucket size:")


def test_the_page_says_so_too(tmp_path, other):
    run_script("compare.py", GH200, other, "--html", tmp_path / "page.html", cwd=tmp_path)
    assert "bucket 25 MiB in" in (tmp_path / "page.html").read_text()


def test_files_without_a_common_cell_name_the_field(tmp_path):
    (tmp_path / "fp16.txt").write_text(text_of("nccl-13-columns.txt").replace(" float ", "  half "))
    done = run_script("compare.py", FILES / "nccl-13-columns.txt", tmp_path / "fp16.txt", cwd=tmp_path)
    assert done.returncode == 2
    assert "fp32 in base" in done.stderr
    assert "fp16 in test" in done.stderr


def test_two_versions_of_nccl_and_of_its_plugin_are_an_environment_difference(tmp_path, wording):
    text = text_of("nccl-13-columns.txt")
    newer = text.replace("NCCL version 2.20.5", "NCCL version 2.27.3").replace(
        "network AWS Libfabric", "network Socket"
    )
    (tmp_path / "newer.txt").write_text(newer)
    done = run_script("compare.py", FILES / "nccl-13-columns.txt", tmp_path / "newer.txt", cwd=tmp_path)
    wording.lines(done.stdout, " -> ")


def cell(**changed) -> Cell:
    known = {"operation": "all_reduce", "message_bytes": 4096, "dtype": "fp32", "algorithm": None}
    parameters = {name: changed.pop(name, value) for name, value in known.items()}
    base = {"benchmark": "collective", "nodes": 1, "gpus_per_node": 2, "backend": "nccl", "device": "cuda"}
    base |= {"version": 1, "sampling": None, "parameters": parameters, "stack": {"name": changed.pop("stack", "host")}}
    return Cell("id", base | changed)


def test_pairs_are_counted_and_cells_that_differ_in_two_fields_are_no_pair(wording):
    base = [cell(), cell(message_bytes=8192), cell(dtype="fp16", stack="a")]
    test = [cell(algorithm="torch"), cell(message_bytes=8192, algorithm="torch"), cell(algorithm="ring", stack="b")]
    wording(single_differences(base, test))
    assert single_differences(base, base[:0]) == []
    # Other parts of a matrix, and other workloads, are no difference between campaigns.
    assert single_differences([cell(), cell(dtype="fp16", nodes=2)], [cell(dtype="fp16"), cell(nodes=4)]) == []
    assert single_differences([cell()], [cell(operation="broadcast")]) == []
