"""Read and compare two campaigns. Cells are matched by what they measure and by the name of their stack."""

import dataclasses
import functools
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from regatta.campaign.expansion import canonical_json
from regatta.compare.fields import matched_fields, single_differences
from regatta.compare.gate_rules import allocation_variation_of, gate_difference
from regatta.core.benchmarks import benchmark_names, load_benchmark
from regatta.core.errors import UserError, nearest
from regatta.core.text import one_line
from regatta.core.verdicts import Compared, compare_all
from regatta.formats.base import Options
from regatta.formats.importer import import_files
from regatta.kit.kinds import joined
from regatta.model.frozen import Cell, FrozenCampaign, FrozenCell
from regatta.report.page import read_headers
from regatta.run.preflight import latest_preflight
from regatta.store.collect import cell_row
from regatta.store.csv_files import MEASUREMENTS, read_csv
from regatta.store.frozen_files import read_frozen, read_frozen_campaign
from regatta.tables.facts import Difference, Fact, differences_by_stack, facts_of
from regatta.tables.primary_times import primary_columns, sides_of, times_by_cell
from regatta.topics.base import fallback_text
from regatta.topics.catalog import collect
from regatta.topics.comparison.comparison_tables import Margin, by_effect, compared_table

# Columns of measurements.csv. As few as possible, since an old file may not have the others.
NEEDED = ("cell", "status", "p50_s", "repeat", "launch", "time_utc")
PRIMARY_TIMES = tuple(load_benchmark(name).primary_time["column"] for name in benchmark_names())
USED_IF_PRESENT = ("benchmark", *PRIMARY_TIMES)

BASE, TEST = "only in base", "only in test"  # reasons for which a cell has no counterpart


def match_key(cell: Cell) -> str:
    """Return a text that identifies what a cell measures. Its id does not: an upgraded image changes it."""
    return canonical_json(matched_fields(cell) | ({"hosts": cell.hosts} if cell.hosts else {}))


def check_baseline_campaign(results: Path) -> tuple[FrozenCampaign, Path]:
    """Return the frozen campaign of a results folder, and its measurements.csv, which an import need not have.

    Raises UserError if one is missing.
    """
    frozen, measurements = sorted(results.glob("campaign.*.json")), results / "measurements.csv"
    if len(frozen) == 1:
        campaign = read_frozen_campaign(frozen[0])
        if measurements.is_file() or campaign.imported is not None:
            return campaign, measurements
    known = sorted({path.parent.name for path in results.parent.glob("*/campaign.*.json")} - {results.name})
    missing = "contains no measurements.csv" if len(frozen) == 1 else "has no single campaign.<digest>.json"
    raise UserError(
        f"{results} {missing}, so there is nothing to compare with.{nearest(results.name, known)}"
        f" Run that campaign first, or name another. Campaigns with results: {', '.join(known) or 'none'}."
    )


@dataclass(frozen=True)
class CampaignResults:
    """The results that a comparison needs. facts: on its stacks and launches."""

    folder: Path
    campaign: FrozenCampaign
    measurements: pd.DataFrame
    facts: list[Fact]

    @functools.cached_property
    def first_time_utc(self) -> str | None:
        """Return the time of the first record; None if imported, since those records have the time of the import."""
        times = self.measurements["time_utc"].dropna() if self.campaign.imported is None else ()
        return min(times) if len(times) else None

    @functools.cached_property
    def has_launch_files(self) -> bool:
        return any(fact.launch for fact in self.facts)

    @property
    def notes(self) -> list[str]:
        """Return corrections, assumptions and omissions of the import; empty for a measured campaign."""
        files = self.campaign.imported or []
        return list(dict.fromkeys(note for file in files for note in file["notes"]))


@dataclass(frozen=True)
class CampaignsCompared:
    """Two compared campaigns.

    comparisons: a row for each cell with ok launches on both sides, the largest effect first; `reference` is base.
    unmatched: reason -> the cells that are not compared. fields: the single fields in which unmatched
    cells of both differ. fallback: which primary times one side lacks; empty if none. gate: how a gate with default
    settings differs. once: results of functions (`once_per_report`).
    """

    base: CampaignResults
    test: CampaignResults
    comparisons: pd.DataFrame
    unmatched: dict[str, list[FrozenCell]]
    environment: list[Difference]
    fields: list[str]
    fallback: str = ""
    gate: str = ""
    once: dict = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def has_environments(self) -> bool:
        return self.base.has_launch_files and self.test.has_launch_files

    def num(self, verdict: str) -> int:
        return int((self.comparisons["verdict"] == verdict).sum())


def read_campaign(folder: Path) -> CampaignResults:
    """Read a results folder. Raises UserError if files are missing or damaged."""
    campaign, measurements = check_baseline_campaign(folder)
    if campaign.imported is None:
        table = _read_measurements(campaign, measurements)
    else:  # an import writes no tables, and those of an earlier report may lack later imports
        table = collect(campaign, folder / "launches")[0]["measurements"]
    headers = read_headers(folder / "launches", table)
    checked = [stack for path in latest_preflight(folder) for stack in read_frozen(Path(path))["stacks"]]
    return CampaignResults(folder, campaign, table, facts_of(headers, campaign.cells, checked))


