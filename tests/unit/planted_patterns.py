"""Compared cells of which some are affected, with known truth: by one or two conditions, by chance, or by nothing."""

import itertools
import random

MODELS, STRATEGIES, BUCKETS = ("resnet50", "transformer"), ("ddp", "custom_flat"), (1, 25, 100)
SHAPES, COLLECTIVE_SHAPES = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (8, 4)), ((2, 4), (8, 4))
OPERATIONS, SIZES = ("all_reduce", "all_gather"), [4**power * 1024 for power in range(10)]


def matrix() -> list[dict]:
    """Return the axes of 112 cells: 72 training steps and 40 collectives. An axis that a cell lacks is absent."""
    steps = itertools.product(MODELS, SHAPES, BUCKETS, STRATEGIES)
    rows = [
        {"benchmark": "train_step", "subject": model} | place(shape) | {"bucket_cap_mb": bucket, "strategy": strategy}
        for model, shape, bucket, strategy in steps
    ]
    return rows + [
        {"benchmark": "collective", "subject": operation} | place(shape) | {"message_bytes": size}
        for operation, shape, size in itertools.product(OPERATIONS, COLLECTIVE_SHAPES, SIZES)
    ]


def place(shape: tuple[int, int]) -> dict:
    nodes, gpus = shape
    return {"shape": f"{nodes}x{gpus}", "nodes": nodes, "gpus_per_node": gpus, "world_size": nodes * gpus}


def planted(rng: random.Random, rows: list[dict], num_conditions: int, least: int, most: int) -> list[bool]:
    """Return which cells, `least` to `most`, meet random conditions, of which each excludes some."""
    while True:
        chosen = [rng.choice(rows) for _ in range(num_conditions)]
        axes = rng.sample([axis for axis in chosen[0] if axis in chosen[-1]], num_conditions)
        parts = [condition(rng, rows, axis, row[axis]) for axis, row in zip(axes, chosen, strict=True)]
        found = [all(met) for met in zip(*parts, strict=True)]
        if least <= sum(found) <= most and (num_conditions == 1 or all(sum(part) > sum(found) for part in parts)):
            return found


def condition(rng: random.Random, rows: list[dict], axis: str, value: object) -> list[bool]:
    """Return which rows have this value, or one up to it, or from it; the last two only for numbers."""
    kinds = ("equal", "up to", "from") if isinstance(value, int) else ("equal",)
    kind, values = rng.choice(kinds), [row.get(axis) for row in rows]
    if kind == "equal":
        return [known == value for known in values]
    return [known is not None and (known <= value if kind == "up to" else known >= value) for known in values]


def scattered(rng: random.Random, num_cells: int, num: int) -> list[bool]:
    """Return as many affected cells that no axis explains."""
    chosen = set(rng.sample(range(num_cells), num))
    return [index in chosen for index in range(num_cells)]


def flipped(rng: random.Random, is_affected: list[bool], ratio: float) -> list[bool]:
    """Return the cells with each one's verdict wrong with this probability."""
    return [is_one != (rng.random() < ratio) for is_one in is_affected]
