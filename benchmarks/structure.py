"""Modules and climbs of the calls of a report, and of one number in it (tests/walks.py). No clock."""

import sys

from common import ROOT, Figure, report

sys.path.insert(0, str(ROOT / "tests"))

from walks import one_number, write_report


def main() -> None:
    whole, number = write_report(), one_number()
    report(
        Figure("write_report, modules outside topics", len(whole.outside_topics), "", 30),
        Figure("write_report, calls into a higher package", len(whole.climbs), "", 23),
        Figure("one number, modules from the store to the page", len(number.modules), "", 8),
    )


if __name__ == "__main__":
    main()