def _read_measurements(campaign: FrozenCampaign, measurements: Path) -> pd.DataFrame:
    with measurements.open() as file:
        present = file.readline().rstrip("\n").split(",")
    names = dict.fromkeys([*NEEDED, *(name for name in USED_IF_PRESENT if name in present)])
    table = read_csv(measurements, {name: MEASUREMENTS[name] for name in names})
    advice = f"Rebuild it from the store: make report CONFIG={measurements.parent}"
    for name in {"p50_s", *PRIMARY_TIMES} & set(table):
        is_time = table[name].fillna(1.0).between(0, sys.float_info.max, inclusive="right")
        for row in table[(table["status"] == "ok") & ~is_time].itertuples():
            found = f"{name} of {row.cell} is {getattr(row, name):g}"
            raise UserError(f"{measurements}: {found}; expected a positive time. {advice}")
    for row in table[(table["status"] == "ok") & table["repeat"].isna()].itertuples():
        raise UserError(f"{measurements}: repeat of {row.cell} is empty; expected the number of a launch. {advice}")
    missing = {cell.id for cell in campaign.cells} - set(table["cell"].unique())
    if missing:
        raise UserError(
            f"{measurements}: lacks {len(missing)} of {len(campaign.cells)} planned cells, such as {min(missing)}."
            f" {advice}"
        )
    return table


def compare_campaigns(
    base: CampaignResults, test: CampaignResults, margin: float, allocation_variation: float | None = None
) -> CampaignsCompared:
    """Return how the cells of `test` compare with those of `base`. Raises UserError if no cell is in both.

    allocation_variation: for the verdicts of a gate.
    """
    pairs, unmatched = matched_cells((base.campaign, base.measurements), (test.campaign, test.measurements))
    fields = single_differences(unmatched.get(BASE, ()), unmatched.get(TEST, ()))
    if not pairs and unmatched.keys() <= {BASE, TEST}:
        differences = f"Cells differ in {joined(fields)}. " if fields else ""
        raise UserError(
            f"{test.folder} has no cell in common with {base.folder}: none with the same benchmark, parameters, shape,"
            f" backend, device and stack name. {differences}Compare campaigns that share cells."
        )
    names = {"axis": "campaign", "value": test.campaign.name, "reference_value": base.campaign.name}
    sides = [sides for *_, sides in pairs]
    rows = [
        cell_row(other) | names | {"reference": cell.id, "num_planned": test.campaign.repeats_of(other)}
        for cell, other, _ in pairs
    ]
    margins, verdicts = [Margin(margin, "option")] * len(rows), None
    if allocation_variation is not None:
        margins = [Margin(pair.margin_with(margin, allocation_variation), "gate") for pair in sides]
        verdicts = compare_all(sides, margin, allocation_variation)
    table, gate = compared_table(test.campaign, rows, sides, margins, verdicts), ""
    if allocation_variation is None:
        variation = allocation_variation_of(None, base.campaign, test.campaign)
        gate = gate_difference(table.itertuples(), sides, margin, variation)
    comparisons = by_effect(table).reset_index(drop=True)
    hosts = {cell.id: ", ".join(cell.hosts) for _, cell, _ in pairs if cell.hosts}
    comparisons = comparisons.assign(hosts=comparisons["cell"].map(hosts)) if hosts else comparisons  # for names
    fallback = fallback_text(base.measurements, test.measurements)
    environment = differences_by_stack(base.facts, test.facts) or []
    return CampaignsCompared(base, test, comparisons, unmatched, environment, fields, fallback, gate)


def matched_cells(
    *campaigns: tuple[FrozenCampaign, pd.DataFrame],
) -> tuple[list[tuple[FrozenCell, FrozenCell, Compared]], dict[str, list[FrozenCell]]]:
    """Return the pairs of cells of two campaigns that measure the same, and the cells without a pair by the reason.

    campaigns: each with its measurements.
    """
    columns = primary_columns(*(table for _, table in campaigns))
    times = [times_by_cell(table, columns) for _, table in campaigns]
    cells, others = ({match_key(cell): cell for cell in side.cells} for side, _ in campaigns)
    pairs, unmatched = [], {BASE: [cell for key, cell in cells.items() if key not in others]}
    for key, other in others.items():
        cell, benchmark, version = cells.get(key), other.benchmark, other.version
        if cell is None:
            reason = TEST
        elif (old := cell.version) != version:
            reason = f"not compared, measured by version {old} of {benchmark} in base and {version} in test"
        elif cell.id not in times[0] or other.id not in times[1]:
            reason = f"not compared, no ok launch in {'test' if cell.id in times[0] else 'base'}"
        else:
            sides = sides_of(times[0][cell.id], times[1][other.id], benchmark, is_same_campaign=False)
            pairs.append((cell, other, sides))
            continue
        unmatched.setdefault(reason, []).append(other)
    return pairs, {reason: cells for reason, cells in unmatched.items() if cells}


def read_imported(path: Path, stack: str | None, options: Options, scratch: Path) -> CampaignResults:
    """Return the results in a file of another benchmark, imported into `scratch`. Raises UserError if rejected."""
    folder = scratch / f"imported{len(list(scratch.iterdir()))}"
    import_files([path], folder, stack, options)
    results = read_campaign(folder)
    campaign = dataclasses.replace(results.campaign, name=one_line(path.name))
    return dataclasses.replace(results, folder=path, campaign=campaign)
