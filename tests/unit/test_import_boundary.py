"""bench/ and regatta/ never import each other, and the driver starts without heavy libraries."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
BENCH = sorted((SCRIPTS / "bench").rglob("*.py"))
REGATTA = sorted((SCRIPTS / "regatta").rglob("*.py"))
THIN = sorted(SCRIPTS.glob("*.py"))
RANK_ONLY = {"torch", "torchvision", "torchaudio"}
HEAVY = RANK_ONLY | {"pandas", "numpy", "scipy", "matplotlib", "jinja2", "snakemake", "rich"}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def imported(path: Path) -> set[str]:
    """Return the first name of each import of a file, wherever in the file it stands."""
    found = set()
    for node in nodes_of(path):
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


def importing(paths: list[Path], forbidden: set[str]) -> dict[Path, set[str]]:
    """Return the files that import one of these names, with the names."""
    return {path: names for path in paths if (names := imported(path) & forbidden)}


def test_the_driver_never_imports_torch_or_a_program_of_the_ranks():
    programs = {path.stem for path in BENCH} | {path.parent.name for path in BENCH}
    assert importing([*REGATTA, *THIN], RANK_ONLY | programs | {"(relative)"}) == {}


def test_the_ranks_never_import_the_driver_or_its_libraries():
    driver_only = (HEAVY - RANK_ONLY) | {"yaml", "jsonschema", "regatta", "workflow", "(relative)"}
    assert importing(BENCH, driver_only) == {}


def test_an_import_inside_a_function_is_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from torch.nn import Module\n    importlib.import_module('regatta.plan.plan')\n")
    assert imported(path) == {"torch", "regatta"}


@pytest.mark.parametrize("module", ["plan.plan", "plan.plan_page", "run.supervise"])
def test_planning_and_supervising_load_no_heavy_library(module):
    program = f"import sys, regatta.{module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "regatta" in loaded
    assert loaded & HEAVY == set()


def test_only_the_live_view_needs_rich():
    names = {str(path.relative_to(SCRIPTS)) for path in [*REGATTA, *THIN, *BENCH] if "rich" in imported(path)}
    assert names == {"regatta/run/live_view.py", "watch.py"}


ORDER = "core model kit store runtimes launchers campaign run tables report plan topics formats compare".split()


def test_the_packages_of_the_driver_import_each_other_in_one_direction():
    """A package imports only packages that stand before it: from files to cells, launches, tables, and pages."""
    upward = set()
    for path in REGATTA:
        package, *rest = path.relative_to(SCRIPTS / "regatta").parts
        for node in nodes_of(path):
            if rest and isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regatta."):
                other = node.module.split(".")[1]
                if ORDER.index(other) > ORDER.index(package):
                    upward.add(("/".join([package, *rest]), other))
    assert upward == set()


def module_imports() -> dict[str, set[str]]:
    """Return the modules of the driver that each of them imports, also inside functions."""
    modules = {".".join(path.relative_to(SCRIPTS).with_suffix("").parts): path for path in REGATTA}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    found = {}
    for name, path in modules.items():
        nodes = [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom) and node.module]
        named = [(node.module, f"{node.module}.{alias.name}") for node in nodes for alias in node.names]
        found[name] = {full if full in modules else module for module, full in named} & modules.keys()
    return found


def test_driver_has_no_import_cycles():
    imports = module_imports()
    assert len(imports["regatta.report.page"]) > 5
    tuple(TopologicalSorter(imports).static_order())  # raises CycleError, with the cycle


def test_a_module_of_the_driver_fits_in_400_lines_without_exemption():
    texts = {path: path.read_text(encoding="utf-8") for path in REGATTA}
    assert [path for path, text in texts.items() if len(text.splitlines()) > 400] == []
    assert [path for path, text in texts.items() if "fmt: skip" in text or "fmt: off" in text] == []


def is_assigned(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def class_definitions(folder: Path) -> dict[str, list[str]]:
    """Return where each class and each alias of a type of a folder is defined; an alias is not written in capitals."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        module, *nodes = nodes_of(path)
        named = [(node.name, node) for node in nodes if isinstance(node, ast.ClassDef)]
        for node in (node for node in module.body if isinstance(node, ast.Assign)):
            names = [name.id for target in node.targets for name in ast.walk(target) if is_assigned(name)]
            named += [(name, node) for name in names if name[:1].isupper() and not name.isupper()]
        for name, node in named:
            found.setdefault(name, []).append(f"{path.relative_to(folder)}:{node.lineno}")
    return found


