"""Each extension of examples/: applied to a copy of the tree, run up to the report, and then without one of its parts.

The command or the test that fails must name the missing part.
"""

import json
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from campaigns import SAMPLING, fake_campaign
from copied_tree import ROOT, SCRIPTS, check, make_tree, pytest_of, rebuild, rows_of, run, run_campaign, section_of

from regatta.core.text import three
from regatta.report.explore import decoded
from regatta.run.progress import answer_lines

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "extending.md"
SCHEMA = "workflow/schemas/benchmarks/dataloader.yaml"
PROGRAM, TOPIC = f"{SCRIPTS}/bench/dataloader.py", f"{SCRIPTS}/regatta/topics/dataloader.py"
CATALOG = f"{SCRIPTS}/regatta/topics/catalog.py"
COST = f"{SCRIPTS}/regatta/topics/training_cost.py"
FINDINGS, LEAD, NAME = f"{SCRIPTS}/regatta/topics/scaling/scaling_findings.py", "Highest throughput: ", ", {name}"
PLUGINS = EXAMPLES / "plugins"

# Each example to the report.


def block_of(page: str) -> dict:
    return decoded(re.search(r'<script type="application/json" id="data-block">([^<]*)</script>', page)[1].strip())


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory) -> tuple[Path, Path]:
    """(tree, results) of the benchmark `dataloader`, measured on two ranks."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("benchmark")
    tree = make_tree(folder, "benchmark")
    parameters = {"num_workers": [0, 1], "batch_size": [2], "sample_bytes": ["1KiB"], "num_batches": [3]}
    campaign = fake_campaign(
        name="loading",
        stacks={"host": {"kind": "host"}},
        shapes=[{"nodes": [1], "gpus_per_node": [2]}],
        repeats=1,
        sampling=SAMPLING,
        benchmarks=[{"benchmark": "dataloader", "parameters": parameters}],
    )
    return tree, run_campaign(tree, folder, campaign)


@pytest.mark.slow
@pytest.mark.torch
def test_the_benchmark_runs_to_the_report(benchmark):
    _, results = benchmark
    measured = rows_of(results / "measurements.csv")
    assert [(row["status"], row["num_workers"], row["epoch_bytes"]) for row in measured] == [
        ("ok", "0", "6144"),
        ("ok", "1", "6144"),
    ]
    assert json.loads((results / "problems.json").read_text())["invalid"] == []
    loading = {row["num_workers"]: row for row in rows_of(results / "cells.csv")}
    for row in measured:
        cell = loading[row["num_workers"]]
        assert float(cell["loaded_samples_per_s"]) == pytest.approx(2 * 2 * 3 / float(row["p50_s"]), rel=1e-6)
        assert float(cell["loaded_gb_per_s"]) == pytest.approx(2 * 6144 / float(row["p50_s"]) / 1e9, rel=1e-6)
        assert float(cell["first_batch_s"]) == pytest.approx(float(row["first_batch_s"]), rel=1e-6)
        assert 0 < float(row["first_batch_s"]) < float(row["max_s"])
    page = (results / "report.html").read_text()
    text = section_of(page, "data-loading")
    assert "Workers per rank" in text
    assert "1/1" in text
    block = block_of(page)
    keys = {entry["key"] for entry in block["columns"]}
    assert {"loaded_samples_per_s", "loaded_gb_per_s"} <= keys  # of the table of all cells, and the drawer
    shown = block["cells"]["loaded_samples_per_s"]
    rates = {name: float(cell["loaded_samples_per_s"]) for name, cell in loading.items()}
    assert shown == [pytest.approx(rates[name], rel=1e-5) for name in sorted(rates)]
    [figure] = (of for name, of in block["figures"].items() if name.startswith("data-loading"))  # its tooltips
    marks = dict(zip((name for name, *_ in figure), (of for _, *of in figure), strict=True))
    assert [*marks][2:4] == ["workers per rank", "Loading rate (samples/s)"]
    assert [float(value) for value in marks["Loading rate (samples/s)"]] == pytest.approx([*rates.values()], rel=1e-5)


ENUMERATING = (
    "benchmarks.py",
    "collect_golden.py",
    "config_readme.py",
    "frozen_schemas.py::test_each_parameter_has_the_type_of_its_column",
    "published_schemas.py::test_what_is_published_is_what_the_schemas_say",
    "published_schemas.py::test_the_list_of_columns_has_each_column_of_each_file_in_order_with_type_and_definition",
)


@pytest.mark.slow
@pytest.mark.torch
def test_the_benchmark_is_exported_documented_and_passes_the_tests_that_enumerate_benchmarks(
    benchmark, tmp_path, wording
):
    tree, results = benchmark
    check(run(tree, "export_results.py", results, "--format", "csv", "--out", tmp_path / "out.csv"))
    exported = rows_of(tmp_path / "out.csv")
    assert {row["num_workers"] for row in exported if row["quantity"] == "loaded_samples_per_s"} == {"0", "1"}
    readme = tree / "config" / "README.md"
    published = (tree / "workflow" / "schemas" / "published" / name for name in ("campaign.json", "columns.csv"))
    texts = {path: path.read_text() for path in (readme, *published)}
    outdated = pytest_of(tree, "tests/unit/test_config_readme.py", "-k", "tables")
    wording.lines(outdated.stdout, "config/README.md is out")
    check(run(tree, "publish_schemas.py"))
    assert "of `dataloader`\n" in readme.read_text()
    listed = tree / "workflow" / "schemas" / "published" / "columns.csv"
    assert "cells.csv,loaded_samples_per_s,number," in listed.read_text()
    check(pytest_of(tree, *(f"tests/unit/test_{name}" for name in ENUMERATING)))
    for path, text in texts.items():
        path.write_text(text)


@pytest.fixture(scope="module")
def section(tmp_path_factory) -> Path:
    return make_tree(tmp_path_factory.mktemp("section"), "section")


@pytest.mark.slow
def test_the_section_is_on_the_page(section, finished):
    _, results = finished
    text = section_of(rebuild(section, results), "cost")
    steps = [row for row in rows_of(results / "cells.csv") if row["benchmark"] == "train_step"]
    assert len(steps) == 5
    for row in steps:
        hours = 1e6 / float(row["throughput_per_gpu_samples_per_s"]) / 3600
        assert f" {three(hours)} " in text


@pytest.fixture(scope="module")
def number(tmp_path_factory) -> Path:
    return make_tree(tmp_path_factory.mktemp("number"), "number")


@pytest.mark.slow
def test_a_declared_number_is_everywhere(number, finished, wording):
    """In cells.csv, a table of the page, the table of all cells, the drawer, the documentation and the export."""
    _, results = finished
    page = rebuild(number, results)
    rows = {row["cell"]: row for row in rows_of(results / "cells.csv")}
    speedups = {}
    for cell, row in rows.items():
        if row["baseline"] in rows:
            rates = (float(rows[name]["throughput_samples_per_s"]) for name in (cell, row["baseline"]))
            speedups[cell] = next(rates) / next(rates)
            assert float(row["speedup_ratio"]) == pytest.approx(speedups[cell], rel=1e-6)
    assert any(speedup != 1 for speedup in speedups.values())
    block = block_of(page)
    shown = dict(zip(block["cells"]["id"], block["cells"]["speedup_ratio"], strict=True))
    assert {cell: shown[cell] for cell in speedups} == {c: pytest.approx(s, rel=1e-5) for c, s in speedups.items()}
    (entry,) = (entry for entry in block["columns"] if entry["key"] == "speedup_ratio")
    wording((entry["label"], entry["help"]))
    assert not entry["is_larger_worse"]
    assert " Speedup " in section_of(page, "scaling")
    listed = number / "workflow" / "schemas" / "published" / "columns.csv"
    assert "speedup" not in listed.read_text()
    check(run(number, "publish_schemas.py"))
    assert "cells.csv,speedup_ratio,number,X(n) / X₀" in listed.read_text()
    check(run(number, "export_results.py", results, "--format", "csv", "--out", results / "out.csv"))
    exported = [row for row in rows_of(results / "out.csv") if row["quantity"] == "speedup_ratio"]
    assert {row["cell"]: float(row["value"]) for row in exported} == pytest.approx(speedups, rel=1e-6)


@pytest.fixture(scope="module")
def finding(tmp_path_factory) -> Path:
    return make_tree(tmp_path_factory.mktemp("finding"), "finding")


def reported(tree: Path, results: Path, rank: str) -> tuple[str, dict]:
    """Return the page and the lines of answer.json by id, with the kind of the example in this rank."""
    file, text = tree / FINDINGS, (tree / FINDINGS).read_text(encoding="utf-8")
    kind = replaced('"highest_throughput", RESULT', f'"highest_throughput", "{rank}"')(text)
    try:
        file.write_text(
            replaced(f'{NAME}."', f'{NAME}.", advice="Use it.", next_step="use it"')(kind), encoding="utf-8"
        )
        page = rebuild(tree, results)
    finally:
        file.write_text(text, encoding="utf-8")
    return page, {line["id"]: line for line in json.loads((results / "answer.json").read_text())["lines"]}


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["result", "summary", "fair"])
def test_a_declared_finding_is_everywhere_that_its_rank_says(finding, finished, rank):
    """In the section; in the summary, answer.json and on the terminal; or among the warnings and at its cell."""
    _, results = finished
    page, lines = reported(finding, results, rank)
    rows = [row for row in rows_of(results / "cells.csv") if row["throughput_samples_per_s"]]
    best = max(rows, key=lambda row: float(row["throughput_samples_per_s"]))
    assert (LEAD in section_of(page, "scaling"), "highest_throughput" in lines) == (rank == "result", rank == "summary")
    if rank == "summary":
        found = lines["highest_throughput"]["values"]
        assert {name: found[name] for name in found if name not in ("name", "num_warned", "confidence")} == {
            f"throughput{end}_samples_per_s": pytest.approx(float(best[f"throughput{end}_samples_per_s"]))
            for end in ("", "_low", "_high")
        }
    if rank != "fair":
        assert (LEAD in "".join(answer_lines(results))) == (rank == "summary")
    block = block_of(page)
    mark = block["cells"]["warning"][block["cells"]["id"].index(best["cell"])]
    subjects = "" if mark is None else block["words"][mark]
    assert (LEAD.partition(":")[0] in subjects) == (rank == "fair")
    assert ("Use it." in page) == (rank == "fair")


@pytest.mark.slow
def test_a_declared_warning_is_a_reason_and_a_next_step(finding, finished):
    _, results = finished
    _, lines = reported(finding, results, "fair")
    assert "highest_throughput" in {reason["kind"] for reason in lines["confidence"]["values"]["reasons"]}
    assert "use it" in " ".join(lines["next"]["values"]["steps"])
    assert "use it" in "".join(answer_lines(results))


@pytest.mark.slow
def test_the_format_is_imported_to_the_report(tmp_path):
    sample, plugin = PLUGINS / "perftest-write-lat.txt", ("--plugin", PLUGINS / "perftest.py")
    check(run(ROOT, "import_results.py", sample, "--campaign", "rdma", *plugin, cwd=tmp_path))
    page = rebuild(ROOT, tmp_path / "results" / "rdma")
    rows = rows_of(tmp_path / "results" / "rdma" / "cells.csv")
    found = {row["message_bytes"]: (row["operation"], row["nodes"], float(row["latency_s"])) for row in rows}
    assert found == {
        "2": ("ib_write_lat", "2", 1.47e-6),
        "4": ("ib_write_lat", "2", 1.47e-6),
        "4096": ("ib_write_lat", "2", 2.26e-6),
    }
    assert "ib_write_lat" in page
    text = sample.read_text()
    (tmp_path / "cut.txt").write_text(text[: text.rindex("---------\n") - 100])
    refused = run(ROOT, "import_results.py", "cut.txt", "--campaign", "cut", *plugin, cwd=tmp_path)
    assert refused.returncode == 2
    assert "cut.txt:" in refused.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A tree whose cluster file lists the plugins of examples/."""
    tree = make_tree(tmp_path_factory.mktemp("site"), "plugins")
    with (tree / "config" / "clusters" / "local.yaml").open("a") as file:
        file.write("plugins: [../../examples/plugins/charliecloud.py, ../../examples/plugins/perftest.py]\n")
    return tree


