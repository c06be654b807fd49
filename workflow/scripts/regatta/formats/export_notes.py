"""What an exported file does not hold of what was chosen: a note at the export, so that nothing is dropped silently."""

from collections import Counter

from regatta.formats.results_folder import ResultsFolder
from regatta.numbers import plural
from regatta.store.imported_times import CENTRES

HELD = {"pytorch-json": ("train_step",), "suite-json": ("train_step", "collective")}  # benchmarks; all where absent
NOT_HELD = {  # CSV holds every number of the tables
    "pytorch-json": "memory, warm-up, parts of a step",
    "suite-json": "single launches and samples, percentiles, intervals, warm-up, parts of a step",
}
MEANS = {f"imported: {word}" for word in CENTRES.values()} - {"imported: median"}


def export_notes(folder: ResultsFolder, kind: str) -> list[str]:
    """Return sentences on what a file of this form lacks. kind: pytorch-json, suite-json or csv."""
    notes = [f"{kind} does not hold {NOT_HELD[kind]}"] if kind in NOT_HELD else []
    rows = folder.measurements[folder.measurements["cell"].isin(folder.ids)]
    ok = rows[rows["status"] == "ok"]
    measured = set(ok["cell"])
    left_out = Counter(
        cell["spec"]["benchmark"]
        for cell in folder.cells
        if cell["id"] in measured and cell["spec"]["benchmark"] not in HELD.get(kind, (cell["spec"]["benchmark"],))
    )
    notes += [f"{kind} has no place for {plural(num, 'cell')} of {name}: left out" for name, num in left_out.items()]
    if lacking := len(folder.ids - measured):
        notes.append(f"{plural(lacking, 'cell')} of the choice without a valid record")
    if words := sorted(set(ok["stop"].dropna()) & MEANS):
        means = " or ".join(word.removeprefix("imported: ") for word in words)
        notes.append(f"p50_s of some imported rows is a {means}, which the file does not say")
    return notes
