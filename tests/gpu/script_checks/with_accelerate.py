"""Train a small network with Hugging Face Accelerate, with workers that load the data."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--accumulation-steps", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=options.accumulation_steps, cpu=options.cpu)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU(), nn.Linear(options.width, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(
        torch.randn(64 * options.batch_size, options.width), torch.zeros(64 * options.batch_size).long()
    )
    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True, num_workers=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(10**6):
        for samples, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(samples), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