LATENCIES = "import os, sys, time; os.environ['RANK'] == '0' and print(open(sys.argv[1]).read(), time.time_ns())"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["a pattern", "another size"])
def test_a_kept_output_is_read_again_in_a_format_of_a_plugin_and_nothing_is_measured_again(site, tmp_path, first):
    def measure(**entry) -> tuple[set[str], dict[str, tuple[str, float]]]:
        """Return the outputs of all launches, and reported value and unit by settings."""
        command = ["python3", "-c", LATENCIES, str(PLUGINS / "perftest-write-lat.txt")]
        benchmarks = [{"benchmark": "program", "name": "write_lat", "command": command} | entry]
        shapes = [{"nodes": [1], "gpus_per_node": [2]}]
        campaign = fake_campaign(stacks={"host": {"kind": "host"}}, shapes=shapes, benchmarks=benchmarks)
        results = run_campaign(site, tmp_path, campaign)
        outputs = {path.read_text() for path in results.glob("batches/*/logs/*.log")}
        rows = rows_of(results / "cells.csv")
        return outputs, {row.get("settings"): (float(row["reported"]), row["unit"]) for row in rows}

    pattern = {"read": {"typical": {"match": r"^ 4096 .* 3.35 +(\S+)", "unit": "us", "better": "smaller"}}}
    outputs, _ = measure(**(pattern if first == "a pattern" else {"read": "perftest", "sizes": [2]}))
    assert len(outputs) == 2  # the output of each launch ends with its time
    again, found = measure(read="perftest", sizes=[4, "4KiB"])
    assert found == {"size 4": (1.47, "us"), "size 4KiB": (2.26, "us")}
    assert again == outputs


