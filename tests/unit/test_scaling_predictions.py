"""Predictions in the figures of scaling: their values are the table's, and lines without one are counted by reason."""

import re
from collections import Counter

import pandas as pd
import pytest
from synthetic import CLUSTER, analyse, cluster_campaign, write_results
from synthetic_laws import LAWS, write_lawful

from regatta.report.predictions import _largest_gap, _lines_of
from regatta.report.series import Point, Prediction, Series
from regatta.topics.fits.scaling import CURVE, PREDICTED
from regatta.topics.scaling import scaling_section
from regatta.topics.scaling.scaling_predictions import MOST_PREDICTED, predicted_lines
from regatta.topics.scaling.scaling_tables import EFFICIENCY, PER_RANK


@pytest.fixture(scope="module")
def lawful(tmp_path_factory):
    return analyse(write_lawful(tmp_path_factory.mktemp("law") / "r"))


def predicted_marks(figure) -> dict[str, dict[str, float]]:
    """Return the marks of predictions as series -> mark -> value, all at one place."""
    found, places = {}, set()
    for _, series, kind, mark, place, value in figure.marks().rows:
        if kind == "predicted":
            found.setdefault(series, {})[mark] = value
            places.add(place)
    assert len(places) <= 1
    return found


def test_bands_have_the_values_of_the_table(lawful):
    section, models = scaling_section.section(lawful), lawful.tables["scaling_models"]
    scaling, drawn = lawful.tables["scaling"], 0
    for figures, column in ((section.folded[1], "throughput"), (section.figures, "efficiency")):
        for figure in (one for one in figures if one.id.startswith(column)):
            for series, marks in predicted_marks(figure).items():
                model = "resnet101" if "101" in figure.title else "resnet50"
                [stack] = [name for name in LAWS if name in series]
                bucket = float(re.search(r"(\d+) MiB", series)[1])
                rows, cells = models[models["model"] == model], scaling[scaling["model"] == model]
                [row] = rows[(rows["stack"] == stack) & (rows["bucket_cap_mb"] == bucket)].to_dict("records")
                cells = cells[(cells["stack"] == stack) & (cells["bucket_cap_mb"] == bucket)]
                ideal = (cells[PER_RANK.name] / cells[EFFICIENCY.name]).max() * row["extrapolated_world_size"] / 100
                one = ideal if column == "efficiency" else 1
                assert row["extrapolated_world_size"] == 64
                for mark, name in zip(("value", "low", "high"), PREDICTED.names, strict=True):
                    assert marks[mark] == pytest.approx(row[name] / one)
                drawn += 1
    assert drawn == 8  # two models, two stacks, two figures


def test_a_band_is_hatched_and_has_its_text_and_the_cells_of_its_line(lawful, drawing):
    figure = next(one for one in scaling_section.section(lawful).figures if one.id == "efficiency-1")
    svg, bands = figure.svg, [series.prediction for series in figure.chart.series if series.prediction]
    assert len(bands) == 2
    for band in bands:
        assert re.search(rf'<path [^>]*role="img" aria-label="{re.escape(band.text)}"', svg)
        assert band.place == "64 GPUs"
    assert {band.models for band in bands} == {"Amdahl, USL", "USL"}
    assert svg.count("<pattern") == 2
    assert svg.count("predicted, 64 GPUs") == 1


def test_the_measured_part_has_most_of_the_axis(lawful):
    figure = next(one for one in scaling_section.section(lawful).figures if one.id == "efficiency-1")
    places = [point.x for series in figure.chart.series for point in series.points]
    assert (min(places), max(places)) == (1, 32)
    assert figure.chart.x.ticks[-1] == (64, "64")


def test_where_all_models_refuse_a_sentence_says_so(tmp_path):
    data = analyse(write_results(tmp_path / "r", cluster_campaign(), CLUSTER))
    section = scaling_section.section(data)
    assert not any(predicted_marks(figure) for figure in (*section.figures[:2], *section.folded[1]))
    assert re.search(r"beyond 32 GPUs: 4 of 4 lines \(([^)]*)\)", section.lead)[1] == "systematic residuals"


def lines(*spans: tuple[int, int], **model) -> tuple[pd.DataFrame, dict]:
    """Return the rows of a panel with a line for each pair of smallest and largest size, and their models."""
    rows, models = [], {}
    for number, (smallest, largest) in enumerate(spans):
        curve = dict.fromkeys(CURVE) | {"stack": f"s{number}"}
        for size in (smallest, largest):
            known = {"label": f"s{number}", "is_context": False, "step_s": 1.0, "world_size": size}
            rows.append(curve | known | {PER_RANK.name: 10.0, EFFICIENCY.name: 0.5})
        fitted = {PREDICTED.name: 30.0, "refusal": None, "min_world_size": smallest, "max_world_size": largest}
        models[tuple(curve.values())] = fitted | model
    return pd.DataFrame(rows), models


@pytest.mark.parametrize(
    ("spans", "model", "num", "reasons"),
    [
        ([(1, 8), (2, 8)], {}, 2, {}),
        ([(1, 8), (1, 4)], {}, 1, {"not measured at the largest shape": 1}),
        ([(4, 8)], {}, 0, {"sizes span less than 4×": 1}),
        ([(1, 8)] * MOST_PREDICTED, {}, MOST_PREDICTED, {}),
        ([(1, 8)] * (MOST_PREDICTED + 1), {}, 0, {"more than 4 predictions in a figure": MOST_PREDICTED + 1}),
        ([(1, 8)], {PREDICTED.name: None, "refusal": "no prediction for 16 ranks: its interval (Amdahl or USL) reaches"
                    " 30 % from the value, limit 25 %"}, 0, {"interval too wide": 1}),
        ([(1, 8)], {PREDICTED.name: None, "refusal": "no prediction for 16 ranks: 3 world sizes measured, it needs 4"
                    " (USL)"}, 0, {"too few sizes": 1}),
    ],
)  # fmt: skip
def test_a_prediction_is_drawn_where_it_hides_nothing(spans, model, num, reasons):
    found, why = predicted_lines(*lines(*spans, **model))
    assert (len(found), why) == (num, Counter(reasons))
    assert all(line.baseline == 20 for line in found)


def test_the_label_of_a_prediction_is_where_no_line_is(drawing):
    from matplotlib.figure import Figure

    points = tuple(Point(float(x), (y,), y) for x, y in ((1, 10.0), (2, 9.0), (4, 7.0)))
    one = Series("a", points, prediction=Prediction(8.0, 4.0, (3.0, 5.0), "8 GPUs", "USL", "text"))
    axes = Figure(dpi=72).subplots()
    axes.set(xscale="log", xlim=(1, 8), ylim=(0, 12))
    low, high = _largest_gap(axes, _lines_of([one], []), 0, 0.5)
    assert (low, high) == (0, pytest.approx(8 / 12, abs=0.05))  # under the line
    low, high = _largest_gap(axes, _lines_of([one], []), 0.9, 1)
    assert high == 1  # above the prediction
    assert low == pytest.approx(5 / 12, abs=0.05)
