"""Short names of cells for people: what varies among the rows of a table, and nothing else."""

import pandas as pd

from regatta.core.text import is_unknown, parameter_word, shape, size
from regatta.store.tables import CELL

FIRST = ("model", "operation")  # said also where all rows share them: they are what people know a cell by
SHAPE = ("nodes", "gpus_per_node", "world_size")
LATE = ("stack", "backend", "device")  # behind the shape


def cell_labels(rows: pd.DataFrame, without: tuple[str, ...] = ()) -> list[str]:
    """Return a name for each row of a table with the columns of CELL: `resnet50, ddp, 25 MiB, 8×4`.

    What all rows of a benchmark share, where they have it at all, is left out, and so are the columns in `without`. The benchmark itself is named
    where no model or operation tells it.
    """
    varied: dict[str, list[str]] = {}
    for benchmark, group in rows.groupby("benchmark", sort=False):
        varied[benchmark] = [name for name in CELL if group[name].nunique() > 1 and name not in without]
    return [_label(row, varied[row["benchmark"]], without) for row in rows.to_dict("records")]


def _label(row: dict, varied: list[str], without: tuple[str, ...]) -> str:
    named = [name for name in FIRST if not is_unknown(row[name]) and name not in without]
    words = [] if named and row["benchmark"] in ("train_step", "collective") else [row["benchmark"]]
    middle = [name for name in varied if name not in (*FIRST, *SHAPE, *LATE, "benchmark")]
    words += [_word(name, row[name]) for name in (*named, *middle) if not is_unknown(row[name])]
    if any(name not in without for name in SHAPE):
        words.append(shape(row["nodes"], row["gpus_per_node"]))
    words += [str(row[name]) for name in LATE if name in varied and not is_unknown(row[name])]
    return ", ".join(words)


def _word(name: str, value: object) -> str:
    """Return a parameter as people say it, with its name where the value alone says nothing."""
    if name == "bucket_cap_mb":
        return f"{value:g} MiB"
    if name == "message_bytes":
        return size(int(value))
    if isinstance(value, bool) and name != "gradient_as_bucket_view":
        return name.replace("_", " ") if value else f"no {name.replace('_', ' ')}"
    if isinstance(value, str) or name in ("gradient_as_bucket_view", "image_size", "batch_size"):
        return parameter_word(name, value)
    return f"{name.replace('_', ' ')} {value:g}"