CH_RUN = """\
#!/bin/sh
# Runs the command behind the image without a container.
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.torch
def test_the_runtime_starts_ranks_to_the_report(site, tmp_path, wording):
    pytest.importorskip("torch")
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "ch-run").write_text(CH_RUN)
    (commands / "ch-run").chmod(stat.S_IRWXU)
    (tmp_path / "torch.sqfs").write_bytes(b"hsqs" + bytes(92))
    stack = {"kind": "contained", "runtime": "ch-run", "image": "torch.sqfs", "python": sys.executable}
    campaign = fake_campaign(stacks={"image": stack}, repeats=1, benchmarks=fake_campaign()["benchmarks"][1:])
    results = run_campaign(site, tmp_path, campaign, path=commands)
    line = f"ch-run --write-fake --cd={site} {tmp_path}/torch.sqfs -- {sys.executable}"
    assert line in json.loads((results / "plan.json").read_text())["stacks"]["image"]
    assert {row["status"] for row in rows_of(results / "measurements.csv")} == {"ok", "skipped"}
    assert "ch-run" in (results / "report.html").read_text()
    (tmp_path / "torch.sqfs").write_bytes(b"no image")
    refused = run(site, "plan.py", "--campaign", tmp_path / "campaign.yaml", cwd=tmp_path, path=commands)
    assert "stacks.image.image" in refused.stdout + refused.stderr
    wording.lines(refused.stdout + refused.stderr, "is not a")


MPIRUN = """\
#!/bin/sh
# Starts ranks on this machine with Open MPI's variables.
export OMPI_COMM_WORLD_SIZE=$2 OMPI_COMM_WORLD_LOCAL_SIZE=$2
shift 4
rank=0
while [ $rank -lt $OMPI_COMM_WORLD_SIZE ]; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank "$@" &
    rank=$((rank + 1))
