"""Two worlds, one contract: bench/ and regatta/ never import each other, and the driver starts without heavy libraries."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
BENCH = sorted((SCRIPTS / "bench").glob("*.py"))
REGATTA = sorted((SCRIPTS / "regatta").rglob("*.py"))
THIN = sorted(SCRIPTS.glob("*.py"))
RANK_ONLY = {"torch", "torchvision", "torchaudio"}
HEAVY = RANK_ONLY | {"pandas", "numpy", "scipy", "matplotlib", "jinja2", "snakemake"}


def imported(path: Path) -> set[str]:
    """Return the first name of each import of a file, wherever in the file it stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0] if not node.level else "(relative)")
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("import_module", "__import__"):
            found |= {
                a.value.split(".")[0] for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
            }
    return found


def test_there_is_something_to_check():
    assert len(BENCH) > 5
    assert len(REGATTA) > 15
    assert len(THIN) > 3


@pytest.mark.parametrize("path", [*REGATTA, *THIN], ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_the_driver_never_imports_torch_or_a_program_of_the_ranks(path):
    assert imported(path).isdisjoint(RANK_ONLY | {p.stem for p in BENCH} | {"bench", "(relative)"})


@pytest.mark.parametrize("path", BENCH, ids=lambda path: path.stem)
def test_the_ranks_never_import_the_driver_or_its_libraries(path):
    driver_only = (HEAVY - RANK_ONLY) | {"yaml", "jsonschema", "regatta", "workflow", "(relative)"}
    assert imported(path).isdisjoint(driver_only)


def test_an_import_inside_a_function_is_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from torch.nn import Module\n    importlib.import_module('regatta.plan.plan')\n")
    assert imported(path) == {"torch", "regatta"}


@pytest.mark.parametrize("module", ["plan.plan", "plan.text", "run.supervise"])
def test_planning_and_supervising_load_no_heavy_library(module):
    program = f"import sys, regatta.{module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "regatta" in loaded
    assert loaded & HEAVY == set()


ORDER = ["core", "store", "runtimes", "launchers", "campaign", "run", "report", "plan", "topics", "formats", "compare"]
# Until a topic brings its own methods, findings and warnings, the page collects them from the topics.
UPWARD = {
    ("report/methods.py", "topics"),
    ("report/page.py", "topics"),
    ("report/provenance.py", "topics"),
    ("report/warnings.py", "topics"),
    ("store/collect.py", "topics"),
}


def test_the_packages_of_the_driver_import_each_other_in_one_direction():
    """A package imports only packages that stand before it: from files to cells, launches, tables, and pages."""
    upward = set()
    for path in REGATTA:
        package, *rest = path.relative_to(SCRIPTS / "regatta").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if rest and isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regatta."):
                other = node.module.split(".")[1]
                if ORDER.index(other) > ORDER.index(package):
                    upward.add(("/".join([package, *rest]), other))
    assert upward == UPWARD
