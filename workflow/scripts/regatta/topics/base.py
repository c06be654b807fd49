"""All tables of a campaign at once: made from its measurements, written to and read from tables/<name>.csv."""

from pathlib import Path

import pandas as pd

from regatta.store.tables import COLLECTIVES, FAILURES, MEMORY, SCALING, STRATEGIES, TABLES, read_csv, write_csv
from regatta.topics.buckets import BUCKETS, buckets_table
from regatta.topics.communication import collectives_table
from regatta.topics.comparison.tables import COMPARISONS, comparisons_table
from regatta.topics.failures import failures_table
from regatta.topics.fits.collectives import COMMUNICATION_MODELS, communication_models_table
from regatta.topics.fits.scaling import SCALING_MODELS, scaling_models_table
from regatta.topics.gradient_communication import memory_table, strategies_table
from regatta.topics.launch_ranges import LAUNCH_RANGES, launch_ranges_table
from regatta.topics.percentiles import PERCENTILE_COLUMNS, percentiles_table
from regatta.topics.scaling.tables import EFFICIENCIES, efficiencies_table, scaling_table
from regatta.topics.stragglers.tables import STRAGGLER_HOSTS, STRAGGLERS, straggler_hosts_table, stragglers_table
from regatta.topics.sync_batchnorm import BATCH_NORMS, batch_norms_table
from regatta.topics.training_runs.tables import TRAINING_RANKS, TRAINING_RUNS, training_ranks_table, training_runs_table

COLUMNS = {
    "scaling": SCALING,
    "efficiencies": EFFICIENCIES,
    "percentiles": PERCENTILE_COLUMNS,
    "scaling_models": SCALING_MODELS,
    "strategies": STRATEGIES,
    "buckets": BUCKETS,
    "memory": MEMORY,
    "collectives": COLLECTIVES,
    "communication_models": COMMUNICATION_MODELS,
    "training_runs": TRAINING_RUNS,
    "training_ranks": TRAINING_RANKS,
    "batch_norms": BATCH_NORMS,
    "stragglers": STRAGGLERS,
    "straggler_hosts": STRAGGLER_HOSTS,
    "comparisons": COMPARISONS,
    "launch_ranges": LAUNCH_RANGES,
    "failures": FAILURES,
}


def make_tables(campaign: dict, collected: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return each table by its name. campaign: frozen; collected: as read from measurements.csv and what is beside it."""
    measurements = collected["measurements"]
    scaling, strategies = scaling_table(campaign, measurements), strategies_table(campaign, measurements)
    collectives = collectives_table(campaign, measurements)
    communication_models = communication_models_table(collectives, measurements)
    tables = {
        "scaling": scaling,
        "efficiencies": efficiencies_table(campaign, measurements),
        "percentiles": percentiles_table(campaign, measurements),
        "scaling_models": scaling_models_table(scaling, measurements),
        "strategies": strategies,
        "buckets": buckets_table(scaling, strategies, communication_models),
        "memory": memory_table(campaign, measurements),
        "collectives": collectives,
        "communication_models": communication_models,
        "training_runs": training_runs_table(campaign, measurements, collected["epochs"]),
        "training_ranks": training_ranks_table(campaign, collected["ranks"]),
        "batch_norms": batch_norms_table(campaign, measurements),
        "stragglers": stragglers_table(collected["waits"]),
        "straggler_hosts": straggler_hosts_table(collected["waits"]),
        "comparisons": comparisons_table(campaign, measurements),
        "launch_ranges": launch_ranges_table(measurements),
        "failures": failures_table(measurements),
    }
    own = {cell["id"]: cell["repeats"] for cell in campaign["cells"] if "repeats" in cell}  # of an imported campaign
    for table in tables.values():
        if own and "num_planned" in table and "cell" in table:
            table["num_planned"] = table["cell"].map(own).astype("Int64").fillna(table["num_planned"])
    return tables


def write_tables(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    for name in TABLES:
        write_csv(tables[name], folder / f"{name}.csv")


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    return {name: read_csv(folder / f"{name}.csv", COLUMNS[name]) for name in TABLES}
