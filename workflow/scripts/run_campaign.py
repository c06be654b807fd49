"""Run Snakemake on a campaign and end with the path of its report, whatever became of the run. What `make campaign` calls.

python workflow/scripts/run_campaign.py config/config.yaml --profile profiles/local

Everything behind the campaign file goes to Snakemake as it is; the exit status is Snakemake's.
"""

import signal
import subprocess
import sys
from pathlib import Path

from regatta.campaign.load import load_campaign
from regatta.errors import UserError


def checked_name(path: Path) -> str:
    """Return the name of a campaign, or end with what is wrong with its file."""
    try:
        return load_campaign(path).name
    except UserError as error:
        sys.exit(str(error))


def run_snakemake(arguments: list[str]) -> int:
    """Run Snakemake and return its exit status. A signal to this process reaches it, so that none stays behind."""
    snakemake = subprocess.Popen([sys.executable, "-m", "snakemake", *arguments])
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: snakemake.send_signal(received))
    # Ctrl-C reaches Snakemake from the terminal; this process only waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = snakemake.wait()
    return status if status >= 0 else 128 - status  # as a shell counts a death by signal


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    report = Path("results") / checked_name(Path(sys.argv[1])) / "report.html"
    before = report.stat().st_mtime_ns if report.is_file() else None
    status = run_snakemake(sys.argv[2:])
    is_new = report.is_file() and (status == 0 or report.stat().st_mtime_ns != before)
    if is_new and "plan" not in sys.argv[2:]:
        print(f"Report: {report}", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
