"""A campaign against an earlier one: cells are matched by what they measure and by the name of their stack."""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from regatta.compare.baseline import check_baseline_campaign, match_key
from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.formats.importer import import_files
from regatta.run.preflight import latest_preflight
from regatta.store.collect import cell_row, collect, write_collected
from regatta.store.launch_files import read_frozen
from regatta.store.records import one_line
from regatta.store.tables import CELL, MEASUREMENTS, TEXT, make_table, read_csv
from regatta.topics.comparison.environment import Difference, Side, by_stack, read_headers
from regatta.topics.comparison.tables import Margin, Sides, Times, by_effect, compared_table, times_by_cell

READ = (
    "cell",
    "status",
    "repeat",
    "launch",
    "p50_s",
    "time_utc",
)  # of measurements.csv; an old one may lack the others


@dataclass(frozen=True)
class CampaignResults:
    """What a comparison needs of a results folder. headers: of the launches in measurements. nccl: by stack."""

    folder: Path
    campaign: dict
    measurements: pd.DataFrame
    headers: list[dict]
    nccl: dict[str, dict]

    @property
    def first_time_utc(self) -> str | None:
        """When its first record was written. Unknown of what was imported: its records are as old as the import."""
        times = self.measurements["time_utc"].dropna() if "imported" not in self.campaign else ()
        return min(times) if len(times) else None

    @property
    def notes(self) -> list[str]:
        """What the import of its files corrected, assumed or left out. Empty of a campaign that was measured."""
        files = self.campaign.get("imported") or []
        return list(dict.fromkeys(note for file in files for note in file["notes"]))


@dataclass(frozen=True)
class CampaignsCompared:
    """What two campaigns say of each other.

    comparisons: a row for each cell with ok launches on both sides, the largest effect first; `reference` is base.
    not_compared: reason -> table of cells (CELL) that are matched and have no ratio. only_base, only_test: tables of cells.
    """

    base: CampaignResults
    test: CampaignResults
    margin: float
    comparisons: pd.DataFrame
    not_compared: dict[str, pd.DataFrame]
    only_base: pd.DataFrame
    only_test: pd.DataFrame
    environment: list[Difference]

    def num(self, verdict: str) -> int:
        return int((self.comparisons["verdict"] == verdict).sum())


def read_campaign(folder: Path) -> CampaignResults:
    """Read a results folder. Raises UserError if it is none, or if what is needed of it is damaged."""
    frozen, measurements = check_baseline_campaign(folder)
    campaign, table = read_frozen(frozen), read_csv(measurements, {name: MEASUREMENTS[name] for name in READ})
    wrong = table[
        (table["status"] == "ok") & ~table["p50_s"].fillna(1.0).between(0, sys.float_info.max, inclusive="right")
    ]
    if len(wrong):
        raise UserError(
            f"{measurements}: p50_s of {wrong['cell'].iloc[0]} is {wrong['p50_s'].iloc[0]:g}; a time above 0 is expected. Build it"
            f" again from the store: python workflow/scripts/rebuild_report.py {folder}"
        )
    lacking = {cell["id"] for cell in campaign["cells"]} - set(table["cell"])
    if lacking:
        raise UserError(
            f"{measurements}: lacks {len(lacking)} of {len(campaign['cells'])} cells of {frozen.name}, such as {min(lacking)}."
            f" Build it again from the store: python workflow/scripts/rebuild_report.py {folder}"
        )
    headers = read_headers(folder / "launches", table["launch"].dropna())
    looked = [stack for path in latest_preflight(folder) for stack in read_frozen(Path(path))["stacks"]]
    return CampaignResults(folder, campaign, table, headers, {stack["stack"]: stack["verdict"] for stack in looked})


def compare_campaigns(base: CampaignResults, test: CampaignResults, margin: float) -> CampaignsCompared:
    """Return how the cells of `test` compare with those of `base`. Raises UserError where no cell is in both."""
    cells = {match_key(cell["spec"]): cell for cell in base.campaign["cells"]}
    others = {match_key(cell["spec"]): cell for cell in test.campaign["cells"]}
    shared = [key for key in others if key in cells]
    if not shared:
        raise UserError(
            f"{test.folder} has no cell in common with {base.folder}: none with the same benchmark, parameters, shape,"
            " backend, device and name of its stack. Compare campaigns that measure the same."
        )
    times = times_by_cell(base.measurements), times_by_cell(test.measurements)
    rows, sides, reasons = [], [], {}
    for key in shared:
        cell, other = cells[key], others[key]
        if reason := _why_not(cell, other, times):
            reasons.setdefault(reason, []).append(other)
            continue
        rows.append(cell_row(other) | {"reference": cell["id"], "axis": "campaign", "num_planned": other.get("repeats", test.campaign["repeats"])}
                    | {"value": test.campaign["name"], "reference_value": base.campaign["name"]})  # fmt: skip
        sides.append(_unpaired(times[0][cell["id"]], times[1][other["id"]]))
    return CampaignsCompared(
        base,
        test,
        margin,
        by_effect(compared_table(rows, sides, [Margin(margin, "option")] * len(rows))).reset_index(drop=True),
        {reason: _table(found) for reason, found in reasons.items()},
        _table(cell for key, cell in cells.items() if key not in others),
        _table(cell for key, cell in others.items() if key not in cells),
        by_stack(dict(stack_sides(base, test))),
    )


def _why_not(cell: dict, other: dict, times: tuple[dict[str, Times], dict[str, Times]]) -> str | None:
    versions = cell["spec"]["version"], other["spec"]["version"]
    if versions[0] != versions[1]:
        return f"measured by version {versions[0]} of {cell['spec']['benchmark']} in base and {versions[1]} in test"
    if cell["id"] not in times[0]:
        return "without an ok launch in base"
    return None if other["id"] in times[1] else "without an ok launch in test"


def _unpaired(base: Times, test: Times) -> Sides:
    """Launches of two campaigns never share an allocation."""
    return Sides([base[repeat][1] for repeat in sorted(base)], [test[repeat][1] for repeat in sorted(test)], False)


def _table(cells: Iterator[dict]) -> pd.DataFrame:
    return make_table([cell_row(cell) for cell in cells], {"cell": TEXT, **CELL})


def stack_sides(base: CampaignResults, test: CampaignResults) -> Iterator[tuple[str, tuple[Side, Side]]]:
    """Yield each stack that both campaigns name, with the two sides of it."""
    for stack in dict.fromkeys(cell["spec"]["stack"]["name"] for cell in base.campaign["cells"]):
        sides = tuple(_side(campaign, stack) for campaign in (base, test))
        if all(side.specs for side in sides):
            yield stack, sides


def _side(results: CampaignResults, stack: str) -> Side:
    return Side(
        [header for header in results.headers if header["stack"] == stack],
        [cell["spec"] for cell in results.campaign["cells"] if cell["spec"]["stack"]["name"] == stack],
        results.nccl.get(stack),
    )


# A foreign file as a campaign for the length of one comparison: imported into a folder that is thrown away.


def read_imported(path: Path, stack: str | None, options: Options, scratch: Path) -> CampaignResults:
    """Return what a file of another benchmark says, under the file's own path. Raises UserError if it is refused."""
    folder = scratch / f"imported{len(list(scratch.iterdir()))}"
    import_files([path], folder, stack, options)
    frozen = next(folder.glob("campaign.*.json"))
    collected, _ = collect(read_frozen(frozen), folder / "launches")
    write_collected(collected, folder / "measurements.csv")
    results = read_campaign(folder)
    return dataclasses.replace(results, folder=path, campaign=results.campaign | {"name": one_line(path.name)})
