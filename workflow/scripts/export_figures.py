"""Write each figure of a report as PDF and SVG for a paper or slides, with its marks as CSV and a caption.

python workflow/scripts/export_figures.py results/laptop --for paper
python workflow/scripts/export_figures.py config/my.yaml --for slides

The files are in results/NAME/figures/paper or slides.
"""

from pathlib import Path

from regatta.campaign.load import results_folder
from regatta.core.errors import UserError, run_script, script_parser
from regatta.report.export import FORMS, export_figures
from regatta.topics.catalog import drawn_figures, read_report_data


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("campaign", type=Path, help="results folder, or campaign file")
    parser.add_argument("--for", dest="form", required=True, choices=tuple(FORMS), help="column width, or 16:9")
    args = parser.parse_args()
    folder = results_folder(args.campaign)
    frozen = sorted(folder.glob("campaign.*.json"))
    if len(frozen) != 1 or not (folder / "tables").is_dir() or not (folder / "measurements.csv").is_file():
        raise UserError(
            f"{folder}: no tables of one campaign. Build the report first: make report CONFIG={args.campaign}"
        )
    files = (folder / name for name in ("measurements.csv", "problems.json", "tables", "launches"))
    data = read_report_data(frozen[0], *files)
    figures, out = drawn_figures(data), folder / "figures" / args.form
    export_figures(figures, data, out, FORMS[args.form])
    print(f"{out}: {len(figures)} figures")


if __name__ == "__main__":
    run_script(main)
