"""All collectives on real ranks: one set of processes measures many cells, so that the tests take seconds."""

import json
from pathlib import Path

import pytest
from bench_cells import BENCH, collective_cell

pytestmark = pytest.mark.torch

WITH_MESSAGE = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv_pair", "send_recv_ring",
)  # fmt: skip
OWN_ALGORITHMS = ("ring", "butterfly", "halving_doubling")
# The same launch with the free memory that a test sets.
LAUNCHER = """\
import sys
sys.path.insert(0, {bench!r})
import pathlib
from harness import free_memory
if pathlib.Path("{meminfo}").exists():
    free_memory.MEMINFO = pathlib.Path("{meminfo}")
import run_launch
run_launch.main()
"""


def write_launcher(folder: Path) -> Path:
    path = folder / "launcher.py"
    path.write_text(LAUNCHER.format(bench=str(BENCH), meminfo=folder / "meminfo"))
    return path


@pytest.fixture
def measure(run_ranks, write_request, launch_lines, tmp_path):
    """A function that measures cells on ranks and returns their records in order."""

    def run(num_ranks: int, cells: list[dict]) -> list[dict]:
        program = write_launcher(tmp_path)
        changes = {"gpus_per_node": num_ranks, "device": cells[0]["spec"]["device"]}
        done = run_ranks(num_ranks, program, "--request", write_request(cells, **changes))
        assert done.returncode == 0, done.stderr
        return [line for line in launch_lines() if line["kind"] == "record"]

    return run


def expected_checks(parameters: dict) -> dict[str, bool]:
    if parameters["operation"] == "barrier":
        return {"barrier_holds": True}
    names = ["result_is_exact", "pipelined_result_is_exact"]
    return dict.fromkeys(names + ["ranks_are_bitwise_equal"] * (parameters["operation"] == "all_reduce"), True)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_every_operation_gives_exact_results_blocking_and_pipelined(measure, num_ranks):
    chunk = 4 * 1001  # no power of two, and in bf16 no multiple of any number of ranks but those of the size
    cells = [collective_cell(name, num_ranks * chunk, dtype) for name in WITH_MESSAGE for dtype in ("fp32", "bf16")]
    cells += [collective_cell(name, 4 * num_ranks) for name in WITH_MESSAGE]  # one element for each rank
    cells += [collective_cell("barrier")]
    for record in measure(num_ranks, cells):
        parameters = record["spec"]["parameters"]
        assert (record["status"], record["cause"]) == ("ok", None), parameters
        assert record["checks"] == expected_checks(parameters)
        assert record["windows"]["steps_per_window"] >= 2
        check_sizes(record, num_ranks)


def check_sizes(record: dict, num_ranks: int) -> None:
    parameters, values = record["spec"]["parameters"], record["values"]
    if parameters["operation"] == "barrier":
        assert values == {"num_elements": None, "num_elements_per_rank": None, "num_in_flight": 8}
        return
    num_elements = parameters["message_bytes"] // {"fp32": 4, "bf16": 2}[parameters["dtype"]]
    is_cut = parameters["operation"] in ("all_gather", "reduce_scatter", "all_to_all")
    assert values["num_elements"] == num_elements
    assert values["num_elements_per_rank"] == (num_elements // num_ranks if is_cut else num_elements)
    if parameters["operation"] == "send_recv_pair":
        assert values["idle_rank"] == (num_ranks - 1 if num_ranks % 2 else None)
    if parameters["operation"] == "all_reduce":
        rounding = {"fp32": 2**-23, "bf16": 2**-7}[parameters["dtype"]]
        assert 0 < values["max_rel_error"] <= num_ranks * rounding
        assert 0 < values["max_abs_error"] <= num_ranks * num_ranks * rounding
        assert record["memory"]["algorithm_bytes"] is None  # torch does not tell


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_our_own_algorithms_are_exact_and_tell_their_memory(measure, num_ranks):
    sizes = ((4, "fp32"), (4 * 1001, "fp32"), (2 * 77_777, "bf16"))
    cells = [collective_cell("all_reduce", *size, algorithm) for algorithm in OWN_ALGORITHMS for size in sizes]
    for record in measure(num_ranks, cells):
        parameters = record["spec"]["parameters"]
        assert (record["status"], record["cause"]) == ("ok", None), parameters
        assert record["checks"] == expected_checks(parameters)
        assert 0 < record["memory"]["algorithm_bytes"] <= parameters["message_bytes"] * num_ranks
        assert record["values"]["num_in_flight"] == 1
        assert record["values"]["max_rel_error"] < num_ranks * 2**-7


def test_a_wrong_result_fails_its_cell_and_no_other(run_ranks, write_request, launch_lines):
    from collective_faults import FAULTS

    program = Path(__file__).with_name("collective_faults.py")
    cells = [collective_cell(*cell) for _, cell in FAULTS]
    done = run_ranks(2, program, "--request", write_request(cells))
    assert done.returncode == 0, done.stderr
    records = [line for line in launch_lines() if line["kind"] == "record"]
    assert {(record["status"], record["phase"]) for record in records} == {("failed", "check")}
    assert [record["checks"] for record in records] == [
        {"result_is_exact": False, "pipelined_result_is_exact": False},  # stale from the second call on
        {"result_is_exact": False},  # nothing is timed
        {"result_is_exact": True, "ranks_are_bitwise_equal": False},
        {"barrier_holds": False},
        {"result_is_exact": True, "pipelined_result_is_exact": False},
    ]


def test_a_message_that_does_not_fit_is_refused_on_all_ranks_before_it_is_allocated(
    run_ranks, write_request, tmp_path, wording
):
    (tmp_path / "meminfo").write_text(
        "MemTotal: 900 kB\nMemAvailable:   20971520 kB\n"
    )  # 20 GiB: 9 for each of two ranks
    request = write_request([collective_cell("all_gather", 1 << 42)])
    done = run_ranks(2, write_launcher(tmp_path), "--request", request)
    assert done.returncode != 0
    reports = [json.loads(path.read_text()) for path in sorted((tmp_path / "errors").glob("rank-*.json"))]
    # One of them, if it ends the launch before the other has written its report.
    wording({report["cause"] for report in reports})
    assert {(report["phase"], report["status"]) for report in reports} == {("setup", "failed")}


@pytest.mark.gpu
def test_every_operation_gives_exact_results_on_gpus(measure):
    torch = pytest.importorskip("torch")
    num_ranks = torch.cuda.device_count()
    if num_ranks < 2:
        pytest.skip("fewer than two GPUs")
    cells = [collective_cell(name, num_ranks * 4096, dtype) for name in WITH_MESSAGE for dtype in ("fp32", "bf16")]
    cells += [collective_cell("barrier"), *(collective_cell("all_reduce", 1 << 20, "fp32", a) for a in OWN_ALGORITHMS)]
    for cell in cells:
        cell["spec"] |= {"device": "cuda", "backend": "nccl"}
    for record in measure(num_ranks, cells):
        assert (record["status"], record["cause"]) == ("ok", None), record["spec"]["parameters"]
        assert record["checks"] == expected_checks(record["spec"]["parameters"])
