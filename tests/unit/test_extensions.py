"""A declaration in one place without its counterpart in another is an error that names both: docs/extending.md."""

import subprocess
import sys
from pathlib import Path

import pytest

from regatta.core import benchmarks, schemas
from regatta.core.benchmarks import load_benchmark
from regatta.core.files import ROOT, SCRIPTS, check_listed, sources
from regatta.formats import FORMATS
from regatta.launchers import LAUNCHERS
from regatta.launchers.base import Launcher, Queue
from regatta.runtimes import RUNTIMES
from regatta.store.csv_files import TEXT, make_table
from regatta.topics.base import Topic
from regatta.topics.catalog import TOPICS


@pytest.mark.parametrize(
    ("package", "kind", "listed", "missing"),
    [
        ("topics", "Topic", TOPICS[:-1], "topics/preflight_section.py: TOPIC"),
        ("formats", "Format", FORMATS[1:], "formats/tidy_csv.py: CSV"),
        ("runtimes", "Runtime", [RUNTIMES["host"]], "runtimes/apptainer.py: RUNTIME"),
        ("launchers", "Launcher", [LAUNCHERS["none"]], "launchers/slurm.py: LAUNCHER"),
    ],
)
def test_a_module_that_its_list_lacks_is_named(package, kind, listed, missing, wording):
    with wording.raises(ValueError, module=missing):
        check_listed(package, kind, listed, "THE_LIST")


@pytest.mark.parametrize("script", ["analyse.py", "report.py"])
def test_an_edit_of_any_topic_builds_tables_and_report_again(script):
    functions = [function for topic in TOPICS for function in (topic.section, topic.findings) if function]
    modules = {Path(sys.modules[function.__module__].__file__) for function in functions}
    assert len(modules) > 10
    assert modules <= set(map(Path, sources(script)))


def test_a_field_that_a_launcher_lacks_is_named(wording):
    class FluxQueue(Queue):
        pass

    with pytest.raises(TypeError, match="lock"):
        FluxQueue()
    with wording.raises(TypeError):
        Launcher("flux", "Flux", ranks=None, queue=None)


def test_findings_without_a_sentence_are_an_error(wording):
    with wording.raises(ValueError):
        Topic("cost", "Cost", findings=lambda data: [])


def test_a_field_that_its_table_does_not_declare_is_an_error(wording):
    with wording.raises(ValueError):
        make_table([{"cell": "a", "batch_size": 8, "cost_eur": 1}], {"cell": TEXT})


@pytest.mark.parametrize(
    "results",
    [
        {"value": {}},
        {"checks": {"is_right": {}}},
        {"parts_ns": {"load": {"label": "Load", "heading": "x"}}},
        {"values": {"rate": {"label": "Rate"}}},
        {"values": {"rate": {"label": "Rate", "type": "number", "column": "rate", "per": "rank"}}},
    ],
)
def test_a_result_that_is_not_declared_in_full_is_named(monkeypatch, wording, results):
    schema = load_benchmark("collective").schema | {"x-results": results}
    schemas.load_schema("benchmark")  # read and kept before the next line
    monkeypatch.setattr(schemas, "read_schema", lambda path: schema)
    with wording.raises(ValueError):
        benchmarks._load.__wrapped__("collective")


def test_the_results_of_all_benchmarks_are_declared_as_those_of_one():
    rule = {**schemas.load_schema("benchmark"), "required": []}
    assert schemas.first_violation({"x-results": schemas.load_schema("results")}, rule) is None


@pytest.mark.parametrize("script", ["collect.py", "analyse.py", "report.py"])
def test_an_edit_of_a_schema_rebuilds_what_has_its_columns_and_labels(script):
    assert {str(path) for path in (ROOT / "workflow" / "schemas").rglob("*.yaml")} <= set(sources(script))


@pytest.mark.parametrize("script", ["collect.py", "analyse.py", "report.py"])
def test_the_sources_of_a_script_are_the_modules_that_python_loads(script):
    program = f"import sys, {Path(script).stem}; print(*(m.__file__ for n, m in sys.modules.items() if n[:7] == 'regatta' and m.__file__))"
    environment = {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    found = {path for path in sources(script) if path.endswith(".py")} - {str(SCRIPTS / script)}
    loaded = set(done.stdout.split())
    assert found <= loaded
    assert {path for path in loaded - found if not path.endswith("__init__.py")} == set()


def test_the_store_is_not_read_again_for_an_edit_of_a_figure():
    assert not [path for path in sources("collect.py") if path.endswith("figures.py")]
