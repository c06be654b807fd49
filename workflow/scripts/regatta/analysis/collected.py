"""What was read out of the store, as files beside each other: measurements.csv, epochs.csv, ranks.csv."""

from pathlib import Path

import pandas as pd

from regatta.analysis.tables import COLLECTED, read_csv, to_csv, to_exact_csv
from regatta.store.launch_files import write_text

MEASURED_DIGITS = 12


def collected_csv(collected: dict[str, pd.DataFrame]) -> dict[str, str]:
    """Return the text of each file by the name of its table."""
    texts = {name: to_csv(collected[name]) for name in COLLECTED}
    exact = {
        "measurements": to_csv(collected["measurements"], MEASURED_DIGITS),
        "epochs": to_exact_csv(collected["epochs"]),
    }
    return texts | exact


def write_collected(collected: dict[str, pd.DataFrame], measurements: Path) -> None:
    """Write measurements.csv where it is asked for and the others beside it."""
    for name, text in collected_csv(collected).items():
        write_text(measurements if name == "measurements" else measurements.with_name(f"{name}.csv"), text)


def read_collected(measurements: Path) -> dict[str, pd.DataFrame]:
    """Read measurements.csv and what lies beside it."""
    return {
        name: read_csv(measurements if name == "measurements" else measurements.with_name(f"{name}.csv"), columns)
        for name, columns in COLLECTED.items()
    }
