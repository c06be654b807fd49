"""The exit status of a run (README, Exit status): whether each planned measurement has a record, and any is ok."""

from collections.abc import Collection, Iterable
from pathlib import Path

from regatta.core.errors import INCOMPLETE, NOTHING_MEASURED, UNEXPECTED_ERROR
from regatta.core.text import plural
from regatta.store.history import SAYS_NOTHING, read_history


def run_status(
    results: Path, planned: Collection[tuple[str, int]], batches: Iterable[str], failed_step: str | None
) -> tuple[int, str]:
    """Return the exit status of a run that has ended, and why it is not 0.

    planned: cell and repeat of all measurements of the campaign. batches: those that this run was to finish.
    failed_step: what went wrong other than measuring, None where nothing did.
    """
    slots = read_history(results).slots
    statuses = [slots[slot].status if slot in slots else "not_measured" for slot in planned]
    num_missing = sum(status in ("not_measured", *SAYS_NOTHING) for status in statuses)
    unfinished = [batch for batch in batches if not (results / "batches" / batch / "manifest.json").exists()]
    if num_missing:
        counts = f"{num_missing} of {plural(len(planned), 'measurement')} have no record"
    elif unfinished:  # of a retry: its measurements have records from before
        counts = f"{plural(len(unfinished), 'batch', 'batches')} did not finish"
    else:
        counts = f"all of {plural(len(planned), 'measurement')} have a record"
    if failed_step:
        return UNEXPECTED_ERROR, f"{failed_step}; {counts}"
    if not planned:
        return NOTHING_MEASURED, "nothing to measure: every cell of the campaign is skipped"
    if "ok" not in statuses:
        return NOTHING_MEASURED, f"nothing was measured: {counts}, and none is ok"
    return (INCOMPLETE, counts) if num_missing or unfinished else (0, "")
