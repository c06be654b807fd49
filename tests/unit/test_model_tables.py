"""The fitted models in the report: their parameters, and which curves have none."""

import re
from dataclasses import replace

import pytest
from planted import plant
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    cluster_campaign,
    collective_cell,
    laptop_campaign,
    lines_of,
    make_campaign,
    make_report,
    report_data,
    train_cell,
    write_results,
)
from synthetic_failures import write_failing
from test_golden_pages import text_of as text_of_page
from typed import cell_row, step_cells

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.amdahl import scaling_models_table
from regatta.topics import fitted_models as fits
from regatta.topics.fitted_models import model_table


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "cluster"
    return analyse(write_results(folder, cluster_campaign(repeats=3), CLUSTER)).tables


def amdahl_rows():
    """Return the lines of the table of scaling laws, as heading -> text."""
    table = model_table("scaling_models", amdahl_tables()[3])
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def text_of(row, head):
    """Return the text below the first heading that contains some words."""
    return next(text for name, text in row.items() if head in name)


def amdahl_tables():
    """Return campaign and tables of two models and bucket sizes, whose steps grow as 1 + 0.02 (n - 1) up to 16 GPUs."""
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
            for repeat, noise in enumerate((0.995, 1.0, 1.005)):
                step = one * (1 + 0.02 * (nodes * gpus - 1)) * noise
                rows.append(cell_row(cell) | {"repeat": repeat, "status": "ok", "window_step_s": step})
    measurements = make_table(rows, MEASUREMENTS)
    campaign = make_campaign(cells, device="cuda")
    scaling = step_cells(campaign, measurements)
    return campaign, measurements, scaling, scaling_models_table(scaling)


def test_the_scaling_law_of_the_first_curve_is_a_finding():
    """On 32 GPUs, a step takes 1 + 0.02 x 31 times as long as on one."""
    campaign, measurements, scaling, models = amdahl_tables()
    (finding,) = fits.findings(report_data(campaign, measurements, scaling=scaling, scaling_models=models))
    values = finding.values
    assert finding.words["name"].endswith("bucket 1 MiB")
    assert values["num_ranks"] == 32
    assert values["sigma_ratio"].estimate == pytest.approx(0.02, rel=0.01)
    assert values["efficiency_ratio"].estimate == pytest.approx(1 / 1.62, rel=0.01)


def test_a_planted_law_reaches_the_page(tmp_path, wording):
    """Steps of 0.1 s on one GPU take 1 + 0.03 (n - 1) times as long on n: 1.93 times on 32."""
    cells = [train_cell("resnet50", *shape, "ddp", device="cuda") for shape in ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4))]

    def seconds(spec, *_):
        return 0.1 * (1 + 0.03 * (spec["nodes"] * spec["gpus_per_node"] - 1))

    folder = plant(tmp_path / "r", make_campaign(cells, device="cuda", repeats=3), seconds, noise=0.003)
    data = analyse(folder)
    [row] = data.tables["scaling_models"].itertuples()
    assert row.sigma_low_ratio < 0.03 < row.sigma_high_ratio
    assert row.extrapolated_efficiency_low_ratio < 1 / 1.93 < row.extrapolated_efficiency_high_ratio
    assert row.extrapolated_efficiency_ratio == pytest.approx(1 / 1.93, rel=0.02)
    wording.lines(text_of_page(make_report(folder).read_text(encoding="utf-8"), tmp_path), "Predicted for 32 GPUs")


def test_each_accepted_law_is_a_row():
    rows = amdahl_rows()
    assert len(rows) == 4
    first = rows[0]
    assert (first["Fitted processes"], first["n"], first["Predicted processes"]) == ("1 to 16", "3", "32")
    assert float(first["Serial share σ (%)"]) == pytest.approx(2.0, abs=0.1)
    assert float(first["Predicted efficiency (%)"]) == pytest.approx(100 / 1.62, abs=0.5)
    ends = text_of(first, "CI of predicted efficiency")
    low, high = map(float, re.fullmatch(r"\[([\d.]+), ([\d.]+)\]", ends).groups())
    assert low < 100 / 1.62 < high


