"""Load a benchmark outside Regatta's tree by its path."""

import contextlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from harness import failures, script_files

# By folder: the files of its benchmarks, and the modules of them while another folder is in use. Modules of two folders
# may have the same name.
_files: dict[Path, set[str]] = {}
_modules: dict[Path, dict[str, ModuleType]] = {}


def load(code: dict) -> ModuleType:
    """Return the module of a cell's benchmark, which can import its neighbors. code: `module` of the cell's spec.

    Raises ValueError for an edited file, and ImportError with file and line for an exception.
    """
    script_files.check(code["files"])
    path = Path(code["path"])
    _enter(path.parent)
    _files[path.parent] |= {code["path"], *code["files"]}
    if path.stem in sys.modules:
        return sys.modules[path.stem]
    found = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in _files[path.parent]]
        line = f", line {inside[-1].lineno}" if inside else ""
        raise ImportError(f"{inside[-1].filename if inside else path}{line}: {failures.cause_of(error)}") from error
    return module


def _enter(folder: Path) -> None:
    """Make a folder the first one that modules are imported from, instead of that of the last benchmark."""
    for other in [one for one in _files if one != folder]:
        found = {name: of for name, of in sys.modules.items() if getattr(of, "__file__", None) in _files[other]}
        _modules[other] = _modules.get(other, {}) | found
        for name in found:
            del sys.modules[name]
        with contextlib.suppress(ValueError):
            sys.path.remove(str(other))
    _files.setdefault(folder, set())
    sys.modules.update(_modules.pop(folder, {}))
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
