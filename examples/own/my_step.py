"""Matrix product on each rank, then the sum of the products over all ranks."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

from harness.peers import Ranks
from harness.timing import Workload

# Numbers of a measurement besides the time of an iteration.
RESULTS = {
    "work_flop": {"label": "Work per iteration", "unit": "FLOP", "help": "of the product on one rank: 2 size³"},
    "largest_error": {"label": "Largest error", "help": "of an element of the sum on rank 0"},
}


@dataclass
class Parameters:
    size: int  # rows and columns
    dtype: Literal["fp32", "bf16"] = "fp32"


def build(parameters: dict, ranks: Ranks) -> Workload:
    wanted = Parameters(**parameters)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[wanted.dtype]
    factor = torch.eye(wanted.size, dtype=dtype, device=ranks.device)
    total = torch.empty_like(factor)

    def iterate() -> None:  # timed, and nothing else
        torch.mm(factor, factor, out=total)
        dist.all_reduce(total)

    def error() -> float:
        return float((total - ranks.world_size * factor).abs().max())

    return Workload(
        iterate=iterate,
        check=lambda: {"sum_is_exact": error() == 0},
        values=lambda: {"work_flop": 2 * wanted.size**3, "largest_error": error()},
    )
