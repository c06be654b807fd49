"""The best bucket size of each workload and shape beside the predicted one."""

import pandas as pd

from regatta.numbers import UNKNOWN, is_unknown, shape, three
from regatta.report.panels import Table

BEST_BUCKET = (
    "Best bucket size, measured, and predicted as sqrt(s w o); its ends are of its inputs w and o alone,"
    " and say nothing of how well the formula holds"
)
AGREES = (0.5, 2)  # predicted over best: near the best size the cost hardly changes (docs/metrics.md)


def best_bucket_table(buckets: pd.DataFrame) -> Table | None:
    """Return the best bucket of each workload and shape, as measured and as predicted; None without two sizes."""
    rows = buckets[(buckets["num_buckets"] > 1) & buckets["best_bucket_cap_mb"].notna()]
    heads = (
        "workload",
        "best (MiB)",
        "not told apart from (MiB)",
        "predicted (MiB)",
        "by the ends of w and o (MiB)",
        "predicted / best",
        "from, or why not",
    )
    texts = tuple(
        (
            f"{row.model}, {row.strategy}, {shape(row.nodes, row.gpus_per_node)}, {row.stack}",
            f"{row.best_bucket_cap_mb:g}",
            UNKNOWN if is_unknown(row.indistinguishable_mb) else row.indistinguishable_mb,
            three(row.predicted_bucket_mib),
            _ends(row.predicted_low_mib, row.predicted_high_mib),
            agreement(row.predicted_to_best_ratio),
            row.reason if is_unknown(row.predicted_bucket_mib) else row.source,
        )
        for row in rows.itertuples()
    )
    return Table(BEST_BUCKET, heads, texts, is_words=True, sources=("buckets",)) if texts else None


def _ends(low: float | None, high: float | None) -> str:
    """Return what the ends of the inputs give: neither a range nor an interval over launches, and not written like one."""
    return UNKNOWN if is_unknown(low) or is_unknown(high) else f"{three(low)} … {three(high)}"


def agreement(ratio: float | None) -> str:
    is_missed = not is_unknown(ratio) and not AGREES[0] <= ratio <= AGREES[1]
    return three(ratio) + (", misses" if is_missed else "")
