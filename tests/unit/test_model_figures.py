"""The fitted models in the report: which are drawn, how far, and what is said of those that were refused."""

import pytest
from synthetic import CLUSTER, LAPTOP, cluster_campaign, laptop_campaign, make_report, write_results

from regatta.analysis.all_tables import read_tables
from regatta.analysis.collected import read_collected
from regatta.analysis.scaling import steps_by_cell
from regatta.report.model_figures import (
    best_bucket_table,
    communication_model_figures,
    refusal_table,
    scaling_model_figures,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "cluster"
    make_report(write_results(folder, cluster_campaign(repeats=3), CLUSTER))
    return read_tables(folder / "tables"), steps_by_cell(read_collected(folder / "measurements.csv")["measurements"])


def test_a_scaling_model_is_drawn_to_twice_the_largest_size_and_no_further(cluster):
    tables, steps = cluster
    figures = scaling_model_figures(tables["scaling_models"], tables["scaling"], steps, "cuda")
    assert [figure.id for figure in figures] == ["scaling-model-1", "scaling-model-2"]
    assert all("at 64 GPUs, which were not measured" in figure.alt for figure in figures)
    assert all(figure.table.rows[0][0] == "1 to 32" for figure in figures)
    assert "64," in figures[0].csv


def test_a_communication_model_states_its_latency_and_bandwidth(cluster):
    tables, _ = cluster
    figures = {f.title: f for f in communication_model_figures(tables["communication_models"], tables["collectives"])}
    # The machine of these results: 9 us for each of 32 ranks, then 31/32 of the message at 95 GB/s; bound is
    # 2.1 % slower, and noise only ever adds.
    figure = figures["Communication model: all_gather, fp32, 8×4, bound"]
    _, latency, bandwidth, _ = figure.table.rows[0]
    assert latency.endswith("µs")
    assert float(latency.split()[0]) == pytest.approx(32 * 9, rel=0.08)
    assert float(bandwidth) == pytest.approx(95 * 32 / 31, rel=0.08)


def test_a_refused_curve_is_counted_with_its_reason(cluster, tmp_path):
    make_report(write_results(tmp_path / "r", laptop_campaign(), LAPTOP))
    tables = read_tables(tmp_path / "r" / "tables")
    assert scaling_model_figures(tables["scaling_models"], tables["scaling"], {}, "cpu") == []
    rows = refusal_table(tables["scaling_models"], tables["communication_models"]).rows
    assert sum(int(num) for kind, num, _ in rows if kind == "scaling") == 4
    assert refusal_table(tables["scaling_models"][:0], tables["communication_models"][:0]) is None


def test_the_best_bucket_stands_beside_the_predicted_one(cluster):
    tables, _ = cluster
    table = best_bucket_table(tables["buckets"])
    row = next(row for row in table.rows if row[0] == "resnet101, ddp, 8×4, contained")
    assert row[1] in ("25", "100")
    assert float(row[3]) > 0
    assert "all_reduce" in row[5]
    assert best_bucket_table(tables["buckets"][:0]) is None
