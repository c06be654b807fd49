"""The results of the campaign that another is compared with: what must be there, how it is read, which cells are the same."""

from pathlib import Path

import pandas as pd

from regatta.campaign.matrix import canonical_json
from regatta.core.errors import UserError, nearest
from regatta.store.launch_files import read_frozen
from regatta.store.tables import MEASUREMENTS, read_csv

NEEDED = {
    name: MEASUREMENTS[name] for name in ("cell", "status", "p50_s")
}  # as little as possible: it may be an old one
MATCHED_BY = ("benchmark", "parameters", "nodes", "gpus_per_node", "backend", "device")  # and the stack's name


def match_key(spec: dict) -> str:
    """Return what a cell measures, as one text. Not its id: after an upgrade the image is another, and the id with it."""
    return canonical_json({name: spec[name] for name in MATCHED_BY} | {"stack": spec["stack"]["name"]})


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
    return read_frozen(frozen), read_csv(measurements, NEEDED)
