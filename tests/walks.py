"""Count the modules and climbs of a report's calls, by tracing: of the whole report, and of one number.

The report is that of the default campaign. A climb is a pair of modules, the second of which the first calls although
its package stands higher. The number is the scaling efficiency of one cell: the modules are those with a function that
receives or returns it, also in a tuple or a list.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "unit"), str(ROOT / "workflow" / "scripts")]

from synthetic import analyse, analyse_files, write_laptop  # noqa: E402
from test_import_boundary import ORDER  # noqa: E402

from regatta.topics import catalog  # noqa: E402

PACKAGE = ROOT / "workflow" / "scripts" / "regatta"


class Walk:
    """The modules that calls pass, and the pairs of which one calls the other."""

    def __init__(self, number: float | None = None) -> None:
        self.number, self.modules, self.calls = number, set(), set()
        self._names: dict[str, str] = {}

    def __call__(self, frame, event: str, value: object) -> None:
        if event not in ("call", "return") or not (module := self._module(frame)):
            return
        held = [value] if event == "return" else list(frame.f_locals.values())
        if self.number is not None and not any(map(self._has, held)):
            return
        self.modules.add(module)
        if frame.f_back and (caller := self._module(frame.f_back)):
            self.calls.add((caller, module))

    def _has(self, held: object) -> bool:
        values = held if type(held) in (tuple, list) and len(held) < 10 else (held,)
        return any(isinstance(one, float) and one == self.number for one in values)

    def _module(self, frame) -> str:
        file = frame.f_code.co_filename
        if file not in self._names:
            is_own = file.startswith(f"{PACKAGE}/")
            self._names[file] = str(Path(file).relative_to(PACKAGE)) if is_own else ""
        return self._names[file]

    @property
    def climbs(self) -> set[tuple[str, str]]:
        """The pairs of modules that call against the order of the packages."""
        places = {pair: [ORDER.index(path.partition("/")[0]) for path in pair] for pair in self.calls}
        return {pair for pair, (caller, called) in places.items() if called > caller}

    @property
    def outside_topics(self) -> set[str]:
        return {module for module in self.modules if not module.startswith("topics/")}


def write_report() -> Walk:
    """Return the walk of a report whose tables are written."""
    with tempfile.TemporaryDirectory() as name:
        data = analyse_files(write_laptop(Path(name) / "laptop"))
        return traced(Walk(), data)


def one_number() -> Walk:
    """Return the walk of an efficiency, from the store to the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = write_laptop(Path(name) / "laptop")
        rows = analyse(folder).cells_of("train_step")
        number = float(rows.loc[rows["world_size"] > 1, "efficiency_ratio"].dropna().iloc[0])
        return traced(Walk(number), analyse(folder))


def traced(walk: Walk, data) -> Walk:
    sys.setprofile(walk)
    try:
        catalog.write_report(data, data.launches.with_name("report.html"))
    finally:
        sys.setprofile(None)
    return walk


if __name__ == "__main__":
    for title, found in (("write_report", write_report()), ("one number", one_number())):
        sizes = len(found.modules), len(found.outside_topics), len(found.climbs)
        print("{}: {} modules, {} of them outside topics, {} climbs".format(title, *sizes))
        if "--list" in sys.argv:
            print(*(f"  {module}" for module in sorted(found.modules)), sep="\n")
            print(*(f"  {caller} calls {called}" for caller, called in sorted(found.climbs)), sep="\n")
