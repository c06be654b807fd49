"""The peak of bus bandwidth, from `links` in a cluster file to the lines and percentages of a report."""

import json

import pytest
from campaign_files import SLURM, UserError, collectives, load, message, small
from hypothesis import given
from hypothesis import strategies as st
from synthetic import (
    CLUSTER,
    analyse,
    collective_cell,
    edit_launches,
    make_campaign,
    report_data,
    train_cell,
    write_results,
)
from typed import call_cells, cell_row

from regatta.campaign.expansion import expand
from regatta.plan.batches import Price, make_batches
from regatta.run.preflight import plan_preflight
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.frozen_files import read_frozen
from regatta.tables.bandwidth import peak_bus_bandwidth
from regatta.topics import communication

GPU = "NVIDIA GH200 120GB"
SOURCE = "https://example.org/links"
BOTH = {"gpus": 450.0, "nodes": 100.0}
LINKS = [{"device": GPU, "between": key, "gb_per_s": value, "source": SOURCE} for key, value in BOTH.items()]


@pytest.mark.parametrize(
    ("operation", "shape", "links", "peak"),
    [
        ("all_reduce", (1, 4), BOTH, 450),
        ("all_reduce", (2, 4), BOTH, 175),  # 100 x (2 x 7/8) / (2 x 1/2)
        ("all_reduce", (8, 4), BOTH, 110.714),  # 100 x (2 x 31/32) / (2 x 7/8)
        ("all_reduce", (2, 1), BOTH, 100),
        ("all_gather", (2, 4), BOTH, 175),  # 100 x (7/8) / (1/2)
        ("reduce_scatter", (2, 4), BOTH, 175),
        ("all_to_all", (2, 4), BOTH, 43.75),  # 100 x (7/8) / (4 x 1/2)
        ("broadcast", (2, 4), BOTH, 100),
        ("reduce", (2, 4), BOTH, 100),
        ("send_recv_ring", (2, 4), BOTH, 100),
        ("send_recv_pair", (2, 4), BOTH, 25),  # four GPUs share the NICs
        ("send_recv_pair", (1, 4), BOTH, 450),
        ("all_reduce", (2, 8), {"gpus": 450, "nodes": 400}, 500),  # 450 + 400/8, below 400 x (15/8) / 1
        ("all_reduce", (1, 2), {"gpu_pair": 150}, 150),
        ("all_reduce", (1, 4), {"gpu_pair": 150}, 450),
        ("all_reduce", (1, 4), {"gpu_pair": 150, "gpus": 300}, 300),
        ("all_reduce", (2, 1), {"nodes": 100}, 100),  # no link within a node is used
    ],
)
def test_the_peak_by_hand(operation, shape, links, peak):
    assert peak_bus_bandwidth(operation, *shape, links) == pytest.approx(peak, rel=1e-5)


@pytest.mark.parametrize(
    ("operation", "shape", "links"),
    [
        ("all_reduce", (1, 1), BOTH),
        ("barrier", (2, 4), BOTH),
        ("scatter_to_the_wind", (2, 4), BOTH),
        ("all_reduce", (1, 4), {"nodes": 100}),
        ("all_reduce", (2, 4), {"nodes": 100}),
        ("all_reduce", (2, 4), {"gpus": 450}),
        ("all_reduce", (2, 4), {}),
    ],
)
def test_without_a_link_that_the_operation_uses_there_is_no_peak(operation, shape, links):
    assert peak_bus_bandwidth(operation, *shape, links) is None


@given(st.integers(2, 64), st.integers(2, 16), st.floats(1, 2000), st.floats(1, 2000))
def test_no_peak_is_below_what_a_ring_or_a_reduction_within_nodes_reaches(k, g, of_gpu, of_node):
    n = k * g
    peak = peak_bus_bandwidth("all_reduce", k, g, {"gpus": of_gpu, "nodes": of_node}) * (1 + 1e-9)
    assert min(of_gpu, of_node) <= peak  # every link of a ring carries 2 (n-1)/n S
    # Within nodes 2 (g-1)/g S over the links of each GPU, meanwhile 2 (k-1)/k S between nodes; S = 1.
    seconds = max(2 * (g - 1) / g / of_gpu, 2 * (k - 1) / k / of_node)
    assert 2 * (n - 1) / n / seconds <= peak


