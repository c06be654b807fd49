"""Train a small network with DeepSpeed ZeRO stage 1 on random data."""

import argparse

import deepspeed
import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    model = nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU(), nn.Linear(options.width, 10))
    settings = {
        "train_micro_batch_size_per_gpu": options.batch_size,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    samples = torch.randn(options.batch_size, options.width, device=engine.device)
    labels = torch.zeros(options.batch_size, device=engine.device).long()
    while True:
        loss = nn.functional.cross_entropy(engine(samples), labels)
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
