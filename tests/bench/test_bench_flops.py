"""Operations of a forward pass: by hand, against torchvision's figures, and against the formula for transformers."""

import pytest

pytest.importorskip("torch")

import torch
from bench_cells import BENCH, train_step_cell
from torch import nn

from workloads import models, transformer
from workloads.flops import FORWARD_PASSES_OF_A_STEP, ForwardFlops

pytestmark = pytest.mark.torch


def counted(forward) -> int:
    with ForwardFlops() as found:
        forward()
    return found.total


def test_a_convolution_a_grouped_one_and_a_linear_layer_by_hand():
    image = torch.randn(2, 8, 10, 10)
    # Samples x outputs (height x width x channels) x inputs of each output (3 x 3 x channels of a group) x 2.
    assert counted(lambda: nn.Conv2d(8, 16, 3)(image)) == 2 * (8 * 8 * 16) * (9 * 8) * 2
    assert counted(lambda: nn.Conv2d(8, 16, 3, groups=4)(image)) == 2 * (8 * 8 * 16) * (9 * 2) * 2
    assert counted(lambda: nn.Linear(10, 5)(torch.randn(7, 10))) == 2 * 7 * 10 * 5


def test_attention_counts_on_a_cpu_too():
    query = torch.randn(3, 4, 6, 8)  # samples, heads, positions, dimensions of a head
    attend = nn.functional.scaled_dot_product_attention
    # Scores, then the mix of values: 2 products of positions x positions x dimensions. The causal mask halves nothing.
    assert counted(lambda: attend(query, query, query, is_causal=True)) == 2 * 2 * 3 * 4 * 6 * 6 * 8


@pytest.mark.parametrize("name", ["resnet50", "efficientnet_b0", "vit_b_16"])
def test_classifiers_have_the_operations_that_torchvision_states(name):
    torchvision = pytest.importorskip("torchvision")
    stated = torchvision.models.get_model_weights(name).IMAGENET1K_V1.meta["_ops"]  # 10^9 multiply-adds of a sample
    with torch.device("meta"):
        model, images = models.build_model(name, 224).eval(), torch.empty(2, 3, 224, 224)
    assert counted(lambda: model(images)) / 2 == pytest.approx(2e9 * stated, rel=0.01)


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_the_formula_of_transformers_is_what_is_counted_within_a_thousandth(name):
    """The formula has the weights of the norms among N, which are multiplied but by no product: 0.04 % and less."""
    with torch.device("meta"):
        model, tokens = (
            transformer.Transformer(transformer.dimensions_of(name, 128)),
            torch.zeros(2, 128, dtype=torch.long),
        )
    by_formula = transformer.flops_per_token(model.dimensions, 128) * tokens.numel()
    assert FORWARD_PASSES_OF_A_STEP * counted(lambda: model(tokens)) == pytest.approx(by_formula, rel=1e-3)


def test_a_record_has_the_operations_of_a_sample_for_any_strategy_batch_and_ranks(
    run_ranks, write_request, launch_lines
):
    pytest.importorskip("torchvision")
    cells = [
        train_step_cell("squeezenet1_1", "ddp", batch_size=2),
        train_step_cell("squeezenet1_1", "fsdp", batch_size=2),
        train_step_cell("squeezenet1_1", "ddp", batch_size=3),
        train_step_cell("lm_tiny", "fsdp"),
    ]
    for cell in cells:
        cell["spec"] |= {"gpus_per_node": 2}
    done = run_ranks(2, BENCH / "run_launch.py", "--request", write_request(cells, gpus_per_node=2))
    assert done.returncode == 0, done.stderr
    records = {line["cell"]: line for line in launch_lines() if line["kind"] == "record"}
    found = [records[cell["id"]]["values"]["flops_per_sample"] for cell in cells]
    assert found[0] == found[1] == found[2] > 1e6
    tokens = cells[3]["spec"]["parameters"]["context_length"]
    dimensions = transformer.dimensions_of("tiny", tokens)
    assert found[3] == transformer.flops_per_token(dimensions, tokens) * tokens