WRONG = [{"between": "node"}, {"gb_per_s": 0}, {"source": "data sheet"}, {"gbps": 800}]


@pytest.mark.parametrize("links", [[LINKS[0] | wrong] for wrong in WRONG] + [[*LINKS, LINKS[1] | {"gb_per_s": 50}]])
def test_an_error_in_a_link_is_reported(tmp_path, links, wording):
    wording(message(tmp_path, small(), {"links": links}))


def test_an_edited_link_changes_no_cell_no_batch_and_no_preflight(tmp_path):
    found = []
    for site in ({}, {"links": LINKS}, {"links": LINKS[:1]}):
        campaign = load(tmp_path, collectives(4, 8), SLURM | site)
        cells = expand(campaign).cells
        batches = make_batches(campaign, [(cell, 0) for cell in cells], Price(lambda cell: 1.0, 1.0), tmp_path)
        preflight = plan_preflight(campaign, [(1, 2)], {"host"}, tmp_path)
        found.append(([cell.id for cell in cells], [batch.id for batch in batches], preflight.id))
    assert found[0] == found[1] == found[2]


def test_a_frozen_link_without_a_bandwidth_is_refused(tmp_path):
    cluster = {"name": "c", "links": [LINKS[0] | {"gb_per_s": 0}]}
    path = tmp_path / "campaign.json"
    path.write_text(json.dumps(make_campaign([], cluster=cluster)), encoding="utf-8")
    with pytest.raises(UserError, match=r"gb_per_s"):
        read_frozen(path)


def nccl_cell(num_bytes, nodes, gpus, operation="all_reduce", **more):
    return collective_cell(num_bytes, nodes, gpus, operation, **({"device": "cuda", "backend": "nccl"} | more))


def tables_of(times, links=LINKS, gpu=GPU):
    """Return campaign and measurements. times: (cell, seconds), one launch each."""
    cells = [cell for cell, _ in times]
    rows = [cell_row(cell) | {"repeat": 0, "status": "ok", "p50_s": s, "gpu": gpu} for cell, s in times]
    cluster = {"name": "c"} | ({} if links is None else {"links": links})
    return make_campaign(cells, repeats=1, cluster=cluster, device="cuda"), make_table(rows, MEASUREMENTS)


def test_each_cell_has_the_peak_of_its_shape():
    cells = [nccl_cell(2**20, 1, 4), nccl_cell(2**20, 2, 4), nccl_cell(2**20, 2, 4, "all_to_all")]
    assert peaks_by_cell(*tables_of([(cell, 1.0) for cell in cells])) == {
        cell["id"]: pytest.approx(peak) for cell, peak in zip(cells, (450, 175, 43.75), strict=True)
    }


@pytest.mark.parametrize(
    ("cell", "more"),
    [
        (nccl_cell(2**20, 1, 4), {"links": None}),  # a campaign frozen before the key existed
        (nccl_cell(2**20, 1, 4), {"links": []}),
        (nccl_cell(2**20, 1, 4), {"gpu": None}),
        (nccl_cell(2**20, 1, 4), {"gpu": "another"}),
        (nccl_cell(2**20, 1, 4, backend="gloo"), {}),  # copies through host memory
        (train_cell("resnet50", 1, 4, device="cuda", backend="nccl"), {}),
    ],
)
def test_what_is_not_known_of_a_cell_gives_no_peak(cell, more):
    assert peaks_by_cell(*tables_of([(cell, 1.0)], **more)) == {}


def test_launches_on_different_gpus_have_no_peak():
    cell = nccl_cell(2**20, 1, 4)
    campaign, one = tables_of([(cell, 1.0)])
    rows = one.to_dict("records")
    assert peaks_by_cell(campaign, make_table([*rows, rows[0] | {"gpu": "another"}], MEASUREMENTS)) == {}


def peaks_by_cell(campaign, measurements):
    """Return the known peaks by cell."""
    return call_cells(campaign, measurements).set_index("cell")["peak_gb_per_s"].dropna().to_dict()


def figures_of(times, **more):
    section = communication.section(report_data(*tables_of(times, **more)))
    return [*section.figures, *section.parts[0].figures]


