"""What a record of train_run says of each epoch and of each rank: the rows of epochs.csv and ranks.csv."""

from dataclasses import dataclass, field

from regatta.store.imported_times import is_without_samples
from regatta.store.samples import count, numbers, slowest_rank, whole_times

BENCHMARK = "train_run"
RANK_BYTES = ("peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes", "peak_rss_bytes")


@dataclass(frozen=True)
class Training:
    """Rows without what says whose they are (cell, repeat, launch, line). Of any other benchmark both are empty."""

    epochs: list[dict] = field(default_factory=list)
    ranks: list[dict] = field(default_factory=list)


def training_of(record: dict, spec: dict) -> Training:
    """Return the rows of an ok record of train_run, none of another, and none of a time that was imported alone.

    Raises ValueError if its lists do not fit it.
    """
    if record["status"] != "ok" or spec["benchmark"] != BENCHMARK or is_without_samples(record):
        return Training()
    num_ranks, num_epochs = spec["nodes"] * spec["gpus_per_node"], spec["parameters"]["epochs"]
    return Training(_epochs(record, num_ranks, num_epochs), _ranks(record, num_ranks, num_epochs))


def _epochs(record: dict, num_ranks: int, num_epochs: int) -> list[dict]:
    values = record["values"] or {}
    slowest = slowest_rank(record, num_ranks)
    if len(slowest) != num_epochs:
        raise ValueError(f"has {len(slowest)} timed epochs; the cell has {num_epochs}")
    num_images = count(values.get("train_samples_per_epoch"), "values.train_samples_per_epoch")
    columns = {
        "epoch_s": (slowest / 1e9).tolist(),
        **{f"{part}_s": _part(record, part, num_ranks, num_epochs) for part in ("train", "test")},
        "train_loss": numbers(values.get("train_loss"), "values.train_loss", num_epochs, "epoch"),
        "test_loss": numbers(values.get("test_loss"), "values.test_loss", num_epochs, "epoch"),
        "accuracy_ratio": numbers(values.get("accuracy"), "values.accuracy", num_epochs, "epoch", 0, 1),
    }
    return [
        {"epoch": index + 1, "train_samples": num_images} | {name: column[index] for name, column in columns.items()}
        for index in range(num_epochs)
    ]


def _part(record: dict, part: str, num_ranks: int, num_epochs: int) -> list[float | None]:
    """Return seconds of the slowest rank in each epoch; None for all where the record does not have the part."""
    rows = (record.get("parts_ns") or {}).get(part)
    if rows is None:
        return [None] * num_epochs
    slowest = whole_times(rows, f"parts_ns.{part}", num_ranks, least=0).max(axis=0)
    if len(slowest) != num_epochs:
        raise ValueError(f"parts_ns.{part}: has {len(slowest)} epochs; the cell has {num_epochs}")
    return (slowest / 1e9).tolist()


def _ranks(record: dict, num_ranks: int, num_epochs: int) -> list[dict]:
    """Times of a rank are unknown where a record with very many samples kept the slowest of them only."""
    memory, samples = record["memory"] or {}, record.get("samples_ns")
    total_s = [None] * num_ranks
    if samples is not None:
        total_s = (whole_times(samples, "samples_ns", num_ranks).sum(axis=1) / 1e9).tolist()
    columns = {"total_s": total_s, "accuracy_ratio": _accuracy_by_rank(record, num_ranks, num_epochs)[-1]}
    for name in RANK_BYTES:
        values = memory.get(name)
        columns[name] = [None] * num_ranks if values is None else values
        if len(columns[name]) != num_ranks:
            raise ValueError(f"memory.{name}: has {len(values)} ranks; the shape has {num_ranks}")
    return [{"rank": rank} | {name: column[rank] for name, column in columns.items()} for rank in range(num_ranks)]


def _accuracy_by_rank(record: dict, num_ranks: int, num_epochs: int) -> list[list[float | None]]:
    """Return [epoch][rank]: the accuracy on each rank's share of the test images."""
    name, rows = "values.accuracy_by_rank", (record["values"] or {}).get("accuracy_by_rank")
    if not isinstance(rows, list) or len(rows) != num_epochs:
        raise ValueError(f"{name}: is no list with a list for each of {num_epochs} epochs")
    return [numbers(row, name, num_ranks, "rank", 0, 1) for row in rows]