done
wait
"""


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.torch
def test_the_launcher_starts_ranks_to_the_report(site, tmp_path):
    pytest.importorskip("torch")
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "mpirun").write_text(MPIRUN)
    (commands / "mpirun").chmod(stat.S_IRWXU)
    cluster = {"schema": 1, "name": "mpi", "scheduler": "mpirun", "num_nodes": 1, "gpus_per_node": 0}
    cluster |= {"plugins": ["../../examples/plugins/mpirun.py"]}
    (site / "config" / "clusters" / "mpi.yaml").write_text(json.dumps(cluster))
    stack = {"kind": "host", "python": sys.executable}
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    entries = fake_campaign()["benchmarks"][1:]
    campaign = fake_campaign(cluster="mpi", stacks={"host": stack}, shapes=shapes, repeats=1, benchmarks=entries)
    results = run_campaign(site, tmp_path, campaign, path=commands)
    assert json.loads((results / "plan.json").read_text())["stacks"]["host"].split()[:3] == ["mpirun", "-np", "2"]
    assert {row["status"] for row in rows_of(results / "measurements.csv")} == {"ok"}
    assert (results / "report.html").exists()


# Without one piece. A change is of a file of the tree: None removes it, a function returns its new text.

Change = Callable[[str], str] | None


def without(pattern: str) -> Callable[[str], str]:
    """Return a function that removes the one place that a pattern matches, up to the end of the line."""

    def change(text: str) -> str:
        found, num = re.subn(rf"^{pattern}.*\n", "", text, flags=re.MULTILINE)
        assert num == 1, pattern
        return found

    return change


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


def output_without(tree: Path, file: str, change: Change, *words: str) -> str:
    """Return what a command prints while one file of the tree is changed. It must fail."""
    path = tree / file
    text = path.read_text(encoding="utf-8")
    try:
        path.unlink() if change is None else path.write_text(change(text), encoding="utf-8")
        done = pytest_of(tree, *words) if words[0].startswith("tests/") else run(tree, *words)
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode != 0
    return done.stdout + done.stderr


ANALYSE = ("analyse.py", "--help")
DECLARED = ("tests/unit/test_benchmarks.py", "-k", "dataloader")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("file", "change", "words", "message"),
    [
        (PROGRAM, None, ANALYSE, f"{SCHEMA} has no program dataloader.py"),
        (SCHEMA, None, ANALYSE, f"{PROGRAM} has no schema dataloader.yaml"),
        (PROGRAM, without("VERSION = 1"), ANALYSE, f"{PROGRAM} assigns no VERSION"),
        (PROGRAM, replaced("def build(", "def _build("), DECLARED, f"{PROGRAM} has no function build"),
        (PROGRAM, without("    num_batches: int$"), DECLARED, f"{SCHEMA} differ in num_batches"),
        (PROGRAM, replaced("num-batches", "batches"), DECLARED, f"{PROGRAM}: no option for ['num_batches']"),
        (SCHEMA, without("x-subject"), ANALYSE, f"{SCHEMA}: the file lacks x-subject"),
        (SCHEMA, replaced("    epoch_bytes:", "    epoch_size:"), DECLARED, "x-results declares ['epoch_size']"),
        (CATALOG, without(r"    dataloader\.TOPIC,"), ANALYSE, f"{TOPIC}: TOPIC is not listed"),
    ],
)
def test_a_missing_piece_of_a_benchmark_is_named(benchmark, file, change, words, message):
    tree, _ = benchmark
    assert message in output_without(tree, file, change, *words)


# The page shows the files as they are.


def blocks() -> list[tuple[str, str]]:
    """Return (file, excerpt) of each code block below a link to a file of examples/."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"\]\(\.\./(examples/[^)]+)\):?\n\n```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_page_shows_every_patch_and_excerpts_of_the_files_as_they_are():
    patches = {str(path.relative_to(ROOT)) for path in EXAMPLES.glob("*/*.patch")}
    shown = {file for file, _ in blocks()}
    assert patches <= shown
    for file, excerpt in blocks():
        rest = (ROOT / file).read_text(encoding="utf-8")
        for part in re.split(r"^\.\.\.\n", excerpt, flags=re.MULTILINE):
            before, found, rest = rest.partition(part)
            assert found == part, f"docs/extending.md: {file} does not contain:\n{part}"
            assert not before.endswith(tuple("abcdefghijklmnopqrstuvwxyz")), part
