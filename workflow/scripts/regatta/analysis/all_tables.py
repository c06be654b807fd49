"""All tables of a campaign at once: made from its measurements, written to and read from tables/<name>.csv."""

from pathlib import Path

import pandas as pd

from regatta.analysis.collectives import collectives_table
from regatta.analysis.failures_table import failures_table
from regatta.analysis.scaling import scaling_table
from regatta.analysis.strategies import memory_table, strategies_table
from regatta.analysis.table_names import TABLES
from regatta.analysis.tables import COLLECTIVES, FAILURES, MEMORY, SCALING, STRATEGIES, read_csv, write_csv

COLUMNS = {
    "scaling": SCALING,
    "strategies": STRATEGIES,
    "memory": MEMORY,
    "collectives": COLLECTIVES,
    "failures": FAILURES,
}


def make_tables(campaign: dict, measurements: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return each table by its name. campaign: frozen; measurements: as read from measurements.csv."""
    return {
        "scaling": scaling_table(campaign, measurements),
        "strategies": strategies_table(campaign, measurements),
        "memory": memory_table(campaign, measurements),
        "collectives": collectives_table(campaign, measurements),
        "failures": failures_table(measurements),
    }


def write_tables(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    for name in TABLES:
        write_csv(tables[name], folder / f"{name}.csv")


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    return {name: read_csv(folder / f"{name}.csv", COLUMNS[name]) for name in TABLES}
