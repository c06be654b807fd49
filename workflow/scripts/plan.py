"""Show what a campaign would run, and write it to results/<name>/plan.{json,txt,html}. Nothing is run or frozen.

python workflow/scripts/plan.py --campaign config/config.yaml --results results
"""

from pathlib import Path

from regatta.core.errors import UserError, run_script, script_parser
from regatta.core.files import hold
from regatta.plan.plan import make_plan
from regatta.plan.plan_page import SHOWN_ON_TERMINAL, plan_text, write_plan


def main() -> None:
    parser = script_parser(__doc__, has_log=True)
    parser.add_argument("--campaign", type=Path, required=True, help="campaign file")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all results")
    parser.add_argument("--retry", action="store_true", help="plan to repeat measurements that are not ok")
    arguments = parser.parse_args()
    plan = make_plan(arguments.campaign, arguments.results, is_retry=arguments.retry, may_lack_files=True)
    if plan.campaign.data["gate"]["baseline_campaign"]:
        from regatta.compare.forecast import gate_forecast  # loads pandas, which other plans do not need

        plan.matrix.notes.extend(gate_forecast(plan))
    write_plan(plan)
    print(plan_text(plan, SHOWN_ON_TERMINAL), end="")
    print(f"page: {plan.results}/plan.html")
    try:
        hold(plan.results / ".lock", "note: this campaign is running").close()
    except UserError as error:
        print(error)


if __name__ == "__main__":
    run_script(main, is_short=True)
