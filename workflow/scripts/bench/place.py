"""What a rank says of the place where it runs. Standard library only."""

from dataclasses import dataclass


@dataclass
class Place:
    """What one rank says about itself. `device`: `cpu`, or its GPU's identity, or None with the reason in `problem`."""

    rank: int
    local_rank: int
    host: str
    device: str | None
    problem: str | None
    cores: list[int]
    cpu_model: str | None
    memory_bytes: int | None
    gpu: dict | None