def test_module_names_are_unique_in_the_driver():
    """But for base.py, what the modules of a package share."""
    names = [path.name for path in (SCRIPTS / "regatta").rglob("*.py") if path.name not in ("__init__.py", "base.py")]
    assert len(names) > 100
    assert [name for name, num in Counter(names).items() if num > 1] == []


def test_class_names_are_unique_in_the_driver():
    """Whoever searches for a name finds one meaning."""
    found = class_definitions(SCRIPTS / "regatta")
    assert len(found) > 100
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_a_class_name_used_twice_is_found_with_both_places(tmp_path):
    (tmp_path / "a.py").write_text("class Row:\n    class Cell: ...\n")
    (tmp_path / "b.py").write_text("ROW = 1\nRow, Time = list[str], float\n")
    assert class_definitions(tmp_path) == {"Row": ["a.py:1", "b.py:2"], "Cell": ["a.py:2"], "Time": ["b.py:2"]}


# What only the packages launchers/ and runtimes/ may say in code. Messages may contain a key of a file, such as srun.
TOOL_WORDS = {"slurm", "apptainer", "singularity", "contained", "bind-mounted"}
TOOL_COMMAND = re.compile(
    r"\b(slurm\w*|sbatch|squeue|scontrol|sinfo|scancel|sacct|SLURM_\w*|SBATCH_\w*)\b|--(nv|bind)\b|srun: ", re.I
)


def tool_knowledge(nodes: list[ast.AST]) -> list[str]:
    """Return code that depends on which scheduler or container runtime it is: comparisons, imports and texts."""
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    found = []
    for node in nodes:
        if isinstance(node, ast.Compare):
            parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
            constants = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            asks_kind = "kind" in constants and constants & {"host", *TOOL_WORDS}
            if constants & (TOOL_WORDS | {"scheduler"}) or asks_kind:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and re.match(r"regatta\.(launchers|runtimes)", node.module or ""):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name for name in names if re.search(r"slurm|apptainer|\.host\b", name)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found += [node.value] if node.value == "srun" or TOOL_COMMAND.search(node.value) else []
    return found


def test_only_launchers_and_runtimes_know_a_scheduler_or_a_container_runtime():
    others = [
        path for path in REGATTA if path.relative_to(SCRIPTS / "regatta").parts[0] not in ("launchers", "runtimes")
    ]
    assert {path: found for path in others if (found := tool_knowledge(nodes_of(path)))} == {}


# The lists themselves, and the kinds of stacks.
LISTED = {
    "regatta.launchers.slurm",
    "slurm",
    "regatta.runtimes.apptainer",
    "regatta.runtimes.host",
    "stack['kind'] == 'host'",
    "stack['kind'] == 'bind-mounted'",
}


@pytest.mark.parametrize(
    "path", ["launchers/__init__.py", "launchers/base.py", "runtimes/__init__.py", "runtimes/base.py"]
)
def test_what_launchers_or_runtimes_share_knows_none_of_them(path):
    assert set(tool_knowledge(nodes_of(SCRIPTS / "regatta" / path))) <= LISTED


def test_no_rule_knows_a_scheduler():
    rules = sorted((SCRIPTS.parent / "rules").glob("*.smk"))
    assert rules
    assert [path.name for path in rules if TOOL_COMMAND.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "code",
    [
        'if cluster["scheduler"] == "none": pass',
        'x = stack["kind"] != "host"',
        'x = stack["kind"] in ("host", "contained")',
        'if runtime == "apptainer": pass',
        "from regatta.launchers import slurm_queue as queue",
        "def f():\n    from regatta.launchers.slurm import argv",
        'line = ["sbatch", "--wrap"]',
        'options = stack["srun"]',
        'if word == "--bind": pass',
    ],
)
def test_knowledge_of_a_scheduler_or_runtime_is_found(code):
    assert tool_knowledge([*ast.walk(ast.parse(code))])
    assert not tool_knowledge([*ast.walk(ast.parse('"""Slurm."""\nx = line["kind"]\ny = "host"'))])
