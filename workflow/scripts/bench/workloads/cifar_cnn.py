"""The models of train_run for 100 classes, and their batch norms."""

import torch
from torch import nn

from algorithms import batchnorm
from harness.peers import Ranks
from workloads.cifar import NUM_CLASSES
from workloads.models import import_torchvision

MODELS = ("cifar_cnn", "resnet18")
NORMS = ("batch", "own_sync", "torch_sync")


class CifarCnn(nn.Module):
    """The model of the published run: mryab/efficient-dl-systems, week 3, ddp_cifar100.py. Input (N, 3, 32, 32).

    Two convolutions of 32 channels, two linear layers; 825,988 parameters. Its batch norms have no weight and bias.
    """

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.BatchNorm2d(32, affine=False),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3),
            nn.BatchNorm2d(32, affine=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, NUM_CLASSES)
        )

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images_NCHW))


def build_model(name: str, norm: str) -> nn.Module:
    """Return the model with weights from torch's generator, on the CPU. resnet18: torchvision's, for 100 classes."""
    if name == "cifar_cnn":
        model = CifarCnn()
    else:
        model = import_torchvision().get_model(name, weights=None, num_classes=NUM_CLASSES)
    if norm == "own_sync":
        return batchnorm.convert(model)
    return nn.SyncBatchNorm.convert_sync_batchnorm(model) if norm == "torch_sync" else model


def check_norm(norm: str, ranks: Ranks) -> None:
    """Raise ValueError for a norm that this device does not support."""
    if norm == "torch_sync" and ranks.device.type == "cpu":
        raise ValueError("norm torch_sync: torch.nn.SyncBatchNorm runs on GPUs only. Set norm own_sync or device cuda.")
