"""Plugins of a site: Python files with import formats, FORMATS, and container runtimes, RUNTIMES.

They are code of the driver: importing them is intended (docs/extending.md).
"""

import importlib.util
import sys
import traceback
from pathlib import Path

from regatta.core.errors import UserError
from regatta.runtimes import RUNTIMES
from regatta.runtimes.base import Runtime

_loaded: set[Path] = set()


def load_plugin(path: Path) -> None:
    """Import a plugin once, and add its formats and runtimes. Raises UserError for one that cannot be used."""
    if path in _loaded:
        return
    found = importlib.util.spec_from_file_location(f"regatta_plugin_{path.stem}", path)
    if found is None or not path.is_file():
        raise UserError(f"{path}: no such Python file. Correct the path.")
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = (lines or [getattr(error, "lineno", None) or 1])[-1]
        text = " ".join(str(getattr(error, "msg", error)).split())
        raise UserError(f"{path}:{line}: {type(error).__name__}: {text}. Fix it, or remove the plugin.") from None
    formats, runtimes = getattr(module, "FORMATS", ()), getattr(module, "RUNTIMES", {})
    if not (isinstance(formats, list | tuple) and isinstance(runtimes, dict) and (formats or runtimes)):
        raise UserError(f"{path}: has neither FORMATS = (...) nor RUNTIMES = {{...}}. Add one, or remove the plugin.")
    if formats:
        _add_formats(path, formats)
    _check(path, "runtime", RUNTIMES, runtimes, Runtime)
    RUNTIMES.update(runtimes)
    _loaded.add(path)


def _add_formats(path: Path, formats: list | tuple) -> None:
    from regatta.formats import FORMATS, SITE_FORMATS  # pandas, which supervisors need not load
    from regatta.formats.base import Format

    known = [kind.name for kind in (*FORMATS, *SITE_FORMATS)]
    _check(path, "format", known, {getattr(kind, "name", "FORMATS"): kind for kind in formats}, Format)
    SITE_FORMATS.extend(formats)


def _check(path: Path, what: str, known: object, given: dict, kind: type) -> None:
    """Raise UserError for a name that is known, or an object of another kind."""
    for name, item in given.items():
        if not isinstance(item, kind):
            raise UserError(f"{path}: {name} is not a {kind.__name__}. See docs/extending.md.")
        if name in known:
            raise UserError(f"{path}: {what} {name!r} exists. Rename it, or remove the plugin.")
