"""A results folder as the writers need it: the frozen campaign, its tables, and the records behind them."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from regatta.campaign.matrix import field_value
from regatta.core.errors import UserError, nearest
from regatta.core.text import natural, plural
from regatta.formats.base import Format
from regatta.store.launch_files import read_frozen, read_one_line
from regatta.store.records import CENTRES
from regatta.store.tables import MEASUREMENTS, read_csv
from regatta.topics.catalog import read_tables

MOST_VALUES = 20  # of a message


@dataclass(frozen=True)
class ResultsFolder:
    """cells: those of the frozen campaign that `--where` leaves, in its order."""

    path: Path
    campaign: dict
    cells: list[dict]
    measurements: pd.DataFrame
    tables: dict[str, pd.DataFrame]

    @property
    def ids(self) -> set[str]:
        return {cell["id"] for cell in self.cells}

    @cached_property
    def headers(self) -> list[dict]:
        """The first lines of the launch files that the cells' measurements come from."""
        own = self.measurements[self.measurements["cell"].isin(self.ids)]
        return [self._line(launch, 1) for launch in sorted(own["launch"].dropna().unique())]

    def ok_rows(self, cell: dict) -> pd.DataFrame:
        """Return the rows of a cell's valid ok records, in the order of its repeats."""
        rows = self.measurements
        return rows[(rows["cell"] == cell["id"]) & (rows["status"] == "ok")].sort_values("repeat")

    def record(self, row: pd.Series) -> dict:
        """Return the record behind a row of `ok_rows`."""
        return self._line(row["launch"], int(row["line"]))

    def version(self, name: str) -> str | None:
        """Return the versions of a library that the launches loaded, or None where none says it."""
        found = {(header.get("environment") or {}).get(name) for header in self.headers} - {None}
        return ", ".join(sorted(map(str, found))) or None

    def one_value(self, cells: list[dict], name: str, allowed: tuple = ()) -> None:
        """Raise UserError unless the cells have one value of a field, or only allowed ones. null is no value."""
        values = {json.dumps(field_value(cell["spec"], name)): None for cell in cells}
        values.pop("null", None)
        if allowed and values.keys() <= {json.dumps(value) for value in allowed}:
            return
        if len(values) > 1 or (allowed and values):
            found = ", ".join(value.strip('"') for value in values)
            raise UserError(
                f"{self.path}: {name} has the values {found}, and this format has no place for that. Choose with"
                f" --where {name}={allowed[-1] if allowed else next(iter(values)).strip(chr(34))}."
            )

    def _line(self, launch: str, number: int) -> dict:
        path = self.path / "launches" / f"{launch}.jsonl"
        line = read_one_line(path, number)
        if line is None:
            raise UserError(
                f"{path}: line {number} is not what measurements.csv was made from. Build it again:"
                f" python workflow/scripts/rebuild_report.py {self.path}"
            )
        return line


def read_results_folder(path: Path, where: dict[str, str]) -> ResultsFolder:
    """Read what `rebuild_report.py` left. where: field of a cell -> value; a field that is null passes."""
    frozen = sorted(path.glob("campaign.*.json"))
    if len(frozen) != 1 or not (path / "measurements.csv").is_file():
        lacks = "measurements.csv" if len(frozen) == 1 else "one campaign.<digest>.json"
        raise UserError(
            f"{path} does not hold {lacks}. Run the campaign, or python workflow/scripts/rebuild_report.py {path}"
        )
    campaign = read_frozen(frozen[0])
    cells = [cell for cell in campaign["cells"] if _is_chosen(cell, where)]
    known = {name for cell in campaign["cells"] for name in (*cell["spec"], *cell["spec"]["parameters"], "world_size")}
    for name in where:
        if name not in known:
            raise UserError(f"--where {name}: no cell of {path} has such a field.{nearest(name, known)}")
    measurements = read_csv(path / "measurements.csv", MEASUREMENTS)
    folder = ResultsFolder(path, campaign, cells, measurements, read_tables(path / "tables"))
    _check_measured(folder, where)
    return folder


def _check_measured(folder: ResultsFolder, where: dict[str, str]) -> None:
    """Raise UserError where no measured cell has what was asked for. A field without effect passes, and is no match."""
    ok = set(folder.measurements.loc[folder.measurements["status"] == "ok", "cell"])
    measured = [cell for cell in folder.cells if cell["id"] in ok]
    for name in where:
        if all(field_value(cell["spec"], name) is None for cell in measured):
            values = {json.dumps(field_value(cell["spec"], name)).strip('"') for cell in folder.campaign["cells"]}
            known = ", ".join(sorted(values - {"null"}, key=natural)[:MOST_VALUES])
            asked = ", ".join(f"{key}={value}" for key, value in where.items())
            raise UserError(
                f"{folder.path}: no cell with {asked} has a valid record, so nothing is written. Values of {name} in"
                f" this campaign: {known or 'none'}."
            )
    if not measured:
        raise UserError(f"{folder.path}: no cell has a valid record, so nothing is written.")


def _is_chosen(cell: dict, where: dict[str, str]) -> bool:
    for name, wanted in where.items():
        value = field_value(cell["spec"], name)
        if value is not None and json.dumps(value).strip('"') != wanted:
            return False
    return True


# What Regatta adds to the JSON of other programs that it writes, so that an import finds the same cells again.


def cell_fields(spec: dict) -> dict:
    """Return what identifies a cell beside its parameters."""
    shape = {name: spec[name] for name in ("version", "nodes", "gpus_per_node")}
    return {"stack": spec["stack"]["name"]} | shape


def other_parameters(spec: dict, named: tuple[str, ...]) -> dict:
    """Return the parameters of a cell but those that the form has a name for."""
    return {name: value for name, value in spec["parameters"].items() if name not in named}


# What an exported file lacks of the selected results: a note at the export, so that nothing is dropped silently.

MEANS = {f"imported: {word}" for word in CENTRES.values()} - {"imported: median"}


def export_notes(folder: ResultsFolder, kind: Format) -> list[str]:
    """Return sentences on what a file of a format lacks."""
    notes = [f"{kind.name} does not hold {kind.not_held}"] if kind.not_held else []
    rows = folder.measurements[folder.measurements["cell"].isin(folder.ids)]
    ok = rows[rows["status"] == "ok"]
    measured = set(ok["cell"])
    benchmarks = Counter(cell["spec"]["benchmark"] for cell in folder.cells if cell["id"] in measured)
    notes += [
        f"{kind.name} has no place for {plural(num, 'cell')} of {name}: left out"
        for name, num in benchmarks.items()
        if kind.benchmarks and name not in kind.benchmarks
    ]
    if lacking := len(folder.ids - measured):
        notes.append(f"{plural(lacking, 'cell')} of the choice without a valid record")
    if words := sorted(set(ok["stop"].dropna()) & MEANS):
        means = " or ".join(word.removeprefix("imported: ") for word in words)
        notes.append(f"p50_s of some imported rows is a {means}, which the file does not say")
    return notes
