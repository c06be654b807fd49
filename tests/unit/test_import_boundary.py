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
    path.write_text("def f():\n    from torch.nn import Module\n    importlib.import_module('regatta.planning.plan')\n")
    assert imported(path) == {"torch", "regatta"}


@pytest.mark.parametrize("module", ["planning.plan", "planning.plan_text", "running.supervise"])
def test_planning_and_supervising_load_no_heavy_library(module):
    program = f"import sys, regatta.{module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "regatta" in loaded
    assert loaded & HEAVY == set()


def test_the_packages_of_the_driver_import_each_other_in_one_direction():
    """What a package may import stands before it: from files to cells, to plans and launches, to tables, to a page."""
    order = ["", "store", "slurm", "campaign", "running", "preflight", "planning", "analysis", "formats", "report"]
    wrong = []
    for path in REGATTA:
        package = path.parent.relative_to(SCRIPTS / "regatta").name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regatta"):
                other = [*node.module.split("."), ""][1]
                other = other if other in order else ""
                if order.index(other) > order.index(package):
                    wrong.append(f"{path.relative_to(SCRIPTS)} imports {node.module}")
    assert wrong == []
