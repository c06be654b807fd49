"""The transformer: counts computed by hand, shapes, and the properties of a causal language model."""

import dataclasses
import functools

import pytest

pytest.importorskip("torch")

import torch

from workloads import transformer
from workloads.transformer import Dimensions

pytestmark = pytest.mark.torch

SMALL = Dimensions(d_model=16, d_ff=40, num_layers=2, num_heads=4, vocab_size=30, context_length=12)


@functools.cache
def small_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return transformer.Transformer(SMALL).eval()


def random_tokens(num_samples: int = 3, num_tokens: int = 12) -> torch.Tensor:
    return torch.randint(30, (num_samples, num_tokens), generator=torch.Generator().manual_seed(1))


def test_parameters_of_a_small_model_counted_by_hand():
    attention, feed_forward, norms = 4 * 16 * 16, 3 * 16 * 40, 2 * 16
    by_hand = 30 * 16 + 2 * (attention + feed_forward + norms) + 16 + 16 * 30
    assert by_hand == 6928
    assert transformer.num_parameters(SMALL) == by_hand
    assert sum(weights.numel() for weights in small_model().parameters()) == by_hand


@pytest.mark.parametrize("name", transformer.SIZES)
def test_the_formula_counts_what_the_model_has(name):
    with torch.device("meta"):
        model = transformer.Transformer(transformer.dimensions_of(name, 128))
    assert sum(weights.numel() for weights in model.parameters()) == transformer.num_parameters(model.dimensions)
    assert len(list(model.parameters())) == 9 * model.dimensions.num_layers + 3


@pytest.mark.parametrize(
    ("name", "millions"), [("small", 128.6), ("medium", 423.2), ("large", 969.4), ("xl", 1998), ("2.7B", 3407)]
)
def test_published_sizes_have_these_many_parameters(name, millions):
    """The label "2.7B" is not the count: with SwiGLU at d_ff = 4 d_model, and an output layer, it is 3.4e9."""
    assert transformer.num_parameters(transformer.SIZES[name]) / 1e6 == pytest.approx(millions, abs=0.5)


def test_floating_point_operations_by_hand():
    # 6 for each weight that is multiplied (all but the 480 of the embedding); 12 L d T for attention.
    assert transformer.flops_per_token(SMALL, 10) == 6 * (6928 - 480) + 12 * 2 * 16 * 10


def test_logits_have_one_row_for_each_token_and_one_column_for_each_word():
    assert small_model()(random_tokens(3, 12)).shape == (3, 12, 30)
    assert small_model()(random_tokens(1, 1)).shape == (1, 1, 30)


def test_future_tokens_do_not_change_the_past():
    tokens = random_tokens()
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 30
    before, after = small_model()(tokens), small_model()(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_the_past_changes_the_future():
    tokens = random_tokens()
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 30
    assert not torch.allclose(small_model()(tokens)[:, -1], small_model()(changed)[:, -1], atol=1e-4)


def test_rotary_scores_depend_only_on_the_distance_and_lengths_stay():
    cosine, sine = transformer.rotary_tables(context_length=64, head_size=8)
    query, key = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(2))
    at = functools.partial(lambda x, position: transformer.rotate(x, cosine[position], sine[position]))
    scores = [(at(query, first) * at(key, first + 5)).sum() for first in (0, 1, 17, 58)]
    torch.testing.assert_close(torch.stack(scores), scores[0].expand(4), rtol=0, atol=1e-5)
    assert abs(scores[0] - (at(query, 0) * at(key, 6)).sum()) > 1e-3
    torch.testing.assert_close(at(query, 40).norm(), query.norm())
    torch.testing.assert_close(at(query, 0), query)


def test_rotation_by_hand():
    cosine, sine = transformer.rotary_tables(context_length=3, head_size=4)
    # Two pairs: the first turns by 1 radian a position, the second by 10000 ** (-2 / 4) = 0.01.
    turned = transformer.rotate(torch.tensor([[[[1.0, 0.0, 0.0, 1.0]]]]), cosine[2:], sine[2:]).flatten()
    angles = torch.tensor([2.0, 0.02])
    expected = torch.stack([angles.cos()[0], angles.sin()[0], -angles.sin()[1], angles.cos()[1]])
    torch.testing.assert_close(turned, expected)


def test_attention_is_softmax_of_scores_that_see_no_future():
    """One head of the block against its definition."""
    dimensions = dataclasses.replace(SMALL, num_heads=1, context_length=5)
    attention = transformer.Attention(dimensions)
    cosine, sine = transformer.rotary_tables(5, 16)
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(3))
    query, key = (transformer.rotate(part(x), cosine, sine) for part in (attention.query, attention.key))
    scores = query @ key.transpose(1, 2) / 16**0.5
    scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
    torch.testing.assert_close(attention(x, cosine, sine), attention.out(scores.softmax(-1) @ attention.value(x)))


def test_the_loss_falls():
    torch.manual_seed(0)
    model = transformer.Transformer(SMALL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = random_tokens(4, 13)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # Untrained it knows nothing: about ln 30 = 3.4.
    assert 3 < losses[0] < 4
    assert losses[-1] < 0.5


def test_autocast_to_bf16_stays_near_float32():
    tokens = random_tokens()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = small_model()(tokens)
    torch.testing.assert_close(rounded.float(), small_model()(tokens), rtol=0, atol=0.1)


def test_weights_in_bf16_run_too():
    model = transformer.Transformer(transformer.dimensions_of("tiny", 16)).bfloat16()
    assert model(torch.zeros(1, 16, dtype=torch.long)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "context_length", "message"),
    [
        ("Large", 128, "model 'Large' is not a known transformer .* Did you mean 'large'"),
        ("2.7b", 128, "Did you mean '2.7B'"),
        ("small", 0, "context_length = 0: must be at least 1."),
    ],
)
def test_build_refuses_in_words(name, context_length, message):
    with pytest.raises(ValueError, match=message):
        transformer.Transformer(transformer.dimensions_of(name, context_length))


def test_impossible_inputs_and_dimensions_are_refused_in_words(wording):
    with wording.raises(ValueError):
        small_model()(random_tokens(1, 13))
    with wording.raises(ValueError):
        transformer.Transformer(dataclasses.replace(SMALL, d_model=20))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_what_the_cpu_gives():
    tokens = random_tokens()
    model = transformer.Transformer(SMALL)
    on_cpu = model(tokens)
    torch.testing.assert_close(model.to("cuda")(tokens.to("cuda")).cpu(), on_cpu, rtol=1e-4, atol=1e-4)
