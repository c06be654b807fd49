"""The fitted models in the report: which are drawn, up to which size, and the reasons for those that were rejected."""

import re

import pytest
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    cluster_campaign,
    laptop_campaign,
    make_campaign,
    report_data,
    train_cell,
    write_results,
)
from synthetic_failures import write_failing

from regatta.report.plotting import Axis
from regatta.store.collect import cell_row
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.base import steps_by_cell
from regatta.topics.catalog import read_tables
from regatta.topics.fits import section as fits
from regatta.topics.fits.scaling import scaling_models_table
from regatta.topics.fits.section import (
    Fitted,
    communication_model_figures,
    refusal_table,
    residual_figure,
    scaling_model_figures,
)
from regatta.topics.scaling.tables import scaling_table


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "cluster"
    analyse(write_results(folder, cluster_campaign(repeats=3), CLUSTER))
    return read_tables(folder / "tables")


def amdahl_figures(lacking=(), repeats=3):
    _, measurements, scaling, models = amdahl_tables(lacking, repeats)
    return scaling_model_figures(models, scaling, steps_by_cell(measurements), "cuda")


def amdahl_tables(lacking=(), repeats=3):
    """Return campaign and tables of two models, each with two bucket sizes, whose steps grow as 1 + 0.02 (n - 1) up to 16 GPUs.

    lacking: shapes whose launches failed, of ddp 25 MiB of resnet18.
    """
    shapes = [(1, 1), (1, 2), (1, 4), (2, 4), (4, 4)]
    cells, rows = [], []
    for model, bucket, one in (
        ("resnet18", 1, 0.2),
        ("resnet18", 25, 0.1),
        ("resnet50", 1, 0.2),
        ("resnet50", 25, 0.4),
    ):
        for nodes, gpus in shapes:
            cell = train_cell(model, nodes, gpus, "ddp", bucket)
            cells.append(cell)
            is_lacking = (nodes, gpus) in lacking and (model, bucket) == ("resnet18", 25)
            for repeat, noise in enumerate(() if is_lacking else (0.995, 1.0, 1.005)[:repeats]):
                step = one * (1 + 0.02 * (nodes * gpus - 1)) * noise
                rows.append(cell_row(cell) | {"repeat": repeat, "status": "ok", "window_step_s": step})
    measurements = make_table(rows, MEASUREMENTS)
    campaign = make_campaign(cells, device="cuda")
    scaling = scaling_table(campaign, measurements)
    return campaign, measurements, scaling, scaling_models_table(scaling, measurements)


def test_the_scaling_law_of_the_fastest_curve_is_a_finding():
    """X(n) = 80 n / (1 + 0.02 (n - 1)): 8 samples a step of 0.1 s on one GPU; 1,580 samples/s on 32."""
    campaign, measurements, scaling, models = amdahl_tables()
    (finding,) = fits.findings(report_data(campaign, measurements, scaling=scaling, scaling_models=models))
    values = finding.values
    assert (values["name"], values["law"], values["num_ranks"]) == ("ResNet-18 · bucket 25 MiB", "amdahl", 32)
    assert values["sigma_ratio"] == pytest.approx(0.02, rel=0.01)
    assert values["samples_per_s"] == pytest.approx(80 * 32 / 1.62, rel=0.01)
    assert (values["num_fitted"], values["num_curves"]) == (4, 4)


def test_a_scaling_model_is_drawn_to_twice_the_largest_size_and_no_further():
    figures = amdahl_figures()
    assert [figure.id for figure in figures] == [
        "scaling-model-1", "residuals-scaling-model-1", "scaling-model-2", "residuals-scaling-model-2",
    ]  # fmt: skip
    figures = figures[::2]
    assert all("samples/s on 32 GPUs" in figure.alt for figure in figures)
    assert [figure.alt.partition(": ")[0] for figure in figures] == [
        "ResNet-18 · bucket 25 MiB",
        "ResNet-50 · bucket 1 MiB",
    ]
    assert all(figure.table.rows[0][0] == "1 to 16" for figure in figures)
    assert "32," in figures[0].csv


