"""How a run ended: the lines that close it on the terminal, and its exit status."""

import csv
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from regatta.core.errors import INCOMPLETE, NOTHING_MEASURED, UNEXPECTED_ERROR
from regatta.core.text import plural
from regatta.run.preflight import failed_stacks, latest_preflight
from regatta.store.history import SAYS_NOTHING, read_history


def outcome_text(results: Path) -> str:
    """Return counts by status, and of what is not ok the commonest cause and how to try it again.

    An empty text where there is no measurements.csv yet.
    """
    path = results / "measurements.csv"
    if not path.exists():
        return ""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["repeat"]]  # skipped cells have none
    counts = Counter(row["status"] for row in rows)
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    lines = [f"{results.name}: {len(rows)} measurements planned: {text or 'none'}"]
    causes = Counter(row["cause"] for row in rows if row["status"] not in ("ok", "not_measured"))
    if causes:
        cause, count = causes.most_common(1)[0]
        lines.append(f"  {count} of {sum(causes.values())} failures: {cause}")
        lines.append(
            '  try again what is not ok: the same line with --forcerun measure (make: ARGS="--forcerun measure")'
        )
    for preflight in latest_preflight(results):
        for stack, cause in failed_stacks(Path(preflight)).items():
            lines.append(
                f"  stack {stack} is held back by the preflight: {cause}. Mend it, and run the same line again"
            )
    return "\n".join(lines)


def run_status(
    results: Path, planned: Collection[tuple[str, int]], batches: Iterable[str], failed_step: str | None
) -> tuple[int, str]:
    """Return the exit status of a run that has ended (README, Exit status), and why it is not 0.

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
