"""Train a small network with Lightning, with checkpoints, on as many devices as there are ranks on this host."""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning
except ImportError:  # its older name
    import pytorch_lightning as lightning


class Classifier(lightning.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))

    def training_step(self, batch: list, _index: int) -> torch.Tensor:
        samples, labels = batch
        loss = nn.functional.cross_entropy(self.network(samples), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    data = TensorDataset(
        torch.randn(64 * options.batch_size, options.width), torch.zeros(64 * options.batch_size).long()
    )
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy="ddp",
        max_epochs=10**6,
        logger=False,
        enable_progress_bar=False,
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(Classifier(options.width), DataLoader(data, batch_size=options.batch_size, num_workers=0))


if __name__ == "__main__":
    main()
