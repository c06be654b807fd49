"""How much of the exchange of gradients a step has to wait for: tables/strategies.csv, and what a cell's memory is made of:
tables/memory.csv. Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.tables import MEMORY, STRATEGIES, make_table
from regatta.cell_words import natural
from regatta.statistics import over_launches
from regatta.store.records import MEMORY_BYTES

MEDIANS = {
    "step_p50_s": "p50_s",
    "step_mean_s": "mean_s",
    "step_std_s": "std_s",
    **{name: name for name in ("whole_step_s", "no_sync_s", "communication_s", "host_wait_s")},
}


def strategies_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of several ranks, measured or not. One rank has nothing to exchange."""
    cells = [cell for cell in _trained(campaign) if cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"] > 1]
    ok = _ok_rows(measurements)
    rows = [
        cell_row(cell) | {"num_planned": campaign["repeats"]} | _exchange(ok.get(cell["id"], _EMPTY)) for cell in cells
    ]
    return make_table(rows, STRATEGIES)


def memory_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell: the largest of its launches, in bytes on one rank."""
    ok = _ok_rows(measurements)
    rows = []
    for cell in _trained(campaign):
        found = ok.get(cell["id"], _EMPTY)
        largest = {name: _whole(found[name].max()) for name in MEMORY_BYTES} if len(found) else {}
        rows.append(cell_row(cell) | {"num_launches": len(found)} | largest)
    return make_table(rows, MEMORY)


_EMPTY = pd.DataFrame()


def _trained(campaign: dict) -> list[dict]:
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "train_step"]
    return sorted(cells, key=lambda cell: natural(cell["id"]))


def _ok_rows(measurements: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return dict(list(measurements[measurements["status"] == "ok"].groupby("cell")))


def _exchange(launches: pd.DataFrame) -> dict:
    """Return the columns of one cell. What is hidden and exposed is taken within each launch, then over launches."""
    if not len(launches):
        return {"num_launches": 0, "interval": "none"}
    exposed = launches["whole_step_s"] - launches["no_sync_s"]
    share = exposed / launches["whole_step_s"]
    hidden = 1 - exposed / launches["communication_s"]
    spread = over_launches(exposed.dropna().tolist())
    return {
        "num_launches": len(launches),
        "interval": spread.kind,
        **{name: over_launches(launches[column].dropna().tolist()).median for name, column in MEDIANS.items()},
        "exposed_s": spread.median,
        "exposed_low_s": spread.low,
        "exposed_high_s": spread.high,
        "exposed_share_ratio": over_launches(share.dropna().tolist()).median,
        "hidden_ratio": over_launches(hidden.dropna().tolist()).median,
        **{name: _whole(launches[name].max()) for name in ("num_calls", "gradient_bytes", "algorithm_bytes")},
    }


def _whole(value: object) -> int | None:
    return None if pd.isna(value) else int(value)
