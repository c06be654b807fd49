"""Plugins of a site: Python files with container runtimes, RUNTIMES by name, launchers, LAUNCHERS by name, or import
formats, FORMATS.

They are code of the driver: importing them is intended (docs/extending.md).
"""

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

from regatta.core.errors import UserError
from regatta.runtimes import RUNTIMES
from regatta.runtimes.base import Runtime

PLUGINS: dict[Path, tuple] = {}  # that this process has loaded, with their formats
# Dictionaries of a plugin: what they contain, where it is added, and its class. regatta.launchers adds LAUNCHERS.
ADDITIONS: dict[str, tuple[str, dict, type]] = {"RUNTIMES": ("runtime", RUNTIMES, Runtime)}


def load_plugin(path: Path) -> tuple:
    """Import a plugin once, add its runtimes and launchers, and return its formats.

    Raises UserError for one that cannot be used.
    """
    if path in PLUGINS:
        return PLUGINS[path]
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
    formats, given = getattr(module, "FORMATS", ()), {name: getattr(module, name, {}) for name in ADDITIONS}
    are_valid = isinstance(formats, list | tuple) and all(isinstance(found, dict) for found in given.values())
    if not (are_valid and (formats or any(given.values()))):
        text = "has neither FORMATS = (...) nor RUNTIMES = {...} nor LAUNCHERS = {...}"
        raise UserError(f"{path}: {text}. Add one, or remove the plugin.")
    for name, (what, known, kind) in ADDITIONS.items():
        check_additions(path, what, known, given[name], kind)
    for name, (_, known, _) in ADDITIONS.items():
        known.update(given[name])
    return PLUGINS.setdefault(path, tuple(formats))


def check_additions(path: Path, what: str, known: Iterable[str], given: Mapping[str, object], kind: type) -> None:
    """Raise UserError for a name that is known, or an object of another kind."""
    for name, item in given.items():
        if not isinstance(item, kind):
            raise UserError(f"{path}: {what} {name!r} is not a {kind.__name__}. See docs/extending.md.")
        if name in known:
            raise UserError(f"{path}: {what} {name!r} exists. Rename it, or remove the plugin.")
