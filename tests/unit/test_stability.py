"""Variation between launches and times by rank in the report: numbers computed by hand."""

import json

import numpy as np
import pandas as pd
import pytest
from synthetic import LAPTOP, analyse, make_campaign, make_report, train_cell, write_results
from synthetic_waits import write_waits

from regatta.topics.base import Topic
from regatta.topics.catalog import _tables_of, sections
from regatta.topics.stability import section


def with_ranges(data, ratios):
    """Set the variation of cells: of these, and of no other; None: of one launch."""
    cells = data.tables["cells"]
    ratios = cells["cell"].map(ratios).astype("Float64") if ratios else pd.array([None] * len(cells), dtype="Float64")
    data.tables["cells"] = cells.assign(range_ratio=ratios)


def data_of(folder, cells, repeats=3, **options):
    return analyse(write_results(folder, make_campaign(cells, repeats=repeats, **options), LAPTOP))


def part_of(data, part):
    [stability] = [section for section in sections(data) if section.id == "stability"]
    return next((found for found in stability.parts if found.id == part), None)


def test_cells_that_vary_beyond_the_limit_are_listed_the_worst_first(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "ddp", bucket) for bucket in range(1, 26)]
    data = data_of(tmp_path / "r", cells)
    ids = [cell["id"] for cell in cells]
    with_ranges(data, dict(zip(ids, (0.02, 0.02, None, 0.3, 0.051), strict=False)))
    [table] = section(data).tables
    assert table.cells == (ids[3], ids[4])
    assert [row[-1] for row in table.rows] == ["30.0", "5.10"]
    with_ranges(data, dict.fromkeys(ids, 0.05))
    assert section(data).tables == ()
    with_ranges(data, dict.fromkeys(ids, 0.06))
    [table] = section(data).tables
    assert (len(table.rows), table.caption.endswith("first 20 of 25")) == (20, True)
    with_ranges(data, {})
    assert section(data).tables == ()


def test_without_a_straggler_the_times_by_rank_are_folded(tmp_path):
    none = analyse(write_waits(tmp_path / "none", (2, 4), {}))
    part = part_of(none, "stragglers")
    assert part.is_folded
    [figure] = part.figures
    assert [row[0] for row in figure.table.rows] == [str(rank) for rank in range(8)]
    assert {row[1] for row in figure.table.rows} == {"node000", "node001"}
    slow = part_of(analyse(write_waits(tmp_path / "slow", (2, 4), {3: 0.06})), "stragglers")
    assert not slow.is_folded
    assert [figure.id for figure in slow.figures] == ["rank-times"]


def test_quantiles_by_rank_are_those_of_the_record(tmp_path):
    data = analyse(write_waits(tmp_path / "r", (1, 2), {}, repeats=1))
    ok = data.ok.sort_values("line")
    record = json.loads(
        next(data.launches.glob("*.jsonl")).read_text(encoding="utf-8").splitlines()[int(ok["line"].iloc[0]) - 1]
    )
    [figure] = part_of(data, "stragglers").figures
    assert [float(row[3]) for row in figure.table.rows] == pytest.approx(
        [float(np.median(times)) * 1e-3 for times in record["samples_ns"]], rel=0.005
    )


def test_of_one_rank_nothing_is_said_about_stragglers(tmp_path):
    assert part_of(data_of(tmp_path / "r", [train_cell("resnet18", 1, 1)]), "stragglers") is None


def test_parts_of_the_section_keep_their_anchors(tmp_path):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet18", 1, g) for g in (1, 2)]), LAPTOP)
    page = make_report(folder).read_text(encoding="utf-8")
    section = page.partition('<section id="stability"')[2].partition("</section>")[0]
    places = [section.index(f'<div id="{part}"') for part in ("warnings", "percentiles")]
    assert places == sorted(places)
    assert page.index('id="stability"') < page.index('<section id="failures"')
    assert '<a href="#warnings" aria-label="Warnings, evidence: Confidence">' in page


def test_a_part_of_no_topic_is_an_error():
    with pytest.raises(ValueError, match="'lost' is part_of"):
        _tables_of((Topic("lost", "Lost", part_of="nothing"),))