def guides_of(figure) -> list[tuple[str, float]]:
    marks = figure.chart.frame[figure.chart.frame["cell"] == ""]
    return [*zip(marks["series"], marks["y"], strict=True)]


def test_the_largest_shapes_on_one_node_and_on_several_have_a_line_and_each_row_its_share(wording):
    # 1 GB in 10 ms: 100 GB/s algbw, times 2 (n-1)/n = 1, 1.5 and 1.75.
    times = [(nccl_cell(10**9, *shape), 0.01) for shape in ((1, 2), (1, 4), (2, 4))]
    bandwidth, latency = figures_of(times)
    names, peaks = zip(*guides_of(bandwidth), strict=True)
    assert peaks == (450, pytest.approx(175))
    wording(list(names))
    assert guides_of(latency) == []
    wording(list(bandwidth.table.columns[-2:]))
    found = [row[-2:] for row in bandwidth.table.rows]
    assert found == [("22.2", "450"), ("33.3", "450"), ("100", "175")]
    assert not any("peak" in column.lower() for column in latency.table.columns)


def test_equal_peaks_are_one_line(wording):
    links = [LINKS[0] | {"gb_per_s": 100}, LINKS[1]]
    figures = figures_of([(nccl_cell(10**9, *shape, "broadcast"), 0.01) for shape in ((1, 2), (2, 1))], links=links)
    wording(guides_of(figures[0]))


def test_without_a_peak_there_is_no_line_and_no_percentage():
    bandwidth, _ = figures_of([(nccl_cell(10**9, 2, 4), 0.01)], links=[])
    assert guides_of(bandwidth) == []
    assert not any("peak" in column.lower() for column in bandwidth.table.columns)


def linked_report(folder, cells, gpu=GPU):
    """Return what the report of these cells is made of, on a GPU with links."""
    write_results(folder, make_campaign(cells, device="cuda", cluster={"name": "c", "links": LINKS}), CLUSTER)
    for header, *_ in edit_launches(folder):
        header["environment"]["gpus"] = [{"rank": rank, "host": "n", "name": gpu} for rank in range(4)]
    return analyse(folder)


def test_findings_say_the_percentage_and_the_section_the_links_with_their_sources(tmp_path, wording):
    data = linked_report(tmp_path / "r", [nccl_cell(2**30, 2, 4), nccl_cell(2**30, 2, 4, "all_gather")])
    found = communication.findings(data)
    [row, _] = data.cells_of("collective").sort_values("operation", ascending=False).itertuples()
    assert [finding.kind for finding in found] == ["communication", "bandwidth"]
    assert found[1].cells == (row.cell,)  # all-reduce comes first
    assert found[1].values["peak_ratio"].estimate == pytest.approx(row.busbw_gb_per_s / 175)
    lead = communication.section(data).lead
    wording(lead)


def above_peak(data):
    return [finding for finding in communication.findings(data) if finding.kind == "above_peak"]


def test_a_bandwidth_above_the_peak_is_a_warning():
    # 2**30 bytes in 10 ms: 107.37 GB/s, as bus bandwidth x 7/4 = 187.9 of 175 on two nodes, x 3/2 of 450 on one.
    cells = [nccl_cell(2**30, 1, 4), nccl_cell(2**30, 2, 4)]
    campaign, measurements = tables_of([(cell, 0.01) for cell in cells])
    data = report_data(campaign, measurements)
    [above] = above_peak(data)
    assert (above.values["num"], above.values["num_known"]) == (1, 2)
    assert above.values["largest_ratio"].estimate == pytest.approx(1.0737, rel=1e-4)
    assert above.cells == (cells[1]["id"],)
    campaign, measurements = tables_of([(cell, 0.011) for cell in cells])  # 170.8 of 175
    data = report_data(campaign, measurements)
    assert above_peak(data) == []
    campaign, measurements = tables_of([(cell, 0.01) for cell in cells], links=None)
    data = report_data(campaign, measurements)
    assert above_peak(data) == []


def test_links_of_gpus_that_did_not_run_are_not_named(tmp_path):
    data = linked_report(tmp_path / "r", [nccl_cell(2**30, 2, 4)], gpu="another")
    assert "peak_ratio" not in communication.findings(data)[1].values
    assert GPU not in communication.section(data).lead
