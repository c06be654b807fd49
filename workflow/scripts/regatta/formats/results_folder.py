"""A results folder as the writers need it: the frozen campaign, its tables, and the records behind them."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from regatta.analysis.all_tables import read_tables
from regatta.analysis.tables import MEASUREMENTS, read_csv
from regatta.campaign.matrix import field_value
from regatta.errors import UserError, nearest
from regatta.store.launch_files import read_frozen, read_one_line


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

    def records(self, cell: dict) -> list[dict]:
        """Return the valid ok records of a cell, in the order of its repeats."""
        rows = self.measurements
        own = rows[(rows["cell"] == cell["id"]) & (rows["status"] == "ok")].sort_values("repeat")
        return [self._line(row.launch, int(row.line)) for row in own.itertuples()]

    def version(self, name: str) -> str | None:
        """Return the versions of a library that the launches loaded, or None where none says it."""
        found = {(header.get("environment") or {}).get(name) for header in self.headers} - {None}
        return ", ".join(sorted(map(str, found))) or None

    def one_value(self, cells: list[dict], name: str, allowed: tuple = ()) -> None:
        """Raise UserError unless the cells have one value of a field, or only allowed ones. null has no effect and is none."""
        values = {json.dumps(field_value(cell["spec"], name)): None for cell in cells}
        values.pop("null", None)
        if allowed and values.keys() <= {json.dumps(value) for value in allowed}:
            return
        if len(values) > 1 or (allowed and values):
            told = ", ".join(value.strip('"') for value in values)
            raise UserError(
                f"{self.path}: {name} has the values {told}, and this format has no place for that. Choose with"
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
    if where and not cells:
        chosen = " ".join(f"--where {name}={value}" for name, value in where.items())
        raise UserError(f"{path}: no cell has {chosen}. Take one out, or choose values that campaign.*.json has.")
    measurements = read_csv(path / "measurements.csv", MEASUREMENTS)
    return ResultsFolder(path, campaign, cells, measurements, read_tables(path / "tables"))


def _is_chosen(cell: dict, where: dict[str, str]) -> bool:
    for name, wanted in where.items():
        value = field_value(cell["spec"], name)
        if value is not None and json.dumps(value).strip('"') != wanted:
            return False
    return True
