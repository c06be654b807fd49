"""A decoder-only transformer language model in the sizes of the CS336 exercise, untrained; parameter and FLOP counts.

Token embedding; pre-norm blocks of causal self-attention with rotary positions and of a SwiGLU feed-forward; a final
norm; an untied output layer. RMSNorm throughout, no biases, no dropout. Source of architecture and sizes:
stanford-cs336/assignment2-systems, 2025, table 1. Initial weights are torch's defaults.
"""

import dataclasses
import difflib
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

# Letters in names of tensors: B batch, T position, D d_model, H head, K dimension of a head, V vocabulary.

# Su et al. 2021, RoFormer, section 3.2.2.
ROPE_BASE = 10_000.0


@dataclass(frozen=True)
class Dimensions:
    """d_model: width of the residual stream. d_ff: inner width of the feed-forward. context_length: tokens at most."""

    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    vocab_size: int = 10_000
    context_length: int = 512


# Names are ambiguous: the "xl" of 2026 is the "2.7B" of 2025 (which has 3.4e9 parameters). So records contain the
# dimensions. tiny is not in the table; it is for a CPU.
SIZES = {
    "tiny": Dimensions(d_model=128, d_ff=512, num_layers=2, num_heads=4),
    "small": Dimensions(d_model=768, d_ff=3072, num_layers=12, num_heads=12),
    "medium": Dimensions(d_model=1024, d_ff=4096, num_layers=24, num_heads=16),
    "large": Dimensions(d_model=1280, d_ff=5120, num_layers=36, num_heads=20),
    "xl": Dimensions(d_model=1600, d_ff=6400, num_layers=48, num_heads=25),
    "2.7B": Dimensions(d_model=2560, d_ff=10240, num_layers=32, num_heads=32),
}


def dimensions_of(name: str, context_length: int) -> Dimensions:
    """Return the dimensions of a size. Raises ValueError for an unknown one, and for a context_length below 1."""
    if name not in SIZES:
        nearest = difflib.get_close_matches(name, SIZES, n=1, cutoff=0)[0]
        known = ", ".join(SIZES)
        raise ValueError(f"model {name!r} is not a known transformer ({known}). Did you mean {nearest!r}?")
    if context_length < 1:
        raise ValueError(f"context_length = {context_length}: must be at least 1.")
    return dataclasses.replace(SIZES[name], context_length=context_length)


def num_parameters(dims: Dimensions) -> int:
    """Return L (4 d^2 + 3 d d_ff + 2 d) + 2 V d + d: attention, SwiGLU, two norms; embedding, output, final norm."""
    d = dims.d_model
    return dims.num_layers * (4 * d * d + 3 * d * dims.d_ff + 2 * d) + 2 * dims.vocab_size * d + d


def flops_per_token(dims: Dimensions, context_length: int) -> int:
    """Return floating-point operations of forward and backward per token of a sequence of context_length, for MFU.

    6 N + 12 L d T (Chowdhery et al. 2022, PaLM, appendix B; L H Q there is L d here). N excludes the embedding, which
    is a lookup, and includes the output layer, as in torchtitan. Attention counts in full despite the causal mask;
    recomputation does not count.
    """
    multiplied = num_parameters(dims) - dims.vocab_size * dims.d_model
    return 6 * multiplied + 12 * dims.num_layers * dims.d_model * context_length


class Transformer(nn.Module):
    """tokens_BT, integers below vocab_size -> logits_BTV. Raises ValueError for more tokens than context_length."""

    def __init__(self, dimensions: Dimensions) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.embedding = nn.Embedding(dimensions.vocab_size, dimensions.d_model)
        self.blocks = nn.ModuleList(Block(dimensions) for _ in range(dimensions.num_layers))
        self.norm = make_norm(dimensions)
        self.output = nn.Linear(dimensions.d_model, dimensions.vocab_size, bias=False)
        cosine_TK, sine_TK = rotary_tables(dimensions.context_length, dimensions.d_model // dimensions.num_heads)
        self.register_buffer("cosine_TK", cosine_TK, persistent=False)
        self.register_buffer("sine_TK", sine_TK, persistent=False)

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        num_tokens = tokens_BT.shape[1]
        if num_tokens > self.dimensions.context_length:
            raise ValueError(f"{num_tokens} tokens, but context_length = {self.dimensions.context_length}.")
        cosine_TK, sine_TK = self.cosine_TK[:num_tokens], self.sine_TK[:num_tokens]
        x_BTD = self.embedding(tokens_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD, cosine_TK, sine_TK)
        return self.output(self.norm(x_BTD))


class Block(nn.Module):
    def __init__(self, dimensions: Dimensions) -> None:
        super().__init__()
        self.attention_norm = make_norm(dimensions)
        self.attention = Attention(dimensions)
        self.feed_forward_norm = make_norm(dimensions)
        self.feed_forward = FeedForward(dimensions)

    def forward(self, x_BTD: torch.Tensor, cosine_TK: torch.Tensor, sine_TK: torch.Tensor) -> torch.Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), cosine_TK, sine_TK)
        return x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD))


class Attention(nn.Module):
    """Causal multi-head self-attention. Query, key and value have separate weights, as in the exercise."""

    def __init__(self, dimensions: Dimensions) -> None:
        super().__init__()
        d = dimensions.d_model
        self.num_heads = dimensions.num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x_BTD: torch.Tensor, cosine_TK: torch.Tensor, sine_TK: torch.Tensor) -> torch.Tensor:
        query_BHTK = rotate(self.into_heads(self.query(x_BTD)), cosine_TK, sine_TK)
        key_BHTK = rotate(self.into_heads(self.key(x_BTD)), cosine_TK, sine_TK)
        value_BHTK = self.into_heads(self.value(x_BTD))
        mixed_BHTK = functional.scaled_dot_product_attention(query_BHTK, key_BHTK, value_BHTK, is_causal=True)
        return self.out(mixed_BHTK.transpose(1, 2).flatten(2))

    def into_heads(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return x_BTD.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)). Shazeer 2020, GLU Variants Improve Transformer."""

    def __init__(self, dimensions: Dimensions) -> None:
        super().__init__()
        self.gate = nn.Linear(dimensions.d_model, dimensions.d_ff, bias=False)
        self.up = nn.Linear(dimensions.d_model, dimensions.d_ff, bias=False)
        self.down = nn.Linear(dimensions.d_ff, dimensions.d_model, bias=False)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x_BTD)) * self.up(x_BTD))


def make_norm(dimensions: Dimensions) -> nn.Module:
    return nn.RMSNorm(dimensions.d_model, eps=1e-5)


def rotary_tables(context_length: int, head_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine of position times frequency, (context_length, head_size / 2) each, in float32."""
    if head_size % 2:
        raise ValueError(f"d_model / num_heads = {head_size}: rotary positions need an even number.")
    frequencies = ROPE_BASE ** -(torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    angles = torch.arange(context_length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x_BHTK: torch.Tensor, cosine_TK: torch.Tensor, sine_TK: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of neighboring dimensions by its position's angle. The result has the dtype of x."""
    even, odd = x_BHTK[..., 0::2], x_BHTK[..., 1::2]
    turned = torch.stack((even * cosine_TK - odd * sine_TK, even * sine_TK + odd * cosine_TK), dim=-1)
    return turned.flatten(-2).to(x_BHTK.dtype)
