"""Train a small transformer encoder with FSDP2 (fully_shard) and torch.compile, as torchtitan does, on random data."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--context-length", type=int, default=256)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--accumulation-steps", type=int, default=1)
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    device_type = "cuda" if has_gpu else "cpu"
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device_type, (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    layer = {"d_model": options.width, "nhead": 8, "dim_feedforward": 4 * options.width, "batch_first": True}
    layers = nn.ModuleList(nn.TransformerEncoderLayer(**layer, dropout=0.0) for _ in range(options.layers))
    model = nn.Sequential(*layers).to(device_type)
    for block in layers:
        if options.compile:
            block.compile()
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
    step = 0
    while True:
        optimizer.zero_grad()
        for _ in range(options.accumulation_steps):
            tokens = torch.randn(options.batch_size, options.context_length, options.width, device=device_type)
            with torch.autocast(device_type, dtype=torch.bfloat16):
                loss = model(tokens).float().square().mean() / options.accumulation_steps
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.5f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
