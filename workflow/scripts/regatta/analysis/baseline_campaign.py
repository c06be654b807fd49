"""The results of the campaign that a gate compares with: what must be there, and how it is read."""

from pathlib import Path

import pandas as pd

from regatta.analysis.tables import MEASUREMENTS, read_csv
from regatta.errors import UserError, nearest
from regatta.store.launch_files import read_frozen

NEEDED = {
    name: MEASUREMENTS[name] for name in ("cell", "status", "p50_s")
}  # as little as possible: it may be an old one


def check_baseline_campaign(results: Path) -> tuple[Path, Path]:
    """Return the frozen campaign and measurements.csv of a results folder. Raises UserError where one is missing."""
    frozen, measurements = sorted(results.glob("campaign.*.json")), results / "measurements.csv"
    if len(frozen) == 1 and measurements.is_file():
        return frozen[0], measurements
    known = sorted(path.parent.name for path in results.parent.glob("*/measurements.csv"))
    lacking = "measurements.csv" if len(frozen) == 1 else "one campaign.<digest>.json"
    raise UserError(
        f"{results} does not hold {lacking}, so there is nothing to compare with.{nearest(results.name, known)}"
        f" Run that campaign first, or name another. Campaigns with results: {', '.join(known) or 'none'}."
    )


def read_baseline_campaign(results: Path) -> tuple[dict, pd.DataFrame]:
    """Return the frozen campaign and what the gate needs of measurements.csv. Raises UserError where either is damaged."""
    frozen, measurements = check_baseline_campaign(results)
    try:
        return read_frozen(frozen), read_csv(measurements, NEEDED)
    except ValueError as error:
        raise UserError(
            f"{measurements}: cannot be read ({error}). Build it again from the store:"
            f" python workflow/scripts/rebuild_report.py {results}"
        ) from None