def test_a_communication_model_states_its_latency_and_bandwidth(cluster):
    table = model_table("communication_models", cluster["communication_models"])
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    # The machine of these results: 9 us for each of 32 ranks, then 31/32 of the message at 95 GB/s; bound is
    # 2.1 % slower, and noise only ever adds.
    row = rows["all-gather · 8×4 GPUs · bound"]
    assert float(text_of(row, "Latency a")) == pytest.approx(32 * 9, rel=0.08)
    assert float(text_of(row, "bandwidth B")) == pytest.approx(95 * 32 / 31, rel=0.08)
    assert (row["Sizes"], row["n"]) == ("11", "3")
    # 3 launches would make a range; the residuals of the sizes reach further.
    ends = row["range or 95 % CI of algorithm bandwidth B"]
    assert re.fullmatch(r"\[[\d.]+, [\d.]+\] \(residuals\)", ends)


def test_a_refused_curve_has_no_row(tmp_path):
    data = analyse(write_results(tmp_path / "r", laptop_campaign(), LAPTOP))
    assert model_table("scaling_models", data.tables["scaling_models"]) is None
    section = fits.section(data)
    assert [table.sources for table in section.tables] == [("communication_models",)]


def test_models_have_the_cells_of_their_curves(tmp_path):
    data = analyse(write_results(tmp_path / "r", laptop_campaign(), LAPTOP))
    of = {cell.id: cell.benchmark for cell in data.campaign.cells}
    [table] = fits.section(data).tables
    assert [(len(cells), {of[cell] for cell in cells}) for cells in table.cells] == [(7, {"collective"})]


def test_curves_with_too_few_launches_have_no_row(tmp_path):
    data = analyse(write_failing(tmp_path / "r"))
    assert [table.sources for table in fits.section(data).tables] == [("communication_models",)]
    assert fits.findings(data) == []


def test_an_operation_is_latency_bound_up_to_a_size_at_the_largest_shape(tmp_path):
    """Of two stacks. T(S) = 9 us n + f S / 95 GB/s, f = 2 (n-1)/n of an all-reduce, so S is 9 us n x 95 GB/s / f."""
    cells = [
        collective_cell(1024 * 4**i, *shape, operation, stack=stack, device="cuda", backend="nccl")
        for operation in ("all_reduce", "all_gather")
        for shape in ((1, 4), (2, 4))
        for stack in ("first", "second")
        for i in range(11)
    ]
    machine = replace(CLUSTER, noise=1e-4, slowdown={"second": 1.3})
    data = analyse(write_results(tmp_path / "r", make_campaign(cells, device="cuda"), machine))
    (gather, reduce), models = fits.crossover_sizes(data), data.tables["communication_models"]
    assert (reduce["operation"], reduce["world_size"]) == ("all_reduce", 8)
    for values, factor in ((reduce, 2 * 7 / 8), (gather, 7 / 8)):
        size = 8 * CLUSTER.latency_s * CLUSTER.bytes_per_s / factor  # a stack that is slower in all has the same
        assert values["low_bytes"] == pytest.approx(size, rel=0.02)
        assert values["high_bytes"] == pytest.approx(size, rel=0.02)
        assert values["stacks"] == ["first", "second"]
        curves = models[(models["operation"] == values["operation"]) & (models["world_size"] == 8)]
        assert values["low_bytes"] <= curves["half_bandwidth_bytes"].min()
        assert values["high_bytes"] >= curves["half_bandwidth_bytes"].max()
    line = lines_of(data)["communication"]
    assert line.values["latency_bound_below_bytes"] == [reduce["low_bytes"], reduce["high_bytes"]]


def test_stacks_whose_crossover_sizes_differ_have_one_each(tmp_path):
    """The table of two stacks of which one has ten times the latency: a B is ten times as large."""
    cells = [collective_cell(1024 * 4**i, 2, 4, stack=stack) for stack in ("first", "second") for i in range(11)]
    data = analyse(write_results(tmp_path / "r", make_campaign(cells), replace(CLUSTER, noise=1e-4)))
    models = data.tables["communication_models"]
    columns = ["latency_a_s", "latency_a_low_s", "latency_a_high_s", "half_bandwidth_bytes"]
    models.loc[models["stack"] == "second", columns] *= 10
    first, second = fits.crossover_sizes(data)
    assert (first["stacks"], second["stacks"]) == (["first"], ["second"])
    assert second["low_bytes"] == pytest.approx(10 * first["low_bytes"], rel=0.05)
    line = lines_of(data)["communication"]
    assert line.values["latency_bound_below_bytes"] in [[of["low_bytes"], of["high_bytes"]] for of in (first, second)]


def test_a_custom_algorithm_has_no_crossover_size(tmp_path):
    cells = [collective_cell(1024 * 4**i, 1, 4, algorithm="ring") for i in range(11)]
    data = analyse(write_results(tmp_path / "r", make_campaign(cells), CLUSTER))
    assert fits.crossover_sizes(data) == []
