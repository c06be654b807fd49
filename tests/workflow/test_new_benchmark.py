"""A benchmark outside the tree from its skeleton to the report, and the ways in which its file fails on the ranks."""

import json
import subprocess
import sys

import pytest
import yaml
from campaigns import REAL_REPORT, SAMPLING, fake_campaign, frozen_batches, record_lines, script, snakemake
from copied_tree import rows_of

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_a_skeleton_runs_to_the_report(tmp_path, wording):
    pytest.importorskip("torch")
    script(tmp_path, "new_benchmark.py", "bench/gemm_sum")
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_gemm_sum.py"]
    done = subprocess.run(test, cwd=tmp_path / "bench", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    path = tmp_path / "bench" / "gemm_sum.yaml"
    campaign = yaml.safe_load(path.read_text()) | {"repeats": 1, "sampling": SAMPLING}
    campaign["shapes"] = [{"nodes": [1], "gpus_per_node": [2]}]
    path.write_text(yaml.safe_dump(campaign))
    done = snakemake(tmp_path, path, env=REAL_REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "results" / "gemm_sum"
    records = record_lines(results)
    assert [record["status"] for record in records] == ["ok", "ok"]
    rows = {row["parameter_size"]: row for row in rows_of(results / "cells.csv")}
    assert {size: (float(row["work_flop"]), float(row["largest_error"])) for size, row in rows.items()} == {
        "128": (2 * 128**3, 0),
        "256": (2 * 256**3, 0),
    }
    assert all(float(row["time_s"]) > 0 for row in rows.values())
    assert {row["work_flop"] for row in rows_of(results / "measurements.csv")} == {f"{2 * n**3}" for n in (128, 256)}
    page = (results / "report.html").read_text(encoding="utf-8")
    assert 'id="custom-gemm-sum-time-s-1"' in page
    lines = {line["id"]: line["values"] for line in json.loads((results / "answer.json").read_text())["lines"]}
    assert lines["custom"]["value_s"] == pytest.approx(min(float(row["time_s"]) for row in rows.values()))
    for label in ("Work per iteration (FLOP)", "Largest error", "size 128", "gemm_sum"):
        assert label in page
    assert json.loads((results / "problems.json").read_text())["invalid"] == []

    again = snakemake(tmp_path, path, env=REAL_REPORT)
    assert again.returncode == 0, again.stdout + again.stderr
    assert record_lines(results) == records
    refused = script(tmp_path, "new_benchmark.py", "bench/gemm_sum", check=False)
    assert refused.returncode == 2
    wording(refused.stderr)

    for file in (tmp_path / "bench").iterdir():  # reports need only the results
        if file.suffix == ".py":
            file.unlink()
    script(tmp_path, "rebuild_report.py", str(path))
    assert (results / "report.html").read_text(encoding="utf-8") == page
    script(tmp_path, "export_results.py", str(results), "--format", "csv", "--out", "out.csv")
    exported = {(row["size"], row["quantity"]): row["value"] for row in rows_of(tmp_path / "out.csv")}
    assert exported["256", "work_flop"] == f"{2 * 256**3}"
    script(tmp_path, "new_benchmark.py", "again/gemm_sum")
    script(tmp_path, "import_results.py", "out.csv", "--campaign", "back", "--benchmark", "again/gemm_sum.py")
    script(tmp_path, "rebuild_report.py", "results/back")
    back = {row["parameter_size"]: float(row["time_s"]) for row in rows_of(tmp_path / "results/back/cells.csv")}
    assert back == {size: pytest.approx(float(row["time_s"]), rel=1e-6) for size, row in rows.items()}


FILES = {
    "loop": ("while True:\n    pass\n", "timeout", None),
    "broken": ("x = 1\n1 / 0\n", "failed", "broken.py, line 11: ZeroDivisionError"),
    "leaves": ("import sys\n\nsys.exit(0)\n", "failed", "leaves.py, line 12: SystemExit"),
    "refuses": ("", "failed", "no such size"),
}
HEAD = """\
import dataclasses

@dataclasses.dataclass
class Parameters:
    size: int

def build(parameters, ranks):
    raise ValueError("no such size")

"""


def test_a_file_that_fails_on_the_ranks_fails_its_cell_with_the_cause(tmp_path):
    pytest.importorskip("torch")
    for name, (text, *_) in FILES.items():
        (tmp_path / f"{name}.py").write_text(HEAD + text)
    entries = [{"benchmark": f"{name}.py", "parameters": {"size": [1]}} for name in FILES]
    campaign = fake_campaign(
        name="fails",
        stacks={"host": {"kind": "host"}},
        shapes=[{"nodes": [1], "gpus_per_node": [2]}],
        repeats=1,
        limits={"cell_seconds": 8, "launch_start_seconds": 60},
        benchmarks=entries,
    )
    (batch,) = frozen_batches(tmp_path, campaign)
    script(tmp_path, "measure.py", "--batch", str(batch), check=False)
    records = {record["spec"]["benchmark"]: record for record in record_lines(batch.parent.parent)}
    for name, (_, status, words) in FILES.items():
        assert records[name]["status"] == status, (name, records[name]["cause"])
        assert words is None or words in records[name]["cause"], name
    assert list((batch / "logs").glob("*.log"))
