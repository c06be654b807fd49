"""Check whether a campaign passes: every cell ok, none slower than in a baseline campaign, all references met.

Exit status: 0 passed, 1 failed, 2 error, 5 undecided: launches are too few or too noisy to pass or fail a cell.

python workflow/scripts/gate.py --campaign results/new/campaign.<digest>.json
    --measurements results/new/measurements.csv --baseline results/old
    --out-text results/new/gate.txt --out-junit results/new/gate.junit.xml --out-html results/new/gate.html

References are those of the frozen campaign. All files are written before it exits. Needs no GPU and no Snakemake.
Definitions: docs/metrics.md.
"""

import sys
from pathlib import Path

from regatta.compare.campaigns import read_campaign, results_in
from regatta.compare.comparison_output import comparison_page
from regatta.compare.gate import STATUS, judge
from regatta.compare.gate_files import gate_text, headline, junit
from regatta.compare.gate_rules import LIKELY, POLICIES
from regatta.core.errors import run_script, script_parser
from regatta.core.verdicts import margin_option
from regatta.store.csv_files import MEASUREMENTS, columns_in, read_csv
from regatta.store.frozen_files import read_frozen_campaign
from regatta.store.launch_files import write_text
from regatta.tables.references import raise_reference_errors


def main() -> None:
    parser = script_parser(__doc__, has_log=True)
    parser.add_argument("--campaign", type=Path, required=True, help="frozen campaign, campaign.<digest>.json")
    parser.add_argument("--measurements", type=Path, required=True, help="measurements.csv")
    parser.add_argument(
        "--baseline", type=Path, help="results folder of the baseline campaign; without it, only statuses count"
    )
    parser.add_argument(
        "--margin",
        type=margin_option,
        default=0.05,
        help="allowed relative increase of a time (default 0.05)",
    )
    parser.add_argument(
        "--allocation-variation",
        type=margin_option,
        help="ratio - 1 that two allocations have shown when nothing changed (default 0.085 with jobs, else 0)",
    )
    parser.add_argument(
        "--undecided",
        choices=POLICIES,
        default=LIKELY,
        help="undecided cells that stop the gate: with an estimate beyond the threshold (default), all, or none",
    )
    parser.add_argument("--out-text", type=Path, required=True, help="gate.txt")
    parser.add_argument("--out-junit", type=Path, required=True, help="gate.junit.xml")
    parser.add_argument("--out-html", type=Path, help="page of the comparison, written if any cell was compared")
    args = parser.parse_args()
    base = read_campaign(args.baseline) if args.baseline else None
    campaign = read_frozen_campaign(args.campaign)
    measurements = read_csv(args.measurements, columns_in(campaign, MEASUREMENTS))
    results = results_in(args.campaign.parent, campaign, measurements)
    raise_reference_errors(campaign, args.campaign)
    gate = judge(results, base, args.margin, args.allocation_variation, args.undecided)
    page = args.out_html if gate.compared else None
    if page:
        lead, text = headline(gate)
        write_text(page, comparison_page([gate.found], page, (lead, f"{text}; {gate.threshold_line}")))
    text = gate_text(gate, args.out_text.parent, page)
    write_text(args.out_junit, junit(gate))
    write_text(args.out_text, text)
    print(text, end="")
    sys.exit(STATUS[gate.result])


if __name__ == "__main__":
    run_script(main)
