"""The times of an imported record: what a foreign file printed, where it has no samples. docs/formats.md."""

from regatta.store.samples import number

# What may stand for the median, in this order. The word goes into the column `stop`, where a measured record says why
# its sampling ended, so that measurements.csv itself tells such a number from a measured one.
CENTRES = {"p50_s": "median", "mean_s": "mean", "window_step_s": "back-to-back mean"}


def is_without_samples(record: dict) -> bool:
    has_samples = any(record.get(name) is not None for name in ("samples_ns", "slowest_rank_samples_ns"))
    return record.get("imported") is not None and not has_samples


def imported_times(record: dict) -> dict:
    """Return the columns of a record without samples. Raises ValueError for a time that is none.

    p50_s: the median, or for want of one the mean that the file prints. window_step_s of a training step is then the same
    time: such programs synchronise every step, so that it is all that throughput can come from.
    """
    times = {
        name: number(value, f"imported.times_s.{name}", 0) for name, value in record["imported"]["times_s"].items()
    }
    centre = next((name for name in CENTRES if times.get(name)), None)
    if centre is None:
        raise ValueError("status ok, but imported.times_s has neither a median nor a mean")
    times |= {"p50_s": times[centre], "stop": f"imported: {CENTRES[centre]}"}
    if record["spec"]["benchmark"] == "train_step":
        times.setdefault("window_step_s", times["p50_s"])
    return times


def imported_step(record: dict) -> float | None:
    """Return the time of a call among many that ran back to back, where a file prints it beside its samples."""
    return ((record.get("imported") or {}).get("times_s") or {}).get("window_step_s")
