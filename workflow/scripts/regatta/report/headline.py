"""Which figure the first screen of the report has."""

from dataclasses import replace

from regatta.report.page import MOST_DRAWN
from regatta.report.panels import Figure, Section, drawn_and_listed

HEADLINES = ("sweep", "scaling", "scripts", "programs", "communication", "training_runs")  # sections, the first counts
COMPARISONS = "comparisons"  # instead of a strip: without several places, only what is compared differs
STRETCH = {"lines": 1.55, "rows": 1.2}  # of its height, by its form: beside six or seven facts


def headline_figure(shown: list[Section]) -> Figure | None:
    """Return the figure of the first screen: of the first section in HEADLINES that has one.

    Instead of a strip, that of comparisons if cells have one size; without any, the first figure of several cells.
    """
    by_id = {section.id: section for section in shown}
    sections = [by_id[name] for name in HEADLINES if name in by_id and _figures_of(by_id[name])]
    found = [figure for section in sections for figure in _figures_of(section)]
    compared = by_id[COMPARISONS].headline if COMPARISONS in by_id else None
    if not found or found[0].chart.form == "rows":
        several = (figure for figure in found if len({*figure.chart.frame["cell"]} - {""}) > 1)
        first = None if sections and _has_sizes(sections[0]) else compared
        found = [figure for figure in (first, next(several, None), *found) if figure]
    if not found:
        return None
    chart = replace(found[0].chart, stretch=STRETCH.get(found[0].chart.form, 1.0))
    table = replace(found[0].table, caption=f"Summary: {found[0].table.caption}")  # landmarks are unique
    return replace(found[0], id="headline", table=table, drawing=chart)


def _figures_of(section: Section) -> tuple[Figure, ...]:
    return (section.headline,) if section.headline else section.figures


def without_headline(shown: list[Section]) -> list[Section]:
    """Return the sections without the figure of the first screen, if it is the only one of its section."""
    first = headline_figure(shown)
    titles = [first.title] if first else []
    return [
        replace(section, figures=())
        if not section.headline and [figure.title for figure in section.figures] == titles
        else section
        for section in shown
    ]


def _has_sizes(section: Section) -> bool:
    """Return whether any figure of a section is over several places, as that of throughput with the baseline is."""
    return any(figure.chart.form == "lines" for figure in (*section.figures, *section.folded[1]))


def figures_of_page(shown: list[Section], is_large: bool) -> list[Figure]:
    """Return the figures that the page draws: that of the first screen, then those of sections and their parts."""
    first = headline_figure(shown)
    found = [first] if first else []
    for section in (one for outer in without_headline(shown) for one in (outer, *outer.parts)):
        for figures in (section.figures, section.folded[1]):
            found += drawn_and_listed(figures, MOST_DRAWN[is_large])[0]
        found += [section.content["figure"]] if section.content.get("figure") else []
    return found
