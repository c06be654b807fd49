"""Pages of `compare.py`: a campaign against another, and cells over time. In the style of the report, one file each."""

from dataclasses import dataclass, field

import jinja2

from regatta.compare.campaigns import CampaignResults, CampaignsCompared
from regatta.compare.history import History, history_figures, history_table
from regatta.core.text import UNKNOWN, percent, plural
from regatta.report.page import TEMPLATES
from regatta.report.panels import Section, Table, full_names
from regatta.report.plotting import filters
from regatta.store.tables import to_csv
from regatta.topics.comparison.figures import comparison_figures, comparison_table, environment_table
from regatta.topics.comparison.tables import is_noise
from regatta.topics.comparison.words import COMPARED, direction, direction_text, judged_rows, summary


@dataclass(frozen=True)
class Part:
    """A section and the tables behind it that are shown when asked for: (summary, table)."""

    section: Section
    folded: tuple[tuple[str, Table], ...] = ()


@dataclass(frozen=True)
class Page:
    """What the template shows. csv: all numbers, for download under csv_name."""

    title: str
    lead: str
    facts: tuple[tuple[str, str], ...]
    csv_name: str
    csv: str
    parts: tuple[Part, ...] = field(default=())


def comparison_page(found: CampaignsCompared) -> str:
    """Return a page on two campaigns: what differs around them, forest plots, all rows, and what has no counterpart."""
    facts = tuple((name, _told(side)) for name, side in (("Base", found.base), ("Test", found.test)))
    title = f"{found.test.campaign['name']} against {found.base.campaign['name']}"
    lead = f"{summary(found.comparisons)} (margin {percent(found.margin)} %). {COMPARED}"
    shift = direction_text(direction(judged_rows(found.comparisons)))
    lead += f" Overall, {shift}." if shift else ""
    parts = (_environment(found), _comparisons(found), _unmatched(found))
    return render(Page(title, lead, facts, "comparisons.csv", to_csv(found.comparisons), parts))


def history_page(history: History) -> str:
    """Return a page on cells over time, with what changed in their environment."""
    campaigns = history.campaigns
    facts = tuple((f"Campaign {place + 1}", _told(campaign)) for place, campaign in enumerate(campaigns))
    changes = tuple(table for place in range(1, len(campaigns)) if (table := _changes(history, place)))
    told = sum(history.has_changed(place) for place in range(len(campaigns)))
    cells = history.table["cell"].nunique()
    lead = f"{plural(cells, 'cell')} in {plural(len(campaigns), 'campaign')}. The environment changed {plural(told, 'time')}."
    environment = Section("environment", "Environment", "No change of the environment was recorded.", tables=changes)
    figures = Section("history", "Cells over time", "", figures=tuple(history_figures(history)))
    everything = f"All {plural(cells, 'cell')}, that which changed most first"
    parts = (Part(figures, ((everything, history_table(history)),)), Part(environment))
    return render(Page("Cells over time", lead, facts, "history.csv", to_csv(history.table), parts))


def render(page: Page) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= filters()
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment.get_template("compare.html.j2").render(page=page, style=style)


def _told(side: CampaignResults) -> str:
    ok = side.measurements[side.measurements["status"] == "ok"]
    num = f"{plural(ok['cell'].nunique(), 'cell')}, {plural(ok['launch'].nunique(), 'launch', 'launches')}"
    notes = "".join(f". Note: {note}" for note in side.notes)
    return f"{side.folder}: {num}, from {side.first_time_utc or UNKNOWN}{notes}"


def _environment(found: CampaignsCompared) -> Part:
    is_known = found.base.headers and found.test.headers
    empty = "No difference was recorded." if is_known else "The environments are not known: there are no launch files."
    table = environment_table("What differs besides the numbers", found.environment, "base", "test")
    return Part(Section("environment", "Environment", empty, tables=(table,) if table else ()))


def _comparisons(found: CampaignsCompared) -> Part:
    rows, is_within = found.comparisons, is_noise(found.comparisons)
    told, inside = comparison_table("Beyond the margin, the largest effect first", rows, rows.index[~is_within]), ()
    if is_within.any():
        head = f"Within the margin of {percent(found.margin)} %: {plural(int(is_within.sum()), 'row')}"
        inside = ((head, comparison_table("Within the margin", rows, rows.index[is_within])),)
    empty = "No cell has ok launches on both sides."
    section = Section(
        "comparisons",
        "Comparisons",
        empty,
        figures=tuple(comparison_figures(rows)),
        tables=(told,) if told.rows else (),
    )
    return Part(section, inside)


def _unmatched(found: CampaignsCompared) -> Part:
    groups = {"only in base": found.only_base, "only in test": found.only_test}
    groups |= {f"not compared, {reason}": cells for reason, cells in found.not_compared.items()}
    folded = tuple(
        (f"{title}: {plural(len(cells), 'cell')}", Table(title, ("cell",), tuple((label,) for label in full_names(cells))))
        for title, cells in groups.items()
        if len(cells)
    )  # fmt: skip
    return Part(Section("unmatched", "Not compared", "Every cell of both has its counterpart."), folded)


def _changes(history: History, place: int) -> Table | None:
    names = [str(history.campaigns[index].folder) for index in (place - 1, place)]
    return environment_table(f"What changed before campaign {place + 1}", history.changes[place], *names)
