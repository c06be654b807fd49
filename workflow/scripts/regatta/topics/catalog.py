"""All topics in the order of the page, their tables, and the report of them. A new topic is one line here."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pandas as pd

from regatta.core.errors import UserError
from regatta.core.files import check_listed
from regatta.kit.columns import Columns
from regatta.kit.kinds import FAIR, LOW, NOTE, RESULT
from regatta.model.frozen import FrozenCampaign
from regatta.report import explore, page
from regatta.report.findings import Finding
from regatta.report.panels import Figure, Section
from regatta.store.collect import read_collected, read_store, summaries_beside, write_collected
from regatta.store.csv_files import COLLECTED, columns_in, make_table, read_csv, write_csv
from regatta.store.frozen_files import read_frozen, read_frozen_campaign
from regatta.store.launch_files import launch_paths, write_json, write_text
from regatta.tables.cells import CELL_COLUMNS, cells_table, columns_of
from regatta.tables.primary_times import primary_columns
from regatta.topics import (
    base,
    buckets,
    communication,
    correlated_launches,
    custom,
    failures,
    fitted_models,
    gradient_communication,
    machines,
    memory,
    percentiles,
    preflight_section,
    programs,
    scripts,
    slow_places,
    stability,
    status_matrix,
    sweep_section,
    sync_batchnorm,
    timeline,
    training_runs,
    warnings_section,
)
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.comparison import comparison_section as comparison
from regatta.topics.scaling import scaling_section as scaling
from regatta.topics.summary import MARKS, answer_json, figures_of_page, headline_figures, summary, without_figures
from regatta.topics.warnings_section import marks, warnings, warnings_by_cell

TOPICS: tuple[Topic, ...] = (
    machines.TOPIC,  # these two have no section; their warnings come first
    slow_places.LAUNCHES,
    sweep_section.TOPIC,
    status_matrix.TOPIC,
    scaling.TOPIC,
    buckets.TOPIC,
    gradient_communication.TOPIC,
    comparison.TOPIC,
    communication.TOPIC,
    fitted_models.TOPIC,
    memory.TOPIC,
    training_runs.TOPIC,
    scripts.TOPIC,
    programs.TOPIC,
    custom.TOPIC,
    sync_batchnorm.TOPIC,
    stability.TOPIC,
    warnings_section.TOPIC,
    slow_places.RANKS,
    percentiles.TOPIC,
    stability.PRECISION,
    correlated_launches.TOPIC,
    failures.TOPIC,
    timeline.TOPIC,
    preflight_section.TOPIC,
)


def topics_of(campaign: FrozenCampaign) -> list[Topic]:
    """Return the topics that apply to a campaign, in the page's order. The tables of the others have no rows."""
    return [topic for topic in TOPICS if topic.is_of_sweeps or not campaign.sweep]


def _tables_of(topics: tuple[Topic, ...]) -> dict[str, TableSpec]:
    """Return the tables of all topics by name.

    Raises ValueError if a name is used twice (also by the store), and if a topic is part of an unknown one.
    """
    tables: dict[str, TableSpec] = {}
    for topic in topics:
        if topic.part_of not in ("", *(other.id for other in topics)):
            raise ValueError(f"topic '{topic.id}' is part_of '{topic.part_of}', which is not a topic")
        for name, spec in topic.tables.items():
            if name in tables or name in COLLECTED:
                raise ValueError(
                    f"table '{name}' of topic '{topic.id}' is already a table of another topic or the store"
                )
            tables[name] = spec
    return tables


TABLES = _tables_of(TOPICS)
COLUMNS = {name: spec.columns for name, spec in TABLES.items()}
check_listed("topics", "Topic", TOPICS, "TOPICS of topics/catalog.py")


class _OnDemand(dict):
    """Tables by name, each made at its first use: a table may depend on others, in any order."""

    def __init__(self, campaign: FrozenCampaign, collected: dict[str, pd.DataFrame]) -> None:
        super().__init__(collected)
        self.campaign = campaign

    def __missing__(self, name: str) -> pd.DataFrame:
        if name == "cells":
            self[name] = cells_table(self.campaign, self["measurements"])
            return self[name]
        applies = any(name in topic.tables for topic in topics_of(self.campaign))
        columns = columns_in(self.campaign, TABLES[name].columns)
        self[name] = TABLES[name].make(self.campaign, self) if applies else make_table([], columns)
        return self[name]


