"""The topic of stability: variation between launches. Stragglers, percentiles and warnings are parts of its section."""

import pandas as pd

from regatta.core.text import plural
from regatta.report.panels import Section
from regatta.report.plotting import MAX_POINTS
from regatta.topics.base import ReportData, Topic
from regatta.topics.quality import CELLS_GOOD_RATIO, DISAGREEMENT_RATIO
from regatta.topics.stability.figures import ecdf_figures, most_variable, stack_hues, variation_figure

LIMIT = f"{100 * DISAGREEMENT_RATIO:g} %"


def section(data: ReportData) -> Section:
    ranges = data.tables["launch_ranges"]
    stacks = stack_hues(data.campaign)
    figure = variation_figure(ranges, stacks, data.names, data.device)
    ecdfs = _ecdfs(data, stacks) if figure else None
    return Section(
        "stability",
        "Stability",
        lead=variation_text(*variation_counts(ranges)),
        figures=(figure,) if figure else (),
        parts=(ecdfs,) if ecdfs else (),
    )


def variation_counts(ranges: pd.DataFrame) -> tuple[int, int, int]:
    """Return the number of cells beyond the limit, of those with two launches or more, and of those with one."""
    known = ranges["range_ratio"].dropna()
    return int((known > DISAGREEMENT_RATIO).sum()), len(known), len(ranges) - len(known)


def variation_text(num_over: int, num_known: int, num_single: int) -> str:
    """Return the line above the strip; empty if nothing was measured."""
    if not num_known:
        return "Variation between launches is unknown: no cell has two valid launches." if num_single else ""
    vary = "varies" if num_over == 1 else "vary"
    text = f"{num_over} of {plural(num_known, 'cell')} {vary} by more than {LIMIT} between launches (dashed line)."
    text += " Pipelined times where recorded, else medians."
    text += f" Drawn: the {MAX_POINTS:,} most variable." if num_known > MAX_POINTS else ""
    return text + (f" Not shown: {plural(num_single, 'cell')} with one launch." if num_single else "")


def _ecdfs(data: ReportData, stacks: dict) -> Section | None:
    """Return the part with samples by launch; folded if so few cells vary that confidence may be good."""
    rows = most_variable(data.tables["launch_ranges"])
    figures, without = ecdf_figures(rows, data.ok, data.launches, stacks, data.names)
    if not figures:
        return None
    cells = "cell" if len(figures) == 1 else f"{len(figures)} cells"
    lead = (
        f"Share of samples at or below each time, for the {cells} with the largest range. Samples: single synchronized"
        " iterations, slowest rank; pipelined windows are not included."
    )
    lead += f" No samples recorded: {'; '.join(without)}." if without else ""
    title = "Samples by launch"
    is_noisy = (rows["range_ratio"] > DISAGREEMENT_RATIO).mean() > CELLS_GOOD_RATIO
    return Section("launch-times", title, lead=lead, figures=tuple(figures), summary="" if is_noisy else title)


def methods(campaign: dict) -> list[tuple[str, str]]:
    text = (
        "(Largest − smallest) / median, over a cell's valid launches. The value of a launch is its pipelined time per"
        f" step or call, else the median of its samples. Unknown with one launch. Limit: {LIMIT}."
    )
    return [("Between-launch variation", text)]


TOPIC = Topic("stability", "Stability", {}, section, methods=methods, is_of_sweeps=True)
