"""Every strategy of train_step in a launch: checks pass, and records contain the parts for exposed communication."""

import pytest

pytest.importorskip("torch")

from bench_cells import BENCH, train_step_cell

pytestmark = pytest.mark.torch
OWN = ("naive", "flat", "overlap", "bucketed")
VOCABULARY = 1000
NUM_PARAMETERS = 780_928  # 2 x (4 x 128^2 + 3 x 128 x 512 + 2 x 128) + 2 x 1,000 x 128 + 128


# run_launch.py with a tenth of lm_tiny's vocabulary, and torch.compile without the C++ that it writes for a CPU, which
# takes a compiler a minute.
PROGRAM = f"""\
import dataclasses, functools, sys, torch
sys.path.insert(0, {str(BENCH)!r})
torch.compile = functools.partial(torch.compile, backend="aot_eager")
from workloads import transformer
transformer.SIZES["tiny"] = dataclasses.replace(transformer.SIZES["tiny"], vocab_size={VOCABULARY})
import run_launch
run_launch.main()
"""


@pytest.fixture
def records(run_ranks, write_request, launch_lines, tmp_path):
    program = tmp_path / "launcher.py"
    program.write_text(PROGRAM)

    def measure(cells: list[dict], num_ranks: int = 2, **request: object) -> dict[str, dict]:
        request |= {"gpus_per_node": num_ranks}
        for cell in cells:
            cell["spec"] |= {"gpus_per_node": num_ranks, "device": request.get("device", "cpu")}
        done = run_ranks(num_ranks, program, "--request", write_request(cells, **request))
        assert done.returncode == 0, done.stderr
        return {line["cell"]: line for line in launch_lines() if line["kind"] == "record"}

    return measure


def test_every_strategy_measures_the_step_without_exchange_and_those_that_can_the_exchange_alone(records):
    cells = {name: train_step_cell("lm_tiny", name) for name in ("ddp", *OWN, "fsdp")}
    cells["ddp bf16"] = train_step_cell("lm_tiny", "ddp", compression="bf16")
    cells["static"] = train_step_cell("lm_tiny", "ddp", static_graph=True)
    cells["views"] = train_step_cell("lm_tiny", "ddp", gradient_as_bucket_view=True) | {"id": "views"}
    found = records(list(cells.values()))
    own = {name: found[cell["id"]] for name, cell in cells.items()}
    assert {name: record["status"] for name, record in own.items()} == dict.fromkeys(cells, "ok")
    parts = {name: set(record["parts_ns"] or {}) for name, record in own.items()}
    both = {"step", "no_sync", "communication"}
    assert parts == {
        "ddp": both,
        "ddp bf16": both,
        "views": both,
        "static": {"step", "communication"},
        "fsdp": set(),
        **dict.fromkeys(OWN, both | {"host_wait"}),
    }
    for name in own.keys() - {"fsdp"}:
        check_parts(own[name])
    check_counts(own)


@pytest.mark.slow
def test_every_modern_path_trains_and_so_do_all_at_once(records):
    """gradient_as_bucket_view and bf16 by themselves: test_bench_launch.py; static_graph and compression: above.

    None of the models has dropout, which would make the loss of a step random.
    """
    modern = {"dtype": "bf16", "gradient_as_bucket_view": True, "static_graph": True, "compression": "bf16"}
    cells = [
        train_step_cell("resnet18", "bucketed", channels_last=True),
        train_step_cell("lm_tiny", "overlap", compile=True),
        train_step_cell("lm_tiny", "ddp", compile=True, optimizer="adamw", **modern),
    ]
    found = records(cells)
    assert {name: record["status"] for name, record in found.items()} == {cell["id"]: "ok" for cell in cells}
    for record in found.values():
        assert record["checks"] == {"loss_is_finite": True, "weights_agree": True}
        assert record["values"]["last_loss"] < record["values"]["first_loss"]


def check_parts(record: dict) -> None:
    parts = record["parts_ns"]
    assert {len(rows) for rows in parts.values()} == {2}
    in_turns = {len(row) for name, rows in parts.items() if name != "host_wait" for row in rows}
    assert len(in_turns) == 1
    assert min(in_turns) >= 3
    assert all(value > 0 for rows in parts.values() for row in rows for value in row)
    if "host_wait" in parts:
        assert len(parts["host_wait"][0]) == record["sampling"]["num_iterations"]


def check_counts(own: dict[str, dict]) -> None:
    """naive and overlap reduce each of the 21 weights, flat and a bucket of 25 MiB all of them at once."""
    assert {name: own[name]["values"]["num_calls"] for name in OWN} == {
        "naive": 21,
        "flat": 1,
        "overlap": 21,
        "bucketed": 1,
    }
    for name in ("ddp", *OWN):
        assert own[name]["memory"]["gradient_bytes"] == 4 * NUM_PARAMETERS
        assert own[name]["memory"]["optimizer_bytes"] == 4 * NUM_PARAMETERS
    assert own["flat"]["memory"]["algorithm_bytes"] == 4 * NUM_PARAMETERS
    assert own["naive"]["memory"]["algorithm_bytes"] == 0
    assert own["ddp"]["memory"]["algorithm_bytes"] == 4 * NUM_PARAMETERS  # its buckets, beside the gradients
    assert own["views"]["memory"]["algorithm_bytes"] == 0  # its gradients are the buckets
    assert own["fsdp"]["memory"]["algorithm_bytes"] is None
    # Sharded or not, the same activations and the same whole weights are saved.
    assert own["fsdp"]["memory"]["saved_bytes"] == own["ddp"]["memory"]["saved_bytes"]
    assert own["fsdp"]["memory"]["gradient_bytes"] == own["fsdp"]["memory"]["parameter_bytes"]
    assert own["fsdp"]["memory"]["parameter_bytes"] == pytest.approx(2 * NUM_PARAMETERS, rel=0.01)  # half on each rank
    losses = {name: record["values"]["first_loss"] for name, record in own.items()}
    assert max(losses.values()) - min(losses.values()) < 1e-4  # the same weights and batch, before the first step
    values = own["ddp"]["values"]
    assert (values["d_model"], values["num_layers"], values["tokens_per_sample"]) == (128, 2, 16)


def test_one_rank_has_nothing_to_exchange_and_no_parts(records):
    [record] = records([train_step_cell("lm_tiny", "none")], num_ranks=1).values()
    assert (record["status"], record["parts_ns"]) == ("ok", None)
    assert record["memory"]["saved_bytes"] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["ddp", *OWN, "fsdp"])
def test_every_strategy_on_gpus(records, strategy):
    import torch

    if torch.cuda.device_count() < 1:
        pytest.skip("no CUDA device")
    num_ranks = min(2, torch.cuda.device_count())
    cell = train_step_cell("lm_tiny", strategy)
    cell["spec"]["backend"] = "nccl"
    [record] = records([cell], num_ranks, device="cuda").values()
    assert record["status"] == "ok"
    assert min(record["memory"]["device_used_bytes"]) > 0
    if num_ranks > 1 and strategy != "fsdp":
        parts = record["parts_ns"]
        assert {"traced_step", "communication_stream", "exposed_stream"} <= parts.keys()
        for rank in range(num_ranks):
            rows = zip(parts["exposed_stream"][rank], parts["communication_stream"][rank], strict=True)
            assert all(exposed <= communication for exposed, communication in rows)
            assert max(parts["communication_stream"][rank]) < max(parts["traced_step"][rank])
