"""Write each figure of a report as PDF, SVG and PNG for a paper or slides, with its marks as CSV and a caption.

python workflow/scripts/export_figures.py results/laptop --for paper
python workflow/scripts/export_figures.py config/my.yaml --for slides

The files are in results/NAME/figures/paper or slides. The drawing is that of the page: other size and text, colors of
the light theme. The text is embedded: as TrueType fonts in a PDF, as outlines in an SVG, which needs no font. Campaign,
machine and date stand below the drawing and in the metadata of the file.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from regatta.campaign.load import results_folder
from regatta.core.errors import UserError, run_script, script_parser
from regatta.core.text import plural
from regatta.kit.kinds import joined
from regatta.report.chart import GREY, Medium
from regatta.report.draw import draw
from regatta.report.page import TEMPLATES, machine_line
from regatta.report.panels import Figure
from regatta.store.launch_files import write_text
from regatta.tables.facts import own_facts
from regatta.topics.base import ReportData
from regatta.topics.catalog import drawn_figures, read_report_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# A column; 16:9, of 13.3 inches text of 22 pt.
FORMS = {"paper": Medium(3.35, 8, {}), "slides": Medium(16 / 3, 9, {}, height_in=3)}


def export_figures(figures: Sequence[Figure], data: ReportData, folder: Path, medium: Medium) -> None:
    """Write ID.pdf, ID.svg, ID.png, ID.csv and ID.txt of each figure into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    medium = replace(medium, colors=_light_colors())
    source = ", ".join([data.campaign.name, *machine_line(data.campaign, data.facts, data.measurements)])
    for figure in figures:
        draw(figure.chart, figure.id, figure.title, medium, partial(_write, folder, figure, medium, source))
        write_text(folder / f"{figure.id}.csv", figure.csv)
        write_text(folder / f"{figure.id}.txt", caption_of(figure, f"{figure.title}: {figure.chart.axes_text}", data))


def _write(folder: Path, figure: Figure, medium: Medium, source: str, canvas: "Canvas") -> None:
    """Write a drawing with its source below, in the text size of the medium."""
    import matplotlib

    lines = textwrap.wrap(source, int(canvas.get_figwidth() * 72 / (0.6 * medium.text_pt)))
    above, below = canvas.get_figheight(), 1.25 * len(lines) * medium.text_pt / 72
    height = above if medium.height_in else above + below  # that of a slide is fixed
    of = canvas.subplotpars
    canvas.set_figheight(height)
    canvas.subplots_adjust(bottom=(of.bottom * above + below) / height, top=1 - (1 - of.top) * above / height)
    for legend in canvas.legends:
        legend.set_bbox_to_anchor((0, below / height, 1, 1), canvas.transFigure)
    canvas.text(0.01, 0, "\n".join(lines), color=GREY, va="bottom")
    of_pdf, described = {"CreationDate": None, "Subject": source}, {"Description": source}
    with matplotlib.rc_context({"svg.fonttype": "path"}):
        for kind, metadata in (("pdf", of_pdf), ("svg", described | {"Date": None}), ("png", described)):
            with (folder / f"{figure.id}.{kind}").open("wb") as file:
                more = {"facecolor": "white", "metadata": metadata | {"Title": figure.title}}
                canvas.savefig(file, format=kind, dpi=300, **more)  # dots of the PNG


def caption_of(figure: Figure, name: str, data: ReportData) -> str:
    """Return what a figure shows, launches, interval, machine and versions. name: accessible."""
    ok, cells = data.ok, set(figure.columns[0][1:]) - {""}
    launches = (ok[ok["cell"].isin(cells)] if cells else ok).groupby("cell").size()
    least, most = launches.min(), launches.max()
    num = plural(int(most), "launch", "launches") if least == most else f"{least}\N{EN DASH}{most} launches"
    of_cells = f"n = {num} per cell, {plural(len(launches), 'cell')}." if len(launches) else "n = 0 launches."
    of_record = "p5 to p95 of iterations" if figure.chart.record else ""
    kinds = re.findall("95 % CI|range", " ".join(figure.table.columns))
    lines = [
        f"{name}.",
        f"n = 1 launch: {figure.chart.record}." if figure.chart.record else of_cells,
        f"Interval: {' or '.join(dict.fromkeys(kinds)) or of_record or 'none'}.",
        f"Machine: {', '.join(machine_line(data.campaign, data.facts, data.measurements))}.",
    ]
    for stack in data.campaign.stack_names:
        versions = [fact for fact in data.facts if fact.group == "version" and fact.stack == stack and fact.value]
        texts = dict.fromkeys(f"{fact.name} {fact.value}" for fact in versions)
        lines += [f"Versions of {stack}: {', '.join(texts)}."] if texts else []
    lines += [f"Stack {stack}: {joined(of)}." for stack, of in own_facts(data.campaign).items() if of]
    return "\n".join(lines) + "\n"


def _light_colors() -> dict[str, str]:
    """Return the colors of the page's light theme."""
    sheet = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}),", sheet))


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
