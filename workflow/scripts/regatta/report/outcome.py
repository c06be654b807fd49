"""How a campaign ended, in the lines that close a run on the terminal."""

import csv
from collections import Counter
from pathlib import Path

from regatta.run.preflight import failed_stacks, latest_preflight


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
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    lines = [f"{results.name}: {len(rows)} measurements planned: {told or 'none'}"]
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
