"""Read and compare two campaigns. Cells are matched by what they measure and by the name of their stack."""

import dataclasses
import functools
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from regatta.campaign.expansion import canonical_json
from regatta.compare.gate_rules import allocation_variation_of, gate_difference
from regatta.core.benchmarks import axes_of, benchmark_names, load_benchmark
from regatta.core.errors import UserError, nearest
from regatta.core.names import value_text
from regatta.core.text import UNKNOWN, one_line, plural
from regatta.formats.base import Options
from regatta.formats.importer import import_files
from regatta.kit.kinds import joined
from regatta.model.frozen import Cell, FrozenCampaign, FrozenCell
from regatta.report.page import read_headers
from regatta.run.preflight import latest_preflight
from regatta.store.collect import read_store
from regatta.store.csv_files import MEASUREMENTS, read_csv
from regatta.store.frozen_files import read_frozen, read_frozen_campaign
from regatta.tables.counterparts import matched_fields
from regatta.tables.facts import NOT_KNOWN, NOTHING, Difference, Fact, differences_by_stack, facts_of
from regatta.tables.pairs import BASE_ONLY, TEST_ONLY, Launches, by_effect, pairs_of_campaigns
from regatta.topics.base import fallback_text

# Columns of measurements.csv. As few as possible, since an old file may not have the others.
NEEDED = ("cell", "status", "p50_s", "repeat", "launch", "time_utc")
PRIMARY_TIMES = tuple(load_benchmark(name).primary_time["column"] for name in benchmark_names())
USED_IF_PRESENT = ("benchmark", *PRIMARY_TIMES)
MOST_TEXT = 80  # characters of a value


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

    @property
    def notes(self) -> list[str]:
        """Return corrections, assumptions and omissions of the import; empty for a measured campaign."""
        files = self.campaign.imported or []
        return list(dict.fromkeys(note for file in files for note in file["notes"]))


@dataclass(frozen=True)
class CampaignsCompared:
    """Two compared campaigns.

    comparisons: a row for each cell with ok launches on both sides, the largest effect first; `reference` is base.
    launches: of these rows, by cell and reference.
    unmatched: reason -> the cells that are not compared. environment: how the stacks in both differ; None if unknown.
    fields: the single fields in which unmatched cells of both differ. fallback: which primary times one side lacks;
    empty if none. gate: how a gate with default settings differs. once: results of functions (`once_per_report`).
    """

    base: CampaignResults
    test: CampaignResults
    comparisons: pd.DataFrame
    launches: Launches
    unmatched: dict[str, list[FrozenCell]]
    environment: list[Difference] | None
    fields: list[str]
    fallback: str = ""
    gate: str = ""
    once: dict = field(default_factory=dict, init=False, compare=False, repr=False)

    def num(self, verdict: str) -> int:
        return int((self.comparisons["verdict"] == verdict).sum())


def read_campaign(folder: Path) -> CampaignResults:
    """Read a results folder. Raises UserError if files are missing or damaged."""
    campaign, measurements = check_baseline_campaign(folder)
    if campaign.imported is None:
        table = _read_measurements(campaign, measurements)
    else:  # an import writes no tables, and those of an earlier report may lack later imports
        table = read_store(campaign, folder / "launches")[0]["measurements"]
    return results_in(folder, campaign, table)


def results_in(folder: Path, campaign: FrozenCampaign, measurements: pd.DataFrame) -> CampaignResults:
    """Return the results of a folder, with the facts on its launches."""
    headers = read_headers(folder / "launches", measurements)
    checked = [stack for path in latest_preflight(folder) for stack in read_frozen(Path(path))["stacks"]]
    return CampaignResults(folder, campaign, measurements, facts_of(headers, campaign.cells, checked))


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


def distinct_names(*campaigns: CampaignResults) -> list[str]:
    """Return the names of campaigns; if two are equal, those of folders, or with their dates."""
    for names in (
        [side.campaign.name for side in campaigns],
        [side.folder.resolve().name for side in campaigns],
        [f"{side.campaign.name} of {(side.first_time_utc or UNKNOWN)[:10]}" for side in campaigns],
    ):
        if len(set(names)) == len(names):
            return names
    return [str(side.folder) for side in campaigns]


