"""The search, on a campaign whose cells have known values, hosts and causes of failure."""

import copy
import itertools

import pytest
from explore_page import count, show, without_drawing

pytestmark = pytest.mark.browser

SIZES = 4096, 4 << 20, 64 << 20
HOSTS = {1: ["n7"], 2: ["n70", "n071"], 8: [f"n{i:02d}" for i in range(1, 9)]}
TIMED_OUT = {  # benchmark and parameters, then nodes -> status, phase and cause by repeat
    ("train_step", "resnet50", "bf16", 8): [("timeout", "measure", "no record after 60 s")] * 3,
    ("collective", "all_gather", 64 << 20, 2): [("failed", "measure", "rank 3: the watchdog caught a time-out")],
    ("collective", "all_gather", 4096, 1): [
        ("timeout", "warmup", "no record after 60 s"),
        ("failed", "measure", "rank 0: exited with status 1"),
    ],
    ("collective", "all_reduce", 4 << 20, 2): [("failed", "setup", "rank 1 timed out in the barrier")] * 3,
}


def cells_of_campaign():
    from synthetic import collective_cell, train_cell

    shapes = [(1, 4), (2, 8), (8, 4)]
    cells = [
        collective_cell(size, *shape, operation=operation, dtype=dtype)
        for size, shape in itertools.product(SIZES, shapes)
        for operation, dtype in (("all_reduce", "fp32"), ("all_reduce", "bf16"), ("all_gather", "fp32"))
    ]
    for model, (nodes, dtype) in itertools.product(("resnet18", "resnet50"), ((1, "fp32"), (8, "fp32"), (8, "bf16"))):
        cell = copy.deepcopy(train_cell(model, nodes, 4))
        cell["spec"]["parameters"]["dtype"] = dtype
        cells.append(cell | {"id": f"{cell['id'][:-12]}{'bf16' * 3 if dtype == 'fp32' else cell['id'][-12:]}"})
    return cells


def fault(spec, repeat, _):
    parameters = spec["parameters"]
    about = parameters.get("operation") or parameters["model"], parameters.get("message_bytes") or parameters["dtype"]
    is_other = parameters.get("operation") == "all_reduce" and parameters["dtype"] == "bf16"
    found = None if is_other else TIMED_OUT.get((spec["benchmark"], *about, spec["nodes"]))
    return found[repeat] if found and repeat < len(found) else None


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    from planted import plant
    from synthetic import make_campaign, make_report

    campaign = make_campaign(cells_of_campaign())
    folder = plant(
        tmp_path_factory.mktemp("search") / "r",
        campaign,
        lambda spec, *_: 1e-3 * spec["nodes"],
        fault,
        nodes=lambda num, _: HOSTS[num],
    )
    with without_drawing():
        return make_report(folder)


NUM_CELLS = 33


@pytest.mark.parametrize(
    ("query", "num"),
    [
        *(("8x4", 13), ("8×4", 13), ("2x8", 9), ("8x", 13)),
        *(("4MiB", 9), ("4 mib", 9), ("4 MiB", 9), ("64MiB", 9), ("4KiB", 9), ("4 GiB", 0), ("4MiB 8x4", 3)),
        *(("allreduce", 18), ("all-reduce", 18), ("all_reduce", 18), ("All Gather", 9), ("allgather 4 MiB", 3)),
        *(("bf16", 11), ("fp32", 22), ("BF16 allreduce", 9)),
        *(("n07", 13), ("n7", 11), ("n70", 9), ("n071", 9), ("n02", 13), ("n0", 0), ("N07 resnet50", 2)),
        *(("timeout", 4), ("timed out", 4), ("time-out", 4), ("timeout allgather", 2), ("timeout n07", 1)),
        *(("resnet50", 3), ("ResNet-50", 3), ("25", 6), ("25MiB", 6), ("32 processes", 13), ("16 processes", 9)),
    ],
)
def test_the_search_finds_what_was_planted(browser, page, query, num):
    show(browser, page, f"#search={query}")
    assert count(browser) == (num, NUM_CELLS)


def test_the_search_finds_a_cell_by_its_id_and_by_the_end_of_it(browser, page):
    cell = cells_of_campaign()[0]["id"]
    for query in (cell, cell[-12:], cell.upper()):
        show(browser, page, f"#search={query}")
        assert count(browser) == (1, NUM_CELLS)
