"""The efficiency heatmap: the position of each cell, and the mark of a square without a value."""

import matplotlib
import pytest
from synthetic import CLUSTER, LAPTOP, analyse, cluster_campaign, laptop_campaign, write_results

from regatta.store.csv_files import MEASUREMENTS, read_csv
from regatta.topics.catalog import read_tables
from regatta.topics.scaling.figures import color_of, heatmap_figures


def figures_of(folder, campaign, machine, faults=None):
    analyse(write_results(folder, campaign, machine, faults))
    return heatmap_figures(
        read_tables(folder / "tables")["scaling"], read_csv(folder / "measurements.csv", MEASUREMENTS)
    )


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    campaign = laptop_campaign()
    lost = next(c["id"] for c in campaign["cells"] if "mobilenet_v3_small-ddp-1-n01g02" in c["id"])
    faults = {(lost, repeat): ("timeout", "measure", "no record after 60 s") for repeat in range(campaign["repeats"])}
    return figures_of(tmp_path_factory.mktemp("heatmap") / "r", campaign, LAPTOP, faults)


def test_workloads_go_down_and_shapes_across(laptop):
    [figure] = laptop
    assert figure.table.columns == ("workload", "1×1", "1×2")
    assert [row[0] for row in figure.table.rows] == [
        "MobileNetV3-Small: ddp bucket 1 MiB", "MobileNetV3-Small: ddp bucket 25 MiB", "ResNet-18: ddp bucket 1 MiB", "ResNet-18: ddp bucket 25 MiB",
    ]  # fmt: skip


def test_a_cell_without_a_value_bears_the_letter_of_its_reason(laptop):
    [figure] = laptop
    assert figure.table.rows[0][2] == "T"
    assert "Hatched: T timed out." in figure.caption
    assert "7 of 8 cells with a value" in figure.alt


def test_every_square_has_the_number_of_the_table(laptop):
    [figure] = laptop
    for _, *values in figure.table.rows[1:]:
        assert all(0 < float(value) < 120 for value in values)


def test_many_workloads_are_cut_into_even_parts(tmp_path):
    figures = figures_of(tmp_path / "r", cluster_campaign(repeats=1), CLUSTER)
    assert [len(figure.table.rows) for figure in figures] == [6, 6]
    assert [row[0] for row in figures[0].table.rows][:3] == [
        "ResNet-101: ddp bucket 1 MiB · bound", "ResNet-101: ddp bucket 25 MiB · bound", "ResNet-101: ddp bucket 100 MiB · bound",
    ]  # fmt: skip
    assert figures[0].size == (390, 259)


def test_without_a_baseline_there_is_no_map(tmp_path):
    campaign = laptop_campaign()
    campaign["cells"] = [cell for cell in campaign["cells"] if cell["spec"]["parameters"].get("strategy") != "none"]
    assert figures_of(tmp_path / "r", campaign, LAPTOP) == []


def test_above_100_per_cent_is_the_brightest_colour():
    """A colour map takes the integer 1 for its second entry, which is nearly black."""
    assert color_of(1.3) == color_of(1.0) == matplotlib.colormaps["cividis"](1.0)
    assert color_of(-0.1) == matplotlib.colormaps["cividis"](0.0)