def difference_text(difference: Difference, in_reference: str, in_other: str) -> str:
    """Return a difference as a line. in_reference, in_other: words for the sides, such as `in base`."""
    name, reference, other = difference.name, difference.reference, difference.other
    if not name.startswith(NOT_KNOWN):
        return f"{name}: {reference} -> {other}"
    # A fact that is missing on one side was recorded on the other.
    sides = ((in_reference, other), (in_other, reference))
    known = [f"{where}: {facts}" for where, facts in sides if facts != NOTHING]
    return f"recorded only {'; '.join(known)}" + name.removeprefix(NOT_KNOWN)


def compare_campaigns(
    base: CampaignResults, test: CampaignResults, margin: float, allocation_variation: float | None = None
) -> CampaignsCompared:
    """Return how the cells of `test` compare with those of `base`. allocation_variation: for the verdicts of a gate."""
    sides = [(side.campaign, side.measurements) for side in (base, test)]
    table, launches, unmatched = pairs_of_campaigns(*sides, margin, allocation_variation)
    fields = single_differences(unmatched.get(BASE_ONLY, ()), unmatched.get(TEST_ONLY, ()))
    gate = ""
    if allocation_variation is None:
        variation = allocation_variation_of(None, base.campaign, test.campaign)
        gate = gate_difference(table, launches, margin, variation)
    by_pair = dict(zip(zip(table["cell"], table["reference"], strict=True), launches, strict=True))
    comparisons = by_effect(table).reset_index(drop=True)
    hosts = {cell.id: ", ".join(cell.hosts) for cell in test.campaign.cells if cell.hosts}
    comparisons = comparisons.assign(hosts=comparisons["cell"].map(hosts)) if hosts else comparisons  # for names
    fallback = fallback_text(base.measurements, test.measurements)
    environment = differences_by_stack(base.facts, test.facts)
    return CampaignsCompared(base, test, comparisons, by_pair, unmatched, environment, fields, fallback, gate)


def check_common_cells(found: CampaignsCompared) -> None:
    """Raise UserError if no cell is in both campaigns."""
    if not len(found.comparisons) and found.unmatched.keys() <= {BASE_ONLY, TEST_ONLY}:
        differences = f"Cells differ in {joined(found.fields)}. " if found.fields else ""
        raise UserError(
            f"{found.test.folder} has no cell in common with {found.base.folder}: none with the same benchmark,"
            f" parameters, shape, backend, device and stack name. {differences}Compare campaigns that share cells."
        )


def single_differences(base: Iterable[Cell], test: Iterable[Cell]) -> list[str]:
    """Return a text for each pair of values that is the only difference between cells of both, most frequent first.

    Excluded are fields with a value in common, because the campaigns then cover different parts of one matrix, and
    those with which the name of a cell begins, such as the model.
    """
    pairs: Counter = Counter()
    sides = [list(map(matched_fields, cells)) for cells in (base, test)]
    for name in dict.fromkeys(name for fields in sides[0] for name in fields):
        known = [[fields for fields in side if name in fields] for side in sides]
        of_base, of_test = ({canonical_json(fields[name]) for fields in side} for side in known)
        if of_base.isdisjoint(of_test):
            one, other = ({canonical_json(fields | {name: None}): fields for fields in side} for side in known)
            both = ((one[key], other[key]) for key in one.keys() & other.keys())
            pairs.update(
                _field_text(name, fields[name], changed[name], fields["benchmark"])
                for fields, changed in both
                if f"{{{name}}}" not in load_benchmark(fields["benchmark"]).subject
            )
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{text} ({plural(num, 'cell')})" for text, num in ordered]


def _field_text(name: str, base: object, test: object, benchmark: str) -> str:
    axis = axes_of(benchmark).get(name)
    label = (axis.label if axis else name.replace("_", " ")).lower()
    of_base, of_test = (
        "not stated" if value is None else one_line(value_text(axis, value) if axis else value, MOST_TEXT)
        for value in (base, test)
    )
    return f"{label}: {of_base} in base, {of_test} in test"


def read_imported(path: Path, stack: str | None, options: Options, scratch: Path) -> CampaignResults:
    """Return the results in a file of another benchmark, imported into `scratch`. Raises UserError if rejected."""
    folder = scratch / f"imported{len(list(scratch.iterdir()))}"
    import_files([path], folder, stack, options)
    results = read_campaign(folder)
    campaign = dataclasses.replace(results.campaign, name=one_line(path.name))
    return dataclasses.replace(results, folder=path, campaign=campaign)