def test_a_scaling_model_names_shapes_without_a_value_and_its_launches():
    whole, lacking, single = (amdahl_figures(*of)[0] for of in ((), ([(1, 4)],), ((), 1)))
    assert "Amdahl fits 1 to 16 GPUs within " in whole.alt
    assert "Amdahl fits 1 to 16 GPUs (excluding 1×4: no value) within " in lacking.alt
    assert single.table.columns[1] == "n"
    assert single.table.rows[0][1] == "1"
    assert single.table.rows[0][-1].endswith("] (residuals)")


def test_a_communication_model_states_its_latency_and_bandwidth(cluster):
    tables = cluster
    figures = {f.title: f for f in communication_model_figures(tables["communication_models"], tables["collectives"])}
    # The machine of these results: 9 us for each of 32 ranks, then 31/32 of the message at 95 GB/s; bound is
    # 2.1 % slower, and noise only ever adds.
    figure = figures["Communication model: all-gather · 8×4 GPUs · bound"]
    num_cells, num, latency, _, bandwidth, bandwidth_ends, half = figure.table.rows[0]
    assert latency.endswith("µs")
    assert float(latency.split()[0]) == pytest.approx(32 * 9, rel=0.08)
    assert float(bandwidth) == pytest.approx(95 * 32 / 31, rel=0.08)
    assert figure.alt.endswith(
        f": latency {latency}, algorithm bandwidth {bandwidth} GB/s, half of it at {half} ({num_cells} cells, n = {num})."
    )
    # 3 launches would make a range; the residuals of the sizes reach further.
    assert re.fullmatch(r"\[[\d.]+, [\d.]+\] \(residuals\)", bandwidth_ends)


def test_residuals_are_measured_over_model_less_one_and_an_arc_changes_sides_twice():
    fitted = [Fitted(float(n), str(n), measured, 100.0) for n, measured in ((1, 98), (2, 101), (4, 103), (8, 99))]
    figure = residual_figure("r", "resnet18", Axis("GPUs", True), fitted, "scaling_models", " (samples/s)")
    assert figure.alt == "resnet18: residuals -2.0 to 3.0 %; 2 sign changes over 4 sizes."
    assert figure.table.columns == (
        "GPUs",
        "measured (samples/s)",
        "model (samples/s)",
        "residual (%)",
    )
    assert figure.table.rows[2] == ("4", "103", "100", "3.0")
    assert figure.csv.splitlines()[1] == "1,98,100,-0.02"


def test_every_fitted_model_has_its_residuals_beside_it(cluster):
    tables = cluster
    scaling = amdahl_figures()
    communication = communication_model_figures(tables["communication_models"], tables["collectives"])
    assert len(communication) > 2
    for model, residuals in zip([*scaling, *communication][::2], [*scaling, *communication][1::2], strict=True):
        assert residuals.id == f"residuals-{model.id}"
        factor = 1 + float(re.search(r"Largest deviation: (\d+\.\d+) %", model.caption)[1]) / 100
        ratios = [1 + float(row[-1]) / 100 for row in residuals.table.rows]  # of 0.8 the factor is 1.25
        assert max(max(ratio, 1 / ratio) for ratio in ratios) == pytest.approx(factor, abs=0.001)


def test_a_refused_curve_is_counted_with_its_reason(cluster, tmp_path):
    analyse(write_results(tmp_path / "r", laptop_campaign(), LAPTOP))
    tables = read_tables(tmp_path / "r" / "tables")
    assert scaling_model_figures(tables["scaling_models"], tables["scaling"], {}, "cpu") == []
    rows = refusal_table(tables["scaling_models"], tables["communication_models"]).rows
    assert sum(int(num) for kind, num, *_ in rows if kind == "scaling") == 4
    assert any("ResNet-18" in which for kind, *_, which in rows if kind == "scaling")
    assert refusal_table(tables["scaling_models"][:0], tables["communication_models"][:0]) is None


def test_a_curve_that_lacks_launches_is_drawn_and_is_no_finding(tmp_path):
    folder = write_failing(tmp_path / "r")
    data = analyse(folder)
    section = fits.section(data)
    figure = next(figure for figure in section.figures if figure.id == "scaling-model-1")
    assert "Amdahl fits 1 to 32 GPUs (excluding 1×4, 2×4: no value)" in figure.alt
    assert figure.alt.endswith(" (n = 1).")
    assert "8 of 8 communication curves and 1 of 12 scaling curves" in section.lead
    assert fits.findings(data) == []  # of a single launch