def write_from_store(campaign: FrozenCampaign, launches: Path, measurements: Path, problems: Path) -> None:
    """Write measurements.csv, the tables beside it, and problems.json. campaign: frozen."""
    collected, excluded = read_store(campaign, launches, summaries_beside(launches))
    write_json(problems, excluded)
    write_collected(collected, measurements)


def make_tables(campaign: FrozenCampaign, collected: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return each table by its name. campaign: frozen; collected: measurements.csv and the tables beside it."""
    on_demand = _OnDemand(campaign, collected)
    tables = {name: on_demand[name] for name in ("cells", *TABLES)}
    # Cells of an imported campaign have separate numbers of repeats.
    repeats = {cell.id: cell.repeats for cell in campaign.cells if cell.repeats}
    for table in tables.values():
        if repeats and "num_planned" in table and "cell" in table:
            table["num_planned"] = table["cell"].map(repeats).astype("Int64").fillna(table["num_planned"])
    return tables


def write_tables(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write cells.csv beside this folder and the other tables into it; remove those of an older version."""
    for name in TABLES:
        write_csv(tables[name], folder / f"{name}.csv")
    cells = tables["cells"]
    write_csv(
        cells[[name for name in cells if name in CELL_COLUMNS or cells[name].notna().any()]], cells_beside(folder)
    )
    for path in folder.glob("*.csv"):
        if path.stem not in TABLES:
            path.unlink(missing_ok=True)


def cells_beside(tables: Path) -> Path:
    """Return the path of cells.csv of a results folder. tables: its folder of tables."""
    return tables.parent / "cells.csv"


def read_tables(folder: Path, campaign: FrozenCampaign) -> dict[str, pd.DataFrame]:
    columns = columns_by_table(campaign)
    found = {name: read_csv(folder / f"{name}.csv", columns[name]) for name in TABLES}
    cells = read_csv(path := cells_beside(folder), columns["cells"], needed=["cell"])
    if set(cells["cell"]) != campaign.by_id.keys() or cells[["num_launches", "interval"]].isna().any(axis=None):
        remedy = f"Rebuild it from the store: make report CONFIG={path.parent}"
        raise UserError(f"{path}: is damaged, or of another campaign: its rows are not the planned cells. {remedy}")
    return {"cells": cells, **found}


def columns_by_table(campaign: FrozenCampaign) -> dict[str, Columns]:
    """Return the columns of the computed tables by name."""
    of_cells, others = {"cells": columns_of(campaign)}, {name: columns_in(campaign, of) for name, of in COLUMNS.items()}
    return others | of_cells if campaign.sweep else of_cells | others  # in a sweep, its own times come first


def read_report_data(
    campaign: Path, measurements: Path, problems: Path, tables: Path, launches: Path, preflights: Collection[Path] = ()
) -> ReportData:
    """Read the data of a report. preflights: paths of their results. A corrupt file is listed in the problems."""
    frozen = read_frozen_campaign(campaign)
    collected, recorded_problems, results = read_collected(frozen, measurements), read_frozen(problems), []
    for path in preflights:
        try:
            results.append(read_frozen(path))
        except UserError as error:
            recorded_problems["corrupt"].append(
                str(error).replace(f"{path.parent}/", "")
            )  # keep the report independent of its folder
    result = results[0] if results else None
    if len(results) > 1:  # one for each node type
        size = {key: max(one[key] for one in results) for key in ("nodes", "gpus_per_node")}
        result = {**result, **size, "stacks": [stack for one in results for stack in one["stacks"]]}
    return ReportData(
        frozen,
        {**collected, **read_tables(tables, frozen)},
        page.read_headers(launches, collected["measurements"]),
        recorded_problems,
        launches,
        result,
        columns_by_table(frozen),
        tuple(topics_of(frozen)),
    )


def render(data: ReportData) -> str:
    """Return the report: one reproducible page without external assets, complete without its script."""
    return page.render("report.html.j2", **_content(data, sections(data)))


def drawn_figures(data: ReportData) -> list[Figure]:
    """Return the figures that the report draws, in the page's order."""
    shown = sections(data)
    return figures_of_page(shown, headline_figures(data, shown))


def terms(data: ReportData) -> list[tuple[str, str]]:
    """Return the terms of the primary time, and of the topics that have rows."""
    found = base.primary_text(data.ok["benchmark"], primary_columns(data.measurements))
    text = "The time of a launch from which rates, their intervals, comparisons and sweeps derive."
    primary = [("Primary time", f"{text} {found}.")] if found else []
    topics = topics_of(data.campaign)
    used = [topic for topic in topics if _has_rows(topic, data)]
    of_kinds = [[(kind.term, kind.help) for kind in topic.kinds if kind.help] for topic in used]
    return primary + [term for topic, found in zip(used, of_kinds, strict=True) for term in [*topic.terms, *found]]


def _has_rows(topic: Topic, data: ReportData) -> bool:
    """Return whether the campaign has cells of a topic, or without benchmarks, whether its tables have rows."""
    if topic.benchmarks:
        return any(cell.benchmark in topic.benchmarks for cell in data.campaign.cells)
    return not topic.tables or any(len(data.tables[name]) for name in topic.tables)


def _content(data: ReportData, shown: list[Section]) -> dict:
    """Return the variables of report.html.j2. shown: sections."""
    campaign, measurements, warned = data.campaign, data.measurements, warnings(data)
    marked = marks(data, warned)
    block = explore.data_block(data, warnings_by_cell(warned), marked)
    num_launches = len(launch_paths(data.launches))
    headline, indices = headline_figures(data, shown), explore.cell_indices(campaign)
    block["figures"] = explore.figure_columns(figures_of_page(shown, headline), indices)
    shown = without_figures(shown, headline)
    return {
        "title": f"{campaign.name}: Regatta report",
        "campaign": campaign,
        "campaign_text": page.text_without_secrets(campaign),
        "summary": summary(data),
        "summary_marks": MARKS,
        "headline": headline,
        "titles": {one.id: one.title for section in shown for one in (section, *section.parts)},
        "machine": page.machine_line(campaign, data.facts, measurements),
        "facts": page.facts(campaign, measurements, data.tables["launches"]),
        "counts": page.status_counts(measurements),
        "num_other_launches": num_launches - measurements["launch"].dropna().nunique(),
        "cell_names": data.names,
        "marks": warnings_by_cell([one for one in warned if one.declared.has_badge]) | marked,
        "places": data.places,
        "findings": findings_by_section(data),
        "sections": shown,
        "contents": page.contents(shown),
        "sampling": page.sampling(campaign),
        "terms": terms(data),
        "num_unchecked": data.problems.get("num_unchecked"),
        "left_out": page.left_out(data.problems, data.names),
        "provenance": page.provenance(data.facts, data.headers),
        "cell_indices": indices,
        "cell_data": explore.encoded(block),
        "block": block,
        "groups": explore.groups_of(block, page.LIMITS["most_rows_listed"]),
        "tables": {name: len(data.tables[name]) for name in (*COLLECTED, "cells", *TABLES)},
    }


def write_report(data: ReportData, path: Path) -> None:
    """Write the report, and its first lines as answer.json beside it."""
    write_text(path, render(data))
    write_json(path.with_name("answer.json"), answer_json(data))


def sections(data: ReportData) -> list[Section]:
    """Return the sections in the page's order, each with its parts."""
    found = {"": []}
    for topic in (one for one in topics_of(data.campaign) if one.section):
        if section := topic.section(data):
            section = replace(section, id=topic.id, title=section.title or topic.title)
            found.setdefault(topic.part_of, []).append(section)
    return [replace(section, parts=(*section.parts, *found.get(section.id, ()))) for section in found[""]]


CLASSES = {RESULT: "", LOW: "Affects comparisons", FAIR: "Affects comparisons", NOTE: "Notes"}


def findings_by_section(data: ReportData) -> dict[str, dict[str, list[Finding]]]:
    """Return results and warnings by the anchor of their section, then by class. The first screen has the others."""
    found = defaultdict(lambda: defaultdict(list))
    for finding in (*(one for one in data.findings if one.rank == RESULT), *warnings(data)):
        found[finding.anchor][CLASSES[finding.rank]].append(finding)
    return found
