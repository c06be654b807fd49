"""A finished campaign, as the writers of formats get it: frozen campaign, tables, and their records."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from regatta.core.errors import UserError, nearest
from regatta.core.text import natural, plural
from regatta.formats.base import Format
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.store.csv_files import MEASUREMENTS, columns_in, read_csv
from regatta.store.frozen_files import read_frozen_campaign
from regatta.store.launch_files import read_one_line
from regatta.store.records import CENTERS, INCOMPLETE

MOST_VALUES = 20  # listed in a message


@dataclass(frozen=True)
class ResultsFolder:
    """A finished campaign. cells: those of the frozen campaign that `--where` selects, in its order."""

    path: Path
    campaign: FrozenCampaign
    cells: list[FrozenCell]
    measurements: pd.DataFrame
    tables: dict[str, pd.DataFrame]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Return the measurements of the selected cells."""
        return self.measurements[self.measurements["cell"].isin({cell.id for cell in self.cells})]

    @cached_property
    def headers(self) -> list[dict]:
        """Return the first lines of the launch files that the cells' measurements come from."""
        return [self._line(launch, 1) for launch in sorted(self.rows["launch"].dropna().unique())]

    def ok_rows(self, cell: FrozenCell) -> pd.DataFrame:
        """Return the rows of a cell's valid ok records, in the order of its repeats."""
        rows = self.rows
        return rows[(rows["cell"] == cell.id) & (rows["status"] == "ok")].sort_values("repeat")

    def record(self, row: pd.Series) -> dict:
        """Return the record behind a row of `ok_rows`."""
        return self._line(row["launch"], int(row["line"]))

    def version(self, name: str) -> str | None:
        """Return the versions of a library that the launches loaded, or None if unknown."""
        found = {(header.get("environment") or {}).get(name) for header in self.headers} - {None}
        return ", ".join(sorted(map(str, found))) or None

    def one_value(self, cells: list[FrozenCell], name: str, allowed: tuple = ()) -> None:
        """Raise UserError unless the cells have one value of a field, or only allowed ones. null is not a value."""
        values = [value for value in dict.fromkeys(_field_text(cell, name) for cell in cells) if value is not None]
        is_allowed = {*values} <= {*allowed} if allowed else len(values) <= 1
        if not is_allowed:
            raise UserError(
                f"{self.path}: this format cannot represent {name} = {', '.join(values)}. Select one with"
                f" --where {name}={allowed[-1] if allowed else values[0]}."
            )

    def _line(self, launch: str, number: int) -> dict:
        path = self.path / "launches" / f"{launch}.jsonl"
        line = read_one_line(path, number)
        if line is None:
            raise UserError(
                f"{path}: line {number} does not match measurements.csv. Rebuild it: make report CONFIG={self.path}"
            )
        return line


def read_results_folder(path: Path, where: dict[str, str]) -> ResultsFolder:
    """Read what `rebuild_report.py` wrote, or the launches of an import. where: field -> value; null also passes."""
    # Imported here: it takes a third of the time of a small import, which does not need it.
    from regatta.store.collect import read_store
    from regatta.topics.catalog import make_tables, read_tables

    frozen = sorted(path.glob("campaign.*.json"))
    campaign = read_frozen_campaign(frozen[0]) if len(frozen) == 1 else None
    if campaign is None or not (campaign.imported is not None or (path / "measurements.csv").is_file()):
        lacks = "measurements.csv" if campaign else "one campaign.<digest>.json"
        raise UserError(f"{path} does not contain {lacks}. Run the campaign, or make report CONFIG={path}")
    cells = [c for c in campaign.cells if all(_field_text(c, name) in (None, where[name]) for name in where)]
    known = {name for cell in campaign.cells for name in (*cell.fields, "world_size")}
    for name in where:
        if name not in known:
            raise UserError(f"--where {name}: no cell of {path} has this field.{nearest(name, known)}")
    if campaign.imported is None:
        measurements = read_csv(path / "measurements.csv", columns_in(campaign, MEASUREMENTS))
        tables = read_tables(path / "tables", campaign)
    else:
        collected, _ = read_store(campaign, path / "launches")
        measurements, tables = collected["measurements"], make_tables(campaign, collected)
    folder = ResultsFolder(path, campaign, cells, measurements, tables)
    _check_measured(folder, where)
    return folder


def _check_measured(folder: ResultsFolder, where: dict[str, str]) -> None:
    """Raise UserError if no measured cell has a selected field: one without effect passes, but does not match."""
    ok = set(folder.rows.loc[folder.rows["status"] == "ok", "cell"])
    measured = [cell for cell in folder.cells if cell.id in ok]
    for name in where:
        if all(_field_text(cell, name) is None for cell in measured):
            values = {_field_text(cell, name) for cell in folder.campaign.cells} - {None}
            known = ", ".join(sorted(values, key=natural)[:MOST_VALUES])
            selected = ", ".join(f"{key}={value}" for key, value in where.items())
            raise UserError(
                f"{folder.path}: no cell with {selected} has a valid record. Values of {name} in this campaign:"
                f" {known or 'none'}. Nothing was written."
            )
    if not measured:
        raise UserError(f"{folder.path}: no cell has a valid record. Nothing was written.")


def _field_text(cell: FrozenCell, name: str) -> str | None:
    value = cell.field(name)
    value = ", ".join(value) if name == "hosts" and value else value
    return None if value is None else json.dumps(value).strip('"')


def export_notes(folder: ResultsFolder, kind: Format) -> list[str]:
    """Return sentences on what a format cannot represent, so that nothing is dropped silently."""
    notes = [f"not in {kind.name}: {kind.not_held}"] if kind.not_held else []
    ok = folder.rows[folder.rows["status"] == "ok"]
    measured = set(ok["cell"])
    benchmarks = Counter(cell.benchmark for cell in folder.cells if cell.id in measured)
    notes += [
        f"{plural(num, 'cell')} of {name} excluded: not representable in {kind.name}"
        for name, num in benchmarks.items()
        if kind.benchmarks and name not in kind.benchmarks
    ]
    if num_excluded := len(folder.cells) - len(measured):
        notes.append(f"{plural(num_excluded, 'selected cell')} excluded: no valid record")
    stops = {stop.removeprefix("imported: ").removesuffix(INCOMPLETE) for stop in ok["stop"].dropna()}
    if means := " or ".join(sorted(stops & {*CENTERS.values()} - {"median"})):
        notes.append(f"p50_s of some imported rows is a {means}; the file does not mark these rows")
    if num := int(ok["stop"].str.endswith(INCOMPLETE).sum()):
        notes.append(f"{plural(num, 'row')} imported from incomplete files; the file does not mark them")
    return notes
