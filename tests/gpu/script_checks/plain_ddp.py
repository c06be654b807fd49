"""Train a multilayer perceptron with DistributedDataParallel on random data, on GPUs if there are any."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10**9, help="of which the second half is timed")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--time", help="file for the seconds of a timed step")
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(options.width, options.width), nn.GELU()) for _ in range(options.layers)]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    train = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    samples = torch.randn(options.batch_size, options.width, device=device)
    marks = []
    for step in range(options.steps + 5):
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = train(samples).square().mean()
        loss.backward()
        optimizer.step()
        if options.time:
            marks.append(mark(has_gpu))
        if len(marks) == options.steps and dist.get_rank() == 0:
            write(marks, has_gpu, options.time)
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


def mark(has_gpu: bool):
    if not has_gpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def write(marks: list, has_gpu: bool, path: str) -> None:
    """Write the seconds per step over the last half of the steps, and their number."""
    first, last, num = marks[len(marks) // 2], marks[-1], len(marks) - 1 - len(marks) // 2
    if has_gpu:
        torch.cuda.synchronize()
    total_s = first.elapsed_time(last) / 1e3 if has_gpu else last - first
    with open(path, "w") as file:
        file.write(f"{total_s / num} {num}\n")


if __name__ == "__main__":
    main()
