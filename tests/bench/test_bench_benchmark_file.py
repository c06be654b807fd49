"""Benchmarks that ranks load by path: their neighbors, and the cause of a failed import."""

import hashlib
import sys
from pathlib import Path

import pytest

from harness import benchmark_file


@pytest.fixture(autouse=True)
def _unchanged(monkeypatch):
    """Restore modules and path, and forget the folders of a test."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(benchmark_file, "_files", {})
    monkeypatch.setattr(benchmark_file, "_modules", {})
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def code_in(folder: Path, name: str, **texts: str) -> dict:
    """Write files into a folder, and return the code of a cell with all of them."""
    folder.mkdir(exist_ok=True)
    for stem, text in texts.items():
        (folder / f"{stem}.py").write_text(text)
    files = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.py"))}
    return {"path": str(folder / f"{name}.py"), "files": files}


BENCHMARK = (
    "import zz_neighbor\n\ndef build(parameters, ranks):\n    import zz_late\n    return zz_neighbor.X, zz_late.X\n"
)


def test_benchmarks_of_two_folders_import_their_neighbors(tmp_path):
    codes = [
        code_in(tmp_path / name, f"step_{name}", **{f"step_{name}": BENCHMARK}, zz_neighbor=f"X = '{name}'", zz_late=f"X = '{name}'")
        for name in "abc"
    ]  # fmt: skip
    modules = [benchmark_file.load(code) for code in codes]
    for module, name in [*zip(modules, "abc", strict=True), (modules[0], "a")]:
        code = codes["abc".index(name)]
        assert benchmark_file.load(code) is module  # executed once
        assert module.build({}, None) == (name, name)
    assert sum(str(tmp_path) in path for path in sys.path) == 1


FAILURES = {
    "exception": ("x = 1\n1 / 0\n", "a.py, line 2: ZeroDivisionError: division by zero"),
    "exception in a neighbor": ("import zz_other\n", "zz_other.py, line 1: KeyError"),
    "exit": ("import sys\n\nsys.exit(0)\n", "a.py, line 3: SystemExit"),
    "no such module": ("import zz_missing\n", "a.py, line 1: ModuleNotFoundError"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failed_import_names_file_and_line(tmp_path, kind):
    text, words = FAILURES[kind]
    code = code_in(tmp_path, "a", a=text, zz_other="{}[1]\n")
    for _ in range(2):  # a second cell fails alike
        with pytest.raises(ImportError) as caught:
            benchmark_file.load(code)
        assert words in str(caught.value)


def test_an_edited_file_is_not_measured(tmp_path):
    code = code_in(tmp_path, "a", a="x = 1\n", zz_other="")
    (tmp_path / "zz_other.py").write_text("x = 2\n")
    with pytest.raises(ValueError, match="zz_other"):
        benchmark_file.load(code)
