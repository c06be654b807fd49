"""The tables of a results folder, by name. Without pandas, which planning has no use for.

COLLECTED are read out of the store, <name>.csv; TABLES are computed from these, tables/<name>.csv.
"""

COLLECTED = ("measurements", "epochs", "ranks", "waits")

TABLES = (
    "scaling",
    "efficiencies",
    "percentiles",
    "scaling_models",
    "strategies",
    "buckets",
    "memory",
    "collectives",
    "communication_models",
    "training_runs",
    "training_ranks",
    "batch_norms",
    "stragglers",
    "straggler_hosts",
    "comparisons",
    "launch_ranges",
    "failures",
)
