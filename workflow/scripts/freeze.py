"""Freeze a campaign before it runs: its cells into campaign.<digest>.json, the remaining launches into batches.

python workflow/scripts/freeze.py --campaign config/config.yaml --results results
"""

from pathlib import Path

from regatta.core.errors import run_script, script_parser
from regatta.plan.plan import make_plan, write_frozen
from regatta.plan.plan_page import write_plan


def main() -> None:
    parser = script_parser(__doc__, has_log=True)
    parser.add_argument("--campaign", type=Path, required=True, help="campaign file")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all results")
    parser.add_argument("--retry", action="store_true", help="repeat measurements that are not ok")
    arguments = parser.parse_args()
    plan = make_plan(arguments.campaign, arguments.results, is_retry=arguments.retry)
    if plan.campaign.data["gate"]["baseline_campaign"]:
        from regatta.compare.forecast import gate_forecast  # loads pandas, which other plans do not need

        plan.matrix.notes.extend(gate_forecast(plan))
    write_frozen(plan)
    write_plan(plan)


if __name__ == "__main__":
    run_script(main, is_short=True)
