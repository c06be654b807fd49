"""What synchronised batch norms take, in time and memory: tables/batch_norms.csv. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.tables import CELL, REAL, TEXT, WHOLE, make_table
from regatta.cell_words import natural
from regatta.statistics import over_launches

_CELL = (
    "implementation", "batch_size", "hidden", "dtype", "nodes", "gpus_per_node", "world_size", "stack", "backend", "device",
)  # fmt: skip
# Beginning of three columns -> the column of one launch. Both passes together are no sum of medians.
TIMES = {"time": "p50_s", "forward": "forward_s", "backward": "backward_s"}
LARGEST_BYTES = ("parameter_bytes", "gradient_bytes", "saved_bytes", "peak_allocated_bytes")
LARGEST_ERRORS = ("largest_output_error", "largest_input_gradient_error")
BATCH_NORMS = {
    "cell": TEXT,
    **{name: CELL[name] for name in _CELL},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "interval": TEXT,
    **{f"{name}{end}": REAL for name in TIMES for end in ("_s", "_low_s", "_high_s")},
    **dict.fromkeys(LARGEST_BYTES, WHOLE),
    **dict.fromkeys(LARGEST_ERRORS, REAL),
}


def batch_norms_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each sync_batchnorm cell, measured or not."""
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "sync_batchnorm"]
    own = measurements[(measurements["status"] == "ok") & (measurements["benchmark"] == "sync_batchnorm")]
    ok = dict(list(own.groupby("cell")))
    rows = []
    for cell in sorted(cells, key=lambda cell: natural(cell["id"])):
        columns = _columns(ok[cell["id"]]) if cell["id"] in ok else {"num_launches": 0, "interval": "none"}
        rows.append(cell_row(cell) | {"num_planned": campaign["repeats"]} | columns)
    return make_table(rows, BATCH_NORMS)


def _columns(launches: pd.DataFrame) -> dict:
    row = {"num_launches": len(launches)}
    for name, column in TIMES.items():
        spread = over_launches(launches[column].dropna().tolist())
        row |= {f"{name}_s": spread.median, f"{name}_low_s": spread.low, f"{name}_high_s": spread.high}
    row["interval"] = over_launches(launches["p50_s"].dropna().tolist()).kind
    largest = launches[[*LARGEST_BYTES, *LARGEST_ERRORS]].max()
    return row | {name: None if pd.isna(value) else value for name, value in largest.items()}
